"""Evaluation on host environments."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from iterq.envs.host import HostEnv
from iterq.envs.stepping import EVALUATION, episode_seed, raised
from iterq.errors import Refusal


def play(kind: HostEnv, seeds: Sequence[int], episodes: int, stack: int, choose: Callable[[np.ndarray, int], np.ndarray]) -> Iterator[Any]:
    """Evaluation: (agent, return, length) of `episodes` episodes of every agent, always the same ones, side by side.

    choose: (obs (agents, episodes, *obs), t) -> (agents, episodes, …) actions.
    """
    envs = [[kind.make() for _ in range(episodes)] for _ in seeds]
    try:
        yield from _play(kind, envs, seeds, stack, choose)
    finally:
        for env in (env for row in envs for env in row):
            env.close()


def _play(kind: HostEnv, envs: list[list[Any]], seeds: Sequence[int], stack: int, choose: Callable) -> Iterator[Any]:
    @contextlib.contextmanager
    def named(j: int, e: int) -> Iterator[Any]:
        try:
            yield envs[j][e]
        except Exception as error:
            raise Refusal(raised(kind, error, f"in evaluation episode {e} of seed {seeds[j]}")) from error

    shape = (len(seeds), len(envs[0]))
    obs = np.zeros((*shape, *kind.spec.shape, stack), kind.spec.dtype)
    total, length, over = np.zeros(shape), np.zeros(shape, int), np.zeros(shape, bool)
    for j, e in np.ndindex(shape):
        with named(j, e) as env:
            obs[j, e, ..., -1] = env.reset(seed=episode_seed(seeds[j], EVALUATION, e))[0]
    while not over.all():
        actions = choose(obs if stack > 1 else obs[..., 0], int(length.max()))
        for j, e in np.argwhere(~over):
            with named(j, e) as env:
                frame, reward, terminated, truncated, _ = env.step(kind.spec.outside(actions[j, e].tolist()))
                obs[j, e, ..., :-1] = obs[j, e, ..., 1:]
                obs[j, e, ..., -1] = frame
                total[j, e] += float(reward)
                length[j, e] += 1
                over[j, e] = terminated or truncated
    for j, e in np.ndindex(shape):
        yield j, float(total[j, e]), int(length[j, e])
