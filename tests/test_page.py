"""The report page in a real browser: what it draws, how it answers mouse and keyboard, and that text stays text."""

import base64
import io
import json
import time

import numpy as np
import pytest
from PIL import Image

from iterq.report.page import page

from . import browser

pytestmark = pytest.mark.medium

By = pytest.importorskip("selenium.webdriver.common.by", reason="selenium is not installed").By
Keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
Actions = pytest.importorskip("selenium.webdriver.common.action_chains").ActionChains
Select = pytest.importorskip("selenium.webdriver.support.select").Select

LABELS = ["DQN", "i-DQN K=5", "QR-DQN"]
TASKS = ["Pong", "Breakout"]


def band(value, width=0.1, top=np.inf):
    return {"value": value.tolist(), "low": (value - width).tolist(), "high": np.minimum(value + width, top).tolist()}


def estimate(value):
    return {"value": value, "low": value - 0.1, "high": value + 0.1}


def gif():
    """Two frames, one dark and one light."""
    frames = [Image.new("L", (16, 16), shade) for shade in (40, 200)]
    frames[0].save(file := io.BytesIO(), "GIF", save_all=True, append_images=frames[1:])
    return base64.b64encode(file.getvalue()).decode()


def make_report(labels=LABELS, tasks=TASKS, seeds=3, points=20):
    """A report of noisy curves that rise, the same every time. The last label has not run on the last task."""
    rng = np.random.default_rng(0)
    steps = (np.arange(1, points + 1) * 250_000).tolist()

    def rising(size, height=1.0):
        return height * np.linspace(0, 1, points) ** 0.5 + 0.05 * height * rng.normal(size=(size, points))

    curves, final = {}, []
    for i, label in enumerate(labels):
        curves[label] = {}
        for j, task in enumerate(tasks):
            if len(labels) > 1 and len(tasks) > 1 and (i, j) == (len(labels) - 1, len(tasks) - 1):
                continue
            runs = rising(seeds, 20.0 * (j + 1) * (1 + 0.3 * i))
            curves[label][task] = {"steps": steps, **band(runs.mean(0), 1.0), "seeds": {str(k): run.tolist() for k, run in enumerate(runs)}}
            for k, run in enumerate(runs):
                last = {"value": float(run[-1]), "normalised": float(run[-1] / 20), "status": "finished"}
                final.append({"label": label, "task": task, "seed": k, "step": steps[-1], **last, "run": f"runs/{i}-{j}"})
    taus = np.linspace(0, 2, 41)
    return {
        "title": "i-DQN on two games",
        "made": "2026-11-15 22:30",
        "metric": "return",
        "unit": "human-normalised return",
        "labels": list(labels),
        "tasks": list(tasks),
        "baseline": next(iter(labels), None),
        "curves": curves,
        "final": final,
        "aggregate": {label: {"steps": steps, **band(rising(1, 1 + 0.3 * i)[0])} for i, label in enumerate(labels)},
        "profile": {
            "taus": taus.tolist(),
            "curves": {label: band(1 / (1 + np.exp(4 * (taus - 1 - 0.2 * i))), 0.05, 1.0) for i, label in enumerate(labels)},
        },
        "summary": [
            {
                "label": label,
                "runs": seeds * len(tasks),
                "steps_to_baseline": None if i == 1 else 1_000_000 * (9 + i),
                **{name: estimate(float(rng.normal())) for name in ("iqm", "median", "mean", "optimality_gap", "auc")},
                "hours_to_baseline": None if i == 1 else 2.5 * i,
            }
            for i, label in enumerate(labels)
        ],
        "improvement": [{"a": a, "b": b, **estimate(float(rng.random()))} for a in labels for b in labels if a != b],
        "differences": {"fields": ["K", "loss"], "rows": {label: [str([5, 10, 1][i % 3]), "huber"] for i, label in enumerate(labels)}},
        "machines": [
            {
                "run": f"runs/{i}-{j}",
                "label": label,
                "seeds": "0, 1",
                "steps": steps[-1],
                "hours": 1.5 * i + j,
                "status": ["finished", "running", "stopped", "crashed"][(i + j) % 4],
                "versions": {"jax": "0.10.2", "numpy": "2.1"},
            }
            for i, label in enumerate(labels)
            for j, _ in enumerate(tasks)
        ],
        "warnings": [],
        "videos": [],
    }


