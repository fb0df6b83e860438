"""Agents on host environments: Python steps the environments around one call of the device per step.

A fleet is split into two groups that take turns: while the environments of one step, the device works for the other.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from iterq.agents import SAMPLE, Agent, Learner
from iterq.envs.host import TRAINING, Answer, Episode, HostEnv, HostEnvs, play
from iterq.fleet.base import Evaluation, Fleet, wide
from iterq.fleet.device import AHEAD, Programs
from iterq.pack import Packed
from iterq.parallel import run_all
from iterq.replay import HostReplay, Replay


class Stepped(Fleet):
    """The fleet; `on_host` keeps experience in the host's memory."""

    def __init__(self, agent: Agent, kind: HostEnv, seeds: Sequence[int], on_host: bool = False) -> None:
        half = (len(seeds) + 1) // 2
        groups = [group for group in (seeds[:half], seeds[half:]) if group]
        super().__init__(agent, groups)
        self.kind, self.on_host = kind, on_host
        self.programs = Programs(agent, self.memory)
        lanes = [self.programs.pack(learner) for learner in self.start(agent.init)]
        replays = [] if on_host else self.start(self.programs.empty)
        ends = (1, 2) if wide() else (half, len(seeds))  # of the lanes of each group
        self.groups = [
            Group(self, group, start, lanes[i:j], replays[i:j])
            for group, start, i, j in zip(groups, (0, half), (0, *ends), ends, strict=False)
        ]
        self._at = [(group, j) for group in self.groups for j in range(len(group.seeds))]

    @property
    def n(self) -> int:
        return min(group.n for group in self.groups)

    @property
    def learners(self) -> list[Learner]:
        return [self.programs.unpack(lane) for group in self.groups for lane in group.lanes]

    @learners.setter
    def learners(self, new: list[Learner]) -> None:
        rest = iter(new)
        for group in self.groups:
            group.lanes = [self.programs.pack(next(rest)) for _ in group.lanes]

    def advance(self, target: int, stop: Callable[[], bool]) -> None:
        failures: list[Exception] = []

        def run(group: Group, target: int, stop: Callable[[], bool]) -> None:
            try:
                while group.n < target and not stop() and not failures:
                    self.ended += group.tick()
            except Exception as error:  # noqa: BLE001, raised again when all groups have come to rest
                failures.append(error)

        run_all({i: partial(run, group, target, stop) for i, group in enumerate(self.groups)})
        ahead = max(group.n for group in self.groups)  # where a stop found the groups apart, the others follow
        run_all({i: partial(run, group, ahead, lambda: False) for i, group in enumerate(self.groups) if group.n < ahead})
        if failures:
            raise failures[0]

    def evaluate(self) -> list[Evaluation]:
        c, n = self.agent.config, self.n
        found = [Evaluation([], []) for _ in self.seeds]

        def choose(obs: np.ndarray, t: int) -> np.ndarray:
            split = np.split(obs, np.cumsum([len(lane) for lane in self.lanes])[:-1])
            lanes = [x if wide() else x[0] for x in split]
            packed = [lane for group in self.groups for lane in group.lanes]
            actions = [self.programs.greedy(*args, n, t) for args in zip(packed, lanes, strict=True)]
            return np.stack([self.of(actions, s) for s in range(len(self.seeds))])

        for s, total, length in play(self.kind, self.seeds, c.eval_episodes, c.frame_stack, choose):
            found[s].returns.append(total)
            found[s].lengths.append(length)
        return found

    def batches(self, purpose: int) -> list[Any]:
        return [batch for group in self.groups for batch in group.batches(purpose, group.n)]

    def state(self, s: int) -> dict[str, Any]:
        group, j = self._at[s]
        if group.host:
            replay = Replay(group.host.rows[j].view(np.uint8).reshape(self.memory.capacity, -1), group.host.counts[j])
        else:
            replay = self.of([replay for group in self.groups for replay in group.replays], s)._replace(
                counts=np.asarray(group.meta)[j, 2:]
            )
        head, action = np.asarray(group.meta)[j, :2]
        counters = {"n": np.int32(group.n), "learned": np.int32(group.learned), "head": head, "action": action}
        return {"learner": self.of(self.learners, s), "replay": replay, **counters, "world": group.envs.journal(j)}

    def restore(self, s: int, state: dict[str, Any]) -> None:
        group, j = self._at[s]
        learners = self.learners
        self.put(learners, s, state["learner"])
        self.learners = learners
        if group.host:
            group.host.rows[j] = np.ascontiguousarray(state["replay"].data).reshape(-1).view(self.memory.row)
            group.host.counts[j] = state["replay"].counts
        else:
            replays = [replay for group in self.groups for replay in group.replays]
            self.put(replays, s, state["replay"]._replace(counts=None))
            for group_ in self.groups:
                group_.replays, replays = replays[: len(group_.replays)], replays[len(group_.replays) :]
        group.n, group.learned = int(state["n"]), int(state["learned"])
        group.meta = group.meta.at[j].set(jnp.array([state["head"], state["action"], *state["replay"].counts]))
        group.envs.restore(j, state["world"])
        group.draw_ahead(group.n + 1)

    def close(self) -> None:
        for group in self.groups:
            group.envs.close()


