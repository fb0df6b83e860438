"""The logs of a run directory, which a run that was interrupted continues exactly.

`episodes.csv` has a line per finished episode, `metrics.jsonl` an object per seed and report, by Stable-Baselines3's names. Both only
grow, so a checkpoint need only say how long they were and what their SHA-256 was: what follows is cut off when the run goes on from it.
TensorBoard's `tb/` is a projection of metrics.jsonl and written anew on that occasion; a W&B run is continued by its id in `wandb.json`.
"""

import collections
import contextlib
import hashlib
import json
import math
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from iterq.config import Config
from iterq.errors import Refusal
from iterq.sinks import TENSORBOARD, TensorBoard, WeightsAndBiases

Episode = tuple[int, int, float, int]  # seed, step at its end, return, length

EPISODES, METRICS = "episodes.csv", "metrics.jsonl"
HEADER = "seed,step,return,length,wall_time\n"
WINDOW = 100  # episodes that SB3 averages over


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
                self._wandb = WeightsAndBiases(folder, config, resumed=marks is not None, opened=opened)
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
                    self._board = TensorBoard(folder / TENSORBOARD, config.log_style)
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
        self._logs[EPISODES].flush()

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
