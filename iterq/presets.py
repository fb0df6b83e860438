"""Named settings and where they come from.

A configuration is an algorithm (what is learned) on top of a preset (hyperparameters for a family of environments) under what the
user says. Periods are in agent steps.
"""

from typing import Any, NamedTuple

from iterq.config import Config
from iterq.dialects import translate, unknown
from iterq.ends import ended_by
from iterq.errors import Refusal
from iterq.games import game_of
from iterq.reads import refuse_unread


class Preset(NamedTuple):
    """Some fields of a `Config`."""

    about: str
    values: dict[str, Any]
    source: dict[str, str]  # of each value
    special: dict[str, dict[str, Any]] = {}  # noqa: RUF012, never changed; values that differ for some algorithms
    base: str = ""  # the algorithm that this is a variant of


def _algorithm(about: str, **values: Any) -> Preset:
    sources = {
        "K": "i-DQN paper: 5 for i-DQN, 3 for i-IQN, 6 members of Bootstrapped DQN; 1 is the base algorithm",
        "bellman": "the name of the algorithm",
        "acting": "Osband et al. (2016): one head per episode",
        "consecutive": "Osband et al. (2016): every head has its own target",
        "n_step": "i-DQN paper, Section 6.1: IQN with 3-step returns",
        **dict.fromkeys(("frozen", "shared"), "i-DQN paper, Algorithm 2: critics learn from each other directly, and share nothing"),
        "tau": "i-DQN paper, Table 2: 0.005 for SAC and DroQ, 0.02 for their iterated versions",
        "utd": "i-DQN paper, Table 2: 20 for DroQ",
        **dict.fromkeys(("dropout", "layer_norm", "actor_reads"), "Hiraoka et al. (2022) and Stable-Baselines Jax"),
    }
    return Preset(about, values, {name: sources[name] for name in values})


_SOFT = {"bellman": "soft", "frozen": False, "shared": False}
_DROQ = {"utd": 20, "dropout": 0.01, "layer_norm": True, "actor_reads": "mean"}
ALGORITHMS = {
    "dqn": _algorithm("DQN (Mnih et al., 2015)", bellman="dqn", K=1),
    "i-dqn": _algorithm("iterated DQN, a window of 5 Bellman updates", bellman="dqn", K=5),
    "double-dqn": _algorithm("double DQN (van Hasselt et al., 2016)", bellman="double-dqn", K=1),
    "i-double-dqn": _algorithm("iterated double DQN", bellman="double-dqn", K=5),
    "qr-dqn": _algorithm("quantile regression DQN (Dabney et al., 2018)", bellman="qr-dqn", K=1),
    "i-qr-dqn": _algorithm("iterated QR-DQN", bellman="qr-dqn", K=5),
    "c51": _algorithm("categorical DQN (Bellemare et al., 2017)", bellman="c51", K=1),
    "i-c51": _algorithm("iterated C51", bellman="c51", K=5),
    "iqn": _algorithm("implicit quantile networks (Dabney et al., 2018), 3-step", bellman="iqn", K=1, n_step=3),
    "i-iqn": _algorithm("iterated IQN, a window of 3, 3-step", bellman="iqn", K=3, n_step=3),
    "bootstrapped-dqn": _algorithm(
        "Bootstrapped DQN (Osband et al., 2016) with 6 heads", bellman="dqn", K=6, consecutive=False, acting="episode"
    ),
    "sac": _algorithm("soft actor-critic (Haarnoja et al., 2018)", K=1, tau=0.005, **_SOFT),
    "i-sac": _algorithm("iterated SAC, a window of 4", K=4, tau=0.02, **_SOFT),
    "droq": _algorithm("DroQ (Hiraoka et al., 2022)", K=1, tau=0.005, **_SOFT, **_DROQ),
    "i-droq": _algorithm("iterated DroQ, a window of 4", K=4, tau=0.02, **_SOFT, **_DROQ),
}


def _variant(base: str, about: str, source: str, **values: Any) -> Preset:
    return Preset(about, values, dict.fromkeys(values, source), base=base)


