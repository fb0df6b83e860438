"""Independent jobs on a few threads, which XLA runs side by side, one core each; Ctrl-C gets through at once."""

import os
import queue
import threading
from collections.abc import Callable
from typing import Any


def run_all(jobs: dict[Any, Callable[[], Any]], workers: int | None = None) -> dict[Any, Any]:
    """{name: job()} of all jobs, started in the order given; the first failure is raised as it happens."""
    todo: queue.SimpleQueue = queue.SimpleQueue()
    done: queue.SimpleQueue = queue.SimpleQueue()
    for item in jobs.items():
        todo.put(item)

    def work() -> None:
        while True:
            try:
                name, job = todo.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((name, job(), None))
            except BaseException as error:  # noqa: BLE001, raised again in the caller's thread
                done.put((name, None, error))

    # Daemons: an interrupted program does not wait for a compiled loop that cannot be interrupted.
    for _ in range(min(len(jobs), workers or len(os.sched_getaffinity(0)))):
        threading.Thread(target=work, daemon=True).start()

    results = {}
    while len(results) < len(jobs):
        try:
            name, result, error = done.get(timeout=0.2)
        except queue.Empty:
            continue
        if error is not None:
            raise error
        results[name] = result
    return results
