"""LunarLander-v3: both methods learn to land, and the area under the curve of i-DQN is at least that of DQN."""

from pathlib import Path

import numpy as np

from iterq.reproduce.base import Quantity, Result
from iterq.reproduce.curves import Config, name, train

LANDS = 100.0  # mean return of a policy that mostly comes down between the flags; 200 counts as solved
SCALES = {
    "smoke": {"seeds": (0, 1), "total_timesteps": 3_000, "eval_every": 1_500, "eval_episodes": 2},
    "default": {},
    "paper": {},
}

__all__ = ["SCALES", "Config", "run"]


def run(config: Config, folder: Path) -> Result:
    """Train, draw and judge."""
    curves = train("lunar-lander", "LunarLander-v3", config, folder)
    result, judged = curves.result, config.total_timesteps >= 200_000 and len(config.seeds) >= 5
    for K, returns in curves.returns.items():
        best, area = returns.max(1), curves.areas(K)
        passed = bool(np.mean(best) >= LANDS) if judged else None
        result.quantities += [
            Quantity(f"{name(K)}: best evaluation", float(best.mean()), float(best.std()), None, f">= {LANDS:g}", passed),
            Quantity(f"{name(K)}: area under the curve", float(area.mean()), float(area.std())),
        ]
    for K in config.K:
        if K > 1 and 1 in config.K:
            gain = float(curves.areas(K).mean() - curves.areas(1).mean())
            result.quantities.append(
                Quantity(f"{name(K)}: area minus that of DQN", gain, None, None, ">= 0", gain >= 0 if judged else None)
            )
    if not judged:
        result.notes.append("Bands are judged from 200,000 steps and 5 seeds on.")
    return result
