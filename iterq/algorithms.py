"""Algorithms by name, and variants of them: what is learned, and where every value comes from."""

from typing import Any, NamedTuple


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
_SANITY = "i-DQN paper, sanity check in the appendix on Atari"
_INDEPENDENT = "i-DQN paper, appendix: independent networks; the authors' code takes the mean of their losses, too"
_SUM = "i-DQN paper, Algorithm 1: a loss for every member, and no mean of them"
VARIANTS = {
    "i-dqn-K1": _variant("i-dqn", "i-DQN with a window of 1, which is DQN with i-DQN's T", "i-DQN paper, Section 6.1: window sizes", K=1),
    "i-dqn-K10": _variant("i-dqn", "i-DQN with a window of 10", "i-DQN paper, Section 6.1: window sizes", K=10),
    "i-iqn-K1": _variant("i-iqn", "i-IQN with a window of 1, which is IQN with i-IQN's T", _SANITY, K=1),
    "i-dqn-K1-3-step": _variant("i-dqn", "i-DQN with a window of 1 and 3-step returns", _SANITY, K=1, n_step=3),
    "i-iqn-K1-1-step": _variant("i-iqn", "i-IQN with a window of 1 and 1-step returns", _SANITY, K=1, n_step=1),
    "iqn-1-step": _variant("iqn", "IQN with 1-step returns", _SANITY, n_step=1),
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
    "i-dqn-sum": _variant("i-dqn", "i-DQN that learns from the sum of its members' losses", _SUM, reduce="sum"),
    "i-dqn-independent": _variant("i-dqn", "i-DQN whose members share nothing", _INDEPENDENT, shared=False, reduce="mean"),
    "i-dqn-independent-sum": _variant(
        "i-dqn", "i-DQN whose members share nothing, from the sum of their losses", _SUM, shared=False, reduce="sum"
    ),
    "dqn-inflated": _variant(
        "dqn", "DQN with the parameters of i-DQN: 5 x 512 hidden units", "i-DQN paper, appendix: inflated DQN", features=(2_560,)
    ),
    "qr-dqn-dopamine": _variant(
        "qr-dqn",
        "QR-DQN as Dopamine's Quantile agent has it: 200 quantiles, 3-step, prioritised",
        "Dopamine, configs/quantile.gin of its JAX agent",
        quantiles=200,
        n_step=3,
        prioritised=True,
    ),
}
_TAU = "i-DQN paper, appendix: all with the same tau"
VARIANTS |= {f"{name}-tau-0.02": _variant(name, f"{name} with the tau of its iterated version", _TAU, tau=0.02) for name in ("sac", "droq")}
VARIANTS |= {f"{name}-tau-0.005": _variant(name, f"{name} with the tau of its base", _TAU, tau=0.005) for name in ("i-sac", "i-droq")}
NAMED = {**ALGORITHMS, **VARIANTS}
