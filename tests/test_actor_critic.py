"""i-SAC and i-DroQ: K = 1 is a textbook SAC bit for bit, members learn from their predecessors, and a known optimum is found."""

import contextlib
import math

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen
from gymnasium import spaces

from iterq.actor_critic import actor_critic
from iterq.agents import LEARN, address
from iterq.api import load, make
from iterq.bellman import SoftTransition, Transition, soft
from iterq.critics import Critics, LayerNorm, dropped
from iterq.envs.base import Spec
from iterq.envs.host import host_env
from iterq.errors import Refusal
from iterq.networks import MLP, Linear
from iterq.presets import configure
from tests.helpers import assert_same

pytestmark = pytest.mark.medium

N, M, BATCH, UPDATES = 5, 2, 8, 200
SPEC = Spec("Box", (N,), "float32", M, None, low=(-1.0,) * M, high=(1.0,) * M)
SMALL = {"features": (16, 16), "batch_size": BATCH}


def random_batch(seed, count=BATCH):
    rng = np.random.default_rng(seed)
    obs, next_obs = rng.normal(size=(2, count, N)).astype(np.float32)
    action = rng.uniform(-1, 1, (count, M)).astype(np.float32)
    discount = np.where(rng.random(count) < 0.2, 0, 0.99).astype(np.float32)
    return Transition(obs, action, rng.normal(size=count).astype(np.float32), discount, next_obs)


def textbook(features, lr, tau):
    """SAC as it is usually written: batches, a target copy, three losses, three optimisers."""
    critics, torso, head, adam = Critics(features), MLP(features), Linear(2 * M), optax.adam(lr)

    def q(params, obs, action, key):
        keys = jax.random.split(key, BATCH)
        return jax.vmap(lambda o, a, k: critics.apply({"params": params["critics"]}, o, a, k))(obs, action, keys)

    def policy(params, obs, key):
        def one(obs, noise):
            out = head.apply({"params": params["head"]}, torso.apply({"params": params["torso"]}, obs))
            mean, log_std = jnp.split(out, 2)
            log_std = jnp.clip(log_std, -20, 2)
            u = mean + jnp.exp(log_std) * noise
            log_prob = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)
            return jnp.tanh(u), (log_prob - 2 * (math.log(2) - u - jax.nn.softplus(-2 * u))).sum()

        return jax.vmap(one)(obs, jax.random.normal(key, (BATCH, M)))

    @jax.jit
    def update(state, batch, key):
        online, target, moments, actor, actor_moments, log_alpha, alpha_moments = state
        alpha = jnp.exp(log_alpha)
        of_actions, of_critics, of_actor = jax.random.split(key, 3)
        of_targets, of_losses = jax.random.split(of_critics)
        next_action, next_log_prob = policy(actor, batch.next_obs, of_actions)
        y = batch.reward + batch.discount * (q(target, batch.next_obs, next_action, of_targets).min(1) + -alpha * next_log_prob)

        def critic_loss(params):
            return ((q(params, batch.obs, batch.action, of_losses) - y[:, None]) ** 2).sum(1).mean()

        updates, moments = adam.update(jax.grad(critic_loss)(online), moments)
        online = optax.apply_updates(online, updates)
        target = jax.tree.map(lambda new, old: tau * new + (1 - tau) * old, online, target)
        _, of_actions, of_critics = jax.random.split(of_actor, 3)

        def actor_loss(params):
            action, log_prob = policy(params, batch.obs, of_actions)
            return (alpha * log_prob - q(online, batch.obs, action, of_critics).min(1)).mean(), log_prob.mean()

        grads, log_prob = jax.grad(actor_loss, has_aux=True)(actor)
        updates, actor_moments = adam.update(grads, actor_moments)
        alpha_updates, alpha_moments = adam.update(-(log_prob - M), alpha_moments)
        return online, target, moments, optax.apply_updates(actor, updates), actor_moments, log_alpha + alpha_updates, alpha_moments

    return update


def test_a_window_of_one_is_a_textbook_sac():
    config = configure("i-sac", K=1, **SMALL)
    agent = actor_critic(config, SPEC)
    learner, learn = agent.init(jnp.uint32(4)), jax.jit(agent.learn)
    start, policy = learner.chain.online, learner.policy
    state = (start, learner.chain.anchor, learner.moments, policy.actor, policy.moments, policy.log_alpha, policy.alpha_moments)
    update = textbook(config.features, config.learning_rate, config.tau)
    for n in range(1, UPDATES + 1):
        batch = random_batch(n)
        learner, _ = learn(learner, batch, n)
        state = update(state, batch, address(learner.root, LEARN, n))
    policy = learner.policy
    ours = (
        learner.chain.online,
        learner.chain.anchor,
        learner.moments,
        policy.actor,
        policy.moments,
        policy.log_alpha,
        policy.alpha_moments,
    )
    assert_same(ours, state)
    assert learner.chain.frozen is None
    assert int(learner.updates) == UPDATES
    with pytest.raises(AssertionError):
        assert_same(start, learner.chain.online)
    assert float(policy.log_alpha) != 0


