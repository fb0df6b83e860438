"""The commands on runs: `iterq train`, `iterq resume`, `iterq eval`. Each takes its words and returns the exit code."""

import dataclasses
import itertools
import json
import math
import sys
from pathlib import Path
from typing import Any

from iterq.algorithms import ALGORITHMS, NAMED, VARIANTS
from iterq.config import Config
from iterq.ends import ended_by
from iterq.errors import Refusal
from iterq.games import game_of, human_normalised, played
from iterq.options import among, named, renamed, small_cli, tyro_cli
from iterq.presets import PRESETS, configure, preset_for
from iterq.progress import Bar, shown
from iterq.reads import refuse_other_kind, refuse_unread


def train(argv: list[str]) -> int:
    """`iterq train ALGORITHM …`"""
    if not argv or argv[0] in ("--help", "-h"):
        print("usage: iterq train ALGORITHM --env ID[,ID…] [--processes N] …; iterq train ALGORITHM --help shows every option")
        print("algorithms:", ", ".join(ALGORITHMS))
        print("variants:", ", ".join(VARIANTS))
        return 0
    algorithm = among(argv[0], NAMED, "algorithm")
    argv, processes = taken(argv, "--processes")
    words = renamed(argv[1:])
    preset = last_of(words, "--preset") or preset_for(algorithm, (last_of(words, "--env") or "").split(",")[0])
    config = configure(algorithm, among(preset, PRESETS, "preset"), env="")
    bellman = last_of(words, "--bellman") or config.bellman
    refuse_other_kind(algorithm, config.bellman, bellman)
    refuse_unread(algorithm, bellman, named(words))
    options = tyro_cli(f"iterq train {algorithm}", NAMED[algorithm].about, config, words, {"preset": preset})
    config = ended_by(options.config, named(words))
    if not config.env:
        raise Refusal("--env is missing: a Gymnasium id such as CartPole-v1, or jax/CartPole-v1")
    name = config.env.replace("/", "-").replace(":", "-")
    out = options.out or Path("runs") / "train" / f"{algorithm}-{name}"
    return report(go_on(divided(config, out, processes), new=True, processes=processes), options.json)


