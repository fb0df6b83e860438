"""How fast a fleet trains on this machine, and how long that means for a whole experiment."""

import dataclasses
import sys
import time
from typing import Any

import jax


def say_hours(what: str, rates: dict[str, float], tasks: int, config: Any) -> None:
    """How long methods with these rates take for all tasks, seeds and steps."""
    steps, seeds = config.steps, len(config.seeds)
    hours = sum(tasks * steps * seeds / rate / 3600 for rate in rates.values())
    text = f"{len(rates)} methods x {tasks} tasks x {seeds} seeds x {steps:,} steps take about {hours:,.2g} hours on this machine"
    print(f"{what}: {text}", file=sys.stderr)


def steps_per_second(settings: Any) -> float:
    """Of a fleet with these settings on this machine, all agents together, measured on a few steps with gradient steps among them."""
    from iterq.api import Model

    on_cpu = jax.default_backend() == "cpu"
    small = {"learning_starts": 16, "epsilon_decay": 1, "log_every": 10**9, "checkpoint_every": 0, "eval_every": 0}
    # An accelerator's programs for a replay of another size would have to be compiled for this alone.
    small |= {"buffer_size": 64} if on_cpu else {}
    seeds = settings.seeds[:1] if on_cpu else settings.seeds  # on a CPU, agents take turns
    model = Model(dataclasses.replace(settings, **small, seeds=seeds), settings.env)
    try:
        model.learn(40)  # compiles, too
        steps = 8 if on_cpu else 400
        assert model.session
        started = time.perf_counter()
        model.learn(steps)
        jax.block_until_ready(model.session.fleet.counts())
        return len(seeds) * steps / (time.perf_counter() - started)
    finally:
        model.close()
