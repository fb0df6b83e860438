"""Statistics of a report beside rliable's: milliseconds for the aggregates of a table of scores with 2 000 resamples, and for a curve.

python bench/report.py
"""

import json
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from iterq.report.stats import AGGREGATES, estimate


def seconds(f: Callable[[], Any], rounds: int = 3) -> float:
    """The least of a few."""
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        f()
        times.append(time.perf_counter() - started)
    return min(times)


def main() -> None:
    warnings.simplefilter("ignore")
    from rliable import library, metrics  # pyright: ignore[reportMissingImports]

    scores = np.random.default_rng(0).normal(size=(5, 20))
    found = {}
    for name, aggregate in AGGREGATES.items():
        theirs = getattr(metrics, f"aggregate_{name}")

        def peer(theirs: Any = theirs) -> Any:
            return library.get_interval_estimates({"x": scores}, lambda x: np.array([theirs(x)]), reps=2_000)

        ours, other = seconds(lambda aggregate=aggregate: estimate(list(scores.T), aggregate)), seconds(peer)
        found[name] = {"iterq_ms": 1e3 * ours, "rliable_ms": 1e3 * other, "ratio": other / ours}
    curve = [np.random.default_rng(t).normal(size=(5, 200)) for t in range(20)]
    found["curve of 200 points"] = {"iterq_ms": 1e3 * seconds(lambda: estimate(curve), 1)}
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
