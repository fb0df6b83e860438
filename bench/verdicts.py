"""How often verdicts are wrong, and how often they see what is there, on simulated scores: the tables of docs/verdicts.md (five minutes).

python bench/verdicts.py
"""

import argparse
from typing import Any

import numpy as np
from scipy.stats import binomtest

from iterq.report.stats import Scores, iqm
from iterq.report.verdicts import SIGNIFICANCE, Verdict, compare_scores, reaches

PERMUTATIONS, RESAMPLES = 399, 1_000
TASKS, SEEDS = (1, 5), (3, 5, 10, 30)
CELLS = [(tasks, seeds) for tasks in TASKS for seeds in SEEDS]
FAR = 30.0  # a margin so wide that only one of the two tests of "equal" can fail: the most false calls there can be


def scores(rng: np.random.Generator, tasks: int, seeds: int, shape: str = "skewed", wide: float = 1.0) -> Scores:
    """Runs (seeds,) per task, `wide` times a standard deviation of 1, or of ½ to 2 over several tasks, whose levels differ."""
    spreads = np.geomspace(0.5, 2, tasks) if tasks > 1 else np.ones(1)
    draw = rng.lognormal if shape == "skewed" else rng.normal
    # The standard deviation of exp(N(0, 1)) is √(e (e − 1)).
    unit = np.sqrt(np.e * (np.e - 1)) if shape == "skewed" else 1.0
    return [t / 2 + wide * s * draw(0, 1, seeds) / unit for t, s in enumerate(spreads)]


def verdict(a: Scores, b: Scores, margin: float, by: float = 0.0) -> Verdict:
    """What is said when `by` is added to every run of a."""
    return compare_scores([x + by for x in a], b, margin, permutations=PERMUTATIONS, resamples=RESAMPLES)


def rate(calls: list[bool]) -> str:
    """A share of draws in percent, with its 95 % interval."""
    low, high = binomtest(sum(calls), len(calls)).proportion_ci()
    return f"{100 * np.mean(calls):.1f} ({100 * low:.1f} to {100 * high:.1f})"


def table(title: str, head: str, rows: list[list[Any]]) -> None:
    names = head.split(", ")
    print(f"{title}:\n\n| {' | '.join(names)} |\n|{' --- |' * len(names)}")
    print("\n".join(f"| {' | '.join(map(str, row))} |" for row in rows), end="\n\n", flush=True)


def errors(title: str, draws: int, shape: str, wide: float) -> None:
    """Two methods that are the same but for the spread of one, and two that differ by a margin: by verdict, by p, by interval."""
    rows = []
    for tasks, seeds in CELLS:
        rng = np.random.default_rng([tasks, seeds])
        pairs = [(scores(rng, tasks, seeds, shape, wide), scores(rng, tasks, seeds, shape)) for _ in range(draws)]
        same, far = [verdict(a, b, 1) for a, b in pairs], [verdict(a, b, FAR, FAR) for a, b in pairs]
        different = [v.better or v.worse for v in same], [v.p <= SIGNIFICANCE for v in same], [not v.low <= 0 <= v.high for v in same]
        within = [v.low > -FAR and v.high < FAR for v in far]
        equal = [v.equal for v in far], [v.p_equal <= SIGNIFICANCE for v in far], within
        rows.append([tasks, seeds, *map(rate, different), *map(rate, equal)])
    table(title, "tasks, seeds, called different, by p alone, by the interval alone, called equal, by p alone, by the interval alone", rows)


def power(draws: int) -> None:
    rows = []
    for tasks, seeds in CELLS:
        rng = np.random.default_rng([tasks, seeds, 1])
        pairs = [(scores(rng, tasks, seeds), scores(rng, tasks, seeds)) for _ in range(draws)]
        better = [rate([verdict(a, b, 1, by).better for a, b in pairs]) for by in (1, 2)]
        rows.append([tasks, seeds, *better, *(rate([verdict(a, b, margin).equal for a, b in pairs]) for margin in (1, 2))])
    head = "tasks, seeds, better by 1 sd: called better, by 2 sd, the same: called equal within 1 sd, within 2 sd"
    table("What verdicts see", head, rows)


def levels(draws: int) -> None:
    """A method whose aggregate over very many runs is exactly at a level."""
    rows, many = [], 400_001
    for tasks, seeds in CELLS:
        rng = np.random.default_rng([tasks, seeds, 2])
        level = float(iqm(np.concatenate(scores(rng, tasks, many)), np.full(tasks, many)))
        found = [reaches(scores(rng, tasks, seeds), level, resamples=RESAMPLES) for _ in range(draws)]
        rows.append([tasks, seeds, rate([v.better for v in found]), rate([v.worse for v in found])])
    table("Exactly at the level", 'tasks, seeds, "reaches", "falls short"', rows)


def planned(draws: int) -> None:
    """Whether the number of seeds that a first comparison names does find a difference of the margin, in 80 % of draws."""
    rows = []
    for seeds in SEEDS[1:]:
        rng = np.random.default_rng([seeds, 3])
        named = [verdict(scores(rng, 1, seeds), scores(rng, 1, seeds), 1).needed or 2 for _ in range(draws)]
        found = [verdict(scores(rng, 1, n), scores(rng, 1, n), 1, 1).better for n in named]
        rows.append([seeds, *np.quantile(named, [0.25, 0.5, 0.75]).astype(int), rate(found)])
    table("Seeds that are named", "seeds of the first comparison, a quarter names at most, half, three quarters, found with as many", rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=2_000)
    draws = parser.parse_args().draws
    errors("Skewed scores, methods of the same shape", draws, "skewed", 1)
    errors("Normal scores, the spread of one method three times that of the other", draws, "normal", 3)
    power(draws // 2)
    levels(draws)
    planned(draws // 2)


if __name__ == "__main__":
    main()