def test_droq_without_its_additions_is_sac():
    plain = {"dropout": 0.0, "layer_norm": False, "utd": 1, "actor_reads": "min", **SMALL}
    learners = []
    for algorithm in ("i-sac", "i-droq"):
        agent = actor_critic(configure(algorithm, **(plain if algorithm == "i-droq" else SMALL)), SPEC)
        learner, learn = agent.init(jnp.uint32(0)), jax.jit(agent.learn)
        for n in range(1, 6):
            learner, _ = learn(learner, random_batch(n), n)
        learners.append(learner)
    assert_same(*learners)


def test_every_gradient_step_of_the_critics_has_a_batch_of_its_own_and_the_actor_one():
    config = configure("i-droq", utd=3, dropout=0.0, K=2, **SMALL)
    agent = actor_critic(config, SPEC)
    assert agent.draws == 3 * BATCH
    learner = agent.init(jnp.uint32(0))
    batch = random_batch(1, 3 * BATCH)
    after, losses = jax.jit(agent.learn)(learner, batch, 7)
    assert losses.shape == (2,)
    counted = [int(x) for x in (after.moments[0].count, after.policy.moments[0].count, after.policy.alpha_moments[0].count)]
    assert counted == [3, 1, 1]
    turned = jax.tree.map(lambda x: np.roll(x, BATCH, 0), batch)
    other, _ = jax.jit(agent.learn)(learner, turned, 7)
    with pytest.raises(AssertionError):
        assert_same(after.chain.online, other.chain.online)


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9])
def test_dropout_leaves_out_its_share_of_units_independently_and_keeps_the_mean(share):
    keys = jax.random.split(jax.random.key(3), 4_000)
    x = jnp.arange(1.0, 36.0)  # an odd number of them
    layers = [np.asarray(jax.vmap(lambda key, i=i: dropped(x, share, key, i))(keys)) for i in range(2)]
    gone = np.stack([layer == 0 for layer in layers])
    sd = (share * (1 - share)) ** 0.5
    assert abs(gone.mean() - share) < 4 * sd / gone.size**0.5 + 2**-17
    assert np.abs(gone.mean(1) - share).max() < 5 * sd / 4_000**0.5  # of every unit of every layer
    for layer in layers:
        assert len(np.unique(layer[layer > 0].round(2))) == 35
        np.testing.assert_allclose(layer.mean(0), x, rtol=6 * (share / (1 - share) / 4_000) ** 0.5)
    columns = np.moveaxis(gone, 1, 0).reshape(4_000, 70)
    correlation = np.corrcoef(columns.T) - np.eye(70)
    assert np.abs(correlation).max() < 6 / 4_000**0.5


def test_dropout_changes_the_targets_and_layers_are_normalised():
    noisy = actor_critic(configure("droq", dropout=0.5, **SMALL), SPEC)
    learner, obs = noisy.init(jnp.uint32(0)), jnp.ones(N)
    q = noisy.window.Q(learner.chain.anchor)
    values = jnp.stack([q(obs, jnp.zeros(M), jax.random.key(k)) for k in range(8)])
    assert values.shape == (8, 2)
    assert float(values.std(0).min()) > 0
    names = set(learner.chain.online["critics"]["VmapCritic_0"])
    assert {"LayerNorm_0", "LayerNorm_1"} <= names
    plain = actor_critic(configure("sac", **SMALL), SPEC).init(jnp.uint32(0))
    assert not any(name.startswith("LayerNorm") for name in plain.chain.online["critics"]["VmapCritic_0"])


