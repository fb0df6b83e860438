"""What a run *is*: the settings that change its numbers and differ from their neutral value.

The neutral value of a setting is what the program did before the setting existed. It stays for ever, whatever the default becomes: a
directory that does not mention a setting was written before there was one, and goes on as it began. So a new setting, if it is entered
here with its neutral value, leaves the identity of every run as it was.

Settings that only say how long a run is, what is logged and what is kept (`FREE`) are no part of it and may change from one part of a
run to the next; nor are those that the algorithm does not read.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from iterq.errors import Refusal
from iterq.reads import SOFT, unread

FORMAT = 2  # of config.json: {"format", "settings": {name: value}, "former"?}; format 1 was the settings by themselves

LENGTH = ("total_timesteps", "epochs", "epoch_steps")
MEASURED = ("eval_every", "eval_episodes", "eval_policy", "eval_starts", "log_every", "log_csae")
KEPT = ("replay", "checkpoint_every", "log_style", "tensorboard", "wandb")
FREE = frozenset(("algorithm", *LENGTH, *MEASURED, *KEPT))

NEUTRAL: Mapping[str, Any] = {
    # What commit dcb3938 took for granted, when configurations were first written.
    "algorithm": "dqn",
    "env": "CartPole-v1",
    "seeds": (0,),
    "total_timesteps": 100_000,
    "bellman": "dqn",
    "K": 1,
    "T": 200,
    "D": 30,
    "G": 2,
    "tau": 1.0,
    "shared": True,
    "frozen": True,
    "consecutive": True,
    "reduce": "auto",
    "acting": "uniform",
    "shifts": "after",
    "torso": "mlp",
    "features": (120, 84),
    "atoms": 51,
    "v_min": -10.0,
    "v_max": 10.0,
    "quantiles": 64,
    "kappa": 1.0,
    "utd": 1,
    "dropout": 0.0,
    "layer_norm": False,
    "actor_reads": "min",
    "learning_rate": 1e-3,
    "adam_epsilon": 1e-8,
    "batch_size": 128,
    "gamma": 0.99,
    "n_step": 1,
    "clip_rewards": False,
    "frame_stack": 1,
    "buffer_size": 100_000,
    "learning_starts": 1_000,
    "replay": "auto",
    "prioritised": False,
    "epsilon_end": 0.05,
    "epsilon_decay": 20_000,
    "eval_every": 10_000,
    "eval_episodes": 10,
    "eval_policy": "mean",
    "log_every": 1_000,
    "log_csae": False,
    "log_style": "sb3",
    "checkpoint_every": 50_000,
    "tensorboard": True,
    "wandb": "",
    # Settings since then: what was done before they could be said.
    "epochs": 0,
    "epoch_steps": 250_000,
    "emulator": "fresh",
    "eval_starts": "same",
    "actor_member": "uniform",
    "dropout_masks": "shared",
}


def identity(settings: Mapping[str, Any]) -> str:
    """SHA-256 of what a run with these settings is; those that are not mentioned are neutral."""
    full = {**NEUTRAL, **settings}
    if full["reduce"] == "auto":
        full["reduce"] = "mean" if full["shared"] else "sum"
    # Where there is nothing to choose from, a choice changes nothing.
    if full["K"] == 1:
        full |= {name: NEUTRAL[name] for name in ("reduce", "actor_member", "dropout_masks")}
    if not full["dropout"]:
        full["dropout_masks"] = NEUTRAL["dropout_masks"]
    aside = FREE | unread(full["bellman"])
    plain = {name: _plain(name, value) for name, value in full.items() if name not in aside}
    marked = {name: value for name, value in plain.items() if value != _plain(name, NEUTRAL[name])}
    return hashlib.sha256(json.dumps(marked, sort_keys=True).encode()).hexdigest()


def _plain(name: str, value: Any) -> Any:
    """As JSON has it; 1 and 1.0 are the same number of a setting that takes fractions."""
    return list(value) if isinstance(value, tuple | list) else float(value) if isinstance(NEUTRAL[name], float) else value


def settings_in(document: Any) -> dict[str, Any]:
    """The settings that a config.json of either format records, neutral where it has none."""
    if not isinstance(document, dict):
        raise Refusal(f"a configuration is an object of settings, not {document!r:.60}")
    number = document.get("format", 1)
    if number not in (1, FORMAT):
        raise Refusal(f"the configuration has format {number}; this version of iterq reads formats 1 and {FORMAT}")
    found = document.get("settings") if number == FORMAT else {name: x for name, x in document.items() if name != "format"}
    if not isinstance(found, dict) or set(found) - set(NEUTRAL):
        odd = ", ".join(sorted(set(found) - set(NEUTRAL))) if isinstance(found, dict) else f"{found!r:.60}"
        raise Refusal(f"unknown settings in the configuration: {odd}")
    if found.get("bellman") == SOFT and "actor_member" not in found:
        found = {**found, "reduce": "auto"}  # actor-critics took the sum, whatever was said, before they had this setting
    return {name: tuple(x) if isinstance(x := found.get(name, neutral), list) else x for name, neutral in NEUTRAL.items()}


def former_identity(document: Mapping[str, Any]) -> str | None:
    """By what the checkpoints of a directory of format 1 know their run; None: it never was of format 1."""
    if document.get("format") == FORMAT:
        return document.get("former")
    settings = {name: value for name, value in document.items() if name != "total_timesteps"}
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def document(settings: Mapping[str, Any], former: str | None = None) -> dict[str, Any]:
    """What config.json holds."""
    return {"format": FORMAT, "settings": dict(settings)} | ({"former": former} if former else {})
