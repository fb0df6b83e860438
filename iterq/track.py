"""The logs of a run directory, which a run that was interrupted continues exactly.

`episodes.csv` has a line per finished episode, `metrics.jsonl` an object per seed and report, by Stable-Baselines3's names. Both only
grow, so a checkpoint need only say how long they were and what their SHA-256 was: what follows is cut off when the run goes on from it.
TensorBoard's `tb/` is a projection of metrics.jsonl and written anew on that occasion; a W&B run is continued by its id in `wandb.json`.
"""

import collections
import contextlib
import dataclasses
import hashlib
import json
import math
import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from iterq.config import Config
from iterq.errors import Refusal
from iterq.store import write_json

Episode = tuple[int, int, float, int]  # seed, step at its end, return, length

EPISODES, METRICS, TENSORBOARD, WANDB_IDS = "episodes.csv", "metrics.jsonl", "tb", "wandb.json"
HEADER = "seed,step,return,length,wall_time\n"
WINDOW = 100  # episodes that SB3 averages over
ELAPSED = "time/time_elapsed"

# What others call the metrics; those not named here keep SB3's names.
STYLES = {
    "sb3": {},
    "cleanrl": {
        "rollout/ep_rew_mean": "charts/episodic_return",
        "rollout/ep_len_mean": "charts/episodic_length",
        "rollout/exploration_rate": "charts/epsilon",
        "time/fps": "charts/SPS",
        "train/loss": "losses/td_loss",
    },
    "dopamine": {
        "rollout/ep_rew_mean": "Train/AverageReturns",
        "time/fps": "Train/AverageStepsPerSecond",
        "eval/mean_reward": "Eval/AverageReturns",
    },
}


def styled(row: dict, style: str) -> dict[str, float]:
    """The numbers of a line of metrics by the names of a style, without the seed and the step they belong to."""
    names = STYLES[style]
    return {names.get(k, k): v for k, v in row.items() if k not in ("seed", "step") and isinstance(v, int | float)}


class Tracker:
    """Writes the logs of a run; closing it twice is fine."""

    def __init__(self, folder: Path, config: Config, marks: dict | None = None) -> None:
        """Open the logs of a run.

        `marks`: what `marks()` returned when the checkpoint was written from which the run goes on; None: from the beginning.
        """
        self._logs = {name: _Log(folder / name, marks and marks[name]) for name in (EPISODES, METRICS)}
        self._recent: dict[int, collections.deque[tuple[float, int]]] = {}
        self._board = self._wandb = None
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as opened:  # closes what is open already if something below fails
            if config.wandb:  # first, because it may yet refuse
                self._wandb = _Wandb(folder, config, resumed=marks is not None, opened=opened)
            for log in self._logs.values():
                log.open(opened)
            if marks is None:
                self._logs[EPISODES].write(HEADER)
            else:
                for line in self._logs[EPISODES].lines():
                    seed, _, total, length, _ = line.split(",")
                    self._remember(int(seed), float(total), int(length))
            if config.tensorboard:
                try:
                    self._board = _TensorBoard(folder / TENSORBOARD, config.log_style)
                except ImportError:
                    print("tensorboard is not installed: this run goes without its events", file=sys.stderr)
                else:
                    opened.callback(self._board.close)
                    self._board.rewrite(self._logs[METRICS].lines)
            self._opened = opened.pop_all()

    def episodes(self, rows: Iterable[Episode], wall: float) -> None:
        """Append finished episodes; `wall`: seconds, noted to the millisecond."""
        lines = []
        for seed, step, total, length in rows:
            self._remember(int(seed), float(total), int(length))
            lines.append(f"{int(seed)},{int(step)},{float(total)!r},{int(length)},{round(float(wall), 3)!r}\n")
        self._logs[EPISODES].write("".join(lines))

    def metrics(self, rows: list[dict]) -> None:
        """Append lines of metrics; each has a "seed", a "step" and metrics by SB3's names, null where they are not finite."""
        rows = [{name: _plain(value) for name, value in row.items()} for row in rows]
        self._logs[METRICS].write("".join(json.dumps(row, allow_nan=False) + "\n" for row in rows))
        for log in self._logs.values():
            log.flush()
        if self._board:
            for row in rows:
                self._board.add(row, time.time())
            self._board.flush()
        if self._wandb:
            for row in rows:
                self._wandb.add(row)

    def recent(self, seed: int) -> list[tuple[float, int]]:
        """Return and length of the last 100 episodes of a seed."""
        return list(self._recent.get(seed, ()))

    def marks(self) -> dict:
        """Bring the files to the disk and say what they hold, for a checkpoint."""
        return {name: log.mark() for name, log in self._logs.items()}

    def close(self) -> None:
        """Write out what is pending and close everything, even where one of them fails."""
        self._opened.close()

    def _remember(self, seed: int, total: float, length: int) -> None:
        self._recent.setdefault(seed, collections.deque(maxlen=WINDOW)).append((total, length))


def _plain(value: Any) -> Any:
    """A number of NumPy or JAX as Python's own, and None for one that JSON cannot write."""
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