EMPTY = make_report([], [])


@pytest.fixture(scope="session")
def driver():
    driver = browser.start()
    yield driver
    driver.quit()


@pytest.fixture
def show(driver, tmp_path):
    """Opens the page of a report; afterwards the console must have stayed silent."""

    def open_page(report):
        (tmp_path / "report.html").write_text(page(report), "utf-8")
        driver.get((tmp_path / "report.html").as_uri())
        return driver

    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "light"}]})
    yield open_page
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert driver.get_log("browser") == []


def all_of(driver, selector):
    return driver.find_elements(By.CSS_SELECTOR, selector)


def one(driver, selector):
    return driver.find_element(By.CSS_SELECTOR, selector)


def names(driver, selector, attribute="data-label"):
    return [node.get_attribute(attribute) for node in all_of(driver, selector)]


def choose(driver, task):
    Select(one(driver, "#task")).select_by_visible_text(task)


def press(driver, *keys):
    Actions(driver, duration=0).send_keys(*keys).perform()


def focus(driver, selector):
    driver.execute_script("arguments[0].focus()", one(driver, selector))


def tooltip(driver, plot="#curves-plot"):
    """The place of the crosshair, and per label the point, value, low and high that the tooltip shows."""
    box = one(driver, f"{plot} .tooltip")
    assert box.is_displayed()
    rows = all_of(box, "div[data-label]")
    exact = {
        row.get_attribute("data-label"): tuple(
            None if (text := row.get_attribute(f"data-{name}")) is None else float(text) for name in ("x", "value", "low", "high")
        )
        for row in rows
    }
    return float(box.get_attribute("data-x")), exact, box.text


def column(driver, section, number):
    return [cell.text for cell in all_of(driver, f"#{section} tbody tr td:nth-child({number})")]


def background(driver):
    return driver.execute_script("return getComputedStyle(document.body).backgroundColor")


def test_the_page_fetches_nothing_and_names_what_it_shows(show):
    driver = show(make_report())
    assert driver.title == one(driver, "h1").text == "i-DQN on two games"
    assert one(driver, "#about").text == "Metric: return. 3 methods, 2 tasks, 15 agents. Made 2026-11-15 22:30."
    assert driver.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert not one(driver, "#warnings").is_displayed()
    assert not one(driver, "#videos").is_displayed()


def test_the_aggregate_and_every_task_draw_one_line_and_band_per_method(show):
    driver = show(make_report())
    assert names(driver, "#curves-plot .line") == names(driver, "#curves-plot .band") == LABELS
    assert names(driver, "#profile-plot .line") == LABELS
    choose(driver, "Pong")
    assert names(driver, "#curves-plot .line") == LABELS
    assert one(driver, "#curves-y").text == "return in Pong"
    choose(driver, "Breakout")
    assert names(driver, "#curves-plot .line") == names(driver, "#curves-plot .band") == LABELS[:2]  # the last method has not run on it


def test_lines_differ_in_colour_dashes_and_markers(show):
    labels = [f"method {i}" for i in range(8)]
    driver = show(make_report(labels, points=40))
    looks = [
        (line.value_of_css_property("stroke"), line.get_attribute("stroke-dasharray")) for line in all_of(driver, "#curves-plot .line")
    ]
    assert len(set(looks)) == 8
    assert len({colour for colour, _ in looks}) == 6
    keys = [mark.get_attribute("d") for mark in all_of(driver, "#legend .mark")]
    assert len(set(keys[:6])) == 6


def test_the_mouse_shows_the_values_of_the_data(show):
    report = make_report()
    driver = show(report)
    plot = one(driver, "#curves-plot")
    places = set()
    for share in (-0.4, 0.0, 0.3):
        Actions(driver, duration=0).move_to_element_with_offset(plot, int(share * plot.size["width"]), 0).perform()
        step, exact, text = tooltip(driver)
        places.add(step)
        i = report["aggregate"]["DQN"]["steps"].index(step)
        for label, data in report["aggregate"].items():
            assert exact[label] == (step, data["value"][i], data["low"][i], data["high"][i])
        assert f"step {step:,.0f}" in text
    assert len(places) == 3
    Actions(driver, duration=0).move_to_element(one(driver, "h1")).perform()
    assert not one(driver, "#curves-plot .tooltip").is_displayed()


