"""The agents of the Atari presets: K = 1 is the base algorithm bit for bit, and the published runs' order of events."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from iterq.agents import BASES, address, network_of, q_agent
from iterq.agents import LEARN as FOR_LEARNING
from iterq.algorithms import ALGORITHMS, NAMED, VARIANTS
from iterq.bellman import dqn
from iterq.chain import as_published, gradient_step, window
from iterq.envs.base import Spec
from iterq.errors import Refusal
from iterq.events import event_at
from iterq.presets import configure
from iterq.reproduce.cost import batch_of
from tests.helpers import NETWORKS, assert_same, example, random_batch

pytestmark = pytest.mark.medium

SPEC = Spec("Atari", (84, 84), "uint8", 4, None)


def textbook(parts, config):
    """DQN and IQN without a chain: the network applied to batches, a target network, Adam."""
    optimiser = optax.adam(config.learning_rate, eps=config.adam_epsilon)
    rows = jnp.arange(config.batch_size)

    def q(params, obs, *tau):
        for name, part in parts.items():
            more = tau if name == "embed" else ()
            obs = jax.vmap(lambda x, *t, part=part, name=name: part.apply({"params": params[name]}, x, *t))(obs, *more)
        return obs

    def squared(params, target, batch, key):
        y = batch.reward + batch.discount * q(target, batch.next_obs).max(1)
        return jnp.mean((q(params, batch.obs)[rows, batch.action] - jax.lax.stop_gradient(y)) ** 2)

    def uniform(keys, count):
        return jax.vmap(lambda key: jax.random.uniform(key, (count,)))(keys)

    def quantiles(params, target, batch, key):
        for_target, for_online = jax.random.split(key)
        per_sample = jax.random.split(for_target, config.batch_size)
        to_choose, to_value = jax.vmap(jax.random.split, out_axes=1)(per_sample)
        best = q(target, batch.next_obs, uniform(to_choose, 32)).mean(2).argmax(1)
        y = batch.reward[:, None] + batch.discount[:, None] * q(target, batch.next_obs, uniform(to_value, 64))[rows, best]
        tau = uniform(jax.random.split(for_online, config.batch_size), 64)
        delta = jax.lax.stop_gradient(y)[:, None, :] - q(params, batch.obs, tau)[rows, batch.action][:, :, None]
        huber = jnp.where(jnp.abs(delta) <= 1.0, 0.5 * delta**2, 1.0 * (jnp.abs(delta) - 0.5 * 1.0))
        return (jnp.abs(tau[:, :, None] - (delta < 0)) * huber / 1.0).mean(2).sum(1).mean()

    @jax.jit
    def update(params, state, target, batch, key):
        grads = jax.grad(quantiles if config.bellman == "iqn" else squared)(params, target, batch, key)
        updates, state = optimiser.update(grads, state)
        return optax.apply_updates(params, updates), state

    return optimiser, update


@pytest.mark.parametrize(("algorithm", "updates"), [("i-dqn-K1", 6), ("i-iqn-K1", 3)])
def test_a_window_of_one_is_the_base_algorithm_on_atari_networks(algorithm, updates):
    config = configure(algorithm, "paper", batch_size=2, T=8)
    agent, parts = q_agent(config, SPEC), network_of(BASES[config.bellman], config, SPEC)
    optimiser, update = textbook(parts, config)
    learner, learn = agent.init(jnp.uint32(3)), jax.jit(agent.learn)
    params, target, state = learner.chain.online, learner.chain.anchor, optimiser.init(learner.chain.online)
    start = params
    for i in range(1, updates + 1):
        batch = batch_of(2, 4)._replace(action=jnp.array([i % 4, 1]), reward=jnp.array([1.0, -0.5 * i]))
        learner, _ = learn(learner, batch, 4 * i)
        params, state = update(params, state, target, batch, address(learner.root, FOR_LEARNING, 4 * i))
        target = params if i % 2 == 0 else target
    assert_same(learner.chain.online, params)
    assert_same(learner.chain.anchor, target)
    assert_same(learner.moments, state)
    assert any(np.any(a != b) for a, b in zip(jax.tree.leaves(start), jax.tree.leaves(params), strict=True))


def test_the_inflated_network_has_the_parameters_of_a_window():
    def parameters(algorithm):
        config = configure(algorithm, "paper")
        online = jax.eval_shape(lambda: q_agent(config, SPEC).init(jnp.uint32(0))).chain.online
        return sum(x.size for x in jax.tree.leaves(online))

    assert parameters("dqn-inflated") == pytest.approx(parameters("i-dqn"), rel=1e-5)
    assert parameters("i-dqn") > 4.5 * parameters("dqn")


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize(("K", "shared"), [(1, ()), (3, ()), (3, ("torso",))])
def test_the_published_order_of_events(K, shared, told):
    """Written out: roll, gradient step on targets that have not moved, then the targets. told: the program knows what is due."""
    win, optimiser, T, D, G = window(NETWORKS["mlp"], K, shared), optax.adam(1e-2), 12, 8, 4
    step = gradient_step(win, dqn, optimiser, jnp.mean)
    early, step = jax.jit(partial(as_published(T, D, G, step), win), static_argnames="event"), jax.jit(step)
    chain = win.init(jax.random.key(0), example("mlp"))
    moments, ours = optimiser.init(chain.online), (chain, optimiser.init(chain.online))
    for n in range(G, 10 * G, G):
        batch, key, first = random_batch("mlp", seed=n), jax.random.key(n), win.member(chain.online, 1)
        *ours, _ = early(ours[0], n, ours[1], batch, key, event=event_at(n, T, D, G) if told else None)
        if n % T == 0:
            chain = chain._replace(online=win.roll(chain.online))
        chain, moments, _ = step(chain, moments, batch, key)
        if n % T == 0:
            chain = chain._replace(anchor=first)
        if K > 1 and (n % T == 0 or n % D == 0):
            chain = win.sync(chain)
        assert_same(ours[0], chain)
        assert_same(ours[1], moments)


def test_published_runs_shift_early_and_act_with_the_anchor():
    config = configure("i-dqn", "published")
    assert (config.acting, config.shifts, config.reduce, config.T, config.K) == ("anchor-too", "early", "mean", 6_000, 5)
    agent, other = (q_agent(configure("i-dqn", preset, K=2, batch_size=2, T=8, D=8), SPEC) for preset in ("published", "paper"))
    learner = other.init(jnp.uint32(0))
    learn, batch = jax.jit(agent.learn), batch_of(2, 4)
    first, _ = learn(learner, batch, 4)  # not a multiple of T
    same, _ = jax.jit(other.learn)(learner, batch, 4)
    assert_same(first, same)
    moved, _ = learn(first, batch, 8)
    assert_same(moved.chain.anchor, agent.window.member(first.chain.online, 1))
    assert_same(agent.window.member(moved.chain.frozen, 1), agent.window.member(moved.chain.online, 1))
    for fields in ({"consecutive": False}, {"tau": 0.5}):
        with pytest.raises(Refusal, match="early"):
            configure("i-dqn", "published", **fields)


def test_of_the_published_runs_only_iterated_ones_act_with_the_anchor_and_shift_early():
    for name, named in NAMED.items():
        config, iterated = configure(name, "published"), (named.base or name).startswith("i-") and "soft" not in configure(name).bellman
        own = named.values.get("acting", ALGORITHMS[named.base or name].values.get("acting"))
        assert config.acting == (own or ("anchor-too" if iterated else "uniform")), name
        assert config.shifts == ("early" if iterated else "after"), name
        if not iterated:  # then both presets say the same
            assert config == configure(name, "paper"), name
    assert configure("i-dqn-K1", "published").acting == configure("i-iqn-K1", "published").acting == "anchor-too"


def test_experiments_on_sharing_and_on_sums_change_one_thing_each():
    names = ("i-dqn", "i-dqn-sum", "i-dqn-independent", "i-dqn-independent-sum")
    for preset in ("paper", "published", "classic"):
        mean, total, apart, apart_total = (dataclasses.asdict(configure(name, preset)) for name in names)
        for a, b, changed in (
            (mean, total, "reduce"),
            (apart, apart_total, "reduce"),
            (mean, apart, "shared"),
            (total, apart_total, "shared"),
        ):
            a, b = (said_in_full(x) for x in (a, b))
            assert {field for field in a if a[field] != b[field]} == {changed}


def said_in_full(fields):
    """Settings with the automatic way of reducing said in full."""
    reduce = {"auto": "mean" if fields["shared"] else "sum"}.get(fields["reduce"], fields["reduce"])
    return {**fields, "algorithm": "", "reduce": reduce}


@pytest.mark.parametrize(
    ("algorithm", "fields"),
    [
        ("dqn", {"K": 1, "T": 8_000, "G": 4, "learning_rate": 6.25e-5, "adam_epsilon": 1.5e-4, "n_step": 1}),
        ("i-dqn", {"K": 5, "T": 6_000, "D": 30, "G": 4, "shared": True, "acting": "uniform"}),
        ("iqn", {"K": 1, "T": 8_000, "learning_rate": 5e-5, "adam_epsilon": 3.125e-4, "n_step": 3}),
        ("i-iqn", {"K": 3, "T": 6_000, "learning_rate": 5e-5, "n_step": 3}),
        ("i-dqn-K10", {"K": 10, "T": 6_000}),
        ("dqn-G1", {"K": 1, "G": 1, "T": 8_000}),
        ("i-dqn-K4-T2000", {"K": 4, "T": 2_000, "G": 4}),
        ("i-dqn-K4-T8000", {"K": 4, "T": 8_000}),
        ("i-dqn-no-targets", {"K": 5, "frozen": False, "T": 6_000}),
        ("i-dqn", {"reduce": "mean"}),
        ("i-dqn-sum", {"shared": True, "K": 5, "reduce": "sum"}),
        ("i-dqn-independent", {"shared": False, "K": 5, "reduce": "mean"}),
        ("i-dqn-independent-sum", {"shared": False, "K": 5, "reduce": "sum"}),
        ("i-dqn-K1-3-step", {"K": 1, "n_step": 3, "T": 6_000}),
        ("iqn-1-step", {"K": 1, "n_step": 1, "T": 8_000, "learning_rate": 5e-5}),
        ("i-iqn-K1-1-step", {"K": 1, "n_step": 1, "T": 6_000, "learning_rate": 5e-5}),
        ("qr-dqn", {"learning_rate": 5e-5, "adam_epsilon": 3.125e-4, "n_step": 1, "prioritised": False, "quantiles": 64}),
        ("qr-dqn-dopamine", {"learning_rate": 5e-5, "n_step": 3, "prioritised": True, "quantiles": 200}),
        ("i-dqn-3-step", {"n_step": 3, "K": 5}),
        ("dqn-5-step", {"n_step": 5, "K": 1, "T": 8_000}),
        ("bootstrapped-dqn", {"K": 6, "consecutive": False, "acting": "episode", "T": 8_000, "reduce": "mean"}),
    ],
)
def test_presets_have_the_paper_s_values(algorithm, fields):
    config = configure(algorithm, env="Breakout")
    assert {name: getattr(config, name) for name in fields} == fields
    assert configure(algorithm, env="Breakout", G=2).G == 2  # what the user says comes first


def test_every_variant_has_sources_and_an_algorithm():
    for name, variant in VARIANTS.items():
        assert variant.values.keys() == variant.source.keys()
        assert all("paper" in source or "Dopamine" in source for source in variant.source.values())
        assert configure(name, "paper") != configure(variant.base, "paper")
