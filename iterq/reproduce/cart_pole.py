"""CartPole-v1: DQN and i-DQN both reach the environment's own threshold, an evaluation mean return of 475, on every seed."""

from pathlib import Path

from iterq.reproduce.base import Quantity, Result
from iterq.reproduce.curves import Config, name, train

SOLVED = 475.0
SCALES = {
    "smoke": {"seeds": (0, 1), "total_timesteps": 4_000, "eval_every": 2_000, "eval_episodes": 2},
    "default": {"total_timesteps": 100_000, "eval_every": 5_000},
    "paper": {"total_timesteps": 100_000, "eval_every": 5_000},
}

__all__ = ["SCALES", "Config", "run"]


def run(config: Config, folder: Path) -> Result:
    """Train, draw and judge."""
    curves = train("cart-pole", "CartPole-v1", config, folder)
    result, judged = curves.result, config.total_timesteps >= 100_000
    for K, returns in curves.returns.items():
        worst = float(returns.max(1).min())
        passed = worst >= SOLVED if judged else None
        result.quantities.append(Quantity(f"{name(K)}: best evaluation of the worst seed", worst, None, None, f">= {SOLVED:g}", passed))
    if not judged:
        result.notes.append("Bands are judged from 100,000 steps on.")
    return result
