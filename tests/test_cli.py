"""The command as a user meets it: what it prints, what it refuses, what it leaves behind."""

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from iterq import cli, progress
from iterq.config import seeds, window_sizes
from iterq.errors import Refusal
from iterq.store import staged

pytestmark = pytest.mark.medium

TINY = ["--K", "1,2", "--seeds", "11-11", "--N", "3", "--steps", "90", "--samples", "2000", "--points", "5"]


def iterq(*words, timeout=300, **kwargs):
    """Run `iterq words…` as a process."""
    return subprocess.run([sys.executable, "-m", "iterq", *map(str, words)], capture_output=True, text=True, timeout=timeout, **kwargs)


def leftovers(folder: Path):
    return sorted(p.name for p in folder.iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["reproduce", "car-on-hil"], "unknown experiment 'car-on-hil', did you mean 'car-on-hill'?"),
        (["reproduce", "chess"], "known: lqr, "),
        (["reprodouce"], "did you mean 'reproduce'"),
        (["reproduce", "car-on-hill", "--scale", "papier"], "unknown scale 'papier', did you mean 'paper'?"),
        (["reproduce", "car-on-hill", "--K", "41"], "a window of 41 does not fit N = 40"),
        (["reproduce", "car-on-hill", "--K", "4", "--N", "3"], "a window of 4 does not fit N = 3"),
        (["reproduce", "car-on-hill", "--K", "0"], "a window of 0 does not fit"),
        (["reproduce", "car-on-hill", "--K=-1"], "'-1' is not a list of non-negative integers"),
        (["reproduce", "car-on-hill", "--seeds=-3"], "--seeds: '-3' is not a list of non-negative integers"),
        (["reproduce", "car-on-hill", "--seeds", "0"], "0 is not a count of at least 1"),
        (["reproduce", "car-on-hill", "--seeds", "5-2"], "names nothing"),
        (["reproduce", "car-on-hill", "--seeds", "many"], "'many' is not a list"),
        (["reproduce", "car-on-hill", "--gamma", "1.5"], "--gamma must lie in [0, 1)"),
        (["reproduce", "car-on-hill", "--learning-rate", "0"], "--learning-rate must be positive"),
        (["reproduce", "car-on-hill", "--steps", "10"], "cannot hold N = 40"),
        (["reproduce", "car-on-hill", "--wings", "2"], "--wings"),
        (["reproduce", "car-on-hill", "--steps", "soon"], "soon"),
        (["reproduce", "lqr", "--K", "1"], "K >= 2"),
        (["list", "--colour"], "list takes no '--colour'"),
    ],
)
def test_bad_input_is_one_clear_line(words, message):
    with pytest.raises(Refusal) as refusal:
        cli.command(words)
    assert message in " ".join(str(refusal.value).split())


def test_a_refusal_is_one_line_on_stderr_and_exit_code_2(tmp_path):
    for words in (
        ["reproduce", "nothing"],
        ["reproduce", "lqr", "--K", "many", "--out", tmp_path / "out"],
        ["reproduce", "car-on-hill", "--wings", "2"],
    ):
        done = iterq(*words)
        assert done.returncode == 2, done.stderr
        assert done.stdout == ""
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert done.stderr.startswith("iterq: ")
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [("3", (0, 1, 2)), ("0-4", (0, 1, 2, 3, 4)), ("0,3,7", (0, 3, 7)), ("7,0-2", (7, 0, 1, 2)), ("11,11", (11,))],
)
def test_seeds_are_a_count_a_range_or_a_list(text, expected):
    assert seeds(text) == expected


def test_window_sizes():
    assert window_sizes("5") == (5,)
    assert window_sizes("1,4") == (1, 4)


def test_list_and_help():
    done = iterq("list", "--json")
    assert done.returncode == 0
    assert {"lqr", "car-on-hill", "cart-pole", "lunar-lander", "cost", "atari-main"} <= set(json.loads(done.stdout)["experiments"])
    assert "car-on-hill" in iterq("list").stdout
    assert "reproduce" in iterq("--help").stdout
    shown = iterq("reproduce", "car-on-hill", "--help")
    assert shown.returncode == 0
    assert "--learning-rate" in shown.stdout
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", iterq("--version").stdout)


def test_lqr_from_the_command_line(tmp_path):
    out = tmp_path / "deep" / "lqr"
    done = iterq("reproduce", "lqr", "--json", "--out", out)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert leftovers(out) == ["lqr.pdf", "lqr.png", "paths.csv", "result.json"] == printed["files"]
    stored = json.loads((out / "result.json").read_text())
    assert stored["passed"] is True
    assert {q["name"]: q["passed"] for q in stored["quantities"]}["distance of i-QN's Q2 to Q*"] is True
    assert stored["versions"]["jax"]
    assert leftovers(out.parent) == ["lqr"]
    # A second run replaces the first; a table is printed without --json.
    again = iterq("reproduce", "lqr", "--out", out)
    assert again.returncode == 0
    assert "figure: " in again.stdout
    assert "pass" in again.stdout
    assert leftovers(out.parent) == ["lqr"]


