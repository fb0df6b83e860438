"""The command `iterq`.

Exit codes: 0 fine (also a run that a signal has stopped, with a checkpoint), 1 a band of the paper failed, 2 bad input or interrupted
(one line on stderr).
"""

import contextlib
import dataclasses
import importlib
import io
import json
import math
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

import iterq
from iterq.config import FIELDS
from iterq.errors import Refusal
from iterq.presets import ALGORITHMS, ALIASES, AMBIGUOUS, DERIVED, PRESETS, configure, translate, unknown
from iterq.reproduce import EXPERIMENTS

USAGE = """\
usage: iterq train ALGORITHM --env ID [--seeds COUNT|A-B|A,B] [--K K] [--total-timesteps N] [--out DIR] [--json]
       iterq resume RUN [--total-timesteps N] [--json]
       iterq eval RUN|MODEL [--env ID] [--episodes N] [--video] [--json]
       iterq reproduce NAME [--scale smoke|default|paper] [--seeds COUNT|A-B|A,B] [--K K|A,B] [--out DIR] [--json]
       iterq list [--json]

iterq train ALGORITHM --help and iterq reproduce NAME --help show every option. iterq list names algorithms, presets and experiments.\
"""
SCALES = ("smoke", "default", "paper")
EXTRAS = {
    "matplotlib": "report",
    "tensorboard": "tensorboard",
    "wandb": "wandb",
    "imageio": "video",
    "imageio_ffmpeg": "video",
}  # heavy packages and the extra that brings them


def main(argv: list[str] | None = None) -> NoReturn:
    """Run one command and exit."""
    argv = sys.argv[1:] if argv is None else argv
    sys.path.insert(0, "")  # MODULE:NAME from the current folder, as with python -m
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        code = command(argv)
    except Refusal as error:
        code = complain(str(error))
    except FloatingPointError as error:
        code = complain(f"{error}; nothing was written")
    except KeyboardInterrupt:
        code = complain("interrupted" + ("" if argv[:1] in (["train"], ["resume"]) else "; nothing was written"))
    except BrokenPipeError:
        code = 2
    except Exception as error:  # noqa: BLE001
        if isinstance(error, ModuleNotFoundError) and error.name in EXTRAS:
            code = complain(f"this needs {error.name}: pip install 'iterq[{EXTRAS[error.name]}]'")
        else:  # a bug of ours: show it whole
            traceback.print_exc()
            code = 70
    # Compiled loops may still run in daemon threads, and the interpreter's own shutdown does not get along with that.
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def complain(message: str) -> int:
    print(f"iterq: {' '.join(message.split())}", file=sys.stderr)
    return 2


def command(argv: list[str]) -> int:
    """The exit code of `iterq argv…`."""
    name, rest = (argv[0], argv[1:]) if argv else ("--help", [])
    if name in ("--help", "-h"):
        print(USAGE)
        return 0
    if name == "--version":
        print(iterq.__version__)
        return 0
    commands = {"train": train, "resume": resume, "eval": evaluate, "reproduce": reproduce, "list": list_names}
    return commands[among(name, commands, "command")](rest)


def among(word: str, known: Any, what: str) -> str:
    """`word` if it is known; otherwise a refusal that names the nearest known one."""
    if word in known:
        return word
    raise Refusal(unknown(what, word, known))


def list_names(argv: list[str]) -> int:
    """`iterq list`"""
    if set(argv) - {"--json"}:
        raise Refusal(f"list takes no {argv[0]!r}")
    experiments = {name: about for name, (_, about) in EXPERIMENTS.items()}
    if argv:
        presets = {name: {"about": p.about, "values": p.values, "source": p.source} for name, p in PRESETS.items()}
        algorithms = {name: {"about": p.about, "values": p.values, "source": p.source} for name, p in ALGORITHMS.items()}
        print(json.dumps({"algorithms": algorithms, "presets": presets, "experiments": experiments}))
        return 0
    for title, names in (
        ("algorithms", {name: p.about for name, p in ALGORITHMS.items()}),
        ("presets", {name: p.about for name, p in PRESETS.items()}),
        ("experiments", experiments),
    ):
        print(f"{title}:")
        for name, about in names.items():
            print(f"  {name:18s} {about}")
    return 0


