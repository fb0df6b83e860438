"""The training loop: a fleet goes on from event to event, and what happens is logged, evaluated and checkpointed.

Events lie at multiples of their periods, counted in steps, so that a run that was stopped and resumed meets the same ones. One that goes
on for so many epochs ends at such an event, too: the first at which all of its agents have them. After a checkpoint at step n everything
up to n is on the disk; whatever came after it is done again, exactly, when the run is resumed.
"""

import contextlib
import math
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple

import numpy as np

from iterq import checkpoint
from iterq.config import Config
from iterq.ends import End
from iterq.envs.stepping import EnvironmentFailure
from iterq.epochs import Line, read_episodes
from iterq.errors import Refusal
from iterq.fleet import Evaluation, Fleet
from iterq.fleet.base import wide
from iterq.progress import Bar, shown
from iterq.stopping import stopping
from iterq.store import Run, config_hash
from iterq.track import Tracker

Callback = Callable[[int, Fleet], bool | None]  # (step, fleet); False stops the run
MOMENT = 1.0  # seconds between two looks at what has happened, where events are further apart


class Summary(NamedTuple):
    """How a call of `train` ended."""

    step: int
    finished: bool
    steps_per_second: float  # of all agents together, after warm-up
    mean_return: float | None  # of the last 100 episodes of every agent; None: no episode ended
    evaluations: list[Evaluation]  # the last one, per agent
    evaluated: int | None  # at which step that was


