"""Compiled programs for many small steps."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp

SEQUENTIAL = {"xla_cpu_enable_concurrency_optimized_scheduler": False}


def program(f: Callable, **options: Any) -> Any:
    """`jax.jit`, told on a CPU to run operations one after another: handing each tiny one to another core costs more than it saves.

    Other cores are kept busy by other agents.
    """
    return jax.jit(f, compiler_options=_known_options() or None, **options)


@cache
def _known_options() -> dict[str, Any]:
    """SEQUENTIAL, where this backend and this version of XLA know it."""
    if jax.default_backend() != "cpu":
        return {}
    try:
        jax.jit(lambda x: x + 1, compiler_options=SEQUENTIAL)(jnp.float32(0))
    except jax.errors.JaxRuntimeError:
        return {}
    return SEQUENTIAL
