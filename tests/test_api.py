"""The library from Python: learn, predict, save, load, with environments, networks and optimisers of one's own."""

import inspect
import json
import pickle
import re
import shutil
import threading
from pathlib import Path

import flax.linen as nn
import gymnasium
import numpy as np
import optax
import pytest
import safetensors.numpy

import iterq
from iterq.errors import Refusal
from tests.helpers import assert_same
from tests.test_cli import leftovers

pytestmark = pytest.mark.medium

SMALL = {"features": (8,), "batch_size": 4, "learning_starts": 20, "buffer_size": 100, "eval_every": 0, "log_every": 100}


class Corridor(gymnasium.Env):
    """Nine cells; the right end pays 1. Known to no registry."""

    observation_space = gymnasium.spaces.Box(0, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.at = 4

    def seen(self):
        return np.array([self.at / 8, self.t / 20, self.luck], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.t, self.luck = 4, 0, self.np_random.random()
        return self.seen(), {}

    def step(self, action):
        self.at, self.t = self.at + 2 * int(action) - 1, self.t + 1
        return self.seen(), float(self.at == 8), self.at in (0, 8), self.t == 20, {}


class Shifted(Corridor):
    """The same with actions 1 and 2."""

    action_space = gymnasium.spaces.Discrete(2, start=1)

    def step(self, action):
        assert action in (1, 2)
        return super().step(action - 1)


def made(algorithm="dqn", env="jax/Chain", **more):
    return iterq.make(algorithm, env, **{**SMALL, **more})


OBS = np.eye(5, dtype=np.float32)  # all observations of jax/Chain


@pytest.fixture(scope="module")
def trained():
    model = made("i-dqn", K=3, seeds=2)
    model.learn(100)
    return model


@pytest.fixture(scope="module")
def file(trained, tmp_path_factory):
    return trained.save(tmp_path_factory.mktemp("models") / "model")


def test_a_saved_model_is_the_same_to_the_bit(trained, file):
    assert file.name == "model.safetensors"
    assert leftovers(file.parent) == [file.name]
    for name in (file, str(file), file.with_suffix("")):
        loaded = iterq.load(name)
        assert loaded.config == trained.config
        for seed in (0, 1):
            assert_same(loaded.learner(seed), trained.learner(seed))
            actions, _ = loaded.predict(OBS, deterministic=True, seed=seed)
            np.testing.assert_array_equal(actions, trained.predict(OBS, deterministic=True, seed=seed)[0])


def test_a_loaded_model_needs_neither_an_environment_nor_a_run_directory(trained, file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(file, "elsewhere.safetensors")
    monkeypatch.setattr("iterq.api.resolve", lambda env: pytest.fail("looked for an environment"))
    loaded = iterq.load("elsewhere.safetensors")
    assert loaded.env is None
    assert loaded.predict(OBS[0], deterministic=True)[0] in (0, 1)
    for use in (lambda: loaded.learn(10), loaded.evaluate):
        with pytest.raises(Refusal, match="loaded without an environment; load it with env='jax/Chain'"):
            use()


def test_a_model_loaded_with_an_environment_learns_on(trained, file):
    loaded = iterq.load(file, env="jax/Chain")
    before = loaded.learner(1)
    loaded.learn(60)
    assert int(loaded.learner(1).updates) > int(before.updates)
    again = iterq.load(file, env="jax/Chain").learn(60)
    assert_same(again.learner(1), loaded.learner(1))


def test_saving_a_loaded_model_gives_the_same_file(file, tmp_path):
    again = iterq.load(file).save(tmp_path / "again")
    assert again.read_bytes() == file.read_bytes()


def test_names_with_dots_are_kept_apart(tmp_path):
    model = made()
    assert [model.save(tmp_path / name).name for name in ("lr-0.1", "lr-0.2")] == ["lr-0.1.safetensors", "lr-0.2.safetensors"]
    assert iterq.load(tmp_path / "lr-0.1").config == model.config


@pytest.mark.parametrize("place", ["file/model", "nowhere/model", "/proc/model", "folder"])
def test_a_model_that_cannot_be_written_is_refused(tmp_path, place):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.safetensors").mkdir()
    with pytest.raises(Refusal, match=r"^cannot write"):
        made().save(tmp_path / place)
    assert leftovers(tmp_path) == ["file", "folder.safetensors"]


def test_learning_in_pieces_is_learning_at_once():
    pieces = made(seeds=2).learn(40).learn(60)
    assert_same(pieces.learner(1), made(seeds=2).learn(100).learner(1))
    assert pieces.summary.step == 100


def test_predict_takes_one_observation_or_many(trained):
    one, state = trained.predict(OBS[0], state="kept", deterministic=True)
    assert state == "kept"
    assert np.shape(one) == ()
    many, _ = trained.predict(OBS, deterministic=True)
    assert many.shape == (5,)
    assert [int(trained.predict(obs, deterministic=True)[0]) for obs in OBS] == many.tolist()
    assert trained.predict(OBS.tolist(), deterministic=True)[0].tolist() == many.tolist()


@pytest.mark.parametrize("obs", [np.zeros(4), np.zeros((2, 4)), np.zeros(()), np.zeros((2, 2, 5)), 3.0])
def test_an_observation_of_another_shape_is_refused(trained, obs):
    with pytest.raises(Refusal, match=re.escape(f"observations of jax/Chain have shape (5,), got {np.shape(obs)}")):
        trained.predict(obs)


def test_a_seed_that_is_not_in_the_model_is_refused(trained):
    with pytest.raises(Refusal, match="there is no agent of seed 7; seeds: 0, 1"):
        trained.predict(OBS, seed=7)


def test_an_action_that_is_not_deterministic_is_random_as_often_as_epsilon_says():
    always = made(epsilon_end=1.0)
    drawn = np.concatenate([always.predict(OBS)[0] for _ in range(200)])
    assert set(drawn.tolist()) == {0, 1}
    assert abs(drawn.mean() - 0.5) < 0.08
    never = made(epsilon_end=0.0)
    greedy = never.predict(OBS, deterministic=True)[0]
    assert all((never.predict(OBS)[0] == greedy).all() for _ in range(20))


def test_predicted_actions_are_the_environments_own(tmp_path):
    env = Shifted()
    model = made(env=env, epsilon_end=1.0).learn(60)
    obs, _ = env.reset(seed=0)
    loaded = iterq.load(model.save(tmp_path / "shifted"))
    for agent in (model, loaded):
        assert {int(agent.predict(obs)[0]) for _ in range(50)} == {1, 2}
        assert int(agent.predict(obs, deterministic=True)[0]) in (1, 2)
    assert len(model.evaluate(2)[0].returns) == 2


def test_a_run_directory_can_be_loaded(tmp_path):
    model = made("i-dqn", K=2, seeds=(4, 6)).learn(100, out=tmp_path / "run")
    model.close()
    model.close()  # a second time is fine
    loaded = iterq.load(tmp_path / "run")
    assert loaded.config.seeds == (4, 6)
    for seed in (4, 6):
        assert_same(loaded.learner(seed), model.learner(seed))
    with pytest.raises(Refusal, match="already holds a run"):
        made().learn(20, out=tmp_path / "run")
    with pytest.raises(Refusal, match="out can be given only when learning begins"):
        made().learn(20).learn(20, out=tmp_path / "other")
    shutil.rmtree(tmp_path / "run" / "checkpoint")
    with pytest.raises(Refusal, match="has no checkpoint yet"):
        iterq.load(tmp_path / "run")
    with pytest.raises(Refusal, match="holds no run"):
        iterq.load(tmp_path)


@pytest.mark.parametrize(
    ("build", "bellman", "K"),
    [
        (iterq.DQN, "dqn", 1),
        (iterq.IDQN, "dqn", 5),
        (iterq.DoubleDQN, "double-dqn", 1),
        (iterq.QRDQN, "qr-dqn", 1),
        (iterq.IQRDQN, "qr-dqn", 5),
        (iterq.C51, "c51", 1),
        (iterq.IC51, "c51", 5),
        (iterq.IQN, "iqn", 1),
        (iterq.IIQN, "iqn", 3),
        (iterq.BootstrappedDQN, "dqn", 6),
    ],
)
def test_constructors_take_an_environment_or_a_policy_and_an_environment(build, bellman, K):
    for model in (build("jax/Chain", gamma=0.5), build("MlpPolicy", "jax/Chain", gamma=0.5), build(env="jax/Chain", gamma=0.5)):
        assert (model.config.bellman, model.config.K, model.config.env, model.config.gamma) == (bellman, K, "jax/Chain", 0.5)
    assert build.__doc__


def test_a_constructor_without_an_environment_is_refused():
    with pytest.raises(Refusal, match="environment"):
        iterq.DQN()


def test_the_words_of_stable_baselines_work():
    model = iterq.DQN("MlpPolicy", "jax/Chain", train_freq=4, target_update_interval=20, seed=3, **SMALL)
    assert (model.config.G, model.config.T, model.config.seeds) == (4, 20, (3,))
    model.learn(total_timesteps=100, callback=None, progress_bar=False)
    assert model.summary.finished


class Torso(nn.Module):
    """Someone's own features."""

    @nn.compact
    def __call__(self, x):
        return nn.tanh(nn.Dense(6, name="mine")(x))


def test_networks_and_optimisers_of_ones_own(tmp_path):
    own = {"network": {"torso": Torso(), "head": nn.Dense(2)}, "optimiser": optax.chain(optax.clip(0.1), optax.sgd(0.05, momentum=0.9))}
    model = made("i-dqn", K=2, **own).learn(100)
    path = model.save(tmp_path / "own")
    assert any("torso.mine" in name for name in safetensors.numpy.load_file(path))
    loaded = iterq.load(path, **own)
    assert_same(loaded.learner(), model.learner())
    fresh = made("i-dqn", K=2, **own)
    assert not np.array_equal(fresh.learner().chain.online["head"]["kernel"], np.asarray(model.learner().chain.online["head"]["kernel"]))
    # Without them the parameters have nowhere to go.
    with pytest.raises(Refusal, match="does not fit this agent"):
        iterq.load(path)


@pytest.mark.parametrize("env", [Corridor(), Corridor, lambda: Corridor()], ids=["object", "class", "function"])
def test_an_environment_of_ones_own_trains_a_fleet_and_is_evaluated(env):
    model = made(env=env, seeds=2, eval_every=60, eval_episodes=2).learn(120)
    assert model.summary.finished
    assert len(model.summary.evaluations) == 2
    played = model.evaluate(3)
    assert set(played) == {0, 1}
    assert all(len(e.returns) == 3 and min(e.lengths) >= 4 for e in played.values())
    by_class = made(env=Corridor, seeds=2, eval_every=60, eval_episodes=2).learn(120)
    assert_same(by_class.learner(1), model.learner(1))


def test_evaluating_first_does_not_use_up_an_environment_object():
    class Fragile(Corridor):
        closed = False

        def close(self):
            self.closed = True

        def step(self, action):
            assert not self.closed
            return super().step(action)

    model = made(env=Fragile())
    model.evaluate(1)
    assert model.learn(40).summary.finished


def test_an_environment_that_cannot_be_copied_is_refused_with_advice():
    class Wired(Corridor):
        def __init__(self):
            super().__init__()
            self.lock = threading.Lock()

    assert made(env=Wired()).learn(60).summary.finished  # one agent needs no copy
    with pytest.raises(Refusal, match=r"Wired cannot be copied .*; pass a function that makes it"):
        made(env=Wired(), seeds=2).learn(60)
    with pytest.raises(Refusal, match=r"Wired cannot be copied .*; pass a function that makes it"):
        made(env=Wired(), eval_every=50).learn(60)
    assert made(env=Wired, seeds=2, eval_every=50, eval_episodes=1).learn(60).summary.finished


def test_a_callback_that_returns_false_stops():
    seen = []

    def enough(step, fleet):
        seen.append(step)
        return step < 60

    model = made(log_every=20).learn(200, callback=enough)
    assert seen == [20, 40, 60]
    assert (model.summary.step, model.summary.finished) == (60, False)
    # Anything but False goes on.
    assert made(log_every=20).learn(60, callback=lambda step, fleet: None).summary.finished


def changed(file, tmp_path, arrays=None, **fields):
    """The file with some of its description, or its arrays, replaced."""
    with safetensors.safe_open(file, "np") as opened:
        about = json.loads(opened.metadata()["iterq"])
    path = tmp_path / "changed.safetensors"
    arrays = safetensors.numpy.load_file(file) if arrays is None else arrays
    path.write_bytes(safetensors.numpy.save(arrays, {"iterq": json.dumps({**about, **fields})}))
    return path


def test_a_file_with_a_frozen_copy_of_the_last_member_can_be_read(trained, file, tmp_path):
    """As windows had it up to version 0.2; nobody learns from it."""
    arrays, longer = safetensors.numpy.load_file(file), 0
    for name in [name for name in arrays if ".chain.frozen.head." in name]:
        longer, arrays[name] = longer + 1, np.concatenate([arrays[name], arrays[name][-1:] + 7])
    assert longer == 4  # kernel and bias of two seeds
    assert_same(iterq.load(changed(file, tmp_path, arrays)).learner(1), trained.learner(1))
    for name in [name for name in arrays if ".chain.frozen.head." in name]:
        arrays[name] = np.concatenate([arrays[name], arrays[name][-1:]])
    with pytest.raises(Refusal, match=r"does not fit this agent: .*chain.frozen.head.bias is \(4, 2\)"):
        iterq.load(changed(file, tmp_path, arrays))


def test_a_file_of_a_newer_format_is_refused(file, tmp_path):
    assert iterq.load(changed(file, tmp_path)).config.K == 3
    with pytest.raises(Refusal, match="has format 99; this version of iterq reads format 1"):
        iterq.load(changed(file, tmp_path, format=99))


@pytest.mark.parametrize("fields", [{"spec": {}}, {"spec": None}, {"spec": {"wings": 2}}, {"config": {"wings": 2}}, {"config": {"K": "x"}}])
def test_a_file_that_describes_nothing_is_refused(file, tmp_path, fields):
    with pytest.raises(Refusal):
        iterq.load(changed(file, tmp_path, **fields))


def test_a_file_of_another_agent_is_refused(file, tmp_path):
    path = changed(file, tmp_path)
    with safetensors.safe_open(path, "np") as opened:
        about = json.loads(opened.metadata()["iterq"])
    about["config"]["features"] = [16]
    with pytest.raises(Refusal, match=r"does not fit this agent: .* is \("):
        iterq.load(changed(file, tmp_path, config=about["config"]))


@pytest.mark.parametrize("length", [0, 4, 100, 3000, -1])
def test_a_truncated_file_is_refused(file, tmp_path, length):
    path = tmp_path / "short.safetensors"
    path.write_bytes(file.read_bytes()[:length])
    with pytest.raises(Refusal, match=r"short.safetensors is no model of iterq, or damaged"):
        iterq.load(path)


def test_files_that_are_not_ours_are_refused(tmp_path):
    class Trap:
        def __reduce__(self):
            return Path.touch, (tmp_path / "sprung",)

    weights = {"w": np.zeros(3, np.float32)}
    (tmp_path / "foreign.safetensors").write_bytes(safetensors.numpy.save(weights))
    (tmp_path / "list.safetensors").write_bytes(safetensors.numpy.save(weights, {"iterq": "[]"}))
    (tmp_path / "word.safetensors").write_bytes(safetensors.numpy.save(weights, {"iterq": "hello"}))
    (tmp_path / "text.safetensors").write_text("dear agent")
    for name in ("model.safetensors", "model.zip", "model.pkl"):
        (tmp_path / name).write_bytes(pickle.dumps(Trap()))
    np.savez(tmp_path / "arrays.npz", a=np.array([Trap()], object), allow_pickle=True)
    for path in sorted(tmp_path.iterdir()):
        with pytest.raises(Refusal, match=f"{path.name} is no model of iterq, or damaged"):
            iterq.load(path)
    with pytest.raises(Refusal, match=r"cannot read .*nothing"):
        iterq.load(tmp_path / "nothing")
    assert not (tmp_path / "sprung").exists()


def test_nothing_is_ever_unpickled():
    package = Path(inspect.getfile(iterq)).parent
    unsafe = re.compile(r"\b(import|from) (pickle|dill|joblib|shelve|marshal)\b|allow_pickle=True|np\.load\((?![^)]*allow_pickle=False\))")
    sources = list(package.rglob("*.py"))
    assert len(sources) > 20
    for path in sources:
        assert not unsafe.search(path.read_text()), path


@pytest.mark.parametrize("name", ["make", "load", "Model", "DQN"])
def test_the_names_are_there_on_demand(name):
    assert callable(getattr(iterq, name))
    with pytest.raises(AttributeError, match="has no attribute 'wings'"):
        iterq.wings  # noqa: B018
