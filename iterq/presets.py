"""Named settings and where they come from.

A configuration is an algorithm (what is learned) on top of a preset (hyperparameters for a family of environments) under what the
user says. Periods are in agent steps.
"""

from typing import Any

from iterq.algorithms import ALGORITHMS, NAMED, Preset
from iterq.config import Config
from iterq.dialects import translate, unknown
from iterq.ends import ended_by
from iterq.errors import Refusal
from iterq.games import game_of
from iterq.reads import refuse_other_kind, refuse_unread

_CLEANRL = "CleanRL's dqn_jax.py for CartPole-v1"
_TABLE = "i-DQN paper, Table 1"
_DOPAMINE = "Dopamine's settings of that agent, which for IQN the authors' code has, too"
_SOFT = [name for name, algorithm in ALGORITHMS.items() if algorithm.values["bellman"] == "soft"]
_ITERATED = [name for name in ALGORITHMS if name.startswith("i-") and name not in _SOFT]
_PUBLISHED = "the authors' code that produced the published Atari results"
_OURS = "ours, the best of 12 settings on jax/CartPole-v1 with seeds 100 to 107, for DQN and i-DQN alike"
PRESETS = {
    "classic": Preset(
        "small control problems with vector observations, such as CartPole-v1 and LunarLander-v3",
        {
            "features": (120, 84),
            "gamma": 0.99,
            "batch_size": 128,
            "learning_rate": 1e-3,
            "buffer_size": 100_000,
            "learning_starts": 1_000,
            "epsilon_end": 0.05,
            "epsilon_decay": 20_000,
            "G": 2,
            "T": 200,
            "D": 30,
        },
        {
            "features": _CLEANRL,
            "gamma": _CLEANRL,
            "batch_size": _CLEANRL,
            "learning_rate": _OURS,
            "buffer_size": _OURS,
            "learning_starts": _OURS,
            "epsilon_end": _CLEANRL,
            "epsilon_decay": _OURS,
            "G": _OURS,
            "T": _OURS,
            "D": "i-DQN paper, Table 1: 30",
        },
    ),
    "paper": Preset(
        "Atari 2600 as in the i-DQN paper",
        {
            "torso": "nature",
            "features": (512,),
            "frame_stack": 4,
            "clip_rewards": True,
            "gamma": 0.99,
            "batch_size": 32,
            "learning_rate": 6.25e-5,
            "adam_epsilon": 1.5e-4,
            "buffer_size": 1_000_000,
            "learning_starts": 20_000,
            "epsilon_end": 0.01,
            "epsilon_decay": 250_000,
            "G": 4,
            "T": 8_000,
            "D": 30,
            "epochs": 200,
            "epoch_steps": 250_000,
            "reduce": "mean",
            "total_timesteps": 50_000_000,
            "eval_every": 0,
            "log_every": 10_000,
            "checkpoint_every": 1_000_000,
        },
        {
            **dict.fromkeys(("features", "clip_rewards", "gamma", "batch_size", "buffer_size"), _TABLE),
            **dict.fromkeys(("learning_starts", "epsilon_end", "epsilon_decay", "G", "D"), _TABLE),
            "learning_rate": f"{_TABLE}; 5e-5 for IQN and QR-DQN, 2.5e-4 for C51: {_DOPAMINE}",
            "adam_epsilon": f"{_TABLE}; 3.125e-4 for IQN, QR-DQN and C51: {_DOPAMINE}",
            "reduce": f"{_PUBLISHED}: the mean; Algorithm 1 has a loss for every member, which is the sum: i-dqn-sum. Actor-critics: auto",
            "torso": f"{_TABLE}; SAME padding as in Dopamine and the authors' code",
            "frame_stack": "Mnih et al. (2015)",
            "T": f"{_TABLE}: 8000 for DQN and IQN, 6000 for i-DQN and i-IQN",
            **dict.fromkeys(("epochs", "epoch_steps", "total_timesteps"), f"{_TABLE}: 200 epochs of 250 000 steps"),
            **dict.fromkeys(("eval_every", "log_every", "checkpoint_every"), "ours; the paper reports returns of training episodes"),
        },
        # Where these differ, "source" says so.
        {
            **{name: {"T": 6_000} for name in _ITERATED},
            **{name: {"learning_rate": 5e-5, "adam_epsilon": 3.125e-4} for name in ("iqn", "qr-dqn")},
            **{name: {"learning_rate": 5e-5, "adam_epsilon": 3.125e-4, "T": 6_000} for name in ("i-iqn", "i-qr-dqn")},
            "c51": {"learning_rate": 2.5e-4, "adam_epsilon": 3.125e-4},
            "i-c51": {"learning_rate": 2.5e-4, "adam_epsilon": 3.125e-4, "T": 6_000},
            **{name: {"reduce": "auto"} for name in _SOFT},
        },
    ),
}
_ONLY_I = f"{_PUBLISHED}, for iterated algorithms alone: its DQN and IQN do neither"
PRESETS["published"] = PRESETS["paper"]._replace(
    about="Atari 2600 as the published runs had it: in iterated algorithms the anchor acts, too, and the window shifts early",
    values={**PRESETS["paper"].values, "acting": "anchor-too", "shifts": "early"},
    source={**PRESETS["paper"].source, **dict.fromkeys(("acting", "shifts"), _ONLY_I)},
    special=PRESETS["paper"].special
    | {
        name: {"acting": algorithm.values.get("acting", "uniform"), "shifts": "after", **PRESETS["paper"].special.get(name, {})}
        for name, algorithm in ALGORITHMS.items()
        if name not in _ITERATED
    },
)
_MUJOCO = "i-DQN paper, Table 2"
PRESETS["mujoco"] = Preset(
    "MuJoCo and other continuous control as in the i-DQN paper",
    {
        "features": (256, 256),
        "gamma": 0.99,
        "batch_size": 256,
        "learning_rate": 1e-3,
        "adam_epsilon": 1e-8,
        "buffer_size": 1_000_000,
        "learning_starts": 5_000,
        "epsilon_end": 0.0,
        "epsilon_decay": 0,
        "G": 1,
        "total_timesteps": 1_000_000,
        "eval_every": 10_000,
        "checkpoint_every": 100_000,
    },
    {
        **dict.fromkeys(("features", "gamma", "batch_size", "learning_rate", "buffer_size", "learning_starts"), _MUJOCO),
        **dict.fromkeys(("G", "total_timesteps"), _MUJOCO),
        "adam_epsilon": "optax",
        **dict.fromkeys(("epsilon_end", "epsilon_decay"), "the policy itself explores"),
        **dict.fromkeys(("eval_every", "checkpoint_every"), "ours"),
    },
)


