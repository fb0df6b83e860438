"""The command `iterq`.

Exit codes: 0 fine (also a run that a signal has stopped, with a checkpoint), 1 a band of the paper failed, 2 bad input or interrupted
(one line on stderr).
"""

import contextlib
import importlib
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
from iterq import runs
from iterq.algorithms import ALGORITHMS, VARIANTS
from iterq.errors import Refusal
from iterq.options import among, tyro_cli
from iterq.presets import PRESETS
from iterq.reproduce import EXPERIMENTS

USAGE = """\
usage: iterq train ALGORITHM --env ID[,ID…] [--processes N] [--seeds COUNT|A-B|A,B] [--K K] [--total-timesteps N] [--out DIR] [--json]
       iterq resume RUN [--processes N] [--total-timesteps N | --epochs N] [--json]
       iterq eval RUN|MODEL [--env ID] [--episodes N] [--video] [--json]
       iterq report RUNS… [--out DIR] [--metric NAME] [--baseline LABEL] [--group FIELDS] [--watch] [--json]
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
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, interrupt)
    try:
        code = command(argv)
    except Refusal as error:
        code = complain(str(error))
    except FloatingPointError as error:
        code = complain(f"{error}; nothing was written")
    except KeyboardInterrupt:
        signal.setitimer(signal.ITIMER_REAL, 0)
        code = complain("interrupted" + ("" if argv[:1] in (["train"], ["resume"]) else "; nothing was written"))
    except BrokenPipeError:
        code = 2
    except Exception as error:  # noqa: BLE001
        if isinstance(error, ModuleNotFoundError) and error.name in EXTRAS:
            code = complain(f"this needs {error.name}: pip install 'iterq[{EXTRAS[error.name]}]'")
        else:  # a bug of ours: show it whole
            traceback.print_exc()
            code = 70
    if "wandb" in sys.modules:  # its service writes on after a run has finished, and is waited for in an ordinary exit
        with contextlib.suppress(Exception):
            sys.modules["wandb"].teardown()
    # Compiled loops may still run in daemon threads, and the interpreter's own shutdown does not get along with that.
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def interrupt(number: int, frame: Any) -> NoReturn:
    """Raise KeyboardInterrupt, and again every two seconds until it is heard: one that comes inside a finaliser is lost."""
    signal.setitimer(signal.ITIMER_REAL, 2.0)
    raise KeyboardInterrupt


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
    commands = {
        "train": runs.train,
        "resume": runs.resume,
        "eval": runs.evaluate,
        "report": report,
        "reproduce": reproduce,
        "list": list_names,
    }
    return commands[among(name, commands, "command")](rest)


def report(argv: list[str]) -> int:
    """`iterq report RUNS…`"""
    from iterq.report.command import report

    return report(argv)


def list_names(argv: list[str]) -> int:
    """`iterq list`"""
    if set(argv) - {"--json"}:
        raise Refusal(f"list takes no {argv[0]!r}")
    experiments = {name: about for name, (_, about) in EXPERIMENTS.items()}
    if argv:
        named = {"algorithms": ALGORITHMS, "variants": VARIANTS, "presets": PRESETS}
        print(
            json.dumps(
                {**{kind: {name: p._asdict() for name, p in found.items()} for kind, found in named.items()}, "experiments": experiments}
            )
        )
        return 0
    for title, names in (
        ("algorithms", {name: p.about for name, p in ALGORITHMS.items()}),
        ("variants", {name: p.about for name, p in VARIANTS.items()}),
        ("presets", {name: p.about for name, p in PRESETS.items()}),
        ("experiments", experiments),
    ):
        print(f"{title}:")
        for name, about in names.items():
            print(f"  {name:18s} {about}")
    return 0


def reproduce(argv: list[str]) -> int:
    """`iterq reproduce NAME …`"""
    from iterq.store import staged

    if not argv or argv[0] in ("--help", "-h"):
        print(USAGE)
        return 0
    name = among(argv[0], EXPERIMENTS, "experiment")
    place, _, attribute = EXPERIMENTS[name][0].partition(":")
    module = importlib.import_module(place)
    module = getattr(module, attribute) if attribute else module
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
    table = Table("quantity", "ours", "paper", "band", "", title="Claims and bands", title_justify="left")
    for q in result.quantities:
        if q.band:
            passed = {True: "pass", False: "FAIL", None: "not judged"}[q.passed]
            around = f" [{q.low:.3g}, {q.high:.3g}]" if q.low is not None else f" ± {q.spread:.2g}" if q.spread is not None else ""
            unclear = q.passed is None and q.verdict.startswith("cannot tell")
            said = q.verdict if unclear else f"{passed}: {q.verdict}" if q.verdict else passed
            ours = f"{q.ours:.4g}{around}" if math.isfinite(q.ours) else "–"
            table.add_row(q.name, ours, "" if q.paper is None else f"{q.paper:g}", q.band, said)
    console.print(table)
    for note in result.notes:
        console.print(note)


if __name__ == "__main__":
    main()
