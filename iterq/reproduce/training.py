"""The runs of an experiment: found again, trained, and how long that will take."""

import dataclasses
import sys
import time
from pathlib import Path
from typing import Any

import jax

from iterq.epochs import arrived
from iterq.errors import Refusal
from iterq.identity import LENGTH
from iterq.store import CONFIG, config_hash, read_config


def place_of(root: Path, name: str, settings: Any) -> tuple[Path, Any]:
    """The run directory of these settings below `root`, and with what to go on in it.

    One that is there is found by what it is, however it is called; it keeps all that it has recorded but for its length.
    """
    for folder in sorted(root.glob(f"{name}-*")):
        if (folder / CONFIG).is_file() and config_hash(recorded := read_config(folder)) == config_hash(settings):
            return folder, dataclasses.replace(recorded, **{field: getattr(settings, field) for field in LENGTH})
    return root / f"{name}-{config_hash(settings)[:8]}", settings


def train(runs: dict[Path, Any], at_once: int, processes: int) -> None:
    """Bring run directories to their ends, `at_once` of them side by side; those that are there already are left alone or go on."""
    from iterq.runs import go_on

    todo = [folder for folder, settings in runs.items() if not finished(folder, settings)]
    for i in range(0, len(todo), at_once):
        batch = todo[i : i + at_once]
        begun = {folder for folder in batch if (folder / CONFIG).exists()}
        for new in (True, False):
            chosen = {folder: runs[folder] for folder in batch if (folder in begun) != new}
            if chosen and not all(row["finished"] for row in go_on(chosen, new, processes)):
                raise Refusal(f"stopped; the same command goes on from the runs in {batch[0].parent}")


def finished(folder: Path, settings: Any) -> bool:
    """Whether a run has come to its end."""
    return arrived(folder, vars(settings))


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
