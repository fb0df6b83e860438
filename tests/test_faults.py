"""What goes wrong around a run, and what is left of it: one clear line, exit code 2, and a run that goes on as if nothing had been."""

import contextlib
import csv
import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import gymnasium
import jax
import pytest

from iterq import checkpoint, cli
from iterq.config import Config
from iterq.envs import noted, resolve
from iterq.envs.about import About
from iterq.errors import Refusal
from iterq.store import Run, config_hash, read_config
from tests.test_cli import leftovers

pytestmark = pytest.mark.medium

# A walk of random length whose troubles are switched on from outside, so that a run can be resumed without them.
WALK = """
import os, time
import gymnasium, numpy as np

STEPS = 0  # of all instances in this process, resets not counted
NOTED = {}


def trouble(name):
    return int(os.environ.get(f"WALK_{name}", 10**9))


class Walk(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        if "WALK_UNBUILT" in os.environ:
            raise ValueError("no wheels\\non this car")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if "WALK_STUCK" in os.environ:
            raise ValueError("the doors are locked")
        self.x, self.t, self.end = self.np_random.normal(size=4), 0, int(self.np_random.integers(5, 40))
        return self.seen(), {}

    def seen(self):
        drift = np.frombuffer(os.urandom(1), np.uint8)[0] + 1.0 if "WALK_DRIFT" in os.environ else 0.0
        return (self.x + drift).astype(np.float32)

    def step(self, action):
        global STEPS
        STEPS += 1
        if STEPS == trouble("RAISE"):
            raise ValueError("the gearbox\\nbroke")
        while STEPS == trouble("WAIT") and not os.path.exists(os.environ["WALK_GATE"]):
            time.sleep(0.05)
        self.t += 1
        self.x = 0.9 * self.x + (2 * action - 1) * 0.3 + self.np_random.normal(size=4)
        reward = float(-abs(self.x[0]))
        if STEPS == trouble("BAD_REWARD"):
            reward = float(os.environ["WALK_REWARD"])
        return self.seen(), reward, self.t == self.end and self.end % 2 == 0, self.t == self.end and self.end % 2 == 1, {}


gymnasium.register("Walk-v0", Walk)
"""
ENV = "iterq_walk:Walk-v0"
TINY = ["--features", 8, "--batch-size", 4, "--total-timesteps", 400, "--learning-starts", 100, "--buffer-size", 300]
TINY += ["--eval-every", 0, "--log-every", 100, "--checkpoint-every", 100]


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """A folder with the environment's module, for this process and its children."""
    folder = tmp_path_factory.mktemp("shelf")
    (folder / "iterq_walk.py").write_text(WALK)
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))


@pytest.fixture
def walk(shelf, monkeypatch):
    """A function that switches troubles on, and all of them off when called without any."""
    import iterq_walk  # pyright: ignore[reportMissingImports]

    def switch(**troubles):
        iterq_walk.STEPS = 0
        for name in [name for name in os.environ if name.startswith("WALK_")]:
            monkeypatch.delenv(name)
        for name, value in troubles.items():
            monkeypatch.setenv(f"WALK_{name}", str(value))

    switch()
    return switch


def command(*words):
    return cli.command([str(word) for word in words])


def train(out, *more):
    return command("train", "dqn", "--env", ENV, *TINY, *more, "--out", out)


def child(shelf, *words, limit="", **env):
    """`iterq words…` as a process, if need be under a limit of the shell."""
    settings = {"PYTHONPATH": str(shelf), "PYTHONDONTWRITEBYTECODE": "1"}
    if not limit:  # the programs would not fit either
        names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs", "jax_persistent_cache_min_entry_size_bytes")
        settings |= {name.upper(): str(getattr(jax.config, name)) for name in names}
    line = f'{limit or ":"}; exec "$0" "$@"'
    words = ["bash", "-c", line, sys.executable, "-m", "iterq.cli", *map(str, words)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **settings, **env})


