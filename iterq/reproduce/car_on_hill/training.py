"""i-FQI on the data set: one program per K, scanned over gradient steps and mapped over seeds.

Proposition 4.1 is evaluated on the whole data set every 30th gradient step, as in the authors' code: between the parameters
before and after that step, which with D = 1 is between two syncs.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from iterq.bellman import dqn
from iterq.chain import Chain, Window, gradient_step, window
from iterq.diagnostics import Proposition, terms
from iterq.envs import car_on_hill as env
from iterq.networks import Network, Params, mlp
from iterq.networks import network as as_network
from iterq.reproduce.car_on_hill.data import Rows

CHECK_EVERY = 30  # gradient steps between two evaluations of Proposition 4.1
CACHED = 10  # networks trained side by side: their activations still fit a core's cache
BLOCK = 1023  # rows evaluated at a time, for the same reason


class Training(NamedTuple):
    """What one K leaves behind, for S seeds."""

    iterates: Params  # (S, N + 1, ...) Q₀ … Q_N: θ₁ at the end of each window, then the rest of the last one
    checks: Proposition  # (S, checks, K)

    def policies(self) -> Params:
        """(S·N, ...) Q₁ … Q_N of all seeds in a row."""
        return jax.tree.map(lambda x: x[:, 1:].reshape(-1, *x.shape[2:]), self.iterates)


def network(hidden: int) -> Network:
    """One hidden layer, one output per action."""
    return as_network(mlp([hidden], env.ACTIONS))


def authors_start(hidden: int, seed: int) -> Params:
    """The initial parameters of the authors' run with this seed.

    Table 1 of the paper comes from one seed, 11, and seeds differ much, so numbers are comparable only from the same start. It is what
    flax drew for two dense layers from PRNGKey(seed) with the random bits JAX used at the time.
    """

    class Authors(nn.Module):
        @nn.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            x = nn.relu(nn.Dense(hidden)(x))
            return nn.Dense(env.ACTIONS)(x)

    with jax.threefry_partitionable(False):
        drawn: Any = Authors().init(jax.random.PRNGKey(seed), jnp.zeros(2))["params"]
    first, second = ({"kernel": drawn[name]["kernel"].T, "bias": drawn[name]["bias"]} for name in ("Dense_0", "Dense_1"))
    return {"torso": {"Linear_0": first}, "head": second}


def train(
    rows: Rows,
    K: int,
    N: int,
    steps: int,
    seeds: Sequence[int],
    net: Network,
    starts: Sequence[Params],
    batch: int,
    learning_rate: float,
    tick: Callable[[], None],
) -> Training:
    """Learn `N` Bellman updates, `K` at a time, in windows of steps // (N - K + 1) gradient steps each.

    starts: for each seed, the parameters from which all networks of the window start. tick: called after every window.
    """
    win = window(net, K, frozen=False)
    optimiser = optax.adam(learning_rate)
    learn = gradient_step(win, dqn, optimiser)
    data = jax.tree.map(jnp.asarray, rows.transitions())
    measure = on_rows(win, cut(rows))
    T = steps // (N - K + 1)
    checks = T // CHECK_EVERY + 1  # at most, per window

    def init(theta: Params) -> tuple:
        chain = window(Network(lambda key, x: theta, net.apply), K, frozen=False).init(jax.random.key(0), None, identical=True)
        return chain, optimiser.init(chain.online)

    def run_window(start: jax.Array, seed: tuple) -> tuple:
        root, chain, moments = seed

        def step(carry: tuple, n: jax.Array) -> tuple:
            chain, moments, found = carry
            key = jax.random.fold_in(root, n)
            at = jax.random.randint(key, (batch,), 0, data.reward.shape[0])
            moved, moments, losses = learn(chain, moments, jax.tree.map(lambda x: x[at], data), key)

            def check(found: Proposition) -> Proposition:
                slot = n // CHECK_EVERY - start // CHECK_EVERY - 1
                return jax.tree.map(lambda f, x: f.at[slot].set(x), found, measure(chain, moved))

            found = jax.lax.cond(n % CHECK_EVERY == 0, check, lambda found: found, found)
            return (moved, moments, found), losses.sum()

        empty = Proposition(*(jnp.full((checks, K), jnp.nan) for _ in Proposition._fields))
        (chain, moments, found), losses = jax.lax.scan(step, (chain, moments, empty), start + 1 + jnp.arange(T))
        return (chain, moments), found, losses

    @jax.jit
    def advance(start: jax.Array, roots: jax.Array, chains: Chain, moments: Any) -> tuple:
        return jax.lax.map(lambda seed: run_window(start, seed), (roots, chains, moments), batch_size=max(1, CACHED // K))

    roots = jax.vmap(jax.random.key)(jnp.array(seeds))
    chains, moments = jax.vmap(init)(jax.tree.map(lambda *x: jnp.stack(x), *starts))
    iterates, found = [chains.anchor], []
    for w in range(N - K + 1):
        (chains, moments), checked, losses = advance(jnp.int32(w * T), roots, chains, moments)
        bad = np.argwhere(~np.isfinite(np.asarray(losses)).T)
        if len(bad):
            raise FloatingPointError(f"non-finite loss at gradient step {w * T + bad[0, 0] + 1} (K = {K}, seed {seeds[bad[0, 1]]})")
        found.append(jax.tree.map(lambda x, n=((w + 1) * T // CHECK_EVERY - w * T // CHECK_EVERY): np.asarray(x[:, :n]), checked))
        last = w == N - K
        iterates += [jax.vmap(win.member, in_axes=(0, None))(chains.online, k) for k in range(1, K + 1 if last else 2)]
        chains = jax.vmap(win.shift)(chains)
        tick()
    return Training(
        jax.tree.map(lambda *x: np.stack([np.asarray(v) for v in x], 1), *iterates),
        Proposition(*(np.concatenate(x, 1) for x in zip(*found, strict=True))),
    )


class Block(NamedTuple):
    """Consecutive rows with their successor: (blocks, BLOCK + 1, 2) states, the rest (blocks, BLOCK)."""

    state: jax.Array
    action: jax.Array
    reward: jax.Array
    discount: jax.Array
    weight: jax.Array  # 1 / number of transitions, 0 for rows that are none


def cut(rows: Rows) -> Block:
    """The rows in blocks, padded with rows of weight 0."""
    count = len(rows.reward)
    padded = -(-count // BLOCK) * BLOCK
    state = np.pad(rows.state, ((0, padded + 1 - count), (0, 0)))
    weight = rows.valid / rows.valid.sum()
    flat = (rows.action, rows.reward, rows.discount, weight.astype(np.float32))
    successor = state[np.arange(0, padded, BLOCK)[:, None] + np.arange(BLOCK + 1)]
    return Block(*map(jnp.asarray, (successor, *(np.pad(x, (0, padded - count)).reshape(-1, BLOCK) for x in flat))))


def on_rows(win: Window, blocks: Block) -> Callable[[Chain, Chain], Proposition]:
    """`diagnostics.proposition` with dqn over all rows, as a function of the chains before and after a step.

    The next state of a row is the next row, so one pass of each network serves as prediction and as target. Networks are evaluated one
    by one on blocks that stay in cache, features first: a fifth of the time of mapping over members and samples.
    """

    def look(chain: Chain, block: Block) -> tuple[jax.Array, jax.Array]:
        states = block.state.T
        q0 = win.Q(chain.anchor)(states)
        q = jax.lax.map(lambda k: win.Q(win.member(chain.online, k))(states), jnp.arange(1, win.K + 1))  # (K, A, BLOCK + 1)
        # yₖ = r + γ maxₐ′ Qₖ₋₁(s′, a′)
        v = jnp.concatenate([q0[None], q[:-1]]).max(1)[:, 1:]
        return block.reward + block.discount * v, jnp.where(block.action == 1, q[:, 1, :-1], q[:, 0, :-1])

    @jax.custom_batching.sequential_vmap
    def measure(before: Chain, after: Chain) -> Proposition:
        per_block = jax.lax.map(lambda block: terms(*look(before, block), *look(after, block), block.weight), blocks)
        return jax.tree.map(lambda x: x.sum(0), per_block)

    return measure


def approximation_errors(rows: Rows, net: Network, N: int) -> Callable[[Params], np.ndarray]:
    """A function of iterates (S, N + 1, ...): (S, N) ‖Γ̂Qₖ₋₁ - Qₖ‖² over the data set.

    Consecutive iterates are a chain of N, whatever K they were learned with.
    """
    measure = on_rows(window(net, N, frozen=False), cut(rows))

    def along(theta: Params) -> jax.Array:
        chain = Chain(jax.tree.map(lambda x: x[0], theta), jax.tree.map(lambda x: x[1:] if N > 1 else x[1], theta), None)
        return measure(chain, chain).before

    mapped = jax.jit(lambda iterates: jax.lax.map(along, iterates))
    return lambda iterates: np.asarray(mapped(iterates))
