"""The names that other libraries have for our settings, and what is said of a name that nobody has."""

import difflib
import math
from collections.abc import Iterable
from typing import Any

from iterq.config import FIELDS
from iterq.errors import Refusal

ALIASES = {
    "num_bellman_updates": "K",
    "n_networks": "K",
    "bellman_iterations_scope": "K",
    "target_update_period": "T",
    "target_network_frequency": "T",
    "target_update_interval": "T",
    "target_update_frequency": "T",
    "target_sync_period": "D",
    "target_sync_frequency": "D",
    "update_period": "G",
    "train_frequency": "G",
    "train_freq": "G",
    "update_horizon": "n_step",
    "n_steps": "n_step",
    "min_replay_history": "learning_starts",
    "n_initial_samples": "learning_starts",
    "max_capacity": "buffer_size",
    "replay_capacity": "buffer_size",
    "replay_buffer_capacity": "buffer_size",
    "epsilon_train": "epsilon_end",
    "end_e": "epsilon_end",
    "exploration_final_eps": "epsilon_end",
    "epsilon_decay_period": "epsilon_decay",
    "epsilon_duration": "epsilon_decay",
    "num_iterations": "epochs",
    "training_steps": "epoch_steps",
    "n_epochs": "epochs",
    "n_training_steps_per_epoch": "epoch_steps",
    "env_id": "env",
    "seed": "seeds",
    "prioritized": "prioritised",
    "wandb_project_name": "wandb",
}
# Its value is not ours but makes one of ours.
DERIVED = ("exploration_fraction",)
AMBIGUOUS = {"update_to_data": "it means G in i-DQN and 1/G in Gi-DQN; say G"}


def translate(given: dict[str, Any]) -> dict[str, Any]:
    """The same under our names, whosever they are in; unknown names are refused with the nearest known one."""
    ours: dict[str, Any] = {}
    for name, value in given.items():
        if name in AMBIGUOUS:
            raise Refusal(f"{name} is ambiguous: {AMBIGUOUS[name]}")
        field = ALIASES.get(name, name)
        if field not in (*FIELDS, *DERIVED):
            raise Refusal(unknown("option", name, [*FIELDS, *ALIASES, *DERIVED]))
        if field in ours:
            raise Refusal(f"{name} says {field} a second time")
        ours[field] = (_number(name, value),) if name == "seed" and not isinstance(value, tuple) else value
    if "exploration_fraction" in ours:
        ends = ("total_timesteps",) if "total_timesteps" in ours else ("epochs", "epoch_steps")
        if not {*ends} <= set(ours) or "epsilon_decay" in ours:
            raise Refusal("exploration_fraction needs total_timesteps, or epochs and epoch_steps, and excludes epsilon_decay")
        total = math.prod(_number(name, ours[name]) for name in ends)
        ours["epsilon_decay"] = int(_number("exploration_fraction", ours.pop("exploration_fraction"), float) * total)
    return ours


def _number(name: str, value: Any, kind: type = int) -> Any:
    try:
        found = kind(value)
    except (TypeError, ValueError, OverflowError):
        found = math.inf
    if not math.isfinite(found):
        raise Refusal(f"{name} must be a number, got {value!r}")
    return found


def unknown(what: str, word: str, known: Iterable[str]) -> str:
    """The line that refuses `word` and names the nearest known one."""
    near = difflib.get_close_matches(word, list(known), 1)
    return f"unknown {what} {word!r}" + (f", did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}")
