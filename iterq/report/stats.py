"""Aggregates over runs with their uncertainty, after Agarwal et al. (2021)."""

from typing import NamedTuple

import numpy as np

RESAMPLES, LEVEL, SEED = 2_000, 0.95, 0


class Estimate(NamedTuple):
    """A number, or an array of them, and its interval."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray


def iqm(scores: np.ndarray) -> np.ndarray:
    """(…) the interquartile mean over the first axis of `scores` (runs, …): a quarter of the runs is left out at either end."""
    ordered, cut = np.sort(scores, axis=0), len(scores) // 4
    return ordered[cut : len(scores) - cut].mean(0)


def stratified_iqm(scores: np.ndarray, resamples: int = RESAMPLES) -> Estimate:
    """IQM over all runs of `scores` (seeds, tasks, …), with the percentile bootstrap over the seeds of each task by itself."""
    seeds, tasks = scores.shape[:2]
    rng = np.random.default_rng(SEED)
    found = np.empty((resamples, *scores.shape[2:]))
    for i in range(resamples):
        drawn = rng.integers(0, seeds, (seeds, tasks))
        found[i] = iqm(scores[drawn, np.arange(tasks)].reshape(seeds * tasks, *scores.shape[2:]))
    low, high = np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return Estimate(iqm(scores.reshape(seeds * tasks, *scores.shape[2:])), low, high)
