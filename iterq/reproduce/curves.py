"""i-DQN against DQN on one environment: the evaluation return along training, with the preset `classic` for both.

The paper has no such figures; its authors' repository ships Lunar Lander as the small example. So the bands are ours.
"""

import dataclasses
from pathlib import Path

import numpy as np

from iterq.api import make
from iterq.config import Seeds, WindowSizes
from iterq.errors import Refusal
from iterq.report.stats import area, estimate
from iterq.reproduce.base import Result, Stopwatch, write_csv


@dataclasses.dataclass(frozen=True)
class Config:
    """Both methods on one environment."""

    K: WindowSizes = (1, 5)
    """Window sizes; 1 is DQN."""
    seeds: Seeds = (0, 1, 2, 3, 4)
    """Agents of each window size."""
    total_timesteps: int = 200_000
    """Steps of every agent."""
    eval_every: int = 10_000
    """Steps between two evaluations."""
    eval_episodes: int = 10
    """Episodes of an evaluation."""

    def __post_init__(self) -> None:
        if min(self.K) < 1:
            raise Refusal(f"--K: window sizes are at least 1, got {min(self.K)}")
        if self.eval_every < 1 or self.total_timesteps < self.eval_every:
            raise Refusal("--eval-every must be at least 1 and at most --total-timesteps")
        if self.eval_episodes < 1:
            raise Refusal(f"--eval-episodes must be at least 1, got {self.eval_episodes}")


@dataclasses.dataclass
class Curves:
    """Evaluations of every window size."""

    steps: np.ndarray  # (evaluations,)
    returns: dict[int, np.ndarray]  # K: (seeds, evaluations), mean returns
    result: Result  # without quantities

    def areas(self, K: int) -> np.ndarray:
        """(seeds,) the area under the curve, as a mean return."""
        return area(self.steps, self.returns[K])


def train(experiment: str, env: str, config: Config, folder: Path) -> Curves:
    """Train every window size, write and draw the curves."""
    from iterq.report.figures import draw_panels

    watch, returns, rows, table, steps = Stopwatch(), {}, [], [], np.zeros(0)
    for K in config.K:
        with watch(f"K = {K}"):
            fields = {"eval_every": config.eval_every, "eval_episodes": config.eval_episodes, "seeds": config.seeds}
            model = make("i-dqn", env, K=K, checkpoint_every=0, **fields)
            try:
                model.learn(config.total_timesteps, progress_bar=True)
            finally:
                model.close()
        assert model.session
        assert model.summary
        if not model.summary.finished:
            raise KeyboardInterrupt
        steps = np.array([n for n, _ in model.session.history])
        lines = returns[K] = np.array([[np.mean(e.returns) for e in played] for _, played in model.session.history]).T
        for seed, line in zip(config.seeds, lines, strict=True):
            rows += [(K, seed, int(n), float(x)) for n, x in zip(steps, line, strict=True)]
        columns = (f"{x.mean():.0f} ± {x.std():.0f}" for x in (area(steps, lines), lines.max(1), lines[:, -1]))
        table.append([name(K), *columns, f"{model.summary.steps_per_second:,.0f}"])
    write_csv(folder / "evaluations.csv", ("K", "seed", "step", "mean_return"), rows)
    series = {name(K): (steps, estimate([lines])) for K, lines in returns.items()}
    draw_panels(folder, "curves", {f"{env}, {len(config.seeds)} seeds": series}, ["evaluation return, IQM"])
    header = ("method", "area under the curve", "best evaluation", "last evaluation", "steps/s")
    title = f"{env}, {len(config.seeds)} seeds, {config.total_timesteps:,} steps; mean ± standard deviation over seeds"
    return Curves(steps, returns, Result(experiment, dataclasses.asdict(config), [], [], [(title, header, table)], watch.seconds))


def name(K: int) -> str:
    return "DQN" if K == 1 else f"i-DQN, K = {K}"
