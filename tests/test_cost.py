"""What a window costs, as XLA counts it, and what it saves."""

import csv
import json

import numpy as np
import pytest

from iterq import cli
from iterq.errors import Refusal
from iterq.report.compare import Comparison, Curve
from iterq.reproduce.cost import BATCH, PAPER, Config, Cost, judged, measure
from iterq.reproduce.time_saved import HOURS, hours_saved, time_saved

pytestmark = pytest.mark.medium

ONES = (1,) * len(Cost._fields)


def test_torso_passes_and_actions_do_not_grow_with_the_window():
    config = Config(K_dqn=(1, 3), repeats=1)
    one, three = (measure("i-dqn", K, config) for K in (1, 3))
    # A member more is a head more: its values of a batch and of the next frames, and the two products of its gradient.
    head = 7744 * 512 + 512 * 4
    more = (three.update_flops - one.update_flops) / 2
    assert 4 * 2 * 32 * head < more < 1.4 * 4 * 2 * 32 * head
    assert three.action_flops == pytest.approx(one.action_flops, rel=1e-3)
    # 32 filters of 8 × 8 × 4, 64 of 4 × 4 × 32, 64 of 3 × 3 × 64, and the head with its biases
    torso = (8 * 8 * 4 + 1) * 32 + (4 * 4 * 32 + 1) * 64 + (3 * 3 * 64 + 1) * 64
    assert (one.parameters, three.parameters) == (torso + head + 516, torso + 3 * (head + 516))
    # Online, anchor and two moments; a window also keeps its frozen targets.
    assert one.arrays_mb == pytest.approx(4 * 4 * one.parameters / 1e6, rel=0.01)
    frozen = torso + 2 * (head + 516)
    assert three.arrays_mb == pytest.approx(4 * (3 * three.parameters + one.parameters + frozen) / 1e6, rel=0.01)
    # The program also holds its batch and at least the gradient, but not a second learner: the new one takes the place of the old one.
    for cost in (one, three):
        batch = 2 * 32 * 84 * 84 * 4 / 1e6
        assert cost.arrays_mb + batch + 4 * cost.parameters / 1e6 < cost.program_mb < 2 * cost.arrays_mb
        assert cost.critic_flops == cost.update_flops


def test_critics_alone_grow_with_the_window_and_actors_do_not():
    one, two = (measure("i-sac", K, Config(repeats=1)) for K in (1, 2))
    # Two critics, 17 + 6 numbers to 256 to 256 to 1, on 256 transitions: values, targets, and the gradients of weights and of inputs
    assert one.critic_flops == pytest.approx(4 * 256 * 2 * 2 * (23 * 256 + 256 * 256 + 256), rel=0.05)
    assert two.critic_flops == pytest.approx(2 * one.critic_flops, rel=0.02)
    assert two.update_flops - two.critic_flops == pytest.approx(one.update_flops - one.critic_flops, rel=0.02)


def test_the_numbers_of_the_paper_pass_every_band():
    for (algorithm, K), paper in PAPER.items():
        times = Cost(*ONES)._replace(critic_flops=paper.flops)
        found = judged(algorithm, K, times, paper.gigabytes)
        assert [(q.ours, q.passed) for q in found if q.paper] == [(paper.flops, True), (1, True), (paper.gigabytes, True)]
        over = judged(algorithm, K, times._replace(critic_flops=K + 1.01, action_flops=1.02), paper.gigabytes + 0.06)
        assert [q.passed for q in over if q.band] == [False] * 3
    assert [q.passed for q in judged("i-dqn", 5, Cost(*ONES), 9.0, 2 * BATCH)][:3] == [False, True, None]
    assert [q.passed for q in judged("i-dqn", 10, Cost(*ONES)._replace(critic_flops=4.0), 9.0)][:3] == [True, True, None]


def compared(ours, base, seconds=(3600.0, 7200.0, 10800.0)):
    """A comparison of agents (agents, points) on one task, with a point per hour."""
    curves = {
        name: {"Task": Curve(np.arange(1, 4), np.array(x, float), [str(i) for i in range(len(x))], np.array(seconds))}
        for name, x in (("i-dqn", ours), ("dqn", base))
    }
    scores = {name: {"Task": found["Task"].values} for name, found in curves.items()}
    return Comparison("return", "return", curves, scores, [], "", [])


