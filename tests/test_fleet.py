"""Fleets: a seed is the same in every company, both drivers do what a plain loop does, and everything happens when it should."""

import contextlib
import functools
import json
import re
from types import SimpleNamespace
from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import iterq
from iterq import checkpoint, loop
from iterq.agents import ACT, EVALUATE, SAMPLE, STARTS, WORLD, address
from iterq.bellman import Transition, dqn
from iterq.envs.base import PureEnv
from iterq.envs.pure import cart_pole
from iterq.envs.stepping import EVALUATION, TRAINING, episode_seed
from iterq.errors import Refusal
from iterq.fleet import base, group, on_device, on_host, scanned, stepped
from iterq.fleet.mapped import mapped, same_memory
from iterq.pack import packer
from iterq.presets import configure
from iterq.reads import unread

pytestmark = pytest.mark.medium

PURE, HOSTED, LAKE = "jax/CartPole-v1", "CartPole-v1", "FrozenLake-v1"
# The replay wraps, the window shifts and syncs many times, and learning starts at a multiple of G. Most of the time goes into compiling,
# so tests have this in common where they can, down to what they need not care about.
TINY = {
    "seeds": (0,),
    "features": (8,),
    "batch_size": 8,
    "n_step": 3,
    "learning_rate": 1e-2,
    "learning_starts": 40,
    "epsilon_decay": 100,
    "epsilon_end": 0.1,
    "buffer_size": 70,
    "G": 4,
    "D": 8,
    "T": 20,
    "log_every": 1000,
    "eval_every": 0,
    "checkpoint_every": 0,
    "tensorboard": False,
}
FLEET = (3, 0, 7)


