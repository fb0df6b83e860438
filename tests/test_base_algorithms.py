"""K = 1 is the base algorithm, bit for bit: textbook programs written here without the library's chain."""

import jax
import jax.numpy as jnp
import optax
import pytest

from iterq.bellman import double_dqn, dqn
from iterq.chain import gradient_step, hard, polyak, window
from tests.helpers import NETWORKS, assert_same, example, random_batch

pytestmark = pytest.mark.medium

UPDATES, T, TAU = 200, 30, 0.02


def textbook(parts, rule, polyak_averaged):
    """One update of (double) DQN: the network applied to batches, a target network, Adam."""
    optimiser = optax.adam(1e-3, eps=1.5e-4)

    def q(params, obs):
        for name, part in parts.items():
            obs = jax.vmap(lambda x, part=part, name=name: part.apply({"params": params[name]}, x))(obs)
        return obs

    def loss(params, target, batch):
        rows = jnp.arange(len(batch.action))
        next_q = q(target, batch.next_obs)
        best = q(params, batch.next_obs).argmax(1) if rule == "double" else next_q.argmax(1)
        y = jax.lax.stop_gradient(batch.reward + batch.discount * next_q[rows, best])
        return jnp.mean((q(params, batch.obs)[rows, batch.action] - y) ** 2)

    @jax.jit
    def update(params, target, state, batch, n):
        grads = jax.grad(loss)(params, target, batch)
        updates, state = optimiser.update(grads, state)
        params = optax.apply_updates(params, updates)
        if polyak_averaged:
            target = jax.tree.map(lambda p, t: TAU * p + (1 - TAU) * t, params, target)
        else:
            target = jax.tree.map(lambda p, t: jnp.where(n % T == 0, p, t), params, target)
        return params, target, state

    return optimiser, update


@pytest.mark.parametrize("shared", [(), ("torso",)])
@pytest.mark.parametrize("kind", ["mlp", "conv"])
@pytest.mark.parametrize("rule", ["dqn", "double", "polyak"])
def test_a_chain_of_one_is_the_textbook_algorithm(rule, kind, shared):
    parts = NETWORKS[kind]
    optimiser, update = textbook(parts, rule, polyak_averaged=rule == "polyak")
    win = window(parts, K=1, shared=shared)
    step = gradient_step(win, double_dqn if rule == "double" else dqn, optimiser)
    schedule = polyak(TAU) if rule == "polyak" else hard(T, D=7)

    @jax.jit
    def iterated(chain, moments, batch, n):
        chain, moments, _ = step(chain, moments, batch, jax.random.key(n))
        return schedule(win, chain, n), moments

    chain = win.init(jax.random.key(0), example(kind))
    moments = optimiser.init(chain.online)
    params, target, state = chain.online, chain.anchor, moments
    start = params
    for n in range(1, UPDATES + 1):
        batch = random_batch(kind, seed=n)
        chain, moments = iterated(chain, moments, batch, n)
        params, target, state = update(params, target, state, batch, n)
    assert_same(chain.online, params)
    assert_same(chain.anchor, target)
    assert_same(moments, state)
    assert chain.frozen is None
    with pytest.raises(AssertionError):
        assert_same(start, params)  # and something was learned
