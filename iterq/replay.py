"""Experience: rows go in, transitions come out.

One row is one step of the environment:

    frame, first ──▸ action ──▸ reward, terminated        first: this frame starts an episode

Environments reset on the step after an episode ends (Gymnasium's next-step mode). So the next observation of row i is that of
row i + 1, and the last frame of an episode has a row of its own whose action and reward mean nothing; it is known by its
successor, which is `first`. Each frame is stored once; stacks of frames, n-step returns and time limits follow from this rule when
a transition is read. A row is opened when its frame is seen and closed when the environment has answered.

Rows are numbered from 0 without end, and row i lives in slot i mod capacity as a record of bytes: one array holds all, whatever the
frames are. What reads takes a function `read(field, i)` and `xp`, numpy or jax.numpy, and so serves a replay on the device and one in
the host's memory alike.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from iterq import priorities
from iterq.bellman import Transition
from iterq.envs.base import Spec

Read = Callable[[str, Any], Any]  # (field, rows i) -> that field of those rows


class Memory(NamedTuple):
    """What is kept, and what a transition is."""

    row: np.dtype  # one record; see `record`
    capacity: int  # rows
    n: int = 1  # steps of a return
    gamma: float = 0.99
    stack: int = 1  # frames of an observation
    prioritised: bool = False


class Replay(NamedTuple):
    """The rows of one agent. How many there are is the reader's to know: one per step."""

    data: Any  # (capacity, bytes of a row) uint8
    counts: Any  # (2,) int32: how many rows ever started a whole transition, and how many no longer do
    tree: Any = None  # their priorities; None: uniform


# A record in bytes: an entry of the list of starts, which is a ring of its own; what is written when the row is closed, the action and the
# answer to it; the rest written when it is opened.
ACTION = 4


