"""Training from the command line: what `train`, `resume`, `eval` and `list` print and leave behind."""

import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from PIL import Image, ImageSequence

import iterq
from iterq import apart, cli, stopping
from iterq.errors import Refusal
from iterq.presets import ALGORITHMS, PRESETS, configure
from iterq.reproduce import EXPERIMENTS
from iterq.runs import divided
from tests.helpers import pictures_of
from tests.test_cli import leftovers

pytestmark = pytest.mark.medium

TINY = ["--features", "8", "--batch-size", "4", "--learning-starts", "50", "--buffer-size", "200"]
TINY += ["--eval-every", "0", "--log-every", "100", "--checkpoint-every", "100", "--total-timesteps", "300"]
FILES = [".lock", "checkpoint", "config.json", "env.json", "episodes.csv", "metrics.jsonl", "tb", "versions.json"]


def command(*words):
    return cli.command([str(word) for word in words])


def printed(capsys, *words):
    """The one JSON object that a command prints."""
    capsys.readouterr()
    assert command(*words, "--json") == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    return json.loads(out)


def in_a_process(words, folder, programs):
    """What a command that succeeds has printed."""
    done = subprocess.run(
        [sys.executable, "-m", "iterq.cli", *words],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=folder,
        env={**os.environ, **programs, "PYTHONPATH": os.getcwd()},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run of two seeds on an environment that can be drawn."""
    out = tmp_path_factory.mktemp("runs") / "run"
    assert command("train", "i-dqn", "--K", 2, "--env", "CartPole-v1", "--seeds", 2, *TINY, "--out", out) == 0
    return out


def test_a_run_as_a_process(programs, tmp_path):
    words = ["train", "dqn", "--env", "jax/Chain", *TINY, "--seeds", "2", "--eval-every", "100", "--json", "--out", "deep/run"]
    done = in_a_process(words, tmp_path, programs)
    assert done.stdout.count("\n") == 1
    found = json.loads(done.stdout)
    told = {"run", "algorithm", "env", "seeds", "steps", "finished", "steps_per_second", "mean_return", "eval_step", "eval_mean_return"}
    assert set(found) == told
    assert found["run"] == "deep/run"
    assert (found["seeds"], found["steps"], found["finished"]) == ([0, 1], 300, True)
    assert found["steps_per_second"] > 0
    assert 0 < found["mean_return"] <= 1
    assert set(found["eval_mean_return"]) == {"0", "1"}
    assert found["eval_step"] == 300
    # Logs go to stderr, the size of the replay before anything else.
    lines = done.stderr.splitlines()
    assert re.fullmatch(r"replay: 2 × 200 rows, [\d.]+ MB in the memory of the cpu device", lines[0])
    assert all(line.startswith("training: ") for line in lines[1:])
    assert re.search(r"training: 100%, [\d,]+ steps/s", lines[-1])
    assert leftovers(tmp_path / "deep" / "run") == FILES


def test_processes_that_share_a_command_share_a_progress_bar(tmp_path, programs):
    words = ["train", "dqn", "--env", "jax/Chain", *TINY, "--seeds", "2", "--processes", "2", "--out", "run"]
    done = in_a_process(words, tmp_path, programs)
    shares = [float(share) for share in re.findall(r"^training: (\d+)%, [\d,]+ steps/s", done.stderr, re.MULTILINE)]
    assert shares == sorted(set(shares))
    assert shares[-1] == 100


def test_a_run_directory_tells_all_about_the_run(run):
    assert leftovers(run) == FILES
    config = json.loads((run / "config.json").read_text())["settings"]
    assert (config["algorithm"], config["env"], config["K"], config["seeds"]) == ("i-dqn", "CartPole-v1", 2, [0, 1])
    versions = json.loads((run / "versions.json").read_text())
    assert versions["jax"] == jax.__version__
    episodes = (run / "episodes.csv").read_text().splitlines()
    assert episodes[0] == "seed,step,return,length,wall_time"
    assert {line.split(",")[0] for line in episodes[1:]} == {"0", "1"}
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [(row["seed"], row["step"]) for row in metrics] == [(seed, step) for step in (100, 200, 300) for seed in (0, 1)]
    assert {"rollout/ep_rew_mean", "rollout/exploration_rate", "train/loss", "iqn/td_loss_2", "time/fps"} <= set(metrics[-1])
    assert leftovers(run / "tb") == ["seed_0", "seed_1"]
    assert leftovers(run / "checkpoint") == ["step-000000000200", "step-000000000300"]
    names = ["manifest.json", "seed-0.replay.raw", "seed-0.safetensors", "seed-1.replay.raw", "seed-1.safetensors"]
    assert leftovers(run / "checkpoint" / "step-000000000300") == names


@pytest.mark.parametrize(("words", "seeds"), [("2", [0, 1]), ("0-1", [0, 1]), ("3,5", [3, 5])])
def test_seeds_are_a_count_a_range_or_a_list(words, seeds, tmp_path, capsys):
    found = printed(capsys, "train", "dqn", "--env", "jax/Chain", *TINY, "--seeds", words, "--out", tmp_path / "run")
    assert found["seeds"] == seeds
    rows = (tmp_path / "run" / "episodes.csv").read_text().splitlines()[1:]
    assert {int(row.split(",")[0]) for row in rows} == set(seeds)
    saved = {p.name for p in (tmp_path / "run" / "checkpoint" / "step-000000000300").glob("*.safetensors")}
    assert saved == {f"seed-{seed}.safetensors" for seed in seeds}


def state_of(run):
    """Everything but the event files, which are written anew."""
    files = [path for path in sorted(run.rglob("*")) if path.is_file() and "tb" not in path.parts]
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files if path.name not in ("episodes.csv", "metrics.jsonl")}


def test_a_finished_run_has_nothing_to_resume(run, capsys):
    before, logs = state_of(run), [(run / name).read_bytes() for name in ("episodes.csv", "metrics.jsonl")]
    found = printed(capsys, "resume", run)
    assert (found["steps"], found["finished"]) == (300, True)
    assert found["mean_return"] > 0
    assert state_of(run) == before
    assert [(run / name).read_bytes() for name in ("episodes.csv", "metrics.jsonl")] == logs


def test_more_steps_can_be_added_to_a_run(tmp_path, capsys):
    words = ["train", "dqn", "--env", "jax/Catch", *TINY]
    command(*words, "--total-timesteps", 500, "--out", tmp_path / "at-once")
    command(*words, "--out", tmp_path / "run")
    assert printed(capsys, "resume", tmp_path / "run", "--total-timesteps", 500)["steps"] == 500
    assert json.loads((tmp_path / "run" / "config.json").read_text())["settings"]["total_timesteps"] == 500
    manifests = [tmp_path / name / "checkpoint" / "step-000000000500" / "manifest.json" for name in ("run", "at-once")]
    one, two = (json.loads(path.read_text())["files"] for path in manifests)
    assert one == two


def test_a_run_is_not_overwritten(run):
    before = state_of(run)
    with pytest.raises(Refusal, match=f"{run} already holds a run; iterq resume {run} continues it"):
        command("train", "dqn", "--env", "jax/Chain", *TINY, "--out", run)
    assert state_of(run) == before


def test_without_a_place_a_run_goes_below_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command("train", "dqn", "--env", "jax/Chain", *TINY) == 0
    out = capsys.readouterr().out
    assert re.fullmatch(r"runs/train/dqn-jax-Chain: finished at step 300, [\d,]+ steps/s, mean return of the last episodes 0\.\d\n", out)
    assert leftovers(tmp_path / "runs" / "train" / "dqn-jax-Chain") == FILES


def test_what_is_refused_leaves_nothing(tmp_path):
    for words, message in (
        (["--env", "CartPol-v1"], "CartPol-v1"),
        (["--env", "jax/CartPole"], "did you mean 'jax/CartPole-v1'"),
        (["--env", "Pendulum-v1"], "needs discrete ones"),
        (["--env", "jax/Chain", "--gamma", "2"], "gamma must lie in"),
        (["--env", "jax/Chain", "--bellman", "dqm"], "unknown base algorithm 'dqm'"),
        (["--env", "jax/Chain", "--bellman", "no.such:thing"], "no base algorithm 'no.such:thing'"),
        (
            ["--env", "jax/Chain", "--buffer-size", "2000000000"],
            "MB that the cpu device has for it; make buffer_size smaller or train fewer seeds",
        ),
        (["--env", "jax/Chain", "--replay", "host"], "runs on the device, and so must its replay"),
        (["--env", "jax/Chain", "--seeds", "5-2"], "names nothing"),
        (["--env", "jax/Chain", "--wings", "2"], "unknown option '--wings'"),
    ):
        with pytest.raises(Refusal, match=message):
            command("train", "dqn", *TINY, *words, "--out", tmp_path / "run")
    assert leftovers(tmp_path) == []


def test_a_run_is_evaluated(run, capsys):
    found = printed(capsys, "eval", run, "--episodes", 3)
    assert (found["path"], found["env"], found["episodes"]) == (str(run), "CartPole-v1", 3)
    assert {seed: len(returns) for seed, returns in found["returns"].items()} == {"0": 3, "1": 3}
    for seed, returns in found["returns"].items():
        assert found["mean_return"][seed] == pytest.approx(sum(returns) / 3)
    assert printed(capsys, "eval", run, "--episodes=3") == found  # always the same episodes
    assert command("eval", run, "--episodes", 2) == 0
    assert re.search(r"seed 1: mean return [\d.]+ over 2 episodes\n", capsys.readouterr().out)


def test_a_saved_model_is_evaluated(run, tmp_path, capsys):
    path = iterq.load(run).save(tmp_path / "model")
    by_run = printed(capsys, "eval", run, "--episodes", 2)["returns"]
    assert printed(capsys, "eval", path, "--episodes", 2)["returns"] == by_run
    assert printed(capsys, "eval", path, "--episodes", 2, "--env", "CartPole-v1")["returns"] == by_run


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "cannot read nowhere"),
        ([], "required: RUN"),
        (["RUN", "--episodes", "0"], "--episodes must be at least 1"),
        (["RUN", "--episodes", "few"], "few"),
        (["RUN", "--episode", "3"], "unknown option '--episode', did you mean '--episodes'"),
        (["RUN", "--env", "Acrobot-v1"], "does not fit this agent"),
    ],
)
def test_an_evaluation_of_nothing_is_refused(run, words, message):
    with pytest.raises(Refusal, match=message):
        command("eval", *(run if word == "RUN" else word for word in words))


def test_an_episode_is_filmed(run, capsys, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    found = printed(capsys, "eval", run, "--episodes", 1, "--video")
    assert found["video"] == str(run / "video.mp4")
    pictures = pictures_of(run / "video.mp4", 400, 600)
    assert len(pictures) == found["returns"]["0"][0] + 1  # of CartPole, whose return is its length
    assert all(np.ptp(picture) > 100 for picture in pictures)
    (run / "video.mp4").unlink()


@pytest.mark.parametrize(("rate", "every"), [(50, 1), (125, 3)])
def test_without_ffmpeg_an_episode_is_a_gif(run, capsys, monkeypatch, rate, every):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "imageio_ffmpeg" else there(name, *more))
    monkeypatch.setitem(CartPoleEnv.metadata, "render_fps", rate)
    found = printed(capsys, "eval", run, "--episodes", 1, "--video")
    with Image.open(found["video"]) as film:
        durations = [picture.info["duration"] for picture in ImageSequence.Iterator(film)]  # equal ones are one, shown for longer
    pictures = -(-(int(found["returns"]["0"][0]) + 1) // every)
    assert sum(durations) == 20 * pictures
    assert len(durations) > 2
    (run / "video.gif").unlink()


class Dark(gymnasium.Env):
    """Has nothing to show."""

    observation_space, action_space = gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        return 1, 1.0, True, False, {}


@pytest.mark.filterwarnings("ignore:.*render_mode.*:UserWarning")
def test_what_cannot_be_filmed_is_refused(tmp_path):
    pure = iterq.make("dqn", "jax/Chain", features=(8,)).save(tmp_path / "pure")
    with pytest.raises(Refusal, match="jax/Chain has no pictures"):
        command("eval", pure, "--episodes", 1, "--video")
    gymnasium.register("Dark-v0", Dark)
    dark = iterq.make("dqn", "Dark-v0", features=(8,)).save(tmp_path / "dark")
    with pytest.raises(Refusal, match="Dark-v0 cannot be drawn: "):
        command("eval", dark, "--episodes", 1, "--video")
    assert leftovers(tmp_path) == ["dark.safetensors", "pure.safetensors"]


def test_list_names_everything_with_its_sources(capsys):
    found = printed(capsys, "list")
    assert set(found["algorithms"]) == set(ALGORITHMS)
    assert set(found["presets"]) == set(PRESETS)
    assert set(found["experiments"]) == set(EXPERIMENTS)
    for kind in ("algorithms", "presets"):
        for about in found[kind].values():
            assert about["about"]
            assert about["values"].keys() == about["source"].keys()
    command("list")
    text = capsys.readouterr().out
    assert all(name in text for name in (*ALGORITHMS, *PRESETS))


def test_help_shows_every_option(capsys):
    for words in (["train"], ["train", "--help"], ["--help"]):
        assert command(*words) == 0
        assert "iterq train ALGORITHM --env ID" in capsys.readouterr().out
    with pytest.raises(SystemExit) as exit:
        command("train", "i-dqn", "--help")
    assert exit.value.code == 0
    text = capsys.readouterr().out
    assert all(option in text for option in ("--total-timesteps", "--seeds", "--K", "--preset", "--out", "--json", "--bellman"))


def test_a_base_algorithm_from_outside_trains(tmp_path, capsys):
    words = ["--bellman", "examples.munchausen:munchausen", "--K", 3]
    found = printed(capsys, "train", "i-dqn", "--env", "jax/Chain", *TINY, *words, "--out", tmp_path / "run")
    assert found["finished"]
    metrics = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert all(np.isfinite(metrics[-1][f"iqn/td_loss_{k}"]) for k in (1, 2, 3))
    assert printed(capsys, "eval", tmp_path / "run", "--episodes", 1)["returns"]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_trains(algorithm, tmp_path, capsys):
    small = ["--atoms", 11] if "c51" in algorithm else ["--quantiles", 8] if "qr" in algorithm or "iqn" in algorithm else []
    soft = ALGORITHMS[algorithm].values["bellman"] == "soft"
    env = "jax/Catch" if algorithm in ("dqn", "i-iqn") else "Pendulum-v1" if soft else "jax/Chain"
    small += ["--utd", 2] if "droq" in algorithm else []
    found = printed(capsys, "train", algorithm, "--env", env, *TINY, *small, "--out", tmp_path / "run")
    assert (found["algorithm"], found["steps"], found["finished"]) == (algorithm, 300, True)
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    K = ALGORITHMS[algorithm].values["K"]
    G = PRESETS["mujoco" if soft else "classic"].values["G"]
    assert last["train/n_updates"] == len([n for n in range(51, 301) if n % G == 0])  # after step 50
    assert all(np.isfinite(last[f"iqn/td_loss_{k}"]) for k in range(1, K + 1))
    assert f"iqn/td_loss_{K + 1}" not in last


def test_a_run_that_goes_on_under_other_versions_says_so(tmp_path, capsys):
    run = tmp_path / "run"
    options = ["--features", "8", "--batch-size", "4", "--learning-starts", "50", "--buffer-size", "100", "--eval-every", "0"]
    assert command("train", "dqn", "--env", "jax/Chain", "--total-timesteps", 100, "--out", run, *options) == 0
    stated = json.loads((run / "versions.json").read_text())
    (run / "versions.json").write_text(json.dumps({**stated, "jax": "0.0.1"}))
    capsys.readouterr()
    assert command("resume", run, "--total-timesteps", 150) == 0
    assert f"this run began with jax 0.0.1; with {stated['jax']} its numbers may go on differently" in capsys.readouterr().err


def contents(folder):
    """All files of a run that must not depend on how it was trained."""
    names = ("config.json", "episodes.csv", "metrics.jsonl")
    timed = {"time/fps", "time/time_elapsed"}
    found = {name: (folder / name).read_text().splitlines() for name in names}
    found["episodes.csv"] = [line.rsplit(",", 1)[0] for line in found["episodes.csv"]]
    found["metrics.jsonl"] = [{k: v for k, v in json.loads(line).items() if k not in timed} for line in found["metrics.jsonl"]]
    states = {path.name: path.read_bytes() for path in sorted(folder.glob("checkpoint/*/seed-*"))}
    return found, states


def test_runs_in_several_processes_are_the_same_runs(tmp_path, capsys, monkeypatch, programs):
    for name, value in programs.items():
        monkeypatch.setenv(name, value)
    words = ["train", "i-dqn", "--env", "jax/Chain,jax/Catch,CartPole-v1", "--K", "2", *TINY, "--out"]
    together = printed(capsys, *words, tmp_path / "a")
    apart = printed(capsys, *words, tmp_path / "b", "--processes", "2")
    assert [row["env"] for row in apart] == [row["env"] for row in together] == ["jax/Chain", "jax/Catch", "CartPole-v1"]
    for name in ("jax-Chain", "jax-Catch", "CartPole-v1"):
        assert contents(tmp_path / "a" / name) == contents(tmp_path / "b" / name)
    further = printed(capsys, "resume", tmp_path / "b", "--total-timesteps", "400", "--processes", "3")
    assert [row["steps"] for row in further] == [400] * 3
    with pytest.raises(Refusal, match="already holds a run"):  # of another process, told by this one
        command(*words, tmp_path / "b", "--processes", "2")
    with pytest.raises(Refusal, match="--processes must be at least 1, got none"):
        command(*words, tmp_path / "c", "--processes", "none")


def test_of_several_processes_the_one_that_failed_says_why(tmp_path, monkeypatch):
    say = "import json, sys; print(json.dumps({'refused': sys.argv[1]})); sys.exit(2)"
    wait = "import signal; signal.sigwait([signal.SIGTERM]); "

    def start(kind, share):
        kind, *program = [kind, say, "the disk is full"] if share == [tmp_path / "b"] else [subprocess.Popen, wait + say, "interrupted"]
        return kind([sys.executable, "-c", *program], stdout=subprocess.PIPE, text=True)

    class Unnoticed(subprocess.Popen):
        """Has ended when it is looked at for the second time."""

        looked = 0

        def poll(self):
            self.looked += 1
            if self.looked == 1:
                return None
            return self.wait()

    for kind in (subprocess.Popen, Unnoticed):
        monkeypatch.setattr(apart, "_start", lambda runs, share, *_, kind=kind: start(kind, share))
        with pytest.raises(Refusal, match=r"^the disk is full$"):
            apart.go_on_apart({tmp_path / name: None for name in "abc"}, True, 3)


def test_more_processes_than_environments_share_the_seeds(tmp_path, capsys, monkeypatch, programs):
    for name, value in programs.items():
        monkeypatch.setenv(name, value)
    words = ["train", "i-dqn", "--env", "CartPole-v1", "--K", "2", *TINY, "--seeds", "3-5", "--out"]
    printed(capsys, *words, tmp_path / "a")
    apart = printed(capsys, *words, tmp_path / "b", "--processes", "2")
    assert [(row["run"], row["seeds"]) for row in apart] == [
        (str(tmp_path / "b" / "seeds-3-3"), [3]),
        (str(tmp_path / "b" / "seeds-4-5"), [4, 5]),
    ]
    (alone, states), *shares = [contents(tmp_path / name) for name in ("a", "b/seeds-3-3", "b/seeds-4-5")]
    assert shares[0][1] | shares[1][1] == states
    for name, seed_of in (("episodes.csv", lambda line: line.split(",")[0]), ("metrics.jsonl", lambda row: str(row["seed"]))):
        for seed, (share, _) in zip("345", (shares[0], shares[1], shares[1]), strict=True):
            rows = [row for row in alone[name] if seed_of(row) == seed]
            assert rows == [row for row in share[name] if seed_of(row) == seed]
            assert rows
    assert [row["steps"] for row in printed(capsys, "resume", tmp_path / "b", "--total-timesteps", "400", "--processes", "2")] == [400] * 2
    with pytest.raises(Refusal, match="holds no run: name one of those in it, seeds-3-3, seeds-4-5"):
        command("eval", tmp_path / "b")
    page = printed(capsys, "report", tmp_path / "b", "--out", tmp_path / "page")
    assert page["labels"] == ["i-dqn"]
    assert [line.split(",")[2] for line in (tmp_path / "page" / "final.csv").read_text().splitlines()[1:]] == ["3", "4", "5"]


@pytest.mark.parametrize(
    ("env", "seeds", "processes", "expected"),
    [
        ("Pong", 5, 1, {"": 5}),
        ("Pong", 1, 4, {"": 1}),
        ("Pong", 10, 4, {"seeds-0-1": 2, "seeds-2-4": 3, "seeds-5-6": 2, "seeds-7-9": 3}),
        ("Pong,ALE/Boxing-v5", 4, 3, {"Pong": 4, "Boxing": 4}),
        ("Pong,ALE/Boxing-v5", 4, 5, {"Pong-seeds-0-1": 2, "Pong-seeds-2-3": 2, "Boxing-seeds-0-1": 2, "Boxing-seeds-2-3": 2}),
    ],
)
def test_how_processes_share_runs(env, seeds, processes, expected, tmp_path):
    runs = divided(configure("dqn", env=env, seeds=tuple(range(seeds))), tmp_path, processes)
    assert {folder: len(config.seeds) for folder, config in runs.items()} == {tmp_path / name: count for name, count in expected.items()}
    assert len({(config.env, seed) for config in runs.values() for seed in config.seeds}) == seeds * len(env.split(","))


@contextlib.contextmanager
def two_processes(out, programs):
    """A run that would go on for ever in two processes of its own, when both have written a checkpoint."""
    words = ["train", "dqn", "--env", "jax/Chain,jax/Catch", *TINY, "--total-timesteps", "100000000", "--processes", "2", "--out", out]
    command = [sys.executable, "-m", "iterq.cli", *map(str, words)]
    environment = {**os.environ, **programs, "PYTHONPATH": os.getcwd()}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
        deadline = time.monotonic() + 120
        while len({path.parents[1] for path in out.glob("*/checkpoint/step-*")}) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        try:
            yield process
        finally:
            process.kill()  # a test that failed would wait for ever


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_all_processes_with_a_checkpoint(number, tmp_path, programs):
    with two_processes(tmp_path / "run", programs) as process:
        process.send_signal(number)
        time.sleep(0.05)
        process.send_signal(number)  # as `timeout` does, once to the process and once to its group
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert said.count("stopped at step") == 2


def test_processes_come_to_rest_when_the_one_that_has_started_them_is_gone(tmp_path, programs, capsys):
    with two_processes(tmp_path / "run", programs) as process:
        process.kill()
        _, said = process.communicate(timeout=60)  # until nobody holds its standard error
    assert "Traceback" not in said
    for run in (tmp_path / "run" / "jax-Chain", tmp_path / "run" / "jax-Catch"):
        last = max(int(path.name.removeprefix("step-")) for path in run.glob("checkpoint/step-*"))
        assert printed(capsys, "resume", run, "--total-timesteps", last + 100)["steps"] == last + 100


def test_a_second_signal_interrupts_if_it_is_not_the_first_one_again(monkeypatch):
    with stopping.stopping() as stop:
        assert not stop()
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
        assert stop()
        monkeypatch.setattr(stopping, "AGAIN", 0)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_a_signal_before_training_has_begun_is_one_line(tmp_path):
    words = ["train", "dqn", "--env", "jax/Chain,jax/Catch", *TINY, "--processes", "2", "--out", tmp_path / "run"]
    command = [sys.executable, "-m", "iterq.cli", *map(str, words)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": os.getcwd()}) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while not children.read_text():
            time.sleep(0.01)
        process.terminate()
        said = process.communicate(timeout=120)[1]
    assert process.returncode == 2
    assert [line for line in said.splitlines() if line.startswith("iterq: ")] == ["iterq: interrupted before training had begun"]
