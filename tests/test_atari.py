"""Atari: the protocol against a plain reference, ids, fleets of emulators and their exact restoration."""

import importlib.util
import json
import os
import signal

import cv2
import gymnasium
import numpy as np
import pytest

import iterq
from iterq.cli import command
from iterq.emulator import HORIZON, Atari, PlainAtari
from iterq.envs import noted, resolve
from iterq.envs.playing import Stage
from iterq.envs.stepping import TRAINING, EnvironmentFailure, HostEnvs
from iterq.envs.workers import Workers
from iterq.errors import Refusal
from iterq.games import game_of, games, human_normalised, references
from iterq.store import difference
from tests.helpers import pictures_of

pytestmark = pytest.mark.medium


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

    def make(game, seeds, kind=Workers, emulator="fresh"):
        made.append(kind(resolve(game, emulator)[0], seeds, TRAINING))
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


def dopamine(game):
    """(seed, actions) -> frames of games in turn on one emulator, with Dopamine's reset, as plainly as that can be said."""
    import ale_py
    from ale_py import roms

    ale = ale_py.ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)  # sticky actions are drawn as ours are
    ale.setInt("random_seed", 0)
    ale.loadROM(str(roms.get_rom_path(game)))

    def play(seed, actions):
        ale.reset_game()
        draws, held, last_two = np.random.Generator(np.random.PCG64(seed)), 0, [ale.getScreenGrayscale(), np.zeros((210, 160), np.uint8)]
        frames = [cv2.resize(np.max(last_two, 0), (84, 84), interpolation=cv2.INTER_AREA)]
        for action in actions:
            sticky = draws.random(4)
            for frame in range(4):
                held = held if sticky[frame] < 0.25 else action
                ale.act(ale.getMinimalActionSet()[held])
                if ale.game_over():
                    break
                if frame >= 2:
                    last_two[frame - 2] = ale.getScreenGrayscale()
            frames.append(cv2.resize(np.max(last_two, 0), (84, 84), interpolation=cv2.INTER_AREA))
            if ale.game_over():
                break
        return frames

    return play


def game_on(env, seed, actions):
    """The same on an environment of ours."""
    frames = [env.reset(seed=seed)[0]]
    for action in actions:
        frame, _, over, _, _ = env.step(action)
        frames.append(frame)
        if over:
            break
    return frames


@pytest.mark.parametrize(("game", "steps", "differs"), [("berzerk", 1_000, 2), ("assault", 100, 3)])
def test_the_plain_reset_is_dopamines_and_lets_traces_of_earlier_games_in(game, steps, differs):
    """Games of Berzerk are over; those of Assault are left in the middle, as at the horizon."""
    actions = np.random.default_rng(2).integers(0, len(Atari(game).buttons), steps).tolist()
    fresh, plain, theirs = Atari(game), PlainAtari(game), dopamine(game)
    courses = []
    for _ in range(differs):
        expected = theirs(5, actions)
        np.testing.assert_array_equal(game_on(plain, 5, actions), expected)
        courses.append((game_on(fresh, 5, actions), expected))
    assert (len(courses[0][0]) <= steps) == (game == "berzerk")
    same = [len(a) == len(b) and np.array_equal(a, b) for a, b in courses]
    assert same == [True] * (differs - 1) + [False]
    assert np.array_equal(courses[0][0], courses[-1][0])


def test_emulators_with_the_plain_reset_in_processes_equal_those_in_a_loop(fleet):
    far, near = fleet("Berzerk", [0, 4], emulator="plain"), fleet("Berzerk", [0, 4], HostEnvs, emulator="plain")
    assert np.array_equal(far.reset().frame, near.reset().frame)
    theirs, ours = play(far, 400), play(near, 400)
    assert same(theirs, ours)
    assert any(ended for *_, ended in ours)


def test_with_the_plain_reset_a_game_that_traces_have_changed_is_not_restored(fleet):
    def played(steps):
        envs, rng = fleet("Assault", [1], HostEnvs, emulator="plain"), np.random.default_rng(1)
        envs.reset()
        for n in range(1, steps + 1):
            envs.step(rng.integers(0, 7, 1).astype(np.int32), n)
        return envs.journal(0)

    first, second = played(300), played(800)
    assert (int(first["episode"]), int(second["episode"])) == (0, 1)
    after = fleet("Assault", [1], HostEnvs, emulator="plain")
    after.restore(0, first)
    with pytest.raises(Refusal, match=r"^ALE/Assault-v5 does not repeat an episode from its seed and actions"):
        fleet("Assault", [1], HostEnvs, emulator="plain").restore(0, second)


def test_evaluation_with_the_plain_reset_begins_on_new_emulators():
    """Those that are kept would have played before, and a run that is resumed would not find them so."""
    kind = resolve("Berzerk", "plain")[0]
    stage = Stage(kind, (0,), 2)
    first = list(stage.play(1, lambda obs, t: np.full(obs.shape[:2], t % 18)))
    assert stage.envs is None
    assert first == list(stage.play(1, lambda obs, t: np.full(obs.shape[:2], t % 18)))


def test_the_emulator_is_noted_where_it_is_not_the_usual_one(tmp_path):
    usual, other = noted(*resolve("Pong")).said, noted(*resolve("Pong", "plain")).said
    assert difference(usual, other) == "class was iterq.emulator:Atari and is iterq.emulator:PlainAtari"
    assert difference({**usual, "class": ""}, {**other, "class": ""}) == ""
    for env in ("CartPole-v1", "jax/CartPole-v1", "Pong,CartPole-v1"):
        words = ["--env", env, "--preset", "paper", "--emulator", "plain", "--out", str(tmp_path / "none")]
        with pytest.raises(Refusal, match=r"^emulator = plain is for Atari games, by their ids; (jax/)?CartPole-v1 is none$"):
            command(["train", "dqn", *words])
        assert not (tmp_path / "none").exists()
    sizes = {"total-timesteps": 40, "learning-starts": 20, "buffer-size": 40, "features": 8, "batch-size": 2, "log-every": 40}
    words = [word for name, size in sizes.items() for word in (f"--{name}", str(size))]
    assert (
        command(["train", "dqn", "--env", "Pong", *words, "--emulator", "plain", "--no-tensorboard", "--out", str(tmp_path / "run")]) == 0
    )
    assert json.loads((tmp_path / "run" / "env.json").read_text()) == other
    assert command(["resume", str(tmp_path / "run"), "--total-timesteps", "50"]) == 0  # its first game is a function of seed and actions
    model = iterq.load(tmp_path / "run")
    assert isinstance(model.env.make(), PlainAtari)
    assert isinstance(model.playing("first").env.make(), PlainAtari)


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
