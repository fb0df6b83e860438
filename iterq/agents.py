"""An agent as pure functions: a chain that acts, and learns from its replay.

    init   seed -> learner
    noise  (root, n) -> noise                                         what step n draws for acting
    act    (learner, head, obs, noise) -> action                      ε-greedy on one member of the chain, or drawn from the policy
    learn  (learner, batch, n) -> (learner, losses (B,))              a gradient step of all members, then the window moves if it is due
    greedy (learner, obs (B, …), key) -> (B, …) actions               for evaluation

Randomness is addressed, not threaded: what step n of seed s draws for a purpose is a function of (s, purpose, n).
"""

import importlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from iterq import bellman as losses_of
from iterq import diagnostics
from iterq.bellman import Bellman, Transition
from iterq.chain import Chain, Window, as_published, gradient_step, hard, polyak, window
from iterq.config import Config
from iterq.envs.base import Spec
from iterq.errors import Refusal
from iterq.events import STAY, SYNC, event_at
from iterq.fitting import refuse_misfit
from iterq.networks import (
    FAN_IN,
    LECUN,
    MLP,
    XAVIER,
    Distribution,
    Encode,
    Initializer,
    Linear,
    Nature,
    QuantileEmbedding,
    nature,
    network,
)

# What randomness is for. New purposes go to the end: a number that changed would change all runs.
INIT, ACT, SAMPLE, LEARN, WORLD, EVALUATE, SAMPLE_TO_DIAGNOSE, DIAGNOSE, STARTS = range(9)


