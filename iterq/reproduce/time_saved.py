"""The time that a window saves: what a base algorithm takes in all, minus what its iterated version takes to come as far (Appendix E).

The runs are the user's. The paper's hours are those of 20 games, by the speed on Breakout, and of 6 MuJoCo tasks, on one GPU.
"""

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np

from iterq.report.compare import FEW, Comparison, collected, compare
from iterq.report.findings import hours
from iterq.report.labels import labelled
from iterq.report.scores import RETURN
from iterq.report.stats import LEVEL, Estimate, draws, first_reaching, iqm
from iterq.reproduce.base import Quantity

HOURS = {"i-dqn": 7 + 31 / 60, "i-iqn": 18 + 23 / 60, "i-sac": 6 / 60, "i-droq": 1 + 55 / 60}  # saved, says the paper


def time_saved(runs: Path | None) -> tuple[list[Quantity], list[Any], list[str]]:
    """The first line of the paper's table, from the runs below a directory: quantities, what they are made of, and what to mind."""
    sources = labelled(collected([runs], RETURN)[0]) if runs else []
    quantities, rows, notes = [], [], []
    for ours, paper in HOURS.items():
        base = ours.removeprefix("i-")
        labels = [dict.fromkeys(s.label for s in sources if s.config.get("algorithm") == name) for name in (ours, base)]
        for pair in list(itertools.product(*labels)) or [(ours, base)]:
            tasks = set.intersection(*({s.task for s in sources if s.label == label} for label in pair))
            paths = [Path(s.name) for s in sources if s.label in pair and s.task in tasks]
            found, band, passed = None, "no runs of both on a task" if runs else "no runs given", None
            if paths:
                c = compare(paths, RETURN)
                c = compare(paths, RETURN, base) if base in c.curves else c  # makes scores on different tasks comparable
                found, band = hours_saved(c, ours, base), "the runs do not tell"
                notes += [f"{' against '.join(pair)}: {warning}" for warning in c.warnings]
                if found:
                    seeds = min(len(curve.seeds) for of_tasks in c.curves.values() for curve in of_tasks.values())
                    band = f"> 0 in the whole interval, of >= {FEW} seeds"
                    passed = None if seeds < FEW or found.low <= 0 <= found.high else bool(found.low > 0)
                    rows.append((" against ".join(pair), str(len(tasks)), str(seeds), *(f"{x:.3g}" for x in found)))
            name = f"{pair[0]}: hours saved until it comes to the last IQM of {pair[1]}"
            quantities.append(Quantity(name, float(found.value) if found else math.nan, None, paper, band, passed))
    header = ("runs", "tasks", "seeds", "hours saved", "interval: from", "to")
    return quantities, [("Time saved; compare only runs of as many seeds on the same machine", header, rows)] if rows else [], notes


def hours_saved(c: Comparison, ours: str, base: str) -> Estimate | None:
    """Hours that `base` takes in all, minus those until the IQM of `ours` first comes to the last of `base`; -inf: it never does.

    The interval is that of a stratified bootstrap over the runs of both. None: the runs do not say how long they took.
    """
    if not c.unit or not {ours, base} <= set(c.curves) or (clock := hours(c, ours)) is None or (whole := hours(c, base)) is None:
        return None
    x, y = (c.common(label)[1] for label in (ours, base))  # per task (agents, points)
    sizes = [np.array([len(scores) for scores in found]) for found in (x, y)]
    curves, last = np.concatenate(x).T, np.concatenate(y)[:, -1]  # (points, all runs), (all runs,)

    def saved(i: Any, j: Any) -> float:
        reached = first_reaching(clock, iqm(curves[:, i], sizes[0]), float(iqm(last[j], sizes[1])))
        return float(whole[-1]) - (math.inf if reached is None else reached)

    resampled = [saved(i, j) for i, j in zip(*(draws(tuple(n.tolist()), seed=seed) for seed, n in enumerate(sizes)), strict=True)]
    # No mean of two neighbours, as either may be infinite.
    low, high = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], method="nearest")
    return Estimate(np.array(saved(slice(None), slice(None))), low, high)
