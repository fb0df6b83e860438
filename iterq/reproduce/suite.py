"""Methods on tasks, with many seeds: what the Atari and MuJoCo experiments of the paper have in common.

Every (method, task) is a run directory with one agent per seed, under `--runs`. A second call finds what is there and goes on from it, and
experiments share the runs they have in common. Scores are aggregated by the interquartile mean with 95 % stratified bootstrap intervals.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from iterq.apart import rate_apart
from iterq.config import Seeds
from iterq.errors import Refusal
from iterq.options import among
from iterq.presets import PRESETS, configure
from iterq.report.stats import Estimate, estimate
from iterq.reproduce.base import Quantity, Result, Stopwatch, write_csv
from iterq.reproduce.training import Points, finished, logged_rate, read_metric, say_hours, steps_per_second, train

OURS = "The paper does not name these tasks; they are ours."


@dataclasses.dataclass(frozen=True)
class Config:
    """How much of an experiment is run."""

    only: str = ""
    """Tasks or games, as A,B; empty: those of the experiment."""
    at_most: int = 0
    """Only the first so many of them; 0: all."""
    methods: str = ""
    """Methods, as A,B; empty: those of the experiment."""
    seeds: Seeds = (0, 1, 2, 3, 4)
    """Agents of each method on each task."""
    total_timesteps: int = 50_000_000
    """Steps of every agent."""
    epoch: int = 250_000
    """Steps between two points of a curve."""
    preset: str = "paper"
    """Hyperparameters."""
    learning_starts: int = 20_000
    """Steps of random actions before the first gradient step."""
    buffer_size: int = 1_000_000
    """Rows of the replay of an agent."""
    batch_size: int = 32
    """Transitions per gradient step."""
    at_once: int = 1
    """Runs, a method on a task each, that are trained side by side; their replays share the memory."""
    processes: int = 1
    """Processes that share them."""
    estimate: bool = True
    """First measure how long all this will take on this machine, and say so, if anything is to be trained."""
    runs: Path = Path("runs") / "suite"
    """Where run directories are kept, and found again."""

    def __post_init__(self) -> None:
        if self.preset not in PRESETS:
            raise Refusal(f"unknown preset {self.preset!r}; known: {', '.join(PRESETS)}")
        if min(self.epoch, self.at_once, self.processes, self.total_timesteps) < 1 or self.at_most < 0:
            raise Refusal("--epoch, --at-once, --processes and --total-timesteps must be at least 1, --at-most at least 0")


@dataclasses.dataclass(frozen=True)
class Curves:
    """What the runs of one method say, over the points that all of its agents have reached."""

    ends: np.ndarray  # (points,) steps
    scores: np.ndarray  # (seeds, tasks, points) mean returns, or whatever is drawn
    normalised: np.ndarray  # the same, comparable between tasks


@dataclasses.dataclass(frozen=True)
class Experiment:
    """What `iterq reproduce` runs by a name."""

    name: str
    methods: dict[str, str]  # label: algorithm or variant, with @PRESET if it has its own
    tasks: tuple[str, ...]
    claims: tuple[tuple[str, str], ...] = ()  # (label, label): the paper has the first ahead of the second at the end
    on_the_way: tuple[tuple[str, str], ...] = ()  # the same along training
    marks: dict[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)  # label: points that the paper points out
    drawn: str = ""  # a metric instead of the return
    note: str = ""
    paper: dict[str, float] = dataclasses.field(default_factory=dict)  # label: its final IQM
    Config: ClassVar[Any] = Config
    SCALES: ClassVar[dict[str, dict[str, Any]]] = {}
    unit: ClassVar[str] = ""  # of normalised scores
    rate_on: ClassVar[str] = ""  # the task that speed is measured on
    baseline: ClassVar[str] = ""  # the method whose scores others are compared with, if there is one

    # What differs between families of tasks

    def named(self, name: str) -> str:
        """The task that a user means; refused if there is none."""
        raise NotImplementedError

    def fields(self, config: Any) -> dict[str, Any]:
        """More fields of a training configuration."""
        return {}

    def env(self, task: str) -> str:
        """Its id."""
        return task

    def read(self, folder: Path, config: Any) -> Points:
        """The curve of every seed in a run directory."""
        raise NotImplementedError

    def normaliser(self, task: str, scores: dict[str, np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
        """What makes scores on `task` comparable; `scores` are the (seeds, points) of every method on it."""
        raise NotImplementedError

    # What is the same

    def run(self, config: Any, folder: Path) -> Result:
        """Say what it costs, train, draw and judge."""
        tasks, labels, watch, full = self.chosen(config), self.labels(config), Stopwatch(), self.Config(**self.SCALES["paper"])
        runs = {label: [self.run_of(label, config, task) for task in tasks] for label in labels}
        with watch("estimate"):
            measured = rate_apart if config.processes > 1 else steps_per_second
            all_done = all(finished(folder, config.total_timesteps) for of_tasks in runs.values() for folder, _ in of_tasks)
            asked = labels if config.estimate and not all_done else []
            rates = {label: measured(self.settings(label, config, self.rate_on)) for label in asked}
        whole = config.total_timesteps >= full.total_timesteps and len(config.seeds) >= len(full.seeds)
        whole = whole and set(tasks) == set(self.tasks) and len(labels) == len(self.methods)
        if rates:
            say_hours(f"{self.name} at full scale", rates, len(self.tasks), full)
            say_hours(f"{self.name} at this scale", rates, len(tasks), config)
        with watch("training"):
            found = self.trained(runs, config)
        curves = self.normalised(found, config, tasks)
        estimates = {label: estimate(list(np.moveaxis(curve.normalised, 1, 0))) for label, curve in curves.items() if curve.ends.size}
        self.write(folder, config, tasks, curves)
        self.draw(folder, tasks, curves, {} if self.drawn else estimates)
        notes = [self.note] if self.note else []
        if not whole:
            notes.append(f"Judged at full scale only: {len(self.tasks)} tasks, {len(full.seeds)} seeds, {full.total_timesteps:,} steps.")
        speeds = {label: np.mean([logged_rate(folder) for folder, _ in of_tasks]) for label, of_tasks in runs.items()}
        said = {label: f"{speed:,.0f}" if np.isfinite(speed) else "–" for label, speed in speeds.items()}
        table = [(label, said[label], str(curves[label].ends.size), *shown(estimates.get(label))) for label in labels]
        header = ("method", "steps/s", "points", f"IQM, {self.unit}", "95 % interval")
        title = f"{', '.join(tasks)}; {len(config.seeds)} seeds, {config.total_timesteps:,} steps, a point every {config.epoch:,}"
        described = {**dataclasses.asdict(config), "tasks": list(tasks), "runs": str(config.runs)}
        return Result(self.name, described, self.judged(estimates, whole), notes, [(title, header, table)], watch.seconds)

    def chosen(self, config: Any) -> tuple[str, ...]:
        """The tasks that are run."""
        names = [name.strip() for name in config.only.split(",")] if config.only else self.tasks
        return tuple(self.named(name) for name in names)[: config.at_most or None]

    def labels(self, config: Any) -> list[str]:
        """The methods that are run, in the experiment's order."""
        asked = {among(name.strip(), self.methods, "method") for name in config.methods.split(",")} if config.methods else self.methods
        if self.baseline and self.baseline not in asked:
            raise Refusal(f"--methods must name {self.baseline}, too: scores are relative to its")
        return [label for label in self.methods if label in asked]

    def settings(self, label: str, config: Any, task: str) -> Any:
        """The training configuration of a method on a task."""
        algorithm, _, preset = self.methods[label].partition("@")
        names = ("total_timesteps", "learning_starts", "buffer_size", "batch_size", "seeds")
        fields = {name: getattr(config, name) for name in names} | self.fields(config)
        # Nothing here may follow from how long a run is: it would not be found again when it is to go on.
        fields["checkpoint_every"] = 250_000
        return configure(algorithm, preset or config.preset, env=self.env(task), **fields)

    def trained(self, runs: dict[str, list[tuple[Path, Any]]], config: Any) -> dict[str, list[Points]]:
        """Train all methods on all tasks, or find that they have been: per method, the curves on every task."""
        train(dict(run for of_tasks in runs.values() for run in of_tasks), config.total_timesteps, config.at_once, config.processes)

        def read(folder: Path) -> Points:
            return read_metric(folder, config, self.drawn) if self.drawn else self.read(folder, config)

        return {label: [read(folder) for folder, _ in of_tasks] for label, of_tasks in runs.items()}

    def run_of(self, label: str, config: Any, task: str) -> tuple[Path, Any]:
        """The run directory of a method on a task, and its configuration."""
        from iterq.store import config_hash

        settings = self.settings(label, config, task)
        return config.runs / f"{settings.algorithm}-{task}-{config_hash(settings)[:8]}", settings

    def normalised(self, found: dict[str, list[Points]], config: Any, tasks: tuple[str, ...]) -> dict[str, Curves]:
        """The curves of every method, cut to the points that all of its agents have."""
        scores = {}
        for label, of_tasks in found.items():
            length = min(len(of_tasks[t][seed]) for t in range(len(tasks)) for seed in config.seeds)
            scores[label] = np.array([[of_tasks[t][seed][:length] for t in range(len(tasks))] for seed in config.seeds], float)
        comparable = {label: np.empty_like(x) for label, x in scores.items()}
        for t, task in enumerate(tasks):
            normalise = self.normaliser(task, {label: x[:, t] for label, x in scores.items()})
            for label, x in scores.items():
                comparable[label][:, t] = normalise(x[:, t])
        return {label: Curves(config.epoch * np.arange(1, x.shape[2] + 1), x, comparable[label]) for label, x in scores.items()}

    def write(self, folder: Path, config: Any, tasks: tuple[str, ...], curves: dict[str, Curves]) -> None:
        """What is drawn, as a table."""
        rows = [
            (label, task, seed, int(curve.ends[e]), float(curve.scores[s, t, e]), float(curve.normalised[s, t, e]))
            for label, curve in curves.items()
            for t, task in enumerate(tasks)
            for s, seed in enumerate(config.seeds)
            for e in range(curve.ends.size)
        ]
        write_csv(folder / "curves.csv", ("method", "task", "seed", "step", self.drawn or "mean_return", "normalised"), rows)

    def draw(self, folder: Path, tasks: tuple[str, ...], curves: dict[str, Curves], estimates: dict[str, Estimate]) -> None:
        """A panel with the aggregate over tasks, if there is one, and one per task: interquartile means over seeds with 95 % intervals."""
        from iterq.report.figures import draw_panels

        there = {label: curve for label, curve in curves.items() if curve.ends.size}
        over_tasks = {label: (there[label].ends, found) for label, found in estimates.items()}
        panels = {f"{len(tasks)} tasks": over_tasks} if len(tasks) > 1 and over_tasks else {}
        for t, task in enumerate(tasks):
            panels[task] = {label: (curve.ends, estimate([curve.scores[:, t]])) for label, curve in there.items()}
        heights = [f"IQM, {self.unit}"] * (len(panels) - len(tasks)) + [self.drawn or "mean return"] * len(tasks)
        draw_panels(folder, self.name, panels, heights, marks={label: [e - 1 for e in found] for label, found in self.marks.items()})

    def judged(self, estimates: dict[str, Estimate], whole: bool) -> list[Quantity]:
        """The last points, and what the paper claims of them and of the way to them."""
        if self.drawn:
            return []
        last = {label: float(found.value[-1]) for label, found in estimates.items()}
        quantities = [Quantity(f"{label}: IQM at the end", value, None, self.paper.get(label)) for label, value in last.items()]
        points = min((found.value.size for found in estimates.values()), default=0)
        along = {label: float(found.value[:points].mean()) for label, found in estimates.items()}
        for scores, claims, when in ((last, self.claims, "at the end"), (along, self.on_the_way, "mean along training")):
            for better, worse in claims:
                if better in scores and worse in scores:
                    gain = scores[better] - scores[worse]
                    quantities.append(Quantity(f"{better} minus {worse}, {when}", gain, None, None, "> 0", gain > 0 if whole else None))
        return quantities


def shown(found: Estimate | None) -> tuple[str, str]:
    """The last point of a curve, in words."""
    return ("–", "–") if found is None else (f"{found.value[-1]:.3f}", f"{found.low[-1]:.3f} to {found.high[-1]:.3f}")
