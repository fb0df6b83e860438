"""Methods compared on tasks: curves of all agents on common points, made comparable between tasks. See `findings.py` for what they say."""

from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import NamedTuple

import numpy as np

from iterq.errors import Refusal
from iterq.games import references
from iterq.report import scores as logs
from iterq.report.foreign import is_foreign, read_foreign
from iterq.report.labels import labelled
from iterq.report.scores import EVALUATION, RETURN, Source, normaliser

FEW = 5  # fewer seeds than this are worth a warning


class Curve(NamedTuple):
    """One method on one task."""

    steps: np.ndarray  # (points,) that all of its agents have reached
    values: np.ndarray  # (agents, points)
    seeds: list[str]
    seconds: np.ndarray  # (points,) mean over agents; NaN where that is not known


class Comparison(NamedTuple):
    """What a report is about."""

    metric: str
    unit: str  # of normalised values; empty: tasks cannot be compared
    curves: dict[str, dict[str, Curve]]  # label: task: curve
    normalised: dict[str, dict[str, np.ndarray]]  # the same as `values`; empty without a unit
    sources: list[Source]
    baseline: str
    warnings: list[str]

    @property
    def scaled(self) -> bool:
        """Whether 0 and 1 mean something."""
        return self.unit not in ("", self.metric)

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(task for found in self.curves.values() for task in found))

    def aligned(self, *labels: str, tasks: Sequence[str] = ()) -> tuple[np.ndarray, list[list[np.ndarray]]]:
        """The steps at which all agents of some methods have a point on all tasks, and per method and task the normalised (agents, points).

        tasks: those to look at; none: all that these methods are on.
        """
        tasks = tasks or [task for task in self.tasks if all(task in self.curves[label] for label in labels)]
        of_each = [[self.curves[label][task].steps for task in tasks] for label in labels]
        steps = reduce(np.intersect1d, [x for found in of_each for x in found]) if tasks else np.zeros(0)
        return steps, [
            [self.normalised[label][task][:, np.isin(x, steps)] for task, x in zip(tasks, found, strict=True)]
            for label, found in zip(labels, of_each, strict=True)
        ]

    def common(self, label: str) -> tuple[np.ndarray, list[np.ndarray]]:
        """The same of one method."""
        steps, (found,) = self.aligned(label)
        return steps, found


def collected(paths: Sequence[Path], metric: str) -> tuple[list[Source], list[str]]:
    """All sources at `paths` and below, and what is wrong with them."""
    sources: list[Source] = []
    for path in paths:
        if not path.exists():
            raise Refusal(f"{path} does not exist")
        if path.is_dir() and (runs := logs.runs_in(path)):
            sources += [logs.read_run(run, metric) for run in runs]
        elif is_foreign(path):
            sources += read_foreign(path, metric)
        elif path.is_dir() and (found := [file for file in sorted(path.rglob("*")) if is_foreign(file)]):
            for file in found:
                sources += read_foreign(file, metric)
        else:
            raise Refusal(f"{path} holds no run of iterq, and nothing else that a report can be made from")
    return sources, [f"{source.name}: {text}" for source in sources for text in source.warnings]


def compare(paths: Sequence[Path], metric: str = RETURN, baseline: str = "", group: tuple[str, ...] = (), epoch: int = 0) -> Comparison:
    """Read everything at `paths`. epoch: steps between points; 0: 250 000 for Atari, else a round number, see `point_width`."""
    sources, warnings = collected(paths, metric)
    return comparison(labelled(sources, group), metric, baseline, epoch, warnings)


def comparison(sources: list[Source], metric: str, baseline: str = "", epoch: int = 0, warnings: Sequence[str] = ()) -> Comparison:
    """Methods by the labels of `sources`, on the tasks that these name."""
    warnings = list(warnings)
    on_atari = all(source.task in references() for source in sources)
    steps = [log.steps for source in sources for log in source.logs if log.steps.size]
    longest = max((float(x[-1]) for x in steps), default=0)
    apart = max((float(np.median(np.diff(x))) for x in steps if len(x) > 1), default=0)
    by_epochs = on_atari and (epoch > 0 or longest >= logs.EPOCH)
    width = epoch or (logs.EPOCH if by_epochs else logs.point_width(longest, apart))
    curves: dict[str, dict[str, Curve]] = {}
    for label, task in dict.fromkeys((source.label, source.task) for source in sources):
        found = _curve([s for s in sources if (s.label, s.task) == (label, task)], metric, width, by_epochs, warnings)
        if found:
            curves.setdefault(label, {})[task] = found
        else:
            warnings.append(f"{label} on {task} has no point yet: a point needs {width:,} steps")
    if baseline and baseline not in curves:
        raise Refusal(f"--baseline {baseline!r} is none of {', '.join(map(repr, curves))}")
    unit, normalised = _comparable(curves, baseline, metric)
    warnings += _suspicions(curves, sources, unit) + _doubts(curves, baseline)
    return Comparison(metric, unit, curves, normalised, sources, baseline, warnings)


