"""Fleets: a seed is the same in every company, both drivers do what a plain loop does, and everything happens when it should."""

import contextlib
import functools
import json
import re
from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import iterq
from iterq.agents import SAMPLE, WORLD, address
from iterq.bellman import Transition, dqn
from iterq.envs.host import TRAINING, episode_seed
from iterq.envs.pure import cart_pole
from iterq.errors import Refusal

PURE, HOSTED, LAKE = "jax/CartPole-v1", "CartPole-v1", "FrozenLake-v1"
# The replay wraps, and the window shifts and syncs many times.
TINY = {
    "seeds": (0,),
    "features": (8,),
    "batch_size": 8,
    "quantiles": 4,
    "learning_rate": 1e-2,
    "learning_starts": 40,
    "epsilon_decay": 100,
    "buffer_size": 70,
    "G": 2,
    "D": 8,
    "T": 20,
    "log_every": 50,
    "eval_every": 0,
    "checkpoint_every": 0,
    "tensorboard": False,
}


def make(algorithm, env, **fields):
    return iterq.make(algorithm, env, **{**TINY, **fields})


@functools.cache
def states(algorithm, env, steps=200, **fields):
    """{seed: all there is of it after `steps` steps}"""
    with contextlib.closing(make(algorithm, env, **fields)) as model:
        fleet = model.learn(steps).session.fleet
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


def rows_of(model):
    """The replay of the first seed as records, in the order of its rows if it has not wrapped."""
    fleet = model.session.fleet
    return np.ascontiguousarray(fleet.state(0)["replay"].data).view(fleet.memory.row)[: fleet.n, 0]


# Seeds


@pytest.mark.parametrize("env", [PURE, HOSTED])
@pytest.mark.parametrize(("algorithm", "K"), [("i-dqn", 3), ("i-iqn", 3)])
def test_a_seed_in_a_fleet_equals_the_seed_alone(algorithm, K, env):
    together = states(algorithm, env, K=K, seeds=(3, 0, 7))
    for seed in (0, 7):
        assert differing(together[seed], states(algorithm, env, K=K, seeds=(seed,))[seed]) == []


@pytest.mark.parametrize("env", [PURE, HOSTED])
def test_equal_seeds_are_equal_and_different_ones_differ(env):
    found = states("i-dqn", env, K=3, seeds=(3, 0, 7))
    with contextlib.closing(make("i-dqn", env, K=3, seeds=(3, 0, 7))) as model:
        again = model.learn(200).session.fleet
        assert [differing(found[seed], again.state(s)) for s, seed in enumerate((3, 0, 7))] == [[], [], []]
    for other in (0, 7):
        odd = differing(found[3], found[other])
        for part in ("['learner'].chain.online", "['learner'].chain.anchor", "['learner'].moments", "['replay'].data", "['world']"):
            assert any(name.startswith(part) for name in odd), (part, odd)


@pytest.mark.parametrize("env", [PURE, HOSTED])
def test_learning_in_pieces_equals_learning_at_once(env):
    with contextlib.closing(make("i-dqn", env, K=3, seeds=(3, 0, 7))) as model:
        for steps in (1, 36, 80, 83):
            model.learn(steps)
        fleet = model.session.fleet
        assert fleet.n == 200
        # Losses since the last line of metrics are counted from line to line, and those lie at multiples of their period.
        assert differing({seed: fleet.state(s) for s, seed in enumerate(fleet.seeds)}, states("i-dqn", env, K=3, seeds=(3, 0, 7))) == []


@pytest.mark.parametrize("fields", [{}, {"n_step": 3, "frame_stack": 2}])
def test_a_replay_on_the_host_equals_one_on_the_device(fields):
    for seed in (0, 1, 2):
        host, device = (states("i-dqn", HOSTED, K=3, seeds=(0, 1, 2), replay=place, **fields)[seed] for place in ("host", "device"))
        assert differing(host, device) == []


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
        head, action = act(learner.chain.online, head, frame, first, noise(learner.root, n), n)
        rows.append(Row(frame, first, int(action), 0.0, False))
        if n > c.learning_starts and n % c.G == 0:
            starts = [i for i in range(max(n - c.buffer_size, 0), n - c.n_step) if not rows[i + 1].first]
            picked = jax.random.randint(address(learner.root, SAMPLE, n), (c.batch_size,), 0, len(starts))
            batch = jax.tree.map(lambda *x: np.stack(x), *(transition(starts[k]) for k in picked))
            learner, _ = learn(learner, batch, n)
        frame, first, reward, terminated = world(n, int(action))
        rows[-1] = rows[-1]._replace(reward=reward, terminated=terminated)
    return learner, [row.action for row in rows]


