"""Small environments in pure JAX: a whole episode, or a batch of them, is one `lax.scan` on the device.

    jax/CartPole-v1   balance a pole on a cart; Gymnasium's CartPole-v1 in float32
    jax/Catch         catch a falling ball with a paddle, seen as a board
    jax/Chain         a small reward near by on the left, a large one further on the right; Q* is known (`chain_values`)
    jax/CarOnHill     drive an underpowered car out of a valley

Rewards are float32 and `terminated` is bool; states keep the dtype they were reset with.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from iterq.envs import car_on_hill as hill
from iterq.envs.base import PureEnv

# CartPole (Barto, Sutton and Anderson, 1983) with Gymnasium's constants, in SI units.
GRAVITY = 9.8
POLE_MASS = 0.1
TOTAL_MASS = 1.1  # of pole and cart
HALF_LENGTH = 0.5  # of the pole
FORCE = 10.0
DT = 0.02
MAX_POSITION = 2.4
MAX_ANGLE = math.radians(12)
START = 0.05

SMALL = 0.1  # what the left end of the chain pays; the right end pays 1


def cart_pole() -> PureEnv:
    """The state, which is also the observation, is (4,): the cart's position x and velocity, the pole's angle φ and angular velocity."""

    def reset(key):
        return jax.random.uniform(key, (4,), jnp.float32, -START, START)

    def step(state, action, key):
        _, dx, phi, dphi = state
        sin, cos = jnp.sin(phi), jnp.cos(phi)
        # With f = (u + m l φ̇² sin φ) / M:  φ̈ = (g sin φ - f cos φ) / (l (4/3 - m cos² φ / M)),  ẍ = f - m l φ̈ cos φ / M
        f = (jnp.where(action == 1, FORCE, -FORCE) + POLE_MASS * HALF_LENGTH * dphi**2 * sin) / TOTAL_MASS
        ddphi = (GRAVITY * sin - f * cos) / (HALF_LENGTH * (4 / 3 - POLE_MASS * cos**2 / TOTAL_MASS))
        ddx = f - POLE_MASS * HALF_LENGTH * ddphi * cos / TOTAL_MASS
        state = state + DT * jnp.stack([dx, ddx, dphi, ddphi])  # explicit Euler: positions move at the old velocities
        fallen = (jnp.abs(state[0]) > MAX_POSITION) | (jnp.abs(state[2]) > MAX_ANGLE)
        return state, jnp.float32(1), fallen

    return PureEnv("jax/CartPole-v1", 2, 500, reset, step, lambda state: state)


class Catch(NamedTuple):
    """The state of `catch`: three int32 scalars."""

    row: jax.Array  # of the ball; 0 is the top
    column: jax.Array  # of the ball
    paddle: jax.Array  # its column, in the bottom row


def catch(rows: int = 10, columns: int = 5) -> PureEnv:
    """Actions 0, 1, 2 move the paddle left, not at all, right; the observation is a board (rows, columns) of zeros and ones."""
    if rows < 2 or columns < 1:
        raise ValueError(f"a ball cannot fall on a board of {rows} rows and {columns} columns")

    def reset(key):
        return Catch(jnp.int32(0), jax.random.randint(key, (), 0, columns, jnp.int32), jnp.int32(columns // 2))

    def step(state, action, key):
        paddle = jnp.clip(state.paddle + jnp.asarray(action, jnp.int32) - 1, 0, columns - 1)
        state = Catch(state.row + 1, state.column, paddle)
        landed = state.row == rows - 1
        caught = jnp.where(state.column == paddle, jnp.float32(1), jnp.float32(-1))
        return state, jnp.where(landed, caught, 0), landed

    def observe(state):
        def pixel(row, column):
            return jax.nn.one_hot(row, rows, dtype=jnp.float32)[:, None] * jax.nn.one_hot(column, columns, dtype=jnp.float32)

        # A caught ball covers the paddle: the board shows a single one.
        return jnp.maximum(pixel(state.row, state.column), pixel(rows - 1, state.paddle))

    # The ball lands after rows - 1 steps, so this horizon never truncates.
    return PureEnv("jax/Catch", 3, rows, reset, step, observe)


def chain(length: int = 5, slip: float = 0.0) -> PureEnv:
    """States 0 … length - 1 in a row, of which both ends terminate: entering the left one pays `SMALL`, the right one 1.

    Action 0 moves left and 1 right, or the other way with probability `slip`. Episodes start a third of the way from the left,
    where the small reward is the nearer one. The observation is one-hot (length,).
    """
    _check(length)

    def reset(key):
        return jnp.int32(length // 3)

    def step(state, action, key):
        right = (action == 1) ^ jax.random.bernoulli(key, slip)
        state = jnp.clip(state + jnp.where(right, 1, -1), 0, length - 1)
        left_end, right_end = state == 0, state == length - 1
        return state, jnp.float32(SMALL) * left_end + right_end, left_end | right_end

    return PureEnv("jax/Chain", 2, 10 * length, reset, step, lambda state: jax.nn.one_hot(state, length, dtype=jnp.float32))


def chain_values(length: int, gamma: float) -> np.ndarray:
    """(length, 2) Q* of `chain(length)` without slip; zero at the two ends, where there is nothing to gain.

    From s the action leads to s' = s ± 1. At an end, Q is that end's reward. Elsewhere no detour is worth while, and one walks
    straight to the better end, (length - 1) - s' or s' steps away, each of which discounts its reward once:

        Q*(s, a) = max(γ^(length - 1 - s'), SMALL γ^s')
    """
    _check(length)
    s = np.arange(length)[:, None] + [-1, 1]  # s', (length, 2)
    s = np.clip(s, 0, length - 1)  # only in the rows of the ends, which are zero
    right, left = float(gamma) ** (length - 1 - s), SMALL * float(gamma) ** s
    Q = np.where(s == 0, SMALL, np.maximum(right, left))
    Q[[0, -1]] = 0
    return Q


def _check(length: int) -> None:
    if length < 3:
        raise ValueError(f"a chain of length {length} has no state between its ends")


def car_on_hill() -> PureEnv:
    """The car of `iterq.envs.car_on_hill`, always from its start at rest; the state (2,) is the observation."""

    def step(state, action, key):
        state, reward, terminated = hill.step(state, action)
        return state, reward, terminated

    return PureEnv("jax/CarOnHill", hill.ACTIONS, 100, lambda key: jnp.array(hill.START, jnp.float32), step, lambda state: state)


PURE: dict[str, Callable[[], PureEnv]] = {
    "jax/CartPole-v1": cart_pole,
    "jax/Catch": catch,
    "jax/Chain": chain,
    "jax/CarOnHill": car_on_hill,
}