def record(spec: Spec) -> np.dtype:
    """One row in memory."""
    frame, answer = np.dtype((spec.dtype, spec.shape)), ACTION + spec.action.itemsize
    fields = {"start": ("<i4", 0), "action": (spec.action, ACTION), "reward": ("<f4", answer), "terminated": ("?", answer + 4)}
    fields |= {"first": ("?", answer + 5), "frame": (frame, answer + 8)}
    formats, places = zip(*fields.values(), strict=True)
    return np.dtype({"names": list(fields), "formats": formats, "offsets": places, "itemsize": answer + 8 + -(-frame.itemsize // 4) * 4})


def answers(memory: Memory) -> int:
    """Where the answer begins in a record."""
    return memory.row.fields["reward"][1]  # pyright: ignore[reportOptionalSubscript]


def opens(memory: Memory) -> int:
    """Where that part of a record begins which is written when the row is opened."""
    return memory.row.fields["first"][1]  # pyright: ignore[reportOptionalSubscript]


def nbytes(memory: Memory) -> int:
    """What the replay of one agent takes."""
    return memory.capacity * memory.row.itemsize + 8 + (priorities.nbytes(memory.capacity) if memory.prioritised else 0)


def empty(memory: Memory) -> Replay:
    """A replay without rows, on the device."""
    data = jnp.zeros((memory.capacity, memory.row.itemsize), jnp.uint8)
    return Replay(data, jnp.zeros(2, jnp.int32), priorities.empty(memory.capacity) if memory.prioritised else None)


def to_bytes(x: Any, dtype: Any) -> Any:
    """(bytes,) of one value on the device, as the record holds them."""
    x = jnp.asarray(x, dtype)
    return (x if x.dtype == jnp.uint8 else x.astype(jnp.uint8) if x.dtype == bool else jax.lax.bitcast_convert_type(x, jnp.uint8)).reshape(
        -1
    )


def from_bytes(x: Any, dtype: np.dtype) -> Any:
    """The value of type `dtype` that the last axis of `x` (…, bytes) holds."""
    kind, shape = dtype.base, dtype.shape
    x = x.reshape(*x.shape[:-1], *shape, kind.itemsize)
    return x[..., 0].astype(kind) if kind.itemsize == 1 else jax.lax.bitcast_convert_type(x, kind)


def reader(memory: Memory, data: Any) -> Read:
    """`read` for rows on the device."""

    def read(field: str, i: Any) -> Any:
        kind, at = memory.row.fields[field][:2]  # pyright: ignore
        return from_bytes(data[i % memory.capacity, at : at + kind.itemsize], kind)

    return read


def opened(memory: Memory, read: Read, i: Any, opening: Any) -> Read:
    """`read` as it will be of what rows are opened with, once `open_row` has written `opening` to row `i`."""

    def read_on(field: str, j: Any) -> Any:
        kind, at = memory.row.fields[field][:2]  # pyright: ignore
        new = from_bytes(opening[at - opens(memory) :][: kind.itemsize], kind)
        return jnp.where((j == i).reshape(*j.shape, *(1,) * new.ndim), new, read(field, j))

    return read_on


def open_row(memory: Memory, replay: Replay, i: Any, opening: Any) -> Replay:
    """A frame is seen: write `opening`, the part of row `i` from `first` on, as bytes."""
    data, counts, tree = replay
    C, (new, old) = memory.capacity, turnover(memory, i)
    data = jax.lax.dynamic_update_slice(data, opening[None], (i % C, opens(memory)))
    # The entry is written whether or not it is a start; if it is none, the next one takes its place.
    data = jax.lax.dynamic_update_slice(data, to_bytes(new, jnp.int32)[None], (counts[0] % C, 0))
    read = reader(memory, data)
    # A row starts a transition unless it is a final frame.
    is_start, was_start = ((row >= 0) & ~read("first", row + 1) for row in (new, old))
    counts = counts + jnp.stack([is_start, was_start])
    if memory.prioritised:
        tree = priorities.write(tree, jnp.stack([old % C, new % C]), jnp.stack([0.0, jnp.where(is_start, tree.largest, 0.0)]))
    return Replay(data, counts, tree)


def turnover(memory: Memory, i: Any) -> tuple[Any, Any]:
    """When row `i` is opened: the row whose transition is now stored whole, and the one whose observation no longer is."""
    return i - memory.n, i - memory.capacity + memory.stack - 1


def opening_bytes(memory: Memory, frame: Any, first: Any) -> Any:
    """What `open_row` writes, from values on the device."""
    kind, at = memory.row.fields["frame"][:2]  # pyright: ignore[reportOptionalSubscript]
    padding = [jnp.zeros(size, jnp.uint8) for size in (at - opens(memory) - 1, memory.row.itemsize - at - kind.itemsize)]
    return jnp.concatenate([to_bytes(first, bool), padding[0], to_bytes(frame, kind.base), padding[1]])


def close_row(memory: Memory, replay: Replay, i: Any, action: Any, answer: Any) -> Replay:
    """The environment has answered to `action` on the frame of row `i`: `answer` are the bytes of reward and terminated."""
    kind = memory.row.fields["action"][0].base  # pyright: ignore[reportOptionalSubscript]
    closing = jnp.concatenate([to_bytes(action, kind), answer])
    return replay._replace(data=jax.lax.dynamic_update_slice(replay.data, closing[None], (i % memory.capacity, ACTION)))


def answer_bytes(reward: Any, terminated: Any) -> Any:
    """What `close_row` writes of an answer, from values on the device."""
    return jnp.concatenate([to_bytes(reward, jnp.float32), to_bytes(terminated, bool)])


def observe(memory: Memory, read: Read, i: Any) -> Any:
    """(B, *frame) the frames of rows `i` (B,), or (B, *frame, stack): the last frames of their episodes, zeros before the start."""
    if memory.stack == 1:
        return read("frame", i)
    js = i[:, None] - jnp.arange(memory.stack)[::-1]  # oldest first
    first = read("first", js).astype("int32")
    starts_after = jnp.cumsum(first[:, ::-1], 1)[:, ::-1] - first  # episodes that start after this frame and up to i
    frames = read("frame", js)
    same = (starts_after == 0).reshape(*js.shape, *(1,) * (frames.ndim - 2))
    return jnp.moveaxis(frames * same.astype(frames.dtype), 1, -1)


def gather(memory: Memory, read: Read, i: Any) -> Transition:
    """The transitions that start at rows `i` (B,), none of them a final frame, with rows i … i + n stored."""
    # R = Σₗ γˡ rₗ over at most n steps; discount = γᵐ after m of them, 0 if the episode terminated among them. An episode that was cut
    # off has a final frame to bootstrap from.
    total, discount = jnp.zeros(i.shape, "float32"), jnp.ones(i.shape, "float32")
    steps, running = jnp.zeros(i.shape, "int32"), jnp.ones(i.shape, "bool")
    for l in range(memory.n):
        running = running & ~read("first", i + l + 1)
        total = jnp.where(running, total + discount * read("reward", i + l), total)
        ends = running & read("terminated", i + l)
        discount = jnp.where(ends, jnp.float32(0), jnp.where(running, discount * jnp.float32(memory.gamma), discount))
        steps = steps + running
        running = running & ~ends
    return Transition(observe(memory, read, i), read("action", i), total, discount, observe(memory, read, i + steps))


def below(bits: Any, many: Any) -> Any:
    """⌊bits · many / 2³²⌋ of uint32, in 32-bit words: uniform over 0 … many - 1, the same for numpy and jax.numpy."""
    (a, b), (c, d) = ((x >> 16, x & 0xFFFF) for x in (bits, many))
    # (a2¹⁶ + b)(c2¹⁶ + d), by its columns
    column = a * d + (b * d >> 16)
    return a * c + (column >> 16) + (b * c + (column & 0xFFFF) >> 16)


def draw(memory: Memory, replay: Replay, key: jax.Array, batch: int) -> jax.Array:
    """(batch,) rows, uniform over those that start a transition."""
    ever, gone = replay.counts
    drawn = below(jax.random.bits(key, (batch,)), (ever - gone).astype(jnp.uint32))
    return reader(memory, replay.data)("start", gone + drawn.astype(jnp.int32))


class Weighted(NamedTuple):
    """A transition, the weight of its loss and the slot it came from (prioritised replay)."""

    obs: Any
    action: Any
    reward: Any
    discount: Any
    next_obs: Any
    weight: Any
    slot: Any


def sample(memory: Memory, replay: Replay, count: Any, key: jax.Array, batch: int) -> Transition | Weighted:
    """`batch` transitions of the `count` rows opened so far: uniform, or in proportion to their priorities and weighted for that."""
    read = reader(memory, replay.data)
    if not memory.prioritised:
        return gather(memory, read, draw(memory, replay, key, batch))
    slot, weight = priorities.draw(replay.tree, key, batch)
    i = count - 1 - (count - 1 - slot) % memory.capacity  # the row that lives in this slot
    return Weighted(*gather(memory, read, i), weight, slot)
