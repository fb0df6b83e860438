"""The cost table of the paper (Appendix E) for this code: what K Bellman updates at once take, on Atari networks and on those of MuJoCo.

FLOPs are those that XLA counts in the compiled programs of one update and of one action; memory is what the program of an update
occupies while it runs, and beside it the learner's own arrays; time is that of an update on this machine. The paper counts 5.6 times
the FLOPs of an update for i-DQN with K = 5, 2.2 times for i-IQN with K = 3, 4.4 times for i-SAC and 4.6 times for i-DroQ with K = 4,
and for an action the same as without a window. The first line of its table, the time that a window saves, needs whole training runs:
`--runs` says where they are.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from iterq.actor_critic import actor_critic
from iterq.agents import Agent, Learner, q_agent
from iterq.bellman import SoftTransition, Transition
from iterq.chain import STAY, gradient_step
from iterq.config import WindowSizes
from iterq.emulator import SIZE
from iterq.envs.base import Spec
from iterq.errors import require
from iterq.presets import configure
from iterq.reproduce.base import Quantity, Result, Stopwatch, write_csv
from iterq.reproduce.time_saved import time_saved

SCALES = {
    "smoke": {"K_dqn": (1, 2), "K_iqn": (1, 2), "K_sac": (1, 2), "K_droq": (1, 2), "repeats": 1, "batch_size": 2},
    "default": {},
    "paper": {},
}
CHEETAH = Spec("HalfCheetah", (17,), "float32", 6, None, low=(-1.0,) * 6, high=(1.0,) * 6)
BATCH = 32  # of the paper's Atari agents


class Paper(NamedTuple):
    """A column of its table; an action takes 1 times the FLOPs in all of them."""

    gigabytes: float | None = None  # more
    flops: float | None = None  # of an update, times those of K = 1


PAPER = {
    ("i-dqn", 5): Paper(0.3, 5.6),
    ("i-iqn", 3): Paper(0.9, 2.2),
    ("i-sac", 4): Paper(0.1, 4.4),
    ("i-droq", 4): Paper(0.4, 4.6),
}


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
    batch_size: int = BATCH
    """Transitions per update of the Atari agents; those of MuJoCo take their 256."""
    repeats: int = 10
    """Timed updates; the median counts."""
    runs: Path | None = None
    """Run directories of dqn and i-dqn, iqn and i-iqn, …, to find in them the time that a window saves; none: that is left out."""

    def __post_init__(self) -> None:
        require(
            all(1 in sizes for sizes in (self.K_dqn, self.K_iqn, self.K_sac, self.K_droq)),
            "--K-dqn, --K-iqn, --K-sac, --K-droq: 1, the base algorithm, must be among the window sizes",
        )
        require(min(self.actions, self.batch_size, self.repeats) >= 1, "--actions, --batch-size and --repeats must be at least 1")


class Cost(NamedTuple):
    """Of one agent."""

    parameters: int  # online
    arrays_mb: float  # parameters, targets and moments
    program_mb: float  # all that an update occupies: those arrays, its batch, and what it computes on the way
    update_flops: float
    critic_flops: float  # of them, without those of SAC's actor and temperature
    action_flops: float
    update_ms: float


def run(config: Config, folder: Path) -> Result:
    """Compile, count and time."""
    watch, costs = Stopwatch(), {}
    with watch("runs"):
        quantities, more_tables, more_notes = time_saved(config.runs)
    by_algorithm = {"i-dqn": config.K_dqn, "i-iqn": config.K_iqn, "i-sac": config.K_sac, "i-droq": config.K_droq}
    for algorithm, K in [(algorithm, K) for algorithm, sizes in by_algorithm.items() for K in sizes]:
        with watch(f"{algorithm}, K = {K}"):
            costs[algorithm, K] = measure(algorithm, K, config)
    times = {key: Cost(*(x / one for x, one in zip(cost, costs[key[0], 1], strict=True))) for key, cost in costs.items()}
    header = ("algorithm", "K", *Cost._fields, *(f"{name}_ratio" for name in Cost._fields))
    write_csv(folder / "cost.csv", header, [(*key, *cost, *times[key]) for key, cost in costs.items()])
    more = {(algorithm, K): (cost.program_mb - costs[algorithm, 1].program_mb) / 1e3 for (algorithm, K), cost in costs.items()}
    quantities += [q for (a, K), x in times.items() if K > 1 for q in judged(a, K, x, more[a, K], config.batch_size)]
    table = [
        (
            f"{algorithm} {K}",
            *(f"{c.parameters / 1e6:.1f}", f"{c.arrays_mb:.0f}", f"{c.program_mb:.0f}"),
            *(f"{c.update_flops / 1e9:.2f}", f"{c.critic_flops / 1e9:.2f}", f"{c.action_flops / 1e6:.1f}", f"{c.update_ms:.1f}"),
            *(f"{r:.2f}" for r in (x.update_flops, x.critic_flops, x.action_flops, x.update_ms)),
        )
        for ((algorithm, K), c), x in zip(costs.items(), times.values(), strict=True)
    ]
    units = ("M params", "MB arrays", "MB used", "GFLOP", "critics", "MFLOP act", "ms")
    title = f"Atari, {config.actions} actions, batch {config.batch_size}; HalfCheetah, batch 256; {jax.devices()[0].device_kind}"
    notes = [
        "At most K + 1 times the FLOPs: in the authors' code, a window has K + 1 networks. Ours evaluates K members and K targets.",
        "Convolutions are shared: their passes do not grow with K.",
        "The paper's factors count the critics; SAC's actor and temperature do not grow with K, and are in an update of ours.",
        "Memory is what the compiled update needs, as an accelerator's peak would be that of all programs that have run before.",
        *more_notes,
    ]
    tables = [(title, ("agent, K", *units, "x FLOPs", "x critics", "x act", "x ms"), table), *more_tables]
    return Result("cost", dataclasses.asdict(config), quantities, notes, tables, watch.seconds)


def judged(algorithm: str, K: int, times: Cost, gigabytes: float, batch_size: int = BATCH) -> list[Quantity]:
    """A window of `K` beside the paper's. times: its costs over those of K = 1; gigabytes: what it occupies more."""
    paper, critics, act = PAPER.get((algorithm, K), Paper()), times.critic_flops, times.action_flops
    most = None if paper.gigabytes is None or batch_size != BATCH else paper.gigabytes + 0.05
    name = f"{algorithm}, K = {K}:"
    band = "" if most is None else "<= the paper's + 0.05, as it is rounded"
    with_actor = [Quantity(f"{name} FLOPs of critics, actor and temperature, times those of K = 1", times.update_flops)]
    return [
        Quantity(f"{name} FLOPs of the critics, times those of K = 1", critics, None, paper.flops, "> 1, <= K + 1", 1 < critics <= K + 1),
        Quantity(f"{name} FLOPs of an action, times those of K = 1", act, None, 1.0, "1.00", abs(act - 1) < 0.01),
        Quantity(f"{name} additional memory, GB", gigabytes, None, paper.gigabytes, band, None if most is None else gigabytes <= most),
        Quantity(f"{name} time of an update, times those of K = 1", times.update_ms),
        *(with_actor if algorithm in ("i-sac", "i-droq") else []),
    ]


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
    action = _compiled(lambda learner: agent.act(learner, 1, batch.obs[0], agent.noise(jnp.zeros(2, jnp.uint32), 10**6)), learner)
    # As in training, the new learner takes the place of the old one.
    update = _compiled(lambda learner, batch: agent.learn(learner, batch, 1, STAY)[0], learner, batch, donate_argnums=0)
    critics = _compiled(_critics(agent), learner, batch) if agent.spec.continuous else update
    seconds = []
    for _ in range(config.repeats + 1):
        started = time.perf_counter()
        learner = jax.block_until_ready(update(learner, batch))
        seconds.append(time.perf_counter() - started)
    return Cost(
        parameters=sum(x.size for x in jax.tree.leaves(learner.chain.online)),
        arrays_mb=sum(x.nbytes for x in jax.tree.leaves((learner.chain, learner.moments, learner.policy))) / 1e6,
        program_mb=_bytes(update) / 1e6,
        update_flops=_flops(update),
        critic_flops=_flops(critics),
        action_flops=_flops(action),
        update_ms=1e3 * statistics.median(seconds[1:]),
    )


