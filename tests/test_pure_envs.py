"""The pure environments against Gymnasium, against brute force, and against values written by hand."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from iterq.envs import car_on_hill as hill
from iterq.envs.base import PureEnv, Spec, spec
from iterq.envs.pure import MAX_ANGLE, MAX_POSITION, PURE, SMALL, car_on_hill, cart_pole, catch, chain, chain_values

pytestmark = pytest.mark.medium

KEY = jax.random.key(0)


def keys(n, seed=0):
    return jax.random.split(jax.random.key(seed), n)


def steps(env):
    """`env.step` on a batch of states and actions, the key shared."""
    return jax.jit(jax.vmap(env.step, in_axes=(0, 0, None)))


def test_cart_pole_steps_as_gymnasium_does():
    rng = np.random.default_rng(0)
    states = (rng.uniform(-1, 1, (2000, 4)) * [2.5, 3, 0.25, 3]).astype(np.float32)
    actions = rng.integers(0, 2, 2000)
    reference = gymnasium.make("CartPole-v1").unwrapped
    reference.reset(seed=0)
    expected, rewards, ends = [], [], []
    for state, action in zip(states, actions, strict=True):
        reference.state, reference.steps_beyond_terminated = state.astype(np.float64), None
        _, reward, terminated, _, _ = reference.step(action)
        expected.append(reference.state)
        rewards.append(reward)
        ends.append(terminated)
    expected, ends = np.array(expected), np.array(ends)
    new, reward, terminated = map(np.asarray, steps(cart_pole())(states, actions, KEY))
    np.testing.assert_allclose(new, expected, rtol=1e-6, atol=1e-6)  # atol: a velocity can cancel its change
    np.testing.assert_array_equal(reward, rewards)
    clear = np.abs(np.abs(expected[:, [0, 2]]) - [MAX_POSITION, MAX_ANGLE]).min(1) > 1e-6
    assert clear.sum() > 1900
    np.testing.assert_array_equal(terminated[clear], ends[clear])
    for i, bound in ((0, MAX_POSITION), (2, MAX_ANGLE)):  # each of the four ways to end is among the states
        assert (new[:, i] > bound).any()
        assert (new[:, i] < -bound).any()
    assert 0 < ends.mean() < 1


def test_cart_pole_starts_uniformly_in_its_box_and_has_gymnasiums_horizon():
    start = np.asarray(jax.vmap(cart_pole().reset)(keys(4000)))
    assert start.shape == (4000, 4)
    assert (np.abs(start) <= 0.05).all()
    assert np.abs(start.mean(0)).max() < 0.002  # four standard errors are 0.0018
    assert np.abs(start.std(0) - 0.05 / 3**0.5).max() < 0.001
    made = gymnasium.spec("CartPole-v1")
    assert cart_pole().horizon == made.max_episode_steps == 500


def play_catch(rows, columns, aim):
    """Boards (64, rows, rows, columns), rewards and ends (64, rows - 1) of episodes whose paddle heads for `aim(ball's column)`."""
    env = catch(rows, columns)

    def episode(key):
        state = env.reset(key)
        target = aim(jnp.argmax(env.observe(state)[0]))

        def step(state, _):
            paddle = jnp.argmax(env.observe(state)[-1])
            state, reward, terminated = env.step(state, 1 + jnp.sign(target - paddle), key)
            return state, (env.observe(state), reward, terminated)

        _, (boards, rewards, ends) = jax.lax.scan(step, state, None, rows - 1)
        return jnp.concatenate([env.observe(state)[None], boards]), rewards, ends

    return map(np.asarray, jax.jit(jax.vmap(episode))(keys(64)))


@pytest.mark.parametrize(("rows", "columns"), [(10, 5), (6, 7)])
def test_catch_pays_one_for_a_caught_ball_and_minus_one_for_a_missed_one(rows, columns):
    for aim, payoff in ((lambda ball: ball, 1), (lambda ball: jnp.where(ball == 0, columns - 1, 0), -1)):
        boards, rewards, ends = play_catch(rows, columns, aim)
        balls = boards[:, 0, 0].argmax(-1)
        assert set(balls) == set(range(columns))
        assert (boards[:, 0, -1].argmax(-1) == columns // 2).all()
        np.testing.assert_array_equal(rewards[:, -1], payoff)  # on the last step,
        assert (rewards[:, :-1] == 0).all()  # and nothing before
        assert ends[:, -1].all()
        assert not ends[:, :-1].any()
        for t in range(rows - 1):
            np.testing.assert_array_equal(boards[:, t, t], np.eye(columns)[balls])
            assert (boards[:, t].sum((1, 2)) == 2).all()
            assert (boards[:, t, -1].sum(1) == 1).all()
        assert (boards[:, -1].sum((1, 2)) == (1 if payoff == 1 else 2)).all()


def test_the_paddle_of_catch_stays_on_the_board():
    env = catch()
    for action, end in ((0, 0), (2, 4)):
        state = env.reset(KEY)
        for expected in (2 + (action - 1), end, end):
            state, _, _ = env.step(state, jnp.asarray(action), KEY)
            assert int(state.paddle) == expected
    state, _, _ = env.step(env.reset(KEY), jnp.asarray(1), KEY)
    assert int(state.paddle) == 2


@pytest.mark.parametrize("length", [3, 4, 5, 8, 20])
def test_chain_values_are_those_of_value_iteration(length):
    s = np.repeat(np.arange(1, length - 1), 2)
    a = np.tile([0, 1], length - 2)
    new, reward, terminated = map(np.asarray, steps(chain(length))(s, a, KEY))
    for gamma in (0.0, 0.2, 0.5, 0.9, 0.99, 1.0):
        Q = np.zeros((length, 2))
        for _ in range(2 * length):  # a path to an end is shorter
            Q[s, a] = reward + gamma * ~terminated * Q[new].max(1)
        np.testing.assert_allclose(chain_values(length, gamma), Q, rtol=1e-6)


def test_chain_values_by_hand():
    expected = [[0, 0], [0.1, 0.81], [0.729, 0.9], [0.81, 1], [0, 0]]
    np.testing.assert_allclose(chain_values(5, 0.9), expected, rtol=1e-12)
    expected = [[0, 0], [0.1, 0.04], [0.02, 0.2], [0.04, 1], [0, 0]]  # so impatient that the small reward is the better one at 1
    np.testing.assert_allclose(chain_values(5, 0.2), expected, rtol=1e-12)


def test_a_chain_is_walked_to_its_ends_and_slips():
    env, state = chain(), chain().reset(KEY)
    for expected in ((2, 0, False), (3, 0, False), (4, 1, True)):
        state, reward, terminated = env.step(state, jnp.asarray(1), KEY)
        assert (int(state), float(reward), bool(terminated)) == expected
    state, reward, terminated = env.step(env.reset(KEY), jnp.asarray(0), KEY)
    assert (int(state), float(reward), bool(terminated)) == (0, float(np.float32(SMALL)), True)
    slippery = jax.jit(jax.vmap(chain(slip=0.3).step, in_axes=(None, None, 0)))
    state, _, _ = slippery(jnp.int32(2), jnp.asarray(1), keys(4000))
    assert abs(float((state == 1).mean()) - 0.3) < 0.03
    assert set(np.asarray(state).tolist()) == {1, 3}


def test_car_on_hill_is_the_car_on_the_hill():
    rng = np.random.default_rng(0)
    states = jnp.asarray(rng.uniform(-1, 1, (500, 2)) * [1, 3], jnp.float32)
    actions = jnp.asarray(rng.integers(0, 2, 500))
    new, reward, terminated = steps(car_on_hill())(states, actions, KEY)
    expected = jax.jit(hill.step)(states, actions)
    np.testing.assert_allclose(new, expected.state, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(reward, expected.reward)
    np.testing.assert_array_equal(terminated, expected.terminated)
    assert set(np.asarray(reward).tolist()) == {-1, 0, 1}
    np.testing.assert_array_equal(car_on_hill().reset(KEY), np.float32([-0.5, 0]))


@pytest.mark.parametrize("name", PURE)
def test_every_environment_is_mapped_and_scanned(name):
    env = PURE[name]()
    assert isinstance(env, PureEnv)
    assert env.name == name

    def episodes(key):
        def step(state, key):
            act, move, again = jax.random.split(key, 3)
            state, reward, terminated = env.step(state, jax.random.randint(act, (), 0, env.actions), move)
            observation = env.observe(state)
            state = jax.tree.map(lambda new, old: jnp.where(terminated, new, old), env.reset(again), state)
            return state, (observation, reward, terminated)

        first, rest = jax.random.split(key)
        return jax.lax.scan(step, env.reset(first), jax.random.split(rest, 60))[1]

    observation, reward, terminated = jax.jit(jax.vmap(episodes))(keys(3))
    assert (reward.shape, reward.dtype) == ((3, 60), jnp.float32)
    assert (terminated.shape, terminated.dtype) == ((3, 60), jnp.bool_)
    assert (observation.shape[2:], observation.dtype.name) == spec(env)[1:3]
    assert bool(jnp.isfinite(observation).all())
    if name != "jax/CarOnHill":  # which a random force seldom ends
        assert bool(terminated.any(1).all())


def test_specs():
    assert spec(cart_pole()) == Spec("jax/CartPole-v1", (4,), "float32", 2, None)
    assert spec(catch()) == Spec("jax/Catch", (10, 5), "float32", 3, None)
    assert spec(catch(4, 3)).shape == (4, 3)
    assert spec(chain(7)) == Spec("jax/Chain", (7,), "float32", 2, None)
    assert spec(car_on_hill()) == Spec("jax/CarOnHill", (2,), "float32", 2, None)
    indices = chain()._replace(observe=lambda state: state)
    assert spec(indices, states=5) == Spec("jax/Chain", (), "int32", 2, 5)
    with pytest.raises(ValueError, match="int32 scalar"):
        spec(chain(), states=5)


def test_sizes_without_a_game_are_refused():
    with pytest.raises(ValueError, match="between its ends"):
        chain(2)
    with pytest.raises(ValueError, match="between its ends"):
        chain_values(2, 0.9)
    with pytest.raises(ValueError, match="cannot fall"):
        catch(1, 5)
