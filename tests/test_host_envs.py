"""Gymnasium environments as agents meet them: when they are reset, what they report, and that they come back to where they were."""

import copy
import os
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from iterq.envs import resolve
from iterq.envs.host import host_env, is_body
from iterq.envs.playing import Stage
from iterq.envs.stepping import EVALUATION, TRAINING, EnvironmentFailure, HostEnvs, episode_seed
from iterq.errors import Refusal

pytestmark = pytest.mark.medium


class Script(gymnasium.Env):
    """Episodes of 3 steps, which terminate, and of 2 steps, which are truncated, in turn. A frame is 10 × episode + step."""

    def __init__(self, observations=None, actions=None):
        self.observation_space = observations or spaces.Box(-1e3, 1e3, (2,), np.float32)
        self.action_space = actions or spaces.Discrete(2)
        self.episode, self.seeds, self.taken, self.closed = -1, [], [], False

    def frame(self):
        value = 10 * self.episode + self.t
        space = self.observation_space
        return value if isinstance(space, spaces.Discrete) else np.full(space.shape, value, space.dtype)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.episode, self.t = self.episode + 1, 0
        return self.frame(), {}

    def step(self, action):
        self.taken.append(action)
        self.t += 1
        terminated, truncated = (self.t == 3, False) if self.episode % 2 == 0 else (False, self.t == 2)
        return self.frame(), 0.5 * self.t, terminated, truncated, {}

    def close(self):
        self.closed = True


def stepped(env, count, seeds=(7,)):
    """The answers to reset and `count` steps of actions 0, 1, 0, 1 …, and the episodes that ended."""
    group = HostEnvs(host_env(env), seeds, TRAINING)
    answers, ended = [group.reset()], []
    for n in range(1, count + 1):
        answer, episodes = group.step(np.full(len(seeds), n % 2, np.int32), n)
        answers.append(answer)
        ended += episodes
    return group, answers, ended


def test_a_reset_takes_the_step_after_an_episodes_end():
    env = Script()
    group, answers, ended = stepped(env, 8)
    assert [float(a.frame[0, 0]) for a in answers] == [0, 1, 2, 3, 10, 11, 12, 20, 21]
    assert [bool(a.first[0]) for a in answers] == [True, False, False, False, True, False, False, True, False]
    assert [bool(a.terminated[0]) for a in answers] == [False, False, False, True, False, False, False, False, False]
    assert [float(a.reward[0]) for a in answers] == [0, 0.5, 1, 1.5, 0, 0.5, 1, 0, 0.5]
    # The action of a step that resets is not the environment's.
    assert env.taken == [1, 0, 1, 1, 0, 0]
    assert [tuple(e) for e in ended] == [(0, 3, 3.0, 3), (0, 6, 1.5, 2)]
    assert env.seeds == [episode_seed(7, TRAINING, i) for i in range(3)]
    assert answers[0].reward.dtype == np.float32
    group.close()
    assert not env.closed  # it is the user's


def test_environments_that_were_made_here_are_closed():
    group, _, _ = stepped(Script, 2, seeds=(1, 2))
    group.close()
    assert all(env.closed for env in group.envs)
    group, _, _ = stepped(Script(), 2, seeds=(1, 2))
    group.close()
    assert [env.closed for env in group.envs] == [False, True]


def test_agents_of_a_group_are_reset_each_in_its_own_time():
    class Long(Script):
        made = 0

        def __init__(self):
            super().__init__()
            self.length, Long.made = 2 + Long.made, Long.made + 1

        def step(self, action):
            frame, reward, _, _, info = super().step(action)
            return frame, reward, self.t == self.length, False, info

    probe_is_first = Long  # host_env looks at one instance, so the agents get lengths 3 and 4
    _, answers, ended = stepped(probe_is_first, 10, seeds=(1, 2))
    assert [[bool(x) for x in a.first] for a in answers[:6]] == [[True] * 2, *[[False] * 2] * 3, [True, False], [False, True]]
    assert [(e.agent, e.step, e.length) for e in ended] == [(0, 3, 3), (1, 4, 4), (0, 7, 3), (1, 9, 4)]


