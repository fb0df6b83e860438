"""The Atari experiments of the paper: which methods on which games, and what is drawn.

Scores are those of the paper: mean returns of the training episodes of an epoch, human-normalised. Where the paper does not name the games
of an ablation (it says that they were drawn at random), they are ours; and its twenty games are those of its authors' scripts, since it
does not list them.

An agent ends by its number of epochs, each at least 250,000 steps long and to the end of an episode.
"""

from pathlib import Path
from typing import Any, ClassVar

from iterq.errors import Refusal
from iterq.games import game_of, references
from iterq.presets import NAMED
from iterq.reproduce.claims import Claim, Level
from iterq.reproduce.suite import OURS, Experiment

TWENTY = tuple(game for game, found in references().items() if found.in_paper)  # inferred from the authors' scripts
THREE = ("Asteroids", "Asterix", "Qbert")  # of the window sizes; elsewhere our choice


FULL: dict[str, Any] = {"epochs": 200, "epoch": 250_000, "epsilon_decay": 250_000, "runs": Path("runs") / "atari"}


class Atari(Experiment):
    __doc__ = __doc__  # what --help shows

    SCALES: ClassVar[dict[str, dict[str, Any]]] = {
        "smoke": {
            **FULL,
            "at_most": 1,
            "seeds": (0,),
            "epochs": 2,
            "epoch": 130,
            "learning_starts": 240,
            "epsilon_decay": 10,
            "buffer_size": 300,
            "batch_size": 4,
        },
        "default": {**FULL, "at_most": 2, "seeds": (0, 1), "epochs": 20, "epoch": 50_000, "buffer_size": 200_000},
        "paper": FULL,
    }
    env = "ALE/{}-v5"
    rate_on = "Breakout"

    def named(self, name: str) -> str:
        game = game_of(name)
        if game is None:
            raise Refusal(f"--only: {name!r} is no Atari game")
        return game

    def fields(self, config: Any) -> dict[str, Any]:
        # A hundred batches of 32 in an epoch of 250,000 steps: the paper's 3,200 samples for the distance between members.
        return {"epsilon_decay": config.epsilon_decay, "log_every": max(1, config.epoch // 100)}


main = Atari(
    "atari-main",
    {"DQN": "dqn", "i-DQN": "i-dqn", "IQN": "iqn", "i-IQN": "i-iqn"},
    TWENTY,
    # "outperforms … both in terms of sample-efficiency and overall performance", "a 13 % improvement over IQN final performances"
    (
        Level("DQN", paper=1.29),
        Level("IQN", paper=1.85),
        *(Claim(f"i-{base}", base, when=when) for base in ("DQN", "IQN") for when in ("end", "along")),
        Claim("i-IQN", "IQN", "equal", times=1.13),
    ),
    others=("DQN", "Rainbow", "IQN"),
)
sanity = Atari(
    "atari-sanity",
    {
        "DQN": "dqn@published",
        "i-DQN K=1": "i-dqn-K1@published",
        "DQN 3-step": "dqn-3-step@published",
        "i-DQN K=1 3-step": "i-dqn-K1-3-step@published",
        "IQN": "iqn-1-step@published",
        "i-IQN K=1": "i-iqn-K1-1-step@published",
        "IQN 3-step": "iqn@published",
        "i-IQN K=1 3-step": "i-iqn-K1@published",
    },
    THREE,
    tuple(Claim(f"i-{base} K=1{n}", f"{base}{n}", "equal") for base in ("DQN", "IQN") for n in ("", " 3-step")),
    note=f"{OURS} With K = 1 only who acts, when the window shifts and T differ.",
    others=("DQN", "IQN"),
)
window = Atari(
    "atari-window",
    {"K=1": "dqn", "K=5": "i-dqn", "K=10": "i-dqn-K10"},
    THREE,
    (
        Claim("K=5", "K=1"),
        Claim("K=10", "K=1"),
        Claim("K=10", "K=5", tasks=("Asteroids", "Asterix")),
        Claim("K=10", "K=5", "worse", tasks=("Qbert",)),
    ),
    note="K = 1 is DQN, with its T = 8000; the others have T = 6000.",
)
parallel = Atari(
    "atari-parallel",
    {"DQN T=8000": "dqn", "i-DQN K=4 T=2000": "i-dqn-K4-T2000"},
    THREE,
    # "similar" after 3 125 shifts, "slightly below" after 6 250, and ahead with what is saved
    (
        Claim("i-DQN K=4 T=2000", "DQN T=8000", "equal", when="marks", mark=0),
        Claim("i-DQN K=4 T=2000", "DQN T=8000", "worse", when="marks", mark=1),
        Claim("i-DQN K=4 T=2000", "DQN T=8000"),
    ),
    marks={
        "DQN T=8000": ((3_125, 25_000_000), (6_250, 50_000_000)),
        "i-DQN K=4 T=2000": ((3_125, 6_250_000), (6_250, 12_500_000)),
    },
    note=OURS,
)
gradient_steps = Atari(
    "atari-gradient-steps",
    {"DQN G=4": "dqn", "DQN G=1": "dqn-G1", "i-DQN K=4 T=8000": "i-dqn-K4-T8000"},
    THREE,
    (
        Claim("i-DQN K=4 T=8000", "DQN G=1"),
        Claim("DQN G=1", "DQN G=4", "not better"),
        Claim("DQN G=1", "i-DQN K=4 T=8000", "equal", when="hours", margin=0.2, times=1.89),
    ),
    note=OURS,
)
nstep = Atari(
    "atari-nstep",
    {"i-DQN": "i-dqn", "DQN 3-step": "dqn-3-step", "DQN 5-step": "dqn-5-step", "i-DQN 3-step": "i-dqn-3-step"},
    ("Breakout", "DemonAttack", "ChopperCommand", "Krull"),
    (Claim("i-DQN", "DQN 5-step"), Claim("i-DQN 3-step", "DQN 3-step")),
)
acting = Atari(
    "atari-acting",
    {"uniform": "i-dqn", "first": "i-dqn-first", "last": "i-dqn-last"},
    THREE,
    (Claim("uniform", "first"), Claim("uniform", "last")),
    note=OURS,
)
targets = Atari(
    "atari-targets",
    {"with targets": "i-dqn", "without targets": "i-dqn-no-targets"},
    ("Asterix", "Breakout"),
    (Claim("with targets", "without targets"), Claim("with targets", "without targets", tasks=("Asterix",))),
)
sharing = Atari(
    "atari-sharing",
    {"shared": "i-dqn", "independent": "i-dqn-independent"},
    ("ChopperCommand", "CrazyClimber"),
    (
        Claim("independent", "shared", tasks=("ChopperCommand",)),
        Claim("independent", "shared", "equal", tasks=("CrazyClimber",)),
    ),
    note="Both with the mean over members, as in the published runs.",
)
reduction = Atari(
    "atari-reduction",
    {"mean (published runs)": "i-dqn", "sum (Algorithm 1)": "i-dqn-sum"},
    THREE,
    (Claim("mean (published runs)", "sum (Algorithm 1)", ""),),
    note="Not in the paper: the mean over members divides every head's gradient by K, which Algorithm 1 does not.",
)
inflated = Atari(
    "atari-inflated",
    {"DQN": "dqn", "inflated DQN": "dqn-inflated", "i-DQN": "i-dqn"},
    ("ChopperCommand", "CrazyClimber"),
    (Claim("i-DQN", "inflated DQN"),),
    note=OURS,
)
bootstrapped = Atari(
    "atari-bootstrapped",
    {"i-DQN": "i-dqn", "i-DQN per episode": "i-dqn-episode", "Bootstrapped DQN": "bootstrapped-dqn"},
    THREE,
    (Claim("i-DQN", "Bootstrapped DQN"), Claim("i-DQN", "i-DQN per episode")),
    note=OURS,
)
spread = Atari(
    "atari-spread",
    {"i-DQN": "i-dqn"},
    THREE,
    metrics=("iqn/head_std",),
    note=f"{OURS} The standard deviation over members is that of their values, at samples of the replay.",
)
published = Atari(
    "atari-published",
    {"text": "i-dqn@paper", "published runs": "i-dqn@published"},
    THREE,
    (Claim("published runs", "text", ""),),
    note="Not in the paper: the text and the runs differ in who acts and in when the window shifts.",
)
ALL = (
    *(main, sanity, window, parallel, gradient_steps, nstep, acting, targets, sharing, reduction),
    *(inflated, bootstrapped, spread, published),
)
assert all(method.partition("@")[0] in NAMED for experiment in ALL for method in experiment.methods.values())
