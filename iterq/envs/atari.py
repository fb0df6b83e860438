"""Atari 2600 games (iterq/emulator.py) as host environments."""

from iterq.emulator import SIZE, Atari
from iterq.envs.base import Spec
from iterq.envs.host import HostEnv
from iterq.games import games


def atari_env(game: str) -> HostEnv:
    """The environment of a game by its name."""
    rom = games()[game]
    spec = Spec(f"ALE/{game}-v5", (SIZE, SIZE), "uint8", len(Atari(rom).buttons), None)
    return HostEnv(spec, lambda: Atari(rom), apart=("atari", rom))
