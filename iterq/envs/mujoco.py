"""MuJoCo tasks of Gymnasium, whose physics run in native threads while Python attends to others.

A step of such an environment is Python around one call of the physics. When a step begins, the physics of every environment are computed
by threads on a copy of its state; when the environment's own code then asks for them, the copy is there and takes the state's place. What
is observed and rewarded is computed by Gymnasium's code, on the same numbers as without threads, bit for bit.
"""

import importlib
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from iterq.envs.host import HostEnv, HostEnvs


def is_body(env: Any) -> bool:
    """Whether an environment is one of Gymnasium's on MuJoCo, with the physics where they are expected."""
    try:
        from gymnasium.envs.mujoco import MujocoEnv
    except ImportError:  # not installed
        return False
    inner = env.unwrapped
    return isinstance(inner, MujocoEnv) and type(inner)._step_mujoco_simulation is MujocoEnv._step_mujoco_simulation


def bodies(kind: HostEnv, seeds: Sequence[int], purpose: int) -> HostEnvs:
    """One environment has nobody to share the time with, and few cores nothing to share."""
    cores = len(os.sched_getaffinity(0))
    return (Bodies if len(seeds) > 1 and cores > 2 else HostEnvs)(kind, seeds, purpose)


class Physics:
    """The physics of one environment, a step of which may be under way."""

    def __init__(self, env: Any) -> None:
        self.mujoco: Any = importlib.import_module("mujoco")
        self.env, self.copy = env.unwrapped, self.mujoco.MjData(env.unwrapped.model)
        self.under_way: Future | None = None
        self.env._step_mujoco_simulation = self.take

    def simulate(self, ctrl: np.ndarray, count: int) -> None:
        """On the copy, without Python's lock where it matters."""
        mujoco, model, copy = self.mujoco, self.env.model, self.copy
        mujoco.mj_copyData(copy, model, self.env.data)
        copy.ctrl[:] = ctrl
        mujoco.mj_step(model, copy, nstep=count)
        mujoco.mj_rnePostConstraint(model, copy)

    def take(self, ctrl: np.ndarray, count: int) -> None:
        """What the environment calls for a step of its physics."""
        if self.under_way:
            self.under_way.result()
        else:
            self.simulate(ctrl, count)
        self.under_way = None
        self.env.data, self.copy = self.copy, self.env.data


class Bodies(HostEnvs):
    """The environments of a group."""

    def _make(self) -> list[Any]:
        envs = super()._make()
        self.physics = [Physics(env) for env in envs]
        self.threads = ThreadPoolExecutor(min(len(envs), len(os.sched_getaffinity(0))))
        return envs

    def _ask(self, starts: list[int | None], actions: list[Any], n: int) -> None:
        for physics, start, action in zip(self.physics, starts, actions, strict=True):
            if start is None:
                physics.under_way = self.threads.submit(physics.simulate, self.kind.spec.outside(action), physics.env.frame_skip)

    def ready(self) -> bool:
        return all(physics.under_way is None or physics.under_way.done() for physics in self.physics)

    def close(self) -> None:
        self.threads.shutdown()
        super().close()