def test_the_arrow_keys_show_and_announce_the_values_of_the_data(show):
    report = make_report()
    driver = show(report)
    choose(driver, "Pong")
    focus(driver, "#curves-plot")
    data = report["curves"]["DQN"]["Pong"]
    for key, place in ((Keys.RIGHT, 0), (Keys.RIGHT, 1), (Keys.LEFT, 0), (Keys.LEFT, 0), (Keys.END, -1), (Keys.RIGHT, -1), (Keys.HOME, 0)):
        press(driver, key)
        step, exact, text = tooltip(driver)
        assert step == data["steps"][place]
        assert exact["DQN"] == tuple(data[name][place] for name in ("steps", "value", "low", "high"))
    assert f"{data['value'][0]:.4g} [{data['low'][0]:.4g}, {data['high'][0]:.4g}]" in text
    said = one(driver, "#live").get_attribute("textContent")
    assert said.startswith("step 250,000. DQN: ")
    assert all(label in said for label in LABELS)
    press(driver, Keys.ESCAPE)
    assert not one(driver, "#curves-plot .tooltip").is_displayed()


def test_the_profile_answers_the_arrow_keys_too(show):
    report = make_report()
    driver = show(report)
    focus(driver, "#profile-plot")
    press(driver, Keys.END, Keys.LEFT)
    tau, exact, _ = tooltip(driver, "#profile-plot")
    assert tau == report["profile"]["taus"][-2]
    for label, curve in report["profile"]["curves"].items():
        assert exact[label] == (tau, curve["value"][-2], curve["low"][-2], curve["high"][-2])


def test_methods_measured_at_other_steps_show_their_nearest_point(show):
    report = make_report(LABELS[:2])
    report["aggregate"]["DQN"] = {"steps": [0, 100, 200], **band(np.arange(3.0))}
    report["aggregate"]["i-DQN K=5"] = {"steps": [0, 190], **band(np.arange(2.0))}
    driver = show(report)
    focus(driver, "#curves-plot")
    press(driver, Keys.END)
    step, exact, text = tooltip(driver)
    assert (step, exact["DQN"][:2], exact["i-DQN K=5"][:2]) == (200, (200, 2), (190, 1))
    assert "i-DQN K=5 (step 190)" in text


def test_the_legend_hides_and_shows_a_method_in_all_charts(show):
    driver = show(make_report())
    button = one(driver, '#legend button[data-label="DQN"]')
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert names(driver, "#curves-plot .line") == names(driver, "#profile-plot .line") == LABELS[1:]
    focus(driver, "#curves-plot")
    press(driver, Keys.RIGHT)
    assert list(tooltip(driver)[1]) == LABELS[1:]
    for key in (Keys.SPACE, Keys.ENTER, Keys.SPACE):
        button.send_keys(key)
    assert button.get_attribute("aria-pressed") == "true"
    assert names(driver, "#curves-plot .line") == names(driver, "#profile-plot .line") == LABELS
    for button in all_of(driver, "#legend button"):
        button.click()
    assert not all_of(driver, ".line:not(#legend *)")
    assert "hidden" in one(driver, "#curves-plot").text


def test_single_seeds_draw_one_thin_line_each_for_the_task_only(show):
    driver = show(make_report(seeds=4))
    assert not one(driver, "#seeds").is_enabled()
    choose(driver, "Breakout")
    assert not all_of(driver, ".seed")
    one(driver, "#seeds").click()
    drawn = list(zip(names(driver, ".seed"), names(driver, ".seed", "data-seed"), strict=True))
    assert drawn == [(label, str(seed)) for label in LABELS[:2] for seed in range(4)]
    choose(driver, "Pong")
    assert len(all_of(driver, ".seed")) == 12
    one(driver, "#seeds").click()
    assert not all_of(driver, ".seed")


