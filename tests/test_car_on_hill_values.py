"""The data set, Q* and Q^π against plain computations."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from iterq.envs import car_on_hill as env
from iterq.networks import Network
from iterq.reproduce.car_on_hill import data, optimal

GAMMA, HORIZON = 0.95, 100


@pytest.fixture(scope="module")
def to_go():
    return optimal.StepsToGo(100)


@pytest.fixture(scope="module")
def best(to_go):
    return optimal.optimal_q(data.grid(), GAMMA, HORIZON, to_go)


def exhaustive_v(state, depth):
    """V* by trying every action sequence up to `depth`; None if the best is not decided by then."""
    states, last = np.array([state], np.float32), 0
    for n in range(1, depth + 1):
        outcome = optimal.step_all(np.repeat(states, 2, axis=0), np.tile([0, 1], len(states)))
        if (outcome.reward > 0).any():
            return GAMMA ** (n - 1)
        last, states = n, outcome.state[~outcome.terminated]
        if not len(states):
            return -(GAMMA ** (last - 1))
    return None


def test_the_pruned_search_is_the_exhaustive_one(to_go):
    rng = np.random.default_rng(0)
    states = np.stack([rng.uniform(-1, 1, 150), rng.uniform(-3, 3, 150)], 1).astype(np.float32)
    found = optimal.optimal_v(states, GAMMA, HORIZON, to_go)
    plain = [exhaustive_v(s, depth=13) for s in states]
    decided = [i for i, v in enumerate(plain) if v is not None]
    assert len(decided) > 80
    assert {np.sign(plain[i]) for i in decided} == {-1, 1}
    np.testing.assert_allclose(found[decided], [plain[i] for i in decided], rtol=1e-9)
    # Where the plain search is undecided after 13 steps, the answer must be a later win.
    undecided = [i for i in range(len(states)) if i not in decided]
    assert all(0 < found[i] < GAMMA**12.5 for i in undecided)


def test_the_lower_bound_is_one_and_does_not_depend_on_the_cells(to_go, best):
    coarse = optimal.optimal_q(data.grid(), GAMMA, HORIZON, optimal.StepsToGo(60))
    np.testing.assert_array_equal(best, coarse)
    states = data.grid(9)
    value = optimal.optimal_v(states, GAMMA, HORIZON, to_go)
    steps = np.where(value > 0, 1 + np.log(np.maximum(value, 1e-9)) / np.log(GAMMA), np.inf)
    assert (to_go(states) <= steps + 1e-6).all()


def test_from_the_start_the_car_needs_a_swing(to_go):
    value = optimal.optimal_v(np.array([env.START], np.float32), GAMMA, HORIZON, to_go)[0]
    steps = 1 + np.log(value) / np.log(GAMMA)
    assert abs(steps - round(steps)) < 1e-6
    assert 15 < steps < 25  # Ernst et al.: about two seconds


def test_q_star_satisfies_the_bellman_equation(best, to_go):
    grid = data.grid()
    for a in range(2):
        outcome = optimal.step_all(grid, np.full(len(grid), a))
        ended = outcome.terminated
        np.testing.assert_array_equal(best[ended, a], outcome.reward[ended])
        following = optimal.optimal_q(outcome.state[~ended][:40], GAMMA, HORIZON, to_go).max(1)
        np.testing.assert_allclose(best[~ended, a][:40], GAMMA * following, rtol=1e-9)


def test_no_policy_beats_q_star_and_rollouts_are_plain_rollouts(best):
    # Q(s) = W s: linear policies of all kinds, stacked.
    net, step = Network(lambda key, s: {}, lambda theta, s: theta["w"] @ s), jax.jit(env.step)
    rng = np.random.default_rng(0)
    policies = {"w": jnp.asarray(rng.normal(size=(12, 2, 2)), jnp.float32)}
    values = optimal.greedy_q(net, data.grid(), GAMMA, HORIZON)(policies)
    assert values.shape == (12, 289, 2)
    assert (values <= best + 1e-5).all()
    for p, i, a in itertools.product((0, 5), (30, 144, 200, 280), (0, 1)):
        state, action, total, factor = jnp.asarray(data.grid()[i]), a, 0.0, 1.0
        for _ in range(HORIZON):
            outcome = step(state, jnp.asarray(action))
            total, factor = total + factor * float(outcome.reward), factor * GAMMA
            if bool(outcome.terminated):
                break
            state = outcome.state
            action = int((policies["w"][p] @ state).argmax())
        np.testing.assert_allclose(values[p, i, a], total, atol=1e-5)


def test_rows_are_the_environment_played_by_a_uniform_policy():
    rows = data.collect(4000, HORIZON, GAMMA, seed=3)
    assert all(len(x) == 4000 for x in rows)
    np.testing.assert_array_equal(rows.state[0], env.START)
    assert 0.45 < rows.action.mean() < 0.55
    t = rows.transitions()
    assert len(t.reward) == rows.valid.sum()
    again = jax.vmap(env.step)(jnp.asarray(t.obs), jnp.asarray(t.action))
    np.testing.assert_array_equal(t.discount, np.float32(GAMMA) * ~np.asarray(again.terminated))
    np.testing.assert_array_equal(t.reward, again.reward)
    going = ~np.asarray(again.terminated)
    np.testing.assert_allclose(t.next_obs[going], np.asarray(again.state)[going], atol=2e-6)
    # Episodes start over after an end and after the horizon, and time-outs start no transition.
    starts = np.flatnonzero((rows.state == np.float32(env.START)).all(1))
    lengths = np.diff(starts)
    assert lengths.max() <= HORIZON
    ends = starts[1:] - 1
    assert ((rows.discount[ends] == 0) == (rows.valid[ends])).all()
    assert (~rows.valid[ends]).sum() > 0


def test_the_data_set_is_a_function_of_its_seed_and_grows_by_appending():
    short, long = data.collect(1000, HORIZON, GAMMA), data.collect(3000, HORIZON, GAMMA)
    np.testing.assert_array_equal(short.state, long.state[:1000])
    other = data.collect(1000, HORIZON, GAMMA, seed=1)
    assert (other.action != short.action).any()


def test_weights_count_the_nearest_grid_state():
    rows = data.collect(2000, HORIZON, GAMMA)
    weights = data.sample_weights(rows)
    assert weights.sum() == pytest.approx(1)
    grid = data.grid()
    scale = np.array([2 / 16, 6 / 16])
    nearest = [int((np.abs((grid - s) / scale).max(1)).argmin()) for s in rows.state[:300]]
    counted = np.bincount(nearest, minlength=289) / 300
    short = data.Rows(*(x[:300] for x in rows))
    np.testing.assert_allclose(data.sample_weights(short), counted, atol=1e-12)
