"""The commands on runs: `iterq train`, `iterq resume`, `iterq eval`. Each takes its words and returns the exit code."""

import dataclasses
import itertools
import json
import math
import sys
from pathlib import Path
from typing import Any

from iterq.errors import Refusal
from iterq.options import among, renamed, small_cli, tyro_cli
from iterq.presets import ALGORITHMS, PRESETS, configure, preset_for


def train(argv: list[str]) -> int:
    """`iterq train ALGORITHM …`"""
    if not argv or argv[0] in ("--help", "-h"):
        print("usage: iterq train ALGORITHM --env ID …; iterq train ALGORITHM --help shows every option")
        print("algorithms:", ", ".join(ALGORITHMS))
        return 0
    algorithm = among(argv[0], ALGORITHMS, "algorithm")
    words = renamed(argv[1:])
    preset = last_of(words, "--preset") or preset_for(last_of(words, "--env"))
    config = configure(algorithm, among(preset, PRESETS, "preset"), env="")
    options = tyro_cli(f"iterq train {algorithm}", ALGORITHMS[algorithm].about, config, words, {"preset": preset})
    config = options.config
    if not config.env:
        raise Refusal("--env is missing: a Gymnasium id such as CartPole-v1, or jax/CartPole-v1")
    from iterq.api import Model

    model = Model(config, config.env)
    out = options.out or Path("runs") / "train" / f"{algorithm}-{config.env.replace('/', '-').replace(':', '-')}"
    return go_on(model, out, options.json, new=True)


def last_of(words: list[str], option: str) -> str | None:
    """What the last `option VALUE` or `option=VALUE` among `words` says."""
    values = [value for word, value in itertools.pairwise(words) if word == option]
    values += [word.partition("=")[2] for word in words if word.startswith(f"{option}=")]
    return values[-1] if values else None


def resume(argv: list[str]) -> int:
    """`iterq resume RUN`"""
    options = small_cli("iterq resume", argv, {"total_timesteps": (int, 0)}, "RUN")
    from iterq.api import Model
    from iterq.store import read_config

    config = read_config(Path(options["RUN"]))
    if options["total_timesteps"]:
        config = dataclasses.replace(config, total_timesteps=options["total_timesteps"])
    return go_on(Model(config, config.env), Path(options["RUN"]), options["json"], new=False)


def go_on(model: Any, out: Path, as_json: bool, new: bool) -> int:
    """Train `model` in the run directory `out` to the end of its configuration, and report."""
    from iterq.fleet import fleet, place
    from iterq.loop import Session
    from iterq.store import Run

    config = model.config
    on_host = place(config, model.spec, model.env, say=True)
    members = fleet(model.agent, model.env, config.seeds, on_host)
    run = Run.create(out, config) if new else Run.open(out)
    for package, (then, now) in run.changed_versions().items():
        print(f"iterq: this run began with {package} {then}; with {now} its numbers may go on differently", file=sys.stderr)
    if not new and run.config != config:
        run.write_config(config)
    session = Session(members, config, run)
    try:
        summary = session.train(config.total_timesteps)
    finally:
        session.close()
    found = {
        "run": str(out),
        "algorithm": config.algorithm,
        "env": config.env,
        "seeds": list(config.seeds),
        "steps": summary.step,
        "finished": summary.finished,
        "steps_per_second": round(summary.steps_per_second, 1),
        "mean_return": finite(summary.mean_return),
        "eval_mean_return": {str(seed): mean(e.returns) for seed, e in zip(config.seeds, summary.evaluations, strict=False)},
    }
    if as_json:
        print(json.dumps(found, allow_nan=False))
    else:
        ends = f"finished at step {summary.step:,}" if summary.finished else f"stopped at step {summary.step:,}; iterq resume {out} goes on"
        shown = "no episode ended" if summary.mean_return is None else f"mean return of the last episodes {summary.mean_return:.1f}"
        print(f"{out}: {ends}, {summary.steps_per_second:,.0f} steps/s, {shown}")
        for seed, value in found["eval_mean_return"].items():
            print(f"  seed {seed}: evaluation {value if value is None else f'{value:.1f}'}")
    return 0


def finite(x: float | None) -> float | None:
    """JSON has no word for the others."""
    return x if x is not None and math.isfinite(x) else None


def mean(returns: list[float]) -> float | None:
    return finite(sum(returns) / len(returns))


def evaluate(argv: list[str]) -> int:
    """`iterq eval RUN|MODEL`"""
    options = small_cli("iterq eval", argv, {"episodes": (int, 10), "video": (bool, False), "env": (str, "")}, "RUN|MODEL")
    if options["episodes"] < 1:
        raise Refusal(f"--episodes must be at least 1, got {options['episodes']}")
    from iterq.api import load
    from iterq.video import record_episode

    path = Path(options["RUN|MODEL"])
    model = load(path, options["env"] or None)
    if model.env is None:
        model = load(path, model.config.env)
    played = model.evaluate(options["episodes"])
    found: dict[str, Any] = {
        "path": str(path),
        "env": model.config.env,
        "episodes": options["episodes"],
        "mean_return": {str(seed): mean(e.returns) for seed, e in played.items()},
        "returns": {str(seed): [finite(x) for x in e.returns] for seed, e in played.items()},
    }
    if options["video"]:
        found["video"] = str(record_episode(model, path if path.is_dir() else path.parent))
    if options["json"]:
        print(json.dumps(found, allow_nan=False))
    else:
        for seed, value in found["mean_return"].items():
            print(f"seed {seed}: mean return {value if value is None else f'{value:.1f}'} over {options['episodes']} episodes")
        if "video" in found:
            print(f"video: {found['video']}")
    return 0