def refused(process) -> str:
    """The one line that a process says when it ends with exit code 2; what a run reports of its progress is not counted."""
    printed, said = process.communicate(timeout=300)
    assert process.returncode == 2, said
    assert printed == ""
    assert "Traceback" not in said
    lines = [line for line in said.splitlines() if not line.startswith(("replay: ", "training: "))]
    assert len(lines) == 1, said
    assert lines[0].startswith("iterq: ")
    return lines[0]


def held(run: Path):
    """All that a run has found out, without what depends on the clock."""
    with (run / "episodes.csv").open() as file:
        rows = list(csv.DictReader(file))
    episodes = sorted((int(row["step"]), int(row["seed"]), row["return"], row["length"]) for row in rows)
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    metrics = [{k: v for k, v in row.items() if k not in ("time/fps", "time/time_elapsed")} for row in metrics]
    newest = checkpoints(run)[-1]
    return episodes, metrics, newest, json.loads((run / "checkpoint" / newest / "manifest.json").read_text())["files"]


def checkpoints(run: Path):
    return leftovers(run / "checkpoint")


def contents(folder: Path):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def undisturbed(shelf, tmp_path_factory):
    """What 400 steps lead to where nothing happens."""
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    assert train(out) == 0
    return held(out)


@pytest.fixture(scope="module")
def halfway(shelf, tmp_path_factory):
    """A run of 200 steps, with checkpoints at 100 and 200."""
    out = tmp_path_factory.mktemp("halfway") / "run"
    assert train(out, "--total-timesteps", 200) == 0
    assert checkpoints(out) == ["step-000000000100", "step-000000000200"]
    return out


@pytest.fixture
def run(halfway, tmp_path):
    """A copy of `halfway` to be damaged."""
    return Path(shutil.copytree(halfway, tmp_path / "run"))


def go_on(run):
    return command("resume", run, "--total-timesteps", 400)


def test_a_disk_that_fills_up_during_a_checkpoint_costs_only_that_checkpoint(shelf, walk, undisturbed, tmp_path):
    # 5 KiB per file: the replay of 100 rows fits, that of 200 does not.
    said = refused(child(shelf, "train", "dqn", "--env", ENV, *TINY, "--out", tmp_path / "run", limit="ulimit -f 5"))
    where = f"iterq: cannot write a checkpoint to {tmp_path / 'run'}: File too large"
    assert said == f"{where}; the last good checkpoint is step-000000000100"
    assert checkpoints(tmp_path / "run") == ["step-000000000100"]
    assert command("resume", tmp_path / "run") == 0
    assert held(tmp_path / "run") == undisturbed


def test_a_disk_that_fills_up_with_logs_is_one_line(shelf, walk, tmp_path):
    # 9 KiB per file: checkpoints fit, 300 lines of metrics do not; TensorBoard would fail first, so it is tried on its own.
    words = ["train", "dqn", "--env", ENV, *TINY, "--checkpoint-every", 50, "--log-every", 5, "--out"]
    said = refused(child(shelf, *words, tmp_path / "logs", "--no-tensorboard", limit="ulimit -f 9"))
    assert f"{tmp_path / 'logs'}: File too large; the last good checkpoint is step-" in said
    said = refused(child(shelf, *words, tmp_path / "events", limit="ulimit -f 9"))
    assert f"{tmp_path / 'events'}: File too large" in said
    assert command("resume", tmp_path / "logs") == 0
    assert held(tmp_path / "logs")[2] == "step-000000000400"


# A checkpoint waits for the disk seven times: two logs, two files, the manifest, its folder, and the folder of them all.
@pytest.mark.parametrize("call", [1, 4, 7])
def test_no_space_left_at_any_moment_of_a_checkpoint(walk, undisturbed, tmp_path, monkeypatch, call):
    calls, fsync = [], os.fsync

    def full(file):
        calls.append(file)
        if len(calls) >= 1 + 7 + call:  # config.json, then the checkpoint at step 100, then this one
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(file)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(Refusal, match=r"cannot write a checkpoint to .*: No space left on device"):
            train(tmp_path / "run")
    assert len(calls) == 1 + 7 + call
    assert "step-000000000100" in checkpoints(tmp_path / "run")
    assert ".writing" not in checkpoints(tmp_path / "run")
    assert command("resume", tmp_path / "run") == 0
    assert held(tmp_path / "run") == undisturbed


