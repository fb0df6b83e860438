"""Methods compared on tasks: curves of all agents on common points, made comparable between tasks. See `findings.py` for what they say."""

from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import NamedTuple

import numpy as np

from iterq.errors import Refusal
from iterq.games import references
from iterq.report.foreign import is_foreign, read_foreign
from iterq.report.labels import labelled
from iterq.report.scores import EPOCH, EVALUATION, RETURN, Source, normaliser, point_width, read_run, runs_in
from iterq.report.scores import curve as on_points

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
        runs = runs_in(path) if path.is_dir() else []
        files = [] if runs else [path] if is_foreign(path) else sorted(filter(is_foreign, path.rglob("*")))
        if not runs and not files:
            raise Refusal(f"{path} holds no run of iterq, and nothing else that a report can be made from")
        sources += [read_run(run, metric) for run in runs] + [x for file in files for x in read_foreign(file, metric)]
    return sources, [f"{source.name}: {text}" for source in sources for text in source.warnings]


def compare(paths: Sequence[Path], metric: str = RETURN, baseline: str = "", group: tuple[str, ...] = (), epoch: int = 0) -> Comparison:
    """Read everything at `paths`. epoch: steps between points; 0: 250 000 for Atari, else a round number, see `point_width`."""
    sources, warnings = collected(paths, metric)
    return comparison(labelled(sources, group), metric, baseline, epoch, warnings)


def comparison(
    sources: list[Source], metric: str, baseline: str = "", epoch: int = 0, warnings: Sequence[str] = (), points: int | None = None
) -> Comparison:
    """Methods by the labels of `sources`, on the tasks that these name. points: how many of an agent's first ones count; None: all."""
    warnings = list(warnings)
    steps = [log.steps for source in sources for log in source.logs if log.steps.size]
    longest = max((float(x[-1]) for x in steps), default=0)
    apart = max((float(np.median(np.diff(x))) for x in steps if len(x) > 1), default=0)
    by_epochs = all(source.task in references() for source in sources) and (epoch > 0 or longest >= EPOCH)
    width = epoch or (EPOCH if by_epochs else point_width(longest, apart))
    curves: dict[str, dict[str, Curve]] = {}
    for label, task in dict.fromkeys((source.label, source.task) for source in sources):
        found = _curve([s for s in sources if (s.label, s.task) == (label, task)], metric, width, by_epochs, warnings, points)
        if found:
            curves.setdefault(label, {})[task] = found
        else:
            warnings.append(f"{label} on {task} has no point yet: a point needs {width:,} steps")
    if curves and baseline and baseline not in curves:
        raise Refusal(f"--baseline {baseline!r} is none of {', '.join(map(repr, curves))}")
    unit, normalised = _comparable(curves, baseline, metric)
    warnings += _doubts(curves, sources, unit, baseline)
    return Comparison(metric, unit, curves, normalised, sources, baseline, warnings)


def _curve(sources: list[Source], metric: str, width: int, by_epochs: bool, warnings: list[str], points: int | None) -> Curve | None:
    agents: dict[str, tuple[np.ndarray, np.ndarray]] = {}  # values and seconds
    for source in sources:
        for log in source.logs:
            name = log.seed
            while name in agents:
                name += "'"
            if name != log.seed:
                warnings.append(
                    f"{source.label} on {source.task} has several agents with seed {log.seed}: they are taken for different ones"
                )
            # What comes from elsewhere is at its points already.
            values, seconds = on_points(log, metric if source.status != "given" else "", width, by_epochs)
            agents[name] = values[:points], seconds[:points]
            if not len(agents[name][0]) and source.status != "running":
                warnings.append(f"seed {log.seed} of {source.name} has no point and is left out")
    agents = {name: found for name, found in agents.items() if len(found[0])}
    if not agents:
        return None
    lengths = [len(values) for values, _ in agents.values()]
    least, most = min(lengths), max(lengths)
    if most > 1.1 * least + 1:  # of agents that have gone equally far, those with shorter episodes have more resets
        far = f"unequally far: {least * width:,} to {most * width:,} steps; the least counts"
        warnings.append(f"agents of {sources[0].label} on {sources[0].task} have gone {far}")
    values, seconds = (np.array([found[i][:least] for found in agents.values()]) for i in range(2))
    start = np.isnan(values).any(0).sum()  # before the first episodes have ended
    steps = width * np.arange(start + 1, least + 1)
    return Curve(steps, values[:, start:], list(agents), seconds.mean(0)[start:]) if len(steps) else None


def _comparable(curves: dict[str, dict[str, Curve]], baseline: str, metric: str) -> tuple[str, dict[str, dict[str, np.ndarray]]]:
    tasks = {task for found in curves.values() for task in found}
    finals = {task: curve.values[:, -1] for task, curve in curves.get(baseline, {}).items()}
    units = {task: normaliser(task, finals.get(task)) for task in tasks}
    if metric in (RETURN, EVALUATION) and tasks and all(units.values()):
        unit = "human-normalised return" if tasks <= references().keys() else f"return relative to the final one of {baseline}"
    elif len(tasks) == 1:
        unit, units = metric, dict.fromkeys(tasks, lambda x: x)
    else:
        return "", {}
    return unit, {label: {task: units[task](curve.values) for task, curve in found.items()} for label, found in curves.items()}  # pyright: ignore[reportOptionalCall]


def _doubts(curves: dict[str, dict[str, Curve]], sources: list[Source], unit: str, baseline: str) -> list[str]:
    """What a careful reader would ask."""
    sizes = [(label, len(curve.seeds)) for label, tasks in curves.items() for curve in tasks.values()]
    of, fewest = min(sizes, key=lambda size: size[1], default=("", FEW))
    steps = {label: {task: int(curve.steps[-1]) for task, curve in tasks.items()} for label, tasks in curves.items()}
    ends = {task: {label: x[task] for label, x in steps.items() if task in x} for found in steps.values() for task in found}
    ids = {source.task: {str(s.config["env"]) for s in sources if s.task == source.task and s.config} for source in sources}
    scales = {task: curve.values[:, -1] for task, curve in curves.get(baseline, {}).items() if task not in references()}
    statuses = {"crashed": "has crashed", "running": "is still running", "stopped": "was stopped before its end"}
    doubts = [
        (fewest < FEW, f"few seeds: as few as {fewest} ({of}); intervals are not to be trusted"),
        *((source.status == status, f"{source.name} {text}") for status, text in statuses.items() for source in sources),
        *(
            (len(set(x.values())) > 1, f"unequal steps on {task}: {', '.join(f'{label} {end:,}' for label, end in x.items())}")
            for task, x in ends.items()
        ),
        (
            len({frozenset(tasks) for tasks in curves.values()}) > 1,
            "methods are not on the same tasks: aggregates over tasks do not compare like with like",
        ),
        *((len(x) > 1, f"different environments go by the name {task}: {', '.join(sorted(x))}") for task, x in ids.items()),
        (
            bool(curves) and not unit,
            "tasks are measured in different units, so nothing is aggregated over them; --baseline LABEL would make them comparable",
        ),
        *(
            (x.min() < 0 < x.max(), f"agents of {baseline} end on both sides of 0 on {task}: scores relative to their mean say little")
            for task, x in scales.items()
        ),
        *(
            (
                min(x.values()) < max(x.values()),
                f"{label} has gone {min(x.values()):,} to {max(x.values()):,} steps on different tasks: "
                "its curve over all of them ends at the least",
            )
            for label, x in steps.items()
        ),
    ]
    return [text for holds, text in doubts if holds]
