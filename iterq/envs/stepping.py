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
from iterq.worker import ACT, REST

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

    def __init__(self, kind: HostEnv, seeds: Sequence[int], purpose: int, only: Sequence[int] | None = None, among: int = 0) -> None:
        """only: the number of the one episode of every agent, after which its environment rests; None: all, from 0 on.

        among: how many environments of this process step at the same time; 0: these.
        """
        self.kind, self.seeds, self.purpose, self.among = kind, seeds, purpose, among or len(seeds)
        self.envs = self._make()
        self.frame = np.zeros((len(seeds), *kind.spec.shape), kind.spec.dtype)
        self.begin_anew(only)

    def begin_anew(self, only: Sequence[int] | None = None) -> None:
        """As if nothing had been played. only: see `__init__`."""
        agents, self.only = range(len(self.seeds)), only
        self.episode = [-1 if self.only is None else self.only[j] - 1 for j in agents]  # the number of the current episode
        self.actions: list[list[int]] = [[] for _ in agents]  # taken in it
        self.total = [0.0 for _ in agents]
        self.over = [True for _ in agents]
        self._asked: tuple[list[int], np.ndarray, int] = [], np.zeros(0), 0
        self._came: tuple[np.ndarray, np.ndarray] = np.zeros(0), np.zeros(0)  # rewards, and whether the episode is over

    def _make(self) -> list[Any]:
        return [self.kind.make() for _ in self.seeds]

    def reset(self) -> Answer:
        """Start the first episode of every agent."""
        return self.step(np.zeros(len(self.seeds), self.kind.spec.action), 0)[0]

    def step(self, actions: np.ndarray, n: int) -> tuple[Answer, list[Episode]]:
        """Step `n` of every agent, and the episodes that it ends. If an environment raises, nothing has happened to any of them."""
        self.begin(actions, n)
        return self.finish(), self.ended()

    def begin(self, actions: np.ndarray, n: int) -> None:
        """Have step `n` under way; `finish` returns what comes of it."""
        starts = [self._start(j) if over else ACT for j, over in enumerate(self.over)]
        self._asked = starts, actions.copy(), n
        self._ask(*self._asked)

    def _start(self, j: int) -> int:
        """The seed of the next episode of agent `j`, or REST if there is none."""
        rests = self.only is not None and self.episode[j] == self.only[j]
        return REST if rests else episode_seed(self.seeds[j], self.purpose, self.episode[j] + 1)

    def ready(self) -> bool:
        """Whether `finish` would not wait for others."""
        return True

    def awaited(self) -> list[int]:
        """Files that become readable when there is news from others."""
        return []

    def finish(self) -> Answer:
        """What came of the step that has begun. The accounts are kept by `ended`, when agents have got to know it."""
        self.frame, reward, terminated, truncated = self._answers(*self._asked)
        self._came = reward, terminated | truncated
        return Answer(self.frame, reward.astype(np.float32), terminated, np.array(self.over))

    def ended(self) -> list[Episode]:
        """Take note of the step that is finished; the episodes that it ended."""
        starts, actions, n = self._asked
        ended, chosen = [], actions.tolist()
        reward, over = (x.tolist() for x in self._came)
        for j, start in enumerate(starts):
            if start == ACT:
                self.actions[j].append(chosen[j])
                self.total[j] += reward[j]
                self.over[j] = over[j]
                if over[j]:
                    ended.append(Episode(j, n, self.total[j], len(self.actions[j])))
            elif start != REST:
                self.episode[j], self.actions[j], self.total[j], self.over[j] = self.episode[j] + 1, [], 0.0, False
        return ended

    def _ask(self, starts: list[int], actions: np.ndarray, n: int) -> None:
        """Tell environments elsewhere what to do; those of this process do it when they are asked for answers."""

    def _answers(self, starts: list[int], actions: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Frames, rewards, terminated and truncated over agents; `starts`: the seed of an episode to start, ACT or REST."""
        frame, reward = self.frame.copy(), np.zeros(len(starts))
        terminated, truncated = np.zeros(len(starts), bool), np.zeros(len(starts), bool)
        for j, env in enumerate(self.envs):
            try:
                if starts[j] >= 0:
                    frame[j] = env.reset(seed=starts[j])[0]
                elif starts[j] == ACT:
                    frame[j], gain, terminated[j], truncated[j], _ = env.step(self.kind.spec.outside(actions[j].tolist()))
                    reward[j] = float(gain)
            except Exception as error:
                raise self._failure(j, n, type(error).__name__, error) from error
        return frame, reward, terminated, truncated

    def _failure(self, j: int, n: int | None, kind: str, text: Any) -> "EnvironmentFailure":
        """What the environment of agent `j` raised at step `n`; None: when an episode was repeated."""
        if n is None:
            when = f"when an episode of seed {self.seeds[j]} was repeated"
        else:
            when = f"{f'at step {n}' if self.only is None else f'in evaluation episode {self.only[j]}'} of seed {self.seeds[j]}"
        return EnvironmentFailure(f"{self.kind.spec.name} raised {kind} {when}: {text}")

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
        except EnvironmentFailure:
            raise
        except Exception as error:
            raise self._failure(j, None, type(error).__name__, error) from error
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
