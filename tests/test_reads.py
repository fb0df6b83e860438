"""An option that is accepted is read: another value of it makes other parameters. One that is refused changes nothing."""

import contextlib
import dataclasses
import functools

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from iterq.api import Model
from iterq.config import FIELDS
from iterq.envs.base import PureEnv
from iterq.identity import FREE
from iterq.presets import configure
from iterq.reads import unread

pytestmark = pytest.mark.slow

STEPS = 60
# Every option has its turn: the replay wraps, the window syncs and shifts, episodes end, actions are random and greedy.
SMALL = {"features": (12,), "batch_size": 3, "buffer_size": 30, "learning_starts": 10, "eval_every": 0}
VALUES = {"K": 3, "learning_rate": 0.01, "T": 14, "D": 4, "G": 2, "epsilon_decay": 20, "epsilon_end": 0.3, **SMALL}
SETTINGS = {
    "i-dqn": VALUES,
    "c51": {**VALUES, "K": 1, "atoms": 5, "v_min": -4.0, "v_max": 4.0},
    "qr-dqn": {**VALUES, "K": 1, "quantiles": 3},
    "iqn": {**VALUES, "K": 1, "quantiles": 3},
    "i-sac": {"K": 3, **SMALL},
    "i-droq": {"K": 3, "utd": 2, "dropout": 0.3, **SMALL},
}
ALL_READ = {
    "seeds": (1,),
    "K": 2,
    "G": 3,
    "tau": 0.3,
    "features": (5,),
    "learning_rate": 0.1,
    "adam_epsilon": 0.1,
    "batch_size": 4,
    "gamma": 0.5,
    "n_step": 2,
    "clip_rewards": True,
    "buffer_size": 35,
    "learning_starts": 16,
}
OTHERS = {
    "i-dqn": dict(
        **ALL_READ,
        reduce="sum",
        bellman="double-dqn",
        T=20,
        D=7,
        shared=False,
        frozen=False,
        consecutive=False,
        acting="last",
        shifts="early",
        frame_stack=2,
        prioritised=True,
        epsilon_end=0.6,
        epsilon_decay=40,
        torso="nature-valid",
    ),
    "c51": {"atoms": 6, "v_min": -3.0, "v_max": 3.0},
    "qr-dqn": {"quantiles": 4, "kappa": 0.1},
    "iqn": {"quantiles": 4, "kappa": 0.1},
    "i-sac": dict(**ALL_READ, reduce="mean", layer_norm=True, actor_reads="mean", actor_member="last"),
    "i-droq": {"utd": 3, "dropout": 0.2, "dropout_masks": "shared"},
}
WITH = {"torso": {"torso": "nature"}}  # what an option needs for both of its values
OF_ENVIRONMENTS = {"env", "emulator"}  # tested where environments are
CASES = [(algorithm, name) for algorithm, others in OTHERS.items() for name in others]


def walk(shape):
    """Right or left, from the middle of nine places; an end pays 3 or -3."""

    def observe(state):
        seen = jax.nn.one_hot(state, 9)
        return seen if shape is None else jnp.broadcast_to(255 * (state % 2), shape).astype(jnp.uint8)

    def step(state, action, key):
        state = state + 2 * action - 1
        return state, 3.0 * (state == 8) - 3.0 * (state == 0) + 0.1, (state == 0) | (state == 8)

    return PureEnv("Walk", 2, 20, lambda key: jnp.int32(4) + jax.random.randint(key, (), -1, 2), step, observe)


class Walk(gymnasium.Env):
    """Any way, on a line; where one is, times three, is what it pays."""

    observation_space, action_space = spaces.Box(-99, 99, (1,), np.float32), spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.t = self.np_random.uniform(-1, 1, 1), 0
        return self.at, {}

    def step(self, action):
        self.at, self.t = self.at + action, self.t + 1
        return self.at, float(3 * self.at[0]), abs(self.at[0]) > 4, self.t == 9, {}


@functools.cache
def learned(algorithm, *changes):
    """The parameters that a short run ends with, of settings `changes` that the configuration takes even where users may not give them."""
    config = dataclasses.replace(configure(algorithm, "classic", **SETTINGS[algorithm]), **dict(changes))
    env = Walk if config.bellman == "soft" else walk((36, 36) if dict(changes).get("torso") else None)
    with contextlib.closing(Model(config, env)) as model:
        model.learn(STEPS)
        learner = model.learner(config.seeds[0])
    assert int(learner.updates) > 5
    leaves = jax.tree.leaves((learner.chain.online, learner.chain.anchor, learner.policy))
    return b"".join(np.asarray(x).tobytes() for x in leaves)


@pytest.mark.parametrize(("algorithm", "name"), CASES)
def test_another_value_of_an_option_makes_other_parameters(algorithm, name):
    before = WITH.get(name, {})
    assert learned(algorithm, *before.items()) != learned(algorithm, *{**before, name: OTHERS[algorithm][name]}.items())


def test_every_option_is_read_refused_free_or_the_environments():
    for algorithms in (("i-dqn", "c51", "qr-dqn"), ("i-sac", "i-droq")):
        tested = {name for algorithm in algorithms for name in OTHERS[algorithm]} | FREE | OF_ENVIRONMENTS
        refused = set.intersection(*(unread(configure(algorithm).bellman) for algorithm in algorithms))
        assert tested | refused | {"bellman"} == set(FIELDS)
        assert not refused & (tested - FREE - OF_ENVIRONMENTS)


@pytest.mark.parametrize(
    ("algorithm", "fields"),
    [
        ("i-dqn", {"atoms": 7, "v_min": -1.0, "v_max": 1.0, "quantiles": 5, "kappa": 0.5}),
        ("c51", {"utd": 3, "dropout": 0.5, "layer_norm": True, "dropout_masks": "shared", "actor_reads": "mean", "actor_member": "last"}),
        ("i-sac", {"T": 7, "D": 2, "acting": "last", "epsilon_end": 0.7, "epsilon_decay": 5, "torso": "nature", "eval_policy": "last"}),
    ],
)
def test_what_is_refused_would_have_changed_nothing(algorithm, fields):
    assert set(fields) <= unread(configure(algorithm).bellman)
    assert learned(algorithm, *fields.items()) == learned(algorithm)
