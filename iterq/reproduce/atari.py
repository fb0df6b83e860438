"""The Atari experiments of the paper: which methods on which games, and what is drawn.

Scores are those of the paper: mean returns of the training episodes of an epoch, human-normalised. Where the paper does not name the games
of an ablation (it says that they were drawn at random), they are ours.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from iterq.epochs import read_epochs
from iterq.errors import Refusal
from iterq.games import game_of, human_normalised, references
from iterq.presets import NAMED
from iterq.reproduce import suite
from iterq.reproduce.suite import OURS, Experiment
from iterq.reproduce.training import Points

TWENTY = tuple(game for game, found in references().items() if found.in_paper)
THREE = ("Asteroids", "Asterix", "Qbert")  # of the window sizes; elsewhere our choice


@dataclasses.dataclass(frozen=True)
class Config(suite.Config):
    """How much of an experiment is run; 200 epochs of 5 seeds in the paper."""

    epsilon_decay: int = 250_000
    """Steps over which random actions become rare."""
    runs: Path = Path("runs") / "atari"
    """Where run directories are kept, and found again."""


class Atari(Experiment):
    """Games under the paper's protocol."""

    Config: ClassVar[Any] = Config
    SCALES: ClassVar[dict[str, dict[str, Any]]] = {
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
    __doc__ = __doc__
    unit = "human-normalised"
    rate_on = "Breakout"

    def named(self, name: str) -> str:
        game = game_of(name)
        if game is None:
            raise Refusal(f"--only: {name!r} is no Atari game")
        return game

    def env(self, task: str) -> str:
        return f"ALE/{task}-v5"

    def fields(self, config: Any) -> dict[str, Any]:
        # A hundred batches of 32 in an epoch of 250,000 steps: the paper's 3,200 samples for the distance between members.
        return {"epsilon_decay": config.epsilon_decay, "log_every": max(1, config.epoch // 100)}

    def read(self, folder: Path, config: Any) -> Points:
        found = read_epochs(folder, config.epoch)
        return {seed: [epoch.mean_return for epoch in found.get(seed, [])] for seed in config.seeds}

    def normaliser(self, task: str, scores: dict[str, np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
        zero, one = human_normalised(task, 0.0), human_normalised(task, 1.0)
        # Where nobody has measured a human, scores are as they are.
        return lambda x: x if zero is None or one is None else zero + (one - zero) * x


main = Atari(
    "atari-main",
    {"DQN": "dqn", "i-DQN": "i-dqn", "IQN": "iqn", "i-IQN": "i-iqn"},
    TWENTY,
    (("i-DQN", "DQN"), ("i-IQN", "IQN")),
    paper={"DQN": 1.29, "IQN": 1.85},
)
window = Atari(
    "atari-window",
    {"K = 1": "i-dqn-K1", "K = 5": "i-dqn", "K = 10": "i-dqn-K10"},
    THREE,
    (("K = 5", "K = 1"), ("K = 10", "K = 1")),
    note="All with T = 6000: only K differs.",
)
parallel = Atari(
    "atari-parallel",
    {"DQN, T = 8000": "dqn", "i-DQN, K = 4, T = 2000": "i-dqn-K4-T2000"},
    THREE,
    (("i-DQN, K = 4, T = 2000", "DQN, T = 8000"),),
    # 3 125 and 6 250 shifts of the window
    marks={"DQN, T = 8000": (100, 200), "i-DQN, K = 4, T = 2000": (25, 50)},
    note=OURS,
)
gradient_steps = Atari(
    "atari-gradient-steps",
    {"DQN, G = 4": "dqn", "DQN, G = 1": "dqn-G1", "i-DQN, K = 4, T = 8000": "i-dqn-K4-T8000"},
    THREE,
    (("i-DQN, K = 4, T = 8000", "DQN, G = 1"),),
    note=OURS,
)
nstep = Atari(
    "atari-nstep",
    {"i-DQN": "i-dqn", "DQN, 3-step": "dqn-3-step", "DQN, 5-step": "dqn-5-step", "i-DQN, 3-step": "i-dqn-3-step"},
    ("Breakout", "DemonAttack", "ChopperCommand", "Krull"),
    (("i-DQN", "DQN, 5-step"), ("i-DQN, 3-step", "DQN, 3-step")),
)
acting = Atari(
    "atari-acting",
    {"uniform": "i-dqn", "first": "i-dqn-first", "last": "i-dqn-last"},
    THREE,
    (("uniform", "first"), ("uniform", "last")),
    note=OURS,
)
targets = Atari(
    "atari-targets",
    {"with targets": "i-dqn", "without targets": "i-dqn-no-targets"},
    ("Asterix", "Breakout"),
    (("with targets", "without targets"),),
)
sharing = Atari("atari-sharing", {"shared": "i-dqn", "independent": "i-dqn-independent"}, ("ChopperCommand", "CrazyClimber"))
inflated = Atari(
    "atari-inflated",
    {"DQN": "dqn", "inflated DQN": "dqn-inflated", "i-DQN": "i-dqn"},
    ("ChopperCommand", "CrazyClimber"),
    (("i-DQN", "inflated DQN"),),
    note=OURS,
)
bootstrapped = Atari(
    "atari-bootstrapped",
    {"i-DQN": "i-dqn", "i-DQN, a member per episode": "i-dqn-episode", "Bootstrapped DQN": "bootstrapped-dqn"},
    THREE,
    (("i-DQN", "Bootstrapped DQN"), ("i-DQN", "i-DQN, a member per episode")),
    note=OURS,
)
spread = Atari(
    "atari-spread",
    {"i-DQN": "i-dqn"},
    THREE,
    drawn="iqn/head_std",
    note=f"{OURS} The standard deviation over members is that of their values, at samples of the replay.",
)
published = Atari(
    "atari-published",
    {"text": "i-dqn@paper", "published runs": "i-dqn@published"},
    THREE,
    note="Not in the paper: the text and the runs differ in who acts and in when the window shifts.",
)
ALL = (main, window, parallel, gradient_steps, nstep, acting, targets, sharing, inflated, bootstrapped, spread, published)
assert all(method.partition("@")[0] in NAMED for experiment in ALL for method in experiment.methods.values())