def test_a_run_that_cannot_be_set_up_leaves_nothing(walk, tmp_path, monkeypatch):
    def full(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(Refusal, match=r"cannot write .*: No space left on device"):
            Run.create(tmp_path / "run", Config(), About({}, []))
    assert leftovers(tmp_path) == []
    # A folder that was there before stays.
    (tmp_path / "mine").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(Refusal, match="No space left"):
            Run.create(tmp_path / "mine", Config(), About({}, []))
    assert leftovers(tmp_path / "mine") == []


def test_a_configuration_that_cannot_be_rewritten_is_refused(walk, run, monkeypatch):
    before = contents(run)

    def full(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(Refusal, match=r"cannot write .*: No space left on device"):
            go_on(run)
    assert contents(run) == before


@pytest.mark.parametrize("place", ["file/below", "file", "mine", "/proc/iterq", "/sys/iterq"])
def test_a_folder_that_cannot_be_written_is_refused_and_untouched(walk, tmp_path, place):
    (tmp_path / "file").write_text("")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    before = contents(tmp_path)
    with pytest.raises(Refusal, match=r"cannot write|is a file|holds files that are no run of iterq"):
        train(tmp_path / place)
    assert contents(tmp_path) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_refused(walk, tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(Refusal, match="Permission denied"):
        train(tmp_path / "locked" / "run")
    assert leftovers(tmp_path / "locked") == []


def test_a_second_process_in_a_run_directory_is_refused_and_the_first_undisturbed(shelf, walk, undisturbed, tmp_path):
    run, gate = tmp_path / "run", tmp_path / "gate"
    first = child(shelf, "train", "dqn", "--env", ENV, *TINY, "--out", run, WALK_WAIT="150", WALK_GATE=str(gate))
    try:
        deadline = time.monotonic() + 120
        while not (run / "checkpoint" / "step-000000000100").exists():
            assert first.poll() is None, first.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        with pytest.raises(Refusal, match="is in use by another process"):
            command("resume", run)
        assert refused(child(shelf, "resume", run)) == f"iterq: {run} is in use by another process"
        with pytest.raises(Refusal, match="already holds a run"):
            train(run)
    finally:
        gate.touch()
        printed, said = first.communicate(timeout=120)
    assert first.returncode == 0, said
    assert "finished at step 400" in printed
    assert held(run) == undisturbed


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP])
def test_a_file_system_without_locks_is_not_called_another_process(number, walk, tmp_path, monkeypatch):
    def flock(file, operation):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:  # no file system at hand lacks them
        patched.setattr(fcntl, "flock", flock)
        with pytest.raises(Refusal) as refused:
            train(tmp_path / "run")
    expected = f"cannot lock {tmp_path / 'run'}: {os.strerror(number)}; a run needs a file system with file locks"
    assert str(refused.value) == expected
    assert train(tmp_path / "run") == 0  # what the attempt has left is in nobody's way


def test_an_environment_that_raises_stops_the_run_with_a_checkpoint(shelf, walk, undisturbed, tmp_path):
    run = tmp_path / "run"
    said = refused(child(shelf, "train", "dqn", "--env", ENV, *TINY, "--out", run, WALK_RAISE="250"))
    (newest,) = checkpoints(run)[-1:]
    step = int(newest.removeprefix("step-"))
    assert step > 250  # resets take steps of their own
    failed = f"{ENV} raised ValueError at step {step + 1} of seed 0: the gearbox broke"
    assert said == f"iterq: {failed}; the last good checkpoint is {newest}"
    assert command("resume", run) == 0
    assert held(run) == undisturbed


def test_one_environment_of_a_fleet_that_raises(walk, tmp_path):
    assert train(tmp_path / "whole", "--seeds", "3,5,8") == 0
    walk(RAISE=700)
    with pytest.raises(Refusal, match=r"raised ValueError at step \d+ of seed [358]: the gearbox"):
        train(tmp_path / "run", "--seeds", "3,5,8")
    walk()
    assert command("resume", tmp_path / "run") == 0
    whole, resumed = held(tmp_path / "whole"), held(tmp_path / "run")
    assert resumed == whole
    assert {seed for _, seed, _, _ in resumed[0]} == {3, 5, 8}


def test_an_environment_that_raises_at_the_first_reset(walk, undisturbed, tmp_path):
    walk(STUCK=1)
    with pytest.raises(Refusal, match=r"raised ValueError at step 0 of seed 0: the doors are locked$"):
        train(tmp_path / "run")
    walk()
    assert command("resume", tmp_path / "run") == 0
    assert held(tmp_path / "run") == undisturbed


def test_an_environment_that_raises_in_an_evaluation(walk, tmp_path):
    assert train(tmp_path / "whole", "--eval-every", 200, "--eval-episodes", 2) == 0
    walk(RAISE=10)  # the first evaluation, before there is a checkpoint
    with pytest.raises(Refusal, match=f"{ENV} raised ValueError .*evaluation.*: the gearbox"):
        train(tmp_path / "run", "--eval-every", 200, "--eval-episodes", 2)
    walk()
    assert command("resume", tmp_path / "run") == 0
    assert held(tmp_path / "run") == held(tmp_path / "whole")


def test_an_environment_that_cannot_be_made_is_refused(walk, tmp_path):
    walk(UNBUILT=1)
    with pytest.raises(Refusal, match=f"cannot make the environment '{ENV}': no wheels"):
        train(tmp_path / "run")
    assert leftovers(tmp_path) == []


def test_an_environment_that_raises_while_its_episode_is_repeated(walk, run):
    walk(STUCK=1)
    with pytest.raises(Refusal, match=f"{ENV} raised ValueError .*: the doors are locked"):
        go_on(run)


def test_an_environment_that_does_not_repeat_itself_is_refused(shelf, walk, run):
    walk(DRIFT=1)
    with pytest.raises(Refusal, match=f"^{ENV} does not repeat an episode from its seed and actions"):
        go_on(run)
    assert "does not repeat an episode" in refused(child(shelf, "resume", run, "--total-timesteps", 400, WALK_DRIFT="1"))


@pytest.mark.parametrize("reward", ["nan", "inf"])
def test_a_loss_that_is_not_finite_stops_the_run_at_the_last_good_checkpoint(shelf, walk, undisturbed, tmp_path, reward):
    run = tmp_path / "run"
    said = refused(child(shelf, "train", "dqn", "--env", ENV, *TINY, "--out", run, WALK_BAD_REWARD="215", WALK_REWARD=reward))
    step = int(said.partition(" at step ")[2].partition(";")[0])
    assert 215 < step <= 400
    kept = step // 100 * 100 - (step % 100 == 0) * 100
    assert said == f"iterq: the loss of seed 0 was not finite at step {step}; the last good checkpoint is step-{kept:012d}"
    assert checkpoints(run)[-1] == f"step-{kept:012d}"
    if kept == 200:  # a later checkpoint remembers the bad reward, though nothing had been learned from it yet
        assert command("resume", run) == 0
        assert held(run) == undisturbed


def test_an_environment_that_raises_after_the_loss_broke_leaves_no_checkpoint_of_it(walk, tmp_path):
    # Rewards of the first 100 steps are all there is to learn from, so that every batch soon meets the bad one.
    walk(BAD_REWARD=101, REWARD="nan", RAISE=190)
    with pytest.raises(Refusal, match=r"(?s)raised ValueError.*; the last good checkpoint is step-000000000100$"):
        train(tmp_path / "run", "--buffer-size", 100, "--batch-size", 64)
    assert checkpoints(tmp_path / "run") == ["step-000000000100"]


def test_returns_that_are_not_finite_are_reported_as_null(walk, tmp_path, capsys):
    walk(BAD_REWARD=50, REWARD="inf")  # clipped for learning
    assert train(tmp_path / "run", "--clip-rewards", "--json") == 0
    assert json.loads(capsys.readouterr().out)["mean_return"] is None


@pytest.mark.parametrize("tail", ["0,201,1.0,7,0.1\n", "0,2", "\x00garbage\nno csv\n", "0,199,-1.0,3,0.5\n0,19"])
def test_what_follows_the_checkpoint_in_a_log_is_cut_off(walk, undisturbed, run, tail):
    for name in ("episodes.csv", "metrics.jsonl"):
        with (run / name).open("a") as file:
            file.write(tail)
    (run / "tb" / "seed_0" / "events.out.tfevents.1.crash").write_bytes(b"\x01\x02")
    assert go_on(run) == 0
    assert held(run) == undisturbed
    assert not (run / "tb" / "seed_0" / "events.out.tfevents.1.crash").exists()


@pytest.mark.parametrize("name", ["episodes.csv", "metrics.jsonl"])
@pytest.mark.parametrize("damage", ["changed", "shortened", "gone"])
def test_a_log_that_is_not_what_it_was_is_refused(walk, run, name, damage):
    data = (run / name).read_bytes()
    (run / name).unlink()
    if damage != "gone":
        (run / name).write_bytes(data[:-10] if damage == "shortened" else data[:40] + bytes([data[40] ^ 1]) + data[41:])
    before = contents(run)
    with pytest.raises(Refusal, match=f"{name} is damaged: "):
        command("resume", run)
    assert contents(run) == before


def truncated(folder):
    os.truncate(folder / "seed-0.safetensors", 1000)


def flipped(folder):
    data = bytearray((folder / "seed-0.replay.raw").read_bytes())
    data[len(data) // 2] ^= 4
    (folder / "seed-0.replay.raw").write_bytes(data)


def rewritten(**changed):
    def damage(folder):
        manifest = json.loads((folder / "manifest.json").read_text())
        (folder / "manifest.json").write_text(json.dumps({**manifest, **changed}))

    return damage


def without(name):
    return lambda folder: (folder / name).unlink()


DAMAGES = {
    "truncated": (truncated, "is damaged: seed-0.safetensors has 1000 bytes instead of"),
    "flipped": (flipped, "is damaged: seed-0.replay.raw has changed since it was written"),
    "other": (rewritten(config="0" * 64), "belongs to another configuration"),
    "newer": (rewritten(format=99), "has format 99; this version of iterq reads format"),
    "unlisted": (without("manifest.json"), "is damaged: its manifest cannot be read"),
    "missing": (without("seed-0.replay.raw"), "is damaged: seed-0.replay.raw has 0 bytes instead of"),
    "step": (rewritten(step=150), "is damaged: its manifest has changed"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_bad_checkpoint_is_named_and_the_one_before_it_used(walk, undisturbed, run, name, capsys):
    damage, message = DAMAGES[name]
    damage(run / "checkpoint" / "step-000000000200")
    assert go_on(run) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("iterq: ")]
    assert len(said) == 1
    assert said[0].startswith(f"iterq: checkpoint step-000000000200 {message}")
    assert held(run) == undisturbed


def test_any_flipped_bit_of_a_manifest_is_noticed(run):
    folder, expected = run / "checkpoint" / "step-000000000200", (config_hash(read_config(run)),)
    good = (folder / "manifest.json").read_bytes()
    whole = checkpoint.check(folder, expected)
    for i in range(len(good)):
        for bit in (0, 2, 5):
            (folder / "manifest.json").write_bytes(good[:i] + bytes([good[i] ^ 1 << bit]) + good[i + 1 :])
            with contextlib.suppress(Refusal):
                # White space may change, what it says may not.
                assert checkpoint.check(folder, expected) == whole, (i, bit)


@pytest.mark.parametrize("text", ["", "[]", "1", '{"format": 1}', '{"format": 1, "files": []}', '{"format": 1, "files": {}}', "\xff"])
def test_a_manifest_that_is_something_else_is_refused(run, text):
    folder = run / "checkpoint" / "step-000000000200"
    (folder / "manifest.json").write_text(text, encoding="latin-1")
    with pytest.raises(Refusal, match=r"^checkpoint step-000000000200 "):
        checkpoint.check(folder, (config_hash(read_config(run)),))


def test_a_run_with_only_bad_checkpoints_is_refused(shelf, walk, run):
    flipped(run / "checkpoint" / "step-000000000100")
    truncated(run / "checkpoint" / "step-000000000200")
    before = contents(run)
    process = child(shelf, "resume", run)
    printed, said = process.communicate(timeout=300)
    assert process.returncode == 2
    assert printed == ""
    assert "Traceback" not in said
    assert f"iterq: {run} has no good checkpoint: " in said.splitlines()[-1]
    assert contents(run) == before


def test_a_changed_configuration_does_not_get_the_checkpoints_of_another(walk, run):
    found = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**found, "settings": {**found["settings"], "gamma": 0.5}}))
    before = contents(run)
    with pytest.raises(Refusal, match=r"no good checkpoint: .*200 belongs to another configuration.*100 belongs to another"):
        command("resume", run)
    assert contents(run) == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no JSON"),
        ("[]", "holds no settings"),
        ('{"wings": 2}', "unknown settings in the configuration: wings"),
        ('{"format": 2, "settings": {"wings": 2}}', "unknown settings in the configuration: wings"),
        ('{"format": 2, "settings": [3]}', "unknown settings in the configuration"),
        ('{"format": 3, "settings": {}}', "has format 3; this version of iterq reads formats 1 and 2"),
        ('{"K": "five"}', "K must be int, got 'five'"),
        ('{"seeds": 3}', "seeds must be integers, got 3"),
        ('{"K": 0}', "K must be at least 1"),
        ("\xff", "is no JSON"),
    ],
)
def test_a_configuration_that_is_something_else_is_refused(run, text, message):
    (run / "config.json").write_text(text, encoding="latin-1")
    with pytest.raises(Refusal, match=message):
        command("resume", run)


