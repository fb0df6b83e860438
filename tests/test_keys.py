"""Typed keys in what is kept: an environment that carries one, and an optimiser that does."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import iterq
from iterq import checkpoint
from iterq.envs import noted
from iterq.envs.base import PureEnv
from iterq.fleet import fleet
from iterq.keys import bare, typed
from iterq.loop import Session
from iterq.store import Run
from tests.helpers import assert_same

pytestmark = pytest.mark.medium

SMALL = {"features": (8,), "batch_size": 4, "learning_starts": 20, "buffer_size": 60, "eval_every": 50, "eval_episodes": 2}


def dice(impl):
    """Guess the parity of a throw; the state is a key of its own, split at every step."""

    def step(state, action, key):
        state = jax.random.split(state, 1)[0]
        return state, jnp.float32(action == thrown(state) % 2), thrown(state) == 5

    def thrown(state):
        return jax.random.randint(state, (), 0, 6)

    def reset(key):
        return jax.random.key(jax.random.randint(key, (), 0, 1 << 30), impl=impl)

    return PureEnv("Dice", 2, 12, reset, step, lambda state: jax.nn.one_hot(thrown(state), 6))


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_a_run_goes_on_from_a_checkpoint_with_the_keys_of_its_environment(impl, tmp_path):
    env = dice(impl)
    fields = {**SMALL, "seeds": 2, "checkpoint_every": 50, "log_every": 50}
    whole = iterq.make("dqn", env, **fields).learn(160)
    with contextlib.closing(iterq.make("dqn", env, **fields)) as model:
        model.learn(90, out=tmp_path / "run")
    run = Run.open(tmp_path / "run", noted(env, model.spec))
    with contextlib.closing(Session(fleet(model.agent, env, model.config.seeds), model.config, run)) as session:
        assert session.fleet.n == 90
        session.train(160)
        for s in range(2):
            assert_same(session.fleet.state(s), whole.session.fleet.state(s))
    stored = checkpoint.named(whole.session.fleet.state(0))["world.state"]
    assert (stored.dtype, stored.shape) == (np.uint32, (2,) if impl == "threefry2x32" else (4,))


@pytest.mark.parametrize("env", ["jax/Chain", "CartPole-v1"])
def test_a_noisy_optimiser_keeps_its_key(env, tmp_path):
    noisy = {"optimiser": optax.chain(optax.add_noise(0.1, 0.5, key=3), optax.sgd(0.01))}
    fields = {**SMALL, "eval_every": 0, **noisy}
    whole, half = iterq.make("dqn", env, **fields).learn(60), iterq.make("dqn", env, **fields).learn(40)
    path = half.save(tmp_path / "half")
    assert_same(iterq.load(path, **noisy).learner(), half.learner())
    assert_same(half.learn(20).learner(), whole.learner())
    iterq.load(path, env=env, **noisy).learn(30)
    iterq.make("dqn", env, **fields).save(tmp_path / "unborn")


def test_keys_are_words_and_words_are_keys_again():
    tree = {"a": jax.random.split(jax.random.key(1), (2, 3)), "b": [jax.random.key(2, impl="rbg"), jnp.arange(3)], "c": None}
    words = bare(tree)
    assert words["a"].shape == (2, 3, 2)
    assert words["b"][0].shape == (4,)
    assert_same(bare(words), words)
    shapes = jax.eval_shape(lambda: tree)
    for again in (typed(words, tree), typed(words, shapes)):
        assert jax.tree.map(lambda x: x.dtype, again) == jax.tree.map(lambda x: x.dtype, tree)
        assert_same(bare(again), words)
