"""The logs of a run: what they hold, that an interrupted run continues them exactly, and what TensorBoard and W&B get of them."""

import collections
import contextlib
import csv
import json
import math
import re
import shutil
import sys
import threading

import numpy as np
import pytest

from iterq.config import Config
from iterq.errors import Refusal
from iterq.sinks import STYLES
from iterq.track import Tracker

pytestmark = pytest.mark.medium

PLAIN = Config(seeds=(0, 3), tensorboard=False)
BOARD = Config(seeds=(0, 3))


@contextlib.contextmanager
def tracking(folder, config=PLAIN, marks=None):
    with contextlib.closing(Tracker(folder, config, marks)) as tracker:
        yield tracker


def report(tracker, part):
    """The logs of two seeds for the ten steps of a part: seed 0 ends an episode at every step, seed 3 at every other."""
    for step in range(10 * part, 10 * part + 10):
        tracker.episodes([(seed, step, step / 3 + seed, step % 7 + 1) for seed in (0, 3) if seed == 0 or step % 2], wall=step / 8)
    elapsed = 10.0 * (part + 1)
    tracker.metrics([{"seed": s, "step": 10 * part + 9, "train/loss": 1 / (s + part + 1), "time/time_elapsed": elapsed} for s in (0, 3)])


def written(folder):
    return {name: (folder / name).read_bytes() for name in ("episodes.csv", "metrics.jsonl")}


def test_the_files_read_back_exactly(tmp_path):
    returns = [0.1, -1e-300, 1 / 3, float(np.float32(0.1)), math.inf]
    with tracking(tmp_path / "new" / "run") as tracker:
        tracker.episodes([(3, i, x, 7) for i, x in enumerate(returns)], wall=1.23456)
        tracker.episodes([], wall=2.0)
        tracker.metrics(
            [{"seed": 3, "step": 8, "b": 0.1, "a": math.nan, "c": -math.inf, "d": np.float32(0.5), "e": np.int64(2), "f": None}]
        )
    tracker.close()  # a second time
    text = (tmp_path / "new" / "run" / "episodes.csv").read_text()
    assert text.startswith("seed,step,return,length,wall_time\n3,0,0.1,7,1.235\n")
    rows = list(csv.DictReader(text.splitlines()))
    assert [float(row["return"]) for row in rows] == returns
    line = '{"seed": 3, "step": 8, "b": 0.1, "a": null, "c": null, "d": 0.5, "e": 2, "f": null}\n'
    assert (tmp_path / "new" / "run" / "metrics.jsonl").read_text() == line


def test_recent_is_the_last_hundred_episodes_of_a_seed(tmp_path):
    with tracking(tmp_path) as tracker:
        tracker.episodes([(seed, i, float(i), i + seed) for i in range(130) for seed in (0, 3)], wall=0.0)
        marks = tracker.marks()
        tracker.episodes([(0, 999, -1.0, 1)], wall=0.0)
        assert tracker.recent(0) == [(float(i), i) for i in range(31, 130)] + [(-1.0, 1)]
        assert tracker.recent(3) == [(float(i), i + 3) for i in range(30, 130)]
        assert tracker.recent(5) == []
    with tracking(tmp_path, marks=marks) as tracker:
        assert tracker.recent(0) == [(float(i), i) for i in range(30, 130)]


TAILS = {
    "nothing": (b"", b""),
    "half a line": (b"0,23,7.66", b'{"seed": 0, "st'),
    "garbage": (b"\x00\xff\xfe" * 5000, b"\x00" * 4096),
    "lines": (b"0,20,6.5,7,2.5\n" * 9, b'{"seed": 0, "step": 29, "train/loss": 9.0}\n' * 9),
}


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("parts", [0, 2])
def test_a_resumed_run_ends_in_the_same_files(tmp_path, tail, parts):
    with tracking(tmp_path / "whole") as tracker:
        for part in range(4):
            report(tracker, part)
        recent, last = tracker.recent(3), tracker.marks()
    folder = tmp_path / "run"
    with tracking(folder) as tracker:
        for part in range(parts):
            report(tracker, part)
        marks = json.loads(json.dumps(tracker.marks()))
    for name, garbage in zip(("episodes.csv", "metrics.jsonl"), TAILS[tail], strict=True):
        with (folder / name).open("ab") as file:
            file.write(garbage)
    with tracking(folder, marks=marks) as tracker:
        assert tracker.marks() == marks
        for part in range(parts, 4):
            report(tracker, part)
        assert tracker.recent(3) == recent
        assert tracker.marks() == last
    assert written(folder) == written(tmp_path / "whole")


def test_marks_are_on_the_disk_when_they_are_given(tmp_path):
    with tracking(tmp_path / "run") as tracker:
        report(tracker, 0)
        tracker.episodes([(0, 10, 1.0, 1)], wall=9.0)
        marks = tracker.marks()
        shutil.copytree(tmp_path / "run", tmp_path / "copy")  # what a crash right now would leave
    with tracking(tmp_path / "copy", marks=marks):
        pass
    assert written(tmp_path / "copy") == written(tmp_path / "run")


