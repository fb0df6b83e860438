"""Compiled programs are kept from run to run, and nothing depends on it."""

import os
import stat
import subprocess
import sys

import pytest

pytestmark = pytest.mark.medium

SCRIPT = """
import jax
from iterq.programs import keep_programs
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
jax.jit(lambda x: x + 1)(1)  # before there was a place for it
keep_programs()
print(jax.jit(lambda x: 2 * x + 40)(1))
"""


def run(**env):
    known = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    return subprocess.run([sys.executable, "-W", "error", "-c", SCRIPT], env=known | env, capture_output=True, text=True, check=True)


def test_programs_are_kept_in_the_users_cache(tmp_path):
    assert run(XDG_CACHE_HOME=str(tmp_path / "cache")).stdout == "42\n"
    folder = tmp_path / "cache" / "iterq" / "programs"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    kept = {path: path.stat().st_mtime_ns for path in folder.glob("*-cache")}
    assert kept
    run(XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert {path: path.stat().st_mtime_ns for path in folder.glob("*-cache")} == kept


@pytest.mark.parametrize("told", [True, False])
def test_without_such_a_place_or_with_another_nothing_is_put_there(told, tmp_path):
    (tmp_path / "file").touch()
    where = tmp_path / "cache" if told else tmp_path / "file" / "cache"
    told_by = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "elsewhere")} if told else {}
    assert run(XDG_CACHE_HOME=str(where), **told_by).stdout == "42\n"
    assert not where.exists()
    assert (tmp_path / "elsewhere").exists() == told
