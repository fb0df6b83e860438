"""Approximation errors over the whole data set, at the speed that hundreds of thousands of evaluations need.

The next state of a row is the next row, so one pass of each network serves as prediction and as target. Networks are evaluated one by
one on blocks of rows that stay in cache, features first: a fifth of the time that mapping over members and samples takes.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from iterq.chain import Chain, Window, window
from iterq.diagnostics import Proposition, terms
from iterq.networks import Network, Params
from iterq.reproduce.car_on_hill.data import Rows

BLOCK = 1023  # rows at a time; with their successor they fill whole vectors


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
    flat = (rows.action, rows.reward, rows.discount, (rows.valid / rows.valid.sum()).astype(np.float32))
    successor = state[np.arange(0, padded, BLOCK)[:, None] + np.arange(BLOCK + 1)]
    return Block(*map(jnp.asarray, (successor, *(np.pad(x, (0, padded - count)).reshape(-1, BLOCK) for x in flat))))


def proposition_on_rows(win: Window) -> Callable[[Chain, Chain, Block], Proposition]:
    """`diagnostics.proposition` with dqn over all rows, as a function of the chains before and after a step and of the rows."""

    def look(chain: Chain, block: Block) -> tuple[jax.Array, jax.Array]:
        states = block.state.T
        q0 = win.Q(chain.anchor)(states)
        q = jax.lax.map(lambda k: win.Q(win.member(chain.online, k))(states), jnp.arange(1, win.K + 1))  # (K, A, BLOCK + 1)
        # yₖ = r + γ maxₐ′ Qₖ₋₁(s′, a′)
        v = jnp.concatenate([q0[None], q[:-1]]).max(1)[:, 1:]
        return block.reward + block.discount * v, jnp.where(block.action == 1, q[:, 1, :-1], q[:, 0, :-1])

    @jax.custom_batching.sequential_vmap
    def measure(before: Chain, after: Chain, blocks: Block) -> Proposition:
        per_block = jax.lax.map(lambda block: terms(*look(before, block), *look(after, block), block.weight), blocks)
        return jax.tree.map(lambda x: x.sum(0), per_block)

    return measure


def approximation_errors(rows: Rows, net: Network, N: int) -> Callable[[Params], np.ndarray]:
    """A function of iterates (S, N + 1, ...): (S, N) ‖Γ̂Qₖ₋₁ - Qₖ‖² over the data set.

    Consecutive iterates are a chain of N, whatever K they were learned with.
    """
    measure, blocks = proposition_on_rows(window(net, N, frozen=False)), cut(rows)

    def along(theta: Params, blocks: Block) -> jax.Array:
        chain = Chain(jax.tree.map(lambda x: x[0], theta), jax.tree.map(lambda x: x[1:] if N > 1 else x[1], theta), None)
        return measure(chain, chain, blocks).before

    mapped = jax.jit(lambda iterates, blocks: jax.lax.map(lambda theta: along(theta, blocks), iterates))
    return lambda iterates: np.asarray(mapped(iterates, blocks))
