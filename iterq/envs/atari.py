"""Atari 2600 games (iterq/emulator.py) as host environments."""

from iterq.emulator import EMULATORS, HORIZON, SIZE, SKIP, STICKY
from iterq.envs.about import about
from iterq.envs.base import Spec
from iterq.envs.host import HostEnv
from iterq.games import games


def atari_env(game: str, emulator: str = "fresh") -> HostEnv:
    """The environment of a game by its name; emulator: fresh or plain, see iterq/emulator.py."""
    rom, kind = games()[game], EMULATORS[emulator]
    one = kind(rom)
    spec = Spec(f"ALE/{game}-v5", (SIZE, SIZE), "uint8", len(one.buttons), None)
    protocol = {"frame_skip": SKIP, "repeat_action_probability": STICKY, "horizon": HORIZON, "size": SIZE}
    said = about(one, game=rom, buttons=[button.name for button in one.buttons], **protocol)
    return HostEnv(spec, lambda: kind(rom), said, apart=("atari", rom, emulator), traces=emulator == "plain")
