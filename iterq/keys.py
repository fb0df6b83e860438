"""Typed keys (`jax.random.key`) as plain arrays, for files and for whatever else takes nothing but numbers."""

from typing import Any

import jax
import jax.numpy as jnp


def is_key(x: Any) -> bool:
    """Whether a leaf of a tree is an array of typed keys, or stands for one."""
    return hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def bare(tree: Any) -> Any:
    """The tree with the words of its keys, (…, n) uint32, in place of them."""
    return jax.tree.map(lambda x: jax.random.key_data(x) if is_key(x) else x, tree)


def typed(tree: Any, like: Any) -> Any:
    """A tree of `bare` with keys again where `like`, or its shapes, has them."""

    def key_of(words: Any, key: Any) -> Any:
        return jax.random.wrap_key_data(words, impl=jax.random.key_impl(jnp.empty((), key.dtype))) if is_key(key) else words

    return jax.tree.map(key_of, tree, like)
