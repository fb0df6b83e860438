"""Atari on this machine: steps per second of the emulators alone, of the whole training loop, and milliseconds of an update.

    python bench/atari.py --S 16 --K 1,5 --game Breakout

Everything in one run, the emulators alone with the same number of them in the same processes.
"""

import dataclasses
import json
import resource
import time
from typing import Any

import jax
import numpy as np
import tyro

from iterq.api import make
from iterq.config import WindowSizes
from iterq.envs import resolve
from iterq.envs.stepping import TRAINING
from iterq.envs.workers import stepping


@dataclasses.dataclass(frozen=True)
class Options:
    """What to measure."""

    game: str = "Breakout"
    S: int = 16
    """Agents."""
    K: WindowSizes = (1, 5)
    """Window sizes."""
    algorithm: str = "i-dqn"
    steps: int = 2_000
    """Steps per agent and measurement."""
    buffer_size: int = 20_000
    """Rows of the replay."""
    torso: str = "nature"


def emulators(game: str, S: int, steps: int) -> float:
    """Steps per second of S emulators alone."""
    kind, spec = resolve(game)
    envs, rng = stepping(kind, tuple(range(S)), TRAINING), np.random.default_rng(0)
    try:
        envs.reset()
        for n in range(200):
            envs.step(rng.integers(0, spec.actions, S), n)
        started = time.perf_counter()
        for n in range(steps):
            envs.step(rng.integers(0, spec.actions, S), n)
        return S * steps / (time.perf_counter() - started)
    finally:
        envs.close()


def loop(options: Options, K: int) -> dict[str, float]:
    """The whole loop after warm-up, at the final share of random actions; then updates alone."""
    fields: Any = {
        "learning_starts": 400,
        "epsilon_decay": 1,
        "buffer_size": options.buffer_size,
        "log_every": 10**9,
        "checkpoint_every": 0,
    }
    model = make(options.algorithm, options.game, K=K, seeds=options.S, torso=options.torso, **fields)
    model.learn(600)
    assert model.session
    fleet: Any = model.session.fleet
    jax.block_until_ready([group.lanes for group in fleet.groups])
    started = time.perf_counter()
    model.learn(options.steps)
    jax.block_until_ready([group.lanes for group in fleet.groups])
    rate = options.S * options.steps / (time.perf_counter() - started)
    times = []
    for _ in range(20):
        started = time.perf_counter()
        for group in fleet.groups:
            group.learn(group.n + 1)
        jax.block_until_ready([group.lanes for group in fleet.groups])
        times.append(time.perf_counter() - started)
    model.close()
    return {"steps_per_second": rate, "update_ms": 1e3 * float(np.median(times))}


def main(options: Options) -> None:
    found = {"game": options.game, "S": options.S, "device": str(jax.devices()[0]), "emulators": emulators(options.game, options.S, 1_000)}
    print(json.dumps(found), flush=True)
    for K in options.K:
        print(json.dumps({"K": K, **loop(options, K), "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}), flush=True)


if __name__ == "__main__":
    main(tyro.cli(Options))
