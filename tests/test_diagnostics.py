"""Proposition 4.1 on random chains, and its terms against a direct computation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iterq.bellman import Transition, dqn
from iterq.chain import Chain, window
from iterq.diagnostics import Proposition, approximation_errors, csae, decrease, margins, proposition, spread, terms
from iterq.networks import Network
from tests.helpers import NETWORKS, example, random_batch

KEY = jax.random.key(0)
# Q as a table: on a finite MDP every function is representable, and chains are just numbers.
TABLE = Network(lambda key, s: {"q": jnp.zeros((3, 2))}, lambda theta, s: theta["q"][s])


def table_chain(values):
    """Tables (K + 1, 3, 2) as the chain Q₀ … Q_K."""
    return Chain({"q": jnp.asarray(values[0])}, {"q": jnp.asarray(values[1:] if len(values) > 2 else values[1])}, None)


def direct(values, batch, k):
    """Γ̂Qₖ₋₁(s, a) and Qₖ(s, a) in NumPy, float64."""
    target = batch.reward + batch.discount * values[k - 1][batch.next_obs].max(1)
    return target, values[k][batch.obs, batch.action]


@settings(max_examples=300)
@given(seed=st.integers(0, 2**32 - 1), K=st.integers(1, 4), step=st.floats(0.01, 1.0), drift=st.floats(0.0, 0.3))
def test_the_condition_implies_the_decrease(seed, K, step, drift):
    rng = np.random.default_rng(seed)
    n = 12
    batch = Transition(rng.integers(0, 3, n), rng.integers(0, 2, n), rng.normal(size=n), np.full(n, 0.9), rng.integers(0, 3, n))
    before = rng.normal(size=(K + 1, 3, 2))
    # Move every member some way towards the fit of its target, and a little at random, so that the condition holds now and then.
    after = before.copy()
    for k in range(1, K + 1):
        fit = before[k].copy()
        for s in range(3):
            for a in range(2):
                here = (batch.obs == s) & (batch.action == a)
                if here.any():
                    fit[s, a] = direct(before, batch, k)[0][here].mean()
        after[k] += step * (fit - before[k]) + drift * rng.normal(size=(3, 2))
    ys, qs = (np.stack(x) for x in zip(*(direct(before, batch, k) for k in range(1, K + 1)), strict=True))
    y2, q2 = (np.stack(x) for x in zip(*(direct(after, batch, k) for k in range(1, K + 1)), strict=True))
    exact = Proposition(*(((x) ** 2).mean(1) for x in (ys - qs, ys - q2, y2 - q2, y2 - ys)))
    if (margins(exact) >= 0).all():
        assert decrease(exact) >= -1e-12
    # The weaker form is implied by Equation 4, never the other way round.
    assert (margins(exact, 0.9) >= margins(exact)).all()

    win = window(TABLE, K, frozen=False)
    ours = proposition(win, dqn, table_chain(before.astype(np.float32)), table_chain(after.astype(np.float32)), batch, KEY)
    for name in Proposition._fields:
        np.testing.assert_allclose(getattr(ours, name), getattr(exact, name), rtol=2e-4, atol=1e-5)
    again = terms(*(jnp.asarray(x, jnp.float32) for x in (ys, qs, y2, q2)), jnp.full(n, 1 / n))
    for name in Proposition._fields:
        np.testing.assert_allclose(getattr(again, name), getattr(exact, name), rtol=2e-4, atol=1e-5)


def test_the_condition_can_hold_and_can_fail():
    batch = Transition(np.array([0, 1]), np.array([0, 0]), np.array([1.0, 1.0]), np.array([0.9, 0.9]), np.array([2, 2]))
    still = np.zeros((2, 3, 2), np.float32)
    nearer = still.copy()
    nearer[1, :2, 0] = 0.5
    win = window(TABLE, 1, frozen=False)
    up = proposition(win, dqn, table_chain(still), table_chain(nearer), batch, KEY)
    # ‖1 - 0‖ - ‖1 - 0.5‖ = 0.5, target fixed; the CSAE falls from 1 to 0.25
    np.testing.assert_allclose(margins(up), [0.5], rtol=1e-6)
    np.testing.assert_allclose(decrease(up), 0.75, rtol=1e-6)
    down = proposition(win, dqn, table_chain(nearer), table_chain(still), batch, KEY)
    np.testing.assert_allclose(margins(down), [-0.5], rtol=1e-6)
    np.testing.assert_allclose(decrease(down), -0.75, rtol=1e-6)


def test_a_moving_target_counts_against_the_condition():
    batch = Transition(np.array([0]), np.array([0]), np.array([0.0]), np.array([0.5]), np.array([1]))
    before = np.zeros((3, 3, 2), np.float32)
    before[2, 0, 0] = 1.0
    after = before.copy()
    after[1, 1] = 0.4  # Q₁(s′) rises: the target of Q₂ moves by 0.5 x 0.4
    after[2, 0, 0] = 0.9
    found = proposition(window(TABLE, 2, frozen=False), dqn, table_chain(before), table_chain(after), batch, KEY)
    np.testing.assert_allclose(found.displacement**0.5, [0.0, 0.2], atol=1e-7)
    np.testing.assert_allclose(margins(found)[1], (1.0 - 0.9) - 0.2, atol=1e-6)
    np.testing.assert_allclose(margins(found, 0.5)[1], (1.0 - 0.9) - 0.1, atol=1e-6)


@pytest.mark.parametrize("K", [1, 3])
def test_errors_run_along_the_online_chain_whatever_is_frozen(K):
    win = window(NETWORKS["mlp"], K)
    chain = win.init(jax.random.key(0), example("mlp"))
    moved = chain._replace(online=jax.tree.map(lambda x: x + 0.1, chain.online))
    batch = random_batch("mlp", 0)
    errors = approximation_errors(win, dqn, moved, batch, KEY)
    assert errors.shape == (K,)
    np.testing.assert_allclose(csae(win, dqn, moved, batch, KEY), errors.sum(), rtol=1e-6)
    free = window(NETWORKS["mlp"], K, frozen=False)
    np.testing.assert_allclose(errors, free.losses(dqn, moved._replace(frozen=None), batch, KEY).mean(1), rtol=1e-6)


def test_spread_between_members():
    win = window(NETWORKS["mlp"], 3)
    obs = random_batch("mlp", 0).obs
    same = win.init(jax.random.key(0), example("mlp"), identical=True)
    np.testing.assert_allclose(spread(win, dqn, same, obs, KEY), 0, atol=1e-6)
    other = win.init(jax.random.key(0), example("mlp"))
    values = np.asarray(win.values(dqn, other.online, obs, KEY))
    np.testing.assert_allclose(spread(win, dqn, other, obs, KEY), values.std(0).mean(), rtol=1e-5)
