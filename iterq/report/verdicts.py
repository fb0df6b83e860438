"""What scores of two methods allow to be said: better, worse, equal within a margin, or that there are too few seeds to tell.

"Better" and "worse" are judged by a permutation test. If two methods are the same, their runs on a task could as well have been
given out the other way round, so runs change places within every task, and p is how often the aggregates then differ as much.
"Equal within m" is judged by two such tests, each of one side: a with m added beats b, and a with m taken off loses to b. So two
methods that are the same are called different in at most 5 % of draws, and two whose runs differ by m are called equal in at most 5 %.

Permutations take both methods to have one shape; where the runs of one spread more widely, p is too small. So the 95 % interval of
the bootstrap must agree: "better" leaves 0 outside of it, "equal" has it inside ±m. `docs/verdicts.md` has measurements.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations, count
from math import ceil, comb, prod
from typing import NamedTuple

import numpy as np

from iterq.report.stats import BLOCK, RESAMPLES, SEED, Aggregate, Scores, draws, interval, iqm, mean

SIGNIFICANCE = 0.05
PERMUTATIONS = 9_999
QUANTILES = 1.960 + 0.842  # of a normal distribution, at 97.5 % and 80 %: a two-sided test at 5 % that sees 80 % of effects
LARGEST = 1e100  # of scores: squares of much larger ones overflow


class Verdict(NamedTuple):
    """What can be said, and the numbers it rests on. `equal` may hold beside `better` or `worse`."""

    word: str
    difference: float  # the aggregate of a minus that of b, or minus the level
    low: float  # the 95 % interval of the difference by a stratified bootstrap
    high: float
    p: float  # two-sided, of "different"
    p_equal: float  # the larger p of the two tests of "equal within the margin"; 1 for a level
    seeds: int  # the least number on any task of any method
    needed: int | None  # about how many per method and task find a difference of the margin in 80 % of draws; None: cannot be said
    better: bool
    worse: bool
    equal: bool


def checked(scores: Scores) -> list[np.ndarray]:
    """`scores` as floats, if every task has runs and all of them are numbers."""
    found = [np.asarray(x, float) for x in scores]
    if not found or not all(x.ndim == 1 and len(x) and (np.abs(x) < LARGEST).all() for x in found):
        raise ValueError("scores must be finite numbers, in one array (runs,) per task, and every task must have a run")
    return found


def cannot_tell(seeds: int) -> str:
    return f"cannot tell at {seeds} seed{'s' * (seeds != 1)}"


def orders(sizes: Sequence[int], permutations: int, seed: int) -> Iterator[np.ndarray]:
    """Blocks (permutations, all runs) of which run takes the place of which; `sizes`: of a and b on the first task, on the second, …"""
    pairs = list(zip(sizes[::2], sizes[1::2], strict=True))
    counts = [comb(m + n, m) for m, n in pairs]
    task = np.repeat(np.arange(len(pairs)), [m + n for m, n in pairs])
    others, several = prod(counts) - 1, max(1, BLOCK // (3 * task.size))
    total = min(permutations, others)
    blocks = (np.arange(i, min(i + several, total)) for i in range(0, total, several))
    if others > permutations:
        rng = np.random.default_rng(seed)
        # Random numbers between t and t + 1 for runs of task t: sorted, they leave every run in its task.
        yield from ((rng.random((len(block), task.size)) + task).argsort(1) for block in blocks)
        return
    # So few that each comes once, and p is exact: per task all choices of runs for a, then those for b; the first is the one found.
    ways = [[[*c, *(i for i in range(m + n) if i not in c)] for c in combinations(range(m + n), m)] for m, n in pairs]
    for block in blocks:
        at = [np.array(way)[i] for way, i in zip(ways, np.unravel_index(block + 1, counts), strict=True)]
        yield np.concatenate(at, 1) + np.searchsorted(task, task)


def enough(error: float, margin: float, sizes: np.ndarray) -> int | None:
    """How many seeds tell a difference of `margin`, from the standard error of a difference with `sizes` seeds."""
    n, ratio = 1 / np.mean(1 / sizes), QUANTILES * error / margin
    # However large an effect, p can only be as small as the number of ways to share out the runs allows.
    least = next(n for n in count(2) if comb(2 * n, n) ** (len(sizes) // 2) >= 2 / SIGNIFICANCE)
    # A bootstrap's variance is short of a factor n / (n - 1), a variance goes with 1 / seeds, and it is itself estimated: one more.
    return max(least, ceil(n * n / (n - 1) * ratio**2 + 1)) if sizes.min() > 1 and 0 < ratio < 1e4 else None


def judged(gaps: np.ndarray, largest: float, ends: Sequence[np.ndarray], margin: float, seeds: int, needed: int | None) -> Verdict:
    """What three tests and the interval say.

    gaps: (3, 1 + permutations) differences, as found and after each permutation: of the runs as they are, with the margin added to those
    of one method, and with it taken off. largest: of these runs. ends: the difference of a and b, and its interval.
    """
    strength = np.stack([np.abs(gaps[0]), gaps[1], -gaps[2]])  # of what the tests look for
    # (1 + at least as extreme) / (1 + permutations). Sums in another order may differ by rounding, and are ties.
    p, *sides = map(float, (strength >= strength[:, :1] - 1e-12 * largest).mean(1))
    value, low, high = map(float, ends)
    better, worse = p <= SIGNIFICANCE and min(value, low) > 0, p <= SIGNIFICANCE and max(value, high) < 0
    equal = max(sides) <= SIGNIFICANCE and -margin < low and high < margin
    side = ("better" if better else "worse") + f", by less than {margin:g}" * equal
    word = side if better or worse else f"equal within {margin:g}" if equal else cannot_tell(seeds)
    return Verdict(word, value, low, high, p, max(sides), seeds, needed, better, worse, equal)


def compare_scores(
    a: Scores,
    b: Scores,
    margin: float,
    aggregate: Aggregate = iqm,
    permutations: int = PERMUTATIONS,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Verdict:
    """Whether a is better than b, worse, or equal within `margin`: per task an array (runs,), tasks in the same order for both.

    The aggregate must rise with scores, and by m if all of them do. a and b may have different numbers of runs.
    """
    a, b = checked(a), checked(b)
    if len(a) != len(b) or not 0 < margin < LARGEST or permutations < 1:
        raise ValueError("a and b must have the same tasks, and the margin and the number of permutations must be positive")

    def rank(scores: list[np.ndarray]) -> tuple[float, list[list[float]]]:
        return float(aggregate(np.concatenate(scores), np.array([len(x) for x in scores]))), [x.tolist() for x in scores]

    # The better one first: so a against b and b against a have the same draws, and their verdicts agree.
    sign = 1 if rank(a) >= rank(b) else -1
    parts = [x for pair in zip(*(a, b)[::sign], strict=True) for x in pair]
    runs, sizes = np.concatenate(parts), np.array([len(x) for x in parts])
    first = np.repeat([True, False] * len(a), sizes)

    def gap(runs: np.ndarray, aggregate: Aggregate = aggregate) -> np.ndarray:
        return aggregate(runs[..., first], sizes[::2]) - aggregate(runs[..., ~first], sizes[1::2])

    def ranked(runs: np.ndarray) -> np.ndarray:
        """The difference of aggregates; where runs that an interquartile mean leaves out change places it stays, and means decide."""
        return (gap(runs) + 1e-6 * gap(runs, mean)).reshape(3, -1)

    # Three tests: of the runs as they are, with the margin added to the first method's, and with it taken off.
    shifted = runs + margin * np.array([[0], [1], [-1]]) * first
    moved = (ranked(shifted.take(at, 1)) for at in orders(sizes.tolist(), permutations, seed))
    gaps = np.concatenate([ranked(shifted), *moved], 1)
    resampled = gap(runs[draws(tuple(sizes.tolist()), resamples, seed)])
    ends = (sign * gap(runs), *sorted(sign * x for x in interval(resampled)))
    return judged(gaps, np.abs(shifted).max(), ends, margin, int(sizes.min()), enough(float(resampled.std()), margin, sizes))


def reaches(scores: Scores, level: float, aggregate: Aggregate = iqm, resamples: int = RESAMPLES, seed: int = SEED) -> Verdict:
    """Whether an aggregate "reaches" `level`, "falls short" of it, or neither can be told: the 95 % bootstrap interval judges it.

    On skewed scores, one that is exactly at the level is called either at 3, 5, 10, 30 seeds in 25, 10, 7, 6 % of draws (one task).
    """
    scores = checked(scores)
    if not abs(level) < LARGEST:
        raise ValueError("the level must be a finite number")
    runs, sizes = np.concatenate(scores), np.array([len(x) for x in scores])
    found = aggregate(runs[draws(tuple(sizes.tolist()), resamples, seed)], sizes) - level
    (low, high), seeds = map(float, interval(found)), int(sizes.min())
    better, worse = seeds > 1 and low >= 0, seeds > 1 and high < 0  # all resamples of a single run are the same
    p = 2 * min((found < 0).mean(), (found >= 0).mean()) if seeds > 1 else 1.0
    word = "reaches" if better else "falls short" if worse else cannot_tell(seeds)
    return Verdict(word, float(aggregate(runs, sizes)) - level, low, high, float(p), 1.0, seeds, None, better, worse, False)


def compare_pairs(a: np.ndarray, b: np.ndarray, margin: float, permutations: int = PERMUTATIONS, seed: int = SEED) -> Verdict:
    """Whether the mean of a (runs,) is better than that of b where run i of both began alike, such as from the same network.

    What chance could have turned round is then the sign of every single difference: the same three tests, by changes of sign.
    """
    (x, y), n = checked([a, b]), len(a)
    if n != len(y) or not 0 < margin < LARGEST or permutations < 1:
        raise ValueError("a and b must be pairs, and the margin and the number of permutations must be positive")
    found, rng = x - y, np.random.default_rng(seed)
    signs = np.concatenate([np.ones((1, n)), rng.choice((-1.0, 1.0), (permutations, n))])
    shifted = found + margin * np.array([[0], [1], [-1]])
    ends = (found.mean(), *interval(found[rng.integers(0, n, (RESAMPLES, n))].mean(1)))
    return judged((signs @ shifted.T / n).T, np.abs(shifted).max(), ends, margin, n, None)
