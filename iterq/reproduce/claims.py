"""What is said of methods, as statements that can be judged.

A claim says before anything is run which methods are compared, where on their curves, and within what margin they count as equal. How it is
judged is in `report/verdicts.py`. Nothing passes for want of seeds: where they cannot tell, neither can the claim.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from iterq.report.compare import Comparison
from iterq.report.stats import area, estimate
from iterq.report.verdicts import cannot_tell, compare_scores, reaches
from iterq.reproduce.base import Quantity

WHEN = {"end": "at the end", "along": "mean along training", "marks": "after about {} shifts", "hours": "hours of training"}

UNSAID = "there are no runs to judge it by"


class Claim(NamedTuple):
    """`ours` against `theirs`."""

    ours: str
    theirs: str
    expects: str = "better"  # better, worse, equal, not better; empty: nothing, we want to know
    when: str = "end"  # a key of WHEN; hours are relative to theirs
    margin: float = 0.1  # within which both are equal, in units of comparable scores
    tasks: tuple[str, ...] = ()  # none: all
    times: float = 1.0  # what the scores of `theirs` are multiplied by
    mark: int = 0  # which of the marks


class Level(NamedTuple):
    """The interquartile mean of a method at the end: at least `at_least`, or within `margin` of what the paper has."""

    method: str
    at_least: float | None = None
    paper: float | None = None
    margin: float = 0.1


Marks = Mapping[str, Sequence[tuple[int, int]]]  # method: (shifts, steps) that the paper points out


def judge(claim: Claim | Level, c: Comparison, marks: Marks, whole: bool) -> Quantity:
    """A claim and what these runs say of it. Nothing is judged unless the experiment was run as a whole."""
    if isinstance(claim, Level):
        return _level(claim, c, whole)
    when = WHEN[claim.when].format(f"{marks[claim.ours][claim.mark][0]:,}" if claim.when == "marks" else "")
    theirs = f"{claim.times:g} x {claim.theirs}" if claim.times != 1 else claim.theirs
    name = f"{claim.ours} against {theirs}, {when}" + (f", {', '.join(claim.tasks)}" if claim.tasks else "")
    band = f"{claim.expects or 'nothing is claimed'}; equal within {claim.margin:g}"
    found = _scores(claim, c, marks)
    if found is None:
        return Quantity(name, math.nan, band=band, verdict=UNSAID)
    verdict = compare_scores(found[0], [claim.times * x for x in found[1]], claim.margin)
    told = verdict.better or verdict.worse or verdict.equal
    holds = not verdict.better if claim.expects == "not better" else getattr(verdict, claim.expects, False)
    passed = holds if whole and told and claim.expects else None
    more = f"; about {verdict.needed} would tell {claim.margin:g}" if not told and (verdict.needed or 0) > verdict.seeds else ""
    return Quantity(name, verdict.difference, band=band, passed=passed, low=verdict.low, high=verdict.high, verdict=verdict.word + more)


def _scores(claim: Claim, c: Comparison, marks: Marks) -> list[list[np.ndarray]] | None:
    """Per method and task: (runs,) what is compared."""
    both = claim.ours, claim.theirs
    shared = [task for task in c.tasks if all(task in c.curves.get(label, ()) for label in both)]
    tasks = claim.tasks or shared
    if not c.unit or not shared or not set(tasks) <= set(shared):
        return None
    if claim.when == "marks":
        at = {label: marks[label][claim.mark][1] for label in both}
        found = [[c.normalised[label][task][:, c.curves[label][task].steps == at[label]] for task in tasks] for label in both]
        return [[x[:, 0] for x in of_tasks] for of_tasks in found] if all(x.size for y in found for x in y) else None
    steps, found = c.aligned(*both, tasks=tasks)
    if not steps.size:
        return None
    if claim.when == "hours":
        ends = [[curve.seconds[curve.steps == steps[-1]] for task in tasks for curve in [c.curves[label][task]]] for label in both]
        relative = [[x / y for x, y in zip(of_tasks, ends[1], strict=True)] for of_tasks in ends]
        return relative if all(np.isfinite(x).all() for of_tasks in relative for x in of_tasks) else None
    return [[area(steps, x) if claim.when == "along" else x[:, -1] for x in of_tasks] for of_tasks in found]


def _level(claim: Level, c: Comparison, whole: bool) -> Quantity:
    name = f"{claim.method}: IQM at the end"
    band = f">= {claim.at_least:g}" if claim.at_least is not None else f"{claim.paper:g} ± {claim.margin:g}"
    if claim.method not in c.curves or not c.unit:
        return Quantity(name, math.nan, None, claim.paper, band, verdict=UNSAID)
    ends = [x[:, -1] for x in c.normalised[claim.method].values()]
    value, low, high = (float(x) for x in estimate(ends))
    if claim.at_least is not None:
        found = reaches(ends, claim.at_least)
        passed, said = (True if found.better else False if found.worse else None), found.word
    else:
        paper = claim.paper or 0.0
        passed = (
            True if max(paper - low, high - paper) <= claim.margin else False if max(low - paper, paper - high) > claim.margin else None
        )
        said = {True: f"equal within {claim.margin:g}", False: "differs", None: cannot_tell(min(map(len, ends)))}[passed]
    return Quantity(name, value, None, claim.paper, band, passed if whole else None, low, high, said)
