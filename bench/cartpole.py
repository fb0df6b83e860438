"""Steps per second of the whole training loop on CartPole-v1: iterq beside Stable-Baselines3's DQN and the logic of CleanRL's dqn_jax.

Same network, batch, update ratio and replay; every program in a process of its own, one after the other, several rounds; the median counts.
Stable-Baselines3 brings PyTorch and so wants its own interpreter:

    python -m venv /tmp/sb3 && /tmp/sb3/bin/pip install stable-baselines3
    python bench/cartpole.py --sb3 /tmp/sb3/bin/python
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console
from rich.table import Table

WARM_UP = 2_000
SETTINGS = {  # batch, G, hidden layers
    "CleanRL's defaults": (128, 10, "120,84"),
    "SB3's defaults": (32, 4, "64,64"),
}


RUNS = (("CartPole-v1", 1, 1), ("CartPole-v1", 1, 8), ("CartPole-v1", 5, 8), ("jax/CartPole-v1", 1, 1), ("jax/CartPole-v1", 1, 8))


@dataclass(frozen=True)
class Options:
    """What to measure."""

    steps: int = 6_000
    """Steps per agent and measurement, after warm-up."""
    rounds: int = 3
    """Measurements of every program."""
    sb3: str = sys.executable
    """An interpreter that has stable-baselines3."""
    json: bool = False
    """Print one JSON object."""


def ours(env: str, K: int, S: int, steps: int, batch: int, G: int, widths: str) -> None:
    """One measurement of iterq, as one JSON line."""
    import jax

    from iterq.api import make

    fields = {"batch_size": batch, "G": G, "features": tuple(int(w) for w in widths.split(",")), "T": 1_000, "buffer_size": 50_000}
    model = make("i-dqn", env, K=K, seeds=S, eval_every=0, log_every=1_000, epsilon_decay=10_000, learning_rate=5e-4, **fields)
    model.learn(WARM_UP)
    assert model.session
    jax.block_until_ready(model.session.fleet.learners)
    started = time.perf_counter()
    model.learn(steps)
    jax.block_until_ready(model.session.fleet.learners)
    rate = steps * S / (time.perf_counter() - started)
    print(json.dumps({"steps_per_second": rate, "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


def measure(command: list[str]) -> dict[str, float] | None:
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "")})
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None


def main(options: Options) -> None:
    here = Path(__file__)
    results = {}
    for setting, (batch, G, widths) in SETTINGS.items():
        shape, steps = [str(batch), str(G), widths], options.steps
        peers = str(here.with_name("peers.py"))
        programs = {
            "Stable-Baselines3 DQN": [options.sb3, peers, "sb3", str(steps), *shape],
            "CleanRL dqn_jax logic": [sys.executable, peers, "cleanrl", str(steps), *shape],
        }
        for env, K, S in RUNS:
            scale = 4 if env.startswith("jax/") else 1  # the faster, the longer
            programs[f"iterq {env}, K = {K}, S = {S}"] = [
                sys.executable,
                str(here),
                "ours",
                env,
                str(K),
                str(S),
                str(scale * steps),
                *shape,
            ]
        found: dict[str, list] = {name: [] for name in programs}
        for _ in range(options.rounds):
            for name, command in programs.items():
                print(f"{setting}: {name}", file=sys.stderr, flush=True)
                found[name].append(measure(command))
        results[setting] = {
            name: {key: statistics.median(x[key] for x in runs) for key in ("steps_per_second", "peak_mib")}
            for name, runs in found.items()
            if all(runs)
        }
    if options.json:
        print(json.dumps(results))
        return
    for setting, rows in results.items():
        table = Table("program", "steps/s", "x SB3", "x CleanRL", "peak MiB", title=f"{setting}: batch, G, layers {SETTINGS[setting]}")
        for name, row in rows.items():
            ratios = [
                f"{row['steps_per_second'] / rows[peer]['steps_per_second']:.1f}" if peer in rows else ""
                for peer in ("Stable-Baselines3 DQN", "CleanRL dqn_jax logic")
            ]
            table.add_row(name, f"{row['steps_per_second']:,.0f}", *ratios, f"{row['peak_mib']:,.0f}")
        Console(width=110).print(table)


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "ours":
        env, K, S, steps, batch, G = sys.argv[2], *(int(x) for x in sys.argv[3:8])
        ours(env, K, S, steps, batch, G, sys.argv[8])
    else:
        main(tyro.cli(Options))
