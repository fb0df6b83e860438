"""Epochs out of a log of episodes, by the rule of the paper's protocol (Dopamine's iterations).

An epoch lasts at least `steps` steps and ends with the episode that takes it there; its score is the mean return of the episodes that
ended in it. Nothing about epochs is decided while an agent trains: they are read off `episodes.csv`, with any length.
"""

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from iterq.errors import Refusal


class Epoch(NamedTuple):
    """One epoch of one agent."""

    end: int  # the step at which it ended
    mean_return: float
    episodes: int


def epochs(episodes: Iterable[tuple[int, float]], steps: int = 250_000) -> list[Epoch]:
    """The complete epochs in (step, return) of an agent's episodes, in the order in which they ended."""
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


def read_epochs(run: Path, steps: int = 250_000) -> dict[int, list[Epoch]]:
    """The epochs of every seed in a run directory."""
    by_seed: dict[int, list[tuple[int, float]]] = {}
    try:
        with (run / "episodes.csv").open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                by_seed.setdefault(int(row["seed"]), []).append((int(row["step"]), float(row["return"])))
    except OSError as error:
        raise Refusal(f"{run} has no episodes.csv: {error.strerror}") from error
    except (KeyError, ValueError, TypeError) as error:
        raise Refusal(f"{run / 'episodes.csv'} is damaged: {error}") from error
    return {seed: epochs(rows, steps) for seed, rows in by_seed.items()}
