"""Checkpoints of a run: complete, checked, and never half of one.

    checkpoint/step-000000050000/
        manifest.json              format, step, hash of the configuration, where the logs stood, size and SHA-256 of every file,
                                   SHA-256 of all this
        seed-3.safetensors         parameters, optimiser, counters, environment
        seed-3.replay.raw          the rows of the replay, as they lie in memory

One is written aside, flushed to the disk and renamed; the one before it stays until the next. Nothing in it is ever unpickled.
"""

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import safetensors
import safetensors.numpy

from iterq.errors import Refusal
from iterq.fleet import Fleet
from iterq.keys import bare
from iterq.replay import Replay
from iterq.store import flush, write_json

FORMAT = 1
FOLDER, MANIFEST = "checkpoint", "manifest.json"
KEPT = 2


class Checkpoint(NamedTuple):
    """One that has been read and found good."""

    step: int
    elapsed: float  # seconds of training before it
    marks: dict[str, Any]  # where the logs stood
    folder: Path


def named(tree: Any) -> dict[str, np.ndarray]:
    """The leaves of a tree by their path, such as `learner.chain.online.torso`; of typed keys, their words."""
    leaves = jax.tree_util.tree_leaves_with_path(bare(tree))
    return {jax.tree_util.keystr(path, simple=True, separator="."): np.asarray(x) for path, x in leaves}


def save(run: Path, fleet: Fleet, config_hash: str, marks: dict[str, Any], elapsed: float) -> Path:
    """Write a checkpoint of `fleet`; if that fails, whatever was there before is untouched."""
    root = run / FOLDER
    root.mkdir(exist_ok=True)
    aside, place = root / ".writing", root / f"step-{fleet.n:012d}"
    clear(run)
    try:
        aside.mkdir()
        files = {}
        for s, seed in enumerate(fleet.seeds):
            # One row per step, and that of the step to come.
            state = fleet.state(s, min(fleet.steps(s) + 1, fleet.memory.capacity))
            replay: Replay = state["replay"]
            arrays = named({**state, "replay": replay._replace(data=None)})
            files |= _write(aside / f"seed-{seed}.safetensors", safetensors.numpy.save(arrays))
            files |= _write(aside / f"seed-{seed}.replay.raw", np.ascontiguousarray(replay.data).data)
        manifest = {"format": FORMAT, "step": fleet.n, "config": config_hash, "elapsed": elapsed, "logs": marks, "files": files}
        write_json(aside / MANIFEST, {**manifest, "sha256": _digest(manifest)})
        flush(aside / MANIFEST)
        flush(aside)
        if place.exists():
            shutil.rmtree(place)
        aside.rename(place)
        flush(root)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    for old in sorted(root.glob("step-*"))[:-KEPT]:
        shutil.rmtree(old)
    return place


def clear(run: Path) -> None:
    """Remove what an interrupted write has left."""
    shutil.rmtree(run / FOLDER / ".writing", ignore_errors=True)


def _write(path: Path, data: Any) -> dict[str, Any]:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return {path.name: {"bytes": path.stat().st_size, "sha256": hashlib.sha256(data).hexdigest()}}


def _digest(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def newest(run: Path, names: Sequence[str]) -> Checkpoint | None:
    """The newest good checkpoint; what is wrong with newer ones is said. None: there is none yet. Refused: there are only bad ones."""
    found = sorted((run / FOLDER).glob("step-*"), reverse=True)
    reasons = []
    for folder in found:
        try:
            return check(folder, names)
        except Refusal as error:
            reasons.append(str(error))
            print(f"iterq: {error}", file=sys.stderr)
    if found:
        raise Refusal(f"{run} has no good checkpoint: {'; '.join(reasons)}")
    return None


def check(folder: Path, names: Sequence[str]) -> Checkpoint:
    """The checkpoint in `folder`, if it is whole and of a configuration that goes by one of `names`."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        number, config, digest, files = manifest["format"], manifest["config"], manifest.pop("sha256"), manifest["files"]
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise Refusal(f"checkpoint {folder.name} is damaged: its manifest cannot be read ({type(error).__name__})") from error
    if number != FORMAT:
        raise Refusal(f"checkpoint {folder.name} has format {number}; this version of iterq reads format {FORMAT}")
    if config not in names:
        raise Refusal(f"checkpoint {folder.name} belongs to another configuration")
    if digest != _digest(manifest):
        raise Refusal(f"checkpoint {folder.name} is damaged: its manifest has changed since it was written")
    for name, stated in files.items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != stated["bytes"]:
            size = path.stat().st_size if path.is_file() else 0
            raise Refusal(f"checkpoint {folder.name} is damaged: {name} has {size} bytes instead of {stated['bytes']}")
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != stated["sha256"]:
                raise Refusal(f"checkpoint {folder.name} is damaged: {name} has changed since it was written")
    return Checkpoint(int(manifest["step"]), float(manifest["elapsed"]), manifest["logs"], folder)


def restore(checkpoint: Checkpoint, fleet: Fleet) -> None:
    """Bring a new fleet of the same configuration to where `checkpoint` was."""
    for s, seed in enumerate(fleet.seeds):
        arrays = safetensors.numpy.load_file(checkpoint.folder / f"seed-{seed}.safetensors")
        like = fleet.state(s, 0)
        rows = np.fromfile(checkpoint.folder / f"seed-{seed}.replay.raw", np.uint8).reshape(-1, like["replay"].data.shape[1])
        like["replay"] = like["replay"]._replace(data=None)
        state = fill(like, arrays, checkpoint.folder.name)
        fleet.restore(s, {**state, "replay": state["replay"]._replace(data=rows)})


def fill(like: Any, arrays: dict[str, np.ndarray], source: str) -> Any:
    """A tree like `like` with the leaves of `arrays`; an axis of length 0 takes any length."""
    expected = named(like)
    if expected.keys() != arrays.keys():
        odd = sorted(expected.keys() ^ arrays.keys())
        raise Refusal(f"{source} does not fit this agent: {odd[0]} is in only one of them")
    arrays = {name: _without_last(name, arrays[name], like=x) for name, x in expected.items()}
    for name, x in expected.items():
        fits = len(x.shape) == arrays[name].ndim and all(a in (0, b) for a, b in zip(x.shape, arrays[name].shape, strict=True))
        if not fits or x.dtype != arrays[name].dtype:
            raise Refusal(f"{source} does not fit this agent: {name} is {arrays[name].shape} {arrays[name].dtype}, not {x.shape} {x.dtype}")
    return jax.tree.unflatten(jax.tree.structure(like), [arrays[name] for name in expected])


def _without_last(name: str, x: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Up to version 0.2, windows also kept a frozen copy of their last member, from which nobody learns."""
    return x[:-1] if ".chain.frozen." in name and like.ndim and x.shape == (len(like) + 1, *like.shape[1:]) else x
