"""Where a step of a fleet goes: microseconds of the one thread that serves it, call by call, and how long actions are on their way.

    python bench/calls.py --env HalfCheetah-v5 --algorithm i-sac --S 10 --K 4
    python bench/calls.py --env Breakout --algorithm i-dqn --S 16 --K 5 --trace      # and what XLA's runtime and the device do

Medians over all steps, measured inside the training loop; flags for XLA come from XLA_FLAGS as ever. `see`, `learn` and `see_and_learn`
are calls of the device; `acted` is how long after the first or the last of them the actions are known.
"""

import collections
import dataclasses
import glob
import json
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

import tyro
from fleet import PLAIN

TRACED = "--xla_enable_command_buffers_during_profiling=true"  # otherwise a profile shows another program


@dataclasses.dataclass(frozen=True)
class Options:
    """What to measure."""

    env: str = "HalfCheetah-v5"
    algorithm: str = "i-sac"
    S: int = 10
    """Agents."""
    K: int = 4
    steps: int = 2000
    """Steps that are measured."""
    buffer_size: int = 20_000
    """Rows of the replay."""
    trace: bool = False
    """Also profile a tenth as many steps."""


def watch(group: Any, times: dict[str, list[float]]) -> None:
    """Have the calls of a group timed."""

    def timed(owner: Any, name: str, called: str) -> None:
        f: Callable = getattr(owner, name)

        def timing(*args: Any) -> Any:
            started = time.perf_counter()
            result = f(*args)
            times[called].append(1e6 * (time.perf_counter() - started))
            return result

        setattr(owner, name, timing)

    for name in ("see", "learn", "see_and_learn"):
        timed(group, name, name)
    timed(group.envs, "begin", "begin")
    timed(group.envs, "finish", "finish")
    acted, seen = group.acted, []

    def noting(f: Callable) -> Callable:
        def seeing(*args: Any) -> None:
            f(*args)
            seen[:] = [time.perf_counter()]

        return seeing

    def asked() -> bool:
        if not acted():
            return False
        times["acted"].extend(1e6 * (time.perf_counter() - at) for at in seen)
        seen.clear()
        return True

    group.see, group.see_and_learn, group.acted = noting(group.see), noting(group.see_and_learn), asked


def traced(model: Any, steps: int) -> None:
    """Print what a profile of `steps` steps has most of."""
    import jax

    options = jax.profiler.ProfileOptions()
    options.host_tracer_level, options.python_tracer_level = 3, 0
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            model.learn(steps)
            jax.block_until_ready([group.lanes for group in model.session.fleet.groups])
        (found,) = glob.glob(f"{folder}/**/*.xplane.pb", recursive=True)
        profile = jax.profiler.ProfileData.from_file(found)
    for plane in profile.planes:
        for line in plane.lines:
            total, number = collections.Counter(), collections.Counter()
            for event in line.events:
                total[event.name] += event.duration_ns / 1e3 / steps
                number[event.name] += 1
            print(json.dumps({"plane": plane.name, "line": line.name, "events_per_step": round(number.total() / steps, 2)}))
            for name, share in total.most_common(40):
                print(f"  {share:9.2f} us/step {number[name] / steps:8.2f} times  {name[:120]}")


def main(options: Options) -> None:
    import jax
    import numpy as np

    from iterq.api import make

    fields: Any = {"seeds": options.S, "K": options.K, "buffer_size": options.buffer_size, "replay": "device"}
    model = make(options.algorithm, options.env, **fields, **PLAIN)
    model.learn(0)
    assert model.session
    fleet: Any = model.session.fleet
    model.learn(600)
    if options.trace:  # before clocks are in the way
        traced(model, max(1, options.steps // 10))
    times: dict[str, list[float]] = collections.defaultdict(list)
    for group in fleet.groups:
        watch(group, times)
    started = time.perf_counter()
    model.learn(options.steps)
    jax.block_until_ready([group.lanes for group in fleet.groups])
    tick = 1e6 * (time.perf_counter() - started) / options.steps
    told = {name: {"us": round(float(np.median(x)), 1), "per_step": len(x) / options.steps} for name, x in times.items()}
    device = jax.devices()[0].device_kind
    print(json.dumps({**dataclasses.asdict(options), "device": device, "groups": len(fleet.groups), "tick_us": round(tick)}))
    print(json.dumps(told))
    model.close()


if __name__ == "__main__":
    asked = tyro.cli(Options)
    if asked.trace:
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {TRACED}".strip()
    main(asked)
    os._exit(0)  # see cli.main
