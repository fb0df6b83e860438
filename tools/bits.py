"""The bits that one checkout of iterq computes: what `tools/compare` runs for either side, in a process of its own.

A line of JSON on stdout names the cases, and another one per case holds its hashes, by part and array. A case is a small training run,
a part something that is left of it; more of either is one more entry of `cases` or PARTS.
"""

import argparse
import collections
import csv
import hashlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import iterq
from iterq.presets import ALGORITHMS

Hashes = dict[str, str]  # of the arrays of one part, by their names
Found = dict[str, Any]  # {part: Hashes} of one case, or {"failed": why}


class Case(NamedTuple):
    """One training run."""

    algorithm: str
    env: str
    steps: int
    fields: dict[str, Any]


# Everything has its turn several times in each run: the replay wraps, windows shift and sync, episodes end.
SMALL = {"features": (16,), "batch_size": 8, "buffer_size": 250, "learning_starts": 60, "seeds": (0, 7)}
SMALL |= {"eval_every": 0, "checkpoint_every": 0, "tensorboard": False}
DISCRETE = {"G": 2, "T": 20, "epsilon_decay": 200}
WINDOW = {"D": 6}  # only a window of several members has targets inside it
NAMED = {"qr-dqn": {"quantiles": 8}, "iqn": {"quantiles": 8}, "c51": {"atoms": 11}, "droq": {"utd": 3}}  # by base algorithm
TURN = 3  # cases; see in_turn
STEPS = {"discrete": 600, "soft": 300, "atari": 400}
VARIANTS = {  # of i-DQN; what an option makes idle is not given
    "published": {"acting": "anchor-too", "shifts": "early"},
    "acting by episode": {"acting": "episode"},
    "sum of losses": {"reduce": "sum"},
    "no frozen targets": {"frozen": False, "D": None},
    "independent": {"shared": False},
    "tau": {"tau": 0.05, "T": None, "D": None},
    "prioritised": {"prioritised": True},
    "3-step": {"n_step": 3},
    "frame stack": {"frame_stack": 3},
    "clipped rewards": {"clip_rewards": True},
    "logged errors": {"log_csae": True, "log_every": 100},
}


def cases(algorithms: Mapping[str, Any]) -> dict[str, Case]:
    """What is run, by name; `algorithms` as in iterq.presets.ALGORITHMS."""
    found: dict[str, Case] = {}
    for name, preset in algorithms.items():
        base = name.removeprefix("i-")
        soft, several = preset.values["bellman"] == "soft", preset.values["K"] > 1 and preset.values.get("consecutive", True)
        fields = {**SMALL, **NAMED.get(base, {})}
        if not soft:
            fields |= {**DISCRETE, **(WINDOW if several else {})}
            found[f"{name}, scanned"] = Case(name, "jax/CartPole-v1", STEPS["discrete"], fields)
        env, steps = ("Pendulum-v1", STEPS["soft"]) if soft else ("CartPole-v1", STEPS["discrete"])
        for place in ("host", "device"):
            found[f"{name}, stepped, replay on the {place}"] = Case(name, env, steps, {**fields, "replay": place})
    fields = {**SMALL, **DISCRETE, **WINDOW, "K": 3}
    for variant, options in VARIANTS.items():
        kept = {name: value for name, value in {**fields, **options}.items() if value is not None}
        found[f"i-dqn, {variant}"] = Case("i-dqn", "CartPole-v1", STEPS["discrete"], kept)
    published = {**fields, **VARIANTS["published"]}
    found["i-dqn, published, scanned"] = Case("i-dqn", "jax/CartPole-v1", STEPS["discrete"], published)
    found["i-dqn, Breakout"] = Case("i-dqn", "Breakout", STEPS["atari"], {**fields, "K": 2, "G": 4})
    return found


def digest(x: Any) -> str:
    """Of an array: its type, shape and bytes."""
    x = np.asarray(x)
    return hashlib.sha256(f"{x.dtype} {x.shape} ".encode() + np.ascontiguousarray(x).tobytes()).hexdigest()[:16]


def digests(trees: dict[str, Any]) -> Hashes:
    """Of every array in {seed: tree of arrays}, by its path."""
    leaves = jax.tree_util.tree_leaves_with_path(trees)
    return {jax.tree_util.keystr(path, simple=True, separator="."): digest(x) for path, x in leaves}


def learner(model: Any, folder: Path) -> Hashes:
    """Parameters, moments of the optimisers and counters of every seed."""
    return digests({f"seed {seed}": model.learner(seed) for seed in model.config.seeds})


def replay(model: Any, folder: Path) -> Hashes:
    """Rows of every seed and what is counted of them."""
    return digests({f"seed {seed}": model.session.fleet.state(s)["replay"] for s, seed in enumerate(model.config.seeds)})


def episodes(model: Any, folder: Path) -> Hashes:
    """`episodes.csv` without its clock."""
    with (folder / "episodes.csv").open(newline="") as file:
        rows = [{name: x for name, x in row.items() if name != "wall_time"} for row in csv.DictReader(file)]
    if not rows:
        raise ValueError("no episode has ended, so there is nothing to compare")
    by_seed = collections.defaultdict(list)
    for row in rows:
        by_seed[f"seed {row['seed']}"].append(row)
    return {seed: hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16] for seed, rows in by_seed.items()}


PARTS = {"learner": learner, "replay": replay, "episodes": episodes}


def run(case: Case, folder: Path) -> Found:
    """One case, in this process's iterq."""
    model = iterq.make(case.algorithm, env=case.env, **case.fields)
    try:
        model.learn(case.steps, out=folder)
        return {part: read(model, folder) for part, read in PARTS.items()}
    finally:
        model.close()


def in_turn(names: list[str], second: bool) -> list[str]:
    """The order of one side.

    In every block of 2 × TURN cases the second side begins with the other half, so that each finds in the cache what the other one has
    compiled, and does not compile the same at the same time.
    """
    halves = [names[i : i + TURN] for i in range(0, len(names), TURN)]
    if second:
        halves = [half for i in range(0, len(halves), 2) for half in reversed(halves[i : i + 2])]
    return [name for half in halves for name in half]


def main() -> None:
    """All cases of one checkout, which PYTHONPATH names, too."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--second", action="store_true")
    options = parser.parse_args()
    if not Path(iterq.__file__).resolve().is_relative_to(options.checkout):
        raise SystemExit(f"iterq was found at {Path(iterq.__file__).parent} and not in {options.checkout}")
    chosen = {name: case for name, case in cases(ALGORITHMS).items() if options.only in name}
    print(json.dumps(list(chosen)), flush=True)
    for name in in_turn(list(chosen), options.second):
        with tempfile.TemporaryDirectory() as folder:
            try:
                found = run(chosen[name], Path(folder) / "run")
            except Exception as error:  # noqa: BLE001, told as the result of this case
                found = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps([name, found]), flush=True)


if __name__ == "__main__":
    main()
