"""One Atari 2600 game under Dopamine's protocol.

A step shows the game the same action for four frames, each of which repeats the action before with probability 0.25 (sticky actions).
What is seen is the maximum of the last two gray screens, shrunk to 84 x 84. An episode ends with the game, not with a life, and is cut
off after 27 000 steps. Sticky actions are drawn here, from the episode's seed, and not by the emulator.

The emulator's own reset leaves traces of the game before in its memory, and some games read them: the same actions then lead elsewhere.

    fresh   Every game begins on the emulator as it was when it was new. A game is then a function of its seed and actions, whatever was
            played before on the same emulator, and so a run can be stopped and resumed exactly in the middle of one. It gives up what
            variety the traces bring into some games (Berzerk from the second game on, Assault from the third, Seaquest, Boxing, Freeway).
    plain   Only the emulator's own reset, as in Dopamine. It gives up exact resuming: a run that was stopped goes on on a new emulator,
            without the traces of its games so far. If they have changed the game that it is in, it is refused; if not, later games may
            still begin otherwise than in a run that was never stopped.

Every run may be stopped, and few games read traces, hence fresh is the default.

This module needs no JAX (see worker.py).
"""

from typing import Any

import gymnasium
import numpy as np

SKIP, STICKY, HORIZON, SIZE = 4, 0.25, 27_000, 84


def arcade(game: str) -> Any:
    """An emulator with `game` in it, deterministic."""
    import ale_py
    from ale_py import roms

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    ale.setInt("frame_skip", 1)
    ale.setInt("random_seed", 0)
    ale.loadROM(str(roms.get_rom_path(game)))
    return ale


class Atari(gymnasium.Env):
    """The protocol above, as a Gymnasium environment: frames (84, 84) uint8, the game's own minimal set of actions, plain rewards."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 60 // SKIP}  # noqa: RUF012, Gymnasium's way
    render_mode = "rgb_array"

    def __init__(self, game: str) -> None:
        """game: a name as ale-py has it, such as `space_invaders`."""
        import cv2

        cv2.setNumThreads(1)
        self._shrink = lambda screen: cv2.resize(screen, (SIZE, SIZE), interpolation=cv2.INTER_AREA)
        self.ale = arcade(game)
        self.buttons = self.ale.getMinimalActionSet()
        self.new = self.ale.cloneState(include_rng=True)
        self.observation_space = gymnasium.spaces.Box(0, 255, (SIZE, SIZE), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(len(self.buttons))
        self.screens = np.zeros((2, *self.ale.getScreenDims()), np.uint8)
        self.luck = np.random.Generator(np.random.PCG64(0))
        self.held = self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Start a game; its luck follows from `seed`."""
        if seed is not None:
            self.luck = np.random.Generator(np.random.PCG64(seed))
        self.held = self.steps = 0  # action 0 does nothing in every game
        self._begin()
        self.ale.getScreenGrayscale(self.screens[0])
        self.screens[1] = 0
        return self._frame(), {}

    def _begin(self) -> None:
        self.ale.restoreState(self.new)
        self.ale.reset_game()

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Four frames, or fewer if the game ends.

        The screen on which it ends is not looked at. Dopamine has looked at it since April 2022, and not before; nothing learns from it,
        since no value is asked of a frame on which a game is over.
        """
        ale, total, over = self.ale, 0, False
        sticks = (self.luck.random(SKIP) < STICKY).tolist()
        for i in range(SKIP):
            if not sticks[i]:
                self.held = action
            total += ale.act(self.buttons[self.held])
            over = ale.game_over()
            if over:
                break
            if i >= SKIP - 2:
                ale.getScreenGrayscale(self.screens[i - SKIP + 2])
        self.steps += 1
        return self._frame(), float(total), over, not over and self.steps >= HORIZON, {}

    def _frame(self) -> np.ndarray:
        return self._shrink(np.maximum(self.screens[0], self.screens[1]))

    def render(self) -> np.ndarray:
        """(210, 160, 3) the screen."""
        return self.ale.getScreenRGB()


class PlainAtari(Atari):
    """The same with the emulator's own reset alone, which leaves traces of the game before; see the top of this file."""

    def _begin(self) -> None:
        self.ale.reset_game()


EMULATORS = {"fresh": Atari, "plain": PlainAtari}
