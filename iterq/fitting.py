"""Whether a base algorithm and a network go together, as their shapes tell: nothing is computed."""

from collections.abc import Callable
from typing import Any

import jax

from iterq.bellman import Bellman
from iterq.errors import Refusal
from iterq.networks import Network


def refuse_misfit(name: str, bellman: Bellman, net: Network, example: Callable[[], tuple[Any, Any, Any]], values: tuple | None) -> None:
    """Refuse the base algorithm called `name` if it cannot be learned with `net`.

    example: () -> (inputs that `net` is initialised with, a single transition, what `bellman.values` reads);
    values: the shape of what it then gives, None: any.
    """

    def tried(key: jax.Array) -> tuple[Any, Any]:
        inputs, transition, read = example()
        theta = net.init(key, *inputs)
        Q = lambda *x: net.apply(theta, *x)  # noqa: E731
        y = bellman.backup(Q, Q, transition, key)
        return bellman.values(Q, read, key), bellman.loss(Q, y, transition, key)

    try:
        found, loss = (x.shape for x in jax.eval_shape(tried, jax.random.key(0)))
    except Exception as error:  # whatever a network or a base algorithm of the user's own raises
        said = str(error).strip().partition("\n")[0]
        raise Refusal(f"bellman = {name} and this network do not go together: {type(error).__name__}: {said}") from error
    if values not in (found, None):
        raise Refusal(f"bellman = {name} reads values of shape {found} from this network; one for every action is {values}")
    if loss != ():
        raise Refusal(f"bellman = {name} gives a loss of shape {loss} for a single transition; it must be one number")