def test_missing_values_leave_gaps(show):
    report = make_report(LABELS[:1])
    data = report["aggregate"]["DQN"]
    for name in ("value", "low", "high"):
        data[name][5] = data[name][7] = None  # the point between the two stands alone
    driver = show(report)
    for line in ("line", "band"):
        assert one(driver, f"#curves-plot .{line}").get_attribute("d").count("M") == 3
    focus(driver, "#curves-plot")
    press(driver, *[Keys.RIGHT] * 6)
    step, exact, text = tooltip(driver)
    assert (step, exact["DQN"]) == (data["steps"][5], (step, None, None, None))
    assert "no value" in text


@pytest.mark.parametrize(
    ("section", "number", "upwards"),
    [
        ("summary", 1, ["DQN", "i-DQN K=5", "QR-DQN"]),
        ("summary", 8, ["9,000,000", "11,000,000", "–"]),
        ("summary", 9, ["0", "5", "–"]),
        ("differences", 2, ["1", "5", "10"]),
        ("machines", 5, ["0", "1", "1.5", "2.5", "3", "4"]),
    ],
)
def test_tables_sort_both_ways_with_missing_values_last(show, section, number, upwards):
    driver = show(make_report())
    head = one(driver, f"#{section} th:nth-child({number})")
    assert head.get_attribute("aria-sort") == "none"
    one(head, "button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert column(driver, section, number) == upwards
    one(head, "button").send_keys(Keys.ENTER)
    assert head.get_attribute("aria-sort") == "descending"
    known = [text for text in upwards if text != "–"]
    assert column(driver, section, number) == known[::-1] + ["–"] * (len(upwards) - len(known))
    one(driver, f"#{section} th:nth-child(2) button").click()
    assert (head.get_attribute("aria-sort") == "none") == (number != 2)


def test_final_scores_sort_as_numbers_and_keep_their_exact_values(show):
    report = make_report()
    for agent, value in zip(report["final"], (-3.5, -20.25, None, 1e-7), strict=False):
        agent["value"] = value
    driver = show(report)
    one(driver, "#final th:nth-child(5) button").click()
    values = names(driver, "#final tbody td:nth-child(5)", "data-value")
    assert values[-1] is None
    assert list(map(float, values[:-1])) == sorted(agent["value"] for agent in report["final"] if agent["value"] is not None)


def test_versions_unfold_and_videos_play(show):
    report = make_report()
    report["videos"] = [{"label": "DQN", "task": task, "mime": "image/gif", "data": gif()} for task in TASKS]
    driver = show(report)
    assert not one(driver, "#machines li").is_displayed()
    one(driver, "#machines summary").click()
    assert [item.text for item in all_of(driver, "#machines details[open] li")] == ["jax 0.10.2", "numpy 2.1"]
    assert [caption.text for caption in all_of(driver, "#videos figcaption")] == ["DQN, Pong", "DQN, Breakout"]
    widths = driver.execute_async_script(
        "const [done] = arguments; const all = [...document.querySelectorAll('#videos img')];"
        "Promise.all(all.map((image) => image.decode())).then(() => done(all.map((image) => image.naturalWidth)))"
    )
    assert widths == [16, 16]


def test_light_and_dark_follow_the_system_until_the_button_decides(show):
    driver = show(make_report())
    light = background(driver)
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]})
    dark = background(driver)
    assert light == "rgb(255, 255, 255)" != dark
    button = one(driver, "#theme")
    until(driver, lambda: button.get_attribute("aria-pressed") == "true")  # the page is told a moment after its colours have changed
    button.click()
    assert (background(driver), button.get_attribute("aria-pressed")) == (light, "false")
    button.send_keys(Keys.ENTER)
    assert (background(driver), button.get_attribute("aria-pressed")) == (dark, "true")


