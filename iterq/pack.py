"""Many small arrays as one.

A call of a compiled program costs a few microseconds for every array that goes in or comes out, more than many an update takes. So what
a step hands to the device and back travels as one vector of 32-bit words; arrays large enough to be worth a place of their own keep it.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from iterq.keys import bare, typed

LARGE = 1 << 16  # elements: a layer of 256 x 256 has a place of its own
MIDDLING = 5_000  # elements: on a GPU, a matrix product needs such a layer by itself, and would have it copied out of the vector first


class Packed(NamedTuple):
    """A tree of arrays."""

    words: Any  # (…,) int32, the bits of all small leaves
    large: list[Any]


class Packer(NamedTuple):
    """Both directions, for trees like one example; pure functions."""

    pack: Callable[[Any], Packed]
    unpack: Callable[[Packed], Any]


def packer(example: Any, large: int = LARGE) -> Packer:
    """For trees with the structure, shapes and 32-bit types (or typed keys) of `example`.

    Leaves of `large` elements and more keep their place.
    """
    leaves, structure = jax.tree.flatten(jax.eval_shape(bare, example))
    if any(jnp.dtype(x.dtype).itemsize != 4 for x in leaves):
        raise TypeError("only 32-bit arrays can be packed")
    small = [math.prod(x.shape) < large for x in leaves]

    def pack(tree: Any) -> Packed:
        arrays = [jnp.asarray(x) for x in jax.tree.leaves(bare(tree))]
        words = [jax.lax.bitcast_convert_type(x, jnp.int32).reshape(-1) for x, is_small in zip(arrays, small, strict=True) if is_small]
        return Packed(jnp.concatenate(words), [x for x, is_small in zip(arrays, small, strict=True) if not is_small])

    def unpack(packed: Packed) -> Any:
        at, large, found = 0, iter(packed.large), []
        for like, is_small in zip(leaves, small, strict=True):
            if is_small:
                size = math.prod(like.shape)
                found.append(jax.lax.bitcast_convert_type(packed.words[at : at + size], like.dtype).reshape(like.shape))
                at += size
            else:
                found.append(next(large))
        return typed(jax.tree.unflatten(structure, found), example)

    return Packer(pack, unpack)
