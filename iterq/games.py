"""Atari games: the ids they go by, and the scores that theirs are measured against."""

import csv
import difflib
import importlib.util
import re
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from iterq.errors import Refusal

FORMS = re.compile(r"ALE/(?P<gymnasium>\w+)-v5|(?P<classic>\w+?)NoFrameskip-v4|(?P<plain>\w+)")


class Reference(NamedTuple):
    """Scores of a random and of a human player (Mnih et al., 2015, and its successors), and whether the paper plays the game.

    The paper does not list its 20 games. They are inferred from the authors' scripts, whose list `EXPERIMENTED_GAME_MEDIUM` has 20. Of the
    games that the paper names in its ablations, Asteroids, Asterix, Qbert and CrazyClimber are not among them.
    """

    random: float
    human: float
    in_paper: bool  # among the 20, as far as we can tell


@cache
def references() -> dict[str, Reference]:
    """By game."""
    with (resources.files("iterq") / "data" / "atari_games.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {row["game"]: Reference(float(row["random_score"]), float(row["human_score"]), row["in_paper_20"] == "1") for row in rows}


def human_normalised(game: str, score: float) -> float | None:
    """0 is a random player, 1 a human one; None where nobody has measured."""
    found = references().get(game)
    # (score - random) / (human - random)
    return (score - found.random) / (found.human - found.random) if found else None


@cache
def games() -> dict[str, str]:
    """All games of the emulator: `SpaceInvaders` and what ale-py calls it, `space_invaders`."""
    from ale_py import roms

    return {"".join(word.capitalize() for word in rom.split("_")): rom for rom in roms.get_all_rom_ids()}


@cache
def game_of(name: str) -> str | None:
    """The game that an id means: `Breakout` for itself, `ALE/Breakout-v5` and `BreakoutNoFrameskip-v4`. None if it may mean something else.

    An id that can only mean a game is refused if there is no such game, or no emulator.
    """
    found = FORMS.fullmatch(name)
    if not found:
        return None
    word = found["gymnasium"] or found["classic"] or found["plain"]
    if not importlib.util.find_spec("ale_py"):
        if found["plain"] and word not in references():
            return None
        raise Refusal(f"{name} needs the Atari emulator: pip install 'iterq[atari]'")
    if word in games():
        return word
    if found["plain"]:
        return None
    near = difflib.get_close_matches(word, games(), 1)
    raise Refusal(f"{name}: there is no Atari game {word!r}" + (f", did you mean {near[0]!r}?" if near else ""))


def played(env: Any, emulator: str) -> str | None:
    """The game that an environment is; refused where there is none, but `emulator` is not the one that is taken anyway."""
    game = game_of(env) if isinstance(env, str) else None
    if game is None and emulator != "fresh":
        raise Refusal(f"emulator = {emulator} is for Atari games, by their ids; {env} is none")
    return game
