"""Car on the hill (Ernst et al., 2005): an underpowered car in a valley, two actions, two state variables.

    state   (p, v)   position and velocity along the horizontal axis
    action  0, 1     a constant force u = -4, +4 for 0.1 s
    reward  -1       the car leaves on the left (p < -1) or gets too fast (|v| > 3); terminal
            +1       it leaves on the right (p > 1) at |v| <= 3; terminal
             0       otherwise

With the hill h(p) = p² + p for p < 0 and p / √(1 + 5p²) beyond, unit mass and g = 9.81, the motion is

    v̇ = (u - g h′ - v² h′ h″) / (1 + h′²)

h″ jumps from 2 to 0 at p = 0, which would cost any fixed-step integrator its order. So each sub-step integrates one
smooth side of the hill, and a sub-step that crosses p = 0 is cut there. Every function computes in the dtype of its input.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

GRAVITY = 9.81
FORCE = 4.0
DT = 0.1
SUBSTEPS = 16
MAX_POSITION = 1.0
MAX_VELOCITY = 3.0
START = (-0.5, 0.0)
ACTIONS = 2


class Outcome(NamedTuple):
    """What one step returns: the next state (..., 2), the reward, and whether the episode terminated."""

    state: Any
    reward: Any
    terminated: Any


def hill(p: jax.Array) -> jax.Array:
    """Height of the hill at position `p`."""
    return jnp.where(p < 0, p * p + p, p / jnp.sqrt(1 + 5 * p * p))


def acceleration(p: jax.Array, v: jax.Array, u: jax.Array, left: jax.Array) -> jax.Array:
    """v̇ on the side `left` of the hill, extended smoothly beyond p = 0."""
    q = 1 / (1 + 5 * p * p)
    root = jnp.sqrt(q)
    h1 = jnp.where(left, 2 * p + 1, q * root)  # h′
    h2 = jnp.where(left, 2.0, -15 * p * q * q * root)  # h″
    return (u - GRAVITY * h1 - v * v * h1 * h2) / (1 + h1 * h1)


def runge_kutta(p, v, u, left, dt):
    """One classical fourth-order step of ṗ = v, v̇ = acceleration."""
    a1 = acceleration(p, v, u, left)
    v2 = v + dt / 2 * a1
    a2 = acceleration(p + dt / 2 * v, v2, u, left)
    v3 = v + dt / 2 * a2
    a3 = acceleration(p + dt / 2 * v2, v3, u, left)
    v4 = v + dt * a3
    a4 = acceleration(p + dt * v3, v4, u, left)
    return p + dt / 6 * (v + 2 * v2 + 2 * v3 + v4), v + dt / 6 * (a1 + 2 * a2 + 2 * a3 + a4)


def crossing_time(p0, v0, p1, v1, dt):
    """When the cubic through (p0, v0) at 0 and (p1, v1) at `dt` meets p = 0; p0 and p1 lie on different sides."""
    c2 = 3 * (p1 - p0) - dt * (2 * v0 + v1)
    c3 = -2 * (p1 - p0) + dt * (v0 + v1)
    x = p0 / jnp.where(p0 == p1, 1, p0 - p1)  # the chord's root, then Newton's
    for _ in range(4):
        value = p0 + x * (dt * v0 + x * (c2 + x * c3))
        slope = dt * v0 + x * (2 * c2 + x * 3 * c3)
        x = jnp.clip(x - value / jnp.where(slope == 0, 1, slope), 0, 1)
    return x * dt


def flow(state: jax.Array, action: jax.Array) -> jax.Array:
    """(..., 2) the state 0.1 s later under a constant force."""
    p, v = state[..., 0], state[..., 1]
    u = FORCE * (2 * jnp.asarray(action, p.dtype) - 1)
    dt = DT / SUBSTEPS

    def substep(_, at):
        p, v = at
        left = (p < 0) | ((p == 0) & (v < 0))
        p1, v1 = runge_kutta(p, v, u, left, dt)
        crosses = (p1 < 0) != left
        t = crossing_time(p, v, p1, v1, dt)
        _, v0 = runge_kutta(p, v, u, left, t)
        p2, v2 = runge_kutta(jnp.zeros_like(p), v0, u, ~left, dt - t)
        return jnp.where(crosses, p2, p1), jnp.where(crosses, v2, v1)

    p, v = jax.lax.fori_loop(0, SUBSTEPS, substep, (p, v))
    return jnp.stack([p, v], -1)


def step(state: jax.Array, action: jax.Array) -> Outcome:
    """One environment step from `state` (..., 2) under `action` (...)."""
    state = flow(state, action)
    p, v = state[..., 0], state[..., 1]
    fails = (p < -MAX_POSITION) | (jnp.abs(v) > MAX_VELOCITY)
    wins = (p > MAX_POSITION) & ~fails
    return Outcome(state, wins.astype(p.dtype) - fails.astype(p.dtype), wins | fails)
