"""What the paper proves or states of Bellman operators, on small problems whose operators are known exactly.

Equation 2, the n-step identity of Section 6.1, and the proposition of the appendix on minimisation. Proposition 4.1 is in
test_diagnostics.py.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from iterq.bellman import Transition, dqn, fixed_policy
from iterq.chain import Chain, window
from iterq.networks import Network, mlp
from iterq.replay import gather, reader
from tests.test_replay import GAMMA, fill, live, memory_of

KEY = jax.random.key(0)
S, A, OUTCOMES = 5, 3, 4
TABLE = Network(lambda key, s: {"q": jnp.zeros((S, A))}, lambda theta, s: theta["q"][s])


class World:
    """A Markov decision process: `OUTCOMES` equally likely results of (s, a), each a reward, a next state, and whether that ends it."""

    def __init__(self, seed, outcomes=OUTCOMES):
        rng = np.random.default_rng(seed)
        self.reward = rng.normal(size=(S, A, outcomes)).astype(np.float32)
        self.next = rng.integers(0, S, (S, A, outcomes))
        self.discount = np.where(rng.random((S, A, outcomes)) < 0.15, 0, np.float32(GAMMA))

    def operator(self, q, v):
        """(S, A) the true ΓQ in double precision; v: (S, A) values -> (S,) what the policy gets out of them."""
        return (self.reward + self.discount * v(np.asarray(q, float))[self.next]).mean(-1)

    def samples(self, times):
        """Every outcome of (s, a), each `times[s, a, outcome]` times."""
        s, a, o = (np.repeat(i.ravel(), times.ravel()) for i in np.indices(self.reward.shape))
        return Transition(s, a, self.reward[s, a, o], self.discount[s, a, o], self.next[s, a, o])


def greedy(q):
    return q.max(1)


def some_policy(seed=0):
    """(S, A) probabilities."""
    p = np.random.default_rng(seed).random((S, A))
    return (p / p.sum(1, keepdims=True)).astype(np.float32)


def gamma_pi(policy):
    return fixed_policy(lambda s: jnp.asarray(policy)[s])


def of_policy(policy):
    return lambda q: (policy * q).sum(1)


BELLMANS = {"Γ*": (dqn, greedy), "Γ^π": (gamma_pi(some_policy()), of_policy(some_policy()))}


@jax.jit(static_argnums=0)
def backups(bellman, q, batch):
    """(B,) Γ̂Q of every sample, for a table Q (S, A)."""
    return jax.vmap(lambda t: bellman.backup(lambda s: q[s], lambda s: q[s], t, KEY))(batch)


def once_each():
    return np.ones((S, A, OUTCOMES), int)


@pytest.mark.parametrize("seed", range(3))
def test_a_policy_is_evaluated_by_its_operator(seed):
    world, policy = World(seed), some_policy(seed)
    bellman, batch, q = gamma_pi(policy), world.samples(once_each()), np.zeros((S, A), np.float32)
    for _ in range(200):
        q = np.asarray(backups(bellman, q, batch)).reshape(S, A, OUTCOMES).mean(-1)
    # Q^π = r + P^π Q^π, where P^π also carries the discounts
    P = np.zeros((S, A, S, A))
    for s, a, o in np.ndindex(S, A, OUTCOMES):
        P[s, a, world.next[s, a, o]] += world.discount[s, a, o] * policy[world.next[s, a, o]] / OUTCOMES
    exact = np.linalg.solve(np.eye(S * A) - P.reshape(S * A, S * A), world.reward.mean(-1).ravel())
    np.testing.assert_allclose(q.ravel(), exact, rtol=1e-4, atol=1e-5)


def test_an_operator_is_a_contraction():
    rng, batch = np.random.default_rng(0), World(0).samples(once_each())
    for bellman, _ in BELLMANS.values():
        for _ in range(20):
            one, other = rng.normal(size=(2, S, A)).astype(np.float32)
            apart = np.abs(np.asarray(backups(bellman, one, batch) - backups(bellman, other, batch))).max()
            assert apart <= GAMMA * np.abs(one - other).max() + 1e-6


# Section 6.1: (Γ̂^π)ⁿQ is the n-step return that is bootstrapped with Q.

CHOICE = np.array([2, 0, 1, 1, 0])  # π(s), the same action at every visit
ALWAYS = gamma_pi(np.eye(A, dtype=np.float32)[CHOICE])
STEPS = 6  # after which an episode is cut off


def deterministic(seed):
    return World(seed, outcomes=1)


def experience(world):
    """Rows for the replay, and (s, a, steps to come, terminates) of each: from every state every action once, and π's from there on."""
    rows, places = [], []
    for start, first in np.ndindex(S, A):
        s, a, episode = start, first, []
        while not episode or (len(episode) < STEPS and not episode[-1][3]):
            episode.append((s, a, world.reward[s, a, 0], world.discount[s, a, 0] == 0))
            s = world.next[s, a, 0]
            a = CHOICE[s]
        for t, (s_t, a_t, reward, end) in enumerate(episode):
            rows.append((np.array([s_t, 0], np.float32), a_t, reward, end, t == 0))
            places.append((s_t, a_t, len(episode) - t, episode[-1][3]))
        rows.append((np.array([s, 0], np.float32), 0, 99.0, False, False))  # a final frame, whose reward means nothing
        places.append(None)
    return rows, places


