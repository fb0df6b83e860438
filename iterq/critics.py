"""The pairs of critics of SAC and DroQ."""

from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.extend.random import threefry_2x32

from iterq.networks import Linear


def dropped(x: jax.Array, share: float, key: jax.Array, layer: int) -> jax.Array:
    """Dropout of the units x (n,) of one layer."""
    # jax.random hashes once for every number, however short, and that would be half of DroQ's time on a CPU. Here a hash gives four
    # numbers of 16 bits.
    n = x.shape[0]
    counts = layer * n + jnp.arange(-(-n // 2), dtype=jnp.uint32)
    numbers = jax.lax.bitcast_convert_type(threefry_2x32(jax.random.key_data(key), counts), jnp.uint16).reshape(-1)[:n]
    out_of = 1 << 16
    left_out = min(round(share * out_of), out_of - 1)
    return jnp.where(numbers >= left_out, x * (out_of / (out_of - left_out)), 0)


class Critic(nn.Module):
    """Q(s, a) of the vector x = (s, a): hidden layers, each with dropout, layer normalisation and a ReLU as in DroQ, if asked for."""

    features: Sequence[int]
    dropout: float = 0.0
    layer_norm: bool = False

    @nn.compact
    def __call__(self, x: jax.Array, key: jax.Array) -> jax.Array:
        for i, size in enumerate(self.features):
            x = Linear(size)(x)
            x = dropped(x, self.dropout, key, i) if self.dropout else x
            x = nn.relu(nn.LayerNorm()(x) if self.layer_norm else x)
        return Linear(1)(x)[0]


class Critics(nn.Module):
    """A pair of critics with parameters of their own: observation (n,), action (m,), key for dropout -> (2,)."""

    features: Sequence[int]
    dropout: float = 0.0
    layer_norm: bool = False

    @nn.compact
    def __call__(self, obs: jax.Array, action: jax.Array, key: jax.Array) -> jax.Array:
        pair = nn.vmap(Critic, variable_axes={"params": 0}, split_rngs={"params": True}, in_axes=(None, 0), axis_size=2)  # pyright: ignore[reportArgumentType]
        return pair(self.features, self.dropout, self.layer_norm)(jnp.concatenate([obs, action]), jax.random.split(key))
