"""The Atari and MuJoCo experiments: what they run, say and write, and that a second call goes on from the runs of the first."""

import csv
import dataclasses
import functools
import json
import math

import numpy as np
import pytest

from iterq import cli, runs
from iterq.errors import Refusal
from iterq.games import games
from iterq.report.stats import Estimate
from iterq.reproduce import EXPERIMENTS, atari, mujoco, suite
from iterq.reproduce.training import logged_rate, train
from iterq.store import CONFIG

EVERY = (*atari.ALL, *mujoco.ALL)
MODULES = {"atari": atari, "mujoco": mujoco}


def test_every_experiment_is_there_under_its_name():
    named = {name: place for name, (place, _) in EXPERIMENTS.items() if name.partition("-")[0] in MODULES}
    assert named.keys() == {experiment.name for experiment in EVERY}
    for name, place in named.items():
        assert getattr(MODULES[name.partition("-")[0]], place.partition(":")[2]).name == name


@pytest.mark.parametrize("experiment", EVERY, ids=lambda e: e.name)
@pytest.mark.parametrize("scale", ["smoke", "default", "paper"])
def test_every_method_of_every_experiment_has_a_configuration_of_its_own(experiment, scale):
    config = experiment.Config(**experiment.SCALES[scale])
    settings = [experiment.settings(label, config, experiment.tasks[0]) for label in experiment.methods]
    assert len({str(found) for found in settings}) == len(settings)
    assert set(experiment.tasks) <= {*games(), *mujoco.TASKS}
    assert {label for claim in (*experiment.claims, *experiment.on_the_way) for label in claim} <= set(experiment.methods)
    if scale == "paper":
        on_atari = experiment in atari.ALL
        expected = (50_000_000, 20_000, 1_000_000, 5) if on_atari else (1_000_000, 5_000, 1_000_000, 10)
        assert {(s.total_timesteps, s.learning_starts, s.buffer_size, len(s.seeds)) for s in settings} == {expected}
        assert len(experiment.chosen(config)) == len(experiment.tasks)


