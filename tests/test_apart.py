"""Processes that share a machine's GPUs."""

import pytest

from iterq.apart import FRACTION, OF_JAX, VISIBLE, places

pytestmark = pytest.mark.medium


def seen(count, given, gpus):
    """(GPU, share of its memory) of every process."""
    return [(found.get(VISIBLE), found[FRACTION]) for found in places(count, given, gpus)]


@pytest.mark.parametrize("gpus", [0, 1])
def test_on_one_gpu_processes_share_its_memory(gpus):
    assert seen(4, {}, gpus) == [(None, "0.225")] * 4
    assert seen(2, {VISIBLE: "3"}, gpus) == [("3", "0.450")] * 2


def test_processes_go_round_the_gpus():
    assert seen(2, {}, 2) == [("0", "0.900"), ("1", "0.900")]
    assert seen(5, {}, 2) == [("0", "0.300"), ("1", "0.450"), ("0", "0.300"), ("1", "0.450"), ("0", "0.300")]
    assert seen(2, {}, 8) == [("0", "0.900"), ("1", "0.900")]


@pytest.mark.parametrize(
    ("visible", "names"),
    [("2,5", ["2", "5", "2"]), ("GPU-8932f937,GPU-4bc1", ["GPU-8932f937", "GPU-4bc1", "GPU-8932f937"]), ("4,1,-1,2", ["4", "1", "4"])],
)
def test_processes_go_round_the_gpus_that_the_user_named(visible, names):
    assert [gpu for gpu, _ in seen(3, {VISIBLE: visible}, 8)] == names


@pytest.mark.parametrize("given", [{VISIBLE: ""}, {VISIBLE: "-1"}, {VISIBLE: "0,1", OF_JAX: "1"}, {OF_JAX: "0"}])
def test_what_the_user_has_hidden_stays_hidden(given):
    for found in places(3, given, 8):
        assert {name: found.get(name) for name in (VISIBLE, OF_JAX)} == {name: given.get(name) for name in (VISIBLE, OF_JAX)}


def test_other_variables_stay_and_a_share_that_was_given_is_kept_to():
    given = {FRACTION: "0.1", "HOME": "somewhere"}
    assert places(2, given, 2) == [{**given, VISIBLE: "0"}, {**given, VISIBLE: "1"}]
    assert places(2, given, 1) == [given, given]
