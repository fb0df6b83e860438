"""DQN and i-DQN on the small problems of Gymnasium, with one preset for both.

The paper has no such figures; its authors' repository ships Lunar Lander as the small example. So what is claimed here is ours: both learn
the task, and i-DQN is ahead of DQN along the way. A point is the mean return of greedy episodes on environments of their own,
different ones at every evaluation.
"""

from pathlib import Path
from typing import Any, ClassVar

from iterq.report.scores import EVALUATION, RETURN
from iterq.reproduce.claims import Claim, Level
from iterq.reproduce.suite import Experiment

FULL: dict[str, Any] = {
    "total_timesteps": 200_000,
    "preset": "classic",
    "learning_starts": 1_000,
    "buffer_size": 100_000,
    "batch_size": 128,
    "estimate": False,
    "runs": Path("runs") / "classic",
}


class Classic(Experiment):
    __doc__ = __doc__  # what --help shows

    SCALES: ClassVar[dict[str, dict[str, Any]]] = {
        "smoke": {**FULL, "seeds": (0, 1), "total_timesteps": 4_000, "epoch": 2_000, "eval_episodes": 2},
        "default": FULL,
        "paper": FULL,
    }

    def fields(self, config: Any) -> dict[str, Any]:
        return {**super().fields(config), "epsilon_decay": config.epsilon_decay}


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
