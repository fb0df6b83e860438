"""A process that steps environments for a fleet, so that they do not wait for Python's lock. See `envs/workers.py`, the other side.

What environments are told and answer lies in memory that both sides share, a slot for each. An order comes as a byte through a pipe, and
another byte says that it is done; or, where both sides have a core to themselves, as a number in that memory that both keep looking at.

This module needs no JAX, so that a process starts quickly and stays small.
"""

import contextlib
import json
import mmap
import os
import select
import signal
import struct
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

STEP, REPLAY = b"s", b"r"
ACT, REST = -1, -2  # instead of the seed of an episode: take the action, do nothing
LOOK = 2e-3  # seconds for which a worker keeps looking for the next order before it sleeps now and then
NAP = 2e-4
# What the fleet and a worker tell each other through memory: the number of the last order, and of the last that is done.
DESK = np.dtype([("ordered", "i8"), ("done", "i8"), ("apart", "V48")])  # on cache lines of their own


def slot_of(action: tuple[str, tuple[int, ...]], frame: tuple[str, tuple[int, ...]]) -> np.dtype:
    """What an environment and its fleet tell each other. `seed` ≥ 0 asks for a reset; see also ACT and REST."""
    told = [("seed", "i8"), ("action", action[0], tuple(action[1]))]
    answer = [("reward", "f8"), ("terminated", "?"), ("truncated", "?"), ("frame", frame[0], tuple(frame[1]))]
    return np.dtype([*told, *answer, ("failed", "?"), ("error", "S200")], align=True)


def shared(memory: int, slot: np.dtype, count: int) -> tuple[Any, Any]:
    """The desks of at most `count` workers and the slots of `count` environments in the file `memory`."""
    both = mmap.mmap(memory, size(slot, count))
    return np.frombuffer(both, DESK, count), np.frombuffer(both, slot, count, count * DESK.itemsize)


def size(slot: np.dtype, count: int) -> int:
    """Bytes of that."""
    return count * (DESK.itemsize + slot.itemsize)


def make(maker: str, name: str, *emulator: str) -> Any:
    """A new environment; `emulator`: which one, of a game."""
    if maker == "atari":
        from iterq.emulator import EMULATORS

        return EMULATORS[emulator[0]](name)
    return gymnasium_env(name)


def gymnasium_env(name: str, **options: Any) -> Any:
    """A new environment of Gymnasium."""
    import gymnasium

    with contextlib.suppress(gymnasium.error.Error, ImportError, AttributeError):
        if "mujoco" in str(gymnasium.spec(name).entry_point):
            _hush()
    return gymnasium.make(name, disable_env_checker=True, **options)


def _hush() -> None:
    """Some of Gymnasium's models use words that MuJoCo is going to drop. It says so for every one that is made, and in a file of its own.

    What else it has to say is still said, but in no file.
    """
    import mujoco

    if mujoco.get_mju_user_warning() is None:  # pyright: ignore[reportAttributeAccessIssue]
        mujoco.set_mju_user_warning(  # pyright: ignore[reportAttributeAccessIssue]
            lambda text: None if "is deprecated" in text else print(f"MuJoCo: {text}", file=sys.stderr)
        )


def action_of(slot: np.void) -> Any:
    """As an environment takes it: a number, or a vector of its own."""
    return slot["action"].copy() if slot["action"].ndim else int(slot["action"])


def answer(env: Any, slot: np.void) -> None:
    """Do what `slot` asks for and write into it what comes of it."""
    if slot["seed"] >= 0:
        slot["frame"], slot["reward"], slot["terminated"], slot["truncated"] = env.reset(seed=int(slot["seed"]))[0], 0, False, False
    elif slot["seed"] == ACT:
        slot["frame"], gain, slot["terminated"], slot["truncated"], _ = env.step(action_of(slot))
        slot["reward"] = float(gain)


def replay(env: Any, slot: np.void, actions: np.ndarray) -> None:
    """Repeat the episode of the slot's seed up to the frame after `actions`."""
    slot["frame"] = env.reset(seed=int(slot["seed"]))[0]
    for action in actions:
        slot["action"] = action
        slot["frame"] = env.step(action_of(slot))[0]


def orders(pipe: int, desk: np.void, looking: bool) -> Iterator[bytes]:
    """What there is to do, until the pipe is closed."""
    if not looking:
        while order := os.read(pipe, 1):
            yield order
        return
    seen, since = 0, time.perf_counter()
    while True:
        if desk["ordered"] != seen:
            seen = int(desk["ordered"])
            yield STEP
            desk["done"] = seen
            since = time.perf_counter()
        elif time.perf_counter() - since > LOOK and select.select([pipe], [], [], NAP)[0]:
            if not (order := os.read(pipe, 1)):
                return
            yield order
            since = time.perf_counter()


def serve(words: dict[str, Any]) -> None:
    """Step the environments of slots `first` … `last` - 1 whenever that is ordered."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the fleet gets them too, and has a checkpoint to write
        signal.signal(number, signal.SIG_IGN)
    slot = slot_of(words["action"], words["frame"])
    desks, slots = shared(words["memory"], slot, words["count"])
    first, last, pipe, done = words["first"], words["last"], words["orders"], words["done"]
    kind, shape = slot["action"].base, slot["action"].shape
    envs = [make(*words["make"]) for _ in range(first, last)]
    os.write(done, b".")
    for order in orders(pipe, desks[words["desk"]], words["looking"]):
        if order == REPLAY:
            j, count = struct.unpack("<qq", _read(pipe, 16))
            tasks = [(replay, j, np.frombuffer(_read(pipe, count * slot["action"].itemsize), kind).reshape(count, *shape))]
        else:
            tasks = [(answer, j) for j in range(first, last)]
        for task, j, *more in tasks:
            try:
                task(envs[j - first], slots[j], *more)
            except Exception as error:  # noqa: BLE001, told to the fleet
                slots[j]["error"], slots[j]["failed"] = f"{type(error).__name__}: {error}".encode()[:200], True
        if order == REPLAY or not words["looking"]:
            os.write(done, b".")


def _read(pipe: int, count: int) -> bytes:
    parts = b""
    while len(parts) < count:
        part = os.read(pipe, count - len(parts))
        if not part:
            raise EOFError("the fleet is gone")
        parts += part
    return parts


if __name__ == "__main__":
    serve(json.loads(sys.argv[1]))
