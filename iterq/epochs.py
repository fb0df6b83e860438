"""Epochs, by the rule of the paper's protocol (Dopamine's iterations): when a run of so many of them is over, and their scores.

An epoch lasts at least `steps` environment steps and ends with the episode that takes it there; its score is the mean return of the
episodes that ended in it. Scores are read off `episodes.csv`, with any length of epochs, whatever a run was told.

Environment steps leave out resets. The steps of our logs do not: a reset takes one of its own.
"""

import csv
import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from iterq.errors import Refusal

# Whether a run of so many epochs is over is asked at multiples of these alone: one that was stopped in between ends where it would have.
PERIODS = ("log_every", "eval_every", "checkpoint_every", "epoch_steps")


class Epoch(NamedTuple):
    """One epoch of one agent."""

    end: int  # the environment step at which it ended
    mean_return: float
    episodes: int


class Line(NamedTuple):
    """A line of `episodes.csv`."""

    step: int  # of the log, resets included
    total: float  # the return
    length: int


class Count:
    """How many epochs an agent has behind it."""

    def __init__(self, steps: int) -> None:
        """steps: of an epoch, at least."""
        self.steps, self.complete, self.since = steps, 0, 0  # since: environment steps of this epoch's finished episodes
        self.last = -1  # the log's step at the end of the last episode, which is also the one before the reset of the next

    def add(self, step: int, length: int) -> None:
        """An episode has ended at `step` of the log."""
        self.last, self.since = step, self.since + length
        if self.since >= self.steps:
            self.complete, self.since = self.complete + 1, 0

    def left(self, n: int, epochs: int) -> int:
        """Environment steps from step `n` of the log to the end of `epochs`: the fewest, and at least one before it."""
        here = min(self.since + max(n - self.last - 1, 0), self.steps - 1)
        return max((epochs - self.complete) * self.steps - here, 0) if self.complete < epochs else 0


def decided_at(n: int, settings: Mapping[str, Any]) -> bool:
    """Whether it is asked at step `n` if a run of so many epochs is over."""
    return any(settings[name] and n % settings[name] == 0 for name in PERIODS)


def epochs(episodes: Iterable[tuple[int, float]], steps: int = 250_000) -> list[Epoch]:
    """The complete epochs in (environment step, return) of an agent's episodes, in the order in which they ended."""
    if steps < 1:
        raise Refusal(f"an epoch has at least one step, got {steps}")
    found: list[Epoch] = []
    start, returns = 0, []
    for step, total in episodes:
        returns.append(total)
        if step - start >= steps:
            found.append(Epoch(step, sum(returns) / len(returns), len(returns)))
            start, returns = step, []
    return found


def read_episodes(run: Path) -> dict[int, list[Line]]:
    """The episodes of every seed in a run directory."""
    found: dict[int, list[Line]] = {}
    try:
        with (run / "episodes.csv").open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                line = Line(int(row["step"]), float(row["return"]), int(row["length"]))
                found.setdefault(int(row["seed"]), []).append(line)
    except OSError as error:
        raise Refusal(f"{run} has no episodes.csv: {error.strerror}") from error
    except (KeyError, ValueError, TypeError) as error:
        raise Refusal(f"{run / 'episodes.csv'} is damaged: {error}") from error
    return found


def without_resets(lines: Iterable[Line]) -> list[tuple[int, float]]:
    """(environment step at its end, return) of an agent's episodes: an episode of n steps ends n steps after the one before it."""
    lines = list(lines)
    ends = itertools.accumulate(line.length for line in lines)
    return list(zip(ends, (line.total for line in lines), strict=True))


def read_epochs(run: Path, steps: int = 250_000) -> dict[int, list[Epoch]]:
    """The epochs of every seed in a run directory."""
    return {seed: epochs(without_resets(lines), steps) for seed, lines in read_episodes(run).items()}


def kept(folder: Path) -> int:
    """The step of a run's newest checkpoint; -1 if there is none."""
    names = [path.name.removeprefix("step-") for path in (folder / "checkpoint").glob("step-*")]
    return max((int(name) for name in names if name.isdigit()), default=-1)


def arrived(folder: Path, settings: Mapping[str, Any]) -> bool:
    """Whether all agents of a run are where its settings end it, by its newest checkpoint; what came after that is done again."""
    n = kept(folder)
    if not settings["epochs"]:
        return n >= settings["total_timesteps"]
    if not decided_at(n, settings):
        return False
    try:
        episodes = read_episodes(folder)
    except Refusal:
        return False
    lines = {seed: [line for line in episodes.get(seed, []) if line.step <= n] for seed in settings["seeds"]}
    return all(len(epochs(without_resets(found), settings["epoch_steps"])) >= settings["epochs"] for found in lines.values())
