"""A run that was killed or stopped, wherever, and resumed ends in the same files as one that was left alone, bit for bit."""

import csv
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from iterq.presets import configure
from iterq.reads import unread

pytestmark = pytest.mark.medium

# Small, but everything has its turn several times: the replay wraps, the window shifts and syncs, and the periods of logs,
# evaluations and checkpoints are out of step with each other.
SIZES = [
    ("seeds", 2),
    ("total-timesteps", 1200),
    ("learning-starts", 200),
    ("epsilon-decay", 300),
    ("buffer-size", 300),
    ("checkpoint-every", 150),
    ("log-every", 100),
    ("eval-every", 400),
    ("eval-episodes", 2),
    ("features", 16),
    ("batch-size", 8),
    *(("T", 100), ("D", 20), ("G", 4)),
]


def small(algorithm):
    """`SIZES` in words, as far as the algorithm reads them."""
    names = [(name, size) for name, size in SIZES if name.replace("-", "_") not in unread(configure(algorithm).bellman)]
    return [word for name, size in names for word in (f"--{name}", str(size))]


ALGORITHMS = {
    "dqn": ["dqn"],
    "i-dqn": ["i-dqn", "--K", "3"],
    "i-dqn-independent": ["i-dqn", "--K", "3", "--no-shared"],
    "i-iqn": ["i-iqn", "--quantiles", "8"],
    "bootstrapped-dqn": ["bootstrapped-dqn", "--K", "4"],
}
PURE, HOSTED = "jax/CartPole-v1", ("CartPole-v1", "FrozenLake-v1")  # on the lake, chance is at work inside an episode
EVERYWHERE = ("i-dqn", "i-iqn")  # the others on one kind of environment: what they keep does not depend on it
CASES = {
    f"{name}, {env}": [*words, "--env", env]
    for env in (PURE, *HOSTED)
    for name, words in ALGORITHMS.items()
    if env == HOSTED[0] or name in EVERYWHERE
} | {
    "prioritised": ["dqn", "--prioritised", "--n-step", "2", "--env", PURE],
    "i-sac": ["i-sac", "--K", "2", "--env", "Pendulum-v1"],
    "frames in the host's memory": ["i-dqn", "--K", "2", "--frame-stack", "3", "--replay", "host", "--env", "CartPole-v1"],
}
CASES = {case: [*words, *small(words[0])] for case, words in CASES.items()}

# The command in a process that gets a signal when it comes to a point for the `at`-th time:
#   begin     a run directory has no configuration yet
#   write     a file of a checkpoint is written, but neither flushed nor in place
#   rename    a checkpoint has just come into place; the one too many before it still stands
#   rmtree    half of a folder is removed: TensorBoard's when a run goes on, an old checkpoint later
#   metrics   lines that no checkpoint knows of are on the disk
#   episodes  lines are not even that
#   step      in the middle of everything
LAUNCHER = """
import os, shutil, sys, threading
from pathlib import Path
import gymnasium
from iterq import cli
from iterq.track import Tracker

point, at, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
count, lock = 0, threading.Lock()

def come(here):
    global count
    if here == point:
        with lock:
            count += 1
            now = count == at
        return now
    return False

def strike():
    os.kill(os.getpid(), number)

def before(owner, name, here, counts=lambda *args: True, harm=lambda *args: None):
    original = getattr(owner, name)
    def patched(*args, **kwargs):
        if counts(*args) and come(here):
            harm(*args)
            strike()
        return original(*args, **kwargs)
    setattr(owner, name, patched)

def after(owner, name, here):
    original = getattr(owner, name)
    def patched(*args, **kwargs):
        result = original(*args, **kwargs)
        if come(here):
            strike()
        return result
    setattr(owner, name, patched)

def halve(folder, *args):
    files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    for path in files[: (len(files) + 1) // 2]:
        path.unlink()

class Counted(gymnasium.Wrapper):
    def step(self, action):
        if come("step"):
            strike()
        return super().step(action)

make = gymnasium.make
gymnasium.make = lambda *args, **kwargs: Counted(make(*args, **kwargs))
before(os, "fsync", "begin", lambda file: os.readlink(f"/proc/self/fd/{file}").endswith("config.json"))
before(os, "fsync", "write", lambda file: "/checkpoint/" in os.readlink(f"/proc/self/fd/{file}"))
before(shutil, "rmtree", "rmtree", lambda folder, *args: Path(folder).exists(), halve)
after(Path, "rename", "rename")
after(Tracker, "metrics", "metrics")
after(Tracker, "episodes", "episodes")
cli.main(sys.argv[4:])
"""
# How often each point may be passed before the signal: in a new run, and in one that was resumed. Both together never reach the end.
REACH = {"write": (30, 18), "rename": (4, 3), "rmtree": (2, 3), "metrics": (8, 5), "episodes": (6, 4), "step": (900, 600)}
UNTIMED = ("time/fps", "time/time_elapsed")


