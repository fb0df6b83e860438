"""What docs say of device runs follows from the returns that are kept of them."""

import importlib.util
from pathlib import Path

import pytest

pytestmark = pytest.mark.medium

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def analysis():
    spec = importlib.util.spec_from_file_location("docs_data_verdicts", DOCS / "data" / "verdicts.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def table(analysis):
    return list(analysis.mujoco())


def lines(name):
    return (DOCS / name).read_text(encoding="utf-8").splitlines()


def test_the_verdicts_on_i_sac_are_those_of_the_kept_returns(table):
    start = lines("mujoco.md").index(table[0])
    assert lines("mujoco.md")[start : start + len(table) + 1] == [*table, ""]


def test_what_the_text_concludes_is_in_the_table(table):
    rows = {title: cells for title, _, _, *cells in (line.strip("| ").split(" | ") for line in table[2:])}
    assert [title for title, (along, _) in rows.items() if along.endswith("better")] == [
        *("Hopper-v5", "Hopper-v5 to 750k", "Hopper-v5 to 350k"),
        *("Hopper, four runs", "Hopper, these and i-SAC to 750k", "Walker2d, two runs", "three tasks, eight runs"),
    ]
    assert [title for title, (_, end) in rows.items() if end.endswith("better")] == ["three tasks, eight runs"]
    assert [title for title, cells in rows.items() if any(cell.endswith("worse") for cell in cells)] == ["Walker2d-v5"]
    assert not any("equal" in cell for cells in rows.values() for cell in cells)


def test_the_returns_of_sac_and_i_sac_are_the_kept_ones(analysis):
    assert set(analysis.returns()) <= set(lines("mujoco.md"))


def test_every_kept_run_has_a_verdict_of_its_own(analysis):
    assert {run for runs in analysis.ROWS.values() if len(runs) == 1 for run in runs} == {source.task for source in analysis.sources()}


def test_the_run_that_pools_leave_out_has_the_sac_of_another(analysis):
    curves = {source.task: source.logs for source in analysis.sources() if source.label == "sac"}
    for twin, log in zip(curves[analysis.TWIN], curves["Hopper-v5"], strict=True):
        assert twin.values.tolist() == log.values[: len(twin.values)].tolist()


def test_the_verdict_on_i_dqn_is_that_of_the_kept_returns(analysis):
    assert analysis.atari() in " ".join(lines("atari.md"))
