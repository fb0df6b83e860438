"""What the statistics say of a comparison."""

import itertools
import math
from collections.abc import Mapping
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from iterq.report.compare import Comparison
from iterq.report.scores import normaliser
from iterq.report.stats import AGGREGATES, Estimate, area, estimate, first_reaching, iqm, probability_of_improvement, profile

TAUS = 51  # points of a profile


def numbers(found: Estimate) -> dict[str, Any]:
    """For JSON."""
    return {name: plain(x) for name, x in found._asdict().items()}


def plain(x: Any) -> Any:
    """Numbers and lists of them, with None for what JSON cannot write."""
    if isinstance(x, np.ndarray) and x.ndim:
        return [plain(y) for y in x]
    return float(x) if math.isfinite(x) else None


Curves = dict[str, tuple[np.ndarray, Estimate]]  # label: steps, and what was found there


def aggregates(c: Comparison) -> Curves:
    """By method: steps, and the IQM over tasks and agents along them."""
    return {label: (common[0], estimate(common[1])) for label in c.normalised if len((common := c.common(label))[0])}


class Findings(NamedTuple):
    """What is drawn, found once for figures, tables and page."""

    over_tasks: Curves  # empty: tasks cannot be compared
    by_task: dict[str, Curves]
    profile: Curves  # along scores, not steps; empty likewise


def findings(c: Comparison) -> Findings:
    """Of a comparison."""
    by_task = {task: {label: (x[task].steps, estimate([x[task].values])) for label, x in c.curves.items() if task in x} for task in c.tasks}
    return Findings(aggregates(c), by_task, profiles(c))


Beside = dict[str, tuple[np.ndarray, np.ndarray]]  # task: steps and mean returns there, of a method that others have run


def with_others(c: Comparison, found: Findings, beside: Mapping[str, Beside]) -> tuple[Curves, dict[str, Curves]]:
    """The curves over all tasks and by task with those of others; these have no interval, since only their means are known."""
    by_task, over_tasks = {task: dict(curves) for task, curves in found.by_task.items()}, dict(found.over_tasks)
    for label, tasks in beside.items():
        known = {task: (x[x <= max(steps[-1] for steps, _ in found.by_task[task].values())], y) for task, (x, y) in tasks.items()}
        for task, (steps, values) in known.items():
            by_task[task][label] = steps, Estimate(*(values[: len(steps)],) * 3)
        steps = reduce(np.intersect1d, [x for x, _ in known.values()])
        units = {task: normaliser(task, None) for task in known}
        if c.scaled and set(known) == set(c.tasks) and all(units.values()):
            scores = [
                unit(values[: len(x)][np.isin(x, steps)]) for (x, values), unit in zip(known.values(), units.values(), strict=True) if unit
            ]
            over_tasks[label] = steps, Estimate(*(iqm(np.stack(scores, -1), np.ones(len(scores))),) * 3)
    return over_tasks, by_task


def hours(c: Comparison, label: str) -> np.ndarray | None:
    """(points,) of training until the points of `aggregates`, a mean over tasks and agents; None where that is not known."""
    steps = c.common(label)[0]
    found = np.mean([curve.seconds[np.isin(curve.steps, steps)] for curve in c.curves[label].values()], 0) / 3600
    return found if len(found) and np.isfinite(found).all() else None


def summary(c: Comparison, curves: Curves) -> list[dict[str, Any]]:
    """One row per method: aggregates of the last points, the area under the curve, and when it came to where the baseline ended.

    curves: those over all tasks.
    """
    level = float(curves[c.baseline][1].value[-1]) if c.baseline in curves else None
    rows = []
    for label, tasks in c.curves.items():
        row: dict[str, Any] = {
            "label": label,
            "runs": sum(len(curve.seeds) for curve in tasks.values()),
            **dict.fromkeys((*AGGREGATES, "auc", "steps_to_baseline", "hours_to_baseline")),
        }
        if label in curves:
            steps, found = c.common(label)
            finals = [x[:, -1] for x in c.normalised[label].values()]
            # The optimality gap asks for a scale on which 1 is enough.
            asked = {name: aggregate for name, aggregate in AGGREGATES.items() if name != "optimality_gap" or c.scaled}
            row |= {name: numbers(estimate(finals, aggregate)) for name, aggregate in asked.items()}
            row["auc"] = numbers(estimate([area(steps, x) for x in found]))
            if level is not None:
                clocks = {"steps_to_baseline": steps, "hours_to_baseline": hours(c, label)}
                row |= {name: first_reaching(x, curves[label][1].value, level) for name, x in clocks.items() if x is not None}
        rows.append(row)
    return rows


def improvements(c: Comparison) -> list[dict[str, Any]]:
    """For every pair of methods: the chance that a run of one beats one of the other, on the tasks that both are on."""
    ends = {label: {task: curve.values[:, -1] for task, curve in tasks.items()} for label, tasks in c.curves.items()}
    both = {(a, b): [task for task in ends[a] if task in ends[b]] for a, b in itertools.permutations(ends, 2)}
    return [
        {"a": a, "b": b} | numbers(probability_of_improvement([ends[a][task] for task in tasks], [ends[b][task] for task in tasks]))
        for (a, b), tasks in both.items()
        if tasks
    ]


def profiles(c: Comparison) -> Curves:
    """Performance profiles of the last points: by method, scores and the fraction of runs above them."""
    if not c.unit:
        return {}
    finals = {label: [x[:, -1] for x in found.values()] for label, found in c.normalised.items()}
    every = np.concatenate([x for found in finals.values() for x in found])
    taus = np.linspace(min(every.min(), 0), every.max(), TAUS)
    return {label: (taus, profile(found, taus)) for label, found in finals.items()}
