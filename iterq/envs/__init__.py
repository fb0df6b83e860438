"""Environments: pure-JAX ones by the ids of `pure.PURE`, Atari games, everything else through Gymnasium."""

import difflib
from typing import Any

from iterq.envs.about import About, about_pure
from iterq.envs.base import PureEnv, Spec, spec
from iterq.errors import Refusal
from iterq.games import played


def resolve(env: Any, emulator: str = "fresh") -> tuple[Any, Spec]:
    """A `PureEnv` or a `HostEnv` and its specification, from an id, a Gymnasium object, a function that makes one, or either itself.

    emulator: of Atari games, see iterq/emulator.py.
    """
    from iterq.envs.host import HostEnv, host_env
    from iterq.envs.pure import PURE

    game = None if isinstance(env, HostEnv) else played(env, emulator)
    if isinstance(env, str) and env.startswith("jax/"):
        if env not in PURE:
            near = difflib.get_close_matches(env, PURE, 1)
            raise Refusal(f"unknown environment {env!r}" + (f", did you mean {near[0]!r}?" if near else f"; known: {', '.join(PURE)}"))
        env = PURE[env]()
    if isinstance(env, PureEnv):
        return env, spec(env)
    if game:
        from iterq.envs.atari import atari_env

        env = atari_env(game, emulator)

    kind = env if isinstance(env, HostEnv) else host_env(env)
    return kind, kind.spec


def noted(env: Any, spec: Spec) -> About:
    """What a run notes of its environment, as `resolve` gives it."""
    said, packages = about_pure(env, spec) if isinstance(env, PureEnv) else env.about
    return About({"name": spec.name, **said}, packages)
