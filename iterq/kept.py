"""Run directories by what they are: found again, and brought to their ends."""

import dataclasses
from pathlib import Path
from typing import Any

from iterq.epochs import arrived
from iterq.errors import Refusal
from iterq.identity import LENGTH
from iterq.store import CONFIG, config_hash, read_config


def place_of(root: Path, name: str, settings: Any) -> tuple[Path, Any]:
    """The run directory of these settings below `root`, and with what to go on in it.

    One that is there is found by what it is, however it is called; it keeps all that it has recorded but for its length.
    """
    for folder in sorted(root.glob(f"{name}-*")):
        if (folder / CONFIG).is_file() and config_hash(recorded := read_config(folder)) == config_hash(settings):
            return folder, dataclasses.replace(recorded, **{field: getattr(settings, field) for field in LENGTH})
    return root / f"{name}-{config_hash(settings)[:8]}", settings


def train(runs: dict[Path, Any], at_once: int, processes: int) -> None:
    """Bring run directories to their ends, `at_once` of them side by side; those that are there already are left alone or go on."""
    from iterq.runs import go_on

    todo = [folder for folder, settings in runs.items() if not finished(folder, settings)]
    for i in range(0, len(todo), at_once):
        batch = todo[i : i + at_once]
        begun = {folder for folder in batch if (folder / CONFIG).exists()}
        for new in (True, False):
            chosen = {folder: runs[folder] for folder in batch if (folder in begun) != new}
            if chosen and not all(row["finished"] for row in go_on(chosen, new, processes)):
                raise Refusal(f"stopped; the same command goes on from the runs in {batch[0].parent}")


def finished(folder: Path, settings: Any) -> bool:
    """Whether a run has come to its end."""
    return arrived(folder, vars(settings))
