"""Scores out of logs: run directories of ours, finished or not, and what other libraries leave behind (see `foreign.py`).

A log is a list of values with the steps at which they were seen, ragged and of any length. `curve` puts it on points that are the same for
all: epochs by the rule of the paper's protocol, or evenly spaced steps.
"""

import csv
import fcntl
import json
import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from iterq.epochs import arrived, epochs, kept
from iterq.errors import Refusal
from iterq.games import FORMS, human_normalised, references
from iterq.identity import settings_in
from iterq.store import CONFIG, LOCK

RETURN, EVALUATION = "return", "eval"  # of training episodes, of greedy ones
NAMES = {EVALUATION: "eval/mean_reward"}
EPOCH, POINTS = 250_000, 100


class Log(NamedTuple):
    """What one agent has left behind."""

    seed: str
    steps: np.ndarray  # (rows,) environment steps, which leave out resets
    values: np.ndarray  # (rows,)
    seconds: np.ndarray | None = None  # (rows,) since training of all seeds of a run together began, where that is known


class Source(NamedTuple):
    """A run directory or a file, and the agents in it. `label` is empty where it follows from the settings."""

    name: str
    label: str
    task: str
    logs: list[Log]
    config: dict[str, Any]
    versions: dict[str, str]
    status: str  # finished, running, stopped, crashed; given: from elsewhere
    warnings: list[str]
    videos: list[Path]


def task_of(env: str) -> str:
    """`Pong` for every id of that game; other ids as they are."""
    found = FORMS.fullmatch(env)
    known = {game.lower(): game for game in references()}
    word = found and (found["gymnasium"] or found["classic"] or found["plain"])
    return known.get(word.lower(), env) if word else env


def runs_in(path: Path) -> list[Path]:
    """The run directories at `path` or below it."""
    if (path / CONFIG).is_file():
        return [path]
    return sorted(
        found.parent for found in path.rglob(CONFIG) if (found.parent / "episodes.csv").exists() or (found.parent / LOCK).exists()
    )


def read_run(folder: Path, metric: str) -> Source:
    """A run directory; what cannot be read in it is said in its warnings, and the rest is taken."""
    warnings: list[str] = []
    config = settings_in(found) if (found := _json(folder / CONFIG, warnings)) else {}
    if not isinstance(config.get("env"), str):
        raise Refusal(f"{folder} is no run: its {CONFIG} names no environment")
    episodes = _episodes(folder / "episodes.csv", warnings)
    rows = episodes if metric == RETURN else _metrics(folder / "metrics.jsonl", metric, warnings)
    logs = {str(seed): Log(str(seed), np.zeros(0), np.zeros(0)) for seed in config.get("seeds", ())}
    for seed, found in rows.items():
        steps, values, seconds, *lengths = (np.array(x, float) for x in zip(*found, strict=True))
        # Every episode that ended before step n of the log was followed by a step that only reset.
        resets = np.searchsorted(np.sort([row[0] for row in episodes.get(seed, [])]), steps)
        steps = np.cumsum(lengths[0]) if lengths else steps - resets
        good = np.isfinite(values)
        if not good.all():
            warnings.append(f"{(~good).sum()} values of seed {seed} are not finite and were left out")
        logs[seed] = Log(seed, steps[good], values[good], seconds[good])
    last = max((found[-1][0] for found in rows.values()), default=0)
    versions = _json(folder / "versions.json", warnings) if (folder / "versions.json").exists() else {}
    videos = sorted(path for path in folder.rglob("*") if path.suffix in (".gif", ".mp4"))
    return Source(
        str(folder), "", task_of(config["env"]), list(logs.values()), config, versions, _status(folder, config, last), warnings, videos
    )


def _json(path: Path, warnings: list[str]) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        warnings.append(f"{path.name} cannot be read ({error.__class__.__name__})")
        return {}
    return found if isinstance(found, dict) else {}


def _read_lines(path: Path, rows: Callable[[Any], Iterable[Any]], take: Callable[[Any], Any], warnings: list[str]) -> None:
    """`take` every row; those that it cannot take are counted."""
    bad = 0
    try:
        with path.open(newline="", encoding="utf-8", errors="replace") as file:
            for row in rows(file):
                try:
                    take(row)
                except (KeyError, ValueError, TypeError, AttributeError):
                    bad += 1
    except FileNotFoundError:
        warnings.append(f"there is no {path.name}")
    except (OSError, csv.Error) as error:
        warnings.append(f"{path.name} cannot be read: {error}")
    if bad:
        warnings.append(f"{bad} lines of {path.name} cannot be read and were left out")