def test_each_pair_learns_from_the_one_before_it():
    """Moving θ₃ changes the loss of member 3 alone; moving θ₂ those of members 2 and 3, and not that of member 1."""
    agent = actor_critic(configure("i-sac", K=3, **SMALL), SPEC)
    learner = agent.init(jnp.uint32(1))
    batch = random_batch(3)._replace(discount=np.ones(BATCH, np.float32))
    shifted = jax.tree.map(lambda x: x.at[2].add(1.0), learner.chain.online)  # the last pair
    losses = {}
    for name, online in (("as it is", learner.chain.online), ("last moved", shifted)):
        _, losses[name] = jax.jit(agent.learn)(learner._replace(chain=learner.chain._replace(online=online)), batch, 5)
    a, b = losses["as it is"], losses["last moved"]
    np.testing.assert_array_equal(a[:2], b[:2])  # nobody learns from the last
    assert a[2] != b[2]
    shifted = jax.tree.map(lambda x: x.at[1].add(1.0), learner.chain.online)
    _, c = jax.jit(agent.learn)(learner._replace(chain=learner.chain._replace(online=shifted)), batch, 5)
    assert a[0] == c[0]
    assert np.all(a[1:] != c[1:])  # the middle one, and the last, which learns from it


def test_the_mean_over_members_is_a_kth_of_the_sum():
    moved = {}
    for word in ("auto", "sum", "mean"):
        agent = actor_critic(configure("i-sac", K=4, reduce=word, **SMALL), SPEC, optimiser=optax.sgd(0.1))
        start = agent.init(jnp.uint32(0))
        after, _ = jax.jit(agent.learn)(start, random_batch(1), 5)
        moved[word] = jax.tree.map(lambda a, b: a - b, after.chain.online, start.chain.online)
    assert_same(moved["auto"], moved["sum"])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b / 4, rtol=1e-3, atol=1e-7), moved["mean"], moved["sum"])


@pytest.mark.parametrize(("rule", "reads"), [("first", {1}), ("last", {3}), ("uniform", {1, 2, 3})])
def test_the_actor_improves_on_the_member_that_is_said(rule, reads):
    """Moving the critics of the others changes nothing in the policy."""
    agent = actor_critic(configure("i-sac", K=3, actor_member=rule, **SMALL), SPEC)
    learner, learn = agent.init(jnp.uint32(0)), jax.jit(agent.learn)
    found = set()
    for n in range(1, 13):
        batch = random_batch(n)._replace(discount=np.zeros(BATCH, np.float32))  # members learn from rewards alone, not from each other
        as_it_is, _ = learn(learner, batch, n)
        for k in (1, 2, 3):
            online = jax.tree.map(lambda x, k=k: x.at[k - 1].add(0.5), learner.chain.online)
            other, _ = learn(learner._replace(chain=learner.chain._replace(online=online)), batch, n)
            if any(jax.tree.leaves(jax.tree.map(lambda a, b: bool((a != b).any()), other.policy.actor, as_it_is.policy.actor))):
                found.add(k)
    assert found == reads


@pytest.mark.parametrize("masks", ["own", "shared"])
def test_members_leave_out_units_of_their_own_or_the_same_ones(masks):
    """Of members that are the same function, losses and targets differ by what is left out alone."""
    agent = actor_critic(configure("i-droq", K=3, dropout=0.5, dropout_masks=masks, **SMALL), SPEC)
    chain = agent.init(jnp.uint32(0)).chain
    chain = chain._replace(online=jax.tree.map(lambda x: jnp.stack([x] * 3), chain.anchor))
    drawn = SoftTransition(*random_batch(1), np.zeros((BATCH, M), np.float32), np.zeros(BATCH, np.float32))
    key = jax.random.key(0)
    ys = agent.window.targets(soft, chain, drawn, key)
    distances = agent.window.distances(soft, chain.online, jnp.zeros((3, BATCH)), drawn, key)
    for found in (ys, distances):
        for j, k in ((0, 1), (0, 2), (1, 2)):
            same = np.isclose(found[j], found[k], rtol=1e-4)
            assert same.all() if masks == "shared" else same.mean() < 0.5  # where an episode ends, targets are the reward


@pytest.mark.parametrize("fields", [{"K": 1}, {"K": 3, "dropout": 0.0}])
def test_masks_of_their_own_change_nothing_where_there_is_one_member_or_none_is_left_out(fields):
    learners = []
    for masks in ("own", "shared"):
        agent = actor_critic(configure("i-droq", utd=2, dropout_masks=masks, **fields, **SMALL), SPEC)
        learner, learn = agent.init(jnp.uint32(0)), jax.jit(agent.learn)
        for n in range(1, 6):
            learner, _ = learn(learner, random_batch(n, 2 * BATCH), n)
        learners.append(learner)
    assert_same(*learners)


