"""Section 5 of the paper: i-FQI on car-on-hill with windows of K Bellman updates.

Every K learns the same N = 40 Bellman updates in the same 20 000 gradient steps: smaller windows have to shift faster. Reported are the
performance loss of each iterate's greedy policy, the sum of the 40 approximation errors, and Table 1 on Proposition 4.1.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from iterq.config import Seeds, WindowSizes
from iterq.errors import require
from iterq.parallel import run_all
from iterq.progress import progress
from iterq.reproduce.base import Result, Stopwatch, write_csv

AUTHORS_SEEDS = (*range(11, 20), *range(110, 121))  # the paper's twenty; its Table 1 is the first of them


@dataclasses.dataclass(frozen=True)
class Config:
    """The car-on-hill experiment; the defaults are the paper's, where it is silent those of the authors' code."""

    K: WindowSizes = (1, 4, 7, 10, 20)
    """Window sizes to compare."""
    seeds: Seeds = AUTHORS_SEEDS
    """Seeds of initial networks (those of the authors' seed of that number) and minibatches; all learn from one data set."""
    N: int = 40
    """Bellman iterations."""
    steps: int = 20_000
    """Gradient steps of a run, spent in N - K + 1 windows of equal length."""
    samples: int = 50_000
    """Steps of the uniform policy in the data set."""
    horizon: int = 100
    """Longest episode, in data collection and evaluation."""
    gamma: float = 0.95
    """Discount factor (authors' code)."""
    hidden: int = 50
    """Neurons of the one hidden layer."""
    batch: int = 100
    """Minibatch size."""
    learning_rate: float = 1e-5
    """Of Adam (authors' code)."""
    points: int = 17
    """Grid points per axis of the evaluation grid."""

    def __post_init__(self) -> None:
        least = dict.fromkeys(("N", "steps", "samples", "horizon", "hidden", "batch"), 1) | {"points": 2}
        for name, value in least.items():
            require(getattr(self, name) >= value, f"--{name} must be at least {value}, got {getattr(self, name)}")
        for K in self.K:
            require(1 <= K <= self.N, f"--K: a window of {K} does not fit N = {self.N} Bellman iterations; K must lie in 1..{self.N}")
        require(self.steps >= self.N, f"--steps: {self.steps} gradient steps cannot hold N = {self.N} windows of at least one")
        require(0 <= self.gamma < 1, f"--gamma must lie in [0, 1), got {self.gamma}")
        require(self.learning_rate > 0, f"--learning-rate must be positive, got {self.learning_rate}")


SCALES: dict[str, dict[str, Any]] = {
    "smoke": {"K": (1, 4), "seeds": AUTHORS_SEEDS[:2], "N": 8, "steps": 1_200, "samples": 10_000},
    "default": {"seeds": AUTHORS_SEEDS[:2]},
    "paper": {},
}


def run(config: Config, folder: Path) -> Result:
    """Train every K on every seed, evaluate all iterates, and write figure, CSVs and table."""
    from iterq.envs import car_on_hill as env
    from iterq.networks import mlp, network
    from iterq.reproduce.car_on_hill import bands, data, on_rows, optimal, table, training
    from iterq.reproduce.figures import draw_car_on_hill

    watch = Stopwatch()
    with watch("data"):
        rows = data.collect(config.samples, config.horizon, config.gamma)
    with watch("optimal Q"):
        grid = data.grid(config.points)
        best = optimal.optimal_q(grid, config.gamma, config.horizon)
    rho = {"uniform": np.full(len(grid), 1 / len(grid)), "samples": data.sample_weights(rows, config.points)}
    net = network(mlp([config.hidden], env.ACTIONS))
    starts = [training.authors_start(config.hidden, seed) for seed in config.seeds]
    errors_of = on_rows.approximation_errors(rows, net, config.N)
    greedy_of = optimal.greedy_q(net, grid, config.gamma, config.horizon)

    def job(K: int, advance: Callable[[float], None]) -> dict[str, Any]:
        with watch("training and checks"):
            trained = training.train(rows, K, config, net, starts, lambda: advance(K * work / (config.N - K + 1)))
        with watch("evaluation"):
            errors, greedy = errors_of(trained.iterates), greedy_of(trained.policies())
        gap = np.abs(best - greedy).mean(-1).reshape(len(config.seeds), config.N, len(grid))  # mean over actions
        return {
            "errors": errors,
            "loss": {name: gap @ weight for name, weight in rho.items()},
            "rows": table.table(trained.checks, config.gamma),
        }

    work = config.steps * len(config.seeds)
    # The largest windows first: with two cores they take as long as all others together.
    with progress("car-on-hill", sum(config.K) * work, "gradient steps of a network") as advance:
        jobs = {K: (lambda K=K: job(K, advance)) for K in sorted(config.K, reverse=True)}
        done = dict(sorted(run_all(jobs).items()))

    with watch("figure"):
        losses = {name: {K: d["loss"][name] for K, d in done.items()} for name in rho}
        draw_car_on_hill(folder, losses, {K: d["errors"] for K, d in done.items()})
    curves = (
        (K, seed, k + 1, "shifting" if k <= config.N - K else "last window", *(float(x[s, k]) for x in (*d["loss"].values(), d["errors"])))
        for K, d in done.items()
        for s, seed in enumerate(config.seeds)
        for k in range(config.N)
    )
    header = ("K", "seed", "iteration", "phase", *(f"performance_loss_{name}" for name in rho), "approximation_error")
    write_csv(folder / "iterations.csv", header, curves)
    per_seed = ((K, seed, *(float(x[s]) for x in d["rows"])) for K, d in done.items() for s, seed in enumerate(config.seeds))
    write_csv(folder / "table1.csv", ("K", "seed", *table.Rows._fields), per_seed)
    return bands.judge(config, done, watch.seconds)
