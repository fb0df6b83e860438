"""What an environment is: pure functions of a single instance, and what an agent must know of it."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np


class PureEnv(NamedTuple):
    """An environment of pure functions, for a single instance. Time limits and resets are the driver's business.

    A step from a terminated state is not defined: the driver resets first.
    """

    name: str
    actions: int  # actions are 0 … actions - 1
    horizon: int  # an episode is truncated after this many steps
    reset: Callable[[jax.Array], Any]  # key -> state (a pytree)
    step: Callable[[Any, jax.Array, jax.Array], tuple[Any, jax.Array, jax.Array]]  # (state, action, key) -> (state, reward, terminated)
    observe: Callable[[Any], jax.Array]  # state -> observation


class Spec(NamedTuple):
    """What an agent must know of an environment."""

    name: str
    shape: tuple[int, ...]  # of one observation
    dtype: str  # of one observation
    actions: int  # how many there are; of what length they are, where they are vectors
    states: int | None  # where observations are indices 0 … states - 1 (shape (), dtype int32): how many; else None
    first_action: int = 0  # what the environment itself calls action 0
    low: tuple[float, ...] = ()  # where actions are vectors: the bounds of the environment's; those of an agent lie in [-1, 1]
    high: tuple[float, ...] = ()

    @property
    def continuous(self) -> bool:
        """Whether actions are vectors."""
        return bool(self.low)

    @property
    def action(self) -> np.dtype:
        """The type of an agent's action."""
        return np.dtype(("<f4", (self.actions,))) if self.continuous else np.dtype("<i4")

    def outside(self, action: Any) -> Any:
        """What the environment itself calls an agent's action, or a batch of them."""
        if not self.continuous:
            return action + self.first_action
        low, half = _bounds(self.low, self.high)
        return low + (np.asarray(action, np.float32) + 1) * half


@cache
def _bounds(low: tuple[float, ...], high: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The lower end and half the width, as arrays."""
    least, most = np.array(low, np.float32), np.array(high, np.float32)
    return least, (most - least) / 2


def spec(env: PureEnv, states: int | None = None) -> Spec:
    """The specification of `env`, from the types of its functions alone: nothing is computed."""
    observation = jax.eval_shape(lambda: env.observe(env.reset(jax.random.key(0))))
    shape, dtype = observation.shape, observation.dtype.name
    if states is not None and (shape, dtype) != ((), "int32"):
        raise ValueError(f"{env.name}: one of {states} states is observed as an int32 scalar, not as {dtype} of shape {shape}")
    return Spec(env.name, shape, dtype, env.actions, states)
