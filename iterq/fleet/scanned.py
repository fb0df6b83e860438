"""Agents on a pure-JAX environment: whole blocks of steps run as one program on the device."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from iterq import priorities
from iterq.agents import EVALUATE, SAMPLE, STARTS, WORLD, Agent, Learner, address
from iterq.envs.base import PureEnv
from iterq.envs.stepping import Episode
from iterq.fleet.base import Evaluation, Fleet, learns, lift, rows_of, with_rows
from iterq.parallel import run_all
from iterq.programs import program
from iterq.replay import Replay, answer_bytes, close_row, empty, observe, open_row, opening_bytes, reader, sample

BLOCK = 1_000  # steps that one program runs at most


class World(NamedTuple):
    """A pure environment in the middle of a run."""

    state: Any
    reward: Any  # its last answer
    terminated: Any
    over: Any  # the episode has ended: the next step resets
    first: Any  # the frame to be acted on starts an episode
    total: Any  # the return so far
    length: Any


class Seat(NamedTuple):
    """One agent and its surroundings, where all of it lives on the device."""

    learner: Learner
    replay: Replay
    head: Any  # the member that acts in this episode
    action: Any  # the last one, whose row is still open
    world: World


class Log(NamedTuple):
    """Per step of a block: whether an episode ended, its return and its length."""

    ended: Any
    total: Any
    length: Any


class Scanned(Fleet):
    """Agents on a pure-JAX environment: whole blocks of steps in one program."""

    def __init__(self, agent: Agent, env: PureEnv, seeds: Sequence[int]) -> None:
        super().__init__(agent, [seeds])
        self.env, self._n = env, 0
        self.seats: list[Seat] = self.start(self._seat)
        self._run = program(lift(self._block, common=2), donate_argnums=0)
        self._play = program(lift(self._episodes, common=1))
        self._sample = program(lift(self._draw, common=2))

    @property
    def n(self) -> int:
        return self._n

    @property
    def learners(self) -> list[Learner]:
        return [seat.learner for seat in self.seats]

    @learners.setter
    def learners(self, new: list[Learner]) -> None:
        self.seats = [seat._replace(learner=learner) for seat, learner in zip(self.seats, new, strict=True)]

    def _seat(self, seed: Any) -> Seat:
        learner = self.agent.init(seed)
        zero, no, one = jnp.float32(0), jnp.bool(False), jnp.int32(1)
        world = World(self.env.reset(address(learner.root, WORLD, 0)), zero, no, no, ~no, zero, one - 1)
        return Seat(learner, empty(self.memory), one, one - 1, world)

    def _draw(self, learner: Learner, replay: Replay, n: Any, purpose: Any) -> Any:
        return sample(self.memory, replay, n, address(learner.root, purpose, n), self.agent.draws)

    def _learn(self, learner: Learner, replay: Replay, n: Any) -> tuple[Learner, Any]:
        """Also the priorities that change by it. The rows are only read: a branch that returned them would copy them."""
        batch = self._draw(learner, replay, n, SAMPLE)
        learner, losses = self.agent.learn(learner, batch, n)
        return learner, priorities.learned(replay.tree, batch.slot, losses / batch.weight) if self.memory.prioritised else None

    def _answer(self, world: World, action: Any, keys: Any) -> World:
        """After `action`, or after the reset that is due."""
        state, reward, terminated = self.env.step(world.state, action, keys[0])
        start = self.env.reset(keys[1])
        pick = partial(jnp.where, world.over)
        length = pick(0, world.length + 1)
        over = ~world.over & (terminated | (length >= self.env.horizon))
        ended, total = ~world.over & terminated, pick(0.0, world.total + reward)
        return World(jax.tree.map(pick, start, state), pick(0.0, reward), ended, over, world.over, total, length)

    def _step(self, seat: Seat, n: Any, noise: Any, keys: Any) -> Seat:
        c, world = self.agent.config, seat.world
        i = n - 1  # rows are counted from 0
        reward = jnp.clip(world.reward, -1, 1) if c.clip_rewards else world.reward
        # All writing comes before all reading, or the compiler would copy the replay.
        replay = close_row(self.memory, seat.replay, i - 1, seat.action, answer_bytes(reward, world.terminated))
        replay = open_row(self.memory, replay, i, opening_bytes(self.memory, self.env.observe(world.state), world.first))
        obs = observe(self.memory, reader(self.memory, replay.data), i[None])[0]
        head = jnp.where(world.first, noise.member, seat.head)
        action = self.agent.act(seat.learner, head, obs, noise)
        learner, tree = jax.lax.cond(
            learns(c, n), lambda learner: self._learn(learner, replay, n), lambda learner: (learner, replay.tree), seat.learner
        )
        return Seat(learner, replay._replace(tree=tree), head, action, self._answer(world, action, keys))

    def _block(self, seat: Seat, n: Any, m: Any) -> tuple[Seat, Log]:
        """Steps n + 1 … n + m, m ≤ BLOCK."""
        ns, root = n + 1 + jnp.arange(BLOCK), seat.learner.root
        noise = jax.vmap(lambda n: self.agent.noise(root, n))(ns)
        keys = jax.vmap(lambda n: jax.random.split(address(root, WORLD, n)))(ns)

        def body(i: Any, carry: tuple[Seat, Log]) -> tuple[Seat, Log]:
            seat, log = carry
            seat = self._step(seat, ns[i], jax.tree.map(lambda x: x[i], noise), keys[i])
            now = Log(seat.world.over, seat.world.total, seat.world.length)
            return seat, jax.tree.map(lambda x, new: x.at[i].set(new), log, now)

        log = Log(jnp.zeros(BLOCK, bool), jnp.zeros(BLOCK), jnp.zeros(BLOCK, jnp.int32))
        return jax.lax.fori_loop(0, m, body, (seat, log))

    def _finish(self, seat: Seat, m: int) -> tuple[Seat, Log]:
        return jax.block_until_ready(self._run(seat, self._n, m))

    def advancing(self, target: int, stop: Callable[[], bool]) -> Iterator[bool]:
        while self._n < target and not stop():
            m = min(BLOCK, target - self._n)
            done = run_all({lane: partial(self._finish, seat, m) for lane, seat in enumerate(self.seats)})
            done = [done[lane] for lane in range(len(self.seats))]
            self.seats = [seat for seat, _ in done]
            for s, log in enumerate(self.each([log for _, log in done])):
                self.ended += [
                    Episode(s, self._n + 1 + i, float(log.total[i]), int(log.length[i])) for i in np.flatnonzero(log.ended).tolist()
                ]
            self._n += m
            yield True

    def _episodes(self, learner: Learner, n: Any) -> tuple[Any, Any]:
        """Returns and lengths (episodes,) of the greedy episodes of step `n`."""
        c, env = self.agent.config, self.env
        varied = c.eval_starts == "varied"
        starts = jax.random.split(address(learner.root, *((STARTS, n) if varied else (EVALUATE, 0))), c.eval_episodes)
        states = jax.vmap(env.reset)(starts)
        frames = jax.vmap(env.observe)(states)

        def stacked(obs: Any, frames: Any) -> Any:
            return frames if c.frame_stack == 1 else jnp.concatenate([obs[..., 1:], frames[..., None]], -1)

        obs = stacked(jnp.zeros((*frames.shape, c.frame_stack), frames.dtype), frames)

        def body(carry: tuple) -> tuple:
            t, states, obs, total, length, over = carry
            key = jax.random.fold_in(address(learner.root, EVALUATE, n), t)
            actions = self.agent.greedy(learner, obs, key)
            keys = jax.vmap(jax.random.fold_in, (0, None))(starts, t + 1)
            states, reward, terminated = jax.vmap(env.step)(states, actions, keys)
            total, length = total + jnp.where(over, 0, reward), length + ~over
            obs = stacked(obs, jax.vmap(env.observe)(states))
            return t + 1, states, obs, total, length, over | terminated | (length >= env.horizon)

        zeros = jnp.zeros(c.eval_episodes)
        start = jnp.int32(0), states, obs, zeros, zeros.astype(jnp.int32), zeros.astype(bool)
        _, _, _, total, length, _ = jax.lax.while_loop(lambda carry: ~carry[-1].all(), body, start)
        return total, length

    def evaluate(self) -> list[Evaluation]:
        played = [self._play(seat.learner, self._n) for seat in self.seats]
        return [Evaluation(*(x.tolist() for x in found)) for found in self.each(played)]

    def batches(self, purpose: int) -> list[Any]:
        return [self._sample(seat.learner, seat.replay, self._n, purpose) for seat in self.seats]

    def state(self, s: int, rows: int | None = None) -> dict[str, Any]:
        lane, j = self._where[s]
        small = self.of([_without_rows(seat) for seat in self.seats], s)
        data = rows_of(self.seats[lane].replay.data, j, self.memory.capacity if rows is None else rows)
        return {**small._replace(replay=small.replay._replace(data=data))._asdict(), "n": np.int32(self._n)}

    def restore(self, s: int, state: dict[str, Any]) -> None:
        self._n = int(state["n"])
        lane, j = self._where[s]
        data, new = self.seats[lane].replay.data, Seat(**{name: state[name] for name in Seat._fields})
        seats = [_without_rows(seat) for seat in self.seats]
        self.put(seats, s, _without_rows(new))
        data = with_rows(data, j, new.replay.data)
        self.seats[lane] = seats[lane]._replace(replay=seats[lane].replay._replace(data=data))


def _without_rows(seat: Seat) -> Seat:
    return seat._replace(replay=seat.replay._replace(data=None))
