"""Agents on host environments: Python steps the environments around a call of the device.

A fleet is split into groups that take turns: while the environments of one step, the device works for another.
"""

import itertools
import select
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from iterq.agents import Agent, Learner
from iterq.config import Config
from iterq.envs.host import HostEnv
from iterq.envs.playing import Stage
from iterq.envs.workers import Workers
from iterq.fleet.base import Counts, Evaluation, Fleet, hasty, wide
from iterq.fleet.group import Group, Kept
from iterq.fleet.on_device import DeviceGroup, DevicePrograms
from iterq.fleet.on_host import HostGroup, HostPrograms


def groups_for(agents: int, beside: int, config: Config) -> int:
    """How many groups `agents` are split into, in one of `beside` fleets that take turns or share the machine."""
    if hasty(config):
        return 1  # for fewer agents it would hardly be sooner done
    # An update of many agents takes longer than a step of their environments, and smaller groups wait less for it; but each takes a call.
    many = max(2, min(4, agents // (8 if wide() else 2)))
    return min(agents, max(1, many // beside))


class Stepped(Fleet):
    """The fleet; `on_host` keeps experience in the host's memory."""

    def __init__(self, agent: Agent, kind: HostEnv, seeds: Sequence[int], on_host: bool = False, beside: int = 1) -> None:
        groups = [tuple(group.tolist()) for group in np.array_split(seeds, groups_for(len(seeds), beside * Workers.beside, agent.config))]
        super().__init__(agent, groups)
        self.kind = kind
        make = HostPrograms if on_host else DevicePrograms
        # On a GPU, XLA keeps the kernels of a program as a graph for the arrays of its last call: groups that share one have it recorded
        # again and again.
        programs = [make(agent, self.memory) for _ in (groups if wide() else groups[:1])]
        self.programs = programs[0]
        lanes = [self.programs.pack(learner) for learner in self.start(agent.init)]
        starts = np.cumsum([0, *map(len, groups)]).tolist()
        lanes = [[lane] for lane in lanes] if wide() else [lanes[i:j] for i, j in itertools.pairwise(starts)]
        self.groups: list[Group] = [
            (HostGroup if on_host else DeviceGroup)(own, kind, group, start, mine, len(seeds) * beside)
            for own, group, start, mine in zip(itertools.cycle(programs), groups, starts, lanes, strict=False)
        ]
        self._at = [(group, j) for group in self.groups for j in range(len(group.seeds))]
        self.stage = Stage(kind, self.seeds, agent.config.eval_episodes)

    @property
    def n(self) -> int:
        return min(group.n for group in self.groups)

    def steps(self, s: int) -> int:
        return self._at[s][0].n

    @property
    def learners(self) -> list[Learner]:
        return [self.programs.unpack(lane) for group in self.groups for lane in group.lanes]

    @learners.setter
    def learners(self, new: list[Learner]) -> None:
        rest = iter(new)
        for group in self.groups:
            group.lanes = [self.programs.pack(next(rest)) for _ in group.lanes]

    def counts(self) -> list[Counts]:
        return [self.programs.counts(lane) for group in self.groups for lane in group.lanes]

    def counted(self) -> None:
        for group in self.groups:
            group.lanes = [self.programs.counted(lane) for lane in group.lanes]

    def advancing(self, target: int, stop: Callable[[], bool]) -> Iterator[bool]:
        failures: dict[Group, Exception] = {}
        while running := [group for group in self.groups if group not in failures and (group.stepping or group.n < target)]:
            moved = False
            for group in running:
                try:
                    if group.ready():
                        self._move(group, target)
                        moved = True
                except Exception as error:  # noqa: BLE001, raised again when all groups have come to rest
                    group.stepping, failures[group] = False, error
            yield moved
            if stop() or failures:  # where this finds the groups apart, the others follow the first
                target = min(target, max(group.n + group.stepping for group in self.groups))
        if failures:
            raise next(iter(failures.values()))

    def _move(self, group: Group, target: int) -> None:
        if not group.stepping:
            group.begin()
            return
        self.ended += group.finish(going_on=group.n + 1 < target)

    def wait(self) -> None:
        asked = [group for group in self.groups if not group.stepping]
        if asked and wide():
            return  # news may come from the accelerator or an environment: whichever is first is looked for again and again
        for group in asked:
            if not group.acted():
                group.actions()  # on a CPU, agents need the core that would look
                return
        files = [file for group in self.groups if group.stepping for file in group.envs.awaited()]
        if files:
            select.select(files, [], [], 0.1)
        else:
            time.sleep(2e-5)  # for threads of this process

    def evaluate(self) -> list[Evaluation]:
        n = jnp.int32(self.n)  # sent once, and not with every step
        found = [Evaluation([], []) for _ in self.seeds]

        def choose(obs: np.ndarray, t: int) -> np.ndarray:
            split = np.split(obs, np.cumsum([len(lane) for lane in self.lanes])[:-1])
            lanes = [x if wide() else x[0] for x in split]
            packed = [lane for group in self.groups for lane in group.lanes]
            actions = [self.programs.greedy(*args, n, t) for args in zip(packed, lanes, strict=True)]
            return np.stack(self.each(actions))

        c = self.agent.config
        first = max(self.n, 0) * c.eval_episodes if c.eval_starts == "varied" else 0
        for s, total, length in self.stage.play(c.frame_stack, choose, first):
            found[s].returns.append(total)
            found[s].lengths.append(length)
        return found

    def batches(self, purpose: int) -> list[Any]:
        return [batch for group in self.groups for batch in group.batches(purpose)]

    def state(self, s: int, rows: int | None = None) -> dict[str, Any]:
        group, j = self._at[s]
        kept = group.kept(j, self.memory.capacity if rows is None else rows)
        counters = {"n": np.int32(group.n), "learned": np.int32(group.learned)}
        return {"learner": self.of(self.learners, s), **kept._asdict(), **counters, "world": group.envs.journal(j)}

    def restore(self, s: int, state: dict[str, Any]) -> None:
        group, j = self._at[s]
        learners = self.learners
        self.put(learners, s, state["learner"])
        self.learners = learners
        group.n, group.learned = int(state["n"]), int(state["learned"])
        group.keep(j, Kept(*(state[name] for name in Kept._fields)), group.n + 1)
        group.envs.restore(j, state["world"])
        group.look_ahead(group.n + 1)

    def close(self) -> None:
        self.stage.close()
        for group in self.groups:
            group.close()