_NSTEP, _ACTING = "i-DQN paper, Section 6.1: against n-step returns", "i-DQN paper, Section 6.1: action sampling"
VARIANTS = {
    "i-dqn-K1": _variant("i-dqn", "i-DQN with a window of 1, which is DQN with i-DQN's T", "i-DQN paper, Section 6.1: window sizes", K=1),
    "i-dqn-K10": _variant("i-dqn", "i-DQN with a window of 10", "i-DQN paper, Section 6.1: window sizes", K=10),
    "i-iqn-K1": _variant(
        "i-iqn", "i-IQN with a window of 1, which is IQN with i-IQN's T", "i-DQN paper, sanity check in the appendix on Atari", K=1
    ),
    "dqn-G1": _variant("dqn", "DQN with a gradient step at every step", "i-DQN paper, Section 6.1: gradient steps in parallel", G=1),
    "i-dqn-K4-T8000": _variant(
        "i-dqn", "i-DQN whose window shifts as fast as DQN's", "i-DQN paper, Section 6.1: gradient steps in parallel", K=4, T=8_000
    ),
    "i-dqn-K4-T2000": _variant(
        "i-dqn",
        "i-DQN with as many samples per Bellman update as DQN",
        "i-DQN paper, Section 6.1: consecutive projection steps",
        K=4,
        T=2_000,
    ),
    "dqn-3-step": _variant("dqn", "DQN with 3-step returns", _NSTEP, n_step=3),
    "dqn-5-step": _variant("dqn", "DQN with 5-step returns", _NSTEP, n_step=5),
    "i-dqn-3-step": _variant("i-dqn", "i-DQN with 3-step returns", _NSTEP, n_step=3),
    "i-dqn-first": _variant("i-dqn", "i-DQN that acts with its first member", _ACTING, acting="first"),
    "i-dqn-last": _variant("i-dqn", "i-DQN that acts with its last member", _ACTING, acting="last"),
    "i-dqn-episode": _variant(
        "i-dqn", "i-DQN that acts with one member per episode", "i-DQN paper, appendix: against Bootstrapped DQN", acting="episode"
    ),
    "i-dqn-no-targets": _variant(
        "i-dqn", "i-DQN whose members learn from live ones", "i-DQN paper, Section 6.1: relevance of target networks", frozen=False
    ),
    "i-dqn-independent": _variant(
        "i-dqn", "i-DQN whose members share nothing", "i-DQN paper, appendix: independent networks", shared=False
    ),
    "dqn-inflated": _variant(
        "dqn", "DQN with the parameters of i-DQN: 5 x 512 hidden units", "i-DQN paper, appendix: inflated DQN", features=(2_560,)
    ),
}
_TAU = "i-DQN paper, appendix: all with the same tau"
VARIANTS |= {f"{name}-tau-0.02": _variant(name, f"{name} with the tau of its iterated version", _TAU, tau=0.02) for name in ("sac", "droq")}
VARIANTS |= {f"{name}-tau-0.005": _variant(name, f"{name} with the tau of its base", _TAU, tau=0.005) for name in ("i-sac", "i-droq")}
NAMED = {**ALGORITHMS, **VARIANTS}

_CLEANRL = "CleanRL's dqn_jax.py for CartPole-v1"
_TABLE = "i-DQN paper, Table 1"
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
            "total_timesteps": 50_000_000,
            "eval_every": 0,
            "log_every": 10_000,
            "checkpoint_every": 1_000_000,
        },
        {
            **dict.fromkeys(("features", "clip_rewards", "gamma", "batch_size", "learning_rate", "adam_epsilon", "buffer_size"), _TABLE),
            **dict.fromkeys(("learning_starts", "epsilon_end", "epsilon_decay", "G", "D"), _TABLE),
            "torso": f"{_TABLE}; SAME padding as in Dopamine and the authors' code",
            "frame_stack": "Mnih et al. (2015)",
            "T": f"{_TABLE}: 8000 for DQN and IQN, 6000 for i-DQN and i-IQN",
            **dict.fromkeys(("epochs", "epoch_steps", "total_timesteps"), f"{_TABLE}: 200 epochs of 250 000 steps"),
            **dict.fromkeys(("eval_every", "log_every", "checkpoint_every"), "ours; the paper reports returns of training episodes"),
        },
        {
            **{name: {"T": 6_000} for name in ALGORITHMS if name.startswith("i-")},
            # Dopamine's settings, which the authors' code also has, where the paper's table gives those of DQN for all.
            **{name: {"learning_rate": 5e-5, "adam_epsilon": 3.125e-4} for name in ("iqn", "qr-dqn")},
            **{name: {"learning_rate": 5e-5, "adam_epsilon": 3.125e-4, "T": 6_000} for name in ("i-iqn", "i-qr-dqn")},
            "c51": {"learning_rate": 2.5e-4, "adam_epsilon": 3.125e-4},
            "i-c51": {"learning_rate": 2.5e-4, "adam_epsilon": 3.125e-4, "T": 6_000},
        },
    ),
}
_PUBLISHED = "the authors' code that produced the published Atari results"
PRESETS["published"] = PRESETS["paper"]._replace(
    about="Atari 2600 as the published runs of i-DQN had it: the anchor acts, too, and the window shifts early",
    values={**PRESETS["paper"].values, "acting": "anchor-too", "shifts": "early", "reduce": "mean"},
    source={**PRESETS["paper"].source, **dict.fromkeys(("acting", "shifts", "reduce"), _PUBLISHED)},
    # These have no window that shifts.
    special={**PRESETS["paper"].special, **{name: {"shifts": "after"} for name in ("bootstrapped-dqn", "sac", "i-sac", "droq", "i-droq")}},
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
    refuse_unread(algorithm, said.get("bellman", fields["bellman"]), said)
    fields |= {**said, "algorithm": algorithm}
    try:
        return ended_by(Config(**fields), said)
    except TypeError as error:
        raise Refusal(f"bad configuration: {error}") from error
