"""Methods on tasks, with many seeds: what the experiments with run directories have in common.

Every (method, task) is a run directory with one agent per seed, under `--runs`. A second call finds what is there and goes on from it, and
experiments share the runs they have in common. What the runs say is read, compared and drawn as by `iterq report`; what an experiment
adds is which methods and tasks belong together, and what is claimed of them (claims.py).
"""

import dataclasses
from pathlib import Path
from typing import Any, ClassVar

from iterq.apart import rate_apart
from iterq.config import Seeds
from iterq.errors import require
from iterq.kept import finished, place_of, train
from iterq.options import among
from iterq.presets import PRESETS, configure
from iterq.rates import say_hours, steps_per_second
from iterq.report.compare import Comparison, comparison
from iterq.report.findings import Beside
from iterq.report.published import published
from iterq.report.scores import RETURN, read_run
from iterq.reproduce.base import Quantity, Result, Stopwatch
from iterq.reproduce.claims import Claim, Level, Marks, judge

PROTOCOL = ("epoch", "eval_episodes", "preset", "learning_starts", "epsilon_decay", "buffer_size", "batch_size")  # of what is judged
OURS = "The paper does not name these tasks; they are ours."


@dataclasses.dataclass(frozen=True)
class Config:
    """How much of an experiment is run; the defaults are those of the scale."""

    only: str = ""
    """Tasks or games, as A,B; empty: those of the experiment."""
    at_most: int = 0
    """Only the first so many of them; 0: all."""
    methods: str = ""
    """Methods, as A,B; empty: those of the experiment."""
    seeds: Seeds = (0, 1, 2, 3, 4)
    """Agents of each method on each task."""
    total_timesteps: int = 0
    """Steps of every agent. Atari's end by epochs instead."""
    epochs: int = 0
    """Epochs of every Atari agent, each at least --epoch steps long and to the end of an episode."""
    epoch: int = 10_000
    """Steps between two points of a curve, and between two evaluations."""
    eval_episodes: int = 10
    """Episodes of an evaluation; Atari has none."""
    preset: str = "paper"
    """Hyperparameters."""
    learning_starts: int = 20_000
    """Steps of random actions before the first gradient step."""
    epsilon_decay: int = 20_000
    """Steps over which random actions become rare, where actions are discrete."""
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
    runs: Path = Path("runs")
    """Where run directories are kept, and found again."""

    def __post_init__(self) -> None:
        require(self.preset in PRESETS, f"unknown preset {self.preset!r}; known: {', '.join(PRESETS)}")
        require(
            min(self.epoch, self.at_once, self.processes, self.eval_episodes) >= 1 and self.at_most >= 0,
            "--epoch, --at-once, --processes and --eval-episodes must be at least 1, --at-most at least 0",
        )
        require(
            min(self.epochs, self.total_timesteps) == 0 < max(self.epochs, self.total_timesteps),
            "either --epochs (Atari) or --total-timesteps (others) must be at least 1, and the other is not given",
        )

    @property
    def length(self) -> dict[str, int]:
        """The fields of a training configuration that say when a run ends."""
        return {"epochs": self.epochs, "epoch_steps": self.epoch} if self.epochs else {"total_timesteps": self.total_timesteps}

    @property
    def steps(self) -> int:
        """What a run takes, at least."""
        return self.epochs * self.epoch or self.total_timesteps


