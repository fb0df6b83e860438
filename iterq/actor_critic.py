"""Iterated soft actor-critic (Algorithm 2 of the paper): the same chain around pairs of critics, and a policy that improves on one of them.

    θ̄₀ ← τθ₁ + (1 - τ)θ̄₀ after every gradient step of the critics;   θₖ learns from θₖ₋₁ itself, k = 2 … K

K = 1 is SAC (Haarnoja et al., 2018), with dropout and layer normalisation DroQ (Hiraoka et al., 2022). Actions of an agent lie in [-1, 1].
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from iterq import diagnostics
from iterq.agents import ACT, DIAGNOSE, INIT, LEARN, Agent, Learner, Noise, address, counting
from iterq.bellman import SoftTransition, soft
from iterq.chain import Chain, gradient_step, window
from iterq.config import Config
from iterq.critics import Critics
from iterq.envs.base import Spec
from iterq.errors import Refusal
from iterq.events import STAY
from iterq.fitting import refuse_misfit
from iterq.networks import MLP, Encode, Linear, network


class Policy(NamedTuple):
    """The actor and the temperature it is held at."""

    actor: Any  # parameters
    moments: Any  # of their optimiser
    log_alpha: Any  # ()
    alpha_moments: Any


def actor_critic(config: Config, spec: Spec, parts: Mapping[str, nn.Module] | None = None, optimiser: Any = None) -> Agent:
    """The agent of `config` on an environment like `spec`; `parts` and `optimiser` replace the critics and Adam."""
    if not spec.continuous:
        raise Refusal(f"{spec.name} has discrete actions; {config.algorithm} needs vectors (dqn, iqn and their like do not)")
    if config.frame_stack > 1 or len(spec.shape) != 1:
        raise Refusal(f"{config.algorithm} needs observations that are vectors, not stacked; {spec.name} has shape {spec.shape}")
    K, m, batch_size = config.K, spec.actions, config.batch_size
    critics = Critics(config.features, config.dropout, config.layer_norm)
    given = {"encode": Encode(spec.states), **(parts or {"critics": critics})}
    win = window(given, K, (), frozen=False, own_keys=config.dropout_masks == "own")
    rate = None if optimiser else config.learning_rate
    adam = optimiser or optax.adam(config.learning_rate, eps=config.adam_epsilon)
    critic_step = gradient_step(win, soft, adam, jnp.mean if config.reduce == "mean" else jnp.sum)
    actor = network({"encode": Encode(spec.states), "torso": MLP(config.features), "head": Linear(2 * m)})
    target_entropy = -float(m)

    def inputs() -> tuple[jax.Array, ...]:
        return jnp.zeros(spec.shape, spec.dtype), jnp.zeros(m), jax.random.key(0)

    def example() -> tuple[Any, Any, Any]:
        (obs, action, _), zero = inputs(), jnp.float32(0)
        return inputs(), SoftTransition(obs, action, zero, zero, obs, action, zero), (obs, action)

    if parts:
        refuse_misfit(config.bellman, soft, network(given), example, None)

    def init(seed: Any) -> Learner:
        root = jax.random.key_data(jax.random.key(seed, impl="threefry2x32"))
        zero = jnp.int32(0)
        of_critics, of_actor = jax.random.split(address(root, INIT, 0))
        chain = win.init(of_critics, *inputs())
        params, log_alpha = actor.init(of_actor, inputs()[0]), jnp.float32(0)
        policy = Policy(params, adam.init(params), log_alpha, adam.init(log_alpha))
        return Learner(root, chain, adam.init(chain.online), zero, zero, jnp.zeros(K), zero, policy)

    def noise(root: jax.Array, n: Any) -> Noise:
        action, sampled = jax.random.split(address(root, ACT, n))
        random = jax.random.uniform(action, (m,), minval=-1.0)
        return Noise(jnp.int32(n <= config.learning_starts), random, jnp.int32(1), jax.random.key_data(sampled))

    def gaussian(params: Any, obs: Any) -> tuple[jax.Array, jax.Array]:
        """(m,) mean and log σ of π(s), before the squashing."""
        mean, log_std = jnp.split(actor.apply(params, obs), 2)
        return mean, jnp.clip(log_std, -20, 2)

    def squashed(params: Any, obs: Any, epsilon: jax.Array) -> tuple[jax.Array, jax.Array]:
        """a ~ π(s) and log π(a | s), for ε ~ N(0, 1)."""
        mean, log_std = gaussian(params, obs)
        # a = tanh(u),  u = μ + σε
        u = mean + jnp.exp(log_std) * epsilon
        # log π(a) = Σ log N(u; μ, σ) - log(1 - tanh² u),  the latter being 2(log 2 - u - softplus(-2u))
        normal = -0.5 * epsilon**2 - log_std - 0.5 * math.log(2 * math.pi)
        return jnp.tanh(u), (normal - 2 * (math.log(2) - u - jax.nn.softplus(-2 * u))).sum()

    def draw(params: Any, obs: Any, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The same for every observation of a batch."""
        return jax.vmap(squashed, (None, 0, 0))(params, obs, jax.random.normal(key, (len(obs), m)))

    def act(learner: Learner, head: Any, obs: Any, drawn: Noise) -> jax.Array:
        epsilon = jax.random.normal(jax.random.wrap_key_data(drawn.key, impl="threefry2x32"), (m,))
        action, _ = squashed(learner.policy.actor, obs, epsilon)
        return jnp.where(drawn.explore, drawn.action, action)

    def greedy(learner: Learner, obs: Any, key: jax.Array) -> jax.Array:
        return jax.vmap(lambda o: jnp.tanh(gaussian(learner.policy.actor, o)[0]))(obs)

    def followed(policy: Policy, batch: Any, key: jax.Array) -> SoftTransition:
        """The transitions of a batch with the next actions that all members share."""
        next_action, log_pi = draw(policy.actor, batch.next_obs, key)
        given = dict(zip(SoftTransition._fields, batch, strict=False))
        return SoftTransition(**given, next_action=next_action, bonus=-jnp.exp(policy.log_alpha) * log_pi)

    def improve_critics(chain: Chain, moments: Any, batch: SoftTransition, key: jax.Array) -> tuple[Chain, Any, jax.Array]:
        chain, moments, losses = critic_step(chain, moments, batch, key)
        # θ̄₀ ← τθ₁ + (1 - τ)θ̄₀
        return win.track(chain, config.tau), moments, losses.mean(1)

    def improve_actor(policy: Policy, chain: Chain, obs: Any, key: jax.Array) -> Policy:
        of_member, of_actions, of_critics = jax.random.split(key, 3)
        # k ~ U{1 … K}, the same for the whole batch, unless it is said
        drawn = jax.random.randint(of_member, (), 1, K + 1) if K > 1 else 1
        critic = win.Q(win.member(chain.online, {"uniform": drawn, "first": 1, "last": K}[config.actor_member]))
        reads = {"min": jnp.min, "mean": jnp.mean}[config.actor_reads]

        def loss(params: Any) -> tuple[jax.Array, jax.Array]:
            action, log_pi = draw(params, obs, of_actions)
            q = jax.vmap(lambda o, a, k: reads(critic(o, a, k)))(obs, action, jax.random.split(of_critics, batch_size))
            # α log π(a | s) - Q(s, a)
            return (jnp.exp(policy.log_alpha) * log_pi - q).mean(), log_pi.mean()

        grads, log_pi = jax.grad(loss, has_aux=True)(policy.actor)
        updates, moments = adam.update(grads, policy.moments, policy.actor)
        # ∇ of -log α · (log π(a | s) + H̄)
        alpha_updates, alpha_moments = adam.update(-(log_pi + target_entropy), policy.alpha_moments, policy.log_alpha)
        return Policy(optax.apply_updates(policy.actor, updates), moments, policy.log_alpha + alpha_updates, alpha_moments)

    def learn(learner: Learner, batch: Any, n: Any, event: int | None = None) -> tuple[Learner, jax.Array]:
        of_actions, of_critics, of_actor = jax.random.split(address(learner.root, LEARN, n), 3)
        # The policy stays what it is while the critics improve.
        batch = followed(learner.policy, batch, of_actions)
        if config.utd == 1:
            chain, moments, losses = improve_critics(learner.chain, learner.moments, batch, of_critics)
        else:

            def body(carry: tuple[Chain, Any], given: tuple) -> tuple[tuple[Chain, Any], jax.Array]:
                chain, moments, losses = improve_critics(*carry, *given)
                return (chain, moments), losses

            batches = jax.tree.map(lambda x: x.reshape(config.utd, batch_size, *x.shape[1:]), batch)
            given = batches, jax.random.split(of_critics, config.utd)
            (chain, moments), losses = jax.lax.scan(body, (learner.chain, learner.moments), given)
            losses = losses.mean(0)
        policy = improve_actor(learner.policy, chain, batch.obs[-batch_size:], of_actor)
        return counting(learner._replace(chain=chain, moments=moments, policy=policy), losses, n), losses

    def diagnose(learner: Learner, batch: Any, n: Any) -> dict[str, jax.Array]:
        key = address(learner.root, DIAGNOSE, n)
        batch = jax.tree.map(lambda x: x[:batch_size], batch)
        found = {
            "iqn/head_std": diagnostics.spread(win, soft, learner.chain, (batch.obs, batch.action), key),
            "train/ent_coef": jnp.exp(learner.policy.log_alpha),
        }
        if config.log_csae:
            of_actions, of_critics = jax.random.split(key)
            batch = followed(learner.policy, batch, of_actions)
            found["iqn/approx_error_sum"] = diagnostics.csae(win, soft, learner.chain, batch, of_critics)
        return found

    return Agent(config, spec, win, soft, init, noise, act, learn, lambda n: STAY, greedy, diagnose, batch_size * config.utd, rate)
