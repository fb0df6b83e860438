"""Results of others to compare with: what Dopamine, Stable-Baselines3, TensorBoard and rliable leave behind, and plain CSVs.

Nothing is unpickled.
"""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from iterq.errors import Refusal
from iterq.report.scores import EPOCH, Log, Source, task_of

# What a column or a tag may be called.
COLUMNS = {
    "label": ("label", "method", "agent", "algorithm", "algo", "exp_name"),
    "task": ("task", "game", "env", "env_id", "environment"),
    "seed": ("seed", "run"),
    "step": ("step", "steps", "global_step", "timesteps", "total_timesteps", "frame", "frames", "iteration", "epoch"),
    "value": ("value", "mean_return", "return", "returns", "score", "episodic_return", "reward", "ep_rew_mean"),
}
TAGS = ("eval/mean_reward", "rollout/ep_rew_mean", "charts/episodic_return", "Train/AverageReturns", "Eval/AverageReturns")


def is_foreign(path: Path) -> bool:
    """Whether `path` looks like one of these."""
    return any(path.glob("events.out.tfevents*")) if path.is_dir() else path.suffix in (".json", ".csv", ".npz") and path.is_file()


Found = list[tuple[str, str, list[Log]]]  # label, task, and the agents there


def read_foreign(path: Path, metric: str) -> list[Source]:
    """What is in a file, or in a folder of TensorBoard's. metric: a column of a table, if it has one of that name."""
    readers: dict[str, Callable[[Path], Found]] = {
        ".json": dopamine,
        ".csv": lambda path: monitor_or_table(path, metric),
        ".npz": rliable,
    }
    try:
        found = tensorboard(path) if path.is_dir() else readers[path.suffix](path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, csv.Error) as error:
        raise Refusal(f"{path} cannot be understood: {type(error).__name__}: {error}") from error
    return [Source(str(path), label, task, logs, {}, {}, "given", [], []) for label, task, logs in found]


def dopamine(path: Path) -> Found:
    """`[{"Iteration": …, "Value": …, "Agent": …}, …]` of one game, runs one after another; an iteration has 250 000 steps."""
    runs: dict[str, list[list[float]]] = {}
    rows = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(rows, list) or not rows:
        raise ValueError("there is no list of iterations in it")
    for row in rows:
        of_agent = runs.setdefault(str(row["Agent"]), [])
        if row["Iteration"] == 0 or not of_agent:
            of_agent.append([])
        of_agent[-1].append(float(row["Value"]))
    task = task_of(path.stem.split("_")[0].split(".")[0])
    return [
        (label, task, [_log(str(i), EPOCH * (1 + np.arange(len(x))), np.array(x)) for i, x in enumerate(found)])
        for label, found in runs.items()
    ]


def monitor_or_table(path: Path, metric: str) -> Found:
    """A monitor file of Stable-Baselines3 (`#{…}`, then r,l,t), or a table with a header."""
    with path.open(newline="", encoding="utf-8") as file:
        first = file.readline()
        if first.startswith("#"):
            env = json.loads(first[1:]).get("env_id") or "unknown"
            rows = [(float(row["r"]), int(row["l"]), float(row["t"])) for row in csv.DictReader(file)]
            returns, lengths, seconds = np.array(rows, float).reshape(-1, 3).T
            return [(path.resolve().parent.name, task_of(str(env)), [_log("0", np.cumsum(lengths), returns, seconds)])]
        file.seek(0)
        return table(path, list(csv.DictReader(file)), metric)


def table(path: Path, rows: list[dict[str, str]], metric: str) -> Found:
    """One line per agent and point, under any of the usual names; without labels, a column K is one."""
    names = {name.strip().lower(): name for name in rows[0]} if rows else {}
    where = {what: next((names[name] for name in options if name in names), None) for what, options in COLUMNS.items()}
    where["value"] = metric if metric in names.values() else where["value"]
    if where["value"] is None or where["step"] is None:
        raise Refusal(
            f"{path} has no column for steps and values; known are {', '.join(COLUMNS['step'])} and {', '.join(COLUMNS['value'])}"
        )
    found: dict[tuple[str, str], dict[str, list[tuple[float, float]]]] = {}
    for row in rows:
        label = row[where["label"]] if where["label"] else f"K = {row['K']}" if "K" in row else path.stem
        task = task_of(row[where["task"]]) if where["task"] else path.stem
        seed = row[where["seed"]] if where["seed"] else "0"
        found.setdefault((label, task), {}).setdefault(seed, []).append((float(row[where["step"]]), float(row[where["value"]])))
    return [
        (label, task, [_log(seed, *np.array(sorted(x), float).T) for seed, x in agents.items()]) for (label, task), agents in found.items()
    ]


def rliable(path: Path) -> Found:
    """Arrays (runs, tasks) or (runs, tasks, points) by algorithm, with `tasks` and `steps` beside them if they are known."""
    with np.load(path, allow_pickle=False) as file:
        arrays: dict[str, Any] = {name: file[name] for name in file.files}
    tasks, steps = arrays.pop("tasks", None), arrays.pop("steps", None)
    found = []
    for label, scores in arrays.items():
        if scores.ndim not in (2, 3):
            raise Refusal(f"{path}: {label} has shape {scores.shape}, not (runs, tasks) or (runs, tasks, points)")
        scores = scores if scores.ndim == 3 else scores[..., None]
        at = np.asarray(steps if steps is not None else 1 + np.arange(scores.shape[2]), float)
        names = [f"task {t}" if tasks is None else task_of(str(tasks[t])) for t in range(scores.shape[1])]
        found += [
            (label, name, [_log(str(run), at, x.astype(float)) for run, x in enumerate(scores[:, t])]) for t, name in enumerate(names)
        ]
    return found


def tensorboard(path: Path) -> Found:
    """A folder of event files, of one run."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(path), size_guidance={"scalars": 0})
    events.Reload()
    tag = next((tag for tag in TAGS if tag in events.Tags()["scalars"]), None)
    if tag is None:
        raise Refusal(f"{path} has none of the scalars {', '.join(TAGS)}")
    steps, values, seconds = np.array([(row.step, row.value, row.wall_time) for row in events.Scalars(tag)]).T
    log = _log("0", steps, values, seconds - seconds[0])
    task, _, label = path.resolve().name.partition("__")  # CleanRL's folders: ENV__NAME__SEED__TIME
    return [(label.split("__")[0] or task, task_of(task) if label else "unknown", [log])]


def _log(seed: str, steps: np.ndarray, values: np.ndarray, seconds: np.ndarray | None = None) -> Log:
    good = np.isfinite(values) & np.isfinite(steps)
    return Log(seed, steps[good], values[good], None if seconds is None else seconds[good])