def address(root: jax.Array, purpose: int, n: Any) -> jax.Array:
    """The key of step `n` for one purpose; `root` (2,) is the data of the seed's key."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.wrap_key_data(root, impl="threefry2x32"), purpose), n)


class Learner(NamedTuple):
    """All an agent is, apart from its experience."""

    root: Any  # (2,) uint32
    chain: Chain
    moments: Any  # of the optimiser
    updates: Any  # () gradient steps so far
    since: Any  # () gradient steps since the last line of metrics
    losses: Any  # (K,) their summed losses
    broken: Any  # () the first step whose loss was not finite; 0: none
    policy: Any = None  # of an actor-critic; see actor_critic.py


class Noise(NamedTuple):
    """What one step draws for acting."""

    explore: Any  # () int32, 1: take the random action
    action: Any  # () or (m,) the random action
    # 1 … K, also 0 where the anchor acts, too; at the first frame of an episode also the head, which some rules keep to its end
    member: Any
    key: Any  # (2,) uint32, for the values where they are sampled


class Agent(NamedTuple):
    """Pure functions of one agent; see the top of this file."""

    config: Config
    spec: Spec
    window: Window
    bellman: Bellman
    init: Callable[[Any], Learner]
    noise: Callable[[jax.Array, Any], Noise]  # (root, n)
    act: Callable[[Learner, Any, Any, Noise], jax.Array]
    learn: Callable[..., tuple[Learner, jax.Array]]
    event: Callable[[int], int]  # what happens to the window after the gradient step of step n (chain.py); learn may be told
    greedy: Callable[[Learner, Any, jax.Array], jax.Array]
    diagnose: Callable[[Learner, Any, Any], dict[str, jax.Array]]
    draws: int  # transitions of a gradient step, as `learn` takes them
    learning_rate: float | None  # None: that is the user's optimiser's business


class Base(NamedTuple):
    """A base algorithm and the network it needs."""

    bellman: Callable[[Config], Bellman]
    output: Callable[[Config, int, Initializer], nn.Module] = lambda c, A, init: Linear(A, init)  # (config, actions, initialiser)
    distributional: bool = True
    implicit: bool = False


BASES = {
    "dqn": Base(lambda c: losses_of.dqn, distributional=False),
    "double-dqn": Base(lambda c: losses_of.double_dqn, distributional=False),
    "qr-dqn": Base(lambda c: losses_of.qr_dqn(c.quantiles, c.kappa), lambda c, A, init: Distribution(A, c.quantiles, init)),
    "c51": Base(lambda c: losses_of.c51(c.v_min, c.v_max, c.atoms), lambda c, A, init: Distribution(A, c.atoms, init)),
    "iqn": Base(lambda c: losses_of.iqn(c.quantiles, c.quantiles, kappa=c.kappa), implicit=True),
}


def network_of(chosen: Base, c: Config, spec: Spec) -> Mapping[str, nn.Module]:
    """The parts of the network that `c` names; all but the last are shared by the members of a chain."""
    embed = {"embed": QuantileEmbedding()} if chosen.implicit else {}
    if c.torso == "mlp":
        return {"encode": Encode(spec.states), "torso": MLP(c.features), **embed, "head": chosen.output(c, spec.actions, LECUN)}
    shape = (*spec.shape, c.frame_stack)
    if len(spec.shape) != 2 or spec.dtype != "uint8":
        raise Refusal(f"torso = {c.torso} needs frames of bytes (height, width); {spec.name} has {spec.dtype} of shape {spec.shape}")
    if min(shape[:2]) < 36:
        raise Refusal(f"torso = {c.torso} needs frames of at least 36 x 36; {spec.name} has {shape[0]} x {shape[1]}")
    init, padding = FAN_IN if chosen.distributional else XAVIER, "VALID" if c.torso == "nature-valid" else "SAME"
    # On a CPU every agent has programs of its own, so that a shared torso is mapped over nothing.
    torso = Nature(padding, init, patches=jax.default_backend() != "cpu" or not c.shared)
    return {"encode": Encode(flat=False), **nature(c.features, chosen.output(c, spec.actions, init), chosen.implicit, torso)}


def base(name: str) -> Base:
    """A base algorithm by name, or MODULE:NAME of a `Bellman` (or a function that returns one) from anywhere."""
    if name in BASES:
        return BASES[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise Refusal(f"unknown base algorithm {name!r}; known: {', '.join(BASES)}, or MODULE:NAME")
    try:
        found = getattr(importlib.import_module(module), attribute)
        found = found if isinstance(found, Bellman) else found()
    except Exception as error:
        raise Refusal(f"no base algorithm {name!r}: {type(error).__name__}: {error}") from error
    if not isinstance(found, Bellman):
        raise Refusal(f"{name} is no Bellman but {type(found).__name__}")
    return Base(lambda c: found, distributional=False)


def counting(learner: Learner, losses: jax.Array, n: Any) -> Learner:
    """The learner after one more gradient step, at step `n`, with these losses (K,)."""
    healthy = jnp.isfinite(losses).all() | (learner.broken > 0)
    return learner._replace(
        updates=learner.updates + 1,
        since=learner.since + 1,
        losses=learner.losses + losses,
        broken=jnp.where(healthy, learner.broken, jnp.int32(n)),
    )


def before_own(spec: Spec, frame_stack: int) -> Encode:
    """What comes before the parts of a user's own network: an image keeps its shape, with stacked frames as its channels."""
    axes = len(spec.shape) + (frame_stack > 1)
    return Encode(spec.states, flat=len(spec.shape) < 2 or axes > 3)


