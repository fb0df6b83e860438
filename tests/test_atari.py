"""Atari: the protocol against a plain reference, ids, fleets of emulators and their exact restoration."""

import importlib.util
import json
import os
import signal

import cv2
import gymnasium
import numpy as np
import pytest

from iterq.emulator import HORIZON, Atari
from iterq.envs import resolve
from iterq.envs.stepping import TRAINING, EnvironmentFailure, HostEnvs
from iterq.envs.workers import Workers
from iterq.errors import Refusal
from iterq.games import game_of, games, human_normalised, references
from tests.helpers import pictures_of


class Plain:
    """The protocol in the plainest words, on the frame-by-frame environment that ale-py registers with Gymnasium.

    Every game has an emulator of its own: one that is used again remembers a little of the game before.
    """

    def __init__(self, game):
        import ale_py

        gymnasium.register_envs(ale_py)
        options = {"frameskip": 1, "repeat_action_probability": 0.0, "full_action_space": False, "obs_type": "grayscale"}
        self.make = lambda: gymnasium.make(f"ALE/{game}-v5", disable_env_checker=True, **options).unwrapped

    def reset(self, seed):
        self.env = self.make()
        self.draws, self.previous, self.count = np.random.Generator(np.random.PCG64(seed)), 0, 0
        screen, _ = self.env.reset()
        self.last_two = [screen.copy(), np.zeros_like(screen)]
        return cv2.resize(np.max(self.last_two, 0), (84, 84), interpolation=cv2.INTER_AREA)

    def step(self, action):
        sticky, rewards = self.draws.random(4), []
        for frame in range(4):
            self.previous = self.previous if sticky[frame] < 0.25 else action
            screen, reward, over, _, _ = self.env.step(self.previous)
            rewards.append(reward)
            if over:
                break
            if frame == 2:
                self.last_two[0] = screen.copy()
            if frame == 3:
                self.last_two[1] = screen.copy()
        self.count += 1
        return cv2.resize(np.max(self.last_two, 0), (84, 84), interpolation=cv2.INTER_AREA), sum(rewards), over, self.count == 27_000


@pytest.mark.parametrize("game", ["Breakout", "Pong", "Freeway", "Boxing", "Qbert", "Assault"])
def test_frames_and_rewards_equal_a_plain_reference(game):
    """2 000 steps and at least one end of an episode, or as many steps as it takes to see one."""
    ours, plain, rng = Atari(games()[game]), Plain(game), np.random.default_rng(0)
    ends, n, seed = 0, 0, 0
    np.testing.assert_array_equal(ours.reset(seed=seed)[0], plain.reset(seed))
    while n < 2_000 or not ends:
        action = int(rng.integers(ours.action_space.n))
        frame, reward, over, cut, _ = ours.step(action)
        expected = plain.step(action)
        np.testing.assert_array_equal(frame, expected[0])
        assert (reward, over, cut) == expected[1:]
        n += 1
        if over or cut:
            ends, seed = ends + 1, seed + 1
            np.testing.assert_array_equal(ours.reset(seed=seed)[0], plain.reset(seed))


def test_a_game_is_cut_off_at_the_horizon_and_not_before():
    env = Atari("pong")
    env.reset(seed=0)
    env.steps = HORIZON - 2
    assert env.step(0)[2:4] == (False, False)
    assert env.step(0)[2:4] == (False, True)


def test_sticky_actions_hold_the_previous_action_a_quarter_of_the_time():
    pressed = []
    env = Atari("breakout")
    env.reset(seed=3)
    env.ale = SpyingArcade(env.ale, pressed)
    actions = [2, 3] * 500
    for action in actions:
        env.step(action)
    first = [env.buttons.index(button) for button in pressed[::4]]
    kept = np.mean([a != b for a, b in zip(first, actions, strict=False)])
    assert 0.2 < kept < 0.3


class SpyingArcade:
    def __init__(self, ale, pressed):
        self._ale, self._pressed = ale, pressed

    def __getattr__(self, name):
        return getattr(self._ale, name)

    def act(self, button):
        self._pressed.append(button)
        return self._ale.act(button)

    def game_over(self):
        return False


@pytest.mark.parametrize("name", ["Breakout", "ALE/Breakout-v5", "BreakoutNoFrameskip-v4"])
def test_ids_mean_one_specification(name):
    kind, spec = resolve(name)
    assert isinstance(kind.make(), Atari)
    assert spec[:6] == ("ALE/Breakout-v5", (84, 84), "uint8", 4, None, 0)
    assert not spec.continuous


def test_other_names_are_left_alone_or_refused():
    assert game_of("CartPole-v1") is None
    assert game_of("Reversi") is None
    with pytest.raises(Refusal, match="did you mean 'Breakout'"):
        game_of("ALE/Brekout-v5")


def test_without_the_emulator_a_game_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    asked = game_of.__wrapped__  # past what it remembers
    for name in ("Breakout", "ALE/Breakout-v5", "BreakoutNoFrameskip-v4"):
        with pytest.raises(Refusal, match=rf"^{name} needs the Atari emulator: pip install 'iterq\[atari\]'$"):
            asked(name)
    assert asked("CartPole-v1") is None
    assert asked("Reversi") is None


