"""One greedy episode as a video."""

import importlib.util
import os
from pathlib import Path
from typing import Any

import numpy as np

from iterq.errors import Refusal


def record_episode(model: Any, folder: Path) -> Path:
    """`folder`/video.mp4, or .gif without ffmpeg: the first evaluation episode of the first seed, in an environment that draws itself."""
    # Otherwise ffmpeg is started by a fork, which a process that runs JAX may not survive.
    os.environ.setdefault("IMAGEIO_FFMPEG_NO_PREVENT_SIGINT", "1")
    import imageio.v2 as imageio

    from iterq.envs.host import HostEnv
    from iterq.envs.stepping import EVALUATION, episode_seed
    from iterq.games import game_of
    from iterq.worker import gymnasium_env

    name, c = model.config.env, model.config
    if not isinstance(model.env, HostEnv):
        raise Refusal(f"{name} has no pictures; --video needs a Gymnasium environment")
    try:
        env = model.env.make() if game_of(name) else gymnasium_env(name, render_mode="rgb_array")
    except Exception as error:  # the environment's own, too
        raise Refusal(f"{name} cannot be drawn: {error}") from error
    if env.render_mode != "rgb_array":
        raise Refusal(f"{name} cannot be drawn: its render modes are {', '.join(env.metadata.get('render_modes') or ['none'])}")
    seed = c.seeds[0]
    obs = np.zeros((*model.spec.shape, c.frame_stack), model.spec.dtype)
    obs[..., -1] = env.reset(seed=episode_seed(seed, EVALUATION, 0))[0]
    pictures, over = [env.render()], False
    while not over:
        action, _ = model.predict(obs if c.frame_stack > 1 else obs[..., 0], deterministic=True, seed=seed)
        frame, _, terminated, truncated, _ = env.step(action if model.spec.continuous else int(action))
        obs[..., :-1], obs[..., -1] = obs[..., 1:].copy(), frame
        pictures.append(env.render())
        over = terminated or truncated
    env.close()
    frames: Any = [np.asarray(picture) for picture in pictures]
    rate = env.metadata.get("render_fps", 30)
    if importlib.util.find_spec("imageio_ffmpeg"):
        path = folder / "video.mp4"
        imageio.mimwrite(path, frames, fps=rate, macro_block_size=1)
    else:
        path = folder / "video.gif"
        imageio.mimwrite(path, frames, duration=1000 / rate, loop=0)
    return path
