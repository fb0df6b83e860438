"""Runs in several processes, each with a share of them: one Python thread serves the environments of a process, and this gives them more.

A process is told by its standard input what to do, and says on its standard output, in lines of JSON, how far it is and how it went.
Where there are several GPUs, processes go round them. Those on one GPU take turns unless NVIDIA's multi-process service is on
(`nvidia-cuda-mps-control -d`).
"""

import contextlib
import dataclasses
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from iterq.config import Config
from iterq.errors import Refusal
from iterq.progress import shown
from iterq.stopping import stopping

SIGNALS = (signal.SIGINT, signal.SIGTERM)
COMMAND = [sys.executable, "-m", "iterq.apart"]
FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"  # of a GPU's memory, which a process takes when it starts
VISIBLE, OF_JAX = "CUDA_VISIBLE_DEVICES", "JAX_CUDA_VISIBLE_DEVICES"  # names of GPUs, and a choice among these


class Child:
    """One of the processes, and what it has said so far: how many steps it has done of how many, and in the end how it went."""

    def __init__(self, process: subprocess.Popen) -> None:
        assert process.stdout
        self.process, self.pipe, self.said, self._rest = process, process.stdout, dict[str, Any](), b""
        os.set_blocking(self.pipe.fileno(), False)

    def hear(self) -> None:
        """Take in what has come."""
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(self.pipe.fileno(), 1 << 16):
                *lines, self._rest = (self._rest + piece).split(b"\n")
                self.said |= _words(lines)


def _words(lines: Iterable[str | bytes]) -> dict[str, Any]:
    """What a process says in `lines`, the last word on everything."""
    said = {}
    for line in lines:
        with contextlib.suppress(ValueError, TypeError):  # something else may print there, too
            said |= json.loads(line)
    return said


def gpus() -> int:
    """How many NVIDIA GPUs there are, found out without touching them: a process that has used one keeps some of its memory."""
    return sum(path.name.removeprefix("nvidia").isdigit() for path in Path("/dev").glob("nvidia*"))


def places(count: int, given: Mapping[str, str], gpus: int) -> list[dict[str, str]]:
    """The environment variables of `count` processes, out of the `given` ones, on a machine with so many GPUs.

    Each sees one of the GPUs that are visible, in turn, and takes its share of that one's memory. What the user has said is kept to.
    """
    said = given[VISIBLE].split(",") if VISIBLE in given else map(str, range(gpus))
    names = list(itertools.takewhile(lambda name: name.strip() not in ("", "-1"), said))  # the first that is none ends the list
    if len(names) < 2 or OF_JAX in given:
        return [{FRACTION: f"{0.9 / count:.3f}", **given}] * count
    beside = [len(range(i % len(names), count, len(names))) for i in range(count)]
    return [{FRACTION: f"{0.9 / beside[i]:.3f}", **given, VISIBLE: names[i % len(names)]} for i in range(count)]


def go_on_apart(runs: dict[Path, Config], new: bool, processes: int) -> list[dict[str, Any]]:
    """`runs.go_on` with a share of the runs in each of `processes`. If one fails, the others come to rest before that is raised."""
    names = list(runs)
    shares = [names[i::processes] for i in range(min(processes, len(names)))]
    variables = places(len(shares), os.environ, gpus())
    with stopping() as stop, contextlib.ExitStack() as bars:
        # What comes before a process can listen waits until it does.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        children = [Child(_start(runs, share, new, len(shares), mine)) for share, mine in zip(shares, variables, strict=True)]
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        told: set[Child] = set()
        advance, done = None, 0

        def hear() -> None:
            nonlocal advance, done
            for child in children:
                child.hear()
            if all("of" in child.said for child in children):
                advance = advance or bars.enter_context(shown(sum(child.said["of"] for child in children)))
                now = sum(child.said["done"] for child in children)
                advance(now - done)
                done = now

        while running := [child for child in children if child.process.poll() is None]:
            failed = any(child.process.poll() for child in children)
            for child in running:
                # Whoever has ended since `running` was looked up did so unasked.
                if (stop() or failed) and child not in told and child.process.poll() is None:
                    child.process.send_signal(signal.SIGTERM)
                    told.add(child)
            select.select([child.pipe for child in running], [], [], 0.05)
            hear()
        hear()
        for child in children:
            child.pipe.close()
    found: dict[str, dict[str, Any]] = {}
    # What one that was told to stop has to say is not why.
    for child in sorted(children, key=lambda child: child in told):
        died = f"a process that trained {len(runs)} runs together with others has died (exit code {child.process.returncode})"
        found |= {row["run"]: row for row in _answer(child.said, "rows", died)}
    return [found[str(out)] for out in runs]


def rate_apart(settings: Config) -> float:
    """`rates.steps_per_second` in a process of its own: one that has used a GPU keeps its memory from others until it ends."""
    order = json.dumps({"measure": dataclasses.asdict(settings), "processes": 1})
    child = subprocess.run(COMMAND, input=order, stdout=subprocess.PIPE, text=True)
    died = f"a process that measured a rate has died (exit code {child.returncode})"
    return _answer(_words(child.stdout.splitlines()), "rate", died)


def _answer(said: dict[str, Any], name: str, otherwise: str) -> Any:
    """What a process has said under `name` before it ended; what it refused is refused."""
    if name not in said:
        raise Refusal(said.get("refused", otherwise))
    return said[name]


def _start(runs: dict[Path, Config], share: list[Path], new: bool, processes: int, environment: dict[str, str]) -> subprocess.Popen:
    order = {"new": new, "processes": processes, "runs": {str(out): dataclasses.asdict(runs[out]) for out in share}}
    # In a session of its own: Ctrl-C comes to this process alone, which passes it on once.
    process = subprocess.Popen(
        COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True, cwd=os.getcwd()
    )
    assert process.stdin
    with process.stdin as theirs:
        theirs.write(json.dumps(order).encode())
    return process


def _say(words: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # nobody may be there any more
        print(json.dumps(words), flush=True)


@contextlib.contextmanager
def _telling(steps: int) -> Iterator[Callable[[float], None]]:
    """A bar for another process to show."""
    done = 0.0

    def advance(more: float) -> None:
        nonlocal done
        done += more
        _say({"done": done, "of": steps})

    advance(0)
    yield advance


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
    from iterq.rates import steps_per_second
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
            answer = {"rows": go_on(runs, order["new"], share_of=order["processes"], bar=_telling)}
        code = 0
    except Refusal as error:
        answer, code = {"refused": str(error)}, 2
    except KeyboardInterrupt:
        answer, code = {"refused": "interrupted before training had begun"}, 2
    _say(answer)
    os._exit(code)  # see cli.main


if __name__ == "__main__":
    sys.path.insert(0, "")
    main()
