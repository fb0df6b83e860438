"""Aggregates over runs with their uncertainty, after Agarwal et al. (2021).

Scores are given per task, as arrays (runs, …) whose numbers of runs may differ. Intervals are percentiles of a stratified bootstrap: the
runs of every task are drawn anew, with replacement and by themselves. Draws are seeded, so that a report is the same every time.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

RESAMPLES, LEVEL, SEED = 2_000, 0.95, 0
BLOCK = 1 << 18  # numbers that are resampled at once: few enough for a cache

Scores = Sequence[np.ndarray]  # per task: (runs, …)
Aggregate = Callable[[np.ndarray, np.ndarray], np.ndarray]  # (…, all runs), (tasks,) numbers of runs -> (…)


class Estimate(NamedTuple):
    """A number, or an array of them, and its interval."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray


def iqm(runs: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The interquartile mean: a quarter of all runs is left out at either end."""
    cut = runs.shape[-1] // 4
    kept = slice(cut, runs.shape[-1] - cut)
    return (np.partition(runs, [kept.start, kept.stop - 1], -1) if cut else runs)[..., kept].mean(-1)


def of_tasks(runs: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """(…, tasks) the mean of every task."""
    return np.add.reduceat(runs, np.cumsum([0, *sizes[:-1]]), -1) / sizes


def mean(runs: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The mean over tasks of their means."""
    return of_tasks(runs, sizes).mean(-1)


def median(runs: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The median over tasks of their means."""
    return np.median(of_tasks(runs, sizes), -1)


def optimality_gap(runs: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """How far runs fall short of a score of 1, on average; more than 1 counts as 1."""
    return 1 - mean(np.minimum(runs, 1.0), sizes)


AGGREGATES: dict[str, Aggregate] = {"iqm": iqm, "median": median, "mean": mean, "optimality_gap": optimality_gap}


@lru_cache(maxsize=8)
def draws(sizes: tuple[int, ...], resamples: int = RESAMPLES, seed: int = SEED) -> np.ndarray:
    """(resamples, all runs) which run takes the place of which; runs of a task only change places among themselves."""
    rng, starts = np.random.default_rng(seed), np.cumsum([0, *sizes[:-1]])
    return np.concatenate([start + rng.integers(0, n, (resamples, n)) for start, n in zip(starts, sizes, strict=True)], 1)


def interval(found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The ends of the middle 95 % of `found` (resamples, …)."""
    low, high = np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return low, high


def estimate(scores: Scores, aggregate: Aggregate = iqm, resamples: int = RESAMPLES, seed: int = SEED) -> Estimate:
    """An aggregate of `scores`; those of further axes, such as points along training, are taken one by one, with the same draws."""
    sizes = np.array([len(x) for x in scores])
    runs = np.moveaxis(np.concatenate(scores), 0, -1)  # (…, all runs)
    at = draws(tuple(sizes.tolist()), resamples, seed)
    points = runs.reshape(-1, runs.shape[-1])
    several = max(1, BLOCK // at.size)
    blocks = (points[i : i + several] for i in range(0, len(points), several))
    ends = [interval(np.moveaxis(aggregate(block[:, at], sizes), 1, 0)) for block in blocks]
    low, high = np.concatenate(ends, 1).reshape(2, *runs.shape[:-1])
    return Estimate(aggregate(runs, sizes), low, high)


def probability_of_improvement(ours: Scores, theirs: Scores, resamples: int = RESAMPLES, seed: int = SEED) -> Estimate:
    """That a run of ours beats one of theirs on a task, averaged over tasks; ties count half."""

    def chance(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return (1 + np.sign(x[..., :, None] - y[..., None, :])).mean((-1, -2)) / 2

    rng, pairs = np.random.default_rng(seed), list(zip(ours, theirs, strict=True))
    resampled = [chance(*(z[rng.integers(0, len(z), (resamples, len(z)))] for z in pair)) for pair in pairs]
    return Estimate(np.asarray(sum(chance(x, y) for x, y in pairs) / len(pairs)), *interval(np.sum(resampled, 0) / len(pairs)))


def profile(scores: Scores, taus: np.ndarray, resamples: int = RESAMPLES, seed: int = SEED) -> Estimate:
    """(taus,) the fraction of runs with a score above τ: the performance profile."""
    runs = np.concatenate(scores)
    above = (runs[:, None] > taus).astype(float)
    at = draws(tuple(len(x) for x in scores), resamples, seed)
    often = np.apply_along_axis(np.bincount, 1, at, minlength=len(runs))  # (resamples, runs) it was drawn
    return Estimate(above.mean(0), *interval(often @ above / len(runs)))


def area(steps: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """The mean height of curves (…, points) between the first of `steps` and the last: the area under them over its width."""
    if len(steps) < 2:
        return scores[..., -1]
    return np.trapezoid(scores, steps, axis=-1) / (steps[-1] - steps[0])


def first_reaching(x: np.ndarray, curve: np.ndarray, level: float) -> float | None:
    """Where on the axis `x` a curve first comes to `level`, in a straight line between points; None: never."""
    i = next(iter(np.flatnonzero(curve >= level)), None)
    if i is None:
        return None
    if i == 0 or not np.isfinite(curve[i - 1]):
        return float(x[i])
    return float(x[i - 1] + (level - curve[i - 1]) / (curve[i] - curve[i - 1]) * (x[i] - x[i - 1]))
