"""Munchausen DQN (Vieillard et al., 2020) as a base algorithm from outside the library, and a chain of five of them.

    y = r + α [τ log π̄(a|s)]ₗ⁰ + γ Σₐ′ π̄(a′|s′) (Q̄(s′, a′) - τ log π̄(a′|s′))        π̄ = softmax(Q̄ / τ)

A base algorithm is a `Bellman`: what is learned (`backup`), how (`loss`) and what a greedy policy reads (`values`), for one transition.
Nothing else is needed to learn K of its Bellman updates at once. Run me: python examples/munchausen.py
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from iterq.bellman import Bellman, Transition, dqn
from iterq.chain import gradient_step, hard, window
from iterq.networks import mlp


def munchausen(tau: float = 0.03, alpha: float = 0.9, lowest: float = -1.0) -> Bellman:
    """Munchausen DQN with temperature `tau`, log-policy bonus `alpha` clipped below at `lowest`; the paper's Atari values."""

    def backup(Qb, Q, t, key):
        log_pi = tau * jax.nn.log_softmax(Qb(t.obs) / tau)
        q, next_log_pi = Qb(t.next_obs), tau * jax.nn.log_softmax(Qb(t.next_obs) / tau)
        bonus = jnp.clip(log_pi[t.action], lowest, 0)
        return t.reward + alpha * bonus + t.discount * (jax.nn.softmax(q / tau) @ (q - next_log_pi))

    return dqn._replace(backup=backup)


def two_states(gamma: float = 0.9) -> Transition:
    """All transitions of a small MDP: action 1 moves to the other state and pays 1 when it leaves state 0, action 0 stays and pays 0."""
    state, action = np.repeat([0, 1], 2), np.tile([0, 1], 2)
    one_hot = np.eye(2, dtype=np.float32)
    reward = np.float32((state == 0) & (action == 1))
    return Transition(one_hot[state], action, reward, np.full(4, gamma, np.float32), one_hot[(state + action) % 2])


def learn(bellman: Bellman, K: int, steps: int = 6_000) -> np.ndarray:
    """(2, 2) the action values that the last member of a chain of `K` ends with."""
    win = window(mlp([32], 2), K, shared=("torso",))
    optimiser = optax.adam(optax.exponential_decay(3e-3, steps, 0.01))
    step, schedule, batch = gradient_step(win, bellman, optimiser, jnp.mean), hard(T=60, D=10), two_states()

    @jax.jit
    def train(chain, moments):
        def body(carry, n):
            chain, moments, _ = step(*carry, batch, jax.random.key(n))
            return (schedule(win, chain, n), moments), None

        return jax.lax.scan(body, (chain, moments), 1 + jnp.arange(steps))[0][0]

    chain = win.init(jax.random.key(0), jnp.zeros(2))
    chain = train(chain, optimiser.init(chain.online))
    return np.asarray(win.values(bellman, chain.online, np.eye(2, dtype=np.float32), jax.random.key(0))[-1])


def fixed_point(tau: float = 0.03, alpha: float = 0.9, lowest: float = -1.0) -> np.ndarray:
    """(2, 2) the values that Munchausen's operator leaves where they are, by iterating it on a table."""
    t, q = two_states(), np.zeros((2, 2))
    for _ in range(2_000):
        log_pi = q - q.max(1, keepdims=True) - tau * np.log(np.exp((q - q.max(1, keepdims=True)) / tau).sum(1, keepdims=True))
        v = (np.exp(log_pi / tau) * (q - log_pi)).sum(1)
        s, s_next = t.obs.argmax(1), t.next_obs.argmax(1)
        q = (t.reward + alpha * np.clip(log_pi[s, t.action], lowest, 0) + t.discount * v[s_next]).reshape(2, 2)
    return q


if __name__ == "__main__":
    print("fixed point of the operator\n", fixed_point().round(3))
    for K in (1, 5):
        print(f"i-Munchausen-DQN, K = {K}\n", learn(munchausen(), K).round(3))
