"""Agents whose host environments step together. Where their experience is kept is a subclass's: `on_device.py`, `on_host.py`."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from iterq.agents import EVALUATE, Agent, Noise, address
from iterq.envs.host import HostEnv
from iterq.envs.stepping import TRAINING, Answer, Episode
from iterq.envs.workers import stepping
from iterq.events import STAY
from iterq.fleet.base import counted, counts, hasty, learns, lift, wide
from iterq.pack import LARGE, MIDDLING, Packed, Packer, packer
from iterq.programs import program
from iterq.replay import Memory

AHEAD = 256  # steps for which the randomness of acting is drawn at once


class Shared:
    """What runs on the device for all groups of a fleet. A learner travels as one vector of words (pack.py)."""

    def __init__(self, agent: Agent, memory: Memory) -> None:
        self.agent, self.memory = agent, memory
        # A place of its own costs an array time in every call. It saves some in an update, and more if there is one in every step.
        large = MIDDLING if wide() and agent.config.G == 1 else LARGE
        self.learners: Packer = packer(jax.eval_shape(agent.init, jnp.uint32(0)), large)
        self.noises: Packer = packer(jax.eval_shape(agent.noise, jnp.zeros(2, jnp.uint32), 0))

        def greedy(learner: Packed, obs: Any, n: Any, t: Any) -> Any:
            whole = self.learners.unpack(learner)
            return agent.greedy(whole, obs, jax.random.fold_in(address(whole.root, EVALUATE, n), t))

        def draw_ahead(roots: Any, n: Any) -> Any:
            ns = n + jnp.arange(AHEAD)
            return jax.vmap(lambda root: jax.vmap(lambda n: self.noises.pack(agent.noise(root, n)).words)(ns))(roots)

        self.greedy, self.draw_ahead = program(lift(greedy, common=2)), program(draw_ahead)
        self.pack, self.unpack = program(lift(self.learners.pack)), program(lift(self.learners.unpack))
        self.counts = program(lift(lambda lane: counts(self.learners.unpack(lane))))
        self.counted = program(lift(lambda lane: self.learners.pack(counted(self.learners.unpack(lane)))), donate_argnums=0)

    def act(self, learner: Packed, head: Any, obs: Any, words: Any) -> Any:
        """The action of one agent; `words` are its noise, packed."""
        return self.agent.act(self.learners.unpack(learner), head, obs, self.noise(words))

    def noise(self, words: Any) -> Noise:
        """The noise of one step, packed as `draw_ahead` has it."""
        return self.noises.unpack(Packed(words, []))


class Kept(NamedTuple):
    """What a checkpoint holds of an agent beside its learner and its environment."""

    replay: Any
    head: Any
    action: Any  # to be answered


class Group:
    """The part that does not depend on where experience is kept."""

    def __init__(self, shared: Any, kind: HostEnv, seeds: Sequence[int], first: int, lanes: list[Packed], among: int = 0) -> None:
        """first: the number of the group's first agent in the fleet; lanes: the learners; among: see `HostEnvs`."""
        self.shared, self.agent, self.memory, self.seeds, self.first = shared, shared.agent, shared.memory, tuple(seeds), first
        self.envs = stepping(kind, seeds, TRAINING, among=among)
        self.roots = jnp.stack([jax.random.key_data(jax.random.key(seed, impl="threefry2x32")) for seed in seeds])
        self.lanes, self.alone = lanes, len(seeds) == among
        self.eager = hasty(self.agent.config)  # an update is called for right after the actions, before these are known
        self.n = -1  # steps answered; -1: the first frame is not seen yet
        self.stepping = False  # the environments are at step n + 1
        self.taken = np.zeros(0, np.int32)  # (agents, …) the actions of that step
        self.learned = 0  # the last step whose gradient step is done
        self.noise: Any = None  # (agents, AHEAD, words) of the steps from `ahead` * AHEAD on
        self.ahead = -1

    def actions(self) -> np.ndarray:
        """(agents, …) what is to be done in step n + 1."""
        raise NotImplementedError

    def learn(self, n: int) -> None:
        """The gradient step of step `n`."""
        raise NotImplementedError

    def see(self, n: int, answer: Answer, actions: np.ndarray) -> None:
        """Close the row of step n - 1, open that of step `n` and act on it."""
        raise NotImplementedError

    def see_and_learn(self, n: int, answer: Answer, actions: np.ndarray) -> None:
        """`see`, and then the gradient step of step `n`, whose actions may be known before it is done."""
        self.see(n, answer, actions)
        self.learn(n)

    def event(self, n: int) -> int | None:
        """What the program of step `n` is told to do with the window, None: to find out.

        One that knows is shorter, and on an accelerator one that does not would do all there is to choose from. On a CPU it does
        only what is due, and one such program is sooner compiled than two.
        """
        event = self.agent.event(n)
        return event if wide() or event == STAY else None

    def batches(self, purpose: int) -> list[Any]:
        """One batch per lane, of the rows up to the frame of step n + 1, the last that was seen."""
        raise NotImplementedError

    def kept(self, j: int, rows: int) -> Kept:
        """Of agent `j`, on the host, with the first `rows` of its replay."""
        raise NotImplementedError

    def keep(self, j: int, kept: Kept, n: int) -> None:
        """Bring agent `j` back to `kept`, with step `n` to be answered."""
        raise NotImplementedError

    def acted(self) -> bool:
        """Whether `actions` would not wait for the device."""
        raise NotImplementedError

    def ready(self) -> bool:
        """Whether the next move, `begin` or `finish`, would not wait for others."""
        return self.envs.ready() if self.stepping else self.n < 0 or self.acted()

    def begin(self) -> None:
        """Let the environments step, and meanwhile learn if that is due. Step 0 only looks at the first frames."""
        n = self.n + 1
        self.taken = self.actions() if n else np.zeros(len(self.seeds), self.agent.spec.action)
        self.envs.begin(self.taken, n)
        self.stepping = True
        self.improve()

    def improve(self) -> None:
        """Have the gradient step of step n + 1 done, if there is one and it is not done yet."""
        n = self.n + 1
        if self.learned < n and learns(self.agent.config, n):
            self.learn(n)
            self.learned = n

    def finish(self, going_on: bool = False) -> list[Episode]:
        """See what came of the step that has begun, and act on it; the episodes that it ended. going_on: there will be a next step."""
        self.stepping = False
        answer = self.envs.finish()
        self.n += 1
        self.look_ahead(self.n + 1)
        if self.agent.config.clip_rewards:
            answer = answer._replace(reward=np.clip(answer.reward, -1, 1))
        n = self.n + 1
        ahead = going_on and self.eager and learns(self.agent.config, n)
        (self.see_and_learn if ahead else self.see)(n, answer, self.taken)
        self.learned = n if ahead else self.learned
        return [episode._replace(agent=self.first + episode.agent) for episode in self.envs.ended()]

    def close(self) -> None:
        """Let go of the environments."""
        self.envs.close()

    def look_ahead(self, n: int) -> None:
        """Have the noise of step `n`."""
        if self.ahead != n // AHEAD:
            self.ahead = n // AHEAD
            self.noise = self.shared.draw_ahead(self.roots, self.ahead * AHEAD)


def of_group(f: Any, group: tuple, *common: Any) -> list[Any]:
    """f of every lane; `group` are trees of lanes as lists, or arrays over all agents; `common` are the same for all."""
    if wide():
        lanes = [x[0] if isinstance(x, list) else x for x in group]
        return [jax.vmap(f, [0] * len(group) + [None] * len(common))(*lanes, *common)]
    return [f(*(x[j] for x in group), *common) for j in range(len(group[0]))]


def joined(found: list[Any]) -> Any:
    """What `of_group` found, as one array over all agents."""
    return found[0] if wide() else jnp.stack(found)
