"""One greedy episode as a video."""

import contextlib
import importlib.util
import itertools
import math
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from iterq.errors import Refusal
from iterq.store import in_place_of


def record_episode(model: Any, folder: Path) -> Path:
    """`folder`/video.mp4, or .gif without ffmpeg: the first evaluation episode of the first seed, in an environment that draws itself."""
    # Otherwise ffmpeg is started by a fork, which a process that runs JAX may not survive.
    os.environ.setdefault("IMAGEIO_FFMPEG_NO_PREVENT_SIGINT", "1")
    import imageio.v2 as imageio

    from iterq.envs.host import HostEnv

    if not isinstance(model.env, HostEnv):
        raise Refusal(f"{model.config.env} has no pictures; --video needs a Gymnasium environment")
    mp4 = importlib.util.find_spec("imageio_ffmpeg")
    path = folder / f"video.{'mp4' if mp4 else 'gif'}"
    with contextlib.closing(_drawing(model)) as env:
        rate = env.metadata.get("render_fps", 30)
        every = 1 if mp4 else math.ceil(rate / 50)  # a GIF has no shorter pictures than 20 ms
        options: dict[str, Any] = {"fps": rate, "macro_block_size": 1} if mp4 else {"duration": 1000 * every / rate, "loop": 0}
        # Picture by picture: an episode of Atari may have 27 000 of them.
        with in_place_of(path) as place, imageio.get_writer(place, **options) as film:
            for picture in itertools.islice(_pictures(model, env), 0, None, every):
                film.append_data(picture)  # pyright: ignore[reportAttributeAccessIssue]
    return path


def _drawing(model: Any) -> Any:
    """The environment of a model, with pictures."""
    from iterq.games import game_of
    from iterq.worker import gymnasium_env

    name = model.config.env
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        os.environ.setdefault("MUJOCO_GL", "egl")  # which needs none
    try:
        env = model.env.make() if game_of(name) else gymnasium_env(name, render_mode="rgb_array")
    except Exception as error:  # the environment's own, too
        raise Refusal(f"{name} cannot be drawn: {error}") from error
    if env.render_mode != "rgb_array":
        raise Refusal(f"{name} cannot be drawn: its render modes are {', '.join(env.metadata.get('render_modes') or ['none'])}")
    _follow(env)
    return env


def _follow(env: Any) -> None:
    """Have MuJoCo look through the model's own camera that moves along: Gymnasium's stands still, and who runs is soon out of sight."""
    renderer = getattr(env.unwrapped, "mujoco_renderer", None)
    if renderer and renderer.camera_id == -1:  # nobody has chosen another
        import mujoco

        renderer.camera_id = mujoco.mj_name2id(env.unwrapped.model, mujoco.mjtObj.mjOBJ_CAMERA, "track")  # pyright: ignore[reportAttributeAccessIssue]


def _pictures(model: Any, env: Any) -> Iterator[np.ndarray]:
    from iterq.envs.stepping import EVALUATION, episode_seed

    c, seed = model.config, model.config.seeds[0]
    obs = np.zeros((*model.spec.shape, c.frame_stack), model.spec.dtype)
    obs[..., -1] = env.reset(seed=episode_seed(seed, EVALUATION, 0))[0]
    yield _picture(env, c.env)
    over = False
    while not over:
        action, _ = model.predict(obs if c.frame_stack > 1 else obs[..., 0], deterministic=True, seed=seed)
        frame, _, terminated, truncated, _ = env.step(action if model.spec.continuous else int(action))
        obs[..., :-1], obs[..., -1] = obs[..., 1:].copy(), frame
        yield _picture(env, c.env)
        over = terminated or truncated


def _picture(env: Any, name: str) -> np.ndarray:
    try:
        return np.asarray(env.render())
    except Exception as error:  # the environment's own, or of what it draws with
        way_out = "; MUJOCO_GL=egl (libegl1) and =osmesa (libosmesa6) need no display" if "mujoco" in type(env.unwrapped).__module__ else ""
        _forget(error)
        raise Refusal(f"{name} cannot be drawn: {type(error).__name__}: {error}{way_out}") from error


def _forget(error: Exception) -> None:
    """Let go of what half-made things `error` holds. MuJoCo's viewer then stumbles over what it never got, which is no news."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        traceback.clear_frames(error.__traceback__)
    finally:
        sys.unraisablehook = hook
