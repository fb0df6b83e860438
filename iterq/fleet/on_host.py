"""Groups whose experience is kept in the host's memory: for fleets that the device cannot hold, and where the device is the host.

Python knows what every step draws, so a step on which all agents of a group explore needs no call of the device at all.
"""

from functools import partial
from typing import Any

import jax
import numpy as np

from iterq.agents import SAMPLE, Agent, address
from iterq.envs.host import Answer
from iterq.fleet.base import lift, wide
from iterq.fleet.group import AHEAD, Group, Kept, Shared, joined, of_group
from iterq.pack import Packed
from iterq.programs import program
from iterq.replay import HostReplay, Memory, Replay, from_seen, from_windows


class HostPrograms(Shared):
    """What runs on the device for such groups."""

    def __init__(self, agent: Agent, memory: Memory) -> None:
        super().__init__(agent, memory)
        learners, size = self.learners, agent.config.batch_size

        def act(learner: Packed, seen: Any, drawn: Any) -> Any:
            """(stack, bytes) `seen`: the last records; `drawn`: the head and the words of the noise."""
            return self.act(learner, drawn[0], from_seen(memory, seen), drawn[1:])

        def learn(learner: Packed, windows: Any, n: Any, moving: bool) -> Packed:
            return learners.pack(agent.learn(learners.unpack(learner), from_windows(memory, windows), n, moving)[0])

        def draw(root: Any, many: Any, purpose: Any, n: Any) -> Any:
            """(batch,) which of `many` starts, as `replay.draw` has it."""
            return jax.random.randint(address(root, purpose, n), (size,), 0, many)

        self.act_all = program(lambda lanes, seen, drawn: joined(of_group(act, (lanes, seen, drawn))))
        self.learn = [program(lift(partial(learn, moving=moving), common=1), donate_argnums=0) for moving in (False, True)]
        self.draw = program(jax.vmap(draw, (0, 0, None, None)))
        self.decode = program(lift(partial(from_windows, memory)))


class HostGroup(Group):
    """See the top of this file."""

    shared: HostPrograms

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.replay = HostReplay(self.memory, len(self.seeds))
        self.head = np.ones(len(self.seeds), np.int32)
        self.chosen: Any = np.zeros(len(self.seeds), np.int32)

    def actions(self) -> np.ndarray:
        return np.asarray(self.chosen)

    def look_ahead(self, n: int) -> None:
        super().look_ahead(n)
        self.noise = np.asarray(self.noise)

    def see(self, n: int, answer: Answer, actions: np.ndarray) -> None:
        self.replay.close_row(n - 2, actions, answer.reward, answer.terminated)
        self.replay.open_row(n - 1, answer.frame, answer.first)
        words = self.noise[:, n % AHEAD]
        explore, action, member = words[:, 0], words[:, 1], words[:, 2]  # the fields of `Noise`, in their order
        self.head = np.where(answer.first, member, self.head)
        if explore.all():
            self.chosen = action
        else:
            self.chosen = self.shared.act_all(self.lanes, self.replay.seen(n - 1), np.column_stack([self.head, words]))

    def windows(self, purpose: int) -> list[np.ndarray]:
        """One batch per lane, as records."""
        many = self.replay.counts[:, 0] - self.replay.counts[:, 1]
        drawn = np.asarray(self.shared.draw(self.roots, many, np.int32(purpose), np.int32(self.n + 1)))
        found = [self.replay.windows(s, drawn[s]) for s in range(len(self.seeds))]
        return [np.stack(found)] if wide() else found

    def batches(self, purpose: int) -> list[Any]:
        return [self.shared.decode(windows) for windows in self.windows(purpose)]

    def learn(self, n: int) -> None:
        learn = self.shared.learn[self.agent.moves(n)]
        self.lanes = [learn(lane, windows, np.int32(n)) for lane, windows in zip(self.lanes, self.windows(SAMPLE), strict=True)]

    def kept(self, j: int) -> Kept:
        return Kept(Replay(self.replay.bytes[j], self.replay.counts[j]), self.head[j], self.actions()[j])

    def keep(self, j: int, kept: Kept, n: int) -> None:
        self.replay.bytes[j], self.replay.counts[j] = kept.replay.data, kept.replay.counts
        self.head[j] = kept.head
        self.chosen = self.actions().copy()
        self.chosen[j] = kept.action
