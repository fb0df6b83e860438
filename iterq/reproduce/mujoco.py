"""The MuJoCo experiments of the paper: SAC, i-SAC, DroQ and i-DroQ on six tasks, 10 seeds, a million steps.

A point of a curve is the mean return of the training episodes that ended since the last one, as the paper has it; that of deterministic
episodes on environments of their own is drawn beside. Returns are divided by the mean of SAC's last ones on the same task. The paper does
not name its six tasks; these are ours, in their version 5.
"""

from pathlib import Path
from typing import Any, ClassVar

from iterq.report.scores import EVALUATION, RETURN
from iterq.reproduce.claims import Claim
from iterq.reproduce.suite import OURS, Experiment

TASKS = ("Ant", "HalfCheetah", "Hopper", "Humanoid", "HumanoidStandup", "Walker2d")


FULL: dict[str, Any] = {
    "total_timesteps": 1_000_000,
    "seeds": tuple(range(10)),
    "preset": "mujoco",
    "learning_starts": 5_000,
    "batch_size": 256,
    "runs": Path("runs") / "mujoco",
}


class MuJoCo(Experiment):
    __doc__ = __doc__  # what --help shows

    SCALES: ClassVar[dict[str, dict[str, Any]]] = {
        "smoke": {
            **FULL,
            "at_most": 1,
            "seeds": (0, 1),
            "total_timesteps": 80,
            "epoch": 40,
            "eval_episodes": 1,
            "learning_starts": 60,
            "buffer_size": 100,
            "batch_size": 4,
        },
        "default": {**FULL, "at_most": 2, "seeds": (0, 1), "total_timesteps": 100_000, "epoch": 5_000},
        "paper": FULL,
    }
    env = "{}-v5"
    rate_on = "Hopper"
    baseline = "SAC"

    def named(self, name: str) -> str:
        return super().named(name.partition("-v")[0])


NEAR = 0.05  # of SAC's last score: within it, methods count as equal
BOTH = RETURN, EVALUATION

main = MuJoCo(
    "mujoco-main",
    {"SAC": "sac", "i-SAC": "i-sac", "DroQ": "droq", "i-DroQ": "i-droq"},
    TASKS,
    # Section 6.2: both are ahead, and i-DroQ to the end, while i-SAC "finally converges to the same performances as SAC".
    (
        Claim("i-SAC", "SAC", when="along", margin=NEAR),
        Claim("i-SAC", "SAC", "equal", margin=NEAR),
        Claim("i-DroQ", "DroQ", when="along", margin=NEAR),
        Claim("i-DroQ", "DroQ", margin=NEAR),
    ),
    metrics=BOTH,
    note=OURS,
)
tau = MuJoCo(
    "mujoco-tau",
    {"SAC": "sac-tau-0.02", "i-SAC": "i-sac", "DroQ": "droq-tau-0.02", "i-DroQ": "i-droq"},
    TASKS,
    tuple(Claim(f"i-{base}", base, when="along", margin=NEAR) for base in ("SAC", "DroQ")),
    metrics=BOTH,
    note=f"All with tau = 0.02. {OURS}",
)
ALL = (main, tau)