def test_approximation_errors_are_summed_along_the_chain():
    agent = actor_critic(configure("i-sac", K=3, utd=2, log_csae=True, **SMALL), SPEC)
    learner, batch = agent.init(jnp.uint32(2)), random_batch(9, 2 * BATCH)
    at_the_end = batch._replace(discount=np.zeros(2 * BATCH, np.float32))  # every target is the reward
    expected = 0.0
    for k in (1, 2, 3):
        q = agent.window.Q(agent.window.member(learner.chain.online, k))
        for i in range(BATCH):
            expected += ((q(batch.obs[i], batch.action[i], jax.random.key(0)) - batch.reward[i]) ** 2).sum() / BATCH
    found = {name: jax.jit(agent.diagnose)(learner, given, 7) for name, given in (("end", at_the_end), ("middle", batch))}
    np.testing.assert_allclose(found["end"]["iqn/approx_error_sum"], expected, rtol=1e-5)
    assert abs(found["middle"]["iqn/approx_error_sum"] - expected) > 1e-3
    plain = actor_critic(configure("i-sac", K=3, **SMALL), SPEC)
    assert "iqn/approx_error_sum" not in plain.diagnose(learner, batch, 7)


class Regulator(gymnasium.Env):
    """s′ = s + a, reward -(s² + a²) / 4, actions in [-2, 2]; 8 steps, then cut off."""

    observation_space = spaces.Box(-10, 10, (1,), np.float32)
    action_space = spaces.Box(-2, 2, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.s, self.t = self.np_random.uniform(-2, 2), 0
        return np.array([self.s], np.float32), {}

    def step(self, action):
        a = float(action[0])
        reward, self.s, self.t = -(self.s**2 + a**2) / 4, self.s + a, self.t + 1
        return np.array([self.s], np.float32), reward, False, self.t >= 8, {}


@pytest.mark.parametrize("algorithm", ["sac", "i-sac"])
def test_a_regulator_is_solved_to_its_riccati_value(algorithm):
    gamma = 0.9
    p = 0.25
    for _ in range(100):  # V(s) = -p s²:  p = ¼ + γp - (γp)² / (¼ + γp)
        p = 0.25 + gamma * p - (gamma * p) ** 2 / (0.25 + gamma * p)
    gain = gamma * p / (0.25 + gamma * p)  # a = -gain · s
    fields = {"features": (32, 32), "batch_size": 64, "gamma": gamma, "learning_starts": 200, "buffer_size": 10_000, "eval_every": 0}
    with contextlib.closing(make(algorithm, Regulator, **fields)) as model:
        model.learn(4_000)
        s = np.linspace(-1.5, 1.5, 13, dtype=np.float32)[:, None]
        actions, _ = model.predict(s, deterministic=True)
        np.testing.assert_allclose(actions, -gain * s, atol=0.15)
        learner = model.learner()
        critics = jax.vmap(model.agent.window.Q(model.agent.window.member(learner.chain.online, 1)), (0, 0, None))
        values = critics(s, actions / 2, jax.random.key(0)).mean(1)
    entropy_bonus = float(np.asarray(values).max())  # the temperature is never quite zero; it lifts all values alike
    np.testing.assert_allclose(values - entropy_bonus, -p * (s[:, 0] ** 2), atol=0.25)


def test_actions_reach_the_environment_within_its_bounds():
    class Slanted(Regulator):
        action_space = spaces.Box(np.array([-1.0, 0.0, 10.0], np.float32), np.array([3.0, 0.5, 20.0], np.float32))
        seen: list = []  # noqa: RUF012

        def step(self, action):
            self.seen.append(np.array(action))
            return super().step(action / 100)

    spec = host_env(Slanted).spec
    assert (spec.actions, spec.low, spec.high) == (3, (-1.0, 0.0, 10.0), (3.0, 0.5, 20.0))
    np.testing.assert_array_equal(spec.outside([-1.0, 0.0, 1.0]), np.array([-1.0, 0.25, 20.0], np.float32))
    fields = {"learning_starts": 30, "buffer_size": 100, "eval_every": 0, **SMALL}
    with contextlib.closing(make("i-sac", Slanted, K=2, seeds=2, **fields)) as model:
        model.learn(60)
        for deterministic in (True, False):
            action, _ = model.predict(np.zeros(1, np.float32), deterministic=deterministic)
            assert np.all(np.array(spec.low) <= action)
            assert np.all(action <= np.array(spec.high))
    seen = np.stack(Slanted.seen)
    assert seen.dtype == np.float32
    assert np.all(seen.min(0) >= spec.low)
    assert np.all(seen.max(0) <= spec.high)
    assert np.all(np.ptp(seen, 0) > 0.7 * (np.array(spec.high) - spec.low))  # random actions fill the box


def test_a_saved_model_plays_the_same(tmp_path):
    fields = {"learning_starts": 30, "buffer_size": 100, "eval_every": 0, **SMALL}
    with contextlib.closing(make("i-sac", Regulator, K=2, **fields)) as model:
        model.learn(50)
        obs = np.linspace(-1, 1, 7, dtype=np.float32)[:, None]
        expected = model.predict(obs, deterministic=True)[0]
        path = model.save(tmp_path / "model")
    np.testing.assert_array_equal(load(path).predict(obs, deterministic=True)[0], expected)


def test_what_does_not_fit_is_refused():
    class Endless(Regulator):
        action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)

    class Image(Regulator):
        observation_space = spaces.Box(0, 255, (8, 8), np.uint8)

    class Named(Regulator):
        observation_space = spaces.Dict({"x": spaces.Box(-1, 1, (1,), np.float32)})

    for algorithm, env, message in (
        ("dqn", "Pendulum-v1", "has actions that are vectors; dqn needs discrete ones"),
        ("sac", "CartPole-v1", "has discrete actions; sac needs vectors"),
        ("sac", Endless, "only bounded ones are supported"),
        ("sac", Image, "needs observations that are vectors"),
        ("sac", Named, "observations Dict, which are not supported; gymnasium.wrappers.FlattenObservation"),
    ):
        with pytest.raises(Refusal, match=message):
            make(algorithm, env)
    for fields, message in (
        ({"tau": 1.0}, "needs tau < 1"),
        ({"dropout": 1.0}, "dropout must lie in"),
        ({"utd": 0}, "utd must be at least 1"),
    ):
        with pytest.raises(Refusal, match=message):
            make("sac", "Pendulum-v1", **fields)


