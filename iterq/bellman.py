"""What one Bellman update is, for one transition: the operator Γ̂ and the projection that follows it.

    Q̄   the function the update starts from, held fixed       Γ̂Q̄(s, a)  its empirical Bellman update
    Q    the function that learns to be that update

`Q` and `Q̄` are callables with their parameters bound: `Q(obs)` is one value per action, or one distribution per action, with the
action axis first. Nothing here knows about batches, chains or networks, so a new base algorithm is a `Bellman` of a few lines,
inside this library or outside of it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Q = Callable[..., jax.Array]


class Transition(NamedTuple):
    """One (s, a, r, γ, s′), or a batch of them with a leading axis on every leaf."""

    obs: Any
    action: Any
    reward: Any
    discount: Any  # γ, or γⁿ over n steps; 0 where the episode terminated
    next_obs: Any


class SoftTransition(NamedTuple):
    """A transition and what the policy does after it."""

    obs: Any
    action: Any
    reward: Any
    discount: Any
    next_obs: Any
    next_action: Any  # a′ ~ π(s′), the same for every member of a chain and for both critics
    bonus: Any  # -α log π(a′ | s′)


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


def fixed_policy(pi: Callable[[Any], jax.Array]) -> Bellman:
    """Γ^π, to evaluate a policy that is given (Equation 2): pi(obs) is (A,), the probabilities of its actions."""

    def backup(Qb: Q, Q: Q, t: Transition, key: jax.Array) -> jax.Array:
        # r + γ Σₐ′ π(a′ | s′) Q̄(s′, a′)
        return t.reward + t.discount * (pi(t.next_obs) * Qb(t.next_obs)).sum()

    return Bellman(backup, squared, action_values)


def weighted(bellman: Bellman) -> Bellman:
    """The same with the loss of every transition multiplied by its `weight` (prioritised replay)."""
    return bellman._replace(loss=lambda Q, y, t, key: t.weight * bellman.loss(Q, y, t, key))


def quantile_huber(q: jax.Array, tau: Any, y: jax.Array, kappa: float = 1.0) -> jax.Array:
    """Distance from the quantiles q (N,), predicted at the levels tau (N,), to the target quantiles y (N',); κ > 0."""
    # δᵢⱼ = yⱼ - qᵢ
    delta = y[None, :] - q[:, None]
    # Hκ(δ) = ½δ² where |δ| ≤ κ, and κ(|δ| - ½κ) beyond
    huber = jnp.where(jnp.abs(delta) <= kappa, 0.5 * delta**2, kappa * (jnp.abs(delta) - 0.5 * kappa))
    # Σᵢ 1/N' Σⱼ |τᵢ - 1{δᵢⱼ < 0}| Hκ(δᵢⱼ) / κ
    return (jnp.abs(tau[:, None] - (delta < 0)) * huber / kappa).mean(1).sum()


def qr_dqn(N: int = 200, kappa: float = 1.0) -> Bellman:
    """Quantile regression (Dabney et al., 2018a): Q(obs) is (A, N), the quantiles of the return at N fixed levels; so is y, (N,)."""
    # τᵢ = (i + ½) / N,  i = 0 … N - 1
    tau = (np.arange(N, dtype=np.float32) + 0.5) / N

    def values(Q: Q, obs: Any, key: jax.Array) -> jax.Array:
        return Q(obs).mean(1)

    def backup(Qb: Q, Q: Q, t: Transition, key: jax.Array) -> jax.Array:
        # r + γ Q̄(s′, a*),  a* = argmaxₐ′ 1/N Σᵢ Q̄ᵢ(s′, a′)
        q = Qb(t.next_obs)
        return t.reward + t.discount * q[q.mean(1).argmax()]

    def loss(Q: Q, y: jax.Array, t: Transition, key: jax.Array) -> jax.Array:
        return quantile_huber(Q(t.obs)[t.action], tau, y, kappa)

    return Bellman(backup, loss, values)


def c51(low: float = -10.0, high: float = 10.0, atoms: int = 51) -> Bellman:
    """Categorical returns (Bellemare et al., 2017): Q(obs) is (A, M), logits over M evenly spaced returns z; y is (M,), probabilities."""
    if not (low < high and atoms > 1):
        raise ValueError(f"a support needs low < high and two atoms or more, got {low}, {high}, {atoms}")
    gap = (high - low) / (atoms - 1)
    # zᵢ = low + iΔ,  i = 0 … M - 1
    i = np.arange(atoms, dtype=np.float32)
    z = np.linspace(low, high, atoms, dtype=np.float32)

    def mean(logits: jax.Array) -> jax.Array:
        return (jax.nn.softmax(logits) * z).sum(-1)

    def values(Q: Q, obs: Any, key: jax.Array) -> jax.Array:
        return mean(Q(obs))

    def backup(Qb: Q, Q: Q, t: Transition, key: jax.Array) -> jax.Array:
        logits = Qb(t.next_obs)
        p = jax.nn.softmax(logits[mean(logits).argmax()])
        # bⱼ = (r + γzⱼ - low) / Δ, where atom j lands, counted in atoms. Written with γj, r = 0 and γ = 1 move nothing at all.
        b = jnp.clip((t.reward - (1 - t.discount) * low) / gap + t.discount * i, 0, atoms - 1)
        # yᵢ = Σⱼ pⱼ [1 - |bⱼ - i|]₊: neighbours share by closeness; all goes to one of them when b is whole. A sum, because a matrix
        # product may be rounded to fewer bits on an accelerator and y would not add up to one.
        return (p[:, None] * jnp.maximum(1 - jnp.abs(b[:, None] - i), 0)).sum(0)

    def loss(Q: Q, y: jax.Array, t: Transition, key: jax.Array) -> jax.Array:
        # -Σᵢ yᵢ log pᵢ(s, a)
        return -(y * jax.nn.log_softmax(Q(t.obs)[t.action])).sum()

    return Bellman(backup, loss, values)


def iqn(N: int = 64, N_target: int = 64, N_policy: int = 32, kappa: float = 1.0) -> Bellman:
    """Implicit quantiles (Dabney et al., 2018b): Q(obs, tau) is (A, len(tau)), quantiles at levels drawn anew for every use."""

    def values(Q: Q, obs: Any, key: jax.Array) -> jax.Array:
        return Q(obs, jax.random.uniform(key, (N_policy,))).mean(1)

    def backup(Qb: Q, Q: Q, t: Transition, key: jax.Array) -> jax.Array:
        # Levels of their own for the choice: with those of the values, it would favour the action whose sample came out high.
        key_policy, key_target = jax.random.split(key)
        # r + γ Q̄(s′, a*; τ′),  a* = argmaxₐ′ meanτ̃ Q̄(s′, a′; τ̃)
        action = values(Qb, t.next_obs, key_policy).argmax()
        return t.reward + t.discount * Qb(t.next_obs, jax.random.uniform(key_target, (N_target,)))[action]

    def loss(Q: Q, y: jax.Array, t: Transition, key: jax.Array) -> jax.Array:
        tau = jax.random.uniform(key, (N,))
        return quantile_huber(Q(t.obs, tau)[t.action], tau, y, kappa)

    return Bellman(backup, loss, values)


def soft_backup(Qb: Q, Q: Q, t: SoftTransition, key: jax.Array) -> jax.Array:
    """r + γ (minᵢ Q̄ᵢ(s′, a′) - α log π(a′ | s′))"""
    return t.reward + t.discount * (Qb(t.next_obs, t.next_action, key).min() + t.bonus)


def soft_loss(Q: Q, y: jax.Array, t: SoftTransition, key: jax.Array) -> jax.Array:
    """Σᵢ (Qᵢ(s, a) - y)²"""
    return ((Q(t.obs, t.action, key) - y) ** 2).sum()


def critic_values(Q: Q, obs: Any, key: jax.Array) -> jax.Array:
    """(2,) Qᵢ(s, a) of a pair (s, a)."""
    return Q(*obs, key)


# Soft actor-critic (Haarnoja et al., 2018): Q(obs, action, key) is (2,), a pair of critics; `key` is for dropout.
soft = Bellman(soft_backup, soft_loss, critic_values)
