"""The cost table of the paper (Appendix E) for this code: what K Bellman updates at once take, on Atari networks and on those of MuJoCo.

FLOPs are those that XLA counts in the compiled programs of one update and of one action; memory is that of parameters, targets and
moments; time is that of an update on this machine. The paper counts 5.6 times the FLOPs of an update for i-DQN with K = 5, 2.2 times for
i-IQN with K = 3, 4.4 times for i-SAC and 4.6 times for i-DroQ with K = 4, and for an action the same as without a window.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from iterq.actor_critic import actor_critic
from iterq.agents import Agent, q_agent
from iterq.bellman import Transition
from iterq.chain import STAY
from iterq.config import WindowSizes
from iterq.emulator import SIZE
from iterq.envs.base import Spec
from iterq.errors import Refusal
from iterq.presets import configure
from iterq.reproduce.base import Quantity, Result, Stopwatch, write_csv

SMALL = {"K_dqn": (1, 2), "K_iqn": (1, 2), "K_sac": (1, 2), "K_droq": (1, 2), "repeats": 1, "batch_size": 2}
SCALES = {"smoke": SMALL, "default": {}, "paper": {}}
# FLOPs of an update, GB
PAPER = {("i-dqn", 5): (5.6, 0.3), ("i-iqn", 3): (2.2, 0.9), ("i-sac", 4): (4.4, 0.1), ("i-droq", 4): (4.6, 0.4)}
CHEETAH = Spec("HalfCheetah", (17,), "float32", 6, None, low=(-1.0,) * 6, high=(1.0,) * 6)


@dataclasses.dataclass(frozen=True)
class Config:
    """What is measured."""

    K_dqn: WindowSizes = (1, 5, 10)
    """Window sizes of i-DQN; 1, which is DQN, must be among them."""
    K_iqn: WindowSizes = (1, 3)
    """Window sizes of i-IQN; 1 must be among them."""
    K_sac: WindowSizes = (1, 4)
    """Window sizes of i-SAC; 1 must be among them."""
    K_droq: WindowSizes = (1, 4)
    """Window sizes of i-DroQ; 1 must be among them."""
    actions: int = 4
    """Of the game; Breakout has 4."""
    batch_size: int = 32
    """Transitions per update of the Atari agents; those of MuJoCo take their 256."""
    repeats: int = 10
    """Timed updates; the median counts."""

    def __post_init__(self) -> None:
        if any(1 not in sizes for sizes in (self.K_dqn, self.K_iqn, self.K_sac, self.K_droq)):
            raise Refusal("--K-dqn, --K-iqn, --K-sac, --K-droq: 1, the base algorithm, must be among the window sizes")
        if min(self.actions, self.batch_size, self.repeats) < 1:
            raise Refusal("--actions, --batch-size and --repeats must be at least 1")


class Cost(NamedTuple):
    """Of one agent."""

    parameters: int  # online
    megabytes: float  # parameters, targets and moments
    update_flops: float
    action_flops: float
    update_ms: float


def run(config: Config, folder: Path) -> Result:
    """Compile, count and time."""
    watch, costs = Stopwatch(), {}
    for algorithm, sizes in (("i-dqn", config.K_dqn), ("i-iqn", config.K_iqn), ("i-sac", config.K_sac), ("i-droq", config.K_droq)):
        for K in sizes:
            with watch(f"{algorithm}, K = {K}"):
                costs[algorithm, K] = measure(algorithm, K, config)
    rows, quantities = [], []
    for (algorithm, K), cost in costs.items():
        base = costs[algorithm, 1]
        updates, actions = cost.update_flops / base.update_flops, cost.action_flops / base.action_flops
        more = (cost.megabytes - base.megabytes) / 1e3
        rows.append((algorithm, K, *cost, updates, actions, cost.update_ms / base.update_ms))
        if K > 1:
            flops, memory = PAPER.get((algorithm, K), (None, None))
            quantities += [
                Quantity(f"{algorithm}, K = {K}: FLOPs of an update, times those of K = 1", updates, None, flops, "<= K", updates <= K),
                Quantity(
                    f"{algorithm}, K = {K}: FLOPs of an action, times those of K = 1", actions, None, 1.0, "1.00", abs(actions - 1) < 0.01
                ),
                Quantity(f"{algorithm}, K = {K}: additional memory, GB", more, None, memory),
                Quantity(f"{algorithm}, K = {K}: time of an update, times that of K = 1", cost.update_ms / base.update_ms),
            ]
    header = ("algorithm", "K", *Cost._fields, "update_flops_ratio", "action_flops_ratio", "update_time_ratio")
    write_csv(folder / "cost.csv", header, rows)
    table = [
        (
            f"{algorithm}, K = {K}",
            f"{p / 1e6:.1f} M",
            f"{mb:.0f}",
            f"{uf / 1e9:.2f}",
            f"{af / 1e6:.1f}",
            f"{ms:.1f}",
            f"{u:.2f}",
            f"{a:.2f}",
            f"{t:.2f}",
        )
        for algorithm, K, p, mb, uf, af, ms, u, a, t in rows
    ]
    columns = ("", "parameters", "MB", "update GFLOP", "action MFLOP", "update ms", "x update FLOPs", "x action FLOPs", "x update time")
    title = f"Atari, {config.actions} actions, batch {config.batch_size}; HalfCheetah, batch 256; {jax.devices()[0].device_kind}"
    notes = [
        "The convolutions are shared: their passes do not grow with K, so that an update takes less than K times the FLOPs.",
        "The paper's factor for i-DQN is above K; its code evaluates all K + 1 heads of two torsos. Its memory is that of the GPU in use.",
    ]
    return Result("cost", dataclasses.asdict(config), quantities, notes, [(title, columns, table)], watch.seconds)


def measure(algorithm: str, K: int, config: Config) -> Cost:
    """One agent of the preset `paper` or `mujoco`; of DroQ's twenty gradient steps of the critics, one."""
    if algorithm in ("i-sac", "i-droq"):
        settings = configure(algorithm, K=K, utd=1)
        agent, batch = actor_critic(settings, CHEETAH), vectors(settings.batch_size)
    else:
        settings = configure(algorithm, "paper", K=K, batch_size=config.batch_size)
        agent = q_agent(settings, Spec("Atari", (SIZE, SIZE), "uint8", config.actions, None))
        batch = batch_of(config.batch_size, settings.frame_stack)
    learner = jax.jit(agent.init)(jnp.uint32(0))
    update = _compiled(lambda learner, batch: agent.learn(learner, batch, 1, STAY)[0], learner, batch)
    action = _compiled(lambda learner: _act(agent, learner, batch.obs[0]), learner)
    seconds = []
    for _ in range(config.repeats + 1):
        started = time.perf_counter()
        jax.block_until_ready(update(learner, batch))
        seconds.append(time.perf_counter() - started)
    size = sum(x.nbytes for x in jax.tree.leaves((learner.chain, learner.moments, learner.policy)))
    count = sum(x.size for x in jax.tree.leaves(learner.chain.online))
    return Cost(count, size / 1e6, _flops(update), _flops(action), 1e3 * statistics.median(seconds[1:]))


def _act(agent: Agent, learner: Any, obs: Any) -> jax.Array:
    return agent.act(learner, 1, obs, agent.noise(jnp.zeros(2, jnp.uint32), 10**6))


def batch_of(size: int, stack: int) -> Transition:
    """Random frames."""
    keys = jax.random.split(jax.random.key(0), 2)
    obs, next_obs = (jax.random.randint(key, (size, SIZE, SIZE, stack), 0, 256).astype(jnp.uint8) for key in keys)
    return Transition(obs, jnp.zeros(size, jnp.int32), jnp.ones(size), jnp.full(size, 0.99), next_obs)


def vectors(size: int) -> Transition:
    """Random observations of a cheetah."""
    keys = jax.random.split(jax.random.key(0), 2)
    obs, next_obs = (jax.random.normal(key, (size, *CHEETAH.shape)) for key in keys)
    return Transition(obs, jnp.zeros((size, CHEETAH.actions)), jnp.ones(size), jnp.full(size, 0.99), next_obs)


def _compiled(f: Callable, *args: Any) -> Any:
    return jax.jit(f).lower(*args).compile()


def _flops(compiled: Any) -> float:
    found = compiled.cost_analysis()
    return float((found[0] if isinstance(found, list) else found)["flops"])