def test_episode_seeds_differ_between_agents_purposes_and_episodes():
    found = {episode_seed(seed, purpose, i) for seed in range(20) for purpose in (TRAINING, EVALUATION) for i in range(20)}
    assert len(found) == 800
    assert max(found) < 2**31


def test_actions_start_where_the_space_says():
    env = Script(actions=spaces.Discrete(2, start=5))
    kind = host_env(env)
    assert (kind.spec.actions, kind.spec.first_action) == (2, 5)
    stepped(env, 3)
    assert env.taken == [6, 5, 6]


@pytest.mark.parametrize(
    ("space", "shape", "dtype", "states"),
    [
        (spaces.Discrete(40), (), "int32", 40),
        (spaces.Box(0, 255, (3, 2), np.uint8), (3, 2), "uint8", None),
        (spaces.Box(-1, 1, (3,), np.float64), (3,), "float32", None),
        (spaces.Box(-1, 1, (), np.float32), (), "float32", None),
        (spaces.Box(-100, 100, (3,), np.int8), (3,), "int32", None),
        (spaces.Box(-100, 100, (3,), np.int64), (3,), "int32", None),
        (spaces.MultiDiscrete([30, 30]), (2,), "int32", None),
        (spaces.MultiBinary(4), (4,), "int32", None),
    ],
)
def test_observations_keep_their_values(space, shape, dtype, states):
    spec = host_env(Script(space)).spec
    assert (spec.shape, spec.dtype, spec.states) == (shape, dtype, states)
    _, answers, _ = stepped(Script(space), 8)
    assert answers[0].frame.shape == (1, *shape)
    assert answers[0].frame.dtype == dtype
    assert [int(a.frame.flat[0]) for a in answers] == [0, 1, 2, 3, 10, 11, 12, 20, 21]


def test_negative_bytes_are_not_wrapped():
    class Below(Script):
        def frame(self):
            return -super().frame()

    _, answers, _ = stepped(Below(spaces.Box(-100, 100, (1,), np.int8)), 3)
    assert [int(a.frame[0, 0]) for a in answers] == [0, -1, -2, -3]


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Dict(a=spaces.Discrete(2)), r"observations Dict.*FlattenObservation"),
        (spaces.Tuple([spaces.Discrete(2)]), r"observations Tuple.*FlattenObservation"),
        (spaces.Text(5), "observations Text, which are not supported$"),
        (spaces.Discrete(3, start=1), "only those that start at 0"),
    ],
)
def test_observations_of_another_kind_are_refused_by_name(space, message):
    with pytest.raises(Refusal, match=f"^Script has {message}" if "start" not in message else message):
        host_env(Script(space))


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Box(-np.inf, 1, (2,)), "only bounded ones are supported"),
        (spaces.Box(-1, 1, (2, 2)), "supported are discrete ones and bounded vectors"),
        (spaces.Box(0, 9, (2,), np.int32), "supported are discrete ones and bounded vectors"),
        (spaces.MultiDiscrete([2, 2]), "supported are discrete ones and bounded vectors"),
        (spaces.MultiBinary(2), "supported are discrete ones and bounded vectors"),
    ],
)
def test_actions_of_another_kind_are_refused_by_name(space, message):
    with pytest.raises(Refusal, match=f"^Script has actions {type(space).__name__}.*{message}"):
        host_env(Script(actions=space))


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("CartPol-v1", "cannot make the environment 'CartPol-v1'"),
        ("CartPole-v99", "CartPole-v99"),
        ("", "cannot make the environment ''"),
        ("no_such_module:Thing-v0", "cannot make the environment 'no_such_module:Thing-v0'.*no_such_module"),
        ("json:Thing-v0", "cannot make the environment 'json:Thing-v0'"),
        ("jax/CartPol-v1", "unknown environment 'jax/CartPol-v1', did you mean 'jax/CartPole-v1'"),
        ("jax/", "unknown environment 'jax/'"),
        (3, "3 is no environment"),
        (dict, r"dict\(\) made a dict, not a gymnasium.Env"),
    ],
)
def test_what_is_no_environment_is_refused(env, message):
    with pytest.raises(Refusal, match=message):
        resolve(env)


