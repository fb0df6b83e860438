"""The Atari experiments of the paper: which methods on which games, for how long, and what is drawn.

Every (method, game) is a run directory with one agent per seed, under `--runs`. A second call finds what is there and goes on from it, and
experiments share the runs they have in common. Scores are those of the paper: mean returns of the training episodes of an epoch,
human-normalised, aggregated by the interquartile mean with 95 % stratified bootstrap intervals.

Where the paper does not name the games of an ablation (it says that they were drawn at random), they are ours.
"""

import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from iterq.config import Seeds
from iterq.epochs import read_epochs
from iterq.errors import Refusal
from iterq.games import game_of, human_normalised, references
from iterq.presets import NAMED, PRESETS, configure
from iterq.report.stats import Estimate, stratified_iqm
from iterq.reproduce.base import Quantity, Result, Stopwatch, write_csv

FULL = {"total_timesteps": 50_000_000, "seeds": (0, 1, 2, 3, 4)}
TWENTY = tuple(game for game, found in references().items() if found.in_paper)
THREE = ("Asteroids", "Asterix", "Qbert")  # of the window sizes; elsewhere our choice
SPREAD = "iqn/head_std"


@dataclasses.dataclass(frozen=True)
class Config:
    """How much of an experiment is run."""

    games: str = ""
    """Games, as A,B; empty: those of the experiment."""
    at_most: int = 0
    """Only the first so many of the games; 0: all."""
    seeds: Seeds = FULL["seeds"]
    """Agents of each method on each game."""
    total_timesteps: int = FULL["total_timesteps"]
    """Steps of every agent; 200 epochs in the paper."""
    epoch: int = 250_000
    """Steps of an epoch, the unit of the curves."""
    preset: str = "paper"
    """Hyperparameters: paper, or published for those of the published runs."""
    learning_starts: int = 20_000
    """Steps of random actions before the first gradient step."""
    epsilon_decay: int = 250_000
    """Steps over which random actions become rare."""
    buffer_size: int = 1_000_000
    """Rows of the replay of an agent."""
    batch_size: int = 32
    """Transitions per gradient step."""
    at_once: int = 1
    """Games that are trained side by side; their replays share the memory."""
    runs: Path = Path("runs") / "atari"
    """Where run directories are kept, and found again."""

    def __post_init__(self) -> None:
        if self.preset not in PRESETS:
            raise Refusal(f"unknown preset {self.preset!r}; known: {', '.join(PRESETS)}")
        if min(self.epoch, self.at_once, self.total_timesteps) < 1 or self.at_most < 0:
            raise Refusal("--epoch, --at-once and --total-timesteps must be at least 1, --at-most at least 0")


SCALES: dict[str, dict[str, Any]] = {
    "smoke": {
        "at_most": 1,
        "seeds": (0,),
        "total_timesteps": 260,
        "epoch": 50,
        "learning_starts": 240,
        "epsilon_decay": 10,
        "buffer_size": 300,
        "batch_size": 4,
    },
    "default": {"at_most": 2, "seeds": (0, 1), "total_timesteps": 1_000_000, "buffer_size": 200_000, "epoch": 50_000},
    "paper": {},
}


@dataclasses.dataclass(frozen=True)
class Curves:
    """What the runs of one method say, over the epochs that all of its agents have finished."""

    ends: np.ndarray  # (epochs,) steps
    scores: np.ndarray  # (seeds, games, epochs) mean returns, or whatever is drawn
    normalised: np.ndarray  # the same, human-normalised


