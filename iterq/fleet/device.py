"""What runs on the device for agents whose environments run on the host: one call to act per step, one per agent to learn.

What goes in and out travels packed (pack.py): the answers as records of the replay, a learner as one vector of words, `meta` as four
numbers per agent.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from iterq import priorities
from iterq.agents import EVALUATE, SAMPLE, Agent, address
from iterq.fleet.base import lift, wide
from iterq.pack import Packed, packer
from iterq.programs import program
from iterq.replay import ANSWER, CLOSED, Memory, Replay, close_row, empty, observe, open_row, reader, sample

AHEAD = 256  # steps for which the randomness of acting is drawn at once


class Programs:
    """What runs on the device, for the lanes of a group."""

    def __init__(self, agent: Agent, memory: Memory) -> None:
        size = agent.config.batch_size
        learners = packer(jax.eval_shape(agent.init, jnp.uint32(0)))
        noises = packer(jax.eval_shape(agent.noise, jnp.zeros(2, jnp.uint32), 0))

        def act(learner: Packed, meta: Any, obs: Any, first: Any, words: Any, n: Any) -> Any:
            """(4,) meta: the member that acts in this episode, the action, and the counts of the replay."""
            online, noise = learners.unpack(learner).chain.online, noises.unpack(Packed(words, []))
            return jnp.stack([*agent.act(online, meta[0], obs, first, noise, n), *meta[2:]])

        def see(learner: Packed, replay: Replay, meta: Any, row: Any, words: Any, n: Any) -> tuple[Replay, Any]:
            """`row` is the answer to the last action and the frame to act on, as one record of the replay."""
            replay = close_row(memory, replay._replace(counts=meta[2:]), n - 2, meta[1], row[ANSWER:CLOSED])
            replay = open_row(memory, replay, n - 1, row[CLOSED:])
            obs = observe(memory, reader(memory, replay.data), n[None] - 1)[0]
            meta = jnp.concatenate([meta[:2], replay.counts])
            return replay._replace(counts=None), act(learner, meta, obs, row[CLOSED] > 0, words, n)

        def of_group(f: Callable, group: tuple, noise: Any, n: Any) -> list[Any]:
            """f of every lane; `group` are trees of lanes as lists, or arrays over all agents."""
            words = noise[:, n % AHEAD]
            if wide():
                axes = [0] * (len(group) + 1) + [None]
                return [jax.vmap(f, axes)(*(x[0] if isinstance(x, list) else x for x in group), words, n)]
            return [f(*(x[j] for x in group), words[j], n) for j in range(len(words))]

        def joined(metas: list[Any]) -> Any:
            return metas[0] if wide() else jnp.stack(metas)

        def see_all(replays: list[Replay], meta: Any, lanes: list[Packed], rows: Any, noise: Any, n: Any) -> tuple[list[Replay], Any]:
            done = of_group(see, (lanes, replays, meta, rows), noise, n)
            return [replay for replay, _ in done], joined([meta for _, meta in done])

        def act_all(meta: Any, lanes: list[Packed], obs: Any, first: Any, noise: Any, n: Any) -> Any:
            return joined(of_group(act, (lanes, meta, obs, first), noise, n))

        def draw(learner: Packed, replay: Replay, counts: Any, n: Any, purpose: Any) -> Any:
            return sample(memory, replay._replace(counts=counts), n, address(learners.unpack(learner).root, purpose, n), size)

        def counts_of(meta: Any, j: Any) -> Any:
            return meta[:, 2:] if wide() else meta[j, 2:]

        # The host knows at which steps the window moves, and a program that need not ask is shorter.
        def learn_from(learner: Packed, batch: Any, n: Any, moving: bool) -> Packed:
            return learners.pack(agent.learn(learners.unpack(learner), batch, n, moving)[0])

        def learn(learner: Packed, replay: Replay, counts: Any, n: Any, moving: bool) -> tuple[Packed, Any]:
            """Also the priorities that change by it."""
            batch = draw(learner, replay, counts, n, SAMPLE)
            moved, losses = agent.learn(learners.unpack(learner), batch, n, moving)
            tree = priorities.learned(replay.tree, batch.slot, losses / batch.weight) if memory.prioritised else None
            return learners.pack(moved), tree

        def greedy(learner: Packed, obs: Any, n: Any, t: Any) -> Any:
            root, chain = learners.unpack(learner)[:2]
            return agent.greedy(chain.online, obs, jax.random.fold_in(address(root, EVALUATE, n), t))

        def draw_ahead(roots: Any, n: Any) -> Any:
            ns = n + jnp.arange(AHEAD)
            return jax.vmap(lambda root: jax.vmap(lambda n: noises.pack(agent.noise(root, n)).words)(ns))(roots)

        self.see, self.act = program(see_all, donate_argnums=(0, 1)), program(act_all, donate_argnums=0)

        def learn_lane(lane: Packed, replay: Replay, meta: Any, j: Any, n: Any, moving: bool) -> tuple[Packed, Any]:
            return lift(partial(learn, moving=moving), common=1)(lane, replay, counts_of(meta, j), n)

        def draw_lane(lane: Packed, replay: Replay, meta: Any, j: Any, n: Any, purpose: Any) -> Any:
            return lift(draw, common=2)(lane, replay, counts_of(meta, j), n, purpose)

        self.learn = [program(partial(learn_lane, moving=moving), donate_argnums=0) for moving in (False, True)]
        self.learn_from = [program(lift(partial(learn_from, moving=moving), common=1), donate_argnums=0) for moving in (False, True)]
        self.draw, self.greedy = program(draw_lane), program(lift(greedy, common=2))
        self.pack, self.unpack = program(lift(learners.pack)), program(lift(learners.unpack))
        self.draw_ahead, self.keys = program(draw_ahead), program(jax.vmap(address, (0, None, None)))
        self.empty = lambda seed: empty(memory)._replace(counts=None)
