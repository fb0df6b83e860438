"""A fleet on this machine: steps per second of its environments alone and of the whole training loop, and milliseconds of an update.

    python bench/fleet.py --env Breakout --S 16 --K 1,5 --processes 1,4
    python bench/fleet.py --env HalfCheetah-v5 --algorithm i-sac --S 10 --K 4

Everything in one run, the environments alone with the same number of them in the same way. Several processes share the agents as
`iterq train --processes` does, and are measured over the same seconds; on a GPU, start NVIDIA's multi-process service first.
"""

import dataclasses
import json
import os
import subprocess
import sys
import time
from typing import Any

import tyro

from iterq.apart import FRACTION
from iterq.config import WindowSizes
from iterq.runs import shared_out

# Training and nothing else, soon at the final share of random actions.
PLAIN: dict[str, Any] = {"learning_starts": 400, "epsilon_decay": 1, "log_every": 10**9, "checkpoint_every": 0, "eval_every": 0}


@dataclasses.dataclass(frozen=True)
class Options:
    """What to measure."""

    env: str = "Breakout"
    S: int = 16
    """Agents."""
    K: WindowSizes = (1, 5)
    """Window sizes."""
    processes: WindowSizes = (1,)
    """Numbers of processes."""
    algorithm: str = "i-dqn"
    seconds: float = 5.0
    """How long a measurement takes; there are three of each."""
    buffer_size: int = 20_000
    """Rows of the replay."""
    torso: str = ""
    """Another network."""


def alone(options: Options) -> list[float]:
    """Steps per second of S environments with random actions."""
    import jax
    import numpy as np

    from iterq.envs import resolve
    from iterq.envs.stepping import TRAINING
    from iterq.envs.workers import stepping

    kind, spec = resolve(options.env)
    envs, rng = stepping(kind, tuple(range(options.S)), TRAINING), np.random.default_rng(0)
    shape = (500, options.S, *spec.action.shape)
    actions: Any = rng.uniform(-1, 1, shape) if spec.continuous else rng.integers(0, spec.actions, shape)
    actions, n = actions.astype(spec.action.base), 0
    envs.reset()
    rates = []
    print(jax.devices()[0].device_kind, flush=True)
    for _ in range(4):
        first, started = n, time.perf_counter()
        while time.perf_counter() - started < options.seconds:
            envs.step(actions[n % 500], n)
            n += 1
        rates.append(options.S * (n - first) / (time.perf_counter() - started))
    envs.close()
    return rates[1:]


def loop(options: Options, K: int, seeds: list[int], beside: int) -> dict[str, Any]:
    """The whole loop after warm-up, at the final share of random actions; then updates alone."""
    import jax
    import numpy as np

    from iterq.api import make
    from iterq.envs.workers import Workers
    from iterq.fleet.group import AHEAD

    Workers.beside = beside
    fields: Any = PLAIN | ({"torso": options.torso} if options.torso else {})
    model = make(options.algorithm, options.env, K=K, seeds=tuple(seeds), buffer_size=options.buffer_size, **fields)
    model.learn(600)
    assert model.session
    fleet: Any = model.session.fleet

    def rest() -> None:
        jax.block_until_ready([group.lanes for group in fleet.groups])

    rest()
    print("ready", flush=True)
    sys.stdin.readline()
    rates, piece = [], 20
    for _ in range(4):  # the first brings everything up to speed
        first, started = fleet.n, time.perf_counter()
        while time.perf_counter() - started < options.seconds:
            model.learn(piece)
        rest()
        rates.append(len(seeds) * (fleet.n - first) / (time.perf_counter() - started))
        piece = max(20, int(rates[-1] / len(seeds) / 4))  # a quarter of a second: a run looks up that seldom, too
    # At a step that has one, and among those that randomness is drawn for.
    model.learn(-fleet.n % AHEAD + 1)
    times, step = [], -(-fleet.n // model.config.G) * model.config.G
    for _ in range(20):
        started = time.perf_counter()
        for group in fleet.groups:
            group.learn(step)
        rest()
        times.append(time.perf_counter() - started)
    model.close()
    return {"rates": rates[1:], "update_ms": 1e3 * float(np.median(times))}


def start(options: Options, part: dict[str, Any], share_of: int = 1) -> subprocess.Popen:
    """This file in another process."""
    order = json.dumps({"options": dataclasses.asdict(options), **part})
    environment = {FRACTION: f"{0.9 / share_of:.3f}", **os.environ}
    return subprocess.Popen([sys.executable, __file__, order], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def last_word(child: subprocess.Popen) -> Any:
    return json.loads(child.communicate("\n")[0].splitlines()[-1])


def main(options: Options) -> None:
    child = start(options, {})
    assert child.stdout
    raw = {"device": child.stdout.readline().strip(), "alone": [round(x) for x in last_word(child)]}
    print(json.dumps({"env": options.env, "S": options.S, "cores": len(os.sched_getaffinity(0)), **raw}), flush=True)
    for processes in options.processes:
        for K in options.K:
            shares = shared_out(tuple(range(options.S)), processes)
            children = [start(options, {"K": K, "seeds": share, "beside": processes}, processes) for share in shares]
            for child in children:
                assert child.stdout
                child.stdout.readline()
            for child in children:
                assert child.stdin
                child.stdin.write("\n")
                child.stdin.flush()
            told = [last_word(child) for child in children]
            steps = [round(sum(rates)) for rates in zip(*(x["rates"] for x in told), strict=True)]
            row = {"processes": processes, "K": K, "steps_per_second": steps, "update_ms": [round(x["update_ms"], 2) for x in told]}
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1].startswith("{"):
        order = json.loads(sys.argv[1])
        said = Options(**order.pop("options"))
        print(json.dumps(loop(said, **order) if order else alone(said)), flush=True)
        os._exit(0)  # see cli.main
    main(tyro.cli(Options))