@dataclasses.dataclass(frozen=True)
class Experiment:
    """What `iterq reproduce` runs by a name."""

    name: str
    methods: dict[str, str]  # label: algorithm or variant, with @PRESET if it has its own
    games: tuple[str, ...]
    claims: tuple[tuple[str, str], ...] = ()  # (label, label): the paper has the first ahead of the second at the end
    marks: dict[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)  # label: epochs that the paper points out
    drawn: str = ""  # a metric instead of the return
    note: str = ""
    paper: dict[str, float] = dataclasses.field(default_factory=dict)  # label: its final IQM
    Config = Config
    SCALES = SCALES
    __doc__ = __doc__

    def run(self, config: Config, folder: Path) -> Result:
        """Say what it costs, train, draw and judge."""
        from iterq.reproduce.figures import draw_atari

        games, watch = self._games(config), Stopwatch()
        with watch("estimate"):
            rates = {label: steps_per_second(self._settings(label, config, "Breakout")) for label in self.methods}
        full = (
            config.total_timesteps >= FULL["total_timesteps"] and len(config.seeds) >= len(FULL["seeds"]) and set(games) == set(self.games)
        )
        for scale, count, steps, seeds in (
            ("full", len(self.games), *FULL.values()),
            ("this", len(games), config.total_timesteps, config.seeds),
        ):
            hours = sum(count * steps * len(seeds) / rate / 3600 for rate in rates.values())
            text = (
                f"{len(rates)} methods x {count} games x {len(seeds)} seeds x {steps:,} steps take about {hours:,.2g} hours on this machine"
            )
            print(f"{self.name} at {scale} scale: {text}", file=sys.stderr)
        curves = {}
        for label in self.methods:
            with watch(label):
                curves[label] = self._trained(label, config, games)
        estimates = {label: stratified_iqm(found.normalised) for label, found in curves.items() if found.ends.size}
        self._write(folder, config, games, curves)
        draw_atari(folder, self.name, games, curves, estimates if not self.drawn else {}, self.drawn or "mean return", self.marks)
        notes = [self.note] if self.note else []
        if not full:
            notes.append(f"Judged at full scale only: {len(self.games)} games, 5 seeds, 50,000,000 steps.")
        table = [(label, f"{rates[label]:,.0f}", str(curves[label].ends.size), *shown(estimates.get(label))) for label in self.methods]
        header = ("method", "steps/s", "epochs", "IQM, human-normalised", "95 % interval")
        title = f"{', '.join(games)}; {len(config.seeds)} seeds, {config.total_timesteps:,} steps, epochs of {config.epoch:,}"
        quantities = self._judged(estimates, full)
        described = {**dataclasses.asdict(config), "games": list(games), "runs": str(config.runs)}
        return Result(self.name, described, quantities, notes, [(title, header, table)], watch.seconds)

    def _games(self, config: Config) -> tuple[str, ...]:
        named = tuple(name.strip() for name in config.games.split(",")) if config.games else self.games
        for name in named:
            if game_of(name) is None:
                raise Refusal(f"--games: {name!r} is no Atari game")
        return tuple(str(game_of(name)) for name in named)[: config.at_most or None]

    def _settings(self, label: str, config: Config, game: str) -> Any:
        algorithm, _, preset = self.methods[label].partition("@")
        names = ("total_timesteps", "learning_starts", "epsilon_decay", "buffer_size", "batch_size", "seeds")
        fields = {name: getattr(config, name) for name in names}
        checkpoints = min(1_000_000, config.total_timesteps)
        # A hundred batches of 32 in an epoch of 250,000 steps: the paper's 3,200 samples for the distance between members.
        fields |= {"log_every": max(1, config.epoch // 100), "checkpoint_every": checkpoints}
        return configure(algorithm, preset or config.preset, env=game, **fields)

    def _trained(self, label: str, config: Config, games: tuple[str, ...]) -> Curves:
        """Train one method on all games, or find that it has been."""
        from iterq.runs import go_on
        from iterq.store import CONFIG, config_hash

        runs = {}
        for game in games:
            settings = self._settings(label, config, f"ALE/{game}-v5")
            runs[config.runs / f"{settings.algorithm}-{game}-{config_hash(settings)[:8]}"] = settings
        todo = [folder for folder in runs if not finished(folder, config.total_timesteps)]
        for i in range(0, len(todo), config.at_once):
            batch = todo[i : i + config.at_once]
            for new in (True, False):
                chosen = {folder: runs[folder] for folder in batch if (folder / CONFIG).exists() != new}
                if chosen and not all(row["finished"] for row in go_on(chosen, new)):
                    raise Refusal(f"stopped; the same command goes on from the runs in {config.runs}")
        read = self._read_metric if self.drawn else read_returns
        found = [read(folder, config) for folder in runs]
        length = min(len(rows) for by_seed in found for rows in by_seed.values())
        scores = np.array([[[x for _, x in by_seed[seed][:length]] for by_seed in found] for seed in config.seeds])
        ends = config.epoch * np.arange(1, length + 1)
        normalised = np.stack(
            [np.vectorize(lambda x, g=game: human_normalised(g, x) or 0.0, otypes=[float])(scores[:, i]) for i, game in enumerate(games)], 1
        )
        return Curves(ends, scores, normalised)

    def _read_metric(self, folder: Path, config: Config) -> dict[int, list[tuple[int, float]]]:
        """Its mean over the lines of every epoch."""
        found: dict[int, list[tuple[int, float]]] = {seed: [] for seed in config.seeds}
        sums: dict[tuple[int, int], list[float]] = {}
        with (folder / "metrics.jsonl").open(encoding="utf-8") as file:
            for row in map(json.loads, file):
                if self.drawn in row:
                    sums.setdefault((row["seed"], (row["step"] - 1) // config.epoch), []).append(row[self.drawn])
        for (seed, epoch), values in sorted(sums.items()):
            found[seed].append(((epoch + 1) * config.epoch, float(np.mean(values))))
        return found

    def _write(self, folder: Path, config: Config, games: tuple[str, ...], curves: dict[str, Curves]) -> None:
        rows = [
            (label, game, seed, e + 1, float(found.scores[s, g, e]), float(found.normalised[s, g, e]))
            for label, found in curves.items()
            for g, game in enumerate(games)
            for s, seed in enumerate(config.seeds)
            for e in range(found.ends.size)
        ]
        write_csv(folder / "epochs.csv", ("method", "game", "seed", "epoch", self.drawn or "mean_return", "human_normalised"), rows)

    def _judged(self, estimates: dict[str, Estimate], full: bool) -> list[Quantity]:
        last = {label: float(found.value[-1]) for label, found in estimates.items()}
        if self.drawn:
            return []
        quantities = [Quantity(f"{label}: IQM of the last epoch", value, None, self.paper.get(label)) for label, value in last.items()]
        for better, worse in self.claims:
            if better in last and worse in last:
                gain = last[better] - last[worse]
                quantities.append(Quantity(f"{better} minus {worse}", gain, None, None, "> 0", gain > 0 if full else None))
        return quantities


def read_returns(folder: Path, config: Config) -> dict[int, list[tuple[int, float]]]:
    """(end, mean return) of the epochs of every seed."""
    found = read_epochs(folder, config.epoch)
    return {seed: [(epoch.end, epoch.mean_return) for epoch in found.get(seed, [])] for seed in config.seeds}


def finished(folder: Path, steps: int) -> bool:
    """Whether a run has come that far."""
    return any(int(path.name.removeprefix("step-")) >= steps for path in (folder / "checkpoint").glob("step-*"))


def shown(found: Estimate | None) -> tuple[str, str]:
    """The last epoch of a curve, in words."""
    return ("–", "–") if found is None else (f"{found.value[-1]:.3f}", f"{found.low[-1]:.3f} to {found.high[-1]:.3f}")


def steps_per_second(settings: Any) -> float:
    """Of a fleet with these settings on this machine, all agents together, measured on a few steps with gradient steps among them."""
    from iterq.api import Model

    on_cpu = jax.default_backend() == "cpu"
    small = {"learning_starts": 16, "epsilon_decay": 1, "buffer_size": 64, "log_every": 10**9, "checkpoint_every": 0, "batch_size": 32}
    seeds = settings.seeds[:1] if on_cpu else settings.seeds  # on a CPU, agents take turns
    model = Model(dataclasses.replace(settings, **small, seeds=seeds), settings.env)
    try:
        model.learn(40)  # compiles, too
        steps = 8 if on_cpu else 400
        assert model.session
        started = time.perf_counter()
        model.learn(steps)
        jax.block_until_ready(model.session.fleet.counts())
        return len(seeds) * steps / (time.perf_counter() - started)
    finally:
        model.close()


OURS = "The paper does not name the games of this ablation; they are ours."
main = Experiment(
    "atari-main",
    {"DQN": "dqn", "i-DQN": "i-dqn", "IQN": "iqn", "i-IQN": "i-iqn"},
    TWENTY,
    (("i-DQN", "DQN"), ("i-IQN", "IQN")),
    paper={"DQN": 1.29, "IQN": 1.85},
)
window = Experiment(
    "atari-window",
    {"K = 1": "i-dqn-K1", "K = 5": "i-dqn", "K = 10": "i-dqn-K10"},
    THREE,
    (("K = 5", "K = 1"), ("K = 10", "K = 1")),
    note="All with T = 6000: only K differs.",
)
parallel = Experiment(
    "atari-parallel",
    {"DQN, T = 8000": "dqn", "i-DQN, K = 4, T = 2000": "i-dqn-K4-T2000"},
    THREE,
    (("i-DQN, K = 4, T = 2000", "DQN, T = 8000"),),
    # 3 125 and 6 250 shifts of the window
    marks={"DQN, T = 8000": (100, 200), "i-DQN, K = 4, T = 2000": (25, 50)},
    note=OURS,
)
gradient_steps = Experiment(
    "atari-gradient-steps",
    {"DQN, G = 4": "dqn", "DQN, G = 1": "dqn-G1", "i-DQN, K = 4, T = 8000": "i-dqn-K4-T8000"},
    THREE,
    (("i-DQN, K = 4, T = 8000", "DQN, G = 1"),),
    note=OURS,
)
nstep = Experiment(
    "atari-nstep",
    {"i-DQN": "i-dqn", "DQN, 3-step": "dqn-3-step", "DQN, 5-step": "dqn-5-step", "i-DQN, 3-step": "i-dqn-3-step"},
    ("Breakout", "DemonAttack", "ChopperCommand", "Krull"),
    (("i-DQN", "DQN, 5-step"), ("i-DQN, 3-step", "DQN, 3-step")),
)
acting = Experiment(
    "atari-acting",
    {"uniform": "i-dqn", "first": "i-dqn-first", "last": "i-dqn-last"},
    THREE,
    (("uniform", "first"), ("uniform", "last")),
    note=OURS,
)
targets = Experiment(
    "atari-targets",
    {"with targets": "i-dqn", "without targets": "i-dqn-no-targets"},
    ("Asterix", "Breakout"),
    (("with targets", "without targets"),),
)
sharing = Experiment("atari-sharing", {"shared": "i-dqn", "independent": "i-dqn-independent"}, ("ChopperCommand", "CrazyClimber"))
inflated = Experiment(
    "atari-inflated",
    {"DQN": "dqn", "inflated DQN": "dqn-inflated", "i-DQN": "i-dqn"},
    ("ChopperCommand", "CrazyClimber"),
    (("i-DQN", "inflated DQN"),),
    note=OURS,
)
bootstrapped = Experiment(
    "atari-bootstrapped",
    {"i-DQN": "i-dqn", "i-DQN, a member per episode": "i-dqn-episode", "Bootstrapped DQN": "bootstrapped-dqn"},
    THREE,
    (("i-DQN", "Bootstrapped DQN"), ("i-DQN", "i-DQN, a member per episode")),
    note=OURS,
)
spread = Experiment(
    "atari-spread",
    {"i-DQN": "i-dqn"},
    THREE,
    drawn=SPREAD,
    note=f"{OURS} The standard deviation over members is that of their values, at samples of the replay.",
)
published = Experiment(
    "atari-published",
    {"text": "i-dqn@paper", "published runs": "i-dqn@published"},
    THREE,
    note="Not in the paper: the text and the runs differ in who acts and in when the window shifts.",
)
ALL = (main, window, parallel, gradient_steps, nstep, acting, targets, sharing, inflated, bootstrapped, spread, published)
assert all(method.partition("@")[0] in NAMED for experiment in ALL for method in experiment.methods.values())
