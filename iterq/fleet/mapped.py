"""Memory that the host and a GPU both work on.

To send a GPU a few kilobytes, or to ask it for some, takes longer than what it computes from them. But its programs can read and write
the host's memory themselves where that is pinned: an array that claims to be the GPU's own, and lies there, needs no copies at all.
"""

import ctypes
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

PINNED = "pinned_host"


def mapped(values: np.ndarray) -> tuple[Any, np.ndarray | None]:
    """An array of the device that holds `values`, and its memory as the host sees it; None where there is no such memory.

    A program that is given the array to keep (`donate_argnums`) returns one in the same memory; `same_memory` tells. The memory may be
    looked at as long as there is such an array.
    """
    device = jax.devices()[0]
    if device.platform == "cpu":  # for tests: there nothing needs to be sent anyway
        array = held = jax.jit(jnp.copy)(values)  # memory of its own; `device_put` may take that of `values`
    elif device.platform == "gpu" and any(memory.kind == PINNED for memory in device.addressable_memories()):
        held = jax.device_put(values, jax.sharding.SingleDeviceSharding(device, memory_kind=PINNED))
        place = {"shape": values.shape, "typestr": values.dtype.str, "data": (held.unsafe_buffer_pointer(), False), "version": 3}
        try:
            array = jnp.asarray(SimpleNamespace(__cuda_array_interface__=place))
        except (TypeError, ValueError, jax.errors.JaxRuntimeError):  # a GPU that does not know this interface
            return values, None
    else:
        return values, None
    memory: Any = (ctypes.c_uint8 * values.nbytes).from_address(held.block_until_ready().unsafe_buffer_pointer())
    memory.held = held  # where the array does not own what it lies in
    seen = np.frombuffer(memory, values.dtype).reshape(values.shape)
    return (array, seen) if same_memory(array, seen) else (values, None)


def same_memory(array: Any, seen: np.ndarray) -> bool:
    """Whether `array` lies in the memory `seen`."""
    return array.unsafe_buffer_pointer() == seen.__array_interface__["data"][0]