def test_without_marks_the_files_start_anew(tmp_path):
    for _ in range(2):
        with tracking(tmp_path) as tracker:
            report(tracker, 0)
    assert len((tmp_path / "episodes.csv").read_text().splitlines()) == 16
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["episodes.csv", "metrics.jsonl"])
@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (flip, "its first [0-9]+ bytes are not those"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "it has [0-9]+ bytes, but the checkpoint was written after"),
        (lambda path: path.unlink(), "it is not there"),
    ],
)
def test_damage_is_refused_and_nothing_is_changed(tmp_path, name, damage, why):
    with tracking(tmp_path) as tracker:
        report(tracker, 0)
        marks = tracker.marks()
    other = tmp_path / {"episodes.csv": "metrics.jsonl", "metrics.jsonl": "episodes.csv"}[name]
    with other.open("a") as file:
        file.write("to be cut off")
    before = other.read_bytes()
    damage(tmp_path / name)
    with pytest.raises(Refusal, match=f"{re.escape(name)} is damaged: {why}"):
        Tracker(tmp_path, PLAIN, marks)
    assert other.read_bytes() == before


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /dev/full")
def test_a_full_disk_is_an_os_error(tmp_path):
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    tracker = Tracker(tmp_path, PLAIN)
    with pytest.raises(OSError, match="No space left"):
        report(tracker, 0)
    with pytest.raises(OSError, match="No space left"):  # what is pending cannot be written now either
        tracker.close()
    assert len((tmp_path / "episodes.csv").read_text().splitlines()) == 16


def events(folder):
    """(tag, step) -> value of every scalar under a seed's folder, as TensorBoard loads them; each must be there once."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    values, walls = {}, []
    for path in sorted(folder.glob("events.out.tfevents.*")):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                assert value.metadata.plugin_data.plugin_name == "scalars"
                assert (value.tag, event.step) not in values
                values[value.tag, event.step] = value.tensor.float_val[0]
                walls.append(event.wall_time)
    assert walls == sorted(walls)
    return values


def test_tensorboard_has_every_step_once(tmp_path):
    threads = threading.active_count()
    with tracking(tmp_path, BOARD) as tracker:
        for part in range(2):
            report(tracker, part)
        marks = tracker.marks()
        tracker.metrics([{"seed": 0, "step": 29, "train/loss": 99.0, "eval/mean_reward": math.nan}])  # nan: null: no event
        assert ("train/loss", 29) in events(tmp_path / "tb" / "seed_0")  # a viewer need not wait for the end
    with tracking(tmp_path, BOARD, marks) as tracker:
        assert ("train/loss", 29) not in events(tmp_path / "tb" / "seed_0")
        for part in range(2, 4):
            report(tracker, part)
    assert threading.active_count() == threads  # its writers have one each
    for seed in (0, 3):
        found = events(tmp_path / "tb" / f"seed_{seed}")
        assert set(found) == {(tag, 10 * part + 9) for tag in ("train/loss", "time/time_elapsed") for part in range(4)}
        for part in range(4):
            assert found["train/loss", 10 * part + 9] == pytest.approx(1 / (seed + part + 1), rel=1e-6)


def test_tensorboard_starts_anew_with_the_run(tmp_path):
    for _ in range(2):
        with tracking(tmp_path, BOARD) as tracker:
            report(tracker, 0)
    assert len(events(tmp_path / "tb" / "seed_0")) == 2


def test_without_tensorboard_a_line_says_so(tmp_path, monkeypatch, capsys):
    for name in [name for name in sys.modules if name.split(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with tracking(tmp_path, BOARD) as tracker:
        report(tracker, 0)
    assert capsys.readouterr().err == "tensorboard is not installed: this run goes without its events\n"
    assert not (tmp_path / "tb").exists()
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2


NAMES = ("rollout/ep_rew_mean", "rollout/ep_len_mean", "rollout/exploration_rate", "time/fps", "train/loss", "eval/mean_reward")
RENAMED = {
    "sb3": NAMES,
    "cleanrl": ("charts/episodic_return", "charts/episodic_length", "charts/epsilon", "charts/SPS", "losses/td_loss", NAMES[5]),
    "dopamine": ("Train/AverageReturns", NAMES[1], NAMES[2], "Train/AverageStepsPerSecond", NAMES[4], "Eval/AverageReturns"),
}


@pytest.mark.parametrize("style", STYLES)
def test_styles_rename_for_tensorboard_only(tmp_path, style):
    row = {"seed": 0, "step": 5} | {name: float(i) for i, name in enumerate(NAMES)}
    with tracking(tmp_path, Config(log_style=style)) as tracker:
        tracker.metrics([row])
    assert events(tmp_path / "tb" / "seed_0") == {(name, 5): float(i) for i, name in enumerate(RENAMED[style])}
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == row


TRACKED = Config(seeds=(0, 3), tensorboard=False, wandb="project", log_style="cleanrl")


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """W&B that writes here only and talks to nobody."""
    pytest.importorskip("wandb")
    for name in ("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR", "WANDB_ARTIFACT_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "wandb-own"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")


def records(path):
    """The records of a .wandb file: behind a header of 7 bytes LevelDB's log format, blocks of 32 KiB of (crc, length, kind, data)."""
    from wandb.proto.wandb_internal_pb2 import Record  # pyright: ignore[reportAttributeAccessIssue]

    data, at, whole = path.read_bytes(), 7, b""
    assert data.startswith(b":W&B")
    while at < len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        whole += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # a full record, or the last piece of one
            yield Record.FromString(whole)
            whole = b""