def train(argv: list[str]) -> int:
    """`iterq train ALGORITHM …`"""
    if not argv or argv[0] in ("--help", "-h"):
        print(USAGE)
        return 0
    algorithm = among(argv[0], ALGORITHMS, "algorithm")
    words = renamed(argv[1:])
    preset = words[words.index("--preset") + 1] if "--preset" in words[:-1] else "classic"
    config = configure(algorithm, among(preset, PRESETS, "preset"), env="")
    options = tyro_cli(f"iterq train {algorithm}", ALGORITHMS[algorithm].about, config, words, {"preset": preset})
    config = options.config
    if not config.env:
        raise Refusal("--env is missing: a Gymnasium id such as CartPole-v1, or jax/CartPole-v1")
    from iterq.api import Model

    model = Model(config, config.env)
    out = options.out or Path("runs") / "train" / f"{algorithm}-{config.env.replace('/', '-').replace(':', '-')}"
    return go_on(model, out, options.json, new=True)


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
    on_host = place(config, model.spec, say=True)
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


def renamed(argv: list[str]) -> list[str]:
    """Options under our names, whatever library they are from: `--target-network-frequency 500` becomes `--T 500`."""
    given: dict[str, str] = {}  # what is to be translated; total_timesteps may take part in that
    kept: list[str] = []
    said: dict[str, str] = {}  # our name: the name it was given by
    waiting = ""  # for its value
    options, theirs = {*FIELDS, "out", "json", "preset", "help"}, {"total_timesteps", *ALIASES, *DERIVED, *AMBIGUOUS}
    for word in argv:
        if not word.startswith("--"):
            if waiting:
                given[waiting], waiting = word, ""
            else:
                kept.append(word)
            continue
        name, equals, value = word.removeprefix("--").partition("=")
        field = name.replace("-", "_")
        field = field.removeprefix("no_") if field.removeprefix("no_") in FIELDS else field
        if waiting:
            break
        if field not in options | theirs:
            raise Refusal(unknown("option", f"--{name}", [f"--{o.replace('_', '-')}" for o in (*options, *ALIASES, *DERIVED)]))
        ours = ALIASES.get(field, field)
        if said.setdefault(ours, field) != field:
            raise Refusal(f"--{name} says {ours} a second time")
        if field in theirs:
            given, waiting = {**given, field: value}, "" if equals else field
        else:
            kept += [f"--{name}", value] if field == "preset" and equals else [word]
    if waiting:
        raise Refusal(f"--{waiting.replace('_', '-')} needs a value")
    if "seed" in given:
        given["seeds"] = f"{given['seed']}-{given.pop('seed')}"
    return [*kept, *(w for name, value in translate(dict(given)).items() for w in (f"--{name.replace('_', '-')}", str(value)))]


def small_cli(prog: str, argv: list[str], known: dict[str, tuple[Any, Any]], positional: str) -> dict[str, Any]:
    """Options of a command with one positional argument: {name: (type, default)}, and --json."""
    import argparse

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise Refusal(message)

    parser = Parser(prog=prog, allow_abbrev=False)
    parser.add_argument(positional)
    for name, (kind, default) in {**known, "json": (bool, False)}.items():
        if kind is bool:
            parser.add_argument(f"--{name.replace('_', '-')}", dest=name, action="store_true")
        else:
            parser.add_argument(f"--{name.replace('_', '-')}", dest=name, type=kind, default=default)
    for word in argv:
        if word.startswith("--") and word.partition("=")[0].removeprefix("--").replace("-", "_") not in {*known, "json", "help"}:
            raise Refusal(unknown("option", word, [f"--{name.replace('_', '-')}" for name in (*known, "json")]))
    return vars(parser.parse_args(argv))


