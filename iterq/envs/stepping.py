"""Gymnasium environments, one per agent, stepped together and restored exactly.

Every episode is reset with a seed of its own, a function of the agent's seed and the number of the episode. So an episode is
(seed, actions): to come back to the middle of one, reset with its seed and repeat its actions. That is exact for every
environment whose randomness comes from its seed, and it is checked: the frame must be the one that was seen then.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from iterq.envs.host import HostEnv
from iterq.errors import Refusal

TRAINING, EVALUATION = 0, 1  # what episodes are for; part of their seeds


class Answer(NamedTuple):
    """What the environments of a group return for one step, as arrays over agents."""

    frame: np.ndarray  # (agents, *shape) to be acted on next
    reward: np.ndarray  # (agents,) f32
    terminated: np.ndarray  # (agents,) bool
    first: np.ndarray  # (agents,) bool, the frame starts an episode


class Episode(NamedTuple):
    """A finished episode of one agent of a group."""

    agent: int
    step: int
    total: float  # the return
    length: int


def episode_seed(seed: int, purpose: int, episode: int) -> int:
    """31 bits, since some environments take no more."""
    return int(np.random.SeedSequence([seed, purpose, episode]).generate_state(1)[0] >> 1)


class HostEnvs:
    """One environment per agent of a group. Not reset by an episode's end but by the step after it, as in `replay.py`."""

    def __init__(self, kind: HostEnv, seeds: Sequence[int], purpose: int) -> None:
        self.kind, self.seeds, self.purpose = kind, seeds, purpose
        self.envs = self._make()
        self.episode = [-1] * len(seeds)  # the number of the current episode
        self.actions: list[list[int]] = [[] for _ in seeds]  # taken in it
        self.total = [0.0] * len(seeds)
        self.over = [True] * len(seeds)
        self.frame = np.zeros((len(seeds), *kind.spec.shape), kind.spec.dtype)
        self._asked: tuple[list[int | None], np.ndarray, int] = [], np.zeros(0), 0

    def _make(self) -> list[Any]:
        return [self.kind.make() for _ in self.seeds]

    def reset(self) -> Answer:
        """Start the first episode of every agent."""
        return self.step(np.zeros(len(self.seeds), self.kind.spec.action), 0)[0]

    def step(self, actions: np.ndarray, n: int) -> tuple[Answer, list[Episode]]:
        """Step `n` of every agent, and the episodes that it ends. If an environment raises, nothing has happened to any of them."""
        self.begin(actions, n)
        return self.finish()

    def begin(self, actions: np.ndarray, n: int) -> None:
        """Have step `n` under way; `finish` returns what comes of it."""
        seeds = zip(self.seeds, self.episode, self.over, strict=True)
        starts = [episode_seed(seed, self.purpose, episode + 1) if over else None for seed, episode, over in seeds]
        self._asked = starts, actions.copy(), n
        self._ask(*self._asked)

    def ready(self) -> bool:
        """Whether `finish` would not wait for others."""
        return True

    def awaited(self) -> list[int]:
        """Files that become readable when there is news from others."""
        return []

    def finish(self) -> tuple[Answer, list[Episode]]:
        """As `step`, for the step that has begun."""
        starts, actions, n = self._asked
        frame, total, terminated, truncated = self._answers(starts, actions, n)
        chosen = actions.tolist()
        first, ended = np.array(self.over), []
        for j in range(len(starts)):
            if first[j]:
                self.episode[j], self.actions[j], self.total[j] = self.episode[j] + 1, [], 0.0
            else:
                self.actions[j].append(chosen[j])
                self.total[j] += total[j]
            self.over[j] = bool(terminated[j] or truncated[j])
            if self.over[j]:
                ended.append(Episode(j, n, self.total[j], len(self.actions[j])))
        self.frame = frame
        return Answer(frame, np.array(total, np.float32), terminated, first), ended

    def _ask(self, starts: list[int | None], actions: np.ndarray, n: int) -> None:
        """Tell environments elsewhere what to do; those of this process do it when they are asked for answers."""

    def _answers(self, starts: list[int | None], actions: np.ndarray, n: int) -> tuple[np.ndarray, list[float], np.ndarray, np.ndarray]:
        """Frames, rewards, terminated and truncated over agents; `starts`: the seed of an episode to start, None to take the action."""
        frame, total = np.empty_like(self.frame), [0.0] * len(starts)
        terminated, truncated = np.zeros(len(starts), bool), np.zeros(len(starts), bool)
        for j, env in enumerate(self.envs):
            try:
                if (start := starts[j]) is not None:
                    frame[j] = env.reset(seed=start)[0]
                else:
                    frame[j], gain, terminated[j], truncated[j], _ = env.step(self.kind.spec.outside(actions[j].tolist()))
                    total[j] = float(gain)
            except Exception as error:
                raise EnvironmentFailure(raised(self.kind, error, f"at step {n} of seed {self.seeds[j]}")) from error
        return frame, total, terminated, truncated

    def journal(self, j: int) -> dict[str, Any]:
        """All that is needed to bring the environment of agent `j` back to where it is: plain arrays and numbers."""
        return {
            "episode": np.int64(self.episode[j]),
            "actions": np.array(self.actions[j], self.kind.spec.action.base).reshape(-1, *self.kind.spec.action.shape),
            "total": np.float64(self.total[j]),
            "over": np.bool_(self.over[j]),
            "frame": self.frame[j],
        }

    def restore(self, j: int, journal: dict[str, Any]) -> None:
        """Repeat the current episode of agent `j`; refused if it does not lead to the frame that was seen."""
        spec, episode = self.kind.spec, int(journal["episode"])
        try:
            frame = self._repeat(j, episode_seed(self.seeds[j], self.purpose, episode), journal["actions"])
        except Exception as error:
            raise Refusal(raised(self.kind, error, f"when an episode of seed {self.seeds[j]} was repeated")) from error
        if not np.array_equal(np.asarray(frame, spec.dtype), journal["frame"], equal_nan=spec.dtype == "float32"):
            raise Refusal(f"{spec.name} does not repeat an episode from its seed and actions, so the run cannot be resumed exactly")
        self.episode[j], self.actions[j], self.total[j] = episode, journal["actions"].tolist(), float(journal["total"])
        self.over[j], self.frame[j] = bool(journal["over"]), frame

    def _repeat(self, j: int, start: int, actions: np.ndarray) -> Any:
        """The frame after `actions` in the episode of the seed `start`."""
        frame = self.envs[j].reset(seed=start)[0]
        for action in actions.tolist():
            frame = self.envs[j].step(self.kind.spec.outside(action))[0]
        return frame

    def close(self) -> None:
        for env in self.envs:
            if env is not self.kind.own:
                env.close()


class EnvironmentFailure(Refusal):
    """An environment raised in the middle of a run."""


def raised(kind: HostEnv, error: Exception, when: str) -> str:
    return f"{kind.spec.name} raised {type(error).__name__} {when}: {error}"