def _critics(agent: Agent) -> Callable:
    """A gradient step of the critics alone, with the policy's next actions given, and what follows of it for the targets."""
    c = agent.config
    step = gradient_step(agent.window, agent.bellman, optax.adam(c.learning_rate, eps=c.adam_epsilon), jnp.sum)

    def update(learner: Learner, batch: Transition) -> Any:
        given = SoftTransition(*batch, next_action=batch.action, bonus=batch.reward)
        chain, moments, _ = step(learner.chain, learner.moments, given, jax.random.key(0))
        return agent.window.track(chain, c.tau), moments

    return update


def batch_of(size: int, stack: int) -> Transition:
    """Random frames."""
    obs, next_obs = (
        jax.random.randint(key, (size, SIZE, SIZE, stack), 0, 256).astype(jnp.uint8) for key in jax.random.split(jax.random.key(0), 2)
    )
    return Transition(obs, jnp.zeros(size, jnp.int32), jnp.ones(size), jnp.full(size, 0.99), next_obs)


def vectors(size: int) -> Transition:
    """Random observations of a cheetah."""
    obs, next_obs = (jax.random.normal(key, (size, *CHEETAH.shape)) for key in jax.random.split(jax.random.key(0), 2))
    return Transition(obs, jnp.zeros((size, CHEETAH.actions)), jnp.ones(size), jnp.full(size, 0.99), next_obs)


def _compiled(f: Callable, *args: Any, **options: Any) -> Any:
    return jax.jit(f, **options).lower(*args).compile()


def _flops(compiled: Any) -> float:
    found = compiled.cost_analysis()
    return float((found[0] if isinstance(found, list) else found)["flops"])


def _bytes(compiled: Any) -> int:
    """What a program occupies: arguments, results that do not take their place, and what it needs on the way."""
    x = compiled.memory_analysis()
    return x.argument_size_in_bytes + x.output_size_in_bytes + x.temp_size_in_bytes - x.alias_size_in_bytes