@dataclasses.dataclass(frozen=True)
class Experiment:
    """What `iterq reproduce` runs by a name."""

    name: str
    methods: dict[str, str]  # label: algorithm or variant, with @PRESET if it has its own
    tasks: tuple[str, ...]
    claims: tuple[Claim | Level, ...] = ()
    marks: Marks = dataclasses.field(default_factory=dict)
    metrics: tuple[str, ...] = (RETURN,)  # what is drawn; claims are about the first
    note: str = ""
    others: tuple[str, ...] = ()  # methods that others have run, to be drawn along
    Config: ClassVar[Any] = Config
    SCALES: ClassVar[dict[str, dict[str, Any]]] = {}
    env: ClassVar[str] = "{}"  # the id of a task
    rate_on: ClassVar[str] = ""  # the task that speed is measured on; empty: the first
    baseline: ClassVar[str] = ""  # the method whose last scores others are compared with, if there is one

    # What differs between families of tasks

    def named(self, name: str) -> str:
        """The task that a user means; refused if there is none."""
        return among(name, self.tasks, "task")

    def fields(self, config: Any) -> dict[str, Any]:
        """More fields of a training configuration."""
        return {"eval_every": config.epoch, "eval_episodes": config.eval_episodes, "log_every": config.epoch}

    def beside(self, tasks: tuple[str, ...]) -> dict[str, Beside]:
        """What others have published, to be drawn along."""
        return {
            f"{agent} (Dopamine)": {task: (c.steps, c.values[0]) for task in tasks for c in [published(agent, task).curve]}
            for agent in self.others
        }

    # What is the same

    def run(self, config: Any, folder: Path) -> Result:
        """Say what it costs, train, draw and judge."""
        from iterq.report.command import fill

        tasks, labels, watch, full = self.chosen(config), self.labels(config), Stopwatch(), self.Config(**self.SCALES["paper"])
        runs = {(label, task): self.run_of(label, config, task) for label in labels for task in tasks}
        with watch("estimate"):
            measured = rate_apart if config.processes > 1 else steps_per_second
            asked = labels if config.estimate and not all(finished(*run) for run in runs.values()) else []
            rates = {label: measured(self.settings(label, config, self.rate_on or tasks[0])) for label in asked}
        whole = all(
            (
                *(config.steps >= full.steps, len(config.seeds) >= len(full.seeds)),
                *(len(labels) == len(self.methods), set(tasks) == set(self.tasks)),
                *(getattr(config, name) == getattr(full, name) for name in PROTOCOL),
                # Runs that are found again were evaluated as they recorded, which may not be as it is asked now.
                *(getattr(found, name) == x for _, found in runs.values() for name, x in self.fields(config).items() if "eval" in name),
            )
        )
        if rates:
            say_hours(f"{self.name} at full scale", rates, len(self.tasks), full)
            say_hours(f"{self.name} at this scale", rates, len(tasks), config)
        with watch("training"):
            train(dict(runs.values()), config.at_once, config.processes)
        title = f"{', '.join(tasks)}; {len(config.seeds)} seeds, {config.steps:,} steps, a point every {config.epoch:,}"
        compared = {metric: self.compared(runs, metric, config) for metric in self.metrics}
        marks = {label: [steps for _, steps in found] for label, found in self.marks.items()}
        tables = []
        for metric, c in compared.items():
            place = folder if metric == self.metrics[0] else folder / metric.replace("/", "-")
            place.mkdir(exist_ok=True)
            beside = self.beside(tasks) if metric == RETURN else {}
            with watch("figures"):
                summary = fill(c, place, f"{self.name}: {title}", marks, beside)["summary"] if c.curves else []
            tables.append(self.table(c, summary, f"{metric}: {title}"))
        c = compared[self.metrics[0]]
        notes = [note for note in dict.fromkeys((self.note, *(w for found in compared.values() for w in found.warnings))) if note]
        notes += [
            f"{label} ends at {c.curves[label][task].steps[-1]:,} steps on {task}, before the mark at {steps:,}"
            for label, found in marks.items()
            for steps in found
            for task in c.curves.get(label, ())
            if c.curves[label][task].steps[-1] < steps
        ]
        if not whole:
            scale = f"{len(self.tasks)} tasks, {len(full.seeds)} seeds, {full.steps:,} steps"
            notes.append(f"Judged at full scale only: {scale}, with the settings of --scale paper, in the runs as well.")
        described = {**dataclasses.asdict(config), "tasks": list(tasks)}
        return Result(self.name, described, self.judged(c, whole), notes, tables, watch.seconds)

    def chosen(self, config: Any) -> tuple[str, ...]:
        """The tasks that are run."""
        names = [name.strip() for name in config.only.split(",")] if config.only else self.tasks
        return tuple(self.named(name) for name in names)[: config.at_most or None]

    def labels(self, config: Any) -> list[str]:
        """The methods that are run, in the experiment's order."""
        asked = {among(name.strip(), self.methods, "method") for name in config.methods.split(",")} if config.methods else self.methods
        require(not self.baseline or self.baseline in asked, f"--methods must name {self.baseline}, too: scores are relative to its")
        return [label for label in self.methods if label in asked]

    def settings(self, label: str, config: Any, task: str) -> Any:
        """The training configuration of a method on a task."""
        algorithm, _, preset = self.methods[label].partition("@")
        given = {name: getattr(config, name) for name in ("learning_starts", "buffer_size", "batch_size", "seeds")}
        fields = given | config.length | self.fields(config)
        return configure(algorithm, preset or config.preset, env=self.env.format(task), checkpoint_every=250_000, **fields)

    def run_of(self, label: str, config: Any, task: str) -> tuple[Path, Any]:
        """The run directory of a method on a task, and its configuration."""
        settings = self.settings(label, config, task)
        return place_of(config.runs, f"{settings.algorithm}-{task}", settings)

    def compared(self, runs: dict[tuple[str, str], tuple[Path, Any]], metric: str, config: Any) -> Comparison:
        """What the runs say of a metric."""
        sources = [read_run(folder, metric)._replace(label=label, task=task) for (label, task), (folder, _) in runs.items()]
        warnings = [f"{source.name}: {text}" for source in sources for text in source.warnings]
        # A fleet runs until its last agent arrives; what others have beyond the end does not count.
        return comparison(sources, metric, self.baseline, config.epoch, warnings, config.steps // config.epoch)

    def table(self, c: Comparison, summary: list[dict[str, Any]], title: str) -> tuple[str, tuple[str, ...], list[tuple[str, ...]]]:
        """A line for every method: its speed and its last points."""
        rows = []
        for row in summary:
            curves, found = c.curves[row["label"]].values(), row["iqm"]
            rates = [len(curve.seeds) * curve.steps[-1] / curve.seconds[-1] for curve in curves]
            last = ("–", "–") if found is None else (f"{found['value']:.3f}", f"{found['low']:.3f} to {found['high']:.3f}")
            speed, points = sum(rates) / len(rates), str(min(len(curve.steps) for curve in curves))
            rows.append((row["label"], f"{speed:,.0f}" if speed > 0 else "–", points, *last))
        return title, ("method", "steps/s", "points", f"IQM, {c.unit or c.metric}", "95 % interval"), rows

    def judged(self, c: Comparison, whole: bool) -> list[Quantity]:
        """What is claimed, and what the runs say of it."""
        return [judge(claim, c, self.marks, whole) for claim in self.claims]
