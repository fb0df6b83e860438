"""Groups whose experience is kept on the device: one call per step writes it and acts, one per lane learns.

What goes in and out travels packed: the answers as records of the replay, `meta` as a few words per agent.
"""

import ctypes
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from iterq import priorities
from iterq.agents import SAMPLE, Agent, address
from iterq.envs.stepping import Answer
from iterq.fleet.base import lift, rows_of, wide, with_rows
from iterq.fleet.group import AHEAD, Group, Kept, Shared, joined, of_group
from iterq.pack import Packed
from iterq.programs import program
from iterq.replay import Memory, Replay, answers, close_row, empty, observe, open_row, opens, reader, sample

PINNED = "pinned_host"


class DevicePrograms(Shared):
    """What runs on the device for such groups."""

    def __init__(self, agent: Agent, memory: Memory) -> None:
        super().__init__(agent, memory)
        size, learners, kind = agent.draws, self.learners, agent.spec.action

        def see(learner: Packed, replay: Replay, meta: Any, row: Any, noise: Any) -> tuple[Replay, Any]:
            """`row`: the answer to the last action and the frame to act on, as one record. `meta`: see `DeviceGroup`."""
            n = meta[3] + 1
            words = noise[n % AHEAD]
            replay = close_row(memory, replay._replace(counts=meta[1:3]), n - 2, action_of(meta), row[answers(memory) : opens(memory)])
            replay = open_row(memory, replay, n - 1, row[opens(memory) :])
            obs = observe(memory, reader(memory, replay.data), n[None] - 1)[0]
            head = jnp.where(row[opens(memory)] > 0, self.noise(words).member, meta[0])
            action = jax.lax.bitcast_convert_type(self.act(learner, head, obs, words), jnp.int32).reshape(-1)
            return replay._replace(counts=None), jnp.concatenate([jnp.stack([head, *replay.counts, n]), action])

        def action_of(meta: Any) -> Any:
            return jax.lax.bitcast_convert_type(meta[..., 4:], kind.base).reshape(*meta.shape[:-1], *kind.shape)

        def see_all(replays: list[Replay], meta: Any, lanes: list[Packed], rows: Any, noise: Any) -> tuple[list[Replay], Any, Any]:
            rows = jax.device_put(rows, jax.memory.Space.Device) if self.pinned else rows
            done = of_group(see, (lanes, replays, meta, rows, noise))
            meta = joined([meta for _, meta in done])
            return [replay for replay, _ in done], meta, action_of(meta)

        def draw(learner: Packed, replay: Replay, meta: Any, purpose: int) -> Any:
            key = address(learners.unpack(learner).root, purpose, meta[3])
            return sample(memory, replay._replace(counts=meta[1:3]), meta[3], key, size)

        def learn(learner: Packed, replay: Replay, meta: Any, moving: bool) -> tuple[Packed, Any]:
            """Also the priorities that change by it."""
            batch = draw(learner, replay, meta, SAMPLE)
            moved, losses = agent.learn(learners.unpack(learner), batch, meta[3], moving)
            tree = priorities.learned(replay.tree, batch.slot, losses / batch.weight) if memory.prioritised else None
            return learners.pack(moved), tree

        def of_lane(f: Callable) -> Any:
            """f of lane `j`, given what is known of all agents."""
            return lambda lane, replay, meta, j=None: lift(f)(lane, replay, meta if j is None else meta[j])

        # The program itself fetches the answers from the host's memory and puts the actions there: to send and to ask takes longer.
        device = jax.devices()[0]
        there = wide() and any(memory.kind == PINNED for memory in device.addressable_memories())
        self.pinned = jax.sharding.SingleDeviceSharding(device, memory_kind=PINNED) if there else None
        self.see = program(see_all, donate_argnums=(0, 1), **({"out_shardings": (None, None, self.pinned)} if there else {}))
        # The host knows at which steps the window moves, and a program that need not ask is shorter.
        self.learn = [program(of_lane(partial(learn, moving=moving)), donate_argnums=0) for moving in (False, True)]
        self.draw = cache(lambda purpose: program(of_lane(partial(draw, purpose=purpose))))
        self.empty = program(lift(lambda agent: empty(memory)._replace(counts=None)))

    def letter(self, agents: int) -> tuple[Any, Any]:
        """What `see` takes as `rows`, and the same memory to write into, as records. It may be written again when `see` has answered."""
        rows: Any = np.zeros(agents, self.memory.row)
        words = rows.view(np.uint8).reshape(agents, -1)
        if not self.pinned:
            return words, rows
        words = jax.device_put(words, self.pinned)
        place = (ctypes.c_uint8 * words.nbytes).from_address(words.unsafe_buffer_pointer())
        return words, np.frombuffer(place, self.memory.row)


