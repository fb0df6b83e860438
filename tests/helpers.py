"""Small problems the tests share."""

import subprocess
from pathlib import Path

import flax.linen as nn
import imageio_ffmpeg
import jax
import jax.numpy as jnp
import numpy as np

from iterq.bellman import Transition
from iterq.networks import mlp

ACTIONS = 3


class ConvTorso(nn.Module):
    """Two small convolutions, flattened."""

    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(4, (3, 3), strides=2)(x))
        return nn.relu(nn.Conv(4, (3, 3))(x)).reshape(-1)


NETWORKS = {"mlp": mlp([16], ACTIONS), "conv": {"torso": ConvTorso(), "head": nn.Dense(ACTIONS)}}
SHAPES = {"mlp": (4,), "conv": (8, 8, 2)}


def random_batch(kind: str, seed: int, size: int = 32) -> Transition:
    """`size` transitions of noise, a tenth of them terminal."""
    rng = np.random.default_rng(seed)
    obs, next_obs = (rng.normal(size=(size, *SHAPES[kind])).astype(np.float32) for _ in range(2))
    discount = np.where(rng.random(size) < 0.1, 0.0, 0.9).astype(np.float32)
    return Transition(obs, rng.integers(0, ACTIONS, size), rng.normal(size=size).astype(np.float32), discount, next_obs)


def example(kind: str) -> jax.Array:
    return jnp.zeros(SHAPES[kind])


def assert_same(a, b) -> None:
    """Equal structure, equal bits."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


def largest_difference(a, b) -> float:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    return max(float(np.abs(np.asarray(x) - np.asarray(y)).max()) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def pictures_of(video: str | Path, height: int, width: int) -> np.ndarray:
    """(pictures, height, width) of a video, in gray."""
    # imageio's own reader leaves pipes open.
    words = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-i", str(video), "-f", "rawvideo", "-pix_fmt", "gray", "-"]
    read = subprocess.run(words, capture_output=True, check=True, timeout=60, stdin=subprocess.DEVNULL)
    return np.frombuffer(read.stdout, np.uint8).reshape(-1, height, width)
