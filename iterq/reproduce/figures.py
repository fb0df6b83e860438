"""The figures of the paper's small experiments: PNG and PDF, readable at column width, in grey and by the colour-blind."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from iterq.report.figures import MARKERS, PALETTE, STYLE, save


def draw_lqr(folder: Path, paths: Mapping[str, np.ndarray], best: Any, start: Any, updated: Any, projected: Any, bound: float) -> None:
    """One panel per method in the space (M, G); `paths` are (steps + 1, K, 2)."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, 2, figsize=(7.2, 3.3), sharex=True, sharey=True)
        for axis, (name, path) in zip(axes, paths.items(), strict=True):
            axis.axhspan(-bound, bound, color="#cfe8cf", lw=0, label=r"$\mathcal{Q}_\Theta$")
            axis.axhline(-bound, color="#6a9f6a", lw=0.8)
            axis.annotate("", updated, start, arrowprops={"arrowstyle": "->", "color": "#555555", "shrinkA": 4, "shrinkB": 4})
            axis.plot(*np.stack([updated, projected]).T, ":", color="#555555", lw=1.2)
            for k in range(path.shape[1]):
                axis.plot(*path[:, k].T, "-", color=PALETTE[k + 1], lw=1.6, marker=MARKERS[k + 1], markevery=[len(path) - 1], ms=6)
                axis.annotate(f"$Q_{k + 1}$", path[-1, k], xytext=(6, 6), textcoords="offset points", color=PALETTE[k + 1])
            points = (("$Q^*$", best, "*", 11), ("$Q_0$", start, "o", 6), (r"$\Gamma^*Q_0$", updated, "X", 7))
            for label, point, marker, size in points:
                axis.plot(*point, marker, color="black", ms=size)
                axis.annotate(label, point, xytext=(6, 5), textcoords="offset points")
            axis.plot(*projected, "o", mfc="none", color="black", ms=6)
            axis.annotate(r"$\Pi\Gamma^*Q_0$", projected, xytext=(-34, -14), textcoords="offset points")
            axis.set_title(name if path.shape[1] == 1 else f"{name}, K = {path.shape[1]}")
            axis.set_xlabel("$M$, the coefficient of $a^2$")
        axes[0].set_ylabel("$G$, the coefficient of $s^2$")
        axes[0].legend(loc="lower right")
        low = np.min([best, start, updated, *(p.min((0, 1)) for p in paths.values())], axis=0)
        axes[0].set_xlim(low[0] - 0.08, -0.3)
        axes[0].set_ylim(low[1] - 0.08, -0.1)
        save(figure, folder, "lqr")


def draw_car_on_hill(folder: Path, losses: Mapping[str, Mapping[int, np.ndarray]], errors: Mapping[int, np.ndarray]) -> None:
    """Performance loss per Bellman iteration under each ρ, and the sum of approximation errors.

    losses: ρ -> K -> (S, N); errors: K -> (S, N). Lines are means over seeds, bands their standard errors; solid while the window
    shifts, dotted for the members of the last window.
    """
    sizes = list(errors)
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, 3, figsize=(10.5, 3.3), width_ratios=(3, 3, 1.7))
        for axis, (weighting, by_size) in zip(axes, losses.items(), strict=False):
            for i, (K, loss) in enumerate(by_size.items()):
                mean, error = loss.mean(0), loss.std(0) / np.sqrt(len(loss))
                k, shifting = np.arange(1, len(mean) + 1), len(mean) - K + 1
                style = {"color": PALETTE[i % 6], "lw": 1.6}
                axis.plot(k[:shifting], mean[:shifting], "-", label=f"K = {K}", marker=MARKERS[i % 6], markevery=6, ms=4, **style)
                axis.plot(k[shifting - 1 :], mean[shifting - 1 :], ":", **style)
                axis.plot(k[shifting - 1], mean[shifting - 1], "o", mfc="white", ms=5, zorder=3, color=style["color"])
                axis.fill_between(k, mean - error, mean + error, color=style["color"], alpha=0.15, lw=0)
            axis.set_title(rf"$\rho$: {weighting}")
            axis.set_xlabel("Bellman iteration $k$")
            axis.set_ylim(bottom=0)
        axes[0].set_ylabel(r"performance loss $\|Q^* - Q^{\pi_k}\|_{1,\rho}$")
        axes[0].legend()
        sums = {K: e.sum(1) for K, e in errors.items()}
        bars(axes[2], sizes, [s.mean() for s in sums.values()], [s.std() / np.sqrt(len(s)) for s in sums.values()])
        figure.tight_layout()
        save(figure, folder, "car_on_hill")


def bars(axis: Any, sizes: Sequence[int], heights: Sequence[float], errors: Sequence[float]) -> None:
    """The sum of approximation errors per window size."""
    drawn = axis.bar([str(K) for K in sizes], heights, yerr=errors, color=[PALETTE[i % 6] for i in range(len(sizes))], capsize=2)
    axis.bar_label(drawn, fmt="%.2f", label_type="center", color="white", fontsize=8)
    axis.set_title(r"$\Sigma_k\, \|\Gamma^*Q_{k-1} - Q_k\|_{2,\nu}^2$")
    axis.set_xlabel("K")
    axis.grid(axis="x", visible=False)