def test_scores_are_known_for_the_20_games_that_we_take_for_those_of_the_paper():
    paper = [game for game, found in references().items() if found.in_paper]
    assert len(paper) == 20
    assert set(paper) <= set(games())
    assert human_normalised("Breakout", 1.7) == 0
    assert human_normalised("Breakout", 30.5) == pytest.approx(1)
    assert human_normalised("Nothing", 1) is None


def play(envs, steps, seed=0):
    rng, answers = np.random.default_rng(seed), []
    for n in range(1, steps + 1):
        answer, ended = envs.step(rng.integers(0, 3, len(envs.seeds)).astype(np.int32), n)
        answers.append((answer.frame.copy(), answer.reward.copy(), answer.terminated.copy(), answer.first.copy(), tuple(ended)))
    return answers


def same(a, b):
    return all(np.array_equal(x, y) for left, right in zip(a, b, strict=True) for x, y in zip(left[:4], right[:4], strict=True)) and all(
        left[4] == right[4] for left, right in zip(a, b, strict=True)
    )


@pytest.fixture
def fleet():
    made = []

    def make(game, seeds, kind=Workers):
        made.append(kind(resolve(game)[0], seeds, TRAINING))
        return made[-1]

    yield make
    for envs in made:
        envs.close()


def test_emulators_in_processes_equal_emulators_in_a_loop(fleet):
    far, near = fleet("Breakout", [0, 1, 7]), fleet("Breakout", [0, 1, 7], HostEnvs)
    assert np.array_equal(far.reset().frame, near.reset().frame)
    theirs, ours = play(far, 700), play(near, 700)
    assert same(theirs, ours)
    assert any(ended for *_, ended in ours)


@pytest.mark.parametrize("game", ["Breakout", "Qbert", "YarsRevenge"])
def test_an_emulator_is_restored_in_the_middle_of_an_episode(game, fleet):
    """Also those that a snapshot of the emulator does not restore."""
    before = fleet(game, [4, 5])
    before.reset()
    play(before, 333)
    journals = [before.journal(j) for j in range(2)]
    after = fleet(game, [4, 5])
    for j, journal in enumerate(journals):
        after.restore(j, journal)
    assert same(play(before, 200, seed=1), play(after, 200, seed=1))


def test_a_game_does_not_depend_on_what_was_played_before(fleet):
    used, fresh = Atari("qbert"), Atari("qbert")
    used.reset(seed=1)
    for i in range(500):
        if used.step(i % 6)[2]:
            used.reset(seed=2)
    np.testing.assert_array_equal(used.reset(seed=9)[0], fresh.reset(seed=9)[0])
    for i in range(300):
        (a, *rest_a), (b, *rest_b) = used.step(i % 5), fresh.step(i % 5)
        np.testing.assert_array_equal(a, b)
        assert rest_a == rest_b


@pytest.mark.parametrize(("game", "lengths"), [("assault", range(1, 4)), ("boxing", range(1, 15))])
def test_a_reset_leaves_no_traces_of_the_game_before(game, lengths):
    """With the emulator's own reset these games begin differently depending on when the game before was left."""
    env = Atari(game)

    def opening():
        return [env.reset(seed=5)[0], *(env.step(i % len(env.buttons))[0] for i in range(20))]

    expected = opening()
    for length in lengths:
        env.reset(seed=length)
        for _ in range(length):
            env.step(length % len(env.buttons))
        np.testing.assert_array_equal(opening(), expected)


def test_a_dead_emulator_is_named(fleet):
    envs = fleet("Pong", [0, 1])
    envs.reset()
    os.kill(envs.workers[0].process.pid, signal.SIGKILL)
    with pytest.raises(EnvironmentFailure, match="a process that steps ALE/Pong-v5 has died"):
        play(envs, 5)


def test_what_an_emulator_raises_is_told(fleet):
    envs = fleet("Pong", [3, 4])
    envs.reset()
    with pytest.raises(EnvironmentFailure, match=r"ALE/Pong-v5 raised IndexError at step 1 of seed 3: "):
        envs.step(np.array([17, 0], np.int32), 1)


def test_signals_for_the_whole_group_do_not_stop_emulators(fleet):
    envs = fleet("Pong", [0, 1])
    envs.reset()
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(envs.workers[0].process.pid, number)
    play(envs, 5)
    assert envs.episode == [0, 0]


def test_a_run_is_evaluated_by_any_member_with_normalised_scores_and_a_video(tmp_path, capsys):
    from iterq.cli import command

    run = tmp_path / "run"
    sizes = {"K": 2, "total-timesteps": 40, "learning-starts": 20, "buffer-size": 40, "features": 8, "batch-size": 2, "log-every": 40}
    words = [word for name, size in sizes.items() for word in (f"--{name}", str(size))]
    assert command(["train", "i-dqn", "--env", "Pong", *words, "--no-tensorboard", "--out", str(run)]) == 0
    capsys.readouterr()
    assert command(["eval", str(run), "--episodes", "1", "--policy", "2", "--video", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    score = told["mean_return"]["0"]
    assert -21 <= score <= 21
    assert told["policy"] == "2"
    assert told["human_normalised"]["0"] == pytest.approx((score + 20.7) / (14.6 + 20.7))
    pictures = pictures_of(told["video"], 210, 160)
    assert len(pictures) > 700  # a game to 21 takes its time
    assert np.ptp(pictures[100]) > 50
    with pytest.raises(Refusal, match="eval_policy must be one of mean, first, last, 1, 2, got '3'"):
        command(["eval", str(run), "--policy", "3"])