def test_saved_are_the_hours_until_the_last_score_of_the_base():
    base = [[0, 1, 2]] * 5
    # From 0 after one hour to 4 after two: 2 after an hour and a half
    value, low, high = hours_saved(compared([[0, 4, 4]] * 5, base), "i-dqn", "dqn")
    assert (value, low, high) == (1.5, 1.5, 1.5)
    assert hours_saved(compared([[0, 1, 1]] * 5, base), "i-dqn", "dqn") == (-np.inf,) * 3
    value, low, high = hours_saved(compared([[0, 1, 2], [0, 1, 1], [4, 4, 4], [0, 3, 4], [0, 0, 3]], base), "i-dqn", "dqn")
    assert low == -np.inf
    # The middle three of five are 1, 1, 3 after two hours and 2, 3, 4 after three: 2 is a quarter of the way from 5/3 to 3.
    assert value == pytest.approx(3 - 2.25)
    assert value < high <= 2
    assert hours_saved(compared(base, base, (np.nan, 7200.0, 10800.0)), "i-dqn", "dqn") is None
    assert hours_saved(compared(base, base), "i-iqn", "iqn") is None


def test_the_table_has_a_row_per_window_and_reads_runs(tmp_path, capsys):
    for name in ("dqn", "i-dqn"):
        words = ["--features", "8", "--total-timesteps", "400", "--learning-starts", "50", "--log-every", "100"]
        assert cli.command(["train", name, "--env", "jax/CartPole-v1", *words, "--out", str(tmp_path / "runs" / name)]) == 0
    capsys.readouterr()
    sizes = [word for name, K in (("dqn", "1"), ("iqn", "1"), ("sac", "1,2"), ("droq", "1")) for word in (f"--K-{name}", K)]
    words = ["reproduce", "cost", "--scale", "smoke", *sizes, "--runs", str(tmp_path / "runs"), "--json", "--out", str(tmp_path / "out")]
    assert cli.command(words) == 0
    assert len((tmp_path / "out" / "cost.csv").read_text().splitlines()) == 6
    found = json.loads(capsys.readouterr().out)
    assert found["config"]["runs"] == str(tmp_path / "runs")
    row, *others = found["quantities"]
    assert row["name"] == "i-dqn: hours saved until it comes to the last IQM of dqn"
    assert (row["band"], row["passed"]) == ("> 0 in the whole interval, of >= 5 seeds", None)
    assert [(q["band"], q["ours"], q["passed"]) for q in others[:3]] == [("no runs of both on a task", None, None)] * 3
    assert any("few seeds" in note for note in found["notes"])
    # At most what DQN took in all, and that by its own clock
    with (tmp_path / "runs" / "dqn" / "episodes.csv").open() as file:
        took = max(float(line["wall_time"]) for line in csv.DictReader(file)) / 3600
    assert row["ours"] is None or row["ours"] <= took
    # Of SAC, only the critics stand beside the paper.
    assert [q["name"].partition(":")[0] for q in others[3:]] == ["i-sac, K = 2"] * 5
    assert [q["band"] for q in others if "actor" in q["name"]] == [""]


def test_without_runs_nothing_is_said_to_be_saved():
    quantities, tables, notes = time_saved(None)
    assert [(q.name.partition(":")[0], q.band, q.passed) for q in quantities] == [(name, "no runs given", None) for name in HOURS]
    assert (tables, notes) == ([], [])


def test_five_seeds_are_judged_and_settings_are_kept_apart(tmp_path):
    def write(name, algorithm, slope, **settings):
        (tmp_path / name).mkdir()
        config = {"algorithm": algorithm, "env": "CartPole-v1", "seeds": [*range(5)], "total_timesteps": 1_000, **settings}
        (tmp_path / name / "config.json").write_text(json.dumps(config))
        rows = [f"{seed},{n},{slope * n + 0.01 * seed},10,{36 * n}" for n in range(10, 1_001, 10) for seed in range(5)]
        (tmp_path / name / "episodes.csv").write_text("\n".join(["seed,step,return,length,wall_time", *rows, ""]))

    write("dqn", "dqn", 1.0)
    write("fast", "i-dqn", 2.0, K=5)
    write("slow", "i-dqn", 0.5, K=10)
    quantities, tables, notes = time_saved(tmp_path)
    saved = {q.name.partition(":")[0]: q for q in quantities}
    # A step takes a hundredth of an hour: all 1 000 of them ten hours. Twice the slope comes there in half the time, half of it never.
    assert saved["i-dqn K=5"].ours == pytest.approx(5, abs=0.01)
    assert (saved["i-dqn K=5"].passed, saved["i-dqn K=10"].passed) == (True, False)
    assert saved["i-dqn K=10"].ours == -np.inf
    assert [row[:3] for row in tables[0][2]] == [("i-dqn K=5 against dqn", "1", "5"), ("i-dqn K=10 against dqn", "1", "5")]
    assert any(note.startswith("i-dqn K=5 against dqn: ") and "crashed" in note for note in notes)
    with pytest.raises(Refusal, match="does not exist"):
        time_saved(tmp_path / "nothing")
