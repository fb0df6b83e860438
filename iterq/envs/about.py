"""What a run notes of its environment in `env.json`: enough to see what it was, and that it is still the same when the run goes on."""

import contextlib
import importlib.metadata
import inspect
import math
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from iterq.envs.base import PureEnv, Spec

SIMULATORS = {  # packages behind the environments of a module
    "gymnasium.envs.mujoco": ["mujoco"],
    "gymnasium.envs.box2d": ["Box2D"],
    "iterq.emulator": ["ale-py", "opencv-python-headless"],
}
OF_EVERY_RUN = ("iterq", "gymnasium", "builtins", "typing", "abc")  # modules whose versions are noted anyway, or go with Python


class About(NamedTuple):
    """What there is to note of an environment."""

    said: dict[str, Any]  # in the words of JSON
    packages: list[str]  # that decide what it does, apart from `OF_EVERY_RUN`


def about(env: Any, **more: Any) -> About:
    """A Gymnasium environment: its class, the settings in force, and what is wrapped around it.

    more: settings that are no arguments of its class.
    """
    inner, wrappers = env, []
    while isinstance(inner, gymnasium.Wrapper):
        wrappers.append(type(inner).__name__)
        inner = inner.env
    kind = type(inner)
    settings: dict[str, Any] = {}
    with contextlib.suppress(ValueError, TypeError):  # not every class tells its arguments
        given = inspect.signature(kind.__init__).parameters.values()
        settings = {p.name: p.default for p in given if p.default is not p.empty}
    said = {
        "class": f"{kind.__module__}:{kind.__qualname__}",
        "max_episode_steps": env.spec.max_episode_steps if env.spec else None,
        "settings": {**settings, **(env.spec.kwargs if env.spec else {}), **more},
        "wrappers": wrappers,
        "observation_space": str(env.observation_space),
        "action_space": str(env.action_space),
    }
    return About(plain(said), packages(kind))


def packages(kind: type) -> list[str]:
    """Of a class and those it inherits from."""
    found: set[str] = set()
    for module in {parent.__module__ for parent in kind.__mro__}:
        found |= {package for prefix, behind in SIMULATORS.items() if module.startswith(prefix) for package in behind}
        top = module.partition(".")[0]
        if top not in OF_EVERY_RUN:
            found |= set(_distributions().get(top, ()))
    return sorted(found)


@cache
def _distributions() -> Mapping[str, list[str]]:
    return importlib.metadata.packages_distributions()  # takes a moment


def about_pure(env: PureEnv, spec: Spec) -> About:
    """The same of an environment that is pure functions."""
    return About({"max_episode_steps": env.horizon, "observations": f"{spec.dtype} {spec.shape}", "actions": env.actions}, [])


def plain(x: Any) -> Any:
    """`x` in the words of JSON; what has none is known by its type."""
    if isinstance(x, Mapping):
        return {str(name): plain(value) for name, value in x.items()}
    if isinstance(x, list | tuple):
        return [plain(value) for value in x]
    if isinstance(x, np.ndarray | np.generic):
        return plain(x.tolist())
    if isinstance(x, float) and not math.isfinite(x):
        return str(x)
    return x if isinstance(x, str | int | float | None) else type(x).__name__
