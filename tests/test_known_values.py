"""Every base loss, alone and in a chain, learns the action values of an MDP that is solved by hand.

    ½ ◂── 0 ── 1 ── 2 ── 3 ──▸ 1        γ = 0.7

Four states in a row. Left of state 0 the episode ends with a reward of ½, right of state 3 with a reward of 1; nothing else pays.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from iterq.bellman import Transition, c51, double_dqn, dqn, iqn, qr_dqn
from iterq.chain import gradient_step, hard, window
from iterq.networks import distributional_mlp, implicit_mlp, mlp

pytestmark = pytest.mark.medium

# To the right end from state s: 0.7^(3 - s) = 0.343, 0.49, 0.7, 1. To the left end: ½ · 0.7^s = 0.5, 0.35, 0.245, 0.1715.
# The better of both: V = 0.5, 0.49, 0.7, 1. State 0 takes the small reward at hand, all others go for the large one.
# Q(s, left) = 0.7 V(s - 1) and Q(s, right) = 0.7 V(s + 1), or the reward of the end.
VALUES = [
    [0.5, 0.343],  # ½             0.7 · 0.49
    [0.35, 0.49],  # 0.7 · 0.5     0.7 · 0.7
    [0.343, 0.7],  # 0.7 · 0.49    0.7 · 1
    [0.49, 1.0],  # 0.7 · 0.7     1
]
STATES = np.eye(4, dtype=np.float32)

# Largest errors seen over three seeds or more: 3e-7 without noise; 6e-5 for C51, whose softmax leaves some mass on every atom; 0.0064
# for IQN, whose gradient stays noisy because its levels are redrawn at every step. The tolerances leave room for other machines.
BASES = {
    "dqn": (dqn, mlp([32], 2), 1e-3),
    "double_dqn": (double_dqn, mlp([32], 2), 1e-3),
    "qr_dqn": (qr_dqn(8), distributional_mlp([32], 2, 8), 1e-3),
    "c51": (c51(-0.5, 1.5, 21), distributional_mlp([32], 2, 21), 1e-3),
    "iqn": (iqn(8, 8, 8), implicit_mlp([64], 2, cosines=8), 0.015),
}


def transitions() -> Transition:
    """(8, ...) every state with either action."""
    state, action = np.repeat(np.arange(4), 2), np.tile([0, 1], 4)
    moved = state + 2 * action - 1
    inside = (moved >= 0) & (moved <= 3)
    reward = np.where(moved < 0, 0.5, np.where(moved > 3, 1.0, 0.0)).astype(np.float32)
    return Transition(STATES[state], action, reward, np.float32(0.7 * inside), STATES[np.clip(moved, 0, 3)])


def learn(base: str, K: int, shared: tuple[str, ...], steps: int = 4_000) -> np.ndarray:
    """(4, 2) the action values of the last member."""
    bellman, parts, _ = BASES[base]
    win, batch, schedule = window(parts, K, shared), transitions(), hard(T=40, D=5)
    optimiser = optax.adam(optax.exponential_decay(1e-2, steps, 0.01))
    step = gradient_step(win, bellman, optimiser)

    @jax.jit
    def train(chain, moments):
        def body(carry, n):
            chain, moments, _ = step(*carry, batch, jax.random.key(n))
            return (schedule(win, chain, n), moments), None

        return jax.lax.scan(body, (chain, moments), 1 + jnp.arange(steps))[0][0]

    levels = [jnp.zeros(1)] if base == "iqn" else []
    chain = win.init(jax.random.key(0), STATES[0], *levels)
    online = train(chain, optimiser.init(chain.online)).online
    return np.asarray(win.values(bellman, online, STATES, jax.random.key(0))[-1])


@pytest.mark.parametrize(("K", "shared"), [(1, ()), (5, ()), (5, ("torso",))], ids=["alone", "independent", "shared"])
@pytest.mark.parametrize("base", BASES)
def test_the_last_member_ends_at_the_values_computed_by_hand(base, K, shared):
    np.testing.assert_allclose(learn(base, K, shared), VALUES, atol=BASES[base][2], rtol=0)