def reproduce(argv: list[str]) -> int:
    """`iterq reproduce NAME …`"""
    from iterq.store import staged

    if not argv or argv[0] in ("--help", "-h"):
        print(USAGE)
        return 0
    name = among(argv[0], EXPERIMENTS, "experiment")
    module = importlib.import_module(EXPERIMENTS[name][0])
    options = parse(name, module, argv[1:])
    out = options.out or Path("runs") / "reproduce" / name
    started = time.perf_counter()
    with staged(out) as folder:
        result = module.run(options.config, folder)
        result.seconds["total"] = time.perf_counter() - started
        result.config = {"scale": options.scale, **result.config}
        result.write(folder)
        files = sorted(path.name for path in folder.iterdir())
    if options.json:
        print(json.dumps({**result.as_json(), "out": str(out), "files": files}, ensure_ascii=False, allow_nan=False))
    else:
        show(result)
        for figure in (f for f in files if f.endswith(".png")):
            print(f"figure: {out / figure}")
    return 0 if result.passed else 1


def parse(name: str, module: Any, argv: list[str]) -> Any:
    """The options of one experiment: its `Config`, starting from the scale asked for, and what all experiments share."""
    words = [w for arg in argv for w in (arg.split("=", 1) if arg.startswith("--scale=") else [arg])]
    scale = words[words.index("--scale") + 1] if "--scale" in words[:-1] else "default"
    config = module.Config(**module.SCALES[among(scale, SCALES, "scale")])
    return tyro_cli(f"iterq reproduce {name}", module.__doc__, config, argv, {"scale": scale})


def tyro_cli(prog: str, about: str, config: Any, argv: list[str], base: dict[str, str]) -> Any:
    """Options from a configuration: its fields, the name of what its defaults are from (`base`), --out and --json."""
    import tyro

    name, value = next(iter(base.items()))
    fields = [
        ("config", tyro.conf.OmitArgPrefixes[type(config)], dataclasses.field(default=config)),
        (name, str, dataclasses.field(default=value)),
        ("out", Path | None, dataclasses.field(default=None)),
        ("json", bool, dataclasses.field(default=False)),
    ]
    Options = dataclasses.make_dataclass("Options", fields, frozen=True)
    Options.__doc__ = f"""Options.

    Args:
        config: The defaults are those of the {name}.
        {name}: What the defaults are from; other options override them.
        out: Folder for the output; a place under runs/ if not given.
        json: Print one JSON object on stdout instead of text.
    """
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(
                Options,
                args=argv,
                default=Options(),
                prog=prog,
                description=about,
                use_underscores=False,
            )
    except SystemExit as exit:
        if not exit.code:
            raise
        text = " ".join(said.getvalue().translate(dict.fromkeys(range(0x2500, 0x2580), " ")).split())
        raise Refusal(text or f"bad options for {prog}") from None


def show(result: Any) -> None:
    """The tables, then every judged quantity with its band."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 120, soft_wrap=False)
    for title, header, rows in result.tables:
        table = Table(title=title, title_justify="left")
        for i, column in enumerate(header):
            table.add_column(column, justify="right" if i else "left")
        for row in rows:
            table.add_row(*row)
        console.print(table)
    table = Table("quantity", "ours", "paper", "band", "", title="Bands", title_justify="left")
    for q in result.quantities:
        if q.band:
            verdict = {True: "pass", False: "FAIL", None: "not judged"}[q.passed]
            ours = f"{q.ours:.4g}" + (f" ± {q.spread:.2g}" if q.spread is not None else "")
            table.add_row(q.name, ours, "" if q.paper is None else f"{q.paper:g}", q.band, verdict)
    console.print(table)
    for note in result.notes:
        console.print(note)


if __name__ == "__main__":
    main()
