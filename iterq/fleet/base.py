"""A fleet of agents and its two drivers: environments scanned on the device, and environments stepped from Python.

Both do the same with the same functions. At step n an agent

    sees a frame ──▸ acts ──▸ learns, if n is a multiple of G ──▸ gets an answer from its environment

Learning at step n draws from the rows before it, and so may run while the environment computes its answer.

On an accelerator the agents of a lane are mapped side by side. On a CPU every agent is a lane of its own: the same program runs for
it whatever the fleet, so that a seed in a fleet equals the seed alone bit for bit, and lanes run on different cores.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from iterq.agents import SAMPLE_TO_DIAGNOSE, Agent, Learner
from iterq.config import Config
from iterq.envs.stepping import Episode
from iterq.keys import bare, typed
from iterq.programs import program
from iterq.replay import Memory, record


def learns(config: Config, n: Any) -> Any:
    """Whether step `n` has a gradient step."""
    return (n > config.learning_starts) & (n % config.G == 0)


class Counts(NamedTuple):
    """What is asked of a `Learner` all the time, without its large arrays."""

    updates: Any
    since: Any
    losses: Any
    broken: Any


def counts(learner: Learner) -> Counts:
    """Of a learner."""
    return Counts(*(getattr(learner, name) for name in Counts._fields))


def counted(learner: Learner) -> Learner:
    """The learner when its metrics have been told."""
    return learner._replace(since=jnp.zeros_like(learner.since), losses=jnp.zeros_like(learner.losses))


class Evaluation(NamedTuple):
    """Greedy episodes of one agent."""

    returns: list[float]
    lengths: list[int]


def wide() -> bool:
    """Whether a lane holds many agents."""
    return jax.default_backend() != "cpu"


def hasty(config: Config) -> bool:
    """Whether an accelerator is done with an update before it is called for the next: a small one at every step."""
    return wide() and config.G == 1 and config.torso == "mlp"


PIECE = 1 << 28  # bytes of a replay that move at once: there may be no room for a second one


def rows_of(data: Any, j: int, count: int) -> np.ndarray:
    """(count, bytes) the first rows of agent `j` in the replay of a lane, on the host."""
    if not wide():
        return np.asarray(data)[:count]
    found = np.empty((count, data.shape[2]), np.uint8)
    for at, size in _pieces(count, data.shape[2]):
        found[at : at + size] = _taken(data, j, at, size)[0]
    return found


def with_rows(data: Any, j: int, rows: np.ndarray) -> Any:
    """The replay of a lane with `rows` (count, bytes) at the beginning of that of agent `j`; `data` is used up."""
    for at, size in _pieces(len(rows), rows.shape[1]):
        data = _placed(data, rows[at : at + size], (j, at, 0) if wide() else (at, 0))
    return data


def _pieces(count: int, width: int) -> list[tuple[int, int]]:
    """(start, length), all of one length, and so one program, though the last may have to begin within the one before."""
    size = min(count, max(1, PIECE // width))
    return [(min(at, count - size), size) for at in range(0, count, size or 1)]


@partial(jax.jit, static_argnums=3)
def _taken(data: jax.Array, j: Any, at: Any, size: int) -> jax.Array:
    return jax.lax.dynamic_slice(data, (j, at, 0), (1, size, data.shape[2]))


@partial(jax.jit, donate_argnums=0)
def _placed(data: jax.Array, rows: jax.Array, at: tuple) -> jax.Array:
    return jax.lax.dynamic_update_slice(data, jnp.expand_dims(rows, range(data.ndim - 2)), at)


def lift(f: Callable, common: int = 0) -> Callable:
    """`f` of one agent as a function of a lane; its last `common` arguments are the same for all agents."""

    def lifted(*args: Any) -> Any:
        return jax.vmap(f, in_axes=(0,) * (len(args) - common) + (None,) * common)(*args) if wide() else f(*args)

    return lifted


class Fleet:
    """What both drivers offer."""

    def __init__(self, agent: Agent, groups: Sequence[Sequence[int]]) -> None:
        """groups: seeds that step together; a lane each on an accelerator."""
        c = agent.config
        self.agent, self.seeds = agent, tuple(seed for group in groups for seed in group)
        self.memory = Memory(record(agent.spec), c.buffer_size, c.n_step, c.gamma, c.frame_stack, c.prioritised)
        self.lanes = [tuple(group) for group in groups] if wide() else [(seed,) for seed in self.seeds]
        self._where = [(i, j) for i, lane in enumerate(self.lanes) for j in range(len(lane))]
        self.ended: list[Episode] = []
        self._diagnose = program(lift(agent.diagnose, common=1))

    def start(self, f: Callable[[jax.Array], Any]) -> list[Any]:
        """f(seed) of every agent, as trees of lanes."""
        run = program(lift(f))
        return [run(jnp.array(lane if wide() else lane[0], jnp.uint32)) for lane in self.lanes]

    def of(self, trees: list[Any], s: int) -> Any:
        """The tree of agent `s` out of those of all lanes, on the host, with the words of typed keys (iterq/keys.py)."""
        lane, j = self._where[s]
        return jax.tree.map(lambda x: np.asarray(x[j] if wide() else x), bare(trees[lane]))

    def each(self, trees: list[Any]) -> list[Any]:
        """`of` every agent; an array of a lane crosses once for all of its agents, each of which would take as long."""
        here = jax.device_get(trees)
        return [jax.tree.map(itemgetter(j), here[lane]) if wide() else here[lane] for lane, j in self._where]

    def put(self, trees: list[Any], s: int, tree: Any) -> None:
        """Put the tree of agent `s` back where `of` found it."""
        lane, j = self._where[s]
        found = jax.tree.map(lambda x, new: x.at[j].set(new) if wide() else jnp.asarray(new), bare(trees[lane]), bare(tree))
        trees[lane] = typed(found, trees[lane])

    @property
    def n(self) -> int:
        """Steps that all agents have taken."""
        raise NotImplementedError

    def steps(self, s: int) -> int:
        """Steps that agent `s` has taken; more than `n` where others have failed."""
        return self.n

    @property
    def learners(self) -> list[Learner]:
        """Trees, one per lane."""
        raise NotImplementedError

    @learners.setter
    def learners(self, new: list[Learner]) -> None:
        raise NotImplementedError

    def counts(self) -> list[Counts]:
        """Trees, one per lane."""
        return [counts(learner) for learner in self.learners]

    def counted(self) -> None:
        """Begin to count and sum anew."""
        self.learners = [counted(learner) for learner in self.learners]

    def advancing(self, target: int, stop: Callable[[], bool]) -> Iterator[bool]:
        """Let all agents go on to step `target`, or until `stop()`, in small pieces; False: the last one was to wait for others."""
        raise NotImplementedError

    def wait(self) -> None:
        """Sleep until there is something to do."""

    def drain(self, until: float) -> list[Episode]:
        """The episodes that have ended up to step `until` and since the last call, by step and agent."""
        ended = [episode for episode in self.ended if episode.step <= until]
        self.ended = [episode for episode in self.ended if episode.step > until]
        return sorted(ended, key=lambda e: (e.step, e.agent))

    def evaluate(self) -> list[Evaluation]:
        """Greedy episodes of every agent on environments of their own: those of step n, or the same ones at every step (`eval_starts`)."""
        raise NotImplementedError

    def batches(self, purpose: int) -> list[Any]:
        """One batch per lane, drawn for `purpose` at step n."""
        raise NotImplementedError

    def state(self, s: int, rows: int | None = None) -> dict[str, Any]:
        """All of agent `s`: a tree of arrays on the host. What it holds under "replay" is a `Replay`, of which `rows` are taken, or all."""
        raise NotImplementedError

    def restore(self, s: int, state: dict[str, Any]) -> None:
        """Bring agent `s` of a new fleet to `state`."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of environments."""

    def metrics(self) -> list[dict[str, float]]:
        """What each agent has to tell since it was last asked."""
        rows = []
        diagnosed: list[dict] = [{} for _ in self.seeds]
        if self.n > self.agent.config.learning_starts:
            found = [self._diagnose(*args, self.n) for args in zip(self.learners, self.batches(SAMPLE_TO_DIAGNOSE), strict=True)]
            diagnosed = self.each(found)
        for learner, more in zip(self.each(self.counts()), diagnosed, strict=True):
            rate = self.agent.learning_rate
            row: dict[str, float] = {"train/n_updates": int(learner.updates), **({} if rate is None else {"train/learning_rate": rate})}
            if learner.since:
                losses = learner.losses / learner.since
                row["train/loss"] = float(losses.mean())
                row |= {f"iqn/td_loss_{k}": float(loss) for k, loss in enumerate(losses, 1)}
            rows.append(row | {name: float(x) for name, x in more.items()})
        self.counted()
        return rows

    def broken(self) -> tuple[int, int] | None:
        """(step, seed) of the first loss that was not finite."""
        steps = [(int(found.broken), seed) for found, seed in zip(self.each(self.counts()), self.seeds, strict=True)]
        return min((found for found in steps if found[0]), default=None)
