"""What every experiment of the paper has: a config with scales, quantities beside the paper's with a band each, a result folder."""

import contextlib
import dataclasses
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from iterq.store import RESULT, write_csv, write_json
from iterq.versions import versions

__all__ = ["Quantity", "Result", "Stopwatch", "write_csv"]


@dataclasses.dataclass(frozen=True)
class Quantity:
    """One number of the paper beside ours."""

    name: str
    ours: float
    spread: float | None = None  # standard deviation over seeds
    paper: float | None = None
    band: str = ""  # in words; empty: reported, not judged
    passed: bool | None = None  # None: not judged, or it cannot be told
    low: float | None = None  # of the 95 % interval of `ours`, where there is one
    high: float | None = None
    verdict: str = ""  # in words: better, worse, equal within …, cannot tell at … seeds


@dataclasses.dataclass
class Result:
    """What `reproduce` prints and writes."""

    experiment: str
    config: dict[str, Any]
    quantities: list[Quantity]
    notes: list[str] = dataclasses.field(default_factory=list)
    tables: list[tuple[str, Sequence[str], Sequence[Sequence[str]]]] = dataclasses.field(default_factory=list)  # title, header, rows
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return all(q.passed is not False for q in self.quantities)

    def as_json(self) -> dict[str, Any]:
        return {
            "experiment": self.experiment,
            "passed": self.passed,
            "config": {k: str(v) if isinstance(v, Path) else v for k, v in self.config.items()},
            "quantities": [{**dataclasses.asdict(q), "ours": q.ours if math.isfinite(q.ours) else None} for q in self.quantities],
            "notes": self.notes,
            "seconds": {k: round(v, 2) for k, v in self.seconds.items()},
            "versions": versions(),
        }

    def write(self, folder: Path) -> None:
        write_json(folder / RESULT, self.as_json())


@dataclasses.dataclass
class Stopwatch:
    """Where the time goes: `with watch("search"): …` adds up seconds by name."""

    seconds: dict[str, float] = dataclasses.field(default_factory=dict)

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + (time.perf_counter() - started)
