"""Steps per second of SAC and DroQ on a MuJoCo task, one agent, on this machine: iterq beside SBX and Stable-Baselines3.

    python bench/sac_peers.py --peers PYTHON --rounds 3

PYTHON is an interpreter with sbx-rl in it. Every program runs in a process of its own, in turn, round after round; ratios are what counts.
"""

import dataclasses
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

WARM_UP = 300  # steps before the clock starts; learning begins after 100


@dataclasses.dataclass(frozen=True)
class Options:
    """What to measure."""

    peers: str = ""
    """An interpreter with sbx-rl; empty: iterq alone."""
    env: str = "Hopper-v5"
    steps: int = 1_500
    """Steps of SAC per round; DroQ gets a tenth."""
    rounds: int = 3


def ours(algorithm: str, env: str, steps: int) -> float:
    """The whole loop of iterq."""
    from iterq.api import make

    fields: Any = {"learning_starts": 100, "buffer_size": 100_000, "log_every": 10**9, "checkpoint_every": 0, "eval_every": 0}
    model = make(algorithm, env, seeds=1, **fields)
    model.learn(WARM_UP)
    started = time.perf_counter()
    model.learn(steps)
    model.session.fleet.counts()[0].updates.block_until_ready()  # pyright: ignore[reportOptionalMemberAccess]
    return steps / (time.perf_counter() - started)


def peer(package: str, algorithm: str, env: str, steps: int) -> float:
    """The whole loop of SBX or Stable-Baselines3, with our batch, networks and updates per step."""
    import importlib

    library = importlib.import_module(package)
    kind = getattr(library, "SAC")  # noqa: B009, the same name in both
    fields: Any = {"learning_starts": 100, "batch_size": 256, "buffer_size": 100_000, "learning_rate": 1e-3}
    fields["policy_kwargs"] = {"net_arch": [256, 256]}
    if algorithm == "droq":
        fields |= {"gradient_steps": 20, "policy_delay": 20}
        fields["policy_kwargs"] |= {"dropout_rate": 0.01, "layer_norm": True}
    model = kind("MlpPolicy", env, seed=0, **fields)
    model.learn(WARM_UP)
    started = time.perf_counter()
    model.learn(steps, reset_num_timesteps=False)
    return steps / (time.perf_counter() - started)


PROGRAMS = {
    "SBX SAC": ("sbx", "sac"),
    "iterq SAC": ("iterq", "sac"),
    "SB3 SAC": ("stable_baselines3", "sac"),
    "iterq i-SAC, K = 4": ("iterq", "i-sac"),
    "SBX DroQ": ("sbx", "droq"),
    "iterq DroQ": ("iterq", "droq"),
}


def main(options: Options) -> None:
    found: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        for name, (package, algorithm) in PROGRAMS.items():
            if package != "iterq" and not options.peers:
                continue
            interpreter = sys.executable if package == "iterq" else options.peers
            steps = options.steps // (10 if algorithm == "droq" else 1)
            command = [interpreter, __file__, package, algorithm, options.env, str(steps)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"{name} failed: {done.stderr[-500:]}")
            found.setdefault(name, []).append(float(done.stdout.split()[-1]))
            print(f"{name}: {found[name][-1]:.1f} steps/s", file=sys.stderr, flush=True)
    print(json.dumps({name: {"median": statistics.median(rates), "all": rates} for name, rates in found.items()}, indent=1))


if __name__ == "__main__":
    if len(sys.argv) == 5 and sys.argv[1] in {package for package, _ in PROGRAMS.values()}:
        package, algorithm, env, count = sys.argv[1:]
        sys.path.insert(0, str(Path(__file__).parents[1]))
        print(ours(algorithm, env, int(count)) if package == "iterq" else peer(package, algorithm, env, int(count)))
    else:
        import tyro

        main(tyro.cli(Options))