def _curve(sources: list[Source], metric: str, width: int, by_epochs: bool, warnings: list[str]) -> Curve | None:
    agents, seen = {}, set()
    for source in sources:
        for log in source.logs:
            name = log.seed
            while name in seen:
                name += "'"
            if name != log.seed:
                warnings.append(
                    f"{source.label} on {source.task} has several agents with seed {log.seed}: they are taken for different ones"
                )
            seen.add(name)
            # What comes from elsewhere is at its points already.
            values, seconds = logs.curve(log, metric if source.status != "given" else "", width, by_epochs)
            if len(values):
                agents[name] = values, seconds
            elif source.status != "running":
                warnings.append(f"seed {log.seed} of {source.name} has no point and is left out")
    if not agents:
        return None
    lengths = [len(values) for values, _ in agents.values()]
    if max(lengths) > min(lengths):
        of = f"{sources[0].label} on {sources[0].task}"
        warnings.append(
            f"agents of {of} have gone unequally far: {min(lengths) * width:,} to {max(lengths) * width:,} steps; the least counts"
        )
    length = min(lengths)
    values, seconds = (np.array([found[i][:length] for found in agents.values()]) for i in range(2))
    start = int(np.isnan(values).any(0).argmin()) if not np.isnan(values).any(0).all() else length  # before the first episodes have ended
    steps = width * np.arange(start + 1, length + 1)
    return Curve(steps, values[:, start:], list(agents), seconds.mean(0)[start:]) if len(steps) else None


def _comparable(curves: dict[str, dict[str, Curve]], baseline: str, metric: str) -> tuple[str, dict[str, dict[str, np.ndarray]]]:
    tasks = {task for found in curves.values() for task in found}
    finals = {task: curves[baseline][task].values[:, -1] for task in tasks if baseline and task in curves[baseline]}
    units = {task: normaliser(task, finals.get(task)) for task in tasks}
    if metric in (RETURN, EVALUATION) and tasks and all(units.values()):
        of_human = all(task in references() for task in tasks)
        unit = "human-normalised return" if of_human else f"return relative to the final one of {baseline}"
    elif len(tasks) == 1:
        unit, units = metric, dict.fromkeys(tasks, lambda x: x)
    else:
        return "", {}
    return unit, {label: {task: units[task](curve.values) for task, curve in found.items()} for label, found in curves.items()}  # pyright: ignore[reportOptionalCall]


def _suspicions(curves: dict[str, dict[str, Curve]], sources: list[Source], unit: str) -> list[str]:
    """What a careful reader would ask."""
    found = []
    few = {(label, task): len(c.seeds) for label, tasks in curves.items() for task, c in tasks.items() if len(c.seeds) < FEW}
    if few:
        least = min(few.values())
        found.append(f"few seeds: as few as {least} ({next(k[0] for k, n in few.items() if n == least)}); intervals are not to be trusted")
    for status, text in (("crashed", "has crashed"), ("running", "is still running"), ("stopped", "was stopped before its end")):
        found += [f"{source.name} {text}" for source in sources if source.status == status]
    for task in dict.fromkeys(task for tasks in curves.values() for task in tasks):
        ends = {label: int(tasks[task].steps[-1]) for label, tasks in curves.items() if task in tasks}
        if len(set(ends.values())) > 1:
            found.append(f"unequal steps on {task}: " + ", ".join(f"{label} {end:,}" for label, end in ends.items()))
    everywhere = [set(tasks) for tasks in curves.values()]
    if any(tasks != everywhere[0] for tasks in everywhere):
        found.append("methods are not on the same tasks: aggregates over tasks do not compare like with like")
    for task in dict.fromkeys(source.task for source in sources):
        ids = {str(source.config["env"]) for source in sources if source.task == task and source.config}
        if len(ids) > 1:
            found.append(f"different environments go by the name {task}: {', '.join(sorted(ids))}")
    if not unit and curves:
        found.append(
            "tasks are measured in different units, so nothing is aggregated over them; --baseline LABEL would make them comparable"
        )
    return found


def _doubts(curves: dict[str, dict[str, Curve]], baseline: str) -> list[str]:
    """Where scores relative to a baseline say little, and where an aggregate along training must end early."""
    found = []
    for task, curve in curves.get(baseline, {}).items():
        last = curve.values[:, -1]
        if task not in references() and last.min() < 0 < last.max():
            found.append(f"agents of {baseline} end on both sides of 0 on {task}: scores relative to their mean say little")
    for label, tasks in curves.items():
        ends = [int(curve.steps[-1]) for curve in tasks.values()]
        if max(ends) > min(ends):
            found.append(
                f"{label} has gone {min(ends):,} to {max(ends):,} steps on different tasks: its curve over all of them ends at the least"
            )
    return found
