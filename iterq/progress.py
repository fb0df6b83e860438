"""A progress bar with rate and time left on a terminal, plain lines elsewhere; always on stderr."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


@contextlib.contextmanager
def progress(label: str, total: float, unit: str) -> Iterator[Callable[[float], None]]:
    """A function that counts `total` units of work as they are done; it may be called from any thread."""
    if sys.stderr.isatty():
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(unit),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task(label, total=total)
            yield lambda done: bar.advance(task, done)
        return

    lock, started, state = threading.Lock(), time.monotonic(), {"done": 0.0, "said": 0}

    def advance(done: float) -> None:
        with lock:
            state["done"] += done
            share = state["done"] / total
            if int(10 * share) > state["said"]:
                state["said"] = int(10 * share)
                spent = time.monotonic() - started
                left = spent * (1 - share) / share
                print(f"{label}: {share:4.0%} of {total:g} {unit}, {spent:.0f} s, about {left:.0f} s left", file=sys.stderr, flush=True)

    yield advance
