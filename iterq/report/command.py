"""`iterq report`: run directories to figures, tables and a page that anyone can open."""

import base64
import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from iterq.errors import Refusal
from iterq.report.compare import Comparison, compare
from iterq.report.findings import Beside, Curves, Findings, findings, hours, improvements, numbers, plain, summary, with_others
from iterq.report.labels import differing, shown
from iterq.report.page import page
from iterq.report.scores import RETURN
from iterq.report.stats import estimate, optimality_gap
from iterq.store import staged, write_csv, write_json

PAGE = "report.html"
HEAVY = 20_000_000  # bytes of videos that a page may hold
EVERY = 30.0  # seconds between two looks at runs that go on


def report(argv: list[str]) -> int:
    """`iterq report RUNS…`"""
    from iterq.options import several_cli

    known = {
        "out": (str, "report"),
        "metric": (str, RETURN),
        "baseline": (str, ""),
        "group": (str, ""),
        "epoch": (int, 0),
        "title": (str, ""),
        "watch": (bool, False),
    }
    options = several_cli("iterq report", argv, known, "RUNS")
    if options["epoch"] < 0:
        raise Refusal(f"--epoch must be positive, got {options['epoch']}")
    while True:
        found = compare(
            [Path(path) for path in options["RUNS"]],
            options["metric"],
            options["baseline"],
            tuple(name for name in options["group"].split(",") if name),
            options["epoch"],
        )
        if not found.curves:
            raise Refusal("there is nothing to report yet: " + "; ".join(found.warnings or ["no run has a point"]))
        out = Path(options["out"])
        title = options["title"] or f"{', '.join(found.curves)} on {', '.join(found.tasks)}"
        tell(found, out, render(found, out, title), options["json"])
        if not options["watch"] or not any(source.status == "running" for source in found.sources):
            return 0
        time.sleep(EVERY)


def tell(c: Comparison, out: Path, result: dict[str, Any], as_json: bool) -> None:
    """On the terminal."""
    if as_json:
        print(json.dumps(result, allow_nan=False), flush=True)
        return
    for warning in c.warnings:
        print(f"iterq: {warning}", file=sys.stderr)
    for row in result["summary"]:
        found = row["iqm"]
        said = f"IQM {found['value']:.3f} [{found['low']:.3f}, {found['high']:.3f}] {c.unit}" if found else "not aggregated"
        print(f"{row['label']}: {row['runs']} runs, {said}")
    print(f"{out / PAGE}", flush=True)


def render(c: Comparison, out: Path, title: str) -> dict[str, Any]:
    """Write the report; what was there before stays until it is whole. Returns what `result.json` holds."""
    with staged(out) as folder:
        document = fill(c, folder, title)
        kept = ("title", "metric", "unit", "labels", "tasks", "summary", "improvement", "warnings")
        files = [*sorted(path.name for path in folder.iterdir()), "result.json"]
        result = {name: document[name] for name in kept} | {"files": files}
        write_json(folder / "result.json", result)
    return result | {"out": str(out)}


def fill(
    c: Comparison, folder: Path, title: str, marks: Mapping[str, Sequence[int]] | None = None, beside: Mapping[str, Beside] | None = None
) -> dict[str, Any]:
    """Write figures, tables and the page of a comparison into `folder`; returns all that the page shows.

    marks: steps to point out, by method. beside: results of others to draw along.
    """
    from iterq.report import figures

    drawn = findings(c)
    document = described(c, title, drawn)
    over_tasks, by_task = with_others(c, drawn, beside or {})
    iqm, where = [f"IQM, {c.unit}"], f"{len(c.tasks)} tasks" if len(c.tasks) > 1 else c.tasks[0]
    timed = {label: (x, found) for label, (_, found) in drawn.over_tasks.items() if (x := hours(c, label)) is not None}
    gaps = {label: (steps, estimate(c.common(label)[1], optimality_gap)) for label, (steps, _) in drawn.over_tasks.items() if c.scaled}
    for name, panels, heights, across, pointed in (
        ("aggregate", {where: over_tasks if len(c.tasks) > 1 else {}}, iqm, "", marks),
        ("tasks", by_task, [c.metric] * len(by_task), "", marks),
        ("hours", {where: timed}, iqm, "hours of training, all seeds of a run together", None),
        ("profile", {"performance profile": drawn.profile}, ["fraction of runs above it"], c.unit, None),
        ("optimality_gap", {"optimality gap": gaps}, ["1 minus the score, at most 1; less is better"], "", None),
    ):
        if any(panels.values()):
            figures.draw_panels(folder, name, panels, heights, across, pointed)
    if drawn.profile:
        figures.draw_summary(folder, document["summary"], c.unit)
    write_tables(c, folder, drawn, timed)
    write_csv(folder / "final.csv", tuple(document["final"][0]), [tuple(row.values()) for row in document["final"]])
    (folder / PAGE).write_text(page(document), encoding="utf-8")
    return document