class _Log:
    """A file that only grows, its length and its running SHA-256. Making one checks the file, `open` is the first to change it."""

    def __init__(self, path: Path, mark: dict | None) -> None:
        self._path, self._bytes, self._sha = path, mark["bytes"] if mark else 0, hashlib.sha256()
        if mark is None:
            return
        if not path.is_file():
            raise Refusal(f"{path} is damaged: it is not there any more")
        with path.open("rb") as file:
            left = self._bytes
            while chunk := file.read(min(left, 1 << 20)):
                self._sha.update(chunk)
                left -= len(chunk)
        if left:
            raise Refusal(f"{path} is damaged: it has {self._bytes - left} bytes, but the checkpoint was written after {self._bytes}")
        if self._sha.hexdigest() != mark["sha256"]:
            raise Refusal(f"{path} is damaged: its first {self._bytes} bytes are not those the checkpoint was written after")

    def open(self, opened: contextlib.ExitStack) -> None:
        self._file = opened.enter_context(self._path.open("r+b" if self._bytes else "wb"))
        if self._bytes:
            self._file.truncate(self._bytes)
            self._file.seek(self._bytes)

    def write(self, text: str) -> None:
        data = text.encode()
        self._file.write(data)
        self._sha.update(data)
        self._bytes += len(data)

    def lines(self) -> Iterator[str]:
        """What a resumed run has kept, but for the header."""
        with self._path.open(encoding="utf-8", newline="\n") as file:
            yield from (line for line in file if line != HEADER)

    def flush(self) -> None:
        self._file.flush()

    def mark(self) -> dict:
        self._file.flush()
        os.fsync(self._file.fileno())
        return {"bytes": self._bytes, "sha256": self._sha.hexdigest()}


class _TensorBoard:
    """Event files, one folder per seed."""

    def __init__(self, folder: Path, style: str) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._folder, self._style = folder, style
        self._proto: Any = (event_pb2, summary_pb2)  # their classes come into being on import, unseen by type checkers
        self._new_writer, self._writers = EventFileWriter, {}

    def add(self, row: dict, wall: float) -> None:
        event, summary = self._proto
        seed = row["seed"]
        if seed not in self._writers:
            self._writers[seed] = self._new_writer(str(self._folder / f"seed_{seed}"))
        values = [summary.Summary.Value(tag=name, simple_value=value) for name, value in styled(row, self._style).items()]
        self._writers[seed].add_event(event.Event(wall_time=wall, step=row["step"], summary=summary.Summary(value=values)))

    def rewrite(self, lines: Callable[[], Iterator[str]]) -> None:
        """Start anew from these lines of metrics, timed by what they say so that the time axis leaves out the interruption."""
        if self._folder.exists():
            shutil.rmtree(self._folder)
        elapsed = max((json.loads(line).get(ELAPSED) or 0.0 for line in lines()), default=0.0)
        began, elapsed = time.time() - elapsed, 0.0
        for row in map(json.loads, lines()):
            elapsed = row.get(ELAPSED) or elapsed
            self.add(row, began + elapsed)
        self.flush()

    def flush(self) -> None:
        for writer in self._writers.values():
            writer.flush()

    def close(self) -> None:
        with contextlib.ExitStack() as closing:
            for writer in self._writers.values():
                closing.callback(writer.close)


class _Wandb:
    """A Weights & Biases run per seed, side by side in this process and in one group."""

    def __init__(self, folder: Path, config: Config, resumed: bool, opened: contextlib.ExitStack) -> None:
        try:
            import wandb
        except ImportError as error:
            raise Refusal("this needs wandb: pip install 'iterq[wandb]'") from error
        self._style, self._runs = config.log_style, {}
        known = _run_ids(folder / WANDB_IDS) if resumed else {}
        for seed in config.seeds:
            try:
                run = wandb.init(
                    project=config.wandb,
                    group=f"{config.algorithm}-{config.env}",
                    name=f"seed-{seed}",
                    job_type="train",
                    config=dataclasses.asdict(config),
                    allow_val_change=True,  # a resumed run may have been given more steps
                    dir=folder,
                    id=known.setdefault(str(seed), secrets.token_hex(4)),
                    resume="allow",
                    reinit="create_new",
                )
            except wandb.Error as error:
                raise Refusal(f"wandb: {' '.join(str(error).split())}") from error
            opened.callback(run.finish)
            self._runs[seed] = run, run.step
        # Only now, with nothing logged yet: had a run been refused, the ids of an earlier one would be lost.
        aside = folder / f".{WANDB_IDS}"
        write_json(aside, known)
        os.replace(aside, folder / WANDB_IDS)

    def add(self, row: dict) -> None:
        run, first = self._runs[row["seed"]]
        if row["step"] >= first:  # what W&B got between the checkpoint and the crash is not sent again
            run.log(styled(row, self._style), step=row["step"])


def _run_ids(path: Path) -> dict[str, str]:
    """W&B's run ids by seed; none if the run was started without W&B."""
    try:
        ids = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise Refusal(f"{path} is damaged: {error}; without it the run goes on under new W&B ids") from error
    if not isinstance(ids, dict) or not all(isinstance(value, str) for value in ids.values()):
        raise Refusal(f"{path} is damaged: it should give a W&B run id for every seed; without it the run goes on under new ones")
    return ids