def test_car_on_hill_from_the_command_line(tmp_path):
    out = tmp_path / "car"
    done = iterq("reproduce", "car-on-hill", *TINY, "--json", "--out", out)
    assert done.returncode == 0, done.stderr
    assert leftovers(out) == ["car_on_hill.pdf", "car_on_hill.png", "iterations.csv", "result.json", "table1.csv"]
    stored = json.loads((out / "result.json").read_text())
    judged = {q["name"]: q["passed"] for q in stored["quantities"] if q["band"]}
    assert {passed for name, passed in judged.items() if "worst seed" in name} == {True}
    assert {passed for name, passed in judged.items() if "worst seed" not in name} == {None}  # not the paper's problem
    lines = (out / "iterations.csv").read_text().splitlines()
    assert len(lines) == 1 + 2 * 3
    assert re.search(r"car-on-hill: 100%, [\d,]+ gradient steps of a network/s, \d+ s, about 0 s left", done.stderr)


def test_on_a_terminal_a_bar_shows_rate_and_time_left(tmp_path):
    words = [sys.executable, "-m", "iterq.cli", "reproduce", "car-on-hill", *TINY, "--json", "--out", str(tmp_path / "out")]
    screen, stderr = pty.openpty()
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=stderr, text=True, env={**os.environ, "TERM": "xterm", "COLUMNS": "160"}
    ) as process:
        os.close(stderr)
        shown = b""
        with contextlib.suppress(OSError):  # the way a terminal says that nobody writes any more
            while piece := os.read(screen, 1024):
                shown += piece
        assert process.stdout is not None
        assert json.loads(process.stdout.read())["passed"] is True
    os.close(screen)
    assert re.search(r"━━.*100%.* gradient steps of a network/s.*0:00:", re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode()))


def test_where_there_is_no_terminal_a_long_silence_is_broken(monkeypatch, capsys):
    for silence, lines in ((1e9, 1), (-1, 4)):
        monkeypatch.setattr(progress, "SILENCE", silence)
        with progress.progress("work", 1000, "pieces") as advance:
            for more in (0, 1, 1, 1, 100):
                advance(more)
        said = capsys.readouterr().err.splitlines()
        assert len(said) == lines
        assert re.fullmatch(r"work: 10%, [\d,]+ pieces/s, 0 s, about \d+ s left", said[-1])


def test_a_failed_band_is_exit_code_1(tmp_path, monkeypatch):
    # Steps of length zero: i-QN cannot come closer than QN.
    monkeypatch.chdir(tmp_path)
    assert cli.command(["reproduce", "lqr", "--learning-rate", "0"]) == 1
    assert json.loads((tmp_path / "runs/reproduce/lqr/result.json").read_text())["passed"] is False


def test_non_finite_values_stop_the_run_and_name_the_step(tmp_path):
    done = iterq("reproduce", "car-on-hill", *TINY, "--learning-rate", "1e30", "--out", tmp_path / "out")
    assert done.returncode == 2, done.stderr
    last = done.stderr.splitlines()[-1]
    assert re.search(r"iterq: non-finite loss at gradient step \d+ \(K = [12], seed 11\); nothing was written", last)
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_the_earlier_result_alone(tmp_path, sent):
    out = tmp_path / "out"
    out.mkdir()
    (out / "result.json").write_text('{"earlier": true}')
    words = ["reproduce", "car-on-hill", "--scale", "paper", "--K", "20", "--out", str(out)]
    process = subprocess.Popen([sys.executable, "-m", "iterq.cli", *words], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 120
        while len(leftovers(tmp_path)) < 2:  # the folder being written stands beside the result
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.1)
        time.sleep(6)  # well into the data, the search or the training
        process.send_signal(sent)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()  # a run of the paper's size must not outlive a test that failed
        process.communicate()
    assert process.returncode == 2
    assert said.splitlines()[-1] == "iterq: interrupted; nothing was written"
    assert leftovers(tmp_path) == ["out"]
    assert json.loads((out / "result.json").read_text()) == {"earlier": True}


def test_folders_that_cannot_be_written_are_refused_before_any_work(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    for out, message in (
        (tmp_path / "file", "is a file"),
        (tmp_path / "file" / "below", "cannot write"),
        (tmp_path / "mine", "holds files that are no result of iterq"),
        (Path("/proc/out"), "cannot write /proc/out"),
    ):
        with pytest.raises(Refusal, match=message):
            cli.command(["reproduce", "lqr", "--out", str(out)])
    assert leftovers(tmp_path) == ["file", "mine"]
    assert leftovers(tmp_path / "mine") == ["thesis.tex"]


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path):
    # A limit of 4 KiB per file stands for a disk that fills up while the figure is written.
    words = f"ulimit -f 4 && exec {sys.executable} -m iterq.cli reproduce lqr --out {tmp_path / 'out'}"
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1] == f"iterq: cannot write {tmp_path / 'out'}: File too large"
    assert leftovers(tmp_path) == []


def test_a_missing_extra_is_named(tmp_path):
    (tmp_path / "matplotlib.py").write_text("raise ModuleNotFoundError('No module named matplotlib', name='matplotlib')")
    done = iterq(
        "reproduce", "lqr", "--out", tmp_path / "out", env={**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    )
    assert done.returncode == 2
    assert done.stderr == "iterq: this needs matplotlib: pip install 'iterq[report]'\n"
    assert leftovers(tmp_path) == ["matplotlib.py"]


def test_a_result_appears_whole_or_not_at_all(tmp_path):
    out = tmp_path / "out"
    with staged(out) as folder:
        (folder / "result.json").write_text("1")
        assert not out.exists()
    assert (out / "result.json").read_text() == "1"

    def fails():
        with staged(out) as folder:
            (folder / "result.json").write_text("2")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fails()
    assert (out / "result.json").read_text() == "1"
    assert leftovers(tmp_path) == ["out"]