class DeviceGroup(Group):
    """See the top of this file."""

    shared: DevicePrograms

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        agents = jnp.arange(len(self.seeds))
        self.replays = [self.shared.empty(lane) for lane in ([agents] if wide() else agents)]
        # The member that acts in this episode, the counts of the replay, the step, and the action to be answered: all that a call
        # needs beside large arrays, kept where it is needed, since on a GPU every number that is sent costs as much as a frame.
        self.kind = self.agent.spec.action
        start = [1, 0, 0, 0] + [0] * (self.kind.itemsize // 4)
        self.meta: Any = jnp.tile(jnp.array(start, jnp.int32), (len(self.seeds), 1))
        self.chosen: Any = np.zeros(len(self.seeds), self.kind)
        self.letter, rows = self.shared.letter(len(self.seeds))
        self.rows = [rows[name] for name in Answer._fields]

    def acted(self) -> bool:
        return isinstance(self.chosen, np.ndarray) or self.chosen.is_ready()

    def actions(self) -> np.ndarray:
        return np.asarray(self.chosen)

    def see(self, n: int, answer: Answer, actions: np.ndarray) -> None:
        for row, told in zip(self.rows, answer, strict=True):
            row[:] = told
        self.replays, self.meta, self.chosen = self.shared.see(self.replays, self.meta, self.lanes, self.letter, self.noise)

    def batches(self, purpose: int) -> list[Any]:
        return [self.shared.draw(purpose)(*args) for args in self._lanes()]

    def _lanes(self) -> list[tuple]:
        """What programs of one lane are called with."""
        which = [()] if wide() else [(np.int32(j),) for j in range(len(self.seeds))]
        return [(lane, replay, self.meta, *j) for lane, replay, j in zip(self.lanes, self.replays, which, strict=True)]

    def learn(self, n: int) -> None:
        learn = self.shared.learn[self.agent.moves(n)]
        done = [learn(*args) for args in self._lanes()]
        self.lanes = [lane for lane, _ in done]
        if self.memory.prioritised:
            self.replays = [replay._replace(tree=tree) for replay, (_, tree) in zip(self.replays, done, strict=True)]

    def kept(self, j: int, rows: int) -> Kept:
        head, *counts, _ = np.asarray(self.meta)[j, :4]
        replay = self.replays[0 if wide() else j]
        tree = jax.tree.map(lambda x: np.asarray(x[j] if wide() else x), replay.tree)
        return Kept(Replay(rows_of(replay.data, j, rows), np.array(counts, np.int32), tree), head, self.actions()[j])

    def keep(self, j: int, kept: Kept, n: int) -> None:
        lane = 0 if wide() else j
        data, tree = self.replays[lane].data, self.replays[lane].tree
        tree = jax.tree.map(lambda x, new: x.at[j].set(new) if wide() else jnp.asarray(new), tree, kept.replay.tree)
        self.replays[lane] = Replay(with_rows(data, j, kept.replay.data), None, tree)
        action = np.asarray(kept.action, self.kind.base)
        self.meta = self.meta.at[j].set(np.array([kept.head, *kept.replay.counts, n, *action.reshape(-1).view(np.int32)], np.int32))
        self.chosen = self.actions().copy()
        self.chosen[j] = action
