"""Experiments with run directories: what they run, say and write, and that a second call goes on from the runs of the first."""

import csv
import dataclasses
import functools
import json

import pytest

from iterq import cli, runs
from iterq.errors import Refusal
from iterq.games import games
from iterq.kept import place_of, train
from iterq.presets import configure
from iterq.reproduce import EXPERIMENTS, atari, classic, mujoco, suite
from iterq.reproduce.claims import Claim
from iterq.store import CONFIG, write_json

pytestmark = pytest.mark.medium

EVERY = (*atari.ALL, *mujoco.ALL, *classic.ALL)


def test_every_experiment_is_there_under_its_name():
    modules = {f"iterq.reproduce.{module.__name__.rpartition('.')[2]}": module for module in (atari, mujoco, classic)}
    named = {name: place.partition(":") for name, (place, _) in EXPERIMENTS.items() if place.partition(":")[0] in modules}
    assert named.keys() == {experiment.name for experiment in EVERY}
    for name, (module, _, attribute) in named.items():
        assert getattr(modules[module], attribute).name == name


@pytest.mark.parametrize("experiment", EVERY, ids=lambda e: e.name)
@pytest.mark.parametrize("scale", ["smoke", "default", "paper"])
def test_every_method_of_every_experiment_has_a_configuration_of_its_own(experiment, scale):
    config = experiment.Config(**experiment.SCALES[scale])
    settings = [experiment.settings(label, config, experiment.tasks[0]) for label in experiment.methods]
    assert len({str(found) for found in settings}) == len(settings)
    assert set(experiment.tasks) <= {*games(), *mujoco.TASKS, "CartPole-v1", "LunarLander-v3"}
    for claim in experiment.claims:
        assert {claim.ours, claim.theirs} <= set(experiment.methods) if isinstance(claim, Claim) else claim.method in experiment.methods
        assert set(getattr(claim, "tasks", ())) <= set(experiment.tasks)
    assert set(experiment.marks) <= set(experiment.methods)
    if scale == "paper" and experiment not in classic.ALL:
        on_atari = experiment in atari.ALL
        expected = (50_000_000, 200, 20_000, 1_000_000, 5) if on_atari else (1_000_000, 0, 5_000, 1_000_000, 10)
        assert {(s.total_timesteps, s.epochs, s.learning_starts, s.buffer_size, len(s.seeds)) for s in settings} == {expected}
        assert len(experiment.chosen(config)) == len(experiment.tasks)


def test_the_main_experiment_has_the_twenty_games_of_the_paper():
    assert len(atari.main.tasks) == 20
    assert {"Breakout", "Seaquest", "Skiing"} <= set(atari.main.tasks)


