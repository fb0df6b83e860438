"""Groups whose experience is kept in the host's memory: for fleets that the device cannot hold, and where the device is the host.

Python knows what every step draws, so a step on which all agents of a group explore needs no call of the device at all.
"""

from functools import cache, partial
from typing import Any

import jax
import numpy as np

from iterq.agents import SAMPLE, Agent, address
from iterq.envs.stepping import Answer
from iterq.fleet.base import learns, lift, wide
from iterq.fleet.group import AHEAD, Group, Kept, Shared, joined, of_group
from iterq.host_replay import HostReplay, from_seen, from_windows
from iterq.pack import Packed
from iterq.programs import program
from iterq.replay import Memory, Replay


class HostPrograms(Shared):
    """What runs on the device for such groups."""

    def __init__(self, agent: Agent, memory: Memory) -> None:
        super().__init__(agent, memory)
        learners, size = self.learners, agent.draws

        def act(learner: Packed, seen: Any, drawn: Any) -> Any:
            """(stack, bytes) `seen`: the last records; `drawn`: the head and the words of the noise."""
            return self.act(learner, drawn[0], from_seen(memory, seen), drawn[1:])

        def learn(learner: Packed, windows: Any, n: Any, event: int | None) -> Packed:
            return learners.pack(agent.learn(learners.unpack(learner), from_windows(memory, windows), n, event)[0])

        def bits(root: Any, purpose: Any, n: Any) -> Any:
            """(batch,) what `replay.draw` draws at step `n`."""
            return jax.random.bits(address(root, purpose, n), (size,))

        self.act_all = program(lambda lanes, seen, drawn: joined(of_group(act, (lanes, seen, drawn))))
        self.learn = cache(lambda event: program(lift(partial(learn, event=event), common=1), donate_argnums=0))
        self.bits = program(jax.vmap(jax.vmap(bits, (None, None, 0)), (0, None, None)))
        self.decode = program(lift(partial(from_windows, memory)))


class HostGroup(Group):
    """See the top of this file."""

    shared: HostPrograms

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.replay = HostReplay(self.memory, len(self.seeds))
        self.head = np.ones(len(self.seeds), np.int32)
        self.kind = self.agent.spec.action
        self.chosen: Any = np.zeros(len(self.seeds), self.kind)
        self.learning: list[int] = []  # the steps with a gradient step among those that noise is drawn for
        self.bits = np.zeros(0, np.uint32)  # (agents, steps, batch) what they draw

    def acted(self) -> bool:
        return isinstance(self.chosen, np.ndarray) or self.chosen.is_ready()

    def actions(self) -> np.ndarray:
        return np.asarray(self.chosen)

    def look_ahead(self, n: int) -> None:
        if self.ahead != n // AHEAD:
            super().look_ahead(n)
            self.noise = np.asarray(self.noise)
            self.learning = [n for n in range(self.ahead * AHEAD, (self.ahead + 1) * AHEAD) if learns(self.agent.config, n)]
            padded = np.resize(np.array(self.learning or [0], np.int32), -(-AHEAD // self.agent.config.G))  # always of one length
            self.bits = np.asarray(self.shared.bits(self.roots, np.int32(SAMPLE), padded))

    def see(self, n: int, answer: Answer, actions: np.ndarray) -> None:
        self.replay.close_row(n - 2, actions, answer.reward, answer.terminated)
        self.replay.open_row(n - 1, answer.frame, answer.first)
        words = self.noise[:, n % AHEAD]
        last = 1 + self.kind.itemsize // 4
        explore, action, member = words[:, 0], words[:, 1:last], words[:, last]  # the fields of `Noise`, in their order
        self.head = np.where(answer.first, member, self.head)
        if explore.all():
            self.chosen = np.ascontiguousarray(action).view(self.kind.base).reshape(len(words), *self.kind.shape)
        else:
            self.chosen = self.shared.act_all(self.lanes, self.replay.seen(n - 1), np.column_stack([self.head, words]))

    def windows(self, bits: np.ndarray) -> list[np.ndarray]:
        """One batch per lane, as records, drawn with `bits` (agents, batch)."""
        found = [self.replay.windows(s, bits[s]) for s in range(len(self.seeds))]
        return [np.stack(found)] if wide() else found

    def batches(self, purpose: int) -> list[Any]:
        bits = np.asarray(self.shared.bits(self.roots, np.int32(purpose), np.array([self.n + 1], np.int32)))
        return [self.shared.decode(windows) for windows in self.windows(bits[:, 0])]

    def learn(self, n: int) -> None:
        learn = self.shared.learn(self.event(n))
        windows = self.windows(self.bits[:, self.learning.index(n)])
        self.lanes = [learn(*of_lane, np.int32(n)) for of_lane in zip(self.lanes, windows, strict=True)]

    def kept(self, j: int, rows: int) -> Kept:
        return Kept(Replay(self.replay.bytes[j, :rows], self.replay.counts[j]), self.head[j], self.actions()[j])

    def keep(self, j: int, kept: Kept, n: int) -> None:
        self.replay.bytes[j, : len(kept.replay.data)], self.replay.counts[j] = kept.replay.data, kept.replay.counts
        self.head[j] = kept.head
        self.chosen = self.actions().copy()
        self.chosen[j] = kept.action
