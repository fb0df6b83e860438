"""Evaluation on host environments."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from iterq.envs.host import HostEnv
from iterq.envs.stepping import EVALUATION, EnvironmentFailure, Episode, HostEnvs
from iterq.envs.workers import stepping
from iterq.errors import Refusal


class Stage:
    """Environments for so many episodes of every agent again and again, all played side by side."""

    def __init__(self, kind: HostEnv, seeds: Sequence[int], episodes: int) -> None:
        self.kind, self.shape = kind, (len(seeds), episodes)
        self.seeds = np.repeat(seeds, episodes).tolist()
        self.envs: HostEnvs | None = None

    def play(self, stack: int, choose: Callable[[np.ndarray, int], np.ndarray], first: int = 0) -> Iterator[tuple[int, float, int]]:
        """(agent, return, length) of all episodes.

        choose: (obs (agents, episodes, *obs), t) -> (agents, episodes, …) actions. first: the number of every agent's first episode.
        """
        numbers = list(range(first, first + self.shape[1])) * self.shape[0]
        envs = self.envs = self.envs or stepping(self.kind, self.seeds, EVALUATION, numbers)
        envs.begin_anew(numbers)
        kept = False
        try:
            yield from self._play(envs, stack, choose)
            # Processes take long to start. What they step has no memory of earlier episodes, unless that is said; others might.
            kept = bool(self.kind.apart) and not self.kind.traces
        except EnvironmentFailure as error:
            raise Refusal(str(error)) from error  # the run itself is where it was
        finally:
            if not kept:
                self.close()

    def _play(self, envs: HostEnvs, stack: int, choose: Callable) -> Iterator[tuple[int, float, int]]:
        spec = self.kind.spec
        found: dict[int, Episode] = {}
        obs = np.zeros((*self.shape, *spec.shape, stack), spec.dtype)
        obs[..., -1] = envs.reset().frame.reshape(*self.shape, *spec.shape)
        t = 0
        while len(found) < len(self.seeds):
            actions: Any = choose(obs if stack > 1 else obs[..., 0], t)
            answer, ended = envs.step(np.asarray(actions, spec.action.base).reshape(-1, *spec.action.shape), t)
            obs[..., :-1] = obs[..., 1:]
            obs[..., -1] = answer.frame.reshape(*self.shape, *spec.shape)
            found |= {episode.agent: episode for episode in ended}
            t += 1
        for i, episode in sorted(found.items()):
            yield i // self.shape[1], episode.total, episode.length

    def close(self) -> None:
        """Let go of the environments."""
        if self.envs:
            self.envs.close()
        self.envs = None
