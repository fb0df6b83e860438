"""Atari 2600: fleets of emulators (iterq/emulator.py) in processes of their own, where they do not wait for Python's lock.

Frames travel through shared memory; a byte through a pipe says that there is something to do, or that it is done.
"""

import contextlib
import mmap
import os
import select
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from iterq.emulator import REPLAY, SIZE, SLOT, STEP, Atari
from iterq.envs.base import Spec
from iterq.envs.host import EnvironmentFailure, HostEnv, HostEnvs
from iterq.games import game_of, games


def atari_env(game: str) -> HostEnv:
    """The environment of a game by its name."""
    rom = games()[game]
    spec = Spec(f"ALE/{game}-v5", (SIZE, SIZE), "uint8", len(Atari(rom).buttons), None)
    return HostEnv(spec, lambda: Atari(rom), many=emulators)


def emulators(kind: HostEnv, seeds: Sequence[int], purpose: int) -> HostEnvs:
    """One emulator has nobody to wait for and stays in this process."""
    return (Emulators if len(seeds) > 1 else HostEnvs)(kind, seeds, purpose)


class Worker(NamedTuple):
    """A process with some of the emulators."""

    process: subprocess.Popen
    orders: int  # a pipe to it
    done: int  # a pipe from it


class Emulators(HostEnvs):
    """The emulators of a group, in at most as many processes as there are cores."""

    def _make(self) -> list[Any]:
        count = len(self.seeds)
        self.workers: list[Worker] = []
        self._of: list[Worker] = []  # for every emulator
        self._silent: set[int] = set()  # pipes from workers that have something to do
        with tempfile.TemporaryFile() as file:
            file.truncate(count * SLOT.itemsize)
            self.slots: Any = np.frombuffer(mmap.mmap(file.fileno(), 0), SLOT)
            rom = games()[str(game_of(self.kind.spec.name))]
            for share in np.array_split(np.arange(count), min(count, os.cpu_count() or 1)):
                (theirs, orders), (done, finished) = os.pipe(), os.pipe()
                words = (rom, file.fileno(), share[0], share[-1] + 1, theirs, finished)
                command = [sys.executable, "-m", "iterq.emulator", *map(str, words)]
                self.workers.append(Worker(subprocess.Popen(command, pass_fds=(file.fileno(), theirs, finished)), orders, done))
                self._of += [self.workers[-1]] * len(share)
                os.close(theirs)
                os.close(finished)
        self._silent = {worker.done for worker in self.workers}
        self._hear(self.awaited())
        return []

    def _order(self, workers: Sequence[Worker], message: bytes) -> None:
        self._silent = {worker.done for worker in workers}
        with contextlib.suppress(BrokenPipeError):  # the dead are noticed when they are listened to
            for worker in workers:
                os.write(worker.orders, message)

    def _hear(self, pipes: Sequence[int]) -> None:
        """Wait for each of them; by the time the first has finished, most of the others have too, and need no waking up."""
        for pipe in pipes:
            if not os.read(pipe, 1):
                raise EnvironmentFailure(f"an emulator of {self.kind.spec.name} has died")
            self._silent.remove(pipe)

    def awaited(self) -> list[int]:
        return sorted(self._silent)

    def ready(self) -> bool:
        if self._silent:
            self._hear(select.select(self._silent, [], [], 0)[0])
        return not self._silent

    def _ask(self, starts: list[int | None], actions: list[int], n: int) -> None:
        self.slots["seed"], self.slots["action"] = [-1 if start is None else start for start in starts], actions
        self._order(self.workers, STEP)

    def _answers(self, starts: list[int | None], actions: list[int], n: int) -> tuple[np.ndarray, list[float], np.ndarray, np.ndarray]:
        slots = self.slots
        self._hear(self.awaited())
        self._check(f"at step {n}")
        return slots["frame"].copy(), slots["reward"].tolist(), slots["terminated"].copy(), slots["truncated"].copy()

    def _check(self, when: str) -> None:
        for j in np.flatnonzero(self.slots["error"]).tolist():
            text = self.slots["error"][j].decode(errors="replace")
            raise EnvironmentFailure(f"{self.kind.spec.name} raised {text} {when} of seed {self.seeds[j]}")

    def _repeat(self, j: int, start: int, actions: np.ndarray) -> Any:
        self.slots["seed"][j] = start
        message = REPLAY + struct.pack("<qq", j, len(actions)) + np.ascontiguousarray(actions, "<i4").tobytes()
        self._order([self._of[j]], message)
        self._hear(self.awaited())
        self._check("when an episode was repeated")
        return self.slots["frame"][j]

    def close(self) -> None:
        for worker in self.workers:
            os.close(worker.orders)
            os.close(worker.done)
        for worker in self.workers:
            worker.process.wait()
        self.workers = []
