"""Files and folders that a reader never meets half of: results, and the directory of a run."""

import contextlib
import csv
import dataclasses
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from iterq.config import Config
from iterq.envs.about import About
from iterq.errors import Refusal
from iterq.identity import document, former_identity, identity, settings_in
from iterq.versions import versions

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
            flush(path)
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


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Numbers as the shortest text that reads back exactly."""
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(header)
        out.writerows([repr(float(x)) if isinstance(x, float) else x for x in row] for row in rows)


def flush(path: Path) -> None:
    """Wait until a file, or the list of a folder's files, is on the disk."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


@contextlib.contextmanager
def in_place_of(path: Path) -> Iterator[Path]:
    """A file to write into, which takes the place of `path` if the block ends well and vanishes if it does not."""
    place = path.with_name(f".{path.name}")
    with _clearly(path):
        try:
            yield place
            flush(place)
            place.replace(path)
        finally:
            with contextlib.suppress(OSError):
                place.unlink()


CONFIG, VERSIONS, ENVIRONMENT, LOCK = "config.json", "versions.json", "env.json", ".lock"


def difference(then: Any, now: Any, name: str = "") -> str:
    """The first thing in which two values of JSON differ, in words; empty: none."""
    if isinstance(then, dict) and isinstance(now, dict):
        for key in [*then, *(key for key in now if key not in then)]:
            inner = f"{name}.{key}" if name else key
            if (key in then) != (key in now):
                return f"{inner} is {'new' if key in now else 'not there any more'}"
            if found := difference(then[key], now[key], inner):
                return found
        return ""
    return "" if then == now else f"{name} was {then} and is {now}"


def config_hash(config: Config) -> str:
    """Of everything that decides what a run computes."""
    return identity(dataclasses.asdict(config))


class Run:
    """A run directory, held by this process alone: `config.json`, `env.json`, `versions.json`, logs and checkpoints."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            if isinstance(error, BlockingIOError):
                raise Refusal(f"{folder} is in use by another process") from error
            raise Refusal(f"cannot lock {folder}: {error.strerror or error}; a run needs a file system with file locks") from error

    @classmethod
    def create(cls, folder: Path, config: Config, env: About) -> "Run":
        """A new run; a folder that holds anything is refused."""
        if folder.exists() and not folder.is_dir():
            raise Refusal(f"{folder} is a file; --out needs a folder")
        with _clearly(folder):
            if (folder / CONFIG).exists():
                raise Refusal(f"{folder} already holds a run; iterq resume {folder} continues it")
            if folder.is_dir() and set(os.listdir(folder)) - {LOCK, VERSIONS, ENVIRONMENT, f".{CONFIG}"}:
                raise Refusal(f"{folder} holds files that are no run of iterq; choose another --out")
            existed = folder.is_dir()
            folder.mkdir(parents=True, exist_ok=True)
            run = cls(folder)
            try:
                write_json(folder / VERSIONS, versions(env.packages))
                write_json(folder / ENVIRONMENT, env.said)
                run.write_config(config)
            except BaseException:
                for name in (VERSIONS, ENVIRONMENT, LOCK):
                    (folder / name).unlink(missing_ok=True)
                run.close()
                if not existed:
                    folder.rmdir()
                raise
        return run

    @classmethod
    def open(cls, folder: Path, env: About) -> "Run":
        """A run that exists, to go on with in the environment that it began with."""
        if not (folder / CONFIG).is_file():
            raise Refusal(f"{folder} holds no run (no {CONFIG})")
        with _clearly(folder):
            run = cls(folder)
        then = run._noted(ENVIRONMENT)
        if then and (changed := difference(then, env.said)):
            run.close()
            way_out = f"remove {folder / ENVIRONMENT} to go on all the same"
            raise Refusal(f"{env.said['name']} is not what this run began with: {changed}; {way_out}")
        return run

    @property
    def config(self) -> Config:
        return read_config(self.folder)

    def names(self, config: Config) -> tuple[str, ...]:
        """By what checkpoints in this directory may know `config`."""
        return known_as(self.folder, config)

    def changed_versions(self, env: About) -> dict[str, tuple[str, str]]:
        """{package: (when the run began, now)} where they differ."""
        then = self._noted(VERSIONS)
        return {name: (then[name], now) for name, now in versions(env.packages).items() if then.get(name, now) != now}

    def _noted(self, name: str) -> dict[str, Any]:
        """What was noted when the run began; empty, if it cannot be read: runs do not depend on it."""
        try:
            found = json.loads((self.folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def write_config(self, config: Config) -> None:
        with in_place_of(self.folder / CONFIG) as place:
            existed = (self.folder / CONFIG).is_file()
            write_json(place, document(dataclasses.asdict(config), former_identity(_read(self.folder)) if existed else None))

    def close(self) -> None:
        """Let others use the directory; a second time is fine."""
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1


def _read(folder: Path) -> dict[str, Any]:
    """What the config.json of a run holds, of whatever format."""
    try:
        found = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except OSError as error:
        below = ", ".join(sorted(path.parent.name for path in folder.glob(f"*/{CONFIG}")))
        raise Refusal(f"{folder} holds no run: {f'name one of those in it, {below}' if below else error.strerror}") from error
    except ValueError as error:
        raise Refusal(f"{folder / CONFIG} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise Refusal(f"{folder / CONFIG} holds no settings")
    return found


def read_config(folder: Path) -> Config:
    """The configuration of the run in `folder`, as it was recorded."""
    return config_from(_read(folder), str(folder / CONFIG))


def known_as(folder: Path, config: Config) -> tuple[str, ...]:
    """By what checkpoints in `folder` may know `config`: its identity and, while the directory's own is the same, an earlier name of it."""
    recorded = _read(folder)
    former, own = former_identity(recorded), identity(settings_in(recorded))
    return (config_hash(config), *([former] if former and own == config_hash(config) else []))


def config_from(fields: Any, where: str = "") -> Config:
    """A configuration from plain JSON values, of either format; what they do not mention is neutral. where: they come from."""
    try:
        return Config(**settings_in(fields))
    except (TypeError, Refusal) as error:
        raise Refusal(f"{where}: {error}" if where else str(error)) from error