Rows = dict[str, list[tuple[float, ...]]]  # seed: (step of the log, value, seconds), and the length of an episode


def _episodes(path: Path, warnings: list[str]) -> Rows:
    found: Rows = {}

    def take(row: dict[str, str]) -> None:
        line = (int(row["step"]), float(row["return"]), float(row["wall_time"]), int(row["length"]))
        found.setdefault(str(int(row["seed"])), []).append(line)

    _read_lines(path, csv.DictReader, take, warnings)
    return found


def _metrics(path: Path, metric: str, warnings: list[str]) -> Rows:
    name, found, last = NAMES.get(metric, metric), Rows(), {}

    def take(line: str) -> None:
        row = json.loads(line)
        seed = str(int(row["seed"]))
        last[seed] = row.get("time/time_elapsed", last.get(seed, math.nan))
        if name in row:
            value = math.nan if row[name] is None else float(row[name])
            found.setdefault(seed, []).append((int(row["step"]), value, last[seed]))

    _read_lines(path, lambda file: (line for line in file if line.strip()), take, warnings)
    if not found:
        warnings.append(f"it has no metric {name!r}")
    return found


def _status(folder: Path, config: dict[str, Any], last: float) -> str:
    """A run that stops by itself writes a checkpoint last."""
    if _held(folder / LOCK):
        return "running"
    return "finished" if arrived(folder, config) else "stopped" if kept(folder) >= last else "crashed"


def _held(lock: Path) -> bool:
    """Whether a process is at work in a run directory."""
    try:
        file = os.open(lock, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(file, fcntl.LOCK_UN)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


def curve(log: Log, metric: str, width: int, by_epochs: bool) -> tuple[np.ndarray, np.ndarray]:
    """(points,) values at multiples of `width` steps, as far as the log goes, and the seconds it took to get there.

    by_epochs: a point is an epoch, which ends with an episode. Otherwise it is the mean of what was seen since the last point; where that
    was nothing, the value before it stands. What was seen at step 0, before anything was learned, belongs to no point.
    """
    if by_epochs and metric == RETURN:
        found = epochs(zip(log.steps.astype(int).tolist(), log.values.tolist(), strict=True), width)
        ends = np.searchsorted(log.steps, [epoch.end for epoch in found])
        seconds = np.full(len(found), math.nan) if log.seconds is None else log.seconds[ends]
        return np.array([epoch.mean_return for epoch in found]), seconds
    # Episodes fill what lies between two points, and a part of that is no point. Metrics are seen now and then, and the last is one.
    whole = math.floor if metric in (RETURN, "") else math.ceil
    count = whole(log.steps[-1] / width) if log.steps.size else 0
    bins = np.ceil(log.steps / width).astype(int) - 1  # a point closes what came before it
    values, seconds = np.full(count, math.nan), np.full(count, math.nan)
    for point in range(count):
        here = bins == point
        if here.any():
            values[point] = log.values[here].mean()
            seconds[point] = math.nan if log.seconds is None else log.seconds[here][-1]
        elif point:
            values[point], seconds[point] = values[point - 1], seconds[point - 1]
    return values, seconds


def point_width(longest: float, apart: float = 0) -> int:
    """Steps between points: a round number that gives about a hundred, or fewer where values are further `apart` than that."""
    size = max(longest / POINTS, apart, 1)
    unit = 10 ** math.floor(math.log10(size))
    return int(next(unit * k for k in (1, 2, 2.5, 5, 10) if unit * k >= size and unit * k == int(unit * k)))


def normaliser(task: str, baseline: np.ndarray | None) -> Callable[[np.ndarray], np.ndarray] | None:
    """What makes scores on `task` comparable with those on others: a human's for Atari, else the final score of a baseline."""
    if task in references():
        return np.vectorize(lambda x: human_normalised(task, x), otypes=[float])
    if baseline is not None and np.isfinite(baseline).all() and abs(float(baseline.mean())) > 1e-12:
        return lambda x: x / abs(float(baseline.mean()))
    return None
