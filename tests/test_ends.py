"""Where a run ends: after so many steps, or at the first event at which every agent has so many epochs."""

import contextlib
import csv
import json
import os
import signal

import gymnasium
import numpy as np
import pytest

import iterq
from iterq import cli
from iterq.ends import End
from iterq.envs.pure import cart_pole
from iterq.envs.stepping import TRAINING, HostEnvs
from iterq.epochs import Line, arrived, read_episodes, read_epochs
from iterq.errors import Refusal
from iterq.identity import settings_in
from iterq.presets import PRESETS, configure
from iterq.report.scores import read_run
from iterq.store import read_config
from iterq.track import Tracker

pytestmark = pytest.mark.medium

PURE, HOSTED = "jax/CartPole-v1", "CartPole-v1"
SIZES = {"features": 8, "batch_size": 4, "learning_starts": 20, "buffer_size": 50, "epsilon_decay": 50, "G": 4, "T": 20, "D": 8}
EVENTS = {"log_every": 30, "eval_every": 80, "eval_episodes": 2, "checkpoint_every": 50}
FIELDS = {**SIZES, "features": (8,), "tensorboard": False}  # the same from Python: one program is compiled for all


def command(*words):
    return cli.command([str(word) for word in words])


def train(out, env=HOSTED, **more):
    fields = {"seeds": "0,3", **SIZES, **EVENTS, **(more or {"epochs": 3, "epoch_steps": 70})}
    words = [word for name, value in fields.items() for word in (f"--{name.replace('_', '-')}", value)]
    return command("train", "dqn", "--env", env, *words, "--no-tensorboard", "--out", out)


def settings(run):
    return settings_in(json.loads((run / "config.json").read_text()))


def logs(run):
    """All that the logs hold, without what tells the time."""
    with (run / "episodes.csv").open() as file:
        episodes = [row[:-1] for row in csv.reader(file)]
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return episodes, [{k: v for k, v in row.items() if k not in ("time/fps", "time/time_elapsed")} for row in lines]


def newest(run):
    return max(int(path.name.removeprefix("step-")) for path in (run / "checkpoint").iterdir())


