"""Base algorithms and networks of one's own: what does not go together is refused before anything is written."""

import contextlib
import re

import flax.linen as nn
import gymnasium
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gymnasium import spaces

import iterq
from iterq.bellman import dqn
from iterq.errors import Refusal
from iterq.fleet import fleet
from iterq.networks import MLP, Linear
from iterq.presets import configure
from tests.test_train_cli import command

pytestmark = pytest.mark.medium

SMALL = {"features": (8,), "batch_size": 4, "learning_starts": 20, "buffer_size": 60, "eval_every": 0, "log_every": 20}

of_a_batch = dqn._replace(loss=lambda Q, y, t, key: Q(t.obs) - y)
of_the_state = dqn._replace(values=lambda Q, obs, key: Q(obs).max(keepdims=True))


class Critics(nn.Module):
    """Three linear critics of (observation, action)."""

    @nn.compact
    def __call__(self, obs, action, key):
        return Linear(3)(jnp.concatenate([obs, action]))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("iterq.bellman:iqn", "bellman = iterq.bellman:iqn and this network do not go together: "),
        ("iterq.bellman:c51", "bellman = iterq.bellman:c51 and this network do not go together: "),
        ("tests.test_fitting:of_a_batch", "gives a loss of shape (2,) for a single transition; it must be one number"),
        ("tests.test_fitting:of_the_state", "reads values of shape (1,) from this network; one for every action is (2,)"),
    ],
)
def test_a_bellman_that_needs_another_head_is_refused_in_one_line_and_leaves_nothing(name, said, tmp_path):
    with pytest.raises(Refusal, match=re.escape(said)) as refused:
        command("train", "i-dqn", "--env", "jax/Chain", "--bellman", name, "--out", tmp_path / "run")
    assert "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("K", [1, 3])
def test_a_network_with_too_many_outputs_is_refused(K):
    with pytest.raises(Refusal, match=re.escape("reads values of shape (3,) from this network; one for every action is (2,)")):
        iterq.make("i-dqn", "jax/Chain", network={"torso": MLP((8,)), "head": nn.Dense(3)}, K=K)
    with pytest.raises(Refusal, match="bellman = dqn and this network do not go together: "):
        iterq.make("i-dqn", "jax/Chain", network={"torso": nn.Conv(4, (3, 3)), "head": nn.Dense(2)}, K=K)


def test_a_bellman_goes_with_a_network_that_fits_it():
    quantiles = {"torso": MLP((8,)), "head": nn.Sequential([Linear(2 * 200), lambda x: x.reshape(2, 200)])}
    model = iterq.make("i-dqn", "jax/Chain", network=quantiles, bellman="iterq.bellman:qr_dqn", K=2, **SMALL).learn(40)
    assert model.agent.diagnose
    assert model.predict(np.eye(5, dtype=np.float32), deterministic=True)[0].shape == (5,)


def test_critics_of_ones_own():
    with pytest.raises(Refusal, match="bellman = soft and this network do not go together: "):
        iterq.make("sac", "Pendulum-v1", network={"critics": nn.Conv(4, (3, 3))})
    assert iterq.make("i-sac", "Pendulum-v1", network={"critics": Critics()}, K=2, **SMALL).learn(30).summary.finished


@pytest.mark.parametrize(
    ("algorithm", "bellman", "said"),
    [
        ("sac", "my:variant", "sac learns pairs of critics, whose base algorithm is soft; my:variant goes with dqn, i-dqn and their like"),
        ("i-droq", "dqn", "i-droq learns pairs of critics, whose base algorithm is soft; dqn goes with"),
        ("dqn", "soft", "bellman = soft is the base algorithm of sac, i-sac, droq and i-droq; dqn has no critics for it"),
    ],
)
def test_a_base_algorithm_of_the_other_kind_is_refused(algorithm, bellman, said, tmp_path):
    env = "Pendulum-v1" if "dqn" not in algorithm else "CartPole-v1"
    with pytest.raises(Refusal, match=re.escape(said)):
        configure(algorithm, bellman=bellman)
    with pytest.raises(Refusal, match=re.escape(said)):
        command("train", algorithm, "--env", env, "--bellman", bellman, "--out", tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
    assert configure("dqn", bellman="qr-dqn", quantiles=7).quantiles == 7


class Shown(gymnasium.Env):
    """Shows one picture, for ever."""

    action_space = spaces.Discrete(2)

    def __init__(self, shape, dtype=np.uint8):
        self.observation_space = spaces.Box(0, 255, shape, dtype)
        self.picture = np.arange(np.prod(shape)).reshape(shape).astype(dtype)

    def reset(self, *, seed=None, options=None):
        return self.picture, {}

    def step(self, action):
        return self.picture, 1.0, False, False, {}


@pytest.mark.parametrize(
    ("shape", "stack", "seen"),
    [
        ((6, 5, 3), 1, (6, 5, 3)),
        ((6, 5), 1, (6, 5, 1)),
        ((6, 5), 4, (6, 5, 4)),
        ((6, 5, 3), 2, (180,)),  # no image has four axes
        ((6,), 1, (6,)),
        ((6,), 4, (24,)),
        ((2, 3, 4, 5), 1, (120,)),
    ],
)
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_an_own_network_sees_images_as_images_and_vectors_as_vectors(shape, stack, seen, dtype):
    def head(x):
        assert (x.shape, x.dtype) == (seen, jnp.float32)
        return x.reshape(-1)[-2:]

    env = Shown(shape, dtype)
    model = iterq.make("dqn", env, network={"head": nn.Sequential([head])}, frame_stack=stack, **SMALL)
    obs = env.picture if stack == 1 else np.stack([env.picture] * stack, -1)
    values = model.agent.window.Q(model.learner().chain.online)(obs)
    np.testing.assert_allclose(values, obs.reshape(-1)[-2:] / (255 if dtype == np.uint8 else 1), rtol=1e-6)


def test_a_convolutional_network_of_ones_own_trains_on_colour_images_and_is_kept(tmp_path):
    class Torso(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.relu(nn.Conv(4, (3, 3), strides=2)(x)).reshape(-1)

    own = {"network": {"torso": Torso(), "head": nn.Dense(2)}}
    env = Shown((6, 5, 3))
    model = iterq.make("i-dqn", env, K=2, **own, **SMALL).learn(40)
    assert model.learner().chain.online["torso"]["Conv_0"]["kernel"].shape == (3, 3, 3, 4)
    loaded = iterq.load(model.save(tmp_path / "model"), **own)
    assert loaded.predict(env.picture, deterministic=True)[0] == model.predict(env.picture, deterministic=True)[0]


@pytest.mark.parametrize(("algorithm", "env"), [("dqn", "jax/Chain"), ("dqn", "CartPole-v1"), ("sac", "Pendulum-v1")])
def test_the_learning_rate_of_an_own_optimiser_is_not_made_up(algorithm, env):
    for told, given in ((None, {"optimiser": optax.sgd(1e-3)}), (0.25, {"learning_rate": 0.25})):
        model = iterq.make(algorithm, env, **given, **SMALL)
        with contextlib.closing(fleet(model.agent, model.env, (0,))) as members:
            assert members.metrics()[0].get("train/learning_rate") == told