class Session:
    """A fleet in training, with or without a run directory."""

    def __init__(self, fleet: Fleet, config: Config, run: Run | None = None) -> None:
        self.fleet, self.config, self.run = fleet, config, run
        self.elapsed = 0.0  # seconds of training before this process
        self.evaluations: list[Evaluation] = []
        self.history: list[tuple[int, list[Evaluation]]] = []  # of this process: step and evaluation of every agent
        self.recent: dict[int, list[tuple[float, int]]] = {seed: [] for seed in fleet.seeds}  # the last 100 episodes, as SB3 counts
        self.end = End(config, fleet.seeds)
        self.evaluated = -1  # the last step of an evaluation
        self.tracker: Tracker | None = None
        if run:
            try:
                self._open(run)
            except BaseException as error:
                self.close()
                if isinstance(error, OSError):
                    raise Refusal(f"cannot write {run.folder}: {error.strerror or error}") from error
                raise

    def _open(self, run: Run) -> None:
        """Go on from the newest checkpoint, or begin the logs."""
        found = checkpoint.newest(run.folder, run.names(self.config))
        self.tracker = Tracker(run.folder, self.config, found.marks if found else None)
        if found:
            checkpoint.clear(run.folder)
            checkpoint.restore(found, self.fleet)
            self.elapsed, self.evaluated = found.elapsed, found.step
            self.recent = {seed: self.tracker.recent(seed) for seed in self.fleet.seeds}
            self.end.add(read_episodes(run.folder))

    def to_go(self, total: int | None = None) -> int:
        """Steps of all agents until `train` ends."""
        return self.end.to_go(max(self.fleet.n, 0), total)

    def train(self, total: int | None = None, bar: Bar = shown, callback: Callback | None = None) -> Summary:
        """Go on until every agent has taken `total` steps, or until a signal asks to stop. None: to where the configuration ends."""
        with stopping() as stop, bar(self.to_go(total)) as advance:
            pieces = self.training(total, advance, callback, stop)
            while True:
                try:
                    moved = next(pieces)
                except StopIteration as end:
                    return end.value
                if not moved:
                    self.fleet.wait()

    def training(
        self, total: int | None, advance: Callable[[float], None], callback: Callback | None, stop: Callable[[], bool]
    ) -> Generator[bool, None, Summary]:
        """`train` in small pieces; each yields whether there was anything to do but wait."""
        fleet, config, started = self.fleet, self.config, time.perf_counter()
        n = begun = max(fleet.n, 0)
        warm: tuple[float, int] | None = None
        looked, left = started, self.to_go(total)

        def look(until: float) -> None:
            nonlocal looked, left
            self._log_episodes(started, until)
            looked, before, left = time.perf_counter(), left, self.to_go(total)
            advance(before - left)

        with self._guarded(started):
            if self.evaluated < 0 and config.eval_every:
                self._evaluate(0)
            while not self.end.reached(n, total) and not stop():
                target = self.end.next(n, total)
                for moved in fleet.advancing(target, stop):
                    yield moved
                    if time.perf_counter() - looked > MOMENT:
                        look(until=fleet.n)  # others may be ahead: lines come in the order of steps
                n = fleet.n
                look(until=math.inf)
                if broken := fleet.broken():
                    raise Refusal(f"the loss of seed {broken[1]} was not finite at step {broken[0]}{self._last()}")
                if n % config.log_every == 0 and n == target:
                    self._log(n, started, (n - begun) / (time.perf_counter() - started))
                    if callback and callback(n, fleet) is False:
                        break
                if config.eval_every and n % config.eval_every == 0 and n == target:
                    self._evaluate(n)
                if config.checkpoint_every and n % config.checkpoint_every == 0 and n == target and not self.end.reached(n, total):
                    self.save(started)
                if warm is None and n > config.learning_starts + config.G:
                    warm = time.perf_counter(), n
            if n > begun:
                self.save(started)
        now = time.perf_counter()
        since, first = warm if warm and warm[1] < n else (started, begun)
        self.elapsed += now - started
        returns = [total for rows in self.recent.values() for total, _ in rows]
        rate = (n - first) * len(fleet.seeds) / (now - since)
        mean = float(np.mean(returns)) if returns else None
        return Summary(n, self.end.reached(n, total), rate, mean, self.evaluations, self.history[-1][0] if self.history else None)

    def save(self, started: float | None = None) -> None:
        """Write a checkpoint; before the first frame there is nothing to be kept."""
        if self.run and self.tracker and self.fleet.n >= 0:
            elapsed = self.elapsed + (time.perf_counter() - started if started else 0)
            try:
                checkpoint.save(self.run.folder, self.fleet, config_hash(self.config), self.tracker.marks(), elapsed)
            except OSError as error:
                raise Refusal(f"cannot write a checkpoint to {self.run.folder}: {error.strerror or error}{self._last()}") from error

    @contextlib.contextmanager
    def _guarded(self, started: float) -> Iterator[None]:
        """An environment that raises leaves a checkpoint behind; a log that cannot be written is one clear line."""
        try:
            yield
        except EnvironmentFailure as error:
            self._log_episodes(started, math.inf)
            if not self.fleet.broken():
                self.save(started)
            raise Refusal(f"{error}{self._last()}") from error
        except OSError as error:
            where = self.run.folder if self.run else "the logs"
            raise Refusal(f"cannot write {where}: {error.strerror or error}{self._last()}") from error

    def _last(self) -> str:
        """Where the run can go on."""
        kept = sorted((self.run.folder / checkpoint.FOLDER).glob("step-*")) if self.run else []
        return f"; the last good checkpoint is {kept[-1].name}" if kept else ""

    def _log_episodes(self, started: float, until: float) -> None:
        rows = [(self.fleet.seeds[e.agent], e.step, e.total, e.length) for e in self.fleet.drain(until)]
        for seed, step, total, length in rows:
            self.recent[seed] = [*self.recent[seed], (total, length)][-100:]
            self.end.add({seed: [Line(step, total, length)]})
        if self.tracker and rows:
            self.tracker.episodes(rows, self.elapsed + time.perf_counter() - started)

    def _log(self, n: int, started: float, rate: float) -> None:
        rows = []
        for seed, told in zip(self.fleet.seeds, self.fleet.metrics(), strict=True):
            row: dict[str, Any] = {"seed": seed, "step": n}
            if self.recent[seed]:
                totals, lengths = zip(*self.recent[seed], strict=True)
                row |= {"rollout/ep_rew_mean": float(np.mean(totals)), "rollout/ep_len_mean": float(np.mean(lengths))}
            row |= {"rollout/exploration_rate": epsilon(self.config, n), "time/total_timesteps": n, "time/fps": rate}
            rows.append(row | {"time/time_elapsed": self.elapsed + time.perf_counter() - started, **told})
        if self.tracker:
            self.tracker.metrics(rows)

    def _evaluate(self, n: int) -> None:
        self.evaluations, self.evaluated = self.fleet.evaluate(), n
        self.history.append((n, self.evaluations))
        rows = [
            {
                "seed": seed,
                "step": n,
                "eval/mean_reward": float(np.mean(found.returns)),
                "eval/std_reward": float(np.std(found.returns)),
                "eval/mean_ep_length": float(np.mean(found.lengths)),
            }
            for seed, found in zip(self.fleet.seeds, self.evaluations, strict=True)
        ]
        if self.tracker:
            self.tracker.metrics(rows)

    def close(self) -> None:
        """Let go of environments, logs and the run directory."""
        self.fleet.close()
        if self.tracker:
            with contextlib.suppress(OSError):  # what a full disk does not take now came after the last checkpoint
                self.tracker.close()
        if self.run:
            self.run.close()


def train_all(sessions: dict[Any, Session], bar: Bar = shown) -> dict[Any, Summary]:
    """Train sessions side by side, each to the end of its configuration. If one fails, the others come to rest before that is raised."""
    failures: list[Exception] = []
    summaries: dict[Any, Summary] = {}
    with stopping() as stop, bar(sum(session.to_go() for session in sessions.values())) as advance:

        def resting() -> bool:
            return stop() or bool(failures)

        running = {name: session.training(None, advance, None, resting) for name, session in sessions.items()}
        while running:
            moved = False
            for name, pieces in list(running.items()):
                try:
                    moved |= next(pieces)
                except StopIteration as end:
                    summaries[name] = end.value
                    del running[name]
                except Exception as error:  # noqa: BLE001, raised again below
                    failures.append(error)
                    del running[name]
            if not moved:
                time.sleep(0 if wide() else 1e-4)  # on a CPU, agents need the core that would look for news
    if failures:
        raise failures[0]
    return summaries


def epsilon(config: Config, n: int) -> float:
    """The share of random actions at step `n`."""
    done = min(max((n - config.learning_starts) / max(config.epsilon_decay, 1), 0.0), 1.0)
    return 1 + (config.epsilon_end - 1) * done