def last_epoch(run, epochs):
    """The step of the log at which the last of its agents has so many epochs of 70 steps."""
    ends = []
    for lines in read_episodes(run).values():
        taken, done = 0, []
        for line in lines:
            taken += line.length
            if taken >= 70:
                taken, done = 0, [*done, line.step]
        ends.append(done[epochs - 1])
    return max(ends)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A run on each kind of environment that nothing has disturbed."""
    runs = {env: tmp_path_factory.mktemp("ends") / "run" for env in (PURE, HOSTED)}
    assert all(train(run, env) == 0 for env, run in runs.items())
    return runs


@pytest.mark.parametrize("env", [PURE, HOSTED])
def test_a_run_ends_at_the_first_event_at_which_every_agent_has_its_epochs(undisturbed, env, capsys):
    run = undisturbed[env]
    over, events = last_epoch(run, 3), sorted({n for period in (30, 50, 70, 80) for n in range(period, 2_000, period)})
    assert over > 210  # what three epochs take at least
    assert newest(run) == next(n for n in events if n >= over)
    assert arrived(run, settings(run))
    assert read_run(run, "return").status == "finished"
    assert all(len(found) >= 3 for found in read_epochs(run, 70).values())
    capsys.readouterr()
    assert command("resume", run, "--json") == 0  # there is nothing left to do
    told = json.loads(capsys.readouterr().out)
    assert (told["finished"], told["steps"]) == (True, newest(run))


class Killed(BaseException):
    pass


def blow(monkeypatch, n, kill):
    """From now on, a signal asks to stop (or nothing is done any more) in the middle of step `n`; of pure environments, after it."""

    def strike(now):
        if now >= n and kill:
            raise Killed
        if now >= n:
            os.kill(os.getpid(), signal.SIGTERM)

    def begin(envs, actions, now, original=HostEnvs.begin):
        original(envs, actions, now)
        if envs.purpose == TRAINING:
            strike(now)

    def episodes(tracker, rows, wall, original=Tracker.episodes):
        original(tracker, rows, wall)
        strike(rows[-1][1])

    monkeypatch.setattr(HostEnvs, "begin", begin)
    monkeypatch.setattr(Tracker, "episodes", episodes)


@pytest.mark.parametrize("env", [PURE, HOSTED])
def test_a_run_that_is_stopped_and_killed_ends_where_it_would_have(env, undisturbed, tmp_path, monkeypatch):
    expected, run = undisturbed[env], tmp_path / "run"
    over = last_epoch(expected, 3)
    # The last stop comes when all epochs are over, but before an event at which that is asked.
    blows = [(73, False), (95, True), (165, True), (over + 1, False)]
    for number, (n, kill) in enumerate(blows):
        with monkeypatch.context() as patch, pytest.raises(Killed) if kill else contextlib.nullcontext():
            blow(patch, n, kill)
            assert (command("resume", run) if number else train(run, env)) == 0
        if env == HOSTED and not kill:
            assert n <= newest(run) < newest(expected)
        if number < 3 or env == HOSTED:
            assert not arrived(run, settings(run))
            assert read_run(run, "return").status in ("stopped", "crashed")
    assert command("resume", run) == 0
    assert logs(run) == logs(expected)
    assert newest(run) == newest(expected)
    for seed in (0, 3):
        last = f"checkpoint/step-{newest(run):012d}/seed-{seed}.safetensors"
        assert (run / last).read_bytes() == (expected / last).read_bytes()


def test_progress_reaches_its_end_with_the_run_and_never_goes_back(tmp_path):
    from iterq.runs import go_on

    moves, whole = [], []

    @contextlib.contextmanager
    def bar(steps):
        whole.append(steps)
        yield moves.append

    config = configure("dqn", env=PURE, seeds=(0, 3), epochs=3, epoch_steps=70, **FIELDS, log_every=10)
    (row,) = go_on({tmp_path / "run": config}, new=True, bar=bar)
    assert config.total_timesteps == 210
    assert whole == [420]
    assert min(moves) >= 0
    assert sum(moves) == 420
    done = np.cumsum(moves)
    assert (done[: np.argmax(done == 420)] < 420).all()
    assert row["steps"] > 210


def test_steps_to_go_are_never_below_what_epochs_take():
    end = End(configure("dqn", epochs=2, epoch_steps=100, log_every=7), (5,))
    assert end.to_go(0, None) == 200
    assert end.to_go(30, None) == 170
    end.add({5: [Line(60, 1.0, 60)]})
    assert [end.to_go(n, None) for n in (60, 61, 62, 100, 500)] == [140, 140, 139, 101, 101]  # 61 was a reset; an episode must end
    end.add({5: [Line(500, 1.0, 439)]})
    assert [end.to_go(n, None) for n in (500, 501, 502)] == [100, 100, 99]
    assert not end.reached(700, None)
    end.add({5: [Line(700, 1.0, 199)]})
    assert end.to_go(720, None) == 0
    assert end.reached(700, None)  # a multiple of 7 and of 100
    assert not end.reached(701, None)
    assert (end.next(701, None), end.next(797, None)) == (707, 798)
    assert (end.reached(9, 10), end.reached(10, 10), end.to_go(4, 10), end.next(8, 10), end.next(3, 10)) == (False, True, 6, 10, 7)


def test_of_steps_and_epochs_what_the_user_says_counts(tmp_path, capsys):
    ends = lambda config: (config.epochs, config.epoch_steps, config.total_timesteps)  # noqa: E731
    assert ends(configure("dqn", "paper")) == ends(configure("dqn", "published")) == (200, 250_000, 50_000_000)
    assert PRESETS["paper"].source["epochs"] == "i-DQN paper, Table 1: 200 epochs of 250 000 steps"
    assert ends(configure("dqn", "paper", total_timesteps=1_000)) == (0, 250_000, 1_000)
    assert ends(configure("dqn", "paper", epochs=3)) == (3, 250_000, 750_000)
    assert ends(configure("dqn", "paper", epoch_steps=10)) == (200, 10, 2_000)
    assert ends(configure("dqn", num_iterations=4, training_steps=50)) == (4, 50, 200)
    for odd in ("epochs", "epoch_steps"):
        with pytest.raises(Refusal, match=f"^total_timesteps and {odd} would each say when a run ends; give one of them$"):
            configure("dqn", total_timesteps=10, **{odd: 3})
        with pytest.raises(Refusal, match=r"^total_timesteps and epoch"):
            train(tmp_path / "none", **{"total_timesteps": 10, odd: 3})
    with pytest.raises(Refusal, match=r"^epoch_steps says nothing without epochs$"):
        configure("dqn", epoch_steps=3)
    assert not (tmp_path / "none").exists()
    assert train(tmp_path / "run", PURE, num_iterations=2, training_steps=30) == 0
    assert capsys.readouterr().out.startswith(f"{tmp_path / 'run'}: finished at step ")
    assert newest(tmp_path / "run") >= 60
    assert ends(read_config(tmp_path / "run")) == (2, 30, 60)
    with pytest.raises(Refusal, match=r"^total_timesteps and epochs would each say"):
        command("resume", tmp_path / "run", "--total-timesteps", 300, "--epochs", 4)
    assert command("resume", tmp_path / "run", "--epochs", 4) == 0
    assert ends(read_config(tmp_path / "run")) == (4, 30, 120)
    assert all(len(found) >= 4 for found in read_epochs(tmp_path / "run", 30).values())
    further = newest(tmp_path / "run") + 7
    assert command("resume", tmp_path / "run", "--total-timesteps", further) == 0
    assert ends(read_config(tmp_path / "run")) == (0, 30, further)
    assert newest(tmp_path / "run") == further
    assert arrived(tmp_path / "run", settings(tmp_path / "run"))


def test_learning_from_python_counts_steps_whatever_epochs_say(tmp_path):
    with contextlib.closing(iterq.make("dqn", PURE, **FIELDS, eval_every=0, epochs=1, epoch_steps=10)) as model:
        model.learn(90, out=tmp_path / "run").learn(15)
        assert model.summary.step == 105
        assert model.summary.finished
    assert (read_config(tmp_path / "run").epochs, read_config(tmp_path / "run").total_timesteps) == (0, 105)
    assert arrived(tmp_path / "run", settings(tmp_path / "run"))


def test_a_run_that_has_not_arrived_is_told_from_one_that_has(undisturbed, tmp_path):
    run = undisturbed[HOSTED]
    asked = settings(run)
    assert arrived(run, asked)
    assert not arrived(run, {**asked, "epochs": 99})
    assert not arrived(run, {**asked, "seeds": [0, 3, 4]})
    assert not arrived(run, {**asked, "log_every": 0, "eval_every": 0, "checkpoint_every": 0, "epoch_steps": newest(run) - 1, "epochs": 1})
    assert arrived(run, {**asked, "epochs": 0, "total_timesteps": newest(run)})
    assert not arrived(run, {**asked, "epochs": 0, "total_timesteps": newest(run) + 1})
    assert not arrived(tmp_path / "nowhere", asked)


class Counted(gymnasium.Wrapper):
    """Counts its steps."""

    made: list["Counted"] = []  # noqa: RUF012

    def __init__(self):
        super().__init__(gymnasium.make(HOSTED))
        self.taken = 0
        Counted.made.append(self)

    def step(self, action):
        self.taken += 1
        return super().step(action)


def test_reports_count_the_calls_of_host_environments(tmp_path):
    Counted.made.clear()
    counts = {0: [], 7: []}
    with contextlib.closing(iterq.make("dqn", Counted, seeds=(0, 7), log_every=1, eval_every=0, **FIELDS)) as model:

        def count(n, fleet):
            for seed, env in zip(counts, Counted.made[-2:], strict=True):
                counts[seed].append(env.taken)

        model.learn(200, out=tmp_path / "run", callback=count)
    check(tmp_path / "run", counts)


def test_reports_count_the_steps_of_pure_environments(tmp_path):
    """A step has led from the state before it to the state after it; a reset has not."""
    step, counts = cart_pole().step, {0: [0]}
    with contextlib.closing(iterq.make("dqn", PURE, log_every=1, eval_every=0, **FIELDS)) as model:
        before = [None]

        def count(n, fleet):
            seat = fleet.seats[0]
            expected = before[0] is not None and step(before[0], seat.action, None)[0]
            counts[0].append(counts[0][-1] + (before[0] is None or bool(np.allclose(expected, seat.world.state, atol=1e-5))))
            before[0] = np.asarray(seat.world.state)

        model.learn(200, out=tmp_path / "run", callback=count)
    check(tmp_path / "run", {0: counts[0][1:]})


def check(run, counts):
    """counts: environment steps of every seed at steps 1 … 200 of the log."""
    logged = {log.seed: log for log in read_run(run, "time/total_timesteps").logs}
    ended = {log.seed: log for log in read_run(run, "return").logs}
    for seed, taken in counts.items():
        assert taken[-1] < 200  # there were resets
        assert logged[str(seed)].values.tolist() == list(range(1, 201))
        assert logged[str(seed)].steps.tolist() == taken
        lines = read_episodes(run)[seed]
        assert ended[str(seed)].steps.tolist() == [taken[line.step - 1] for line in lines]
        assert [epoch.end for epoch in read_epochs(run, 1)[seed]] == [taken[line.step - 1] for line in lines]