def test_a_missing_extra_is_named(monkeypatch):
    def absent(*args, **kwargs):
        raise gymnasium.error.DependencyNotInstalled('MuJoCo is not installed, run `pip install "gymnasium[mujoco]"`')

    monkeypatch.setattr(gymnasium, "make", absent)
    with pytest.raises(Refusal, match=r"Hopper-v5 needs a package that is not installed: pip install 'iterq\[mujoco\]'$"):
        make("sac", "Hopper-v5")


def test_a_simulator_that_breaks_down_stops_the_run_in_one_line():
    class Broken(Regulator):
        def step(self, action):
            obs, *rest = super().step(action)
            self.count = getattr(self, "count", 0) + 1
            return (obs if self.count < 60 else np.full_like(obs, np.nan)), *rest

    fields = {"features": (8, 8), "batch_size": 8, "learning_starts": 20, "buffer_size": 100, "log_every": 10, "eval_every": 0}
    model = make("i-sac", Broken, K=2, checkpoint_every=0, **fields)
    with contextlib.closing(model), pytest.raises(Refusal, match="the loss of seed 0 was not finite at step"):
        model.learn(400)


def test_layers_of_different_width_leave_out_units_independently():
    keys = jax.random.split(jax.random.key(5), 2_000)
    wide, narrow = (
        np.asarray(jax.vmap(lambda key, n=n, i=i: dropped(jnp.ones(n), 0.5, key, i))(keys)) == 0 for i, n in enumerate((64, 16))
    )
    both = np.corrcoef(np.concatenate([wide, narrow], 1).T)
    assert np.abs(both[:64, 64:]).max() < 6 / 2_000**0.5


def test_layers_are_normalised_as_by_flax_and_so_is_their_gradient():
    rng = np.random.default_rng(0)
    x = jnp.array(rng.normal(3.0, 2.0, (32, 48)), jnp.float32)
    weights = jnp.array(rng.normal(size=(32, 48)), jnp.float32)
    ours, flax = LayerNorm(), linen.LayerNorm()
    params = flax.init(jax.random.key(0), x[0])
    params = jax.tree.map(lambda p: p + jnp.array(rng.normal(size=p.shape), jnp.float32), params)
    assert jax.tree.structure(params) == jax.tree.structure(ours.init(jax.random.key(0), x[0]))

    def value_and_gradients(layer):
        def total(params, x):
            return (weights * jnp.sin(jax.vmap(lambda x: layer.apply(params, x))(x))).sum()

        return jax.value_and_grad(total, (0, 1))(params, x)

    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4), *map(value_and_gradients, (ours, flax)))
    assert np.all(np.isfinite(jax.grad(lambda x: LayerNorm().apply(params, x).sum())(jnp.zeros(48))))  # a layer without variance
