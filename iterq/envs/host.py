"""What a Gymnasium environment is to an agent, from its spaces."""

import copy
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from iterq.envs.about import About, about
from iterq.envs.base import Spec
from iterq.errors import Refusal
from iterq.worker import gymnasium_env

EXTRAS = {"mujoco": "mujoco", "box2d": "box2d", "pygame": "video"}  # what Gymnasium says is missing, and the extra that brings it
BODY = "gymnasium.envs.mujoco.mujoco_env", "MujocoEnv"  # where the class of all its environments on MuJoCo is


class HostEnv(NamedTuple):
    """A kind of environment: as many copies of it as are asked for."""

    spec: Spec
    make: Callable[[], Any]  # a new instance
    about: About  # what a run notes of it
    own: Any = None  # the user's object, which is the first of them and not ours to close
    apart: tuple[str, ...] | None = None  # how a process of its own makes one (worker.py), where that pays; None: only this process can
    traces: bool = False  # whether an episode may depend on those that were played before it on the same instance


def host_env(env: Any) -> HostEnv:
    """From a Gymnasium id, an environment object, or a function that makes one."""
    if isinstance(env, str):
        name, make = env, lambda: _make(env)
        one = make()
    elif isinstance(env, gymnasium.Env):
        name, one = env.spec.id if env.spec else type(env.unwrapped).__name__, env
        originals = iter([env])
        make = lambda: next(originals, None) or _copy(env, name)  # noqa: E731
    elif callable(env):
        one = env()
        name, make = getattr(env, "__name__", type(one).__name__), env
        if not isinstance(one, gymnasium.Env):
            raise Refusal(f"{name}() made a {type(one).__name__}, not a gymnasium.Env")
    else:
        raise Refusal(f"{env!r} is no environment: give a Gymnasium id, an environment, or a function that makes one")
    shape, dtype, states = _observations(name, one.observation_space)
    spec = Spec(name, shape, dtype, states=states, **_actions(name, one.action_space))
    if one is env:
        return HostEnv(spec, make, about(one), own=env)
    apart = ("gymnasium", name) if isinstance(env, str) and is_body(one) and len(os.sched_getaffinity(0)) > 2 else None
    said = about(one)
    one.close()
    return HostEnv(spec, make, said, apart=apart)


def is_body(env: Any) -> bool:
    """Whether an environment is one of Gymnasium's on MuJoCo, whose steps are long."""
    # Told by the name of its base class: to import the class itself needs mujoco, which most runs do without.
    return any((kind.__module__, kind.__name__) == BODY for kind in type(env.unwrapped).__mro__)


def _make(name: str) -> Any:
    try:
        return gymnasium_env(name)
    except gymnasium.error.DependencyNotInstalled as error:
        extra = next((extra for word, extra in EXTRAS.items() if word in str(error).lower()), "")
        hint = f"pip install 'iterq[{extra}]'" if extra else str(error)
        raise Refusal(f"{name} needs a package that is not installed: {hint}") from error
    except Exception as error:  # the environment's own, too
        raise Refusal(f"cannot make the environment {name!r}: {error}") from error


def _copy(env: Any, name: str) -> Any:
    try:
        return copy.deepcopy(env)
    except Exception as error:
        raise Refusal(f"{name} cannot be copied for a second agent or for evaluation ({error}); pass a function that makes it") from error


def _observations(name: str, space: Any) -> tuple[tuple[int, ...], str, int | None]:
    """Shape, stored type, and the number of states if observations are one of finitely many."""
    if isinstance(space, spaces.Discrete):
        if space.start:
            raise Refusal(f"{name} has observations {space}; only those that start at 0 are supported")
        return (), "int32", int(space.n)
    if isinstance(space, spaces.Box | spaces.MultiBinary | spaces.MultiDiscrete):
        kind = np.dtype(space.dtype)
        return tuple(space.shape), "float32" if kind.kind == "f" else "uint8" if kind == np.uint8 else "int32", None
    hint = "; gymnasium.wrappers.FlattenObservation makes one array of them" if isinstance(space, spaces.Dict | spaces.Tuple) else ""
    raise Refusal(f"{name} has observations {type(space).__name__}, which are not supported{hint}")


def _actions(name: str, space: Any) -> dict[str, Any]:
    """The fields of a `Spec` that say what actions are."""
    if isinstance(space, spaces.Discrete):
        return {"actions": int(space.n), "first_action": int(space.start)}
    if isinstance(space, spaces.Box) and len(space.shape) == 1 and np.dtype(space.dtype).kind == "f":
        if not np.all(np.isfinite(space.low) & np.isfinite(space.high) & (space.low < space.high)):
            raise Refusal(f"{name} has actions {space}; only bounded ones are supported (gymnasium.wrappers.RescaleAction, ClipAction)")
        return {"actions": space.shape[0], "low": tuple(space.low.tolist()), "high": tuple(space.high.tolist())}
    raise Refusal(f"{name} has actions {space}; supported are discrete ones and bounded vectors of numbers")
