"""The figures of the paper's small experiments: PNG and PDF, readable at column width, in grey and by the colour-blind."""

from collections.abc import Mapping
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
            for label, point, marker, size, fill, beside in (
                ("$Q^*$", best, "*", 11, "black", (6, 5)),
                ("$Q_0$", start, "o", 6, "black", (6, 5)),
                (r"$\Gamma^*Q_0$", updated, "X", 7, "black", (6, 5)),
                (r"$\Pi\Gamma^*Q_0$", projected, "o", 6, "none", (-34, -14)),
            ):
                axis.plot(*point, marker, mfc=fill, color="black", ms=size)
                axis.annotate(label, point, xytext=beside, textcoords="offset points")
            title = name if path.shape[1] == 1 else f"{name}, K = {path.shape[1]}"
            axis.set(title=title, xlabel="$M$, the coefficient of $a^2$")
        axes[0].legend(loc="lower right")
        low = np.min([best, start, updated, *(p.min((0, 1)) for p in paths.values())], axis=0)
        axes[0].set(ylabel="$G$, the coefficient of $s^2$", xlim=(low[0] - 0.08, -0.3), ylim=(low[1] - 0.08, -0.1))
        save(figure, folder, "lqr")


def draw_car_on_hill(folder: Path, losses: Mapping[str, Mapping[int, np.ndarray]], errors: Mapping[int, np.ndarray]) -> None:
    """Performance loss per Bellman iteration under each ρ, and the sum of approximation errors.

    losses: ρ -> K -> (S, N); errors: K -> (S, N). Lines are means over seeds, bands their standard errors; solid while the window
    shifts, dotted for the members of the last window.
    """
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
            axis.set(title=rf"$\rho$: {weighting}", xlabel="Bellman iteration $k$", ylim=(0, None))
        axes[0].set_ylabel(r"performance loss $\|Q^* - Q^{\pi_k}\|_{1,\rho}$")
        axes[0].legend()
        sums, colours = [e.sum(1) for e in errors.values()], [PALETTE[i % 6] for i in range(len(errors))]
        drawn = axes[2].bar(
            [str(K) for K in errors], [s.mean() for s in sums], yerr=[s.std() / np.sqrt(len(s)) for s in sums], color=colours, capsize=2
        )
        axes[2].bar_label(drawn, fmt="%.2f", label_type="center", color="white", fontsize=8)
        axes[2].set(title=r"$\Sigma_k\, \|\Gamma^*Q_{k-1} - Q_k\|_{2,\nu}^2$", xlabel="K")
        axes[2].grid(axis="x", visible=False)
        figure.tight_layout()
        save(figure, folder, "car_on_hill")