def test_what_a_crash_has_left_of_a_checkpoint_is_removed(walk, undisturbed, run):
    shutil.copytree(run / "checkpoint" / "step-000000000100", run / "checkpoint" / ".writing")
    (run / "checkpoint" / ".writing" / "manifest.json").unlink()
    assert go_on(run) == 0
    assert checkpoints(run) == ["step-000000000300", "step-000000000400"]
    assert held(run) == undisturbed


def test_a_run_that_crashed_before_its_first_checkpoint_starts_again(walk, undisturbed, run):
    shutil.rmtree(run / "checkpoint")
    assert go_on(run) == 0
    assert held(run) == undisturbed


def test_a_log_that_cannot_be_opened_is_refused(walk, run):
    shutil.rmtree(run / "tb")
    (run / "tb").write_text("a file in the place of a folder")
    with pytest.raises(Refusal, match=f"cannot write {run}"):
        command("resume", run)


def test_a_refused_resume_lets_go_of_the_run(walk, run):
    # In one process, too: a notebook must be able to try again.
    walk(DRIFT=1)
    with pytest.raises(Refusal, match="does not repeat"):
        go_on(run)
    Run.open(run, noted(*resolve(ENV))).close()


def test_a_run_does_not_go_on_in_another_environment(walk, run, undisturbed, monkeypatch):
    before = contents(run)
    with monkeypatch.context() as patch:
        patch.setattr(gymnasium.spec("Walk-v0"), "max_episode_steps", 7)
        with pytest.raises(
            Refusal, match=r"^iterq_walk:Walk-v0 is not what this run began with: max_episode_steps was None and is 7; remove"
        ):
            go_on(run)
        assert contents(run) == before
        (run / "env.json").unlink()
        assert go_on(run) == 0  # whoever wants that may have it
    assert held(run) != undisturbed


@pytest.mark.parametrize("words", [["resume", "nowhere"], ["resume"], ["resume", "a", "b"], ["resume", "a", "--seeds", "3"]])
def test_a_resume_of_nothing_is_refused(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Refusal):
        command(*words)
    assert leftovers(tmp_path) == []