def test_a_module_is_imported_for_its_ids(tmp_path, monkeypatch):
    (tmp_path / "iterq_worlds.py").write_text(
        "import gymnasium\nfrom gymnasium.envs.classic_control import CartPoleEnv\ngymnasium.register('Poles-v0', CartPoleEnv)\n"
    )
    (tmp_path / "iterq_typo.py").write_text("import gymnasium\ngymnasium.registr('Poles-v1')\n")
    monkeypatch.syspath_prepend(tmp_path)
    kind, spec = resolve("iterq_worlds:Poles-v0")
    assert spec.name == "iterq_worlds:Poles-v0"
    assert spec.shape == (4,)
    assert kind.make().reset(seed=0)[0].shape == (4,)
    with pytest.raises(Refusal, match=r"cannot make the environment 'iterq_typo:Poles-v1'.*registr"):
        resolve("iterq_typo:Poles-v1")


def test_an_environment_that_answers_nonsense_is_named_with_step_and_seed():
    class Mute(Script):
        def step(self, action):
            return super().step(action)[0], None, False, False, {}

    class Grows(Script):
        def step(self, action):
            return np.zeros(5), 0.0, False, False, {}

    for kind in (Mute, Grows):
        with pytest.raises(EnvironmentFailure, match=rf"^{kind.__name__} raised \w+ at step 1 of seed 7: "):
            stepped(kind(), 3)
        with pytest.raises(Refusal, match=rf"^{kind.__name__} raised \w+ in evaluation episode 0 of seed 7: "):
            list(Stage(host_env(kind), (7,), 1).play(1, lambda obs, t: np.zeros((1, 1), int)))


def test_a_step_that_fails_has_not_happened_to_any_agent():
    class Fails(Script):
        def step(self, action):
            if len(self.taken) == 4 and action:
                raise RuntimeError("out of fuel")
            return super().step(action)

    group = HostEnvs(host_env(Fails), (1, 2), TRAINING)
    group.reset()
    for n in range(1, 6):
        group.step(np.zeros(2, np.int32), n)
    before = copy.deepcopy([group.journal(j) for j in range(2)])
    with pytest.raises(EnvironmentFailure, match="Fails raised RuntimeError at step 6 of seed 2: out of fuel"):
        group.step(np.array([0, 1], np.int32), 6)
    after = [group.journal(j) for j in range(2)]
    for x, y in zip(before, after, strict=True):
        for name in x:
            np.testing.assert_array_equal(x[name], y[name])


def journals_equal(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name])


# Box2D's bindings warn when they are loaded, and crash where that is an error.
@pytest.mark.filterwarnings("ignore:builtin type .* has no __module__ attribute:DeprecationWarning")
@pytest.mark.parametrize("name", ["CartPole-v1", "Acrobot-v1", "FrozenLake-v1", "LunarLander-v3"])
@pytest.mark.parametrize("where", ["the middle", "an end", "a beginning"])
def test_an_environment_comes_back_exactly_to_where_it_was(name, where):
    seeds, rng = (3, 4), np.random.default_rng(0)
    kind = host_env(name)
    group = HostEnvs(kind, seeds, TRAINING)
    group.reset()
    # Acrobot's episodes end after 500 steps at the latest.
    finished, n = 0, 0
    while True:
        n += 1
        answer, ended = group.step(rng.integers(0, kind.spec.actions, 2).astype(np.int32), n)
        finished += any(episode.agent == 0 for episode in ended)
        if finished >= 2 and (
            (where == "the middle" and len(group.actions[0]) == 4 and not group.over[0])
            or (where == "an end" and group.over[0])
            or (where == "a beginning" and answer.first[0])
        ):
            break
    again = HostEnvs(kind, seeds, TRAINING)
    for j in range(2):
        again.restore(j, copy.deepcopy(group.journal(j)))
        journals_equal(again.journal(j), group.journal(j))
    # From there both are the same environment, over the ends of further episodes.
    for m in range(n + 1, n + 301):
        actions = rng.integers(0, kind.spec.actions, 2).astype(np.int32)
        (answer, ended), (answer_again, ended_again) = group.step(actions, m), again.step(actions, m)
        for x, y in zip(answer, answer_again, strict=True):
            np.testing.assert_array_equal(x, y)
        assert ended == ended_again
    group.close()
    again.close()


