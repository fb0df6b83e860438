"""The command `iterq`. Exit codes: 0 fine, 1 a band of the paper failed, 2 bad input or interrupted (one line on stderr)."""

import contextlib
import dataclasses
import difflib
import importlib
import io
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

import iterq
from iterq.errors import Refusal
from iterq.reproduce import EXPERIMENTS

USAGE = """\
usage: iterq reproduce NAME [--scale smoke|default|paper] [--seeds COUNT|A-B|A,B] [--K K|A,B] [--out DIR] [--json]
       iterq list [--json]

iterq reproduce NAME --help shows every option of an experiment.\
"""
SCALES = ("smoke", "default", "paper")
EXTRAS = {"matplotlib": "report"}  # heavy packages and the extra that brings them


def main(argv: list[str] | None = None) -> NoReturn:
    """Run one command and exit."""
    argv = sys.argv[1:] if argv is None else argv
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        code = command(argv)
    except Refusal as error:
        code = complain(str(error))
    except FloatingPointError as error:
        code = complain(f"{error}; nothing was written")
    except KeyboardInterrupt:
        code = complain("interrupted; nothing was written")
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
    return {"reproduce": reproduce, "list": list_experiments}[among(name, ("reproduce", "list"), "command")](rest)


def among(word: str, known: Any, what: str) -> str:
    """`word` if it is known; otherwise a refusal that names the nearest known one."""
    if word in known:
        return word
    near = difflib.get_close_matches(word, known, 1)
    raise Refusal(f"unknown {what} {word!r}" + (f", did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"))


def list_experiments(argv: list[str]) -> int:
    """`iterq list`"""
    if set(argv) - {"--json"}:
        raise Refusal(f"list takes no {argv[0]!r}")
    if argv:
        print(json.dumps({"experiments": {name: about for name, (_, about) in EXPERIMENTS.items()}}))
    else:
        for name, (_, about) in EXPERIMENTS.items():
            print(f"{name:14s} {about}")
    return 0


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
    import tyro

    words = [w for arg in argv for w in (arg.split("=", 1) if arg.startswith("--scale=") else [arg])]
    scale = words[words.index("--scale") + 1] if "--scale" in words[:-1] else "default"
    config = module.Config(**module.SCALES[among(scale, SCALES, "scale")])

    @dataclasses.dataclass(frozen=True)
    class Options:
        config: tyro.conf.OmitArgPrefixes[module.Config]  # pyright: ignore[reportInvalidTypeForm]
        """Of the experiment; the defaults are those of the scale."""
        scale: str = "default"
        """How much of the paper's experiment to run: smoke, default or paper. Other options override what it sets."""
        out: Path | None = None
        """Folder for figures, CSVs and result.json; runs/reproduce/NAME if not given."""
        json: bool = False
        """Print one JSON object on stdout instead of tables."""

    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(
                Options,
                args=argv,
                default=Options(config),
                prog=f"iterq reproduce {name}",
                description=module.__doc__,
                use_underscores=False,
            )
    except SystemExit as exit:
        if not exit.code:
            raise
        text = " ".join(said.getvalue().translate(dict.fromkeys(range(0x2500, 0x2580), " ")).split())
        raise Refusal(text or f"bad options for {name}") from None


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