def test_the_main_experiment_has_the_twenty_games_of_the_paper():
    assert len(atari.main.tasks) == 20
    assert {"Breakout", "Seaquest", "Skiing"} <= set(atari.main.tasks)
    # 3 125 windows: 100 epochs of 250 000 steps at T = 8000, 25 at T = 2000
    assert {epoch * 250_000 // T for epoch, T in ((100, 8_000), (25, 2_000))} == {3_125}


def test_an_experiment_trains_draws_and_goes_on(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(suite, "steps_per_second", lambda settings: 100.0 * settings.K)
    monkeypatch.setattr(suite, "configure", functools.partial(suite.configure, features=(8,)))  # whatever the network
    words = [
        "reproduce",
        "atari-targets",
        "--scale",
        "smoke",
        "--only",
        "Breakout",
        "--epoch",
        "20",
        "--runs",
        str(tmp_path / "runs"),
        "--json",
    ]
    assert cli.command([*words, "--out", str(tmp_path / "one"), "--methods", "without targets", "--no-estimate"]) == 0
    assert "hours" not in capsys.readouterr().err
    assert [path.name.rsplit("-", 1)[0] for path in (tmp_path / "runs").iterdir()] == ["i-dqn-no-targets-Breakout"]
    (alone,) = (tmp_path / "runs").glob("*/checkpoint/*")
    written = alone.stat().st_mtime_ns
    capsys.readouterr()

    assert cli.command([*words, "--out", str(tmp_path / "a")]) == 0
    assert alone.stat().st_mtime_ns == written
    told = capsys.readouterr()
    # 2 methods x 2 tasks x 5 seeds x 50 M steps at 500 steps/s
    said = "2 methods x 2 tasks x 5 seeds x 50,000,000 steps take about 5.6e+02 hours on this machine"
    assert f"atari-targets at full scale: {said}" in told.err
    result = json.loads(told.out)
    assert {"atari-targets.png", "atari-targets.pdf", "curves.csv", "result.json"} == set(result["files"])
    assert result["passed"]
    assert result["config"]["tasks"] == ["Breakout"]
    folders = sorted(path.name.rsplit("-", 1)[0] for path in (tmp_path / "runs").iterdir())
    assert folders == ["i-dqn-Breakout", "i-dqn-no-targets-Breakout"]
    rows = list(csv.DictReader((tmp_path / "a" / "curves.csv").read_text().splitlines()))
    assert {row["method"] for row in rows} == {"with targets", "without targets"}
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*/checkpoint/*")}

    assert cli.command([*words, "--out", str(tmp_path / "b")]) == 0  # everything is there already
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*/checkpoint/*")} == before
    assert (tmp_path / "b" / "curves.csv").read_text() == (tmp_path / "a" / "curves.csv").read_text()
    assert "hours" not in capsys.readouterr().err
    further = ["--total-timesteps", "300", "--at-once", "2"]  # the same runs, side by side
    assert cli.command([*words, "--out", str(tmp_path / "c"), *further]) == 0
    assert sorted(path.name.rsplit("-", 1)[0] for path in (tmp_path / "runs").iterdir()) == folders
    assert {path.name for path in (tmp_path / "runs").glob("*/checkpoint/*")} == {"step-000000000260", "step-000000000300"}


def test_runs_that_have_just_been_trained_are_not_opened_again(tmp_path, monkeypatch):
    opened = []

    def go_on(chosen, new, processes):
        for folder in chosen:
            folder.mkdir(exist_ok=True)
            (folder / CONFIG).touch()
        opened.append((new, [folder.name for folder in chosen]))
        return [{"finished": True} for _ in chosen]

    monkeypatch.setattr(runs, "go_on", go_on)
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / CONFIG).touch()
    train({tmp_path / name: None for name in ("new", "begun", "later")}, 10, at_once=2, processes=1)
    assert opened == [(True, ["new"]), (False, ["begun"]), (True, ["later"])]


def test_the_rate_of_a_machine_is_measured():
    settings = atari.targets.settings("with targets", atari.Config(**atari.Atari.SCALES["smoke"]), "Pong")
    assert 0.1 < suite.steps_per_second(settings) < 1e6
    small = dataclasses.replace(settings, env="jax/CartPole-v1", torso="mlp", frame_stack=1, features=(8,))
    assert 0.1 < suite.rate_apart(small) < 1e6
    with pytest.raises(Refusal, match="needs frames of bytes"):
        suite.rate_apart(dataclasses.replace(small, torso="nature"))


def test_the_rate_of_a_run_is_that_of_its_last_lines(tmp_path):
    rows = [{"seed": 0, "step": 5, "time/fps": 1.0}, {"seed": 0, "step": 9, "time/fps": 30.0}, {"seed": 4, "step": 9, "time/fps": 31.0}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"seed": 0, "step": 9, "eval/x": 2.0}]))
    assert logged_rate(tmp_path) == 61
    (tmp_path / "metrics.jsonl").write_text("")
    assert math.isnan(logged_rate(tmp_path))


def test_claims_are_judged_at_the_end_and_on_the_way():
    """The paper has i-SAC ahead of SAC on the way and level at the end, i-DroQ ahead of DroQ to the end."""
    curves = {"SAC": [0.2, 0.6, 1.0], "i-SAC": [0.4, 0.8, 0.9], "DroQ": [0.5, 1.0, 1.2], "i-DroQ": [0.6, 1.2, 1.1, 9.0]}
    estimates = {label: Estimate(*(np.array(x),) * 3) for label, x in curves.items()}
    judged = {q.name: (round(q.ours, 6), q.passed) for q in mujoco.main.judged(estimates, whole=True) if "minus" in q.name}
    assert judged == {
        "i-DroQ minus DroQ, at the end": (7.8, True),
        "i-SAC minus SAC, mean along training": (0.1, True),
        "i-DroQ minus DroQ, mean along training": (round(0.2 / 3, 6), True),  # of the points that all have
    }
    worse = mujoco.main.judged({**estimates, "i-SAC": estimates["SAC"], "SAC": estimates["i-SAC"]}, whole=True)
    assert [q.name for q in worse if q.passed is False] == ["i-SAC minus SAC, mean along training"]
    assert {q.passed for q in mujoco.main.judged(estimates, whole=False)} == {None}
    (at_the_end,) = (q for q in atari.targets.judged(dict.fromkeys(atari.targets.methods, estimates["SAC"]), True) if "minus" in q.name)
    assert at_the_end.name.endswith("at the end")


def test_what_makes_no_sense_is_refused(tmp_path):
    for words, message in (
        (["--only", "Pnog"], "'Pnog' is no Atari game"),
        (["--methods", "DQN,i-DQM"], "unknown method 'i-DQM'"),
        (["--preset", "papre"], "unknown preset 'papre'"),
        (["--epoch", "0"], "--epoch, --at-once, --processes and --total-timesteps must be at least 1"),
    ):
        with pytest.raises(Refusal, match=message):
            cli.command(["reproduce", "atari-main", "--scale", "smoke", *words, "--out", str(tmp_path / "x")])
    with pytest.raises(Refusal, match="--methods must name SAC, too: scores are relative to its"):
        cli.command(["reproduce", "mujoco-main", "--scale", "smoke", "--methods", "i-SAC", "--out", str(tmp_path / "x")])
    assert list(tmp_path.iterdir()) == []
