"""The environments of a group in processes of their own (iterq/worker.py), for those that take longer than to ask for them."""

import contextlib
import json
import os
import select
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from iterq.envs.host import HostEnv
from iterq.envs.stepping import TRAINING, EnvironmentFailure, HostEnvs
from iterq.worker import REPLAY, STEP, shared, size, slot_of

PATIENCE = 1.0  # seconds after which it is asked whether workers are alive


def stepping(kind: HostEnv, seeds: Sequence[int], purpose: int, only: Sequence[int] | None = None, among: int = 0) -> HostEnvs:
    """What steps the environments of a group; see `HostEnvs`. One environment has nobody to wait for and stays in this process."""
    return (Workers if kind.apart and len(seeds) > 1 else HostEnvs)(kind, seeds, purpose, only, among)


def workers_for(count: int, cores: int) -> int:
    """How many are of use to `count` environments: all wait for the worker that has most of them, so the others may have as many."""
    most = -(-count // cores)
    return -(-count // most)


def crew(count: int, among: int, cores: int, look: bool, brief: bool) -> tuple[int, bool]:
    """How many workers `count` of `among` environments get, and whether they keep looking for orders instead of sleeping at a pipe.

    look: this process waits for an accelerator without sleeping, and so can look for answers as well. brief: steps are short beside what
    it takes to be woken for each (MuJoCo's tasks: half the speed; an emulator's step is longer).
    """
    # Who looks needs a core: if there are not enough, those who look take the time of those who step.
    left = (cores - 1) * count // among
    if look and brief and left:
        return workers_for(count, left), True  # a worker rather steps one more environment than sleeps
    return workers_for(count, cores), look and workers_for(among, cores) < cores


class Worker(NamedTuple):
    """A process with some of the environments."""

    process: subprocess.Popen
    orders: int  # a pipe to it
    done: int  # a pipe from it


class Workers(HostEnvs):
    """At most as many processes as there are cores."""

    beside = 1  # processes like this one that share the cores

    def _make(self) -> list[Any]:
        count, spec, cores = len(self.seeds), self.kind.spec, max(1, len(os.sched_getaffinity(0)) // Workers.beside)
        self.workers: list[Worker] = []
        self._of: list[Worker] = []  # for every environment
        self._silent: set[int] = set()  # pipes from workers that have something to do
        look = jax.default_backend() != "cpu" and self.purpose == TRAINING
        assert self.kind.apart
        workers, self.looking = crew(count, self.among, cores, look, brief=self.kind.apart[0] != "atari")
        shares = np.array_split(np.arange(count), workers)
        told = {"action": (spec.action.base.str, spec.action.shape), "frame": (spec.dtype, spec.shape)}
        slot = slot_of(**told)
        with tempfile.TemporaryFile() as file:
            file.truncate(size(slot, count))
            desks, slots = shared(file.fileno(), slot, count)
            # Every field for all of them, taken out once: that takes as long as to read it.
            self.ordered, self.done = desks["ordered"][: len(shares)], desks["done"][: len(shares)]
            self.slots = {name: slots[name] for name in slot.names or ()}
            for number, share in enumerate(shares):
                (theirs, orders), (done, finished) = os.pipe(), os.pipe()
                mine = {"memory": file.fileno(), "count": count, "desk": number, "first": int(share[0]), "last": int(share[-1]) + 1}
                words = {"make": self.kind.apart, **told, **mine, "orders": theirs, "done": finished, "looking": self.looking}
                command = [sys.executable, "-m", "iterq.worker", json.dumps(words)]
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
                raise self._died()
            self._silent.remove(pipe)

    def _died(self) -> EnvironmentFailure:
        return EnvironmentFailure(f"a process that steps {self.kind.spec.name} has died")

    def awaited(self) -> list[int]:
        return sorted(self._silent)

    def ready(self) -> bool:
        if self.looking:
            return self.done.tobytes() == self.ordered.tobytes()
        if self._silent:
            self._hear(select.select(self._silent, [], [], 0)[0])
        return not self._silent

    def _ask(self, starts: list[int], actions: np.ndarray, n: int) -> None:
        self.slots["seed"][:] = starts
        self.slots["action"][:] = self.kind.spec.outside(actions)
        if self.looking:
            self.ordered += 1
        else:
            self._order(self.workers, STEP)

    def _answers(self, starts: list[int], actions: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        slots, since = self.slots, time.perf_counter()
        while self.looking and not self.ready():
            if time.perf_counter() - since > PATIENCE:
                if any(worker.process.poll() is not None for worker in self.workers):
                    raise self._died()
                since = time.perf_counter()
        self._hear(self.awaited())
        self._check(n)
        return slots["frame"].copy(), slots["reward"].copy(), slots["terminated"].copy(), slots["truncated"].copy()

    def _check(self, n: int | None = None) -> None:
        for j in np.flatnonzero(self.slots["failed"]).tolist():
            kind, _, text = self.slots["error"][j].decode(errors="replace").partition(": ")
            raise self._failure(j, n, kind, text)

    def _repeat(self, j: int, start: int, actions: np.ndarray) -> Any:
        self.slots["seed"][j] = start
        taken = np.ascontiguousarray(self.kind.spec.outside(actions), self.kind.spec.action.base)
        self._order([self._of[j]], REPLAY + struct.pack("<qq", j, len(actions)) + taken.tobytes())
        self._hear(self.awaited())
        self._check()
        return self.slots["frame"][j]

    def close(self) -> None:
        for worker in self.workers:
            os.close(worker.orders)
            os.close(worker.done)
        for worker in self.workers:
            worker.process.wait()
        self.workers = []