def logged(folder):
    """Run id -> what its offline files say of the run, and the (step, loss) in its history."""
    import wandb

    wandb.teardown()  # its service may still be writing
    found = collections.defaultdict(list)
    about = {}
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        for record in records(path):
            if record.WhichOneof("record_type") == "run":
                run = record.run
                about[run.run_id] = (run.project, run.run_group, run.display_name, run.job_type)
            if record.WhichOneof("record_type") == "history":
                row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
                found[path.stem.removeprefix("run-")].append((row["_step"], row["losses/td_loss"]))
    return about, {run: sorted(rows) for run, rows in found.items()}


@pytest.mark.usefixtures("offline")
def test_wandb_has_a_run_per_seed_and_a_resumed_run_goes_on_with_them(tmp_path):
    folder = tmp_path / "run"
    with tracking(folder, TRACKED) as tracker:
        report(tracker, 0)
        marks = tracker.marks()
        report(tracker, 1)  # and a crash: after the resume these rows come once more
    ids = json.loads((folder / "wandb.json").read_text())
    assert sorted(ids) == ["0", "3"]
    about, history = logged(folder)
    for seed in (0, 3):
        assert about[ids[str(seed)]] == ("project", "dqn-CartPole-v1", f"seed-{seed}", "train")
        assert history[ids[str(seed)]] == [(9, 1 / (seed + 1)), (19, 1 / (seed + 2))]

    with tracking(folder, TRACKED, marks) as tracker:
        for part in (1, 2):
            report(tracker, part)
    assert json.loads((folder / "wandb.json").read_text()) == ids
    _, history = logged(folder)
    assert sorted(history) == sorted(ids.values())
    for seed in (0, 3):  # offline nobody knows what was sent before, so step 19 stands in both files of the same run
        assert dict(history[ids[str(seed)]]) == {9: 1 / (seed + 1), 19: 1 / (seed + 2), 29: 1 / (seed + 3)}

    (folder / "wandb.json").write_text('{"0": ')
    with pytest.raises(Refusal, match=r"wandb\.json is damaged"):
        Tracker(folder, TRACKED, marks)
    with tracking(folder, TRACKED):
        pass
    assert not set(json.loads((folder / "wandb.json").read_text()).values()) & set(ids.values())  # from the beginning: other runs


class Run:
    """Stands for a W&B run that has got steps below 20 already, as its server would say."""

    step = 20

    def __init__(self):
        self.rows, self.finished = [], 0

    def log(self, row, step):
        self.rows.append((step, row))

    def finish(self):
        self.finished += 1


@pytest.mark.usefixtures("offline")
def test_steps_that_wandb_has_are_not_sent_again(tmp_path, monkeypatch):
    runs = []
    monkeypatch.setattr("wandb.init", lambda **_: runs.append(Run()) or runs[-1])
    with tracking(tmp_path, TRACKED) as tracker:
        for part in range(3):
            report(tracker, part)
    assert [(run.rows, run.finished) for run in runs] == [
        ([(29, {"losses/td_loss": 1 / (seed + 3), "time/time_elapsed": 30.0})], 1) for seed in (0, 3)
    ]


@pytest.mark.usefixtures("offline")
def test_what_wandb_refuses_is_one_line_and_the_runs_before_it_are_finished(tmp_path, monkeypatch):
    from wandb.errors import UsageError

    runs = [Run()]

    def init(**_):
        if runs[0].rows:
            raise UsageError("no API key\n  configured")
        runs[0].rows.append("used")
        return runs[0]

    monkeypatch.setattr("wandb.init", init)
    with pytest.raises(Refusal, match=r"^wandb: no API key configured$"):
        Tracker(tmp_path, TRACKED)
    assert runs[0].finished == 1
    assert not any(tmp_path.glob("*.*"))


def test_without_wandb_a_line_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(Refusal, match=re.escape("this needs wandb: pip install 'iterq[wandb]'")):
        Tracker(tmp_path, TRACKED)
