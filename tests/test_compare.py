"""tools/compare: whether two checkouts compute the same bits."""

import importlib.machinery
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "tools" / "compare"


@pytest.fixture(scope="module")
def tool():
    loader = importlib.machinery.SourceFileLoader("compare", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("compare", loader))
    loader.exec_module(module)
    return module


def checkout(folder, file="", old="", new=""):
    """A copy of this package, with one thing changed; `new` comes first where `old` is empty."""
    shutil.copytree(ROOT / "iterq", folder / "iterq", ignore=shutil.ignore_patterns("__pycache__"))
    if file:
        text = (folder / "iterq" / file).read_text()
        assert old in text
        (folder / "iterq" / file).write_text(text.replace(old, new, 1))
    return folder


def compare(*words):
    done = subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout, done.stderr


def test_equal_checkouts_are_the_same_and_changed_ones_are_not(tmp_path):
    here = checkout(tmp_path / "here")
    case = ("--only", "i-dqn, sum of losses")
    assert compare(here, checkout(tmp_path / "equal"), *case) == (0, "i-dqn, sum of losses: same\n", "")
    slower = checkout(tmp_path / "slower", "agents.py", "adam(config.learning_rate,", "adam(0.99 * config.learning_rate,")
    code, told, _ = compare(here, slower, *case)
    assert code == 1
    assert told.startswith("i-dqn, sum of losses: DIFFERENT in learner (seed 0.")


def test_a_checkout_that_does_not_run_is_told(tmp_path):
    broken = checkout(tmp_path / "broken", "presets.py", "", "1 / 0\n")
    code, told, said = compare(checkout(tmp_path / "here"), broken, "--only", "i-dqn, sum of losses")
    assert (code, told) == (2, "")
    assert "NEW failed" in said
    assert "ZeroDivisionError" in said


def test_a_folder_without_the_package_is_refused(tmp_path):
    code, _, said = compare(tmp_path, ROOT)
    assert code == 2
    assert "holds no package iterq" in said


def test_arrays_are_the_same_by_name_or_if_they_are_only_renamed(tool):
    old = {"anchor": "a", "online": "b"}
    assert tool.different(old, dict(old)) == ""
    assert tool.different(old, {"first": "b", "target": "a"}) == ""
    assert tool.different(old, {"anchor": "b", "online": "a"}) == "anchor, online"
    assert tool.different(old, {**old, "count": "c"}) == "count (only in NEW)"
    assert tool.different(old, {"online": "c"}) == "online, anchor (only in OLD)"
    many = {str(i): "x" for i in range(6)}
    assert tool.different(many, dict.fromkeys(many, "y")) == "0, 1, 2 and 3 more"


def test_a_case_that_fails_or_lacks_a_part_is_different(tool):
    whole = {"learner": {"a": "1"}, "replay": {"b": "2"}}
    assert tool.verdict(whole, {"failed": "Refusal: no"}) == {"run": "NEW: Refusal: no"}
    assert tool.verdict({"failed": "no"}, {"failed": "no"}) == {"run": "OLD: no; NEW: no"}
    assert tool.verdict(whole, {"learner": {"a": "1"}}) == {"replay": "b (only in OLD)"}
