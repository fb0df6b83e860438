"""Writing results so that a reader never meets half of one."""

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from iterq.errors import Refusal

RESULT = "result.json"  # what marks a folder as a result of ours, free to be replaced by a newer one


@contextlib.contextmanager
def staged(out: Path) -> Iterator[Path]:
    """A folder to write into, which takes the place of `out` if the block ends well and vanishes if it does not.

    An earlier result at `out` stays untouched until then; a folder that holds anything else is refused.
    """
    if out.exists() and not out.is_dir():
        raise Refusal(f"{out} is a file; --out needs a folder")
    with _clearly(out):
        if out.is_dir() and any(out.iterdir()) and not (out / RESULT).is_file():
            raise Refusal(f"{out} holds files that are no result of iterq; choose another --out")
        out.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        with _clearly(out):
            yield aside
            _settle(aside, out)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


@contextlib.contextmanager
def _clearly(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Refusal(f"cannot write {out}: {error.strerror or error}") from error


def _settle(aside: Path, out: Path) -> None:
    """Flush what was written and rename it into place; the earlier result goes only when the new one is there."""
    for path in aside.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
    umask = os.umask(0)
    os.umask(umask)
    aside.chmod(0o777 & ~umask)
    old = None
    if out.exists():
        old = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent)) / "old"
        out.rename(old)
    aside.rename(out)
    if old:
        shutil.rmtree(old.parent, ignore_errors=True)


def write_json(path: Path, value: Any) -> None:
    """JSON a person can read; NaN is refused rather than written as something no JSON reader takes."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
