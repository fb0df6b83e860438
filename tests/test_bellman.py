"""Every loss against numbers computed by hand, jitted and not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from examples.munchausen import fixed_point, learn, munchausen
from iterq.bellman import Transition, action_values, c51, double_dqn, dqn, fixed_policy, iqn, qr_dqn, quantile_huber, squared
from iterq.chain import window
from iterq.networks import Network

KEY = jax.random.key(0)
TARGET = jnp.array([[1.0, 4.0, 2.0], [0.5, 0.0, -1.0]])  # Q̄ as a table: state, action
ONLINE = jnp.array([[3.0, 1.0, 2.0], [2.0, 0.0, 1.0]])
POLICY = jnp.array([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]])  # state, probability of every action
Qb, Q = (lambda s: TARGET[s]), (lambda s: ONLINE[s])
T = Transition(obs=1, action=2, reward=0.5, discount=0.9, next_obs=0)
END = T._replace(discount=0.0)

QUANTILES = jnp.array([[[0.0, 1.0], [-1.0, 4.0]], [[2.0, 4.0], [0.0, 2.0]]])  # state, action, quantile; means (½, 1½) and (3, 1)
PROBABILITIES = jnp.array([[0.6, 0.1, 0.1, 0.1, 0.1], [0.1, 0.1, 0.2, 0.2, 0.4]])  # action, atom of 0 … 4; means 1 and 2.7
LINES = jnp.array([[1.0, 3.0], [2.0, 0.0]])  # state, action
Qq, Qc, Qi = (lambda s: QUANTILES[s]), (lambda s: jnp.log(PROBABILITIES)), (lambda s, tau: jnp.tile(LINES[s][:, None], tau.shape[0]))
D = Transition(obs=1, action=1, reward=0.5, discount=0.5, next_obs=0)
small = c51(0.0, 4.0, 5)


def never(*_):
    raise AssertionError("the next action comes from the target network")


def at(reward, discount):
    return D._replace(reward=reward, discount=discount)


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda: dqn.backup(Qb, Q, T, KEY), 0.5 + 0.9 * 4.0),
        (lambda: dqn.backup(Qb, Q, END, KEY), 0.5),
        (lambda: double_dqn.backup(Qb, Q, T, KEY), 0.5 + 0.9 * 1.0),  # argmax of ONLINE[0] is action 0
        (lambda: double_dqn.backup(Qb, Q, END, KEY), 0.5),
        (lambda: squared(Q, jnp.float32(4.0), T, KEY), 9.0),  # (1 - 4)²
        (lambda: fixed_policy(lambda s: POLICY[s]).backup(Qb, never, T, KEY), 0.5 + 0.9 * (0.5 * 1.0 + 0.25 * 4.0 + 0.25 * 2.0)),
        (lambda: fixed_policy(lambda s: POLICY[s]).backup(Qb, never, END, KEY), 0.5),
        (lambda: fixed_policy(lambda s: jax.nn.one_hot(2, 3)).backup(Qb, never, T, KEY), 0.5 + 0.9 * 2.0),
        (lambda: dqn.loss(Q, jnp.float32(1.5), T, KEY), 0.25),
        (lambda: action_values(Q, 1, KEY), [2.0, 0.0, 1.0]),
        # q = (0, 2) at τ = (¼, ¾).  y = 1: δ = (1, -1), ¼·½ + ¼·½ = ¼   y = -1: δ = (-1, -3), ¾·½ + ¼·2½ = 1
        (lambda: quantile_huber(jnp.array([0.0, 2]), jnp.array([0.25, 0.75]), jnp.array([1.0, -1])), (0.25 + 1) / 2),
        # y = 2: δ = (2, 0), ¼·1½ = ⅜
        (lambda: quantile_huber(jnp.array([0.0, 2]), jnp.array([0.25, 0.75]), jnp.array([1.0, -1, 2])), (0.25 + 1 + 0.375) / 3),
        # κ = 2, H / κ: ½·½ where |δ| = 1 and 2·(3 - 1)·½ where |δ| = 3
        (lambda: quantile_huber(jnp.array([0.0, 2]), jnp.array([0.25, 0.75]), jnp.array([1.0, -1]), 2.0), (0.125 + 0.1875 + 0.5) / 2),
        (lambda: qr_dqn(2).values(Qq, 1, KEY), [3.0, 1.0]),
        (lambda: qr_dqn(2).backup(Qq, never, D, KEY), [0.5 - 0.5, 0.5 + 0.5 * 4]),  # action 1
        (lambda: qr_dqn(2).backup(Qq, never, at(0.5, 0.0), KEY), [0.5, 0.5]),
        (lambda: qr_dqn(2).loss(Qq, jnp.array([1.0, -1]), D, KEY), (0.25 + 1) / 2),  # QUANTILES[1, 1] is the q above
        (lambda: small.values(Qc, 0, KEY), [1.0, 2.7]),
        # ½ + ½z = (½, 1, 1½, 2, 2½) with action 1's (0.1, 0.1, 0.2, 0.2, 0.4)
        (lambda: small.backup(Qc, never, D, KEY), [0.05, 0.05 + 0.1 + 0.1, 0.1 + 0.2 + 0.2, 0.2, 0.0]),
        (lambda: small.backup(Qc, never, at(0.0, 1.0), KEY), [0.1, 0.1, 0.2, 0.2, 0.4]),
        (lambda: small.backup(Qc, never, at(1.0, 1.0), KEY), [0.0, 0.1, 0.1, 0.2, 0.6]),  # 5 is beyond the support
        (lambda: small.backup(Qc, never, at(-2.0, 1.0), KEY), [0.4, 0.2, 0.4, 0.0, 0.0]),
        (lambda: small.backup(Qc, never, at(0.5, 0.0), KEY), [0.5, 0.5, 0.0, 0.0, 0.0]),
        (lambda: small.backup(Qc, never, at(3.0, 0.0), KEY), [0.0, 0.0, 0.0, 1.0, 0.0]),
        (lambda: small.backup(Qc, never, at(4.0, 0.0), KEY), [0.0, 0.0, 0.0, 0.0, 1.0]),
        (lambda: small.backup(Qc, never, at(99.0, 0.0), KEY), [0.0, 0.0, 0.0, 0.0, 1.0]),
        (lambda: small.backup(Qc, never, at(-99.0, 0.0), KEY), [1.0, 0.0, 0.0, 0.0, 0.0]),
        (lambda: small.loss(Qc, jnp.array([0.5, 0.5, 0, 0, 0]), D, KEY), 2.302585),  # -log 0.1
        (lambda: iqn(4, 3, 2).values(Qi, 0, KEY), [1.0, 3.0]),
        (lambda: iqn(4, 3, 2).backup(Qi, never, D, KEY), [2.0, 2.0, 2.0]),  # ½ + ½·3
        (lambda: iqn(4, 3, 2).backup(Qi, never, at(0.5, 0.0), KEY), [0.5, 0.5, 0.5]),
        # q = 0, y = ±1: (½τ + ½(1 - τ)) / 2 = ¼ at each of four levels, wherever they are
        (lambda: iqn(4, 3, 2).loss(Qi, jnp.array([1.0, -1]), D, KEY), 1.0),
        # τ = 1: π̄(·|0) ∝ (e, e⁴, e²), log-sum-exp = 4.169846; π̄(·|1) ∝ (e^½, 1, e⁻¹), log-sum-exp = 1.104131
        (lambda: munchausen(1.0, 0.9, -10.0).backup(Qb, Q, T, KEY), 0.5 + 0.9 * (-1 - 1.104131) + 0.9 * 4.169846),
        (lambda: munchausen(1.0, 0.9, -1.0).backup(Qb, Q, T, KEY), 0.5 - 0.9 + 0.9 * 4.169846),
        (lambda: munchausen(1.0, 0.0, -1.0).backup(Qb, Q, END, KEY), 0.5),
    ],
)
def test_numbers_computed_by_hand(function, expected, jit):
    result = (jax.jit(function) if jit else function)()
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("K", [1, 5])
def test_a_base_loss_from_outside_the_package_converges_to_its_fixed_point(K):
    np.testing.assert_allclose(learn(munchausen(), K), fixed_point(), atol=0.02)


def floor_and_ceil(p, reward, discount, low, high, atoms):
    """(atoms,) the projection one atom at a time, in double precision."""
    gap, y = (high - low) / (atoms - 1), np.zeros(atoms)
    for j in range(atoms):
        z = np.clip(reward + discount * (low + j * gap), low, high)
        b = min((z - low) / gap, atoms - 1)
        below, above = int(np.floor(b)), int(np.ceil(b))
        if below == above:
            y[below] += p[j]
        else:
            y[below] += p[j] * (above - b)
            y[above] += p[j] * (b - below)
    return y


@settings(max_examples=50)
@given(st.floats(-30, 30, width=32), st.floats(0, 1, width=32), st.integers(0, 2**16))
@example(0.0, 1.0, 0)
@example(np.float32(0.4), 1.0, 0)
@example(10.0, 0.0, 0)
@example(-10.0, 0.0, 0)
@example(1.0, np.float32(0.99), 0)
def test_categorical_projection_is_the_loop_over_atoms_and_keeps_all_mass(reward, discount, seed):
    logits = 2 * np.random.default_rng(seed).normal(size=51).astype(np.float32)
    y = c51().backup(lambda _: jnp.asarray(logits)[None], never, at(reward, discount), KEY)
    p = np.exp(logits.astype(float)) / np.exp(logits.astype(float)).sum()
    # Where an atom lands is a float32 of up to 50, whose neighbours are 3.8e-6 apart.
    np.testing.assert_allclose(y, floor_and_ceil(p, float(reward), float(discount), -10.0, 10.0, 51), atol=4e-6)
    assert y.min() >= 0
    np.testing.assert_allclose(y.sum(), 1, atol=1e-6)


@pytest.mark.parametrize("shift", [-50, -3, 0, 1, 50])
def test_a_shift_by_whole_atoms_moves_the_probabilities_unchanged(shift):
    logits = jax.random.normal(KEY, (1, 51))
    expected = np.zeros(51, np.float32)
    np.add.at(expected, np.clip(np.arange(51) + shift, 0, 50), jax.nn.softmax(logits[0]))  # the edges keep what would leave
    np.testing.assert_allclose(c51().backup(lambda _: logits, never, at(0.4 * shift, 1.0), KEY), expected, atol=1e-6)


@pytest.mark.parametrize("support", [(1.0, 1.0, 5), (2.0, 1.0, 5), (0.0, 1.0, 1)])
def test_a_support_without_width_is_refused(support):
    with pytest.raises(ValueError, match="low < high"):
        c51(*support)


@settings(max_examples=50)
@given(st.sampled_from([1, 4]), st.sampled_from([1, 3]), st.floats(0.125, 3, width=32), st.integers(0, 2**16))
def test_quantile_huber_is_the_double_loop(N, N_target, kappa, seed):
    rng = np.random.default_rng(seed)
    q, tau, y = rng.normal(size=N), rng.uniform(size=N), 3 * rng.normal(size=N_target)
    total = 0.0
    for i in range(N):
        for j in range(N_target):
            error = abs(y[j] - q[i])
            huber = error**2 / 2 if error <= kappa else kappa * (error - kappa / 2)
            total += (tau[i] if y[j] > q[i] else 1 - tau[i]) * huber / kappa / N_target
    np.testing.assert_allclose(quantile_huber(jnp.float32(q), jnp.float32(tau), jnp.float32(y), kappa), total, rtol=1e-5)


def test_iqn_draws_levels_for_the_choice_apart_from_those_of_the_values():
    levels = []

    def Qb(obs, tau):
        levels.append(np.asarray(tau))
        return jnp.stack([tau, tau])

    iqn(N_target=5, N_policy=5).backup(Qb, never, D, KEY)
    policy, target = levels
    assert policy.shape == target.shape == (5,)
    assert not set(policy) & set(target)
    assert all(((tau >= 0) & (tau < 1)).all() for tau in levels)


def test_iqn_levels_differ_between_samples_and_agree_between_members():
    net = Network(lambda key, *_: {"head": jnp.zeros(())}, lambda theta, obs, tau: theta["head"] + jnp.stack([tau, tau]))
    win, bellman = window(net, 3), iqn(N=1, N_target=5)
    chain = win.init(KEY, jnp.zeros(1), jnp.zeros(1))
    batch = Transition(np.zeros((2, 1)), np.zeros(2, int), np.zeros(2), np.ones(2), np.zeros((2, 1)))
    # Q is its level: r + γQ̄ = τ′ with r = 0 and γ = 1
    targets = np.asarray(win.targets(bellman, chain, batch, KEY))
    # and with y = 0 the loss is (1 - τ) ½τ²
    losses = np.asarray(win.distances(bellman, chain.online, jnp.zeros((3, 2, 5)), batch, KEY))
    for levels in (targets, losses[..., None]):
        np.testing.assert_array_equal(levels, levels[:1].repeat(3, 0))
        assert not set(levels[0, 0]) & set(levels[0, 1])
