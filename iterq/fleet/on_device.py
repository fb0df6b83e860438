"""Groups whose experience is kept on the device: one call per step writes it and acts, one per lane learns.

What goes in and out travels packed: the answers as records of the replay, `meta` as a few words per agent.
"""

import contextlib
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from iterq import priorities
from iterq.agents import SAMPLE, Agent, address
from iterq.envs.stepping import Answer
from iterq.fleet.base import hasty, lift, rows_of, wide, with_rows
from iterq.fleet.group import AHEAD, Group, Kept, Shared, joined, of_group
from iterq.fleet.mapped import mapped, same_memory
from iterq.pack import Packed
from iterq.programs import program
from iterq.replay import Memory, Replay, answers, close_row, empty, observe, open_row, opened, opens, reader, sample

OFTEN = 1000  # looks into memory after which JAX is asked


class DevicePrograms(Shared):
    """What runs on the device for such groups."""

    def __init__(self, agent: Agent, memory: Memory) -> None:
        super().__init__(agent, memory)
        size, learners, kind = agent.draws, self.learners, agent.spec.action

        def choose(learner: Packed, replay: Replay, meta: Any, row: Any, noise: Any) -> Any:
            """The step, the member that acts in this episode, and the words of the action.

            `row`: the answer to the last action and the frame to act on, as one record. `meta`: see `DeviceGroup`.
            """
            n = meta[3] + 1
            words = noise[n % AHEAD]
            obs = observe(memory, opened(memory, reader(memory, replay.data), n - 1, row[opens(memory) :]), n[None] - 1)[0]
            head = jnp.where(row[opens(memory)] > 0, self.noise(words).member, meta[0])
            action = jax.lax.bitcast_convert_type(self.act(learner, head, obs, words), jnp.int32).reshape(-1)
            return jnp.concatenate([jnp.stack([n, head]), action])

        def store(replay: Replay, meta: Any, row: Any, chosen: Any) -> tuple[Replay, Any]:
            n = chosen[0]
            replay = close_row(memory, replay._replace(counts=meta[1:3]), n - 2, action_of(meta), row[answers(memory) : opens(memory)])
            replay = open_row(memory, replay, n - 1, row[opens(memory) :])
            return replay._replace(counts=None), jnp.concatenate([chosen[1:2], replay.counts, chosen[:1], chosen[2:]])

        def action_of(meta: Any) -> Any:
            return jax.lax.bitcast_convert_type(meta[..., 4:], kind.base).reshape(*meta.shape[:-1], *kind.shape)

        def see_all(told: Any, replays: list[Replay], meta: Any, lanes: list[Packed], rows: Any, noise: Any) -> Any:
            """`told`: what this returned before, whose memory is used again.

            Its actions come twice, (agents, 2, words), the second time with the number of the step in every word: see `DeviceGroup.acted`.
            """
            # No step has a negative number, but XLA does not know. So it copies `rows`, into which whoever sees the new `told` may write
            # again, and writes nothing to the memory of `told` before.
            rows = jax.lax.optimization_barrier(jnp.where(meta[:, 3:4] < 0, jnp.uint8(0), rows))
            chosen = joined(of_group(choose, (lanes, replays, meta, rows, noise)))
            n, actions = chosen[:, None, :1], chosen[:, None, 2:]
            told = jnp.where(n < 0, told, jnp.concatenate([actions, actions ^ n], 1))
            # Environments wait for the actions, and for nothing that is stored.
            told, chosen = jax.lax.optimization_barrier((told, chosen))
            done = of_group(store, (replays, meta, rows, chosen))
            return told, [replay for replay, _ in done], joined([meta for _, meta in done])

        def draw(learner: Packed, replay: Replay, meta: Any, purpose: int) -> Any:
            key = address(learners.unpack(learner).root, purpose, meta[3])
            return sample(memory, replay._replace(counts=meta[1:3]), meta[3], key, size)

        def learn(learner: Packed, replay: Replay, meta: Any, event: int | None) -> tuple[Packed, Any]:
            """Also the priorities that change by it."""
            batch = draw(learner, replay, meta, SAMPLE)
            moved, losses = agent.learn(learners.unpack(learner), batch, meta[3], event)
            tree = priorities.learned(replay.tree, batch.slot, losses / batch.weight) if memory.prioritised else None
            return learners.pack(moved), tree

        def of_lane(f: Callable) -> Any:
            """f of lane `j`, given what is known of all agents."""
            return lambda lane, replay, meta, j=None: lift(f)(lane, replay, meta if j is None else meta[j])

        def see_and_learn(told: Any, replays: list[Replay], meta: Any, lanes: list[Packed], *seen: Any, event: int | None) -> Any:
            """`see_all`, and what `learn` returns of every lane: one call instead of two."""
            done = see_all(told, replays, meta, lanes, *seen)
            # The actions are told before anything is learned, or whoever waits for them would wait for that as well.
            told, replays, meta, lanes = jax.lax.optimization_barrier((*done, lanes))
            (lane,), (replay,) = lanes, replays  # see `hasty`: side by side
            return told, replays, meta, [of_lane(partial(learn, event=event))(lane, replay, meta)]

        self.see = program(see_all, donate_argnums=(0, 1, 2))
        self.see_and_learn = cache(lambda event: program(partial(see_and_learn, event=event), donate_argnums=(0, 1, 2, 3)))
        self.learn = cache(lambda event: program(of_lane(partial(learn, event=event)), donate_argnums=0))
        self.draw = cache(lambda purpose: program(of_lane(partial(draw, purpose=purpose))))
        self.empty = program(lift(lambda agent: empty(memory)._replace(counts=None)))