def test_nothing_moves_for_those_who_asked_for_less_motion(show, driver):
    reduce = {"features": [{"name": "prefers-reduced-motion", "value": "reduce"}]}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", reduce)
    report = make_report()
    report["videos"] = [{"label": "DQN", "task": "Pong", "mime": "image/gif", "data": gif()}]
    show(report)
    assert not one(driver, "#videos img").is_displayed()
    one(driver, "#videos summary").click()
    assert one(driver, "#videos img").is_displayed()
    moving = "return [...document.querySelectorAll('*')].filter((node) => getComputedStyle(node).transitionDuration !== '0s').length"
    assert driver.execute_script(moving) == 0


def test_a_phone_needs_no_sideways_scrolling(show, driver):
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True})
    labels = ["DQN", "i-DQN with a name that is much too long for a phone " + "x" * 60, "QR-DQN"]
    report = make_report(labels, ["Pong", "a task " + "y" * 80])
    report["title"], report["warnings"] = "A title " + "z" * 80, ["w" * 100]
    show(report)
    choose(driver, report["tasks"][1])
    focus(driver, "#curves-plot")
    press(driver, Keys.END)
    assert driver.execute_script("return [innerWidth, document.documentElement.scrollWidth]") == [390, 390]
    wide = "return [...document.querySelectorAll('.scroll')].map((box) => box.scrollWidth > box.clientWidth)"
    assert any(driver.execute_script(wide))  # tables scroll inside their own box
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": 700, "height": 400, "deviceScaleFactor": 2, "mobile": True})
    sizes = "return [...document.querySelectorAll('.plot')].map((box) => [box.clientWidth, box.querySelector('.base').x2.baseVal.value])"
    until(driver, lambda: all(abs(width - end) < 40 for width, end in driver.execute_script(sizes)))  # charts follow the new width


def until(driver, true, seconds=10):
    pytest.importorskip("selenium.webdriver.support.wait").WebDriverWait(driver, seconds, 0.02).until(lambda _: true())


def test_the_tab_key_reaches_every_control_in_the_order_of_the_page(show):
    driver = show({**make_report(), "aggregate": None})  # with one, the page opens on it and the box for seeds is out of use
    controls = "button, select, input, summary, [tabindex='0']"
    driver.execute_script("document.querySelectorAll(arguments[0]).forEach((node, i) => { node.dataset.order = i; })", controls)
    total = len(all_of(driver, controls))
    assert total > 40
    reached = []
    for _ in range(total):
        press(driver, Keys.TAB)
        reached.append(driver.execute_script("return Number(document.activeElement.dataset.order ?? -1)"))
    assert reached == list(range(total))


def test_html_in_the_data_is_shown_as_text_and_does_nothing(show):
    evil = "</script><img src=x onerror='window.harm=1'><script>window.harm=1</script>&amp;${1}$title"
    report = make_report([evil, "constructor", "__proto__"], [evil, "toString"])
    report["title"] = report["unit"] = report["metric"] = evil
    report["warnings"] = [evil]
    report["differences"] = {"fields": [evil], "rows": {evil: [evil], "constructor": ["<b>1</b>"]}}
    report["machines"][0].update(run=evil, seeds=evil, status=evil, versions={evil: evil})
    report["final"][0].update(run=evil, status=evil)
    report["videos"] = [{"label": evil, "task": evil, "mime": "image/gif", "data": gif()}]
    driver = show(report)
    focus(driver, "#curves-plot")
    press(driver, Keys.RIGHT)
    assert list(tooltip(driver)[1]) == report["labels"]
    choose(driver, "toString")
    assert names(driver, "#curves-plot .line") == report["labels"][:2]
    choose(driver, evil)
    assert driver.title == one(driver, "h1").text == one(driver, "#warnings li").text == evil
    assert one(driver, "#legend span").text == evil
    assert column(driver, "differences", 2) == [evil, "<b>1</b>"]  # and no row of what every object inherits
    assert [column(driver, "machines", i)[0] for i in (1, 3, 6)] == [evil] * 3
    assert column(driver, "final", 8)[0] == evil
    assert driver.execute_script("return window.harm") is None
    assert driver.execute_script("return document.querySelectorAll('img:not(#videos img), script, b').length") == 2  # the page's own two


