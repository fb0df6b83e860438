"""The rows of `replay.py` in the host's memory. What is read there goes to the device as records and becomes transitions on it."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from iterq.bellman import Transition
from iterq.replay import Memory, below, gather, observe, reader, turnover


class HostReplay:
    """See the top of this file."""

    def __init__(self, memory: Memory, agents: int) -> None:
        self.memory = memory
        self.rows = np.zeros((agents, memory.capacity), memory.row)
        self.bytes = self.rows.view(np.uint8).reshape(agents, memory.capacity, -1)
        self.counts = np.zeros((agents, 2), np.int32)
        self._agents = np.arange(agents)

    def open_row(self, i: int, frame: np.ndarray, first: np.ndarray) -> None:
        """Frames (agents, …) are seen."""
        C, rows = self.memory.capacity, self.rows
        rows["frame"][:, i % C], rows["first"][:, i % C] = frame, first
        new, old = turnover(self.memory, i)
        rows["start"][self._agents, self.counts[:, 0] % C] = new
        if new >= 0:
            self.counts[:, 0] += ~rows["first"][:, (new + 1) % C]
        if old >= 0:
            self.counts[:, 1] += ~rows["first"][:, (old + 1) % C]

    def close_row(self, i: int, action: np.ndarray, reward: np.ndarray, terminated: np.ndarray) -> None:
        """The environments have answered."""
        at = i % self.memory.capacity
        self.rows["action"][:, at], self.rows["reward"][:, at], self.rows["terminated"][:, at] = action, reward, terminated

    def seen(self, i: int) -> np.ndarray:
        """(agents, stack, bytes) the records that hold what the agents see in row `i`."""
        if self.memory.stack == 1:
            return self.bytes[:, i % self.memory.capacity, None]
        return self.bytes[:, (i + np.arange(1 - self.memory.stack, 1)) % self.memory.capacity]

    def windows(self, s: int, bits: np.ndarray) -> np.ndarray:
        """(batch, stack + n, bytes) for agent `s`: all records of the transitions that `draw` finds with these random bits (batch,)."""
        C, (ever, gone) = self.memory.capacity, self.counts[s]
        i = self.rows["start"][s, (gone + below(bits, np.uint32(ever - gone)).astype(np.int32)) % C]
        return self.bytes[s].take((i[:, None] + np.arange(1 - self.memory.stack, self.memory.n + 1)) % C, 0)


def from_windows(memory: Memory, windows: Any) -> Transition:
    """The transitions in `windows` (batch, stack + n, bytes) of a `HostReplay`."""
    batch, width = windows.shape[:2]
    alone = memory._replace(capacity=batch * width)
    read = reader(alone, windows.reshape(batch * width, -1))
    return gather(alone, read, jnp.arange(batch) * width + memory.stack - 1)


def from_seen(memory: Memory, seen: Any) -> Any:
    """The observation in `seen` (stack, bytes), what a `HostReplay` says of one agent."""
    alone = memory._replace(capacity=memory.stack)
    return observe(alone, reader(alone, seen), jnp.array([memory.stack - 1]))[0]
