"""Scores out of logs: run directories of ours, finished or not, and what other libraries leave behind (see `foreign.py`).

A log is a list of values with the steps at which they were seen, ragged and of any length. `curve` puts it on points that are the same for
all: epochs by the rule of the paper's protocol, or evenly spaced steps.
"""

import csv
import fcntl
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from iterq.epochs import arrived, epochs, kept
from iterq.errors import Refusal
from iterq.games import FORMS, human_normalised, references
from iterq.store import CONFIG, LOCK, config_from

RETURN, EVALUATION = "return", "eval"  # of training episodes, of greedy ones
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
    word = found and (found["gymnasium"] or found["classic"] or found["plain"])
    return next((game for game in references() if word and game.lower() == word.lower()), env)


def runs_in(path: Path) -> list[Path]:
    """The run directories at `path` or below it."""
    below = (found.parent for found in path.rglob(CONFIG))
    return [path] if (path / CONFIG).is_file() else sorted(run for run in below if (run / "episodes.csv").exists() or (run / LOCK).exists())


def read_run(folder: Path, metric: str) -> Source:
    """A run directory; what cannot be read in it is said in its warnings, and the rest is taken."""
    warnings: list[str] = []
    found = _json(folder / CONFIG, warnings)
    if not found or "env" not in found.get("settings", found):
        raise Refusal(f"{folder} is no run: its {CONFIG} names no environment")
    config = vars(config_from(found, str(folder / CONFIG)))
    episodes = _read(folder / "episodes.csv", _take_episode, warnings)
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


Rows = dict[str, list[tuple[float, ...]]]  # seed: (step of the log, value, seconds), and the length of an episode


def _read(path: Path, take: Callable[[Any, Rows], None], warnings: list[str]) -> Rows:
    """What `take` finds in the rows of a table, or in lines of JSON; those that it cannot take are counted."""
    found, bad = Rows(), 0
    try:
        with path.open(newline="", encoding="utf-8", errors="replace") as file:
            for row in csv.DictReader(file) if path.suffix == ".csv" else filter(str.strip, file):
                try:
                    take(row, found)
                except (KeyError, ValueError, TypeError, AttributeError):
                    bad += 1
    except FileNotFoundError:
        warnings.append(f"there is no {path.name}")
    except (OSError, csv.Error) as error:
        warnings.append(f"{path.name} cannot be read: {error}")
    if bad:
        warnings.append(f"{bad} lines of {path.name} cannot be read and were left out")
    return found


def _take_episode(row: dict[str, str], found: Rows) -> None:
    line = (int(row["step"]), float(row["return"]), float(row["wall_time"]), int(row["length"]))
    found.setdefault(str(int(row["seed"])), []).append(line)


def _metrics(path: Path, metric: str, warnings: list[str]) -> Rows:
    name, last = "eval/mean_reward" if metric == EVALUATION else metric, {}

    def take(line: str, found: Rows) -> None:
        row = json.loads(line)
        seed = str(int(row["seed"]))
        last[seed] = row.get("time/time_elapsed", last.get(seed, math.nan))
        if name in row:
            seen = (int(row["step"]), math.nan if row[name] is None else float(row[name]), last[seed])
            found.setdefault(seed, []).append(seen)

    found = _read(path, take, warnings)
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
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    return False


def curve(log: Log, metric: str, width: int, by_epochs: bool) -> tuple[np.ndarray, np.ndarray]:
    """(points,) values at multiples of `width` steps, as far as the log goes, and the seconds it took to get there.

    by_epochs: a point is an epoch, which ends with an episode. Otherwise it is the mean of what was seen since the last point; where that
    was nothing, the value before it stands. What was seen at step 0, before anything was learned, belongs to no point.
    """
    clock = np.full(len(log.steps), math.nan) if log.seconds is None else log.seconds
    if by_epochs and metric == RETURN:
        found = epochs(zip(log.steps.astype(int).tolist(), log.values.tolist(), strict=True), width)
        return np.array([epoch.mean_return for epoch in found]), clock[np.searchsorted(log.steps, [epoch.end for epoch in found])]
    # Episodes fill what lies between two points, and a part of that is no point. Metrics are seen now and then, and the last is one.
    whole = math.floor if metric in (RETURN, "") else math.ceil
    count = whole(log.steps[-1] / width) if log.steps.size else 0
    bins = np.ceil(log.steps / width).astype(int) - 1  # a point closes what came before it
    points, last = [], (math.nan, math.nan)
    for point in range(count):
        if (here := bins == point).any():
            last = log.values[here].mean(), clock[here][-1]
        points.append(last)
    values, seconds = np.array(points, float).reshape(-1, 2).T
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
    unit = abs(float(baseline.mean())) if baseline is not None and np.isfinite(baseline).all() else 0.0
    return (lambda x: x / unit) if unit > 1e-12 else None