@functools.cache
def n_step(seed, n):
    """The transitions that the replay reads from `experience`, with their places."""
    rows, places = experience(deterministic(seed))
    memory = memory_of(len(rows), n, 1)
    replay = fill(memory, rows)
    starts = np.array(live(replay.data, replay.counts, memory), np.int32)
    found = gather(memory, reader(memory, replay.data), starts)
    return found._replace(obs=found.obs[:, 0].astype(int), next_obs=found.next_obs[:, 0].astype(int)), [places[i] for i in starts]


def powers(bellman, world, q, n):
    """[Q, Γ̂Q, … Γ̂ⁿQ], each (S, A), of a world without chance."""
    batch, found = world.samples(np.ones((S, A, 1), int)), [q]
    for _ in range(n):
        found.append(np.asarray(backups(bellman, found[-1], batch)).reshape(S, A))
    return found


def by_hand(world, q, s, a, n):
    """r₀ + γr₁ + … + γⁿQ(sₙ, π(sₙ)), walking through the world."""
    total, weight = 0.0, 1.0
    for _ in range(n):
        total += weight * world.reward[s, a, 0]
        weight *= world.discount[s, a, 0]
        s = world.next[s, a, 0]
        a = CHOICE[s]
    return total + weight * q[s, a]


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(2))
def test_n_steps_of_a_policy_are_its_operator_applied_n_times(n, seed):
    world, q = deterministic(seed), np.random.default_rng(seed).normal(size=(S, A)).astype(np.float32)
    found = powers(ALWAYS, world, q, n)
    walked = [[by_hand(world, q, s, a, n) for a in range(A)] for s in range(S)]
    np.testing.assert_allclose(found[n], walked, rtol=1e-4, atol=1e-5)
    # The replay's n-step transitions give the same with one application. Where an episode was cut off, fewer steps are left.
    batch, places = n_step(seed, n)
    targets = backups(ALWAYS, q, batch)
    expected = [found[n if terminates else min(n, left)][s, a] for s, a, left, terminates in places]
    np.testing.assert_allclose(targets, expected, rtol=1e-4, atol=1e-5)
    assert {(s, a) for s, a, *_ in places} == set(np.ndindex(S, A)), "every pair is there"
    assert any(terminates for *_, terminates in places)
    assert any(left < n for *_, left, terminates in places if not terminates) or n == 1


def test_n_steps_are_not_the_optimal_operator_applied_n_times():
    """The maximum is not linear: unless every action between was a greedy one, the n-step return falls short."""
    world, q = deterministic(0), np.random.default_rng(0).normal(size=(S, A)).astype(np.float32)
    found, (batch, places) = powers(dqn, world, q, 2), n_step(0, 2)
    targets = np.asarray(backups(dqn, q, batch))
    whole = np.array([terminates or left >= 2 for *_, left, terminates in places])
    twice = np.array([found[2][s, a] for s, a, *_ in places])
    assert (targets[whole] <= twice[whole] + 1e-5).all()
    assert (targets[whole] < twice[whole] - 0.1).any()
    # With one step they are the same.
    batch, places = n_step(0, 1)
    np.testing.assert_allclose(backups(dqn, q, batch), [found[1][s, a] for s, a, *_ in places], rtol=1e-5, atol=1e-6)


def test_n_step_returns_make_a_window_n_times_as_long():
    """K members that learn n-step returns have reached their goal when the last is (Γ̂^π)ⁿᴷ of the first."""
    n, K, world = 3, 4, deterministic(1)
    q = np.random.default_rng(0).normal(size=(S, A)).astype(np.float32)
    found = powers(ALWAYS, world, q, n * K)
    batch, places = n_step(1, n)
    whole = np.array([terminates or left >= n for *_, left, terminates in places])
    batch = jax.tree.map(lambda x: np.asarray(x)[whole], batch)
    members = jnp.stack(found[n::n])
    win = window(TABLE, K, frozen=False)
    losses = win.losses(ALWAYS, Chain({"q": jnp.asarray(q)}, {"q": members}, None), batch, KEY)
    np.testing.assert_allclose(losses, 0, atol=1e-9)
    shorter = win.losses(ALWAYS, Chain({"q": jnp.asarray(q)}, {"q": jnp.stack(found[1 : K + 1])}, None), batch, KEY)
    assert (shorter.max(1) > 1e-2).all()


# The proposition of the appendix: if E[Γ̂Q̄(s, a)] over the samples of (s, a) is ΓQ̄(s, a) for every pair in the data, then
#
#     Σ_𝒟 (Γ̂Q̄(s, a) - Q_θ(s, a))² = M ‖ΓQ̄ - Q_θ‖²_{2,ν} + constant in θ
#
# with M samples, and ν how often each pair is among them. The constant is Σ_𝒟 (Γ̂Q̄ - ΓQ̄)². The paper writes Γ in the assumption and
# Γ* in what follows from it; either operator will do, and both are tried.