class Group:
    """Agents whose environments step together."""

    def __init__(self, fleet: Stepped, seeds: Sequence[int], first: int, lanes: list[Packed], replays: list[Replay]) -> None:
        """first: the number of the group's first agent in the fleet."""
        self.first = first
        self.fleet, self.programs, self.memory, self.seeds = fleet, fleet.programs, fleet.memory, tuple(seeds)
        self.envs = HostEnvs(fleet.kind, seeds, TRAINING)
        self.roots = jnp.stack([jax.random.key_data(jax.random.key(seed, impl="threefry2x32")) for seed in seeds])
        self.lanes, self.replays = lanes, replays
        self.host = HostReplay(fleet.memory, len(seeds)) if fleet.on_host else None
        # The member that acts in this episode, the action to be answered, and the counts of the replay: together, to travel as one.
        self.meta: Any = jnp.tile(jnp.array([1, 0, 0, 0], jnp.int32), (len(seeds), 1))
        self.n = -1  # steps answered; -1: the first frame is not seen yet
        self.learned = 0  # the last step whose gradient step is done
        self.noise: Any = None
        self.ahead = -1  # the block of steps that `noise` is for

    def tick(self) -> list[Episode]:
        """One step of every agent; the first call only looks at the first frames."""
        if self.n < 0:
            self._see(self.envs.reset(), np.zeros(len(self.seeds), np.int32))
            return []
        n = self.n + 1
        actions = np.asarray(self.meta)[:, 1]
        if self.learned < n and self.fleet.due(n):
            self._learn(n)  # goes on while the environments step
            self.learned = n
        answer, ended = self.envs.step(actions, n)
        self._see(answer, actions)
        return [episode._replace(agent=self.first + episode.agent) for episode in ended]

    def _see(self, answer: Answer, actions: np.ndarray) -> None:
        """Close the row of step n, open the next one and act on it."""
        self.n += 1
        n = self.n + 1
        self.draw_ahead(n)
        reward = np.clip(answer.reward, -1, 1) if self.fleet.agent.config.clip_rewards else answer.reward
        if self.host:
            self.host.close_row(n - 2, actions, reward, answer.terminated)
            self.host.open_row(n - 1, answer.frame, answer.first)
            self.meta = self.programs.act(self.meta, self.lanes, self.host.observe(n - 1), answer.first, self.noise, np.int32(n))
        else:
            rows = np.zeros(len(self.seeds), self.memory.row)
            rows["reward"], rows["terminated"], rows["first"], rows["frame"] = reward, answer.terminated, answer.first, answer.frame
            packed = rows.view(np.uint8).reshape(len(self.seeds), -1)
            self.replays, self.meta = self.programs.see(self.replays, self.meta, self.lanes, packed, self.noise, np.int32(n))

    def draw_ahead(self, n: int) -> None:
        if self.ahead != n // AHEAD:
            self.ahead = n // AHEAD
            self.noise = self.programs.draw_ahead(self.roots, self.ahead * AHEAD)

    def batches(self, purpose: int, n: int) -> list[Any]:
        """One batch per lane, of the rows up to the frame of step `n`."""
        if not self.host:
            pairs = enumerate(zip(self.lanes, self.replays, strict=True))
            return [self.programs.draw(*pair, self.meta, j, n, purpose) for j, pair in pairs]
        drawn = self.host.sample(self.programs.keys(self.roots, purpose, n), self.fleet.agent.config.batch_size)
        return [drawn] if wide() else [jax.tree.map(lambda x, j=j: x[j], drawn) for j in range(len(self.seeds))]

    def _learn(self, n: int) -> None:
        moving = self.fleet.agent.moves(n)
        if self.host:
            self.lanes = [self.programs.learn_from[moving](*args, n) for args in zip(self.lanes, self.batches(SAMPLE, n), strict=True)]
            return
        pairs = enumerate(zip(self.lanes, self.replays, strict=True))
        done = [self.programs.learn[moving](*pair, self.meta, np.int32(j), np.int32(n)) for j, pair in pairs]
        self.lanes = [lane for lane, _ in done]
        if self.memory.prioritised:
            self.replays = [replay._replace(tree=tree) for replay, (_, tree) in zip(self.replays, done, strict=True)]
