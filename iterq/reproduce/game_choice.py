"""The choice of 20 games (a table of the appendix): published agents score on them about what they score on all 55 games.

Dopamine's final scores of DQN, Rainbow and IQN are known by mean and standard deviation over five runs, from which runs are drawn anew,
many times: the interquartile mean is the average over draws, with the middle 95 % of them. The paper's list of 20 games is not in the
paper; ours is inferred from the authors' scripts.
"""

import dataclasses
from pathlib import Path

import numpy as np

from iterq.errors import require
from iterq.games import references
from iterq.report.published import AGENTS, published
from iterq.report.stats import AGGREGATES, RESAMPLES, Estimate, interval, iqm
from iterq.reproduce.base import Quantity, Result, Stopwatch, write_csv

SCALES = {"smoke": {"draws": 200}, "default": {}, "paper": {}}
PAPER = {"DQN": (1.29, 1.29), "Rainbow": (1.72, 1.71), "IQN": (1.85, 1.76)}  # over 20 games, over 55
ABLATED = ("Asteroids", "Asterix", "Qbert", "Breakout", "DemonAttack", "ChopperCommand", "Krull", "CrazyClimber")  # named in the paper


@dataclasses.dataclass(frozen=True)
class Config:
    """How runs are drawn, and what counts as equal."""

    draws: int = RESAMPLES
    """Times that the runs of every game are drawn."""
    seed: int = 0
    """Of the draws."""
    margin: float = 0.2
    """Scores that differ by less count as equal. Two published sets of the same agents differ by up to 0.15, and i-IQN and IQN in the
    paper, whose comparison the games are chosen for, by 0.24."""

    def __post_init__(self) -> None:
        require(
            self.draws >= 1 and self.margin > 0 and self.seed >= 0,
            "--draws must be at least 1, --margin positive and --seed not negative",
        )


def run(config: Config, folder: Path) -> Result:
    """Draw, aggregate, judge and draw a figure."""
    from iterq.report.figures import draw_summary

    watch, games = Stopwatch(), list(references())
    chosen = np.array([found.in_paper for found in references().values()])
    sets = {f"{chosen.sum()} games": chosen, f"{len(games)} games": chosen | True}
    quantities, rows, drawn, m = [], [], [], config.margin

    def beside(name: str, found: np.ndarray, theirs: float, centre: float, band: str) -> Quantity:
        ours = described(found)
        return Quantity(name, float(ours.value), float(found.std()), theirs, band, within(ours, centre, m))

    for agent, paper in PAPER.items():
        with watch(agent):
            both = (runs(agent, games, config, again) for again in (False, True))
            first, second = ([over(scores[:, of]) for of in sets.values()] for scores in both)
        for name, found, other, theirs in zip(sets, first, second, paper, strict=True):
            ours = described(found)
            quantities += [
                beside(f"{agent}: IQM over {name}", found, theirs, theirs, f"the paper's, within {m:g}"),
                Quantity(f"{agent}: IQM over {name}, second published set", float(other.mean()), float(other.std())),
            ]
            rows.append((agent, name, *map(float, ours), theirs, float(other.mean())))
            shown = {f"{agent}, {name}": ours, "in the paper": Estimate(*[np.array(theirs)] * 3)}
            drawn += [{**dict.fromkeys(AGGREGATES), "label": label, "iqm": x._asdict()} for label, x in shown.items()]
        gap, theirs = first[0] - first[1], round(paper[0] - paper[1], 2)
        quantities.append(beside(f"{agent}: {' minus '.join(sets)}", gap, theirs, 0.0, f"equal within {m:g}"))
    header = ("agent", "games", "IQM", "low", "high", "paper", "second set")
    write_csv(folder / "game_choice.csv", header, rows)
    draw_summary(folder, drawn, "human-normalised return")
    listed, others = ([game for game in ABLATED if references()[game].in_paper == there] for there in (True, False))
    notes = [
        "The list of 20 games is inferred from the authors' scripts; the paper does not give it. Of the games that it names in its "
        f"ablations, {', '.join(listed)} are in the list; {', '.join(others)} are not.",
        f"DQN is Dopamine's {AGENTS['DQN'][1]}. The authors' scripts plot a `DQN (Adam)` of other runs, which are not in these data.",
    ]
    table = [(*row[:2], *(f"{x:.2f}" for x in row[2:])) for row in rows]
    title = f"Final scores that Dopamine has published, human-normalised; {config.draws} draws of five runs per game"
    return Result("game-choice", dataclasses.asdict(config), quantities, notes, [(title, header, table)], watch.seconds)


def runs(agent: str, games: list[str], config: Config, again: bool) -> np.ndarray:
    """(draws, games, runs) final human-normalised scores, normally distributed around the published means."""
    rng, scores = np.random.default_rng(config.seed), []
    for game in games:
        found = published(agent, game, again)
        random, human, _ = references()[game]
        drawn = found.curve.values[0, -1] + found.deviation * rng.standard_normal((config.draws, found.runs))
        # (score - random) / (human - random)
        scores.append((drawn - random) / (human - random))
    return np.stack(scores, 1)


def over(scores: np.ndarray) -> np.ndarray:
    """(draws,) the interquartile mean of all games and runs."""
    _, games, runs = scores.shape
    return iqm(scores.reshape(len(scores), -1), np.full(games, runs))


def described(found: np.ndarray) -> Estimate:
    """The average over draws, and the middle 95 % of them."""
    return Estimate(found.mean(), *interval(found))


def within(found: Estimate, centre: float, margin: float) -> bool | None:
    """Whether the whole interval is nearer to `centre` than `margin`, or none of it; None: it is not told."""
    low, high = found.low - centre, found.high - centre
    return True if -margin < low and high < margin else False if low > margin or high < -margin else None
