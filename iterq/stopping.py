"""Signals that ask a command to come to rest."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

AGAIN = 1.0  # seconds within which a second signal is taken for the first: `timeout` sends one to a process and one to its group


@contextlib.contextmanager
def stopping() -> Iterator[Callable[[], bool]]:
    """A function that says whether SIGINT or SIGTERM has come; a second one, somewhat later, interrupts at once."""
    asked: list[float] = []

    def ask(number: int, frame: Any) -> None:
        asked.append(time.monotonic())
        if asked[-1] - asked[0] > AGAIN:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
