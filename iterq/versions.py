"""The versions that decide the numbers of a run."""

import importlib.metadata
import platform
from collections.abc import Sequence

import jax

import iterq

PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "gymnasium")


def versions(more: Sequence[str] = ()) -> dict[str, str]:
    """Of iterq, Python, the packages that matter and `more`, as far as they are installed, and what they run on."""
    found = {}
    for name in (*PACKAGES, *more):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    machine = {"machine": platform.machine(), "device": jax.devices()[0].device_kind}
    return {"iterq": iterq.__version__, "python": platform.python_version(), **found, **machine}
