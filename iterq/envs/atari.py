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
from typing import Any

import numpy as np

from iterq.emulator import REPLAY, SIZE, SLOT, STEP, Atari
from iterq.envs.base import Spec
from iterq.envs.host import EnvironmentFailure, HostEnv, HostEnvs
from iterq.games import game_of, games

PATIENCE = 1.0  # seconds of silence after which processes are looked at


def atari_env(game: str) -> HostEnv:
    """The environment of a game by its name."""
    rom = games()[game]
    one = Atari(rom)
    spec = Spec(f"ALE/{game}-v5", (SIZE, SIZE), "uint8", len(one.buttons), None)
    return HostEnv(spec, lambda: Atari(rom), many=Emulators)


class Emulators(HostEnvs):
    """The emulators of a group, in at most as many processes as there are cores."""

    def _make(self) -> list[Any]:
        count = len(self.seeds)
        with tempfile.TemporaryFile() as file:
            file.truncate(count * SLOT.itemsize)
            self.slots: Any = np.frombuffer(mmap.mmap(file.fileno(), 0), SLOT)
            self._done, done = os.pipe()
            self._orders: list[int] = []
            self._workers: list[subprocess.Popen] = []
            self._of = np.zeros(count, int)  # the process of every emulator
            rom = games()[str(game_of(self.kind.spec.name))]
            shares = np.array_split(np.arange(count), min(count, os.cpu_count() or 1))
            for i, share in enumerate(shares):
                orders, mine = os.pipe()
                words = [rom, file.fileno(), share[0], share[-1] + 1, orders, done]
                command = [sys.executable, "-m", "iterq.emulator", *map(str, words)]
                self._workers.append(subprocess.Popen(command, pass_fds=(file.fileno(), orders, done)))
                os.close(orders)
                self._orders.append(mine)
                self._of[share] = i
            os.close(done)
        self._wait(len(self._workers))
        return []

    def _wait(self, many: int) -> None:
        """Until `many` processes have done what they were told to."""
        while many:
            ready = select.select([self._done], [], [], PATIENCE)[0]
            answers = os.read(self._done, many) if ready else b""
            many -= len(answers)
            if not answers and any(worker.poll() is not None for worker in self._workers):
                raise EnvironmentFailure(f"an emulator of {self.kind.spec.name} has died")

    def _answers(self, starts: list[int | None], actions: list[int], n: int) -> tuple[np.ndarray, list[float], np.ndarray, np.ndarray]:
        slots = self.slots
        slots["seed"], slots["action"] = [-1 if start is None else start for start in starts], actions
        self._order(range(len(self._orders)), STEP)
        self._check(f"at step {n}")
        return slots["frame"].copy(), slots["reward"].tolist(), slots["terminated"].copy(), slots["truncated"].copy()

    def _order(self, workers: Sequence[int], message: bytes) -> None:
        try:
            for i in workers:
                os.write(self._orders[i], message)
        except BrokenPipeError:
            raise EnvironmentFailure(f"an emulator of {self.kind.spec.name} has died") from None
        self._wait(len(workers))

    def _check(self, when: str) -> None:
        for j in np.flatnonzero(self.slots["error"]).tolist():
            text = self.slots["error"][j].decode(errors="replace")
            raise EnvironmentFailure(f"{self.kind.spec.name} raised {text} {when} of seed {self.seeds[j]}")

    def _repeat(self, j: int, start: int, actions: np.ndarray) -> Any:
        self.slots["seed"][j] = start
        message = REPLAY + struct.pack("<qq", j, len(actions)) + np.ascontiguousarray(actions, "<i4").tobytes()
        self._order([int(self._of[j])], message)
        self._check("when an episode was repeated")
        return self.slots["frame"][j]

    def close(self) -> None:
        for pipe in (*self._orders, self._done):
            with contextlib.suppress(OSError):
                os.close(pipe)
        self._orders = []
        for worker in self._workers:
            worker.wait()
        self._workers = []
