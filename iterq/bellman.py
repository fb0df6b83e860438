"""What one Bellman update is, for one transition: the operator Γ̂ and the projection that follows it.

    Q̄   the function the update starts from, held fixed       Γ̂Q̄(s, a)  its empirical Bellman update
    Q    the function that learns to be that update

`Q` and `Q̄` are callables with their parameters bound: `Q(obs)` is one value per action. Nothing here knows about batches,
chains or networks, so a new base algorithm is a `Bellman` of a few lines, inside this library or outside of it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

Q = Callable[..., jax.Array]


class Transition(NamedTuple):
    """One (s, a, r, γ, s′), or a batch of them with a leading axis on every leaf."""

    obs: Any
    action: Any
    reward: Any
    discount: Any  # γ, or γⁿ over n steps; 0 where the episode terminated
    next_obs: Any


class Bellman(NamedTuple):
    """A base algorithm. Every function is written for a single transition."""

    backup: Callable[[Q, Q, Any, jax.Array], Any]  # (Q̄, Q, transition, key) -> y        y = Γ̂Q̄(s, a)
    loss: Callable[[Q, Any, Any, jax.Array], jax.Array]  # (Q, y, transition, key) -> scalar   distance from Q(s, a) to y
    values: Callable[[Q, Any, jax.Array], jax.Array]  # (Q, obs, key) -> (A,)     what a greedy policy reads


def action_values(Q: Q, obs: Any, key: jax.Array) -> jax.Array:
    """(A,) Q(s, ·)"""
    return Q(obs)


def squared(Q: Q, y: jax.Array, t: Transition, key: jax.Array) -> jax.Array:
    """(Q(s, a) - y)²"""
    return (Q(t.obs)[t.action] - y) ** 2


def greedy_backup(Qb: Q, Q: Q, t: Transition, key: jax.Array) -> jax.Array:
    """r + γ maxₐ′ Q̄(s′, a′)"""
    return t.reward + t.discount * Qb(t.next_obs).max()


def double_backup(Qb: Q, Q: Q, t: Transition, key: jax.Array) -> jax.Array:
    """r + γ Q̄(s′, argmaxₐ′ Q(s′, a′))"""
    return t.reward + t.discount * Qb(t.next_obs)[Q(t.next_obs).argmax()]


dqn = Bellman(greedy_backup, squared, action_values)
double_dqn = Bellman(double_backup, squared, action_values)