def test_an_environment_with_a_will_of_its_own_is_not_restored():
    # Its frames count the episodes of the instance, not those of the seed.
    group, _, _ = stepped(Script(), 5)
    with pytest.raises(Refusal, match=r"^Script does not repeat an episode from its seed and actions"):
        HostEnvs(host_env(Script()), (7,), TRAINING).restore(0, group.journal(0))


def test_evaluation_plays_the_same_episodes_every_time():
    kind, seen = host_env("CartPole-v1"), []

    def choose(obs, t):
        seen.append(obs.shape)
        return np.full(obs.shape[:2], t % 2)

    stage = Stage(kind, (0, 1), 3)
    first = list(stage.play(1, choose))
    assert first == list(stage.play(1, choose))
    assert [j for j, _, _ in first] == [0, 0, 0, 1, 1, 1]
    assert all(total == length for _, total, length in first)
    assert len({length for _, _, length in first}) > 1
    assert set(seen) == {(2, 3, 4)}
    stacked = list(stage.play(4, lambda obs, t: np.full(obs.shape[:2], t % 2)))
    assert stacked == first


def test_evaluation_plays_the_episodes_of_the_numbers_that_it_is_given():
    made = []

    class Seen(Script):
        def __init__(self):
            super().__init__()
            made.append(self)

    stage = Stage(host_env(Seen), (5, 6), 2)
    for first in (0, 400, 400):
        made.clear()
        assert len(list(stage.play(1, lambda obs, t: np.zeros(obs.shape[:2], int), first))) == 4
        expected = [[episode_seed(seed, EVALUATION, number)] for seed in (5, 6) for number in (first, first + 1)]
        assert [env.seeds for env in made] == expected


def test_evaluation_names_the_environment_that_raises_and_closes_them_all():
    made = []

    class Fails(Script):
        def __init__(self):
            super().__init__()
            made.append(self)

        def step(self, action):
            raise RuntimeError("out of fuel")

    kind = host_env(Fails)
    with pytest.raises(Refusal, match="Fails raised RuntimeError in evaluation episode 0 of seed 5: out of fuel"):
        list(Stage(kind, (5,), 2).play(1, lambda obs, t: np.zeros((1, 2), int)))
    assert len(made) == 3
    assert all(env.closed for env in made)


def test_copies_of_an_object_are_environments_of_their_own():
    env = Script()
    kind = host_env(env)
    one, two = kind.make(), kind.make()
    assert one is env
    assert two is not env
    one.reset(seed=0)
    one.step(1)
    assert two.taken == []


def test_an_object_that_cannot_be_copied_is_refused_with_advice():
    env = Script()
    env.ticks = (i for i in range(3))
    kind = host_env(env)
    assert kind.make() is env
    with pytest.raises(Refusal, match=r"Script cannot be copied for a second agent or for evaluation .*pass a function that makes it"):
        kind.make()


BASE_INSTALL = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

ABSENT = {"mujoco", "Box2D", "ale_py", "cv2", "pygame", "imageio", "imageio_ffmpeg", "matplotlib", "tensorboard", "wandb"}
sys.meta_path.insert(0, Absent())
import iterq

model = iterq.make("dqn", env="CartPole-v1", learning_starts=20, buffer_size=100, batch_size=4, eval_every=0)
model.learn(60, out=sys.argv[1])
assert int(model.learner().updates) == 20
assert not ABSENT & set(sys.modules)
model.close()
"""


def test_a_base_install_trains_on_gymnasium(tmp_path, programs):
    words = [sys.executable, "-c", BASE_INSTALL, str(tmp_path / "run")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, env={**os.environ, **programs})
    assert done.returncode == 0, done.stderr


def test_environments_on_mujoco_are_known_by_their_class():
    assert is_body(gymnasium.make("Hopper-v5"))
    assert not is_body(gymnasium.make("CartPole-v1"))