def test_the_policy_stops_scripts_that_are_not_the_page_s_own(show):
    driver = show(make_report())
    driver.execute_script(
        "const script = document.createElement('script'); script.textContent = 'window.harm = 1'; document.body.append(script);"
    )
    assert driver.execute_script("return window.harm") is None
    (refused,) = driver.get_log("browser")  # read here, so that the console counts as silent again
    assert "Content Security Policy" in refused["message"]


def test_warnings_come_first(show):
    driver = show({**make_report(), "warnings": ["Seed 3 of DQN crashed.", "Versions differ."]})
    assert [item.text for item in all_of(driver, "#warnings li")] == ["Seed 3 of DQN crashed.", "Versions differ."]
    assert one(driver, "#warnings").get_attribute("role") == "alert"
    assert one(driver, "#warnings").location["y"] < one(driver, "#legend").location["y"]


def test_a_method_without_any_value_is_no_obstacle(show):
    report = make_report()
    steps = report["aggregate"]["DQN"]["steps"]
    report["aggregate"]["DQN"] = {"steps": steps}
    report["aggregate"]["QR-DQN"] = {"steps": steps, **dict.fromkeys(("value", "low", "high"), [None] * len(steps))}
    driver = show(report)
    focus(driver, "#curves-plot")
    press(driver, Keys.END)
    _, exact, text = tooltip(driver)
    assert [exact[label][1] is None for label in LABELS] == [True, False, True]
    assert text.count("no value") == 2


def test_without_an_aggregate_or_a_profile_a_sentence_says_why(show):
    driver = show({**make_report(), "aggregate": None, "profile": None, "unit": "", "baseline": None})
    assert one(driver, "#no-aggregate").text == "Tasks are measured in different units; there is no aggregate over them."
    assert one(driver, "#no-profile").text == "Tasks are measured in different units; there is no performance profile over them."
    assert not one(driver, "#profile-plot").is_displayed()
    assert one(driver, "#summary p").text == "Final scores over all tasks and seeds."
    assert Select(one(driver, "#task")).first_selected_option.text == "Pong"
    assert names(driver, "#curves-plot .line") == LABELS


def test_empty_sections_are_a_sentence_each(show):
    empty = {"summary": [], "improvement": [], "final": [], "machines": [], "curves": {}, "aggregate": {}, "baseline": None}
    driver = show({**make_report(), **empty, "differences": {"fields": [], "rows": {}}})
    assert not all_of(driver, "table")
    for section in ("summary", "improvement", "differences", "final", "machines"):
        assert one(driver, f"#{section} p").text.endswith(".")
    assert one(driver, "#curves-plot").text == "No method has values here."
    choose(driver, "Pong")
    assert one(driver, "#curves-plot").text == "No method has values here."


def test_a_report_without_methods_says_so(show):
    driver = show({**EMPTY, "warnings": ["No runs were found."]})
    assert one(driver, "#empty").text == "There is nothing to show yet: this report holds no runs."
    assert one(driver, "#warnings li").text == "No runs were found."
    assert not any(part.is_displayed() for part in all_of(driver, "#charts, main section:not(#warnings)"))


def test_a_hundred_runs_of_two_hundred_epochs_are_small_and_quick(show, record_property):
    report = make_report([f"method {i}" for i in range(5)], [f"game {i}" for i in range(4)], seeds=5, points=200)
    size = len(page(report).encode())
    began = time.perf_counter()
    driver = show(report)
    assert len(all_of(driver, "#curves-plot .line")) == 5
    took = time.perf_counter() - began
    drawn = driver.execute_script("return performance.getEntriesByType('navigation')[0].domInteractive")
    choose(driver, "game 2")
    one(driver, "#seeds").click()
    assert len(all_of(driver, "#curves-plot .seed")) == 25
    print(f"\n{size / 1e6:.2f} MB, drawn after {drawn:.0f} ms in the browser and {took:.2f} s in all")
    assert size < 5e6
    assert took < 10


def test_numbers_that_are_no_json_are_refused():
    with pytest.raises(ValueError, match="JSON compliant"):
        page({**make_report(), "made": float("nan")})


def test_the_data_can_be_read_back_from_the_page():
    report = make_report(["<a>", "b"])
    text = page(report).split('id="data">')[1].split("</script>")[0]
    assert "<" not in text
    assert json.loads(text) == report
