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
from iterq.report.compare import Comparison, Curve, compare
from iterq.report.findings import Beside, Findings, findings, hours, improvements, numbers, plain, summary, with_others
from iterq.report.labels import differing, shown
from iterq.report.scores import RETURN
from iterq.report.stats import Estimate, estimate, optimality_gap
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
        written = render(found, out, options["title"] or f"{', '.join(found.curves)} on {', '.join(found.tasks)}")
        tell(found, out, written, options["json"])
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
        files = sorted(path.name for path in folder.iterdir())
        kept = ("title", "metric", "unit", "labels", "tasks", "summary", "improvement", "warnings")
        result = {name: document[name] for name in kept} | {"files": [*files, "result.json"]}
        write_json(folder / "result.json", result)
    return result | {"out": str(out)}


def fill(
    c: Comparison, folder: Path, title: str, marks: Mapping[str, Sequence[int]] | None = None, beside: Mapping[str, Beside] | None = None
) -> dict[str, Any]:
    """Write figures, tables and the page of a comparison into `folder`; returns all that the page shows.

    marks: steps to point out, by method. beside: results of others to draw along.
    """
    from iterq.report import figures
    from iterq.report.page import page

    drawn = findings(c)
    curves, by_task, found = drawn
    document = described(c, title, drawn)
    over_tasks, on_tasks = with_others(c, drawn, beside or {})
    if over_tasks and len(c.tasks) > 1:
        figures.draw_panels(folder, "aggregate", {f"{len(c.tasks)} tasks": over_tasks}, [f"IQM, {c.unit}"], marks=marks)
    figures.draw_panels(folder, "tasks", on_tasks, [c.metric] * len(by_task), marks=marks)
    timed = {label: (x, found) for label, (_, found) in curves.items() if (x := hours(c, label)) is not None}
    if timed:
        where = f"{len(c.tasks)} tasks" if len(c.tasks) > 1 else c.tasks[0]
        figures.draw_panels(folder, "hours", {where: timed}, [f"IQM, {c.unit}"], "hours of training, all seeds of a run together")
        rows = [(label, *row) for label, (x, found) in timed.items() for row in zip(x, *found, strict=True)]
        write_csv(folder / "hours.csv", ("label", "hours", "value", "low", "high"), rows)
    if found:
        figures.draw_profile(folder, *found, c.unit)
        figures.draw_summary(folder, document["summary"], c.unit)
    if c.scaled:
        gaps = {label: (c.common(label)[0], estimate(c.common(label)[1], optimality_gap)) for label in curves}
        figures.draw_panels(folder, "optimality_gap", {"optimality gap": gaps}, ["1 minus the score, at most 1; less is better"])
    write_tables(c, folder, document)
    (folder / PAGE).write_text(page(document), encoding="utf-8")
    return document


def described(c: Comparison, title: str, drawn: Findings) -> dict[str, Any]:
    """All that the page shows, in plain values."""
    curves, by_task, found = drawn
    configs = {label: next((s.config for s in c.sources if s.label == label and s.config), {}) for label in c.curves}
    fields = differing([config for config in configs.values() if config])
    return {
        "title": title,
        "made": time.strftime("%Y-%m-%d %H:%M"),
        "metric": c.metric,
        "unit": c.unit or c.metric,
        "labels": list(c.curves),
        "tasks": c.tasks,
        "aggregate": {label: {"steps": plain(steps), **(numbers(e) or {})} for label, (steps, e) in curves.items()} or None,
        "curves": {label: {task: _plain_curve(x[task], by_task[task][label][1]) for task in x} for label, x in c.curves.items()},
        "profile": {"taus": plain(found[0]), "curves": {label: numbers(e) for label, e in found[1].items()}} if found else None,
        "summary": summary(c, curves),
        "baseline": c.baseline or None,
        "improvement": improvements(c),
        "final": list(finals(c)),
        "differences": {"fields": fields, "rows": {label: [shown(x.get(name)) for name in fields] for label, x in configs.items() if x}},
        "machines": [_machine(source) for source in c.sources],
        "warnings": c.warnings,
        "videos": list(_videos(c)),
    }


def _plain_curve(curve: Curve, found: Estimate) -> dict[str, Any]:
    return {"steps": plain(curve.steps), **(numbers(found) or {}), "seeds": dict(zip(curve.seeds, plain(curve.values), strict=True))}


def finals(c: Comparison) -> Iterable[dict[str, Any]]:
    """One row per agent: where it stands."""
    for label, tasks in c.curves.items():
        for task, curve in tasks.items():
            of = [source for source in c.sources if (source.label, source.task) == (label, task)]
            for i, seed in enumerate(curve.seeds):
                source = next((s for s in of if any(log.seed == seed for log in s.logs)), of[0])
                there = c.normalised.get(label, {}).get(task)
                row = {"label": label, "task": task, "seed": seed, "step": int(curve.steps[-1]), "value": plain(curve.values[i, -1])}
                yield row | {"normalised": None if there is None else plain(there[i, -1]), "status": source.status, "run": source.name}


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
            mime = {".gif": "image/gif", ".mp4": "video/mp4"}[path.suffix]
            yield {"label": source.label, "task": source.task, "mime": mime, "data": base64.b64encode(path.read_bytes()).decode()}


def write_tables(c: Comparison, folder: Path, document: dict[str, Any]) -> None:
    """What is drawn, as CSVs."""
    rows = [
        (label, task, seed, int(step), curve.values[i, p])
        for label, tasks in c.curves.items()
        for task, curve in tasks.items()
        for i, seed in enumerate(curve.seeds)
        for p, step in enumerate(curve.steps)
    ]
    write_csv(folder / "curves.csv", ("label", "task", "seed", "step", c.metric), rows)
    for name in ("aggregate", "profile"):
        found = document[name] or {}
        series = found.get("curves", found)
        across = {label: x.get("steps") or found["taus"] for label, x in series.items()}
        lines = [(label, *row) for label, x in series.items() for row in zip(across[label], x["value"], x["low"], x["high"], strict=True)]
        if lines:
            write_csv(folder / f"{name}.csv", ("label", "step" if name == "aggregate" else "score", "value", "low", "high"), lines)
    by_task = [
        (label, task, *row)
        for label, tasks in document["curves"].items()
        for task, x in tasks.items()
        for row in zip(x["steps"], x["value"], x["low"], x["high"], strict=True)
    ]
    write_csv(folder / "tasks.csv", ("label", "task", "step", "value", "low", "high"), by_task)
    write_csv(folder / "final.csv", tuple(document["final"][0]), [tuple(row.values()) for row in document["final"]])
