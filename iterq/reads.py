"""Which settings an algorithm reads. One that it does not read is refused where a user gives it, and is no part of what a run is."""

from collections.abc import Iterable

from iterq.errors import Refusal

SOFT = "soft"
# Settings of one kind of algorithm alone; all others are read by all.
OF_ACTOR_CRITICS = ("utd", "dropout", "layer_norm", "dropout_masks", "actor_reads", "actor_member")
OF_VALUES = (
    *("T", "D", "shared", "frozen", "consecutive", "acting", "shifts", "torso", "frame_stack", "prioritised"),
    *("epsilon_end", "epsilon_decay", "emulator", "eval_policy"),
)
OF_ONE = {
    "atoms": ("c51",),
    "v_min": ("c51",),
    "v_max": ("c51",),
    "quantiles": ("qr-dqn", "iqn"),
    "kappa": ("qr-dqn", "iqn"),
}


def unread(bellman: str) -> set[str]:
    """The settings that algorithms with this base do not read."""
    others = OF_VALUES if bellman == SOFT else OF_ACTOR_CRITICS
    return {*others, *(name for name, readers in OF_ONE.items() if bellman not in readers)}


def refuse_unread(algorithm: str, bellman: str, given: Iterable[str]) -> None:
    """Refuse the first of `given` settings that `algorithm` would not look at."""
    if odd := sorted(set(given) & unread(bellman)):
        raise Refusal(f"{algorithm} does not read {odd[0]}")


def refuse_other_kind(algorithm: str, own: str, bellman: str) -> None:
    """Refuse the base algorithm `bellman` for `algorithm`, whose own is `own`, where only one of them is an actor-critic's."""
    if own == SOFT != bellman:
        raise Refusal(f"{algorithm} learns pairs of critics, whose base algorithm is {SOFT}; {bellman} goes with dqn, i-dqn and their like")
    if bellman == SOFT != own:
        raise Refusal(f"bellman = {SOFT} is the base algorithm of sac, i-sac, droq and i-droq; {algorithm} has no critics for it")
