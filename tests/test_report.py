"""`iterq report`: from run directories, ours and others', to scores, tables, figures and a page."""

import csv
import fcntl
import json
import os
import re

import numpy as np
import pytest

from iterq import cli
from iterq.epochs import epochs
from iterq.errors import Refusal
from iterq.report.compare import compare, comparison
from iterq.report.findings import aggregates, findings, summary, with_others
from iterq.report.scores import curve, point_width, read_run, task_of

RNG = np.random.default_rng(3)


def make_run(folder, algorithm="dqn", env="CartPole-v1", seeds=(0, 1), steps=1_000, total=1_000, slope=0.1, checkpoint=True, **settings):
    """A run directory with an episode every 10 steps, whose returns grow with `slope` per step."""
    folder.mkdir(parents=True)
    config = {"algorithm": algorithm, "env": env, "seeds": list(seeds), "total_timesteps": total, "K": 1, **settings}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "versions.json").write_text(json.dumps({"jax": "0.10.2"}))
    rows = [f"{seed},{n},{slope * n + seed},10,{n / 100}" for n in range(10, steps + 1, 10) for seed in seeds]
    (folder / "episodes.csv").write_text("\n".join(["seed,step,return,length,wall_time", *rows, ""]))
    lines = [
        {"seed": seed, "step": n, "eval/mean_reward": 2.0 * n, "time/time_elapsed": 0.1 * n}
        for n in range(0, steps + 1, 250)
        for seed in seeds
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if checkpoint:
        (folder / "checkpoint" / f"step-{steps:012d}").mkdir(parents=True)
    return folder


def told(capsys, *words):
    """What the command prints as JSON."""
    capsys.readouterr()
    assert cli.command(["report", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_runs_become_a_page_tables_and_figures(tmp_path, capsys):
    for K in (1, 5):
        make_run(tmp_path / "runs" / f"k{K}", "i-dqn", K=K, slope=0.1 * K, seeds=range(5))
    found = told(capsys, tmp_path / "runs", "--out", tmp_path / "out")
    assert found["labels"] == ["i-dqn K=1", "i-dqn K=5"]
    assert found["warnings"] == []
    # Points every 10 steps, an episode in each: at the end 0.1 K x 1000 + seed, whose IQM over 0 … 4 leaves out one at either end.
    assert [row["iqm"]["value"] for row in found["summary"]] == pytest.approx([102, 502])
    assert {"report.html", "tasks.png", "tasks.pdf", "profile.png", "summary.pdf", "hours.png", "curves.csv", "final.csv"} <= set(
        found["files"]
    )
    assert set(found["files"]) == {path.name for path in (tmp_path / "out").iterdir()}
    assert "i-dqn K=5" in (tmp_path / "out" / "report.html").read_text()
    assert len(rows_of(tmp_path / "out" / "curves.csv")) == 2 * 5 * 100
    # An episode every 10 steps takes a tenth of a second, and points are 10 steps apart.
    assert float(rows_of(tmp_path / "out" / "hours.csv")[99]["hours"]) == pytest.approx(10 / 3600)
    shown = json.loads(
        re.search(r"<script[^>]*application/json[^>]*>(.*?)</script>", (tmp_path / "out" / "report.html").read_text(), re.S)[1]
    )
    for row in rows_of(tmp_path / "out" / "tasks.csv"):
        drawn = shown["curves"][row["label"]][row["task"]]
        at = drawn["steps"].index(float(row["step"]))
        assert [float(row[name]) for name in ("value", "low", "high")] == [drawn[name][at] for name in ("value", "low", "high")]
    assert rows_of(tmp_path / "out" / "final.csv")[0]["status"] == "finished"
    beats = {(row["a"], row["b"]): row["value"] for row in found["improvement"]}
    assert beats == {("i-dqn K=5", "i-dqn K=1"): 1.0, ("i-dqn K=1", "i-dqn K=5"): 0.0}
    again = told(capsys, tmp_path / "runs", "--out", tmp_path / "out", "--metric", "eval", "--group", "K")  # in its own place
    assert again["labels"] == ["K=1", "K=5"]
    assert [row["iqm"]["value"] for row in again["summary"]] == [2_000, 2_000]


def test_points_are_epochs_of_the_protocol_or_evenly_spaced(tmp_path):
    run = make_run(tmp_path / "run", seeds=(0,))
    log = read_run(run, "return").logs[0]
    by_rule = epochs(zip(log.steps.astype(int).tolist(), log.values.tolist(), strict=True), 95)
    values, seconds = curve(log, "return", 95, by_epochs=True)
    np.testing.assert_allclose(values, [epoch.mean_return for epoch in by_rule])
    np.testing.assert_allclose(seconds, [epoch.end / 100 for epoch in by_rule])
    values, _ = curve(log, "return", 200, by_epochs=False)
    np.testing.assert_allclose(values, [np.mean([0.1 * n for n in range(k - 190, k + 1, 10)]) for k in range(200, 1001, 200)])
    sparse = log._replace(steps=np.array([5.0, 35.0]), values=np.array([1.0, 2.0]), seconds=None)
    np.testing.assert_array_equal(curve(sparse, "return", 10, by_epochs=False)[0], [1, 1, 1])
    before = log._replace(steps=np.array([0.0, 10.0, 18.0]), values=np.array([-5.0, 1.0, 2.0]), seconds=None)
    # What was seen before anything was learned belongs to no point; the last that was seen of a metric is one.
    np.testing.assert_array_equal(curve(before, "eval", 10, by_epochs=False)[0], [1, 2])
    np.testing.assert_array_equal(curve(before, "return", 10, by_epochs=False)[0], [1])
    alone = log._replace(steps=np.zeros(1), values=np.array([-5.0]), seconds=None)
    assert curve(alone, "eval", 10, by_epochs=False)[0].size == 0
    assert [point_width(x) for x in (0, 70, 1_000, 24_000, 1e6, 30e6)] == [1, 1, 10, 250, 10_000, 500_000]
    assert [point_width(1e6, apart) for apart in (200, 50_000, 60_000)] == [10_000, 50_000, 100_000]


def test_points_are_no_closer_than_what_was_logged(tmp_path):
    lines = [f"sac,{task},{step},{step / 10}" for task, every in (("A", 50), ("B", 20)) for step in range(every, 1_001, every)]
    (tmp_path / "table.csv").write_text("\n".join(["algorithm,task,step,value", *lines]))
    found = compare([tmp_path / "table.csv"]).curves["sac"]
    assert found["A"].values.tolist() == [[step / 10 for step in range(50, 1_001, 50)]]
    assert found["B"].values[0, :3].tolist() == [3, 8, 13]  # of 20 and 40, of 60, 80 and 100, of 120 and 140


def test_atari_is_normalised_by_humans_and_others_by_a_baseline(tmp_path):
    pong = make_run(tmp_path / "a" / "pong", env="ALE/Pong-v5")
    found = compare([pong], epoch=100)
    assert (found.unit, found.tasks) == ("human-normalised return", ["Pong"])
    assert any("few seeds: as few as 2 (dqn)" in warning for warning in found.warnings)
    np.testing.assert_allclose(found.normalised["dqn"]["Pong"], (found.curves["dqn"]["Pong"].values + 20.7) / (14.6 + 20.7))
    for task in ("Hopper-v5", "Ant-v5"):
        make_run(tmp_path / "b" / f"sac-{task}", "sac", task)
        make_run(tmp_path / "b" / f"isac-{task}", "i-sac", task, slope=0.2)
    without = compare([tmp_path / "b"])
    assert without.unit == ""
    assert any("--baseline" in warning for warning in without.warnings)
    assert summary(without, aggregates(without))[0]["iqm"] is None
    found = compare([tmp_path / "b"], baseline="sac")
    finals = {label: np.mean([x[:, -1] for x in tasks.values()]) for label, tasks in found.normalised.items()}
    assert finals == pytest.approx({"sac": 1.0, "i-sac": 200.5 / 100.5})
    assert not any("both sides of 0" in warning or "different tasks" in warning for warning in found.warnings)
    row = next(row for row in summary(found, aggregates(found)) if row["label"] == "i-sac")
    # 0.2 n + 1/2 is 100.5 at n = 500, when 5 seconds had passed
    assert row["steps_to_baseline"] == pytest.approx(500)
    assert row["hours_to_baseline"] == pytest.approx(5 / 3600)
    with pytest.raises(Refusal, match="--baseline 'ppo' is none of 'i-sac', 'sac'"):
        compare([tmp_path / "b"], baseline="ppo")


def test_a_baseline_around_zero_and_tasks_of_different_lengths_are_doubted(tmp_path):
    make_run(tmp_path / "a", "sac", "Hopper-v5", steps=500, total=500)
    episodes = make_run(tmp_path / "b", "sac", "Ant-v5", seeds=(0, 5)) / "episodes.csv"
    header, *rows = (line.split(",") for line in episodes.read_text().splitlines())
    low = [[*row[:2], str(float(row[2]) - 200), *row[3:]] if row[0] == "0" else row for row in rows]  # ends at -100 and 105
    episodes.write_text("".join(",".join(row) + "\n" for row in [header, *low]))
    found = compare([tmp_path], baseline="sac")
    text = " ".join(found.warnings)
    assert "agents of sac end on both sides of 0 on Ant-v5" in text
    assert "sac has gone 500 to 1,000 steps on different tasks" in text
    assert "Hopper-v5: scores" not in text
    # The last points are those of every task, the curve goes as far as all of them.
    assert summary(found, aggregates(found))[0]["mean"]["value"] == pytest.approx(1.0)
    assert len(found.common("sac")[0]) == 50


def test_names_of_games():
    assert [task_of(name) for name in ("Pong", "ALE/Pong-v5", "PongNoFrameskip-v4", "pong", "Hopper-v5")] == ["Pong"] * 4 + ["Hopper-v5"]


def test_runs_that_have_not_finished_are_taken_as_they_are(tmp_path):
    make_run(tmp_path / "done")
    make_run(tmp_path / "stopped", steps=600)
    make_run(tmp_path / "crashed", steps=800, checkpoint=False)
    running = make_run(tmp_path / "running", steps=700)
    held = os.open(running / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        found = compare([tmp_path])
    finally:
        os.close(held)
    assert {source.name.split("/")[-1]: source.status for source in found.sources} == {
        "done": "finished",
        "stopped": "stopped",
        "crashed": "crashed",
        "running": "running",
    }
    text = " ".join(found.warnings)
    assert all(words in text for words in ("has crashed", "is still running", "was stopped", "unequally far: 600 to 1,000"))
    assert found.curves["dqn"]["CartPole-v1"].seeds == ["0", "1", "0'", "1'", "0''", "1''", "0'''", "1'''"]
    assert read_run(running, "return").status == "stopped"  # looking has not disturbed anybody


def test_what_cannot_be_read_is_left_out_and_said(tmp_path):
    run = make_run(tmp_path / "run")
    with (run / "episodes.csv").open("a") as file:
        file.write("0,990,nan,10,9.9\nbroken,line\n0,99")
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"seed": 0, "st')
    (run / "versions.json").write_text("{")
    found = compare([run])
    text = " ".join(found.warnings)
    assert "2 lines of episodes.csv cannot be read and were left out" in text
    assert "1 values of seed 0 are not finite and were left out" in text
    assert "versions.json cannot be read" in text
    assert found.curves["dqn"]["CartPole-v1"].values.shape == (2, 100)
    assert "1 lines of metrics.jsonl" in " ".join(compare([run], metric="eval").warnings)


def test_one_seed_alone_is_reported_with_a_warning(tmp_path, capsys):
    make_run(tmp_path / "run", seeds=(7,))
    found = told(capsys, tmp_path / "run", "--out", tmp_path / "out")
    assert found["warnings"] == ["few seeds: as few as 1 (dqn); intervals are not to be trusted"]
    assert found["summary"][0]["iqm"] == {"value": 107.0, "low": 107.0, "high": 107.0}


def test_what_is_no_run_is_refused_in_one_line(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "holiday.txt").write_text("sun")
    (tmp_path / "odd.csv").write_text("a,b\n1,2\n")
    (tmp_path / "odd.json").write_text("{}")
    new = make_run(tmp_path / "new", steps=0, checkpoint=False)
    for path, message in (
        ("nowhere", "does not exist"),
        ("empty", "holds no run of iterq"),
        ("foreign", "holds no run of iterq"),
        ("odd.csv", "has no column for steps and values"),
        ("odd.json", "cannot be understood"),
        (new, "nothing to report yet"),
    ):
        with pytest.raises(Refusal, match=message):
            cli.command(["report", str(tmp_path / path), "--out", str(tmp_path / "out")])
    with pytest.raises(Refusal, match="no run has a setting 'Kay'"):
        cli.command(["report", str(make_run(tmp_path / "run")), "--group", "Kay"])
    with pytest.raises(Refusal, match="did you mean '--metric'"):
        cli.command(["report", str(tmp_path / "run"), "--metrik", "eval"])
    with pytest.raises(Refusal, match="has no metric 'loss'"):
        cli.command(["report", str(tmp_path / "run"), "--metric", "loss"])
    assert not (tmp_path / "out").exists()


def test_a_game_that_nobody_has_measured_and_different_environments_under_one_name_are_said(tmp_path):
    make_run(tmp_path / "a", env="ALE/Pong-v5")
    make_run(tmp_path / "b", "i-dqn", env="PongNoFrameskip-v4")
    make_run(tmp_path / "c", "i-dqn", env="ALE/Adventure-v5")
    found = compare([tmp_path])
    assert found.unit == ""
    text = " ".join(found.warnings)
    assert "different environments go by the name Pong: ALE/Pong-v5, PongNoFrameskip-v4" in text
    assert "not on the same tasks" in text


def test_results_of_others(tmp_path):
    (tmp_path / "pong.json").write_text(
        json.dumps([{"Iteration": i, "Value": v, "Agent": a} for a in ("DQN", "IQN") for v in (-20.0, -18.0) for i in range(3)])
    )
    found = compare([tmp_path / "pong.json"])
    assert found.unit == "human-normalised return"
    np.testing.assert_array_equal(found.curves["IQN"]["Pong"].steps, [250_000, 500_000, 750_000])
    np.testing.assert_array_equal(found.curves["DQN"]["Pong"].values, [[-20] * 3, [-18] * 3])

    lines = [f"PPO,Hopper-v5,{s},{n},{n + s}" for s in (1, 2) for n in (10, 20)]
    (tmp_path / "table.csv").write_text("\n".join(["method,env,seed,global_step,episodic_return", *lines]))
    found = compare([tmp_path / "table.csv"], epoch=10)
    np.testing.assert_array_equal(found.curves["PPO"]["Hopper-v5"].values, [[11, 21], [12, 22]])

    (tmp_path / "sb3").mkdir()
    (tmp_path / "sb3" / "0.monitor.csv").write_text('#{"t_start": 1.0, "env_id": "CartPole-v1"}\nr,l,t\n10.0,10,0.1\n30.0,30,0.4\n')
    found = compare([tmp_path / "sb3"], epoch=10)
    np.testing.assert_array_equal(found.curves["sb3"]["CartPole-v1"].values, [[10, 10, 10, 30]])

    np.savez(tmp_path / "scores.npz", A=RNG.normal(size=(3, 2)), B=RNG.normal(size=(4, 2)), tasks=np.array(["Pong", "Breakout"]))
    found = compare([tmp_path / "scores.npz"])
    assert {label: [len(x.seeds) for x in tasks.values()] for label, tasks in found.curves.items()} == {"A": [3, 3], "B": [4, 4]}

    np.savez(tmp_path / "pickled.npz", A=np.array([{}], object))
    with pytest.raises(Refusal, match="cannot be understood: ValueError: Object arrays cannot be loaded"):
        compare([tmp_path / "pickled.npz"])


def test_folders_of_tensorboard(tmp_path):
    from iterq.sinks import TensorBoard

    board = TensorBoard(tmp_path / "Hopper-v5__sac__1__1700000000", "sb3")
    for n in (100, 200, 300):
        board.add({"seed": 1, "step": n, "rollout/ep_rew_mean": float(n)}, float(n))
    board.close()
    folders = [path.parent for path in (tmp_path).rglob("events.out.tfevents*")]
    found = compare(folders[:1], epoch=100)
    assert [x.values.tolist() for tasks in found.curves.values() for x in tasks.values()] == [[[100, 200, 300]]]


def test_a_real_run_beside_numbers_from_elsewhere(tmp_path, capsys):
    words = ["--features", "8", "--batch-size", "4", "--learning-starts", "50", "--buffer-size", "200", "--total-timesteps", "300"]
    assert cli.command(["train", "dqn", "--env", "jax/CartPole-v1", "--seeds", "2", *words, "--out", str(tmp_path / "run")]) == 0
    (tmp_path / "theirs.csv").write_text("label,task,step,value\nrandom,jax/CartPole-v1,100,20\nrandom,jax/CartPole-v1,300,22\n")
    found = told(capsys, tmp_path / "run", tmp_path / "theirs.csv", "--out", tmp_path / "out", "--epoch", "100", "--baseline", "random")
    assert found["labels"] == ["dqn", "random"]
    assert found["tasks"] == ["jax/CartPole-v1"]
    page = (tmp_path / "out" / "report.html").read_text()
    assert str(tmp_path / "run") in page


def test_a_report_that_is_watched_is_written_again_until_runs_have_ended(tmp_path, capsys, monkeypatch):
    from iterq.report import command

    run, looks = make_run(tmp_path / "run", steps=500), []
    held = os.open(run / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(held, fcntl.LOCK_EX)

    def sleep(seconds):
        looks.append(seconds)
        if len(looks) == 2:
            os.close(held)

    monkeypatch.setattr(command.time, "sleep", sleep)
    assert cli.command(["report", str(run), "--out", str(tmp_path / "out"), "--watch"]) == 0
    assert len(looks) == 2
    assert capsys.readouterr().out.count("report.html") == 3


def test_tasks_that_begin_at_different_steps_are_aligned_by_step(tmp_path):
    """The first point of a task whose first episode is long must not meet the first point of another (audit 5)."""
    early = make_run(tmp_path / "early", env="CartPole-v1", seeds=range(5))
    late = make_run(tmp_path / "late", env="Acrobot-v1", seeds=range(5))
    rows = (late / "episodes.csv").read_text().splitlines()
    kept = [row for row in rows[1:] if int(row.split(",")[1]) > 300]
    first = [f"{seed},300,0.0,300,3.0" for seed in range(5)]  # an episode of 300 steps
    (late / "episodes.csv").write_text("\n".join([rows[0], *first, *kept, ""]))
    c = compare([early, late], "return", "dqn", epoch=100)
    assert [c.curves["dqn"][task].steps[0] for task in ("CartPole-v1", "Acrobot-v1")] == [100, 300]
    steps, (here, there) = c.common("dqn")
    assert steps.tolist() == list(range(300, 1001, 100))
    ends = {task: c.curves["dqn"][task].values[:, -1].mean() for task in ("CartPole-v1", "Acrobot-v1")}
    at_300 = c.curves["dqn"]["CartPole-v1"].values[:, 2] / ends["CartPole-v1"]
    np.testing.assert_allclose(here[:, 0], at_300)
    np.testing.assert_allclose(there[:, -1], c.curves["dqn"]["Acrobot-v1"].values[:, -1] / ends["Acrobot-v1"])
    assert len(aggregates(c)["dqn"][0]) == len(steps)


def test_a_metric_that_begins_late_or_is_null_is_drawn_where_it_was_seen(tmp_path):
    """Audit 4: points had no gaps, so such a metric was drawn too early, and a null was a TypeError."""
    run = make_run(tmp_path / "run", seeds=(0,))
    lines = [{"seed": 0, "step": n, "iqn/head_std": None if n == 700 else float(n)} for n in range(500, 1001, 100)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    curve = compare([run], "iqn/head_std", epoch=100).curves["dqn"]["CartPole-v1"]
    # An episode every ten steps: a tenth of the steps of the log are resets.
    assert curve.steps[0] == 500
    assert curve.values[0].tolist() == [500, 600, 600, 800, 900, 1_000]


def test_others_are_drawn_as_far_as_ours_go(tmp_path):
    run = make_run(tmp_path / "run", env="ALE/Pong-v5", seeds=range(5))
    c = compare([run], "return", epoch=100)
    beside = {"them": {"Pong": (np.array([500, 5_000]), np.array([-20.0, 21.0]))}}
    over_tasks, by_task = with_others(c, findings(c), beside)
    for curves, value in ((over_tasks, (-20 + 20.7) / (14.6 + 20.7)), (by_task["Pong"], -20.0)):
        steps, found = curves["them"]
        assert (steps.tolist(), found.value.tolist()) == ([500], [pytest.approx(value)])


def test_only_the_first_points_of_an_agent_count_where_that_is_asked(tmp_path):
    """Agents of a fleet that waits for its last one have more epochs than they were asked for."""
    run = make_run(tmp_path / "run", env="ALE/Pong-v5", seeds=range(5))
    source = read_run(run, "return")._replace(label="dqn")
    whole, first = (comparison([source], "return", epoch=200, points=points).curves["dqn"]["Pong"] for points in (None, 2))
    assert (whole.steps.tolist(), first.steps.tolist()) == ([200, 400, 600, 800, 1_000], [200, 400])
    np.testing.assert_array_equal(first.values, whole.values[:, :2])


@pytest.mark.parametrize(("settings", "said"), [({"seeds": 3}, "seeds must be"), ({"total_timesteps": "x"}, "total_timesteps must be int")])
def test_a_damaged_configuration_is_refused_with_its_name(settings, said, tmp_path):
    run = make_run(tmp_path / "run")
    found = {"env": "CartPole-v1", "seeds": [0], **settings}
    (run / "config.json").write_text(json.dumps({"format": 2, "settings": found}))
    with pytest.raises(Refusal, match=f"run/config.json: {said}"):
        read_run(run, "return")
