"""Epochs by hand: at least so many steps, and until the episode ends."""

import pytest

from iterq.epochs import Epoch, epochs, read_epochs
from iterq.errors import Refusal


def test_an_epoch_ends_with_the_episode_that_takes_it_over_its_length():
    # Lengths 60, 50, 30, 100, 5: 110 >= 100 ends the first epoch at step 110, not at 100; the next ends at 240.
    log = [(60, 1.0), (110, 3.0), (140, 5.0), (240, 7.0), (245, 9.0)]
    assert epochs(log, 100) == [Epoch(110, 2.0, 2), Epoch(240, 6.0, 2)]  # the last one is not complete


def test_an_epoch_of_exactly_its_length_is_complete():
    assert epochs([(100, 2.0), (200, 4.0)], 100) == [Epoch(100, 2.0, 1), Epoch(200, 4.0, 1)]


def test_no_episode_no_epoch():
    assert epochs([], 100) == []
    with pytest.raises(Refusal, match="at least one step"):
        epochs([], 0)


def test_epochs_of_a_run_directory(tmp_path):
    (tmp_path / "episodes.csv").write_text(
        "seed,step,return,length,wall_time\n3,60,1.0,60,0.1\n5,80,2.0,80,0.1\n3,110,3.0,49,0.2\n5,90,4.0,9,0.2\n"
    )
    # The second episode of seed 3 began with a step that only reset: 60 + 49 environment steps.
    assert read_epochs(tmp_path, 109) == {3: [Epoch(109, 2.0, 2)], 5: []}
    assert read_epochs(tmp_path, 110) == {3: [], 5: []}
    (tmp_path / "episodes.csv").write_text("seed,step\n3,x\n")
    with pytest.raises(Refusal, match="damaged"):
        read_epochs(tmp_path)
    with pytest.raises(Refusal, match=r"no episodes\.csv"):
        read_epochs(tmp_path / "nowhere")
