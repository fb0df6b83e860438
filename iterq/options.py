"""Words of a command line to options: any library's names become ours, and what cannot be understood is one clear line."""

import contextlib
import dataclasses
import io
from pathlib import Path
from typing import Any, NoReturn

from iterq.config import FIELDS
from iterq.dialects import ALIASES, AMBIGUOUS, DERIVED, translate, unknown
from iterq.errors import Refusal
from iterq.identity import LENGTH


def among(word: str, known: Any, what: str) -> str:
    """`word` if it is known; otherwise a refusal that names the nearest known one."""
    if word in known:
        return word
    raise Refusal(unknown(what, word, known))


def renamed(argv: list[str]) -> list[str]:
    """Options under our names, whatever library they are from: `--target-network-frequency 500` becomes `--T 500`."""
    given: dict[str, str] = {}  # what is to be translated, and the length of the run, which may take part in that
    kept: list[str] = []
    said: dict[str, str] = {}  # our name: the name it was given by
    waiting = ""  # for its value
    options, theirs = {*FIELDS, "out", "json", "preset", "help"}, {*LENGTH, *ALIASES, *DERIVED, *AMBIGUOUS}
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


def named(words: list[str]) -> list[str]:
    """The settings that words under our names (see `renamed`) are about."""
    names = [word.removeprefix("--").partition("=")[0].replace("-", "_") for word in words if word.startswith("--")]
    return [name if name in FIELDS else name.removeprefix("no_") for name in names]


def several_cli(prog: str, argv: list[str], known: dict[str, tuple[Any, Any]], positional: str) -> dict[str, Any]:
    """`small_cli` for a command that takes one or more of its positional argument, as a list."""
    return small_cli(prog, argv, known, positional, nargs="+")


def small_cli(prog: str, argv: list[str], known: dict[str, tuple[Any, Any]], positional: str, **more: Any) -> dict[str, Any]:
    """Options of a command with one positional argument: {name: (type, default)}, and --json."""
    import argparse

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise Refusal(message)

    parser = Parser(prog=prog, allow_abbrev=False)
    parser.add_argument(positional, **more)
    for name, (kind, default) in {**known, "json": (bool, False)}.items():
        if kind is bool:
            parser.add_argument(f"--{name.replace('_', '-')}", dest=name, action="store_true")
        else:
            parser.add_argument(f"--{name.replace('_', '-')}", dest=name, type=kind, default=default)
    for word in argv:
        if word.startswith("--") and word.partition("=")[0].removeprefix("--").replace("-", "_") not in {*known, "json", "help"}:
            raise Refusal(unknown("option", word, [f"--{name.replace('_', '-')}" for name in (*known, "json")]))
    return vars(parser.parse_args(argv))


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
