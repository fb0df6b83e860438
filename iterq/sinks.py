"""Where metrics go besides the run directory's own files: TensorBoard and Weights & Biases, under the names of a chosen library."""

import contextlib
import dataclasses
import json
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from iterq.config import Config
from iterq.errors import Refusal
from iterq.store import in_place_of, write_json

TENSORBOARD, WANDB_IDS, ELAPSED = "tb", "wandb.json", "time/time_elapsed"

# What others call the metrics; those not named here keep SB3's names.
STYLES = {
    "sb3": {},
    "cleanrl": {
        "rollout/ep_rew_mean": "charts/episodic_return",
        "rollout/ep_len_mean": "charts/episodic_length",
        "rollout/exploration_rate": "charts/epsilon",
        "time/fps": "charts/SPS",
        "train/loss": "losses/td_loss",
    },
    "dopamine": {
        "rollout/ep_rew_mean": "Train/AverageReturns",
        "time/fps": "Train/AverageStepsPerSecond",
        "eval/mean_reward": "Eval/AverageReturns",
    },
}


def styled(row: dict, style: str) -> dict[str, float]:
    """The numbers of a line of metrics by the names of a style, without the seed and the step they belong to."""
    names = STYLES[style]
    return {names.get(k, k): v for k, v in row.items() if k not in ("seed", "step") and isinstance(v, int | float)}


class TensorBoard:
    """Event files, one folder per seed."""

    def __init__(self, folder: Path, style: str) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._folder, self._style = folder, style
        self._proto: Any = (event_pb2, summary_pb2)  # their classes come into being on import, unseen by type checkers
        self._new_writer, self._writers = EventFileWriter, {}

    def add(self, row: dict, wall: float) -> None:
        event, summary = self._proto
        seed = row["seed"]
        if seed not in self._writers:
            self._writers[seed] = self._new_writer(str(self._folder / f"seed_{seed}"))
        values = [summary.Summary.Value(tag=name, simple_value=value) for name, value in styled(row, self._style).items()]
        self._writers[seed].add_event(event.Event(wall_time=wall, step=row["step"], summary=summary.Summary(value=values)))

    def rewrite(self, lines: Callable[[], Iterator[str]]) -> None:
        """Start anew from these lines of metrics, timed by what they say so that the time axis leaves out the interruption."""
        if self._folder.exists():
            shutil.rmtree(self._folder)
        elapsed = max((json.loads(line).get(ELAPSED) or 0.0 for line in lines()), default=0.0)
        began, elapsed = time.time() - elapsed, 0.0
        for row in map(json.loads, lines()):
            elapsed = row.get(ELAPSED) or elapsed
            self.add(row, began + elapsed)
        self.flush()

    def flush(self) -> None:
        for writer in self._writers.values():
            writer.flush()

    def close(self) -> None:
        with contextlib.ExitStack() as closing:
            for writer in self._writers.values():
                closing.callback(writer.close)


class WeightsAndBiases:
    """A Weights & Biases run per seed, side by side in this process and in one group."""

    def __init__(self, folder: Path, config: Config, resumed: bool, opened: contextlib.ExitStack) -> None:
        try:
            import wandb
        except ImportError as error:
            raise Refusal("this needs wandb: pip install 'iterq[wandb]'") from error
        self._style, self._runs = config.log_style, {}
        known = _run_ids(folder / WANDB_IDS) if resumed else {}
        for seed in config.seeds:
            try:
                run = wandb.init(
                    project=config.wandb,
                    group=f"{config.algorithm}-{config.env}",
                    name=f"seed-{seed}",
                    job_type="train",
                    config=dataclasses.asdict(config),
                    allow_val_change=True,  # a resumed run may have been given more steps
                    dir=folder,
                    id=known.setdefault(str(seed), secrets.token_hex(4)),
                    resume="allow",
                    reinit="create_new",
                )
            except wandb.Error as error:
                raise Refusal(f"wandb: {' '.join(str(error).split())}") from error
            opened.callback(run.finish)
            self._runs[seed] = run, run.step
        # Only now, with nothing logged yet: had a run been refused, the ids of an earlier one would be lost.
        with in_place_of(folder / WANDB_IDS) as place:
            write_json(place, known)

    def add(self, row: dict) -> None:
        run, first = self._runs[row["seed"]]
        if row["step"] >= first:  # what W&B got between the checkpoint and the crash is not sent again
            run.log(styled(row, self._style), step=row["step"])


def _run_ids(path: Path) -> dict[str, str]:
    """W&B's run ids by seed; none if the run was started without W&B."""
    try:
        ids = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise Refusal(f"{path} is damaged: {error}; without it the run goes on under new W&B ids") from error
    if not isinstance(ids, dict) or not all(isinstance(value, str) for value in ids.values()):
        raise Refusal(f"{path} is damaged: it should give a W&B run id for every seed; without it the run goes on under new ones")
    return ids
