"""Compiled programs for many small steps."""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.compilation_cache import compilation_cache

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
        keep_programs()
        return {}
    try:
        jax.jit(lambda x: x + 1, compiler_options=SEQUENTIAL)(jnp.float32(0))
    except jax.errors.JaxRuntimeError:
        return {}
    return SEQUENTIAL


def keep_programs() -> None:
    """Have JAX keep compiled programs from run to run in the user's cache, unless it is told where, or there is no such place.

    To compile for an accelerator takes as long as some experiments, and measures which kernels are fastest: from the cache, a run that
    goes on does so with the kernels it began with.
    """
    if jax.config.jax_compilation_cache_dir:  # pyright: ignore[reportAttributeAccessIssue]
        return
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "iterq" / "programs"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return
    compilation_cache.reset_cache()  # something may have been compiled without
    compilation_cache.set_cache_dir(str(folder))