class Blow(NamedTuple):
    """A signal at a point of `LAUNCHER`."""

    point: str
    at: int
    number: signal.Signals = signal.SIGKILL


@pytest.fixture(scope="session")
def cached(programs):
    """The environment of child processes that share what they compile, JAX's programs and Python's: most of what a small run takes."""
    known = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**known, **programs, "PYTHONPYCACHEPREFIX": str(Path(programs["JAX_COMPILATION_CACHE_DIR"]).parent / "pyc")}


def iterq(words, environment, blow=None):
    """`iterq words…` as a process of its own, which a blow may hit."""
    point, at, number = blow or ("never", 0, 0)
    command = [sys.executable, "-c", LAUNCHER, point, str(at), str(int(number)), *map(str, words)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def finish(words, environment):
    done = iterq(words, environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def kill(words, environment, blow):
    done = iterq(words, environment, blow)
    assert done.returncode == -signal.SIGKILL, (blow, done.stdout, done.stderr)


@pytest.fixture(scope="session")
def whole(tmp_path_factory, cached):
    """The run of a case that nothing has interrupted."""
    runs = {}

    def of(case):
        if case not in runs:
            runs[case] = tmp_path_factory.mktemp("whole") / "run"
            finish(["train", *CASES[case], "--out", runs[case]], cached)
        return runs[case]

    return of


def events(folder):
    """{(seed, tag, step): value} of TensorBoard's files; each must be there once."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    values = {}
    for path in sorted(folder.rglob("events.out.tfevents.*")):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                at = path.parent.name, value.tag, event.step
                assert at not in values
                values[at] = value.tensor.float_val[0]
    return values


def contents(run: Path):
    """All that a run has left, without what tells the time."""
    found = {}
    for path in sorted(path for path in run.rglob("*") if path.is_file()):
        name = str(path.relative_to(run))
        if name.startswith("tb/"):
            continue
        if name == "episodes.csv":
            with path.open() as file:
                found[name] = [row[:-1] for row in csv.reader(file)]
        elif name == "metrics.jsonl":
            rows = map(json.loads, path.read_text().splitlines())
            found[name] = [{key: None if key in UNTIMED else value for key, value in row.items()} for row in rows]
        elif path.name == "manifest.json":
            manifest = json.loads(path.read_text())
            assert manifest.pop("elapsed") > 0
            manifest.pop("sha256")  # of the manifest itself, and so of the time
            # The logs tell the time, so their hashes differ between runs, but they must be those of the logs that are there.
            for log, mark in manifest.pop("logs").items():
                start = (run / log).read_bytes()[: mark["bytes"]]
                assert (len(start), hashlib.sha256(start).hexdigest()) == (mark["bytes"], mark["sha256"])
            found[name] = manifest
        else:
            found[name] = path.read_bytes()
    found["tb"] = {at: None if at[1] in UNTIMED else value for at, value in events(run / "tb").items()}
    return found


def assert_equal_runs(run, expected):
    ours, theirs = contents(run), contents(expected)
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name] != theirs[name]] == []
    # What was compared is a whole run.
    steps = sorted({row["step"] for row in ours["metrics.jsonl"]})
    assert steps == [0, *range(100, 1201, 100)]
    assert len({seed for seed, *_ in ours["tb"]}) == 2
    assert len(ours["tb"]) == sum(len(row) - 2 for row in ours["metrics.jsonl"])
    assert len(ours["episodes.csv"]) > 2
    assert [name for name in ours if name.startswith("checkpoint/")] == [
        f"checkpoint/step-{step:012d}/{name}"
        for step in (1050, 1200)
        for name in ("manifest.json", *(f"seed-{seed}.{kind}" for seed in (0, 1) for kind in ("replay.raw", "safetensors")))
    ]


def unfinished(run):
    return [path.name for path in (run / "checkpoint").iterdir() if not path.name.startswith("step-")]


@pytest.mark.parametrize("case", CASES)
def test_a_killed_run_ends_in_the_same_bits(case, tmp_path, cached, whole):
    expected = whole(case)
    train = ["train", *CASES[case], "--out"]
    # One blow falls inside a checkpoint and the other one elsewhere, at each of those points in turn; the rest is drawn.
    number = list(CASES).index(case)
    elsewhere = [point for point in REACH if point != "write" and (point != "step" or PURE not in CASES[case])]
    rng = np.random.default_rng(number)
    run = tmp_path / "run"
    for again, point in enumerate(rng.permutation(["write", elsewhere[number % len(elsewhere)]])):
        blow = Blow(str(point), int(rng.integers(1, REACH[point][again] + 1)))
        kill(["resume", run] if again else [*train, run], cached, blow)
        assert point != "write" or unfinished(run), blow
    finish(["resume", run], cached)
    assert_equal_runs(run, expected)


def test_a_run_killed_before_its_first_checkpoint_starts_again(tmp_path, cached, whole):
    train = ["train", *CASES["i-dqn, FrozenLake-v1"], "--out"]
    run = tmp_path / "run"
    kill([*train, run], cached, Blow("begin", 1))
    refused = iterq(["resume", run], cached)
    assert (refused.returncode, "holds no run" in refused.stderr) == (2, True), refused.stderr
    kill([*train, run], cached, Blow("metrics", 2))
    assert (run / "metrics.jsonl").stat().st_size > 0
    assert not (run / "checkpoint").exists()
    kill(["resume", run], cached, Blow("write", 3))
    assert unfinished(run) == [path.name for path in (run / "checkpoint").iterdir()]
    finish(["resume", run], cached)
    assert_equal_runs(run, whole("i-dqn, FrozenLake-v1"))


@pytest.mark.parametrize(("env", "point", "at"), [(PURE, "metrics", (4, 5)), ("FrozenLake-v1", "step", (731, 777))])
def test_a_signal_stops_a_run_with_a_checkpoint(env, point, at, tmp_path, cached, whole):
    train = ["train", *CASES[f"i-dqn, {env}"], "--out"]
    run = tmp_path / "run"
    words = [*train, run]
    for number, count in zip((signal.SIGINT, signal.SIGTERM), at, strict=True):
        done = iterq(words, cached, Blow(point, count, number))
        assert done.returncode == 0, done.stderr
        said = re.search(r"stopped at step ([\d,]+); iterq resume (\S+) goes on", done.stdout)
        assert said, done.stdout
        step = int(said[1].replace(",", ""))
        assert 0 < step < 1050
        assert said[2] == str(run)
        assert max(path.name for path in (run / "checkpoint").iterdir()) == f"step-{step:012d}"
        words = ["resume", run]
    finish(words, cached)
    assert_equal_runs(run, whole(f"i-dqn, {env}"))


@pytest.mark.parametrize("env", [PURE, "CartPole-v1"])
def test_a_finished_run_with_more_steps_is_one_longer_run(env, tmp_path, cached, whole):
    train = ["train", *CASES[f"i-dqn, {env}"], "--out"]
    run = tmp_path / "run"
    said = finish([*train, run, "--total-timesteps", "737"], cached)
    assert "finished at step 737" in said
    finish(["resume", run, "--total-timesteps", "1200"], cached)
    assert_equal_runs(run, whole(f"i-dqn, {env}"))


def test_a_killed_run_of_epochs_ends_where_it_would_have(tmp_path, cached):
    words = CASES["i-dqn, CartPole-v1"]
    steps = words.index("--total-timesteps")
    words = ["train", *words[:steps], *words[steps + 2 :], "--epochs", "4", "--epoch-steps", "120", "--out"]
    finish([*words, tmp_path / "whole"], cached)
    run = tmp_path / "run"
    kill([*words, run], cached, Blow("episodes", 3))
    kill(["resume", run], cached, Blow("write", 3))
    finish(["resume", run], cached)
    ours, theirs = contents(run), contents(tmp_path / "whole")
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name] != theirs[name]] == []
    assert max(row["step"] for row in ours["metrics.jsonl"]) > 480


def test_the_cache_of_these_tests_changes_nothing(tmp_path, cached, whole):
    case = f"i-dqn, {PURE}"
    plain = {name: value for name, value in cached.items() if not name.startswith("JAX_")}
    whole(case)
    for out, environment in (("found", cached), ("compiled", plain)):  # the first of them finds every program
        finish(["train", *CASES[case], "--out", tmp_path / out], environment)
    assert_equal_runs(tmp_path / "found", tmp_path / "compiled")
    assert_equal_runs(tmp_path / "found", whole(case))


ARCADE = [("K", 2), ("seeds", 2), ("total-timesteps", 600), ("learning-starts", 100), ("epsilon-decay", 100), ("buffer-size", 250)]
ARCADE += [("features", 8), ("batch-size", 4), ("T", 60), ("D", 18), ("G", 6), ("log-every", 50), ("checkpoint-every", 125)]


def test_a_killed_fleet_of_different_games_ends_in_the_same_bits(tmp_path, cached):
    """In the middle of episodes, sticky actions and all."""
    words = [
        "train",
        "i-dqn",
        "--env",
        "Breakout,ALE/Pong-v5",
        *(word for name, size in ARCADE for word in (f"--{name}", str(size))),
        "--out",
    ]
    finish([*words, tmp_path / "whole"], cached)
    run = tmp_path / "run"
    kill([*words, run], cached, Blow("metrics", 11))
    kill(["resume", run], cached, Blow("write", 12))
    finish(["resume", run], cached)
    for game in ("Breakout", "Pong"):
        ours, theirs = contents(run / game), contents(tmp_path / "whole" / game)
        assert ours.keys() == theirs.keys()
        assert [name for name in ours if ours[name] != theirs[name]] == []
        assert {row["step"] for row in ours["metrics.jsonl"]} == set(range(50, 601, 50))
        assert json.loads(ours["config.json"])["settings"]["env"] == f"ALE/{game}-v5"
    assert len(contents(run / "Breakout")["episodes.csv"]) > 2


BODIES = [
    ("K", 2),
    ("seeds", 2),
    ("total-timesteps", 400),
    ("learning-starts", 100),
    ("buffer-size", 250),
    ("features", 8),
    ("batch-size", 4),
]
BODIES += [("log-every", 40), ("checkpoint-every", 110), ("eval-every", 0)]


def test_killed_bodies_end_in_the_same_bits(tmp_path, cached):
    """In the middle of episodes: the cheetah never falls, the ant and the humanoid do; all in one process."""
    tasks = ("HalfCheetah-v5", "Ant-v5", "Humanoid-v5")
    words = ["train", "i-sac", "--env", ",".join(tasks), *(word for name, size in BODIES for word in (f"--{name}", str(size))), "--out"]
    finish([*words, tmp_path / "whole"], cached)
    run = tmp_path / "run"
    kill([*words, run], cached, Blow("metrics", 14))
    kill(["resume", run], cached, Blow("write", 16))
    finish(["resume", run], cached)
    for task in tasks:
        ours, theirs = contents(run / task), contents(tmp_path / "whole" / task)
        assert ours.keys() == theirs.keys()
        assert [name for name in ours if ours[name] != theirs[name]] == []
        assert {row["step"] for row in ours["metrics.jsonl"]} == set(range(40, 401, 40))
    assert len(contents(run / "Humanoid-v5")["episodes.csv"]) > 4