def test_marks_are_the_steps_of_so_many_shifts():
    config = suite.Config(**atari.Atari.SCALES["paper"])
    for label, marks in atari.parallel.marks.items():
        T = atari.parallel.settings(label, config, "Asterix").T
        assert [(shifts, shifts * T) for shifts, _ in marks] == list(marks)
        assert all(steps % config.epoch == 0 for _, steps in marks)


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
    assert {"tasks.png", "profile.png", "hours.png", "optimality_gap.png", "curves.csv", "report.html", "result.json"} <= set(
        result["files"]
    )
    assert result["passed"]
    assert {q["passed"] for q in result["quantities"]} == {None}
    both, of_asterix = result["quantities"]
    assert "cannot tell at 1 seed" in both["verdict"]
    assert (of_asterix["ours"], of_asterix["verdict"]) == (None, "there are no runs to judge it by")
    assert result["config"]["tasks"] == ["Breakout"]
    folders = sorted(path.name.rsplit("-", 1)[0] for path in (tmp_path / "runs").iterdir())
    assert folders == ["i-dqn-Breakout", "i-dqn-no-targets-Breakout"]
    rows = list(csv.DictReader((tmp_path / "a" / "curves.csv").read_text().splitlines()))
    assert {row["label"] for row in rows} == {"with targets", "without targets"}
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*/checkpoint/*")}

    assert cli.command([*words, "--out", str(tmp_path / "b")]) == 0  # everything is there already
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*/checkpoint/*")} == before
    assert (tmp_path / "b" / "curves.csv").read_text() == (tmp_path / "a" / "curves.csv").read_text()
    assert "hours" not in capsys.readouterr().err
    further = ["--epochs", "3", "--at-once", "2"]  # the same runs, side by side
    assert cli.command([*words, "--out", str(tmp_path / "c"), *further]) == 0
    assert sorted(path.name.rsplit("-", 1)[0] for path in (tmp_path / "runs").iterdir()) == folders
    assert max(path.name for path in (tmp_path / "runs").glob("*/checkpoint/*")) > max(path.name for path in before)


def test_a_run_is_found_by_what_it_is(tmp_path):
    """However its folder is called, and whatever it logs; it goes on with what it has recorded."""
    settings = configure("dqn", env="CartPole-v1", total_timesteps=300)
    (tmp_path / "dqn-CartPole-v1-mine").mkdir()
    former = {**dataclasses.asdict(settings), "log_every": 7, "total_timesteps": 200}
    for name in ("epochs", "epoch_steps", "emulator", "eval_starts", "actor_member", "dropout_masks"):  # it is of the first format
        del former[name]
    write_json(tmp_path / "dqn-CartPole-v1-mine" / CONFIG, former)
    folder, found = place_of(tmp_path, "dqn-CartPole-v1", settings)
    assert folder.name == "dqn-CartPole-v1-mine"
    assert (found.log_every, found.total_timesteps, found.eval_starts) == (7, 300, "same")
    folder, found = place_of(tmp_path, "dqn-CartPole-v1", dataclasses.replace(settings, gamma=0.9))
    assert not folder.exists()
    assert found.gamma == 0.9


def test_a_metric_is_reported_as_itself(tmp_path, capsys, monkeypatch):
    """Audit 3: the table of atari-spread, and a column of its curves, held human-normalised standard deviations."""
    monkeypatch.setattr(suite, "configure", functools.partial(suite.configure, features=(8,)))
    words = ["--scale", "smoke", "--only", "Breakout", "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out"), "--no-estimate"]
    assert cli.command(["reproduce", "atari-spread", *words]) == 0
    said = capsys.readouterr().out
    assert "IQM, iqn/head_std" in said
    assert "human" not in said
    (run,) = (tmp_path / "runs").iterdir()
    logged = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    seen = [row["iqn/head_std"] for row in logged if "iqn/head_std" in row]
    rows = list(csv.DictReader((tmp_path / "out" / "curves.csv").read_text().splitlines()))
    assert list(rows[0]) == ["label", "task", "seed", "step", "iqn/head_std"]
    assert min(seen) <= float(rows[-1]["iqn/head_std"]) <= max(seen)


def test_only_the_scale_of_the_paper_is_judged_in_the_runs_as_well(tmp_path, monkeypatch):
    """Evaluations are free: runs that were evaluated otherwise are found again, and say nothing of what is asked now."""
    small = {"seeds": (0, 1), "total_timesteps": 1_500, "epoch": 500, "eval_episodes": 2, "runs": tmp_path / "runs"}
    monkeypatch.setitem(classic.Classic.SCALES, "paper", {**classic.FULL, **small})
    for more, judged in (({}, True), ({"batch_size": 64}, False), ({"eval_episodes": 1}, False)):
        (tmp_path / "out").mkdir(exist_ok=True)
        result = classic.cart_pole.run(suite.Config(**{**classic.FULL, **small, **more}), tmp_path / "out")
        # Two seeds of 1,500 steps come nowhere near 475.
        assert [q.passed for q in result.quantities[:2]] == [False if judged else None] * 2
        assert any("Judged at full scale only" in note for note in result.notes) != judged
    monkeypatch.setitem(classic.Classic.SCALES, "paper", {**classic.FULL, **small, "eval_episodes": 1})
    found = classic.cart_pole.run(suite.Config(**{**classic.FULL, **small, "eval_episodes": 1}), tmp_path / "out")
    assert {q.passed for q in found.quantities} == {None}  # their episodes were two


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
    train(dict.fromkeys((tmp_path / name for name in ("new", "begun", "later")), configure("dqn")), at_once=2, processes=1)
    assert opened == [(True, ["new"]), (False, ["begun"]), (True, ["later"])]


def test_the_rate_of_a_machine_is_measured():
    settings = atari.targets.settings("with targets", suite.Config(**atari.Atari.SCALES["smoke"]), "Pong")
    assert 0.1 < suite.steps_per_second(settings) < 1e6
    small = dataclasses.replace(settings, env="jax/CartPole-v1", torso="mlp", frame_stack=1, features=(8,))
    assert 0.1 < suite.rate_apart(small) < 1e6
    with pytest.raises(Refusal, match="needs frames of bytes"):
        suite.rate_apart(dataclasses.replace(small, torso="nature"))


def test_what_makes_no_sense_is_refused(tmp_path):
    for words, message in (
        (["--only", "Pnog"], "'Pnog' is no Atari game"),
        (["--methods", "DQN,i-DQM"], "unknown method 'i-DQM'"),
        (["--preset", "papre"], "unknown preset 'papre'"),
        (["--epoch", "0"], "--epoch, --at-once, --processes and --eval-episodes must be at least 1"),
    ):
        with pytest.raises(Refusal, match=message):
            cli.command(["reproduce", "atari-main", "--scale", "smoke", *words, "--out", str(tmp_path / "x")])
    with pytest.raises(Refusal, match="--methods must name SAC, too: scores are relative to its"):
        cli.command(["reproduce", "mujoco-main", "--scale", "smoke", "--methods", "i-SAC", "--out", str(tmp_path / "x")])
    assert list(tmp_path.iterdir()) == []