def preset_for(algorithm: str, env: Any) -> str:
    """The preset that suits an algorithm on an environment, if the user names none."""
    if algorithm in NAMED and ALGORITHMS[NAMED[algorithm].base or algorithm].values["bellman"] == "soft":
        return "mujoco"
    return "paper" if isinstance(env, str) and game_of(env) else "classic"


def configure(algorithm: str, preset: str | None = None, **given: Any) -> Config:
    """The configuration of an algorithm by name; `given` fields, in any of the known dialects, override its presets."""
    preset = preset or preset_for(algorithm, given.get("env", given.get("env_id")))
    if algorithm not in NAMED:
        raise Refusal(unknown("algorithm", algorithm, NAMED))
    if preset not in PRESETS:
        raise Refusal(unknown("preset", preset, PRESETS))
    chosen, named = PRESETS[preset], NAMED[algorithm]
    base = named.base or algorithm
    fields = {**chosen.values, **ALGORITHMS[base].values, **chosen.special.get(base, {}), **named.values}
    said = translate(given)
    bellman = said.get("bellman", fields["bellman"])
    refuse_other_kind(algorithm, fields["bellman"], bellman)
    refuse_unread(algorithm, bellman, said)
    fields |= {**said, "algorithm": algorithm}
    try:
        return ended_by(Config(**fields), said)
    except TypeError as error:
        raise Refusal(f"bad configuration: {error}") from error
