"""Runs in several processes, each with a share of them: one Python thread serves the environments of a process, and this gives them more.

A process is told by its standard input what to do, and says on its standard output, as JSON, how it went. On a GPU they take turns unless
NVIDIA's multi-process service is on (`nvidia-cuda-mps-control -d`).
"""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

from iterq.config import Config
from iterq.errors import Refusal
from iterq.stopping import stopping

SIGNALS = (signal.SIGINT, signal.SIGTERM)
COMMAND = [sys.executable, "-m", "iterq.apart"]
FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"  # of a GPU's memory, which a process takes when it starts


def go_on_apart(runs: dict[Path, Config], new: bool, processes: int) -> list[dict[str, Any]]:
    """`runs.go_on` with a share of the runs in each of `processes`. If one fails, the others come to rest before that is raised."""
    names = list(runs)
    shares = [names[i::processes] for i in range(min(processes, len(names)))]
    environment = {FRACTION: f"{0.9 / len(shares):.3f}", **os.environ}
    with stopping() as stop:
        # What comes before a process can listen waits until it does.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        children = [_start(runs, share, new, len(shares), environment) for share in shares]
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        told: set[subprocess.Popen] = set()
        while any(child.poll() is None for child in children):
            failed = any(child.poll() for child in children)
            for child in children:
                if (stop() or failed) and child.poll() is None and child not in told:
                    child.send_signal(signal.SIGTERM)
                    told.add(child)
            time.sleep(0.05)
    found: dict[str, dict[str, Any]] = {}
    answers = [(child, child.communicate()[0]) for child in children]
    # What one that was told to stop has to say is not why.
    for child, said in sorted(answers, key=lambda answer: answer[0] in told):
        died = f"a process that trained {len(runs)} runs together with others has died (exit code {child.returncode})"
        found |= {row["run"]: row for row in _answer(said, died)["rows"]}
    return [found[str(out)] for out in runs]


def rate_apart(settings: Config) -> float:
    """`training.steps_per_second` in a process of its own: one that has used a GPU keeps its memory from others until it ends."""
    order = json.dumps({"measure": dataclasses.asdict(settings), "processes": 1})
    child = subprocess.run(COMMAND, input=order, stdout=subprocess.PIPE, text=True)
    return _answer(child.stdout, f"a process that measured a rate has died (exit code {child.returncode})")["rate"]


def _answer(said: str, otherwise: str) -> dict[str, Any]:
    """What a process has said before it ended; what it refused is refused."""
    try:
        answer = json.loads(said)
    except ValueError:
        raise Refusal(otherwise) from None
    if "refused" in answer:
        raise Refusal(answer["refused"])
    return answer


def _start(runs: dict[Path, Config], share: list[Path], new: bool, processes: int, environment: dict[str, str]) -> subprocess.Popen:
    order = {"new": new, "processes": processes, "runs": {str(out): dataclasses.asdict(runs[out]) for out in share}}
    # In a session of its own: Ctrl-C comes to this process alone, which passes it on once.
    child = subprocess.Popen(
        COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True, cwd=os.getcwd()
    )
    assert child.stdin
    child.stdin.write(json.dumps(order))
    child.stdin.close()
    child.stdin = None  # or `communicate` would flush it once more
    return child


def _interrupt(number: int, frame: Any) -> NoReturn:
    raise KeyboardInterrupt


def _outlive_nobody(parent: int) -> None:
    """Stop, with a checkpoint, when the process that has started this one is gone."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """The other side."""
    from iterq.envs.workers import Workers
    from iterq.reproduce.training import steps_per_second
    from iterq.runs import go_on
    from iterq.store import config_from

    order = json.load(sys.stdin)
    Workers.beside = order["processes"]
    for number in SIGNALS:
        signal.signal(number, _interrupt)
    threading.Thread(target=_outlive_nobody, args=(os.getppid(),), daemon=True).start()
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        if "measure" in order:
            answer = {"rate": steps_per_second(config_from(order["measure"]))}
        else:
            runs = {Path(out): config_from(fields) for out, fields in order["runs"].items()}
            answer = {"rows": go_on(runs, order["new"], share_of=order["processes"])}
        code = 0
    except Refusal as error:
        answer, code = {"refused": str(error)}, 2
    except KeyboardInterrupt:
        answer, code = {"refused": "interrupted before training had begun"}, 2
    with contextlib.suppress(OSError):  # nobody may be there any more
        print(json.dumps(answer), flush=True)
    os._exit(code)  # see cli.main


if __name__ == "__main__":
    sys.path.insert(0, "")
    main()
