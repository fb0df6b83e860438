import os

import jax
import pytest
from hypothesis import settings

# How long one example takes says how busy the machine is, not whether the code is right.
settings.register_profile("iterq", deadline=None)
settings.load_profile("iterq")


@pytest.fixture(scope="session", autouse=True)
def programs(tmp_path_factory):
    """JAX keeps what the tests of this run compile, since many need the same; the variables that let child processes share it."""
    base = tmp_path_factory.getbasetemp()
    settings = {
        "jax_compilation_cache_dir": str((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "jax-programs"),
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    for name, value in settings.items():
        jax.config.update(name, value)
    return {name.upper(): str(value) for name, value in settings.items()}
