"""The runs of an experiment: found again, trained, and how long that will take."""

import dataclasses
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from iterq.errors import Refusal

Points = dict[int, list[float]]  # seed: a value per point of a curve


def train(runs: dict[Path, Any], total: int, at_once: int, processes: int) -> None:
    """Bring run directories to `total` steps, `at_once` of them side by side; those that are there already are left alone or go on."""
    from iterq.runs import go_on
    from iterq.store import CONFIG

    todo = [folder for folder in runs if not finished(folder, total)]
    for i in range(0, len(todo), at_once):
        batch = todo[i : i + at_once]
        begun = {folder for folder in batch if (folder / CONFIG).exists()}
        for new in (True, False):
            chosen = {folder: runs[folder] for folder in batch if (folder in begun) != new}
            if chosen and not all(row["finished"] for row in go_on(chosen, new, processes)):
                raise Refusal(f"stopped; the same command goes on from the runs in {batch[0].parent}")


def finished(folder: Path, steps: int) -> bool:
    """Whether a run has come that far."""
    return any(int(path.name.removeprefix("step-")) >= steps for path in (folder / "checkpoint").glob("step-*"))


def read_metric(folder: Path, config: Any, name: str) -> Points:
    """The mean of a metric over the lines of a run's log up to every point."""
    sums: dict[tuple[int, int], list[float]] = {}
    with (folder / "metrics.jsonl").open(encoding="utf-8") as file:
        for row in map(json.loads, file):
            if name in row and row["step"]:
                sums.setdefault((row["seed"], (row["step"] - 1) // config.epoch), []).append(row[name])
    found: Points = {seed: [] for seed in config.seeds}
    for (seed, _), values in sorted(sums.items()):
        found[seed].append(float(np.mean(values)))
    return found


def say_hours(what: str, rates: dict[str, float], tasks: int, config: Any) -> None:
    """How long methods with these rates take for all tasks, seeds and steps."""
    steps, seeds = config.total_timesteps, len(config.seeds)
    hours = sum(tasks * steps * seeds / rate / 3600 for rate in rates.values())
    text = f"{len(rates)} methods x {tasks} tasks x {seeds} seeds x {steps:,} steps take about {hours:,.2g} hours on this machine"
    print(f"{what}: {text}", file=sys.stderr)


def logged_rate(folder: Path) -> float:
    """Steps per second of all agents of a run, by the last lines of its log; nan if there are none yet."""
    with (folder / "metrics.jsonl").open(encoding="utf-8") as file:
        last = {row["seed"]: row["time/fps"] for row in map(json.loads, file) if "time/fps" in row}
    return sum(last.values()) if last else math.nan


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