NET = mlp([8], A)
WIN = window(NET, 1)


def rich(seed):
    """Every outcome of a pair equally often, but pairs not, and some not at all."""
    return np.broadcast_to(np.random.default_rng(seed).integers(0, 4, (S, A, 1)), (S, A, OUTCOMES))


def poor(seed):
    """The same without one outcome of every pair."""
    return rich(seed) * (np.arange(OUTCOMES) > 0)


def thetas(count):
    return [WIN.init(jax.random.key(i), jnp.zeros(S)).online for i in range(count)]


def values_of(theta):
    """(S, A) the network on one-hot states."""
    return jax.vmap(lambda s: WIN.Q(theta)(s))(jnp.eye(S))


def one_hot(batch):
    return batch._replace(obs=np.eye(S, dtype=np.float32)[batch.obs], next_obs=np.eye(S, dtype=np.float32)[batch.next_obs])


def on_one_hot(name):
    """The operator for states that are one-hot vectors."""
    return dqn if name == "Γ*" else fixed_policy(lambda s: s @ jnp.asarray(some_policy()))


def both(name, world, times, bar):
    """The two sides as functions of θ: the sum of the losses, and M times the squared distance from the true ΓQ̄."""
    batch, pairs = one_hot(world.samples(times)), times.sum(-1)
    exact = jnp.asarray(world.operator(values_of(bar), BELLMANS[name][1]), jnp.float32)

    def losses(theta):
        return WIN.losses(on_one_hot(name), Chain(bar, theta, None), batch, KEY).sum()

    def distance(theta):
        # M Σ ν(s, a) (ΓQ̄ - Q_θ)²,  ν(s, a) = M_{s,a} / M
        return (pairs * (exact - values_of(theta)) ** 2).sum()

    return jax.jit(losses), jax.jit(distance)


def gradient(f, theta):
    """All of it as one vector."""
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(jax.grad(f)(theta))])


@pytest.mark.parametrize("name", BELLMANS)
@pytest.mark.parametrize("seed", range(3))
def test_the_losses_are_the_distance_and_a_constant(name, seed):
    world, times, (bar, *others) = World(seed), rich(seed), thetas(7)
    losses, distance = both(name, world, times, bar)
    sampled = np.asarray(backups(BELLMANS[name][0], values_of(bar), world.samples(times)), float)
    exact = np.repeat(world.operator(values_of(bar), BELLMANS[name][1]).ravel(), times.sum(-1).ravel())
    constant = ((sampled - exact) ** 2).sum()
    assert constant > 1
    assert np.ptp([distance(theta) for theta in others]) > 10  # θ matters, so a constant difference says something
    for theta in others:
        np.testing.assert_allclose(losses(theta) - distance(theta), constant, rtol=1e-3)
        np.testing.assert_allclose(gradient(losses, theta), gradient(distance, theta), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", BELLMANS)
def test_without_the_assumption_they_differ_by_more_than_a_constant(name):
    world, (bar, *others) = World(0), thetas(7)
    losses, distance = both(name, world, poor(0), bar)
    assert np.ptp([losses(theta) - distance(theta) for theta in others]) > 1
    assert np.abs(gradient(losses, others[0]) - gradient(distance, others[0])).max() > 1


def fitted(batch, targets, features):
    """(S, A) the least-squares fit to targets (B,), linear in features (S * A, d): the minimiser of the sum of squared errors."""
    weights = np.linalg.lstsq(features[batch.obs * A + batch.action], targets, rcond=None)[0]
    return features @ weights


@pytest.mark.parametrize("name", BELLMANS)
@pytest.mark.parametrize("d", [4, S * A])  # fewer functions than pairs, as with a network; all functions
def test_the_minimisers_are_the_same_exactly_where_the_assumption_holds(name, d):
    world, bar = World(1), np.random.default_rng(1).normal(size=(S, A)).astype(np.float32)
    features = np.random.default_rng(2).normal(size=(S * A, d)) if d < S * A else np.eye(d)
    bellman, v = BELLMANS[name]
    for times, holds in ((rich(1), True), (poor(1), False)):
        batch = world.samples(times)
        exact = world.operator(bar, v)[batch.obs, batch.action]
        of_losses = fitted(batch, np.asarray(backups(bellman, bar, batch), float), features)
        of_distance = fitted(batch, exact, features)
        assert np.allclose(of_losses, of_distance, atol=1e-5) == holds


def test_the_assumption_is_about_the_target_and_not_about_the_samples():
    """Samples that leave out an outcome are enough for a Q̄ to which all outcomes of a pair are the same, and for no other."""
    world, bar, other = World(2), thetas(1)[0], thetas(2)[1]
    world.reward[:], world.discount[:] = world.reward[..., :1], np.float32(GAMMA)
    flat = jax.tree.map(jnp.zeros_like, bar)
    spread = {}
    for label, target in (("flat", flat), ("other", other)):
        losses, distance = both("Γ*", world, poor(2), target)
        spread[label] = np.ptp([losses(theta) - distance(theta) for theta in thetas(6)])
    assert spread["flat"] < 1e-2
    assert spread["other"] > 1
