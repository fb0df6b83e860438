"""DQN and i-DQN on the small problems of Gymnasium, with one preset for both.

The paper has no such figures; its authors' repository ships Lunar Lander as the small example. So what is claimed here is ours: both learn
the task, and i-DQN is ahead of DQN along the way. A point is the mean return of greedy episodes on environments of their own,
different ones at every evaluation.
"""

import dataclasses
from pathlib import Path
from typing import Any, ClassVar

from iterq.dialects import unknown
from iterq.errors import Refusal
from iterq.report.scores import EVALUATION, RETURN
from iterq.reproduce import suite
from iterq.reproduce.claims import Claim, Level
from iterq.reproduce.suite import Experiment


@dataclasses.dataclass(frozen=True)
class Config(suite.Config):
    """How much of an experiment is run."""

    total_timesteps: int = 200_000
    """Steps of every agent."""
    eval_episodes: int = 10
    """Episodes of an evaluation."""
    preset: str = "classic"
    """Hyperparameters."""
    learning_starts: int = 1_000
    """Steps of random actions before the first gradient step."""
    buffer_size: int = 100_000
    """Rows of the replay of an agent."""
    batch_size: int = 128
    """Transitions per gradient step."""
    estimate: bool = False
    """First measure how long all this will take on this machine, and say so, if anything is to be trained."""
    runs: Path = Path("runs") / "classic"
    """Where run directories are kept, and found again."""


class Classic(Experiment):
    """One environment of Gymnasium."""

    Config: ClassVar[Any] = Config
    SCALES: ClassVar[dict[str, dict[str, Any]]] = {
        "smoke": {"seeds": (0, 1), "total_timesteps": 4_000, "epoch": 2_000, "eval_episodes": 2},
        "default": {},
        "paper": {},
    }
    __doc__ = __doc__

    def named(self, name: str) -> str:
        if name not in self.tasks:
            raise Refusal(unknown("task", name, self.tasks))
        return name

    def fields(self, config: Any) -> dict[str, Any]:
        return {"eval_every": config.epoch, "eval_episodes": config.eval_episodes, "log_every": config.epoch}


METHODS, BOTH = {"DQN": "dqn", "i-DQN": "i-dqn"}, (EVALUATION, RETURN)
# 475 is the environment's own threshold; at 100, most landings are between the flags.
cart_pole = Classic(
    "cart-pole",
    METHODS,
    ("CartPole-v1",),
    (Level("DQN", at_least=475), Level("i-DQN", at_least=475), Claim("i-DQN", "DQN", when="along", margin=25)),
    metrics=BOTH,
)
lunar_lander = Classic(
    "lunar-lander",
    METHODS,
    ("LunarLander-v3",),
    (Level("DQN", at_least=100), Level("i-DQN", at_least=100), Claim("i-DQN", "DQN", when="along", margin=25)),
    metrics=BOTH,
)
ALL = (cart_pole, lunar_lander)
