"""What others have published on Atari: DQN, Rainbow and IQN of Dopamine (github.com/google/dopamine, `baselines/atari`).

Numbers are mean training returns of an iteration of 250,000 steps under the paper's protocol, averaged over five runs. Of the single
runs only the deviation at the end is kept, so a curve is a line without an interval, and with few points.
"""

import csv
from functools import cache
from importlib import resources
from typing import NamedTuple

import numpy as np

from iterq.errors import Refusal
from iterq.games import FORMS
from iterq.report.compare import Curve
from iterq.report.scores import EPOCH

# Label: set and agent, as Dopamine has them. This DQN is the one with Adam, which the paper compares with.
AGENTS = {"DQN": ("baseline", "DQN (Adam + MSE in JAX)"), "Rainbow": ("baseline", "Rainbow"), "IQN": ("baseline", "IQN")}
AGAIN = {"DQN": ("CNN", "DQN"), "Rainbow": ("CNN", "Rainbow"), "IQN": ("CNN", "IQN")}  # other runs of nominally the same agents


class Published(NamedTuple):
    """An agent on a game."""

    curve: Curve  # of one line, the mean over runs: (1, points)
    deviation: float  # over runs, at the last point
    runs: int


@cache
def _table() -> dict[tuple[str, tuple[str, str]], dict[str, str]]:
    text = (resources.files("iterq") / "data" / "dopamine_atari_summary.csv").read_text("utf-8")
    return {(row["game"], (row["set"], row["agent"])): row for row in csv.DictReader(text.splitlines())}


def published(agent: str, game: str, again: bool = False) -> Published:
    """`agent` is "DQN", "Rainbow" or "IQN", `game` any id of an Atari game. again: from the second set of runs that was published."""
    found = FORMS.fullmatch(game)
    name = found[found.lastgroup].replace("_", "").lower() if found and found.lastgroup else game
    row = _table().get((name, (AGAIN if again else AGENTS).get(agent, ("", ""))))
    if row is None:
        raise Refusal(f"Dopamine has published nothing on {agent} and {game}; it has {', '.join(AGENTS)} on 60 Atari games")
    points = {int(column[2:]): float(x) for column, x in row.items() if column.startswith("it") and column[2:].isdigit()}
    points[int(row["iterations"])] = float(row["last"])
    means, runs = np.array([list(points.values())]), row["seeds"]
    curve = Curve(EPOCH * np.array(list(points)), means, [f"mean of {runs}"], np.full(len(points), np.nan))
    return Published(curve, float(row["last_sd"]), int(runs))