def described(c: Comparison, title: str, drawn: Findings) -> dict[str, Any]:
    """All that the page shows, in plain values."""
    curves, by_task, profile = drawn
    taus = next((x for x, _ in profile.values()), np.zeros(0))
    configs = {label: next((s.config for s in c.sources if s.label == label and s.config), {}) for label in c.curves}
    fields = differing([config for config in configs.values() if config])
    return {
        "title": title,
        "made": time.strftime("%Y-%m-%d %H:%M"),
        "metric": c.metric,
        "unit": c.unit or c.metric,
        "labels": list(c.curves),
        "tasks": c.tasks,
        "aggregate": {label: {"steps": plain(steps), **numbers(e)} for label, (steps, e) in curves.items()} or None,
        "curves": {
            label: {
                task: {
                    "steps": plain(curve.steps),
                    **numbers(by_task[task][label][1]),
                    "seeds": dict(zip(curve.seeds, plain(curve.values), strict=True)),
                }
                for task, curve in tasks.items()
            }
            for label, tasks in c.curves.items()
        },
        "profile": {"taus": plain(taus), "curves": {label: numbers(e) for label, (_, e) in profile.items()}} if profile else None,
        "summary": summary(c, curves),
        "baseline": c.baseline or None,
        "improvement": improvements(c),
        "final": list(finals(c)),
        "differences": {"fields": fields, "rows": {label: [shown(x.get(name)) for name in fields] for label, x in configs.items() if x}},
        "machines": [_machine(source) for source in c.sources],
        "warnings": c.warnings,
        "videos": list(_videos(c)),
    }


def finals(c: Comparison) -> Iterable[dict[str, Any]]:
    """One row per agent: where it stands."""
    for label, tasks in c.curves.items():
        for task, curve in tasks.items():
            of = [source for source in c.sources if (source.label, source.task) == (label, task)]
            there = c.normalised.get(label, {}).get(task)
            for i, seed in enumerate(curve.seeds):
                source = next((s for s in of if any(log.seed == seed for log in s.logs)), of[0])
                yield {
                    "label": label,
                    "task": task,
                    "seed": seed,
                    "step": int(curve.steps[-1]),
                    "value": plain(curve.values[i, -1]),
                    "normalised": None if there is None else plain(there[i, -1]),
                    "status": source.status,
                    "run": source.name,
                }


def _machine(source: Any) -> dict[str, Any]:
    reached = [log for log in source.logs if log.steps.size]
    seconds = [float(log.seconds[-1]) for log in reached if log.seconds is not None and np.isfinite(log.seconds[-1])]
    return {
        "run": source.name,
        "label": source.label,
        "seeds": ", ".join(log.seed for log in source.logs),
        "steps": int(max((log.steps[-1] for log in reached), default=0)),
        "hours": max(seconds) / 3600 if seconds else None,
        "status": source.status,
        "versions": {str(name): str(value) for name, value in source.versions.items()},
    }


def _videos(c: Comparison) -> Iterable[dict[str, str]]:
    left = HEAVY
    for source in c.sources:
        for path in source.videos:
            left -= path.stat().st_size
            if left < 0:
                c.warnings.append(f"{path} and what follows are too large for the page")
                return
            mime = "image/gif" if path.suffix == ".gif" else "video/mp4"
            yield {"label": source.label, "task": source.task, "mime": mime, "data": base64.b64encode(path.read_bytes()).decode()}


def write_tables(c: Comparison, folder: Path, drawn: Findings, timed: Curves) -> None:
    """What is drawn, as CSVs. timed: curves over all tasks, along hours."""
    on_tasks = [(label, task, curve) for label, tasks in c.curves.items() for task, curve in tasks.items()]
    ends = ("value", "low", "high")
    tables = {  # name: header, and columns by what they are of
        "curves": (
            ("label", "task", "seed", "step", c.metric),
            {
                (label, task, seed): (curve.steps.astype(int), values)
                for label, task, curve in on_tasks
                for seed, values in zip(curve.seeds, curve.values, strict=True)
            },
        ),
        "tasks": (
            ("label", "task", "step", *ends),
            {(label, task): (curve.steps.astype(float), *drawn.by_task[task][label][1]) for label, task, curve in on_tasks},
        ),
        "aggregate": (("label", "step", *ends), {(label,): (x.astype(float), *found) for label, (x, found) in drawn.over_tasks.items()}),
        "profile": (("label", "score", *ends), {(label,): (x, *found) for label, (x, found) in drawn.profile.items()}),
        "hours": (("label", "hours", *ends), {(label,): (x, *found) for label, (x, found) in timed.items()}),
    }
    for name, (header, columns) in tables.items():
        if columns:
            rows = [(*key, *row) for key, found in columns.items() for row in zip(*found, strict=True)]
            write_csv(folder / f"{name}.csv", header, rows)
