"""Where training ends: after so many steps of every agent, or when every agent has so many epochs."""

import dataclasses
import sys
from collections.abc import Iterable, Mapping, Sequence

from iterq.config import Config
from iterq.epochs import PERIODS, Count, Line, decided_at
from iterq.errors import Refusal
from iterq.identity import LENGTH


class End:
    """Of the agents in training. Its methods take `total`: the end is after so many steps; None: where the configuration says."""

    def __init__(self, config: Config, seeds: Sequence[int]) -> None:
        self.config, self.counts = config, {seed: Count(config.epoch_steps) for seed in seeds}

    def add(self, episodes: Mapping[int, Iterable[Line]]) -> None:
        """Take note of finished episodes, by seed."""
        for seed, lines in episodes.items():
            for line in lines:
                self.counts[seed].add(line.step, line.length)

    def epochs(self, total: int | None) -> int:
        """How many end the training; 0: it ends by steps."""
        return self.config.epochs if total is None else 0

    def steps(self, total: int | None) -> int:
        """How many end the training, if epochs do not."""
        return self.config.total_timesteps if total is None else total

    def reached(self, n: int, total: int | None) -> bool:
        """Whether that is step `n`."""
        if epochs := self.epochs(total):
            return decided_at(n, vars(self.config)) and all(count.complete >= epochs for count in self.counts.values())
        return n >= self.steps(total)

    def to_go(self, n: int, total: int | None) -> int:
        """Steps of all agents from step `n` to there; to the end of epochs, the fewest that it takes."""
        if epochs := self.epochs(total):
            return sum(count.left(n, epochs) for count in self.counts.values())
        return (self.steps(total) - n) * len(self.counts)

    def next(self, n: int, total: int | None) -> int:
        """The first step after `n` at which there is something to do, the end included."""
        names = PERIODS if self.epochs(total) else PERIODS[:-1]  # the last is that of epochs
        last = sys.maxsize if self.epochs(total) else self.steps(total)
        return min(last, *(next_multiple(n, getattr(self.config, name)) for name in names))


def next_multiple(n: int, period: int) -> int:
    """The next multiple of `period` after `n`; never, for period 0."""
    return (n // period + 1) * period if period else sys.maxsize


def ended_by(config: Config, given: Iterable[str]) -> Config:
    """`config` with one end: of `given` settings, steps take the place of epochs, and epochs that of steps."""
    said = {*LENGTH} & {*given}
    if "total_timesteps" in said:
        if len(said) > 1:
            raise Refusal(f"total_timesteps and {min(said, key=len)} would each say when a run ends; give one of them")
        return dataclasses.replace(config, epochs=0)
    if "epoch_steps" in said and not config.epochs:
        raise Refusal("epoch_steps says nothing without epochs")
    return dataclasses.replace(config, total_timesteps=config.epochs * config.epoch_steps) if said and config.epochs else config
