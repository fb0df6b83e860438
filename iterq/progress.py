"""A progress bar with rate and time left on a terminal, plain lines elsewhere; always on stderr."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

Bar = Callable[[int], contextlib.AbstractContextManager[Callable[[float], None]]]  # steps to go -> what is told of those that are done
SILENCE = 300  # seconds after which another plain line comes before the next tenth is done


@contextlib.contextmanager
def progress(label: str, total: float, unit: str) -> Iterator[Callable[[float], None]]:
    """A function that counts `total` units of work as they are done; it may be called from any thread."""
    lock, started, done, tenths = threading.Lock(), time.monotonic(), 0.0, 0

    def rate() -> str:
        return f"{done / (time.monotonic() - started):,.0f} {unit}/s"

    if sys.stderr.isatty():
        rates = TextColumn("{task.fields[rate]}")
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), rates, TimeElapsedColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task(label, total=total, rate="")

            def advance(more: float) -> None:
                nonlocal done
                with lock:
                    done += more
                    bar.update(task, completed=done, rate=rate())

            yield advance
        return

    said = started

    def say(more: float) -> None:
        nonlocal done, tenths, said
        with lock:
            done += more
            share, now = done / total, time.monotonic()
            if int(10 * share + 1e-9) > tenths or (done and now - said > SILENCE):
                tenths, said = int(10 * share + 1e-9), now
                spent = now - started
                left = spent * (1 - share) / share
                print(f"{label}: {share:.0%}, {rate()}, {spent:.0f} s, about {left:.0f} s left", file=sys.stderr, flush=True)

    yield say


def shown(steps: int) -> contextlib.AbstractContextManager[Callable[[float], None]]:
    """Progress of training."""
    return progress("training", max(steps, 1), "steps")


def silent(steps: int) -> contextlib.AbstractContextManager[Callable[[float], None]]:
    """Nothing."""
    return contextlib.nullcontext(lambda done: None)
