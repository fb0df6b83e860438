"""Prioritised sampling (Schaul et al., 2016), with the choices of Rainbow: a sum tree on the accelerator.

    node 1 is the root, node i has children 2i and 2i + 1, the leaf of slot c is node size + c; a node holds the sum below it

A start of a transition is drawn in proportion to p = √ℓ, its loss when it was last seen, or the largest p so far if it never was.
Its loss is weighted by p^(-1/2), scaled so that the largest weight of a batch is 1.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Tree(NamedTuple):
    """Priorities of all slots."""

    nodes: Any  # (2 · size,)
    largest: Any  # () the largest priority ever written after learning


def _size(capacity: int) -> int:
    return 1 << (capacity - 1).bit_length()


def nbytes(capacity: int) -> int:
    return 8 * _size(capacity) + 4


def empty(capacity: int) -> Tree:
    """No slot can be drawn."""
    return Tree(jnp.zeros(2 * _size(capacity), jnp.float32), jnp.float32(1))


def write(tree: Tree, slots: jax.Array, values: jax.Array) -> Tree:
    """Give `slots` (M,) the priorities `values` (M,); of a slot that stands twice the larger counts, whatever the order."""
    node = tree.nodes.size // 2 + slots
    nodes = tree.nodes.at[node].set(0).at[node].max(values)
    for _ in range((tree.nodes.size // 2).bit_length() - 1):
        node = node // 2
        nodes = nodes.at[node].set(nodes[2 * node] + nodes[2 * node + 1])
    return tree._replace(nodes=nodes)


def draw(tree: Tree, key: jax.Array, batch: int) -> tuple[jax.Array, jax.Array]:
    """(batch,) slots, one from each of `batch` equal shares of the total priority, and (batch,) weights of their losses."""
    nodes, size = tree.nodes, tree.nodes.size // 2
    rest = (jnp.arange(batch) + jax.random.uniform(key, (batch,))) / batch * nodes[1]
    node = jnp.ones(batch, jnp.int32)
    for _ in range(size.bit_length() - 1):
        left = nodes[2 * node]
        # Never into an empty half, wherever rounding has put `rest`.
        right = (rest >= left) & (nodes[2 * node + 1] > 0)
        rest, node = jnp.where(right, rest - left, rest), 2 * node + right
    weight = nodes[node] ** -0.5
    return node - size, weight / weight.max()


def learned(tree: Tree, slots: jax.Array, losses: jax.Array) -> Tree:
    """After learning on `slots` (M,) with unweighted `losses` (M,)."""
    p = jnp.sqrt(losses + 1e-10)
    return write(tree._replace(largest=jnp.maximum(tree.largest, p.max())), slots, p)
