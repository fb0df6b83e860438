"""What the returns in the CSVs beside this file say of i-SAC and i-DQN: the table of docs/mujoco.md, and a line of docs/atari.md.

    python docs/data/verdicts.py

Claims and their margins are those of `iterq reproduce mujoco-main` and `atari-main`; how they are judged is in docs/verdicts.md.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from iterq.report.compare import collected, comparison
from iterq.report.scores import RETURN, Source
from iterq.report.stats import estimate, mean
from iterq.reproduce.base import Quantity
from iterq.reproduce.claims import Claim, judge
from iterq.reproduce.mujoco import NEAR

HERE = Path(__file__).resolve().parent
LONG = ("HalfCheetah-v5", "Hopper-v5", "Hopper-v5 again", "Walker2d-v5")  # 800,000 steps and more
SHORT = ("HalfCheetah-v5 to 460k", "Hopper-v5 to 420k", "Hopper-v5 to 350k", "Walker2d-v5 to 300k")
TWIN = "Hopper-v5 to 750k"  # its SAC is that of "Hopper-v5", bit for bit
HOPPER = [run for run in LONG + SHORT if run.startswith("Hopper")]
# Title: runs. Several together are compared as far as the shortest of them goes, and have no SAC twice.
ROWS: dict[str, Sequence[str]] = {run: [run] for run in (*LONG[:3], TWIN, *LONG[3:], *SHORT)} | {
    "HalfCheetah, two runs": [run for run in LONG + SHORT if run.startswith("HalfCheetah")],
    "Hopper, four runs": HOPPER,
    "Hopper, two long runs": HOPPER[:2],
    "Hopper, these and i-SAC to 750k": [*HOPPER[:2], TWIN],
    "Walker2d, two runs": [run for run in LONG + SHORT if run.startswith("Walker2d")],
    "three tasks, eight runs": LONG + SHORT,
    "three tasks, four long runs": LONG,
}


def sources() -> list[Source]:
    """The runs of both MuJoCo files, a method on a run each."""
    return collected([HERE / "mujoco_learning.csv", HERE / "mujoco_more_runs.csv"], RETURN)[0]


def judged(every: list[Source], runs: Sequence[str]) -> tuple[int, int, list[Quantity]]:
    """Seeds per method, at least, the last step that both methods reached, and the paper's two claims of i-SAC on some runs together."""
    ours = [source for source in every if source.task in runs and (len(runs) == 1 or (source.label, source.task) != ("sac", TWIN))]
    c = comparison([source._replace(task=source.task.partition("-v5")[0]) for source in ours], RETURN, "sac")
    claims = Claim("i-sac", "sac", when="along", margin=NEAR), Claim("i-sac", "sac", "equal", margin=NEAR)
    found = [quantity for claim in claims if (quantity := judge(claim, c, {}, whole=True))]
    seeds = min(len(curve.seeds) for tasks in c.curves.values() for curve in tasks.values())
    return seeds, int(c.aligned("i-sac", "sac")[0][-1]), found


def told(found: Quantity) -> str:
    """A difference, its interval and its verdict, as a cell of a table."""
    word, _, more = found.verdict.partition("; about ")
    word = word.partition(" at ")[0] + (f" ({int(more.split()[0]):,})" if more else "")
    return f"{found.ours:+.3f} ({found.low:+.3f} to {found.high:+.3f}) {word}"


def mujoco() -> Iterator[str]:
    """The lines of the table of docs/mujoco.md."""
    yield "| runs | seeds | steps, thousands | along training | at the last common point |"
    yield "| --- | --- | --- | --- | --- |"
    every = sources()
    for title, runs in ROWS.items():
        seeds, steps, found = judged(every, runs)
        yield f"| {title} | {seeds} | {steps // 1000} | {' | '.join(map(told, found))} |"


def returns() -> Iterator[str]:
    """The first lines of the table of returns in docs/mujoco.md: means of the last points and their intervals."""
    curves = comparison([source for source in sources() if source.task in LONG], RETURN).curves
    for label, name in (("sac", "SAC"), ("i-sac", "i-SAC")):
        ends = [(curves[label][run].steps[-1], estimate([curves[label][run].values[:, -1]], mean)) for run in LONG]
        cells = [f"{x.value:,.0f} ({x.low:,.0f} to {x.high:,.0f}), {step // 1000:,.0f}k" for step, x in ends]
        yield f"| {name} | {' | '.join(cells)} |"


def atari() -> str:
    """i-DQN against DQN over the first 250,000 steps of four games."""
    c = comparison(collected([HERE / "atari_first_epoch.csv"], RETURN)[0], RETURN)
    found = judge(Claim("i-dqn", "dqn", ""), c, {}, whole=True)
    assert found
    return told(found)


if __name__ == "__main__":
    print("\n".join(mujoco()), "\n".join(returns()), atari(), sep="\n\n")