@pytest.fixture
def compiled_quickly():
    """For tests that compare no bits between programs: the compiler need not do its best."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def make(algorithm, env, **fields):
    read = {name: value for name, value in TINY.items() if name not in unread(configure(algorithm).bellman)}
    return iterq.make(algorithm, env, **{**read, **fields})


@functools.cache
def states(algorithm, env, steps=200, **fields):
    """{seed: all there is of it after `steps` steps}"""
    with contextlib.closing(make(algorithm, env, **fields)) as model:
        return states_of(model.learn(steps))


def states_of(model):
    fleet = model.session.fleet
    return {seed: fleet.state(s) for s, seed in enumerate(fleet.seeds)}


def differing(a, b):
    """The names of the leaves whose bits are not the same."""
    ours, theirs = (
        {jax.tree_util.keystr(path): (x.dtype, x.shape, x.tobytes()) for path, x in jax.tree_util.tree_leaves_with_path(tree)}
        for tree in (a, b)
    )
    return [name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)]


def metrics(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


# Seeds


@pytest.mark.parametrize("env", [PURE, HOSTED])
@pytest.mark.parametrize(("algorithm", "D"), [("i-dqn", 8), ("i-iqn", 4)])
def test_a_seed_in_a_fleet_equals_the_seed_alone(algorithm, D, env):
    together, alone = (states(algorithm, env, K=3, D=D, seeds=seeds) for seeds in (FLEET, (0,)))
    assert differing(together[0], alone[0]) == []


@pytest.mark.parametrize("env", [PURE, HOSTED])
def test_equal_seeds_are_equal_and_different_ones_differ(env):
    found, again = states("i-dqn", env, K=3, D=8, seeds=FLEET), states("i-dqn", env, K=3, D=8, seeds=FLEET[::-1])
    for seed in FLEET:
        assert differing(found[seed], again[seed]) == []
    for other in FLEET[1:]:
        odd = differing(found[FLEET[0]], found[other])
        for part in ("['learner'].chain.online", "['learner'].chain.anchor", "['learner'].moments", "['replay'].data", "['world']"):
            assert any(name.startswith(part) for name in odd), (part, odd)


@pytest.mark.parametrize("env", [PURE, HOSTED])
def test_learning_in_pieces_equals_learning_at_once(env):
    with contextlib.closing(make("i-dqn", env, K=3, seeds=FLEET)) as model:
        for steps in (1, 36, 80, 83):
            model.learn(steps)
        assert differing(states_of(model), states("i-dqn", env, K=3, D=8, seeds=FLEET)) == []


def test_metrics_do_not_depend_on_where_the_replay_is(tmp_path):
    told = []
    for place in ("host", "device"):
        fields = {"log_every": 7, "log_csae": True, "replay": place, "seeds": FLEET}
        with contextlib.closing(make("i-dqn", HOSTED, K=3, D=8, **fields)) as model:
            model.learn(80, out=tmp_path / place)
        rows = metrics(tmp_path / place)
        told.append([{name: x for name, x in row.items() if not name.startswith("time/")} for row in rows])
    assert told[0] == told[1]
    assert {"iqn/head_std", "iqn/approx_error_sum", "train/loss"} <= told[0][-1].keys()


@pytest.mark.usefixtures("compiled_quickly")
def test_a_replay_on_the_host_equals_one_on_the_device():
    on_host, on_device = (states("i-dqn", HOSTED, K=3, D=8, seeds=FLEET, replay=place) for place in ("host", "device"))
    assert differing(on_host, on_device) == []


# Both drivers against a plain loop


class Row(NamedTuple):
    """One step as it was lived."""

    frame: np.ndarray
    first: bool
    action: int
    reward: float
    terminated: bool


def gymnasium_world(name, seed):
    """(n, action) -> frame, first, reward, terminated; a reset takes a step of its own."""
    env, episode, over = gymnasium.make(name), -1, True

    def step(n, action):
        nonlocal episode, over
        if over:
            episode, over = episode + 1, False
            return env.reset(seed=episode_seed(seed, TRAINING, episode))[0], True, 0.0, False
        frame, reward, terminated, truncated, _ = env.step(action)
        over = terminated or truncated
        return frame, False, reward, terminated

    return step


def pure_world(env, seed):
    """The same for an environment of pure functions."""
    root, reset, answer = jax.random.key_data(jax.random.key(seed)), jax.jit(env.reset), jax.jit(env.step)
    state, length, over = None, 0, True

    def step(n, action):
        nonlocal state, length, over
        key = address(root, WORLD, n)
        if over:
            state, length, over = reset(jax.random.split(key)[1] if n else key), 0, False
            return np.asarray(env.observe(state)), True, 0.0, False
        state, reward, terminated = answer(state, action, jax.random.split(key)[0])
        length += 1
        over = bool(terminated) or length == env.horizon
        return np.asarray(env.observe(state)), False, float(reward), bool(terminated)

    return step


def by_hand(agent, world, seed, steps):
    """The learner after `steps` steps, and the actions: everything that was lived stays in a list, and a batch is picked from it."""
    c, init, noise, act, learn = agent.config, *(jax.jit(f) for f in (agent.init, agent.noise, agent.act, agent.learn))
    learner, head = init(jnp.uint32(seed)), jnp.int32(1)
    rows: list[Row] = []

    def transition(i):
        total, discount, end = np.float32(0), np.float32(1), i
        # A final frame, whose successor starts an episode, is where a return ends.
        while end < i + c.n_step and not rows[end + 1].first and discount:
            total += discount * np.float32(rows[end].reward)
            discount = np.float32(0) if rows[end].terminated else discount * np.float32(c.gamma)
            end += 1
        return Transition(rows[i].frame, np.int32(rows[i].action), total, discount, rows[end].frame)

    frame, first, *_ = world(0, 0)
    for n in range(1, steps + 1):
        drawn = noise(learner.root, n)
        head = drawn.member if first else head
        action = act(learner, head, frame, drawn)
        rows.append(Row(frame, first, int(action), 0.0, False))
        if n > c.learning_starts and n % c.G == 0:
            starts = [i for i in range(max(n - c.buffer_size, 0), n - c.n_step) if not rows[i + 1].first]
            bits = jax.random.bits(address(learner.root, SAMPLE, n), (c.batch_size,))
            picked = [int(x) * len(starts) >> 32 for x in bits]
            batch = jax.tree.map(lambda *x: np.stack(x), *(transition(starts[k]) for k in picked))
            learner, _ = learn(learner, batch, n)
        frame, first, reward, terminated = world(n, int(action))
        rows[-1] = rows[-1]._replace(reward=reward, terminated=terminated)
    return learner, [row.action for row in rows]


@pytest.mark.usefixtures("compiled_quickly")
@pytest.mark.parametrize(
    ("algorithm", "env", "fields"),
    [
        ("dqn", PURE, {}),
        ("dqn", HOSTED, {}),
        ("bootstrapped-dqn", LAKE, {"K": 3, "n_step": 1}),  # one member acts in an episode
    ],
)
def test_a_driver_does_what_a_plain_loop_does(algorithm, env, fields):
    steps, seed = 300, 5
    with contextlib.closing(make(algorithm, env, seeds=(seed,), **fields)) as model:
        state = states_of(model.learn(steps))[seed]
        kept = np.ascontiguousarray(state["replay"].data).view(model.session.fleet.memory.row)[:, 0]["action"]
    learner, actions = by_hand(model.agent, pure_world(cart_pole(), seed) if env == PURE else gymnasium_world(env, seed), seed, steps)
    newest = range(steps - len(kept) + 1, steps - 1)  # the row of step i + 1 lies in slot i mod capacity, and the last one may be open
    assert [int(kept[i % len(kept)]) for i in newest] == [actions[i] for i in newest]
    assert int(state["learner"].updates) == int(learner.updates) == (300 - 40) // 4
    for ours, theirs in zip(jax.tree.leaves(state["learner"]), jax.tree.leaves(learner), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


# Who acts, and how


def every_value(agent, online, obs, key):
    """(K, A) the values of all members."""
    thetas = [agent.window.member(online, k) for k in range(1, agent.config.K + 1)]
    return jnp.stack([agent.bellman.values(agent.window.Q(theta), obs, jax.random.wrap_key_data(key)) for theta in thetas])


@pytest.mark.usefixtures("compiled_quickly")
@pytest.mark.parametrize("rule", ["first", "last", "uniform", "episode", "anchor-too"])
def test_after_the_decay_the_member_that_a_rule_names_acts(rule):
    agent = make("i-dqn", HOSTED, K=3, acting=rule, epsilon_end=0.0, shared=False).agent
    learner, members, different = agent.init(0), set(), 0
    anchor = jax.tree.map(lambda x: -x, learner.chain.anchor)
    learner = learner._replace(chain=learner.chain._replace(anchor=anchor))
    act, read, rng = jax.jit(agent.act), jax.jit(functools.partial(every_value, agent)), np.random.default_rng(0)
    for n, obs in enumerate(rng.normal(size=(40, 4)).astype(np.float32)):
        noise = agent.noise(learner.root, 10_000 + n)
        best = np.asarray(read(learner.chain.online, obs, noise.key)).argmax(1)
        anchors = agent.bellman.values(agent.window.Q(anchor), obs, jax.random.wrap_key_data(noise.key)).argmax()
        different += len(set(best)) > 1
        for head in (1, 2, 3):
            member = {"first": 1, "last": 3, "episode": head}.get(rule, int(noise.member))
            assert act(learner, head, obs, noise) == (best[member - 1] if member else anchors)
            members.add(member)
    assert members == {"first": {1}, "last": {3}, "anchor-too": {0, 1, 2, 3}}.get(rule, {1, 2, 3})
    assert different > 10  # members disagree, or this would show nothing


@pytest.mark.usefixtures("compiled_quickly")
def test_random_actions_decay_linearly_after_learning_starts():
    agent = make("dqn", HOSTED).agent
    learner, act, obs, roots = agent.init(0), jax.jit(agent.act), jnp.ones(4), jnp.arange(8_000, dtype=jnp.uint32).reshape(4_000, 2)
    noise = agent.noise(learner.root, 1)
    greedy = act(learner, 1, obs, noise._replace(explore=0))
    assert act(learner, 1, obs, noise._replace(explore=1, action=1 - greedy)) == 1 - greedy
    draws = jax.jit(jax.vmap(agent.noise, (0, None)))
    for n, epsilon in {1: 1, 40: 1, 41: 0.991, 65: 0.775, 90: 0.55, 139: 0.109, 140: 0.1, 5_000: 0.1}.items():
        # The very number that decides: a root explores at n if what it draws there lies below ε.
        uniform = jax.vmap(lambda root, n=n: jax.random.uniform(jax.random.split(address(root, ACT, n), 4)[0]))(roots)
        np.testing.assert_array_equal(draws(roots, n).explore, uniform < np.float32(epsilon))


# When things happen


@pytest.mark.usefixtures("compiled_quickly")
@pytest.mark.parametrize("env", [PURE, HOSTED])
def test_gradient_steps_lie_at_multiples_of_G_after_learning_starts(env, tmp_path):
    with contextlib.closing(make("dqn", env, log_every=1, seeds=(0, 1))) as model:
        model.learn(60, out=tmp_path / "run")
    for seed in (0, 1):
        told = {row["step"]: row for row in metrics(tmp_path / "run") if row["seed"] == seed}
        assert {n: row["train/n_updates"] for n, row in told.items()} == {n: max(n // 4 - 10, 0) for n in range(1, 61)}
        # A loss is told at the steps that have one.
        assert [n for n, row in told.items() if "train/loss" in row] == [44, 48, 52, 56, 60]
        assert {n: row["rollout/exploration_rate"] for n, row in told.items()} == pytest.approx(
            {n: 1 - 0.9 * max(n - 40, 0) / 100 for n in range(1, 61)}
        )


@pytest.mark.parametrize("env", [PURE, HOSTED])
def test_evaluation_is_on_time_and_changes_nothing(env, tmp_path):
    with contextlib.closing(make("i-dqn", env, K=3, seeds=FLEET, eval_every=70, eval_episodes=2)) as model:
        assert differing(states_of(model.learn(200, out=tmp_path / "run")), states("i-dqn", env, K=3, D=8, seeds=FLEET)) == []
    told = [(row["step"], row["seed"]) for row in metrics(tmp_path / "run") if "eval/mean_reward" in row]
    assert told == [(step, seed) for step in (0, 70, 140) for seed in FLEET]


def glimpse() -> PureEnv:
    """Its episodes are one step long and return where they began."""
    reset = lambda key: jax.random.uniform(key, (1,))  # noqa: E731
    return PureEnv("glimpse", 2, 1, reset, lambda state, action, key: (state, state[0], jnp.bool(True)), lambda state: state)


def test_evaluations_begin_where_they_are_told_to():
    found, roots = {}, [jax.random.key_data(jax.random.key(seed, impl="threefry2x32")) for seed in (0, 7)]

    def starts(purpose, n):
        return [[float(x) for x in jax.vmap(glimpse().reset)(jax.random.split(address(root, purpose, n), 3))[:, 0]] for root in roots]

    for kind in ("varied", "same"):
        with contextlib.closing(make("dqn", glimpse(), seeds=(0, 7), eval_every=30, eval_episodes=3, eval_starts=kind)) as model:
            model.learn(60)
            found[kind] = [(n, [played.returns for played in told]) for n, told in model.session.history]
            assert [played.returns for played in model.evaluate(3).values()] == found[kind][0][1]  # those of step 0
    assert found["varied"] == [(n, starts(STARTS, n)) for n in (0, 30, 60)]
    assert found["same"] == [(n, starts(EVALUATE, 0)) for n in (0, 30, 60)]  # which is what there was before there was a choice
    returns = [x for _, told in found["varied"] for agent in told for x in agent]
    assert len(set(returns)) == len(returns) == 18


def test_evaluations_on_hosts_begin_where_they_are_told_to():
    played, at = {}, []

    class Noting(gymnasium.Wrapper):
        def reset(self, *, seed=None, options=None):
            at.append(seed)
            return super().reset(seed=seed)

    for kind in ("varied", "same"):
        at.clear()
        make_one = lambda: Noting(gymnasium.make(HOSTED))  # noqa: E731
        with contextlib.closing(make("dqn", make_one, eval_every=30, eval_episodes=2, eval_starts=kind)) as model:
            model.learn(60)
        played[kind] = [seed for seed in at if seed not in {episode_seed(0, TRAINING, i) for i in range(60)}]
    assert played["varied"] == [episode_seed(0, EVALUATION, 2 * n + e) for n in (0, 30, 60) for e in range(2)]
    assert played["same"] == [episode_seed(0, EVALUATION, e) for _ in range(3) for e in range(2)]


@pytest.mark.usefixtures("compiled_quickly")
@pytest.mark.parametrize("env", [PURE, HOSTED])
def test_prioritised_replay_is_on_from_end_to_end(env):
    plain, ours = (states("dqn", env, prioritised=on)[0] for on in (False, True))
    assert plain["replay"].tree is None
    assert any(name.startswith(".chain.online") for name in differing(plain["learner"], ours["learner"]))
    nodes = ours["replay"].tree.nodes
    leaves = nodes[len(nodes) // 2 :]
    drawable = leaves[leaves > 0]
    ever, gone = ours["replay"].counts
    assert len(drawable) == ever - gone  # every start of a transition, and nothing else
    assert len(set(drawable.tolist())) > 30
    assert nodes[1] == pytest.approx(leaves.sum(), rel=1e-5)


# What is not finite

# A Bellman whose loss is undefined where the chain pays its large reward.
POISON = dqn._replace(loss=lambda Q, y, t, key: dqn.loss(Q, y, t, key) + jnp.where(t.reward > 0.5, jnp.nan, 0.0))


def failure(tmp_path, name, **fields):
    """(step, seed) of the loss that the message names, and the run that it leaves."""
    out = tmp_path / name
    with contextlib.closing(make("dqn", checkpoint_every=30, **fields)) as model, pytest.raises(Refusal) as raised:
        model.learn(2_000, out=out)
    said = re.search(r"the loss of seed (\d+) was not finite at step (\d+); the last good checkpoint is step-(\d+)$", str(raised.value))
    assert said, raised.value
    step, last = int(said[2]), int(said[3])
    assert (step > 40, step % 4, last % 30, last <= step) == (True, 0, 0, True)
    assert max(path.name for path in (out / "checkpoint").iterdir()) == f"step-{last:012d}"
    good = iterq.load(out)
    for seed in fields["seeds"]:
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(good.learner(seed)))
    return step, int(said[1])


@pytest.mark.usefixtures("compiled_quickly")
def test_a_loss_that_overflows_stops_the_run(tmp_path):
    step, _ = failure(tmp_path, "run", env=HOSTED, learning_rate=1e38, seeds=(4, 2))
    assert step == 48  # the gradient step of step 44 has ruined the parameters


@pytest.mark.usefixtures("compiled_quickly")
def test_the_first_loss_that_is_undefined_is_named(tmp_path):
    fields = {"env": "jax/Chain", "bellman": f"{__name__}:POISON"}
    alone = [failure(tmp_path, f"{seed}", seeds=(seed,), **fields) for seed in (0, 1)]
    assert len(set(alone)) == 2
    assert failure(tmp_path, "both", seeds=(0, 1), **fields) == min(alone)


@pytest.mark.parametrize("count", [0, 1, 7, 8, 30])
def test_rows_move_in_pieces_between_the_host_and_a_lane_of_many_agents(count, monkeypatch):
    """A replay on an accelerator may leave no room for a copy of itself."""
    monkeypatch.setattr(base, "wide", lambda: True)
    monkeypatch.setattr(base, "PIECE", 7 * 5)
    lane = np.random.default_rng(0).integers(0, 255, (3, 30, 5), np.uint8)
    new = np.random.default_rng(1).integers(0, 255, (count, 5), np.uint8)
    np.testing.assert_array_equal(base.rows_of(jnp.array(lane), 1, count), lane[1, :count])
    expected = lane.copy()
    expected[2, :count] = new
    np.testing.assert_array_equal(base.with_rows(jnp.array(lane), 2, new), expected)


LEAVES = st.tuples(st.sampled_from(["float32", "int32", "uint32"]), st.lists(st.integers(0, 4), max_size=3))


@settings(max_examples=50)
@given(st.lists(LEAVES, min_size=1, max_size=6), st.integers(1, 30))
def test_what_is_packed_comes_back_bit_for_bit(leaves, large):
    rng = np.random.default_rng(0)
    tree = [rng.integers(0, 256, (*shape, 4), np.uint8).view(kind).reshape(shape) for kind, shape in leaves]
    small = packer(tree, large)
    assume(any(x.size < large for x in tree))
    packed = small.pack(tree)
    assert [x.shape for x in packed.large] == [x.shape for x in tree if x.size >= large]
    assert packed.words.shape == (sum(x.size for x in tree if x.size < large),)
    for ours, x in zip(small.unpack(packed), tree, strict=True):
        assert (ours.dtype, np.asarray(ours).tobytes()) == (x.dtype, x.tobytes())


@pytest.fixture
def side_by_side(monkeypatch):
    """Agents side by side in one program, as on an accelerator."""
    for module in (base, group, on_device, on_host, stepped, loop):
        monkeypatch.setattr(module, "wide", lambda: True)


@pytest.mark.usefixtures("compiled_quickly", "side_by_side")
def test_layers_have_a_place_of_their_own_on_an_accelerator_if_there_is_an_update_in_every_step():
    places = {}
    for G in (1, 4):
        with contextlib.closing(make("sac", "Pendulum-v1", seeds=2, features=(80, 80), replay="device", G=G)) as model:
            (lane,) = model.learn(0).session.fleet.groups[0].lanes
            places[G] = [x.shape[1:] for x in lane.large]
    assert places[4] == []
    assert sorted(set(places[1])) == [(2, 80, 80), (80, 80)]  # of two critics, and of the actor


@pytest.mark.usefixtures("side_by_side")
def test_agents_that_learn_at_every_step_stay_together_on_an_accelerator():
    assert stepped.groups_for(10, 1, configure("sac", "mujoco", env="Hopper-v5")) == 1
    assert stepped.groups_for(32, 1, configure("dqn", "paper", env="Pong")) == 4
    assert stepped.groups_for(16, 1, configure("dqn", "paper", env="Pong", G=1)) == 2
    assert stepped.groups_for(16, 2, configure("dqn", "paper", env="Pong")) == 1


@pytest.mark.usefixtures("compiled_quickly", "side_by_side")
@pytest.mark.parametrize(("algorithm", "env", "more"), [("i-sac", "Pendulum-v1", {"batch_size": 8}), ("i-dqn", "CartPole-v1", {"K": 2})])
def test_side_by_side_it_does_not_matter_where_the_replay_is_nor_that_a_run_was_stopped(algorithm, env, more, tmp_path):
    fields = {"seeds": 4, "learning_starts": 40, "buffer_size": 60, **more}
    kept = {}
    for place in ("device", "host"):
        with contextlib.closing(make(algorithm, env, replay=place, **fields)) as model:
            kept[place] = states_of(model.learn(90))
    assert differing(kept["device"], kept["host"]) == []
    with contextlib.closing(make(algorithm, env, replay="device", **fields)) as model:
        checkpoint.save(tmp_path, model.learn(47).session.fleet, "", {}, 0.0)
    with contextlib.closing(make(algorithm, env, replay="device", **fields)) as model:
        model.learn(0)
        checkpoint.restore(checkpoint.newest(tmp_path, ""), model.session.fleet)
        assert differing(states_of(model.learn(43)), kept["device"]) == []


@pytest.mark.usefixtures("compiled_quickly", "side_by_side")
@pytest.mark.parametrize(
    ("algorithm", "env", "more"),
    [
        ("i-sac", "Pendulum-v1", {"seeds": 4, "replay": "device", "G": 1}),
        ("i-sac", "Pendulum-v1", {"seeds": 4, "replay": "host", "G": 1}),
        ("i-dqn", "CartPole-v1", {"seeds": 1, "replay": "device", "G": 4}),
    ],
)
def test_a_gradient_step_that_is_called_ahead_of_its_step_is_not_repeated_after_a_stop(algorithm, env, more, tmp_path):
    fields = {"learning_starts": 40, "buffer_size": 60, "batch_size": 8, **more}
    with contextlib.closing(make(algorithm, env, **fields)) as model:
        whole = states_of(model.learn(90))
    with contextlib.closing(make(algorithm, env, **fields)) as model:
        fleet = model.learn(0).session.fleet
        for _ in fleet.advancing(90, lambda: fleet.n >= 47):
            pass
        assert {(group.n, group.learned) for group in fleet.groups} == {(47, 48)}
        checkpoint.save(tmp_path, fleet, "", {}, 0.0)
    with contextlib.closing(make(algorithm, env, **fields)) as model:
        model.learn(0)
        checkpoint.restore(checkpoint.newest(tmp_path, ""), model.session.fleet)
        assert differing(states_of(model.learn(43)), whole) == []


@pytest.mark.usefixtures("compiled_quickly", "side_by_side")
@pytest.mark.parametrize("seeds", [1, 4])
def test_updates_are_called_ahead_of_the_actions_where_no_other_group_waits_for_the_device(seeds):
    fields = {"learning_starts": 40, "buffer_size": 60, "batch_size": 8, "replay": "device", "G": 4}
    with contextlib.closing(make("i-dqn", "CartPole-v1", seeds=seeds, **fields)) as model:
        groups = model.learn(0).session.fleet.groups
        assert [group.eager for group in groups] == ([True] if seeds == 1 else [False, False])


@pytest.mark.usefixtures("compiled_quickly", "side_by_side")
@pytest.mark.parametrize(
    ("algorithm", "env", "G", "seeds"), [("i-sac", "Pendulum-v1", 1, 5), ("i-dqn", "CartPole-v1", 4, 5), ("i-dqn", "CartPole-v1", 4, 1)]
)
def test_what_is_stored_is_what_the_environments_did(algorithm, env, G, seeds):
    """Every row, played again with plain environments: answers and actions cross the memory that both sides see."""
    fields = {"seeds": seeds, "learning_starts": 40, "buffer_size": 300, "batch_size": 8, "replay": "device", "G": G}
    with contextlib.closing(make(algorithm, env, **fields)) as model:
        found, spec = states_of(model.learn(260)), model.spec
        row = model.session.fleet.memory.row
    for seed, state in found.items():
        rows = np.ascontiguousarray(state["replay"].data[:261]).view(row)[:, 0]
        plain, episode, begins, final = gymnasium.make(env), -1, True, False
        for i in range(261):
            if begins:
                episode += 1
                frame, _ = plain.reset(seed=episode_seed(seed, TRAINING, episode))
            assert bool(rows["first"][i]) == begins
            assert rows["frame"][i].tobytes() == np.asarray(frame, spec.dtype).tobytes()
            begins = final
            if i < 260 and not final:
                frame, reward, terminated, truncated, _ = plain.step(spec.outside(rows["action"][i]))
                assert (rows["reward"][i], rows["terminated"][i]) == (np.float32(reward), terminated)
                final = terminated or truncated
            else:
                final = False
        assert episode > 0


@pytest.mark.usefixtures("compiled_quickly", "side_by_side")
def test_actions_are_seen_in_memory_with_the_number_of_their_step():
    fields = {"seeds": 4, "learning_starts": 40, "buffer_size": 60, "batch_size": 8, "replay": "device", "G": 1}
    with contextlib.closing(make("i-sac", "Pendulum-v1", **fields)) as model:
        (group,) = model.learn(47).session.fleet.groups
        assert group.actions().tolist() == np.asarray(group.told)[:, 0].view(np.float32).tolist()
        assert (group.place[:, 0] ^ group.place[:, 1] == 48).all()
        group.place[:], group.chosen = 0, None
        assert not group.acted()
        group.place[0] = [[7], [7 ^ 48]]  # of one agent of four
        assert not group.acted()
        group.place[:] = np.array([7, 7 ^ 47])[:, None]  # of the step before
        assert not group.acted()
        group.place[:] = np.array([7, 7 ^ 48])[:, None]
        assert group.acted()
        assert group.chosen.view(np.int32).tolist() == [[7]] * 4


def test_an_array_lies_in_memory_that_the_host_writes_and_a_program_returns_it_there():
    array, seen = mapped(np.arange(6, dtype=np.int32).reshape(2, 3))
    seen[1, 2] = 40
    array = jax.jit(lambda x: 2 * x, donate_argnums=0)(array)
    jax.block_until_ready(array)
    assert same_memory(array, seen)
    assert seen.tolist() == [[0, 2, 4], [6, 8, 80]]


def test_where_there_is_no_memory_for_both_sides_arrays_are_sent(monkeypatch):
    values = np.arange(6, dtype=np.int32)
    for kinds in ([], ["device"], ["pinned_host"]):  # the last is none that an array could be in here
        there = SimpleNamespace(platform="gpu", addressable_memories=lambda kinds=kinds: [SimpleNamespace(kind=kind) for kind in kinds])
        monkeypatch.setattr(jax, "devices", lambda there=there: [there])
        monkeypatch.setattr(jax.sharding, "SingleDeviceSharding", lambda device, memory_kind: None)
        array, seen = mapped(values)
        assert array is values
        assert seen is None


@pytest.mark.usefixtures("compiled_quickly")
@pytest.mark.parametrize("env", [HOSTED, PURE])
def test_where_events_are_far_apart_episodes_are_logged_and_steps_are_counted_meanwhile(env, tmp_path, monkeypatch):
    found, steps = {}, 700 if env == HOSTED else 3 * scanned.BLOCK
    for moment in (-1.0, 1e9):  # seconds: at every piece, and never
        monkeypatch.setattr(loop, "MOMENT", moment)
        fields = {**TINY, "seeds": (0, 1, 2, 3), "log_every": 10**6, "eval_every": 0, "checkpoint_every": 0}
        with contextlib.closing(make("dqn", env, **fields)) as model:
            session, log, counted = model._start(tmp_path / str(moment)), tmp_path / str(moment) / "episodes.csv", []
            model.session = session
            seen = {len(log.read_text().splitlines()) for _ in session.training(steps, counted.append, None, lambda: False)}
        rows = [line.split(",") for line in log.read_text().splitlines()[1:]]
        assert sum(counted) == 4 * steps
        found[moment] = [row[:-1] for row in rows]
        times = [float(row[-1]) for row in rows]
        if moment < 0:
            assert len(counted) > 1
            assert len(seen) > 1
            assert times == sorted(times)
            assert times[0] < times[-1]
        else:
            assert (len(counted), len(seen), len(set(times))) == (1, 1, 1)
    assert found[-1.0] == found[1e9]
    assert len(found[1e9]) > 40
