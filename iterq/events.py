"""When a window moves, and how: after the gradient step of step n it stays, its targets are synced, or all of it shifts."""

from collections.abc import Callable, Mapping
from typing import Any

import jax

STAY, SYNC, SHIFT = range(3)  # what happens to a window; whoever knows may say so, and the program need not ask


def due(n: Any, period: Any, G: Any = 1) -> Any:
    """Whether a multiple of `period` lies in [n, n + G - 1], the environment steps from this gradient step to the next."""
    return (n + G - 1) // period > (n - 1) // period


def event_at(n: Any, T: int, D: int, G: int = 1) -> Any:
    """What happens after the gradient of step `n`; a shift contains a sync."""
    shift, sync = due(n, T, G), due(n, D, G)
    return SHIFT * shift + SYNC * sync * (1 - shift)


def choose(event: Any, moves: Mapping[int, Callable], x: Any) -> Any:
    """What the move of `event` makes of `x`: chosen here, if the event is known, and otherwise by the program."""
    return moves[event](x) if isinstance(event, int) else jax.lax.switch(event, [moves[known] for known in (STAY, SYNC, SHIFT)], x)
