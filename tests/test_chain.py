"""The window: Algorithm 1 with the online shift, against a direct loop over separately stored networks."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iterq.bellman import dqn
from iterq.chain import Chain, gradient_step, hard, polyak, window
from iterq.events import due, event_at
from iterq.networks import Network
from tests.helpers import NETWORKS, assert_same, example, largest_difference, random_batch

T, D, G = 50, 30, 4  # D is no multiple of G


def members(win, chain, K):
    return [win.member(chain.online, k) for k in range(1, K + 1)], [win.member(chain.frozen, k) for k in range(1, K)]


def q(parts, theta, obs):
    for name, part in parts.items():
        obs = part.apply({"params": theta[name]}, obs)
    return obs


def direct_losses(parts, anchor, online, frozen, batch):
    """ℒ_DQN of Algorithm 1 (mean over the batch) for each of K separately stored networks, a transition at a time."""
    losses = []
    for k, theta in enumerate(online):
        bar = anchor if k == 0 else frozen[k - 1]
        errors = []
        for t in zip(*batch, strict=True):
            obs, action, reward, discount, next_obs = t
            y = jax.lax.stop_gradient(reward + discount * q(parts, bar, next_obs).max())
            errors.append((q(parts, theta, obs)[action] - y) ** 2)
        losses.append(sum(errors) / len(errors))
    return losses


@pytest.mark.parametrize("shared", [(), ("torso",)])
@pytest.mark.parametrize(("kind", "K"), [("mlp", 3), ("mlp", 5), ("conv", 3)])
def test_the_chain_follows_a_direct_loop_over_separate_networks(kind, K, shared):
    parts = NETWORKS[kind]
    optimiser = optax.adam(1e-3, eps=1.5e-4)
    reduce = jnp.mean if shared else jnp.sum
    win = window(parts, K, shared=shared)
    step = jax.jit(gradient_step(win, dqn, optimiser, reduce))
    schedule = jax.jit(hard(T, D, G), static_argnums=0)

    @jax.jit
    def direct(anchor, online, frozen, states, batch):
        """All K updates: own optimisers for independent networks, one optimiser and the mean over heads for a shared torso."""
        if not shared:
            new, moments = [], []
            for k in range(K):
                grads = jax.grad(lambda theta, k=k: direct_losses(parts, anchor, [*online[:k], theta, *online[k + 1 :]], frozen, batch)[k])(
                    online[k]
                )
                updates, state = optimiser.update(grads, states[k])
                new.append(optax.apply_updates(online[k], updates))
                moments.append(state)
            return new, moments
        torso, heads = online[0]["torso"], [m["head"] for m in online]

        def total(torso, heads):
            return sum(direct_losses(parts, anchor, [{"torso": torso, "head": h} for h in heads], frozen, batch)) / K

        grads = jax.grad(total, argnums=(0, 1))(torso, heads)
        updates, states = optimiser.update(grads, states)
        torso, heads = optax.apply_updates((torso, heads), updates)
        return [{"torso": torso, "head": h} for h in heads], states

    def stack(trees):
        return jax.tree.map(lambda *x: jnp.stack(x), *trees)

    chain = win.init(jax.random.key(1), example(kind))
    moments = optimiser.init(chain.online)
    online, frozen = members(win, chain, K)
    states = [optimiser.init(m) for m in online] if not shared else optimiser.init((online[0]["torso"], [m["head"] for m in online]))
    anchor, seen = chain.anchor, set()
    for n in range(1, 242, G):
        batch = random_batch(kind, seed=n, size=8)
        # The update, from the same parameters; optimiser states follow their own program and must stay as close.
        online, states = direct(anchor, online, frozen, states, batch)
        chain, moments, _ = step(chain, moments, batch, jax.random.key(n))
        assert largest_difference(members(win, chain, K)[0], online) < 1e-6
        # Events, environment step by environment step, exactly.
        online, frozen = members(win, chain, K)
        for m in range(n, n + G):
            if m % T == 0:
                anchor, online = online[0], [*online[1:], online[-1]]
                if shared:  # the torso is everyone's: it does not move along the chain
                    online = [{"torso": online[0]["torso"], "head": m["head"]} for m in online]
                frozen = online[:-1]
                seen.add("shift")
            elif m % D == 0:
                frozen = online[:-1]
                seen.add("sync")
        chain = schedule(win, chain, n)
        assert_same(members(win, chain, K), (online, frozen))
        assert_same(chain.anchor, anchor)
    assert seen == {"shift", "sync"}


@pytest.mark.parametrize("shared", [(), ("torso",)])
@pytest.mark.parametrize("G", [1, 4])
def test_no_target_networks_is_a_sync_after_every_gradient_step(shared, G):
    optimiser = optax.adam(1e-3)
    ends = []
    for frozen in (True, False):
        win = window(NETWORKS["mlp"], 3, shared=shared, frozen=frozen)
        step, schedule = gradient_step(win, dqn, optimiser), hard(40, D=1, G=G)
        update = jax.jit(
            lambda c, m, b, n, step=step, win=win, schedule=schedule: (
                schedule(win, (out := step(c, m, b, jax.random.key(0)))[0], n),
                out[1],
            )
        )
        chain = win.init(jax.random.key(2), example("mlp"))
        moments = optimiser.init(chain.online)
        for n in range(1, 201, G):
            chain, moments = update(chain, moments, random_batch("mlp", n), n)
        ends.append((chain.anchor, chain.online, moments))
    assert_same(*ends)


def counting(K, shared=("torso",)):
    """A window whose members are filled with the number k, the anchor with 0."""
    win = window(Network(lambda key, x: {"torso": jnp.zeros(2), "head": jnp.zeros(2)}, lambda theta, x: x), K, shared=shared)
    chain = win.init(jax.random.key(0), jnp.zeros(1))
    numbers = jnp.arange(1.0, K + 1)[:, None] * jnp.ones(2)
    return win, Chain({"torso": jnp.zeros(2), "head": jnp.zeros(2)}, {**chain.online, "head": numbers}, chain.frozen)


def test_shift_and_sync_on_members_filled_with_their_number():
    win, chain = counting(4)
    synced = win.sync(chain)
    np.testing.assert_array_equal(synced.frozen["head"][:, 0], [1, 2, 3])  # nobody learns from the last
    np.testing.assert_array_equal(synced.anchor["head"], [0, 0])
    shifted = win.shift(chain)
    np.testing.assert_array_equal(shifted.anchor["head"], [1, 1])
    np.testing.assert_array_equal(shifted.online["head"][:, 0], [2, 3, 4, 4])
    np.testing.assert_array_equal(shifted.frozen["head"][:, 0], [2, 3, 4])
    np.testing.assert_array_equal(win.member(chain.online, 3)["head"], [3, 3])
    tracked = win.track(chain, 0.25)
    np.testing.assert_array_equal(tracked.anchor["head"], [0.25, 0.25])
    assert_same(tracked.online, chain.online)


def test_an_ensemble_learns_from_its_own_past_and_moves_with_T_alone():
    win = window(NETWORKS["mlp"], 3, shared=("torso",), consecutive=False)
    chain = win.init(jax.random.key(0), example("mlp"))
    batch = random_batch("mlp", 0)
    moved = chain._replace(online=jax.tree.map(lambda x: x + 0.1, chain.online))
    ys = win.targets(dqn, moved, batch, jax.random.key(0))
    for k in range(3):
        one = window(NETWORKS["mlp"], 1)
        own = win.member(chain.online, k + 1)
        np.testing.assert_allclose(ys[k], one.targets(dqn, Chain(own, own, None), batch, jax.random.key(0))[0], rtol=1e-6)
    assert_same(win.sync(moved), moved)
    assert_same(win.shift(moved).anchor, moved.online)
    assert_same(win.shift(moved).online, moved.online)


@given(n=st.integers(1, 10_000), period=st.integers(1, 500), G=st.integers(1, 40))
def test_events_are_due_as_in_a_loop_over_environment_steps(n, period, G):
    assert due(n, period, G) == any(m % period == 0 for m in range(n, n + G))


@settings(max_examples=25)
@given(start=st.integers(0, 200), G=st.integers(1, 12), T_over_G=st.integers(0, 60), D=st.integers(1, 60))
def test_the_schedule_fires_the_events_of_a_loop(start, G, T_over_G, D):
    T = G + T_over_G
    win, chain = counting(2)
    names = []
    recorder = win._replace(
        sync=lambda c: c._replace(anchor={**c.anchor, "head": c.anchor["head"] + 1}),
        shift=lambda c: c._replace(anchor={**c.anchor, "head": c.anchor["head"] + 100}),
    )
    for n in range(1 + start * G, 1 + (start + 5) * G, G):
        steps = range(n, n + G)
        expected = 100 if any(m % T == 0 for m in steps) else 1 if any(m % D == 0 for m in steps) else 0
        chain = chain._replace(anchor={**chain.anchor, "head": jnp.zeros(2)})
        # asked of a program, known from the number, told
        ways = ((jnp.int32(n),), (n,), (None, event_at(n, T, D, G)))
        names += [(float(hard(T, D, G)(recorder, chain, *way).anchor["head"][0]), expected) for way in ways]
    assert all(got == want for got, want in names)


@pytest.mark.parametrize("identical", [False, True])
@pytest.mark.parametrize("shared", [(), ("torso",)])
def test_initial_values(identical, shared):
    chain = window(NETWORKS["mlp"], 3, shared=shared).init(jax.random.key(5), example("mlp"), identical=identical)
    win = window(NETWORKS["mlp"], 3, shared=shared)
    assert_same(chain.anchor, win.member(chain.online, 1))
    for k in (1, 2):
        assert_same(win.member(chain.frozen, k), win.member(chain.online, k))
    assert chain.frozen["head"]["kernel"].shape[0] == 2
    heads = chain.online["head"]["kernel"]
    assert (np.abs(heads[0] - heads[1]).max() == 0) == identical
    single = window(NETWORKS["mlp"], 1).init(jax.random.key(5), example("mlp"))
    assert_same(single.online, chain.anchor)  # member 1 does not depend on K
    torso = chain.online["torso"]["Linear_0"]["kernel"]
    assert torso.ndim == (2 if shared else 3)


def passes(K, grad):
    """Convolutions in the compiled program of the losses, or of their gradient, with a shared torso of two layers."""
    win = window(NETWORKS["conv"], K, shared=("torso",))
    chain = win.init(jax.random.key(0), example("conv"))
    batch = random_batch("conv", 0)

    def losses(online, chain, batch):
        return win.losses(dqn, chain._replace(online=online), batch, jax.random.key(0)).mean(1).sum()

    compiled = jax.jit(jax.grad(losses) if grad else losses).lower(chain.online, chain, batch).compile().as_text()
    return len(re.findall(r" convolution\(|custom_call_target=\"[^\"]*[cC]onv", compiled))


def test_the_number_of_torso_passes_does_not_grow_with_K():
    layers = 2
    # Forward: anchor, frozen, online.
    assert {passes(K, grad=False) for K in (2, 5, 10)} == {3 * layers}
    # Backward: one kernel gradient per layer and one input gradient for the second layer.
    assert {passes(K, grad=True) for K in (2, 5, 10)} == {3 * layers + layers + 1}


def test_values_and_spread_of_members():
    win = window(NETWORKS["mlp"], 4)
    chain = win.init(jax.random.key(0), example("mlp"))
    obs = random_batch("mlp", 0).obs
    values = win.values(dqn, chain.online, obs, jax.random.key(0))
    assert values.shape == (4, 32, 3)
    np.testing.assert_allclose(values[2, 5], win.Q(win.member(chain.online, 3))(obs[5]), rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: window(NETWORKS["mlp"], 0), "K must be at least 1"),
        (lambda: window(NETWORKS["mlp"], 2, shared=("trunk",)), "trunk"),
        (lambda: hard(0, 1), "at least 1"),
        (lambda: hard(2, 1, 4), "at most once"),
        (lambda: polyak(1.5), "tau"),
    ],
)
def test_nonsense_is_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()
