"""Figures of scores: PNG and PDF, readable at column width, in grey and by the colour-blind; and tables of what they show."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D

from iterq.report.stats import Estimate

STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "figure.dpi": 110,
    "savefig.dpi": 200,
}
PALETTE = ("#332288", "#0077bb", "#009988", "#ee7733", "#aa3377", "#bbbbbb")  # dark to light, distinct without colour by markers
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", "--", "-.", ":")

# From how many on steps are counted in what.
UNITS = ((2e6, 1e6, "steps, in millions"), (2e3, 1e3, "steps, in thousands"), (0, 1, "steps"))

Series = Mapping[str, tuple[np.ndarray, Estimate]]  # label: (points,) and what was found there


def save(figure: Any, folder: Path, name: str) -> None:
    for ending in ("png", "pdf"):
        figure.savefig(folder / f"{name}.{ending}", bbox_inches="tight")
    plt.close(figure)


def look(i: int) -> dict[str, Any]:
    """How the i-th method is drawn, the same in all panels."""
    return {"color": PALETTE[i % 6], "marker": MARKERS[i % 6], "ls": DASHES[i // 6 % 4], "lw": 1.6, "ms": 4}


def draw_panels(
    folder: Path,
    name: str,
    panels: Mapping[str, Series],
    heights: Sequence[str],
    across: str = "",
    marks: Mapping[str, Sequence[int]] | None = None,
) -> None:
    """Lines with bands: one panel per title.

    heights: their y labels; across: the x label, steps if it is empty; marks: steps to point out, which must be points of that curve.
    """
    labels = list(dict.fromkeys(label for series in panels.values() for label in series))
    largest = max((x.max(initial=0) for series in panels.values() for x, _ in series.values()), default=0)
    unit, across = (1, across) if across else next((unit, text) for least, unit, text in UNITS if largest >= least)
    columns = 2 if len(panels) == 4 else min(len(panels), 5 if len(panels) > 8 else 4 if len(panels) > 6 else 3)
    rows = -(-len(panels) // columns)
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(rows, columns, figsize=(max(3.1 * columns, 4.6), 2.5 * rows + 0.6), squeeze=False, layout="constrained")
        for axis in axes.flat[len(panels) :]:
            axis.axis("off")
        for axis, (title, series), height in zip(axes.flat, panels.items(), heights, strict=False):
            for label, (x, found) in series.items():
                style = look(labels.index(label))
                axis.plot(x / unit, found.value, markevery=max(1, len(x) // 8), label=label, **style)
                axis.fill_between(x / unit, found.low, found.high, color=style["color"], alpha=0.18, lw=0)
                pointed = np.flatnonzero(np.isin(x, (marks or {}).get(label, ())))
                axis.plot(x[pointed] / unit, found.value[pointed], "*", color="black", ms=11, zorder=5)
            axis.set(title=title, xlabel=across, ylabel=height)
        handles = [Line2D([], [], label=label, **look(i)) for i, label in enumerate(labels)]
        figure.legend(handles=handles, loc="outside upper center", ncols=min(len(labels), max(2, columns)))
        save(figure, folder, name)


def draw_summary(folder: Path, rows: Sequence[Mapping[str, Any]], unit: str) -> None:
    """Aggregates of the last points, with their intervals, one panel each."""
    names = {"iqm": "IQM", "median": "median", "mean": "mean", "optimality_gap": "optimality gap"}
    shown = [name for name in names if any(row[name] for row in rows)]
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(
            1, len(shown), figsize=(2.5 * len(shown) + 1, 0.32 * len(rows) + 1.1), squeeze=False, layout="constrained"
        )
        for axis, name in zip(axes[0], shown, strict=True):
            for i, row in enumerate(rows):
                if found := row[name]:
                    axis.barh(i, found["high"] - found["low"], left=found["low"], height=0.55, color=PALETTE[i % 6], alpha=0.45)
                    axis.plot([found["value"]] * 2, [i - 0.28, i + 0.28], color="black", lw=1.8)
            axis.use_sticky_edges = False  # the leftmost interval would touch the axis
            axis.locator_params(axis="x", nbins=4)
            methods = [row["label"] if axis is axes[0][0] else "" for row in rows]
            axis.set(title=names[name], yticks=range(len(rows)), yticklabels=methods, ylim=(len(rows) - 0.4, -0.6))
            axis.grid(axis="y", visible=False)
        figure.supxlabel(f"{unit}, last points, 95 % intervals", fontsize=9)
        save(figure, folder, "summary")
