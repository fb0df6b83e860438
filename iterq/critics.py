"""The pairs of critics of SAC and DroQ."""

from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.extend.random import threefry_2x32

from iterq.networks import Linear


def dropped(x: jax.Array, share: float, key: jax.Array, layer: int | jax.Array) -> jax.Array:
    """Dropout of the units x (n,) of one of the layers that share `key`."""
    # jax.random hashes once for every number, however short, and that would be half of DroQ's time on a CPU. Here a hash gives four
    # numbers of 16 bits: two halves of two words.
    n = x.shape[0]
    unit, block = jnp.arange(n, dtype=jnp.uint32), jnp.arange(-(-n // 4), dtype=jnp.uint32)
    words = threefry_2x32(jax.random.key_data(key), jnp.concatenate([jnp.full_like(block, layer), block]))
    first, second = (jnp.repeat(half, 4)[:n] for half in jnp.split(words, 2))
    out_of = 1 << 16
    numbers = (jnp.where(unit & 2, second, first) >> 16 * (unit & 1)) % out_of
    left_out = min(round(share * out_of), out_of - 1)
    return jnp.where(numbers >= left_out, x * (out_of / (out_of - left_out)), 0)


@jax.custom_vjp
def standardised(x: jax.Array) -> jax.Array:
    """x (n,) with mean 0 and variance 1."""
    return _standardised(x)[0]


def _standardised(x: jax.Array) -> tuple[jax.Array, Any]:
    mean = x.mean()
    # z = (x - E x) / σ,  σ² = E x² - (E x)²
    over_sigma = jax.lax.rsqrt(jnp.maximum((x * x).mean() - mean * mean, 0) + 1e-6)
    z = (x - mean) * over_sigma
    return z, (z, over_sigma)


def _standardised_backwards(kept: Any, g: jax.Array) -> tuple[jax.Array]:
    z, over_sigma = kept
    # ∂x = (g - E g - z E gz) / σ, in fewer passes over the batch than what follows from the line above
    return ((g - g.mean() - z * (g * z).mean()) * over_sigma,)


standardised.defvjp(_standardised, _standardised_backwards)


class LayerNorm(nn.Module):
    """`flax.linen.LayerNorm` of a vector, except for how the gradient is computed."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        scale = self.param("scale", nn.initializers.ones_init(), x.shape)
        bias = self.param("bias", nn.initializers.zeros_init(), x.shape)
        return standardised(x) * scale + bias


class Critic(nn.Module):
    """Q(s, a) of the vector x = (s, a): hidden layers, each with dropout, layer normalisation and a ReLU as in DroQ, if asked for.

    number: which of the critics that share `key` this is.
    """

    features: Sequence[int]
    dropout: float = 0.0
    layer_norm: bool = False

    @nn.compact
    def __call__(self, x: jax.Array, number: jax.Array, key: jax.Array) -> jax.Array:
        for i, size in enumerate(self.features):
            x = Linear(size)(x)
            x = dropped(x, self.dropout, key, number * len(self.features) + i) if self.dropout else x
            x = nn.relu(LayerNorm()(x) if self.layer_norm else x)
        return Linear(1)(x)[0]


class Critics(nn.Module):
    """A pair of critics with parameters of their own: observation (n,), action (m,), key for dropout -> (2,)."""

    features: Sequence[int]
    dropout: float = 0.0
    layer_norm: bool = False

    @nn.compact
    def __call__(self, obs: jax.Array, action: jax.Array, key: jax.Array) -> jax.Array:
        pair = nn.vmap(Critic, variable_axes={"params": 0}, split_rngs={"params": True}, in_axes=(None, 0, None), axis_size=2)  # pyright: ignore[reportArgumentType]
        return pair(self.features, self.dropout, self.layer_norm)(jnp.concatenate([obs, action]), jnp.arange(2), key)
