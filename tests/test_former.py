"""What iterq wrote at commit dcb3938 can be read, evaluated, reported and continued: the runs and the model in tests/former/."""

import csv
import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
import safetensors.numpy

import iterq
from iterq import cli

pytestmark = pytest.mark.medium

FORMER = Path(__file__).parent / "former"
RUNS = sorted(path.parent.name for path in FORMER.glob("*/config.json"))


def told(capsys, *words):
    """What a command prints with --json."""
    capsys.readouterr()
    assert cli.command([*map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def former(tmp_path):
    """A copy of a run directory, and the configuration that it was written with."""

    def copied(name):
        shutil.copytree(FORMER / name, tmp_path / name)
        return tmp_path / name, json.loads((FORMER / name / "config.json").read_text())

    return copied


def newest(run):
    return max((run / "checkpoint").glob("step-*"))


def holds(learner, arrays):
    """Whether all of `arrays` are somewhere in a learner, whatever it calls them."""
    found = {(x.shape, x.dtype.str, x.tobytes()) for x in map(np.asarray, jax.tree.leaves(learner))}
    return bool(arrays) and all((x.shape, x.dtype.str, x.tobytes()) in found for x in arrays)


def predicts(model, seed):
    """Greedy actions for five observations are the environment's own, and the same again."""
    stack = () if model.config.frame_stack == 1 else (model.config.frame_stack,)
    obs = np.random.default_rng(0).normal(size=(5, *model.spec.shape, *stack)).astype(model.spec.dtype)
    actions, _ = model.predict(obs, deterministic=True, seed=seed)
    np.testing.assert_array_equal(actions, model.predict(obs, deterministic=True, seed=seed)[0])
    return actions.shape == (5, 1) and bool((abs(actions) <= 2).all()) if model.spec.continuous else set(actions.tolist()) <= {0, 1, 2}


def test_every_kind_of_run_is_there():
    configs = [json.loads((FORMER / name / "config.json").read_text()) for name in RUNS]
    assert {c["bellman"] for c in configs} == {"dqn", "double-dqn", "iqn", "soft"}
    assert {c["env"].startswith("jax/") for c in configs} == {True, False}
    assert sum(path.stat().st_size for path in FORMER.rglob("*") if path.is_file()) < 600_000


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_loaded_and_predicts(name, former):
    run, config = former(name)
    model = iterq.load(run)
    assert [model.config.algorithm, model.config.env, model.config.K] == [config[field] for field in ("algorithm", "env", "K")]
    assert list(model.config.seeds) == config["seeds"]
    for seed in config["seeds"]:
        stored = safetensors.numpy.load_file(newest(run) / f"seed-{seed}.safetensors")
        assert holds(model.learner(seed), [x for key, x in stored.items() if key.startswith("learner.")])
        assert predicts(model, seed)


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_evaluated(name, former, capsys):
    run, config = former(name)
    found = told(capsys, "eval", run, "--episodes", 2)
    assert found["env"] == config["env"]
    assert {seed: len(returns) for seed, returns in found["returns"].items()} == {str(seed): 2 for seed in config["seeds"]}
    assert np.isfinite([x for returns in found["returns"].values() for x in returns]).all()


@pytest.mark.parametrize("name", RUNS)
def test_a_run_goes_on(name, former, capsys):
    run, config = former(name)
    longer = 2 * config["total_timesteps"]
    found = told(capsys, "resume", run, "--total-timesteps", longer)
    assert (found["steps"], found["finished"]) == (longer, True)
    for log in ("episodes.csv", "metrics.jsonl"):
        before, after = (FORMER / name / log).read_bytes(), (run / log).read_bytes()
        assert after.startswith(before)
        assert len(after) > len(before)
    with (run / "episodes.csv").open(newline="") as file:
        ends = [int(row["step"]) for row in csv.DictReader(file)]
    assert ends == sorted(ends)
    assert max(ends) > config["total_timesteps"]
    before, after = (iterq.load(folder).learner() for folder in (FORMER / name, run))
    assert int(after.updates) > 1.5 * int(before.updates)


def test_a_run_goes_on_from_an_older_checkpoint_if_the_newest_is_damaged(former, capsys):
    run, _ = former("i-dqn")
    (newest(run) / "manifest.json").write_text("{")
    found = told(capsys, "resume", run, "--total-timesteps", 700)
    assert found["steps"] == 700
    lines = (FORMER / "i-dqn" / "episodes.csv").read_bytes().splitlines(keepends=True)
    kept = [line for line in lines[1:] if int(line.split(b",")[1]) <= 400]
    assert (run / "episodes.csv").read_bytes().startswith(b"".join([lines[0], *kept]))


def test_runs_are_reported(former, tmp_path, capsys):
    runs, configs = zip(*map(former, RUNS), strict=True)
    found = told(capsys, "report", *runs, "--out", tmp_path / "report")
    assert set(found["tasks"]) == {config["env"] for config in configs}
    assert sum(row["runs"] for row in found["summary"]) == sum(len(config["seeds"]) for config in configs)
    assert not [warning for warning in found["warnings"] if str(tmp_path) in warning], "none is left out"


def test_a_model_is_loaded_evaluated_and_learns_on(tmp_path, capsys):
    path = FORMER / "model.safetensors"
    model, arrays = iterq.load(path), safetensors.numpy.load_file(path)
    assert (model.config.algorithm, model.config.K, model.config.seeds) == ("i-iqn", 2, (4, 6))
    for seed in (4, 6):
        assert holds(model.learner(seed), [x for key, x in arrays.items() if key.startswith(f"seed-{seed}.")])
        assert predicts(model, seed)
    assert set(told(capsys, "eval", path, "--episodes", 1)["returns"]) == {"4", "6"}
    again = iterq.load(path, env="jax/Chain").learn(150)
    assert int(again.learner(6).updates) > int(model.learner(6).updates)
    saved = iterq.load(again.save(tmp_path / "again"))
    assert holds(saved.learner(6), [np.asarray(x) for x in jax.tree.leaves(again.learner(6))])