def q_agent(config: Config, spec: Spec, parts: Mapping[str, nn.Module] | None = None, optimiser: Any = None) -> Agent:
    """The agent of `config` on an environment like `spec`; `parts` and `optimiser` replace the network and Adam."""
    if spec.continuous:
        raise Refusal(
            f"{spec.name} has actions that are vectors; {config.algorithm} needs discrete ones (sac, i-sac, droq and i-droq do not)"
        )
    chosen = base(config.bellman)
    bellman = chosen.bellman(config)
    given = {"encode": before_own(spec, config.frame_stack), **parts} if parts else network_of(chosen, config, spec)
    shared = tuple(given)[:-1] if config.shared else ()
    win = window(given, config.K, shared, config.frozen, config.consecutive)
    rate = None if optimiser else config.learning_rate
    optimiser = optimiser or optax.adam(config.learning_rate, eps=config.adam_epsilon)
    reduce = {"mean": jnp.mean, "sum": jnp.sum, "auto": jnp.mean if config.shared else jnp.sum}[config.reduce]
    step = gradient_step(win, losses_of.weighted(bellman) if config.prioritised else bellman, optimiser, reduce)
    move = hard(config.T, config.D, config.G) if config.tau == 1 else polyak(config.tau)
    early = as_published(config.T, config.D, config.G, step)
    K, rule = config.K, config.acting

    def inputs() -> tuple[jax.Array, ...]:
        stack = () if config.frame_stack == 1 else (config.frame_stack,)
        obs = jnp.zeros((*spec.shape, *stack), spec.dtype)
        return (obs, jnp.zeros(1)) if config.bellman == "iqn" else (obs,)

    def example() -> tuple[Any, Any, Any]:
        obs, zero = inputs()[0], jnp.float32(0)
        return inputs(), Transition(obs, jnp.int32(0), zero, zero, obs), obs

    if parts or config.bellman not in BASES:  # ours go together
        refuse_misfit(config.bellman, bellman, network(given), example, (spec.actions,))

    def init(seed: Any) -> Learner:
        root = jax.random.key_data(jax.random.key(seed, impl="threefry2x32"))
        chain = win.init(address(root, INIT, 0), *inputs())
        zero = jnp.int32(0)
        return Learner(root, chain, optimiser.init(chain.online), zero, zero, jnp.zeros(K), zero)

    def epsilon(n: Any) -> Any:
        # 1 while n ≤ learning_starts, then linearly to ε_end
        done = jnp.clip((n - config.learning_starts) / max(config.epsilon_decay, 1), 0, 1)
        return 1 + (config.epsilon_end - 1) * done

    def noise(root: jax.Array, n: Any) -> Noise:
        explore, action, member, values = jax.random.split(address(root, ACT, n), 4)
        u, a = jax.random.uniform(explore), jax.random.randint(action, (), 0, spec.actions)
        k = jax.random.randint(member, (), 0 if rule == "anchor-too" else 1, K + 1)
        return Noise((u < epsilon(n)).astype(jnp.int32), a, k, jax.random.key_data(values))

    def act(learner: Learner, head: Any, obs: Any, drawn: Noise) -> jax.Array:
        chain = learner.chain
        k = {"uniform": drawn.member, "anchor-too": drawn.member, "first": 1, "last": K, "episode": head}[rule]
        theta = win.member(chain.online, jnp.maximum(k, 1) if rule == "anchor-too" else k)
        if rule == "anchor-too":
            theta = jax.tree.map(lambda bar, x: jnp.where(k == 0, bar, x), chain.anchor, theta)
        q = bellman.values(win.Q(theta), obs, jax.random.wrap_key_data(drawn.key, impl="threefry2x32"))
        return jnp.where(drawn.explore, drawn.action, q.argmax().astype(jnp.int32))

    def event(n: int) -> int:
        found = event_at(n, config.T, config.D, config.G)
        idle = config.tau < 1 or (found == SYNC and (K == 1 or not config.frozen))
        return STAY if idle else found

    def learn(learner: Learner, batch: Any, n: Any, event: int | None = None) -> tuple[Learner, jax.Array]:
        given = learner.moments, batch, address(learner.root, LEARN, n)
        if config.shifts == "early":
            chain, moments, losses = early(win, learner.chain, n, *given, event=event)
        else:
            chain, moments, losses = step(learner.chain, *given)
            chain = move(win, chain, n, event)
        return counting(learner._replace(chain=chain, moments=moments), losses.mean(1), n), losses.mean(0)

    def greedy(learner: Learner, obs: Any, key: jax.Array) -> jax.Array:
        online = learner.chain.online
        if config.eval_policy == "mean":
            return win.values(bellman, online, obs, key).mean(0).argmax(-1)
        named = {"first": 1, "last": K}
        theta = win.member(online, named[config.eval_policy] if config.eval_policy in named else int(config.eval_policy))
        keys = jax.random.split(key, obs.shape[0])
        return jax.vmap(lambda o, k: bellman.values(win.Q(theta), o, k))(obs, keys).argmax(-1)

    def diagnose(learner: Learner, batch: Any, n: Any) -> dict[str, jax.Array]:
        key = address(learner.root, DIAGNOSE, n)
        found = {"iqn/head_std": diagnostics.spread(win, bellman, learner.chain, batch.obs, key)}
        if config.log_csae:
            found["iqn/approx_error_sum"] = diagnostics.csae(win, bellman, learner.chain, batch, key)
        return found

    return Agent(config, spec, win, bellman, init, noise, act, learn, event, greedy, diagnose, config.batch_size, rate)