class DeviceGroup(Group):
    """See the top of this file."""

    shared: DevicePrograms

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        # If there is no other group to act for meanwhile, the device goes on without waiting for the host.
        self.eager |= wide() and self.alone
        agents = jnp.arange(len(self.seeds))
        self.replays = [self.shared.empty(lane) for lane in ([agents] if wide() else agents)]
        # The member that acts in this episode, the counts of the replay, the step, and the action to be answered: all that a call
        # needs beside large arrays, kept where it is needed, since on a GPU every number that is sent costs as much as a frame.
        self.kind = self.agent.spec.action
        start = [1, 0, 0, 0] + [0] * (self.kind.itemsize // 4)
        self.meta: Any = jnp.tile(jnp.array(start, jnp.int32), (len(self.seeds), 1))
        self.chosen: np.ndarray | None = np.zeros(len(self.seeds), self.kind)  # None: not known yet
        # Where the actions are written to, and where the answers are read from: memory that both sides see, if there is such.
        self.told, self.place = self._mapped(np.zeros((len(self.seeds), 2, self.kind.itemsize // 4), np.int32))
        rows = np.zeros((len(self.seeds), self.memory.row.itemsize), np.uint8)
        self.letter, letter = self._mapped(rows)
        rows = (rows if letter is None else letter).view(self.memory.row)[:, 0]
        self.rows = [rows[name] for name in Answer._fields]
        self.looks = 0

    def _mapped(self, values: np.ndarray) -> tuple[Any, np.ndarray | None]:
        return mapped(values) if wide() else (values, None)

    def acted(self) -> bool:
        """Looks into the memory that the device writes to, since JAX tells of it later.

        Every word w of the actions of step n comes twice, as w and as w ^ n. So w ^ (w ^ n) = n only when the first of the two is the
        new one, whether or not the second has come too: the old ones are w' and w' ^ (n - 1).
        """
        if self.chosen is not None:
            return True
        self.looks += 1
        if self.place is not None and (self.place[:, 0] ^ self.place[:, 1] == self.n + 1).all():
            self.chosen = self._chosen(self.place)
        elif (self.place is None or self.looks % OFTEN == 0) and self.told.is_ready():
            self.chosen = self._chosen(np.asarray(self.told))
        return self.chosen is not None

    def actions(self) -> np.ndarray:
        if self.chosen is None:
            self.chosen = self._chosen(np.asarray(self.told))
        return self.chosen

    def _chosen(self, told: np.ndarray) -> np.ndarray:
        return told[:, 0].copy().view(self.kind.base).reshape(len(self.seeds), *self.kind.shape)

    def see(self, n: int, answer: Answer, actions: np.ndarray) -> None:
        self._tell(self.shared.see, answer)

    def see_and_learn(self, n: int, answer: Answer, actions: np.ndarray) -> None:
        if not hasty(self.agent.config):
            return super().see_and_learn(n, answer, actions)
        (done,) = self._tell(self.shared.see_and_learn(self.event(n)), answer)  # one call takes less time than two
        return self._learned(done)

    def _tell(self, program: Any, answer: Answer) -> list[Any]:
        """Call `program` with `answer`; what it returns beside what `see` does."""
        for row, told in zip(self.rows, answer, strict=True):
            row[:] = told
        found = program(self.told, self.replays, self.meta, self.lanes, self.letter, self.noise)
        self.told, self.replays, self.meta, *more = found
        self.chosen = None
        if self.place is not None and not same_memory(self.told, self.place):
            self.place = None
        return more

    def batches(self, purpose: int) -> list[Any]:
        return [self.shared.draw(purpose)(*args) for args in self._lanes()]

    def _lanes(self) -> list[tuple]:
        """What programs of one lane are called with."""
        which = [()] if wide() else [(np.int32(j),) for j in range(len(self.seeds))]
        return [(lane, replay, self.meta, *j) for lane, replay, j in zip(self.lanes, self.replays, which, strict=True)]

    def learn(self, n: int) -> None:
        learn = self.shared.learn(self.event(n))
        self._learned([learn(*args) for args in self._lanes()])

    def _learned(self, done: list[tuple[Packed, Any]]) -> None:
        """Keep what a gradient step of every lane returns."""
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

    def close(self) -> None:
        super().close()
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            jax.block_until_ready(self.told)  # before its memory is let go of