@pytest.mark.parametrize(
    ("env", "fields"), [(PURE, {"n_step": 3}), (HOSTED, {"n_step": 3}), (HOSTED, {}), (LAKE, {}), (HOSTED, {"algorithm": "i-dqn", "K": 3})]
)
def test_a_driver_does_what_a_plain_loop_does(env, fields):
    steps = 300
    # No line of metrics: it would start the sum of losses anew.
    fields = {"algorithm": "dqn", "log_every": 1000, "seeds": (5,), **fields}
    with contextlib.closing(make(env=env, **fields)) as model:
        fleet = model.learn(steps).session.fleet
        state = fleet.state(0)
        world = pure_world(cart_pole(), 5) if env == PURE else gymnasium_world(env, 5)
        learner, actions = by_hand(model.agent, world, 5, steps)
    kept = np.ascontiguousarray(state["replay"].data).view(fleet.memory.row)[:, 0]["action"]
    newest = range(steps - len(kept) + 1, steps)  # the row of step i + 1 lies in slot i mod capacity, and the last one is still open
    assert [int(kept[i % len(kept)]) for i in newest] == [actions[i] for i in newest]
    assert int(state["learner"].updates) == int(learner.updates) == (300 - 40) // 2
    for ours, theirs in zip(jax.tree.leaves(state["learner"]), jax.tree.leaves(learner), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


# Who acts, and how


def every_value(agent, online, obs, key):
    """(K, A) the values of all members."""
    thetas = [agent.window.member(online, k) for k in range(1, agent.config.K + 1)]
    return np.stack([agent.bellman.values(agent.window.Q(theta), obs, jax.random.wrap_key_data(key)) for theta in thetas])


@pytest.mark.parametrize("rule", ["first", "last", "uniform", "episode"])
@pytest.mark.parametrize("env", [PURE, HOSTED])
def test_after_the_decay_the_member_that_a_rule_names_acts(rule, env):
    # Nothing is learned, so that the members stay what they are.
    fields = {"acting": rule, "epsilon_end": 0.0, "epsilon_decay": 0, "learning_starts": 10, "buffer_size": 200, "G": 1000, "T": 1000}
    with contextlib.closing(make("i-dqn", env, K=3, shared=False, **fields)) as model:
        rows, agent, learner = rows_of(model.learn(150)), model.agent, model.learner()
    drawn = jax.vmap(agent.noise, (None, 0))(learner.root, jnp.arange(1, 151))
    best = np.array([every_value(agent, learner.chain.online, row["frame"], drawn.key[i]).argmax(1) for i, row in enumerate(rows)])
    assert (best != best[:, :1]).any()  # members disagree, or this would show nothing
    member, head = [], None
    for i, row in enumerate(rows):
        head = int(drawn.member[i]) if row["first"] else head
        member.append({"first": 1, "last": 3, "uniform": int(drawn.member[i]), "episode": head}[rule])
    lived = [i for i in range(11, 149) if not rows[i + 1]["first"]]  # the action of a final frame means nothing
    assert [rows[i]["action"] for i in lived] == [best[i, member[i] - 1] for i in lived]
    assert {member[i] for i in lived} == {"first": {1}, "last": {3}}.get(rule, {1, 2, 3})


@pytest.mark.parametrize("rule", ["uniform", "episode"])
def test_a_member_acts_for_a_step_or_for_an_episode(rule):
    agent = make("i-dqn", HOSTED, K=3, acting=rule, epsilon_end=0.0, shared=False).agent
    learner, late = agent.init(0), 10_000
    act, rng = jax.jit(agent.act), np.random.default_rng(0)
    for n, obs in enumerate(rng.normal(size=(30, 4)).astype(np.float32)):
        noise = agent.noise(learner.root, n)
        best = every_value(agent, learner.chain.online, obs, noise.key).argmax(1)
        for head in (1, 2, 3):
            for first in (False, True):
                kept, action = act(learner.chain.online, head, obs, first, noise, late)
                assert int(kept) == (int(noise.member) if first else head)
                assert action == best[(int(kept) if rule == "episode" else int(noise.member)) - 1]


def test_random_actions_decay_linearly_after_learning_starts(tmp_path):
    fields = {"learning_starts": 100, "epsilon_decay": 200, "epsilon_end": 0.1}
    agent = make("dqn", HOSTED, **fields).agent
    learner, act, obs = agent.init(0), jax.jit(agent.act), jnp.ones(4)
    noise = agent.noise(learner.root, 1)
    _, greedy = act(learner.chain.online, 1, obs, False, noise._replace(uniform=jnp.float32(1)), 10_000)

    def explores(uniform, n):
        other = noise._replace(uniform=jnp.float32(uniform), action=1 - greedy)
        return bool(act(learner.chain.online, 1, obs, False, other, n)[1] != greedy)

    expected = {0: 1, 1: 1, 100: 1, 101: 1 - 0.9 / 200, 150: 1 - 0.9 / 4, 200: 0.55, 299: 0.1 + 0.9 / 200, 300: 0.1, 5_000: 0.1}
    for n, epsilon in expected.items():
        assert explores(epsilon - 1e-4, n)
        assert explores(epsilon + 1e-4, n) is (epsilon == 1)
    # What is reported is what is done.
    with contextlib.closing(make("dqn", PURE, log_every=50, **fields)) as model:
        model.learn(350, out=tmp_path / "run")
    told = {row["step"]: row["rollout/exploration_rate"] for row in metrics(tmp_path / "run")}
    assert told == pytest.approx({50: 1, 100: 1, 150: 0.775, 200: 0.55, 250: 0.325, 300: 0.1, 350: 0.1})


# When things happen


@pytest.mark.parametrize("env", [PURE, HOSTED])
@pytest.mark.parametrize(("starts", "G"), [(10, 1), (10, 4), (12, 4)])
def test_gradient_steps_lie_at_multiples_of_G_after_learning_starts(env, starts, G, tmp_path):
    with contextlib.closing(make("dqn", env, learning_starts=starts, G=G, log_every=1, seeds=(0, 1))) as model:
        model.learn(30, out=tmp_path / "run")
    expected = {n: sum(1 for m in range(starts + 1, n + 1) if m % G == 0) for n in range(1, 31)}
    for seed in (0, 1):
        assert {row["step"]: row["train/n_updates"] for row in metrics(tmp_path / "run") if row["seed"] == seed} == expected


@pytest.mark.parametrize("env", [PURE, HOSTED])
def test_evaluation_is_on_time_and_changes_nothing(env, tmp_path):
    fields = {"seeds": (3, 0, 7), "K": 3}
    with contextlib.closing(make("i-dqn", env, eval_every=70, eval_episodes=2, **fields)) as model:
        fleet = model.learn(200, out=tmp_path / "run").session.fleet
        found = {seed: fleet.state(s) for s, seed in enumerate(fleet.seeds)}
    assert differing(found, states("i-dqn", env, **fields)) == []
    told = [(row["step"], row["seed"]) for row in metrics(tmp_path / "run") if "eval/mean_reward" in row]
    assert told == [(step, seed) for step in (0, 70, 140) for seed in (3, 0, 7)]


@pytest.mark.parametrize("env", [PURE, HOSTED])
def test_prioritised_replay_is_on_from_end_to_end(env):
    plain, ours = (states("dqn", env, prioritised=on)[0] for on in (False, True))
    assert plain["replay"].tree is None
    assert any(name.startswith("['learner'].chain.online") for name in differing(plain["learner"], ours["learner"]))
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
    with contextlib.closing(make("dqn", log_every=10, checkpoint_every=30, **fields)) as model, pytest.raises(Refusal) as raised:
        model.learn(2_000, out=out)
    said = re.search(r"the loss of seed (\d+) was not finite at step (\d+); the last good checkpoint is step-(\d+)$", str(raised.value))
    assert said, raised.value
    step, last = int(said[2]), int(said[3])
    assert (step > 40, step % 2, last % 30, last <= step) == (True, 0, 0, True)
    assert max(path.name for path in (out / "checkpoint").iterdir()) == f"step-{last:012d}"
    good = iterq.load(out)
    for seed in fields["seeds"]:
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(good.learner(seed)))
    return step, int(said[1])


@pytest.mark.parametrize("env", [PURE, HOSTED])
def test_a_loss_that_overflows_stops_the_run(env, tmp_path):
    step, _ = failure(tmp_path, "run", env=env, learning_rate=1e38, seeds=(4, 2))
    assert step == 44  # the gradient step of step 42 ruins the parameters


def test_the_first_loss_that_is_undefined_is_named(tmp_path):
    fields = {"env": "jax/Chain", "bellman": f"{__name__}:POISON"}
    alone = [failure(tmp_path, f"{seed}", seeds=(seed,), **fields) for seed in (0, 1)]
    assert len(set(alone)) == 2
    assert failure(tmp_path, "both", seeds=(0, 1), **fields) == min(alone)