def divided(config: Config, out: Path, processes: int) -> dict[Path, Config]:
    """A run for every environment that `config` names. Where there are more processes than those, they share the seeds of each as well."""
    envs = config.env.split(",")
    shares = shared_out(config.seeds, min(len(config.seeds), max(1, processes // len(envs))))
    runs: dict[Path, Config] = {}
    for env in envs:
        played(env, config.emulator)  # refused before any directory is made
    for env, share in itertools.product(envs, shares):
        words = [folder_of(env)] * (len(envs) > 1) + [f"seeds-{share[0]}-{share[-1]}"] * (len(shares) > 1)
        runs[out / "-".join(words)] = dataclasses.replace(config, env=env, seeds=share)
    if len(runs) < len(envs) * len(shares):
        raise Refusal(f"--env {config.env} names an environment twice")
    return runs


def shared_out(seeds: tuple[int, ...], count: int) -> list[tuple[int, ...]]:
    """`count` shares of about the same size, in order."""
    return [seeds[i:j] for i, j in itertools.pairwise(len(seeds) * i // count for i in range(count + 1))]


def folder_of(env: str) -> str:
    """Where the run of one of several environments goes: `Pong` for every id of that game."""
    return game_of(env) or env.replace("/", "-").replace(":", "-")


def taken(words: list[str], option: str) -> tuple[list[str], int]:
    """The words without `option COUNT`, and the count, 1 if it is not there."""
    said = last_of(words, option)
    if said is None:
        return words, 1
    if not said.isdigit() or int(said) < 1:
        raise Refusal(f"{option} must be at least 1, got {said}")
    rest = [word for i, word in enumerate(words) if not word.startswith(option) and (i == 0 or words[i - 1] != option)]
    return rest, int(said)


def last_of(words: list[str], option: str) -> str | None:
    """What the last `option VALUE` or `option=VALUE` among `words` says."""
    values = [value for word, value in itertools.pairwise(words) if word == option]
    values += [word.partition("=")[2] for word in words if word.startswith(f"{option}=")]
    return values[-1] if values else None


def resume(argv: list[str]) -> int:
    """`iterq resume RUN`"""
    known = {"total_timesteps": (int, 0), "epochs": (int, 0), "processes": (int, 1)}
    options = small_cli("iterq resume", argv, known, "RUN")
    from iterq.store import CONFIG, read_config

    root = Path(options["RUN"])
    several = [] if (root / CONFIG).exists() else sorted(path.parent for path in root.glob(f"*/{CONFIG}"))
    runs = {folder: read_config(folder) for folder in several or [root]}
    ends = {name: options[name] for name in ("total_timesteps", "epochs") if options[name]}
    runs = {folder: ended_by(dataclasses.replace(config, **ends), ends) for folder, config in runs.items()}
    return report(go_on(runs, new=False, processes=max(options["processes"], 1)), options["json"])


def go_on(runs: dict[Path, Config], new: bool, processes: int = 1, share_of: int = 1, bar: Bar = shown) -> list[dict[str, Any]]:
    """Train in run directories, side by side, each to the end of its configuration, and tell how it went.

    processes: how many share them; share_of: this is one of so many that do; bar: what shows progress.
    """
    if processes > 1 and len(runs) > 1:
        from iterq.apart import go_on_apart

        return go_on_apart(runs, new, processes)
    from iterq.api import Model
    from iterq.loop import train_all

    sessions: dict[Path, Any] = {}
    try:
        for out, config in runs.items():
            sessions[out] = opened(Model(config, config.env), out, new, len(runs), share_of)
        alone = next(iter(sessions.values())) if len(sessions) == 1 else None
        summaries = {next(iter(sessions)): alone.train(bar=bar)} if alone else train_all(sessions, bar)
    finally:
        for session in sessions.values():
            session.close()
    return [told(out, sessions[out].config, summaries[out]) for out in runs]


def report(found: list[dict[str, Any]], as_json: bool) -> int:
    """Print how runs went."""
    if as_json:
        print(json.dumps(found if len(found) > 1 else found[0], allow_nan=False))
    else:
        for row in found:
            show(row)
    return 0


def opened(model: Any, out: Path, new: bool, beside: int, share_of: int = 1) -> Any:
    """The session of `model` in the run directory `out`, one of `beside` in this process, which is one of `share_of`."""
    from iterq.envs import noted
    from iterq.fleet import fleet, place
    from iterq.loop import Session
    from iterq.store import Run

    config = model.config
    on_host = place(config, model.spec, model.env, beside, share_of, say=True)
    members = fleet(model.agent, model.env, config.seeds, on_host, beside)
    world = noted(model.env, model.spec)
    run = Run.create(out, config, world) if new else Run.open(out, world)
    for package, (then, now) in run.changed_versions(world).items():
        print(f"iterq: this run began with {package} {then}; with {now} its numbers may go on differently", file=sys.stderr)
    if not new and run.config != config:
        run.write_config(config)
    return Session(members, config, run)


def told(out: Path, config: Config, summary: Any) -> dict[str, Any]:
    """How a run went."""
    return {
        "run": str(out),
        "algorithm": config.algorithm,
        "env": config.env,
        "seeds": list(config.seeds),
        "steps": summary.step,
        "finished": summary.finished,
        "steps_per_second": round(summary.steps_per_second, 1),
        "mean_return": finite(summary.mean_return),
        "eval_step": summary.evaluated,
        "eval_mean_return": {str(seed): mean(e.returns) for seed, e in zip(config.seeds, summary.evaluations, strict=False)},
    }


def show(row: dict[str, Any]) -> None:
    """The same in words."""
    out, step, last = row["run"], row["steps"], row["mean_return"]
    ends = f"finished at step {step:,}" if row["finished"] else f"stopped at step {step:,}; iterq resume {out} goes on"
    shown = "no episode ended" if last is None else f"mean return of the last episodes {last:.1f}"
    print(f"{out}: {ends}, {row['steps_per_second']:,.0f} steps/s, {shown}")
    for seed, value in row["eval_mean_return"].items():
        print(f"  seed {seed}: evaluation {value if value is None else f'{value:.1f}'} at step {row['eval_step']:,}")


def finite(x: float | None) -> float | None:
    """JSON has no word for the others."""
    return x if x is not None and math.isfinite(x) else None


def mean(returns: list[float]) -> float | None:
    return finite(sum(returns) / len(returns))


def evaluate(argv: list[str]) -> int:
    """`iterq eval RUN|MODEL`"""
    known = {"episodes": (int, 10), "policy": (str, ""), "video": (bool, False), "env": (str, "")}
    options = small_cli("iterq eval", argv, known, "RUN|MODEL")
    if options["episodes"] < 1:
        raise Refusal(f"--episodes must be at least 1, got {options['episodes']}")
    from iterq.api import load
    from iterq.video import record_episode

    path = Path(options["RUN|MODEL"])
    model = load(path, options["env"] or None)
    if model.env is None:
        model = load(path, model.config.env)
    if options["policy"]:
        model = model.playing(options["policy"])
    # First, so that what cannot be drawn is said at once.
    video = str(record_episode(model, path if path.is_dir() else path.parent)) if options["video"] else ""
    played = model.evaluate(options["episodes"])
    found: dict[str, Any] = {
        "path": str(path),
        "env": model.config.env,
        "episodes": options["episodes"],
        "policy": model.config.eval_policy,
        "mean_return": {str(seed): mean(e.returns) for seed, e in played.items()},
        "returns": {str(seed): [finite(x) for x in e.returns] for seed, e in played.items()},
    }
    if (game := game_of(model.config.env)) and human_normalised(game, 0) is not None:
        found["human_normalised"] = {seed: None if x is None else human_normalised(game, x) for seed, x in found["mean_return"].items()}
    if video:
        found["video"] = video
    if options["json"]:
        print(json.dumps(found, allow_nan=False))
    else:
        for seed, value in found["mean_return"].items():
            human = found.get("human_normalised", {}).get(seed)
            beside = "" if human is None else f", {human:.2f} of the way from random to human"
            print(f"seed {seed}: mean return {value if value is None else f'{value:.1f}'} over {options['episodes']} episodes{beside}")
        if "video" in found:
            print(f"video: {found['video']}")
    return 0
