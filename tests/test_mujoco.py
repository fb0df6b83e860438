"""MuJoCo tasks in processes of their own are Gymnasium's own environments, bit for bit."""

import json
import os
import re
import subprocess
import sys

import gymnasium
import numpy as np
import pytest

import iterq
from iterq.envs import host, workers
from iterq.envs.host import host_env
from iterq.envs.playing import Stage
from iterq.envs.stepping import EVALUATION, TRAINING, EnvironmentFailure, HostEnvs, episode_seed
from iterq.envs.workers import Workers
from tests.helpers import pictures_of

pytestmark = pytest.mark.medium

TASKS = ("Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Humanoid-v5", "HumanoidStandup-v5", "Walker2d-v5")


def many_cores(monkeypatch, looking):
    """As on a machine with 16 of them, with an accelerator if workers are to keep looking for orders."""
    monkeypatch.setattr(workers.os, "sched_getaffinity", lambda _: set(range(16)))
    monkeypatch.setattr(workers.jax, "default_backend", lambda: "gpu" if looking else "cpu")


@pytest.mark.parametrize(("task", "looking"), [(task, task == "HalfCheetah-v5") for task in TASKS])
def test_processes_change_nothing(task, looking, monkeypatch):
    """5 000 steps and more in all, with falls, time limits and resets."""
    many_cores(monkeypatch, looking)
    seeds, steps = (3, 8), 2_600
    kind, plain = host_env(task), [gymnasium.make(task, disable_env_checker=True) for _ in (3, 8)]
    envs, rng, episode, over, ended = Workers(kind, seeds, TRAINING), np.random.default_rng(0), [-1, -1], [True, True], 0
    assert envs.looking == looking
    try:
        envs.reset()
        frames = [env.reset(seed=episode_seed(seed, TRAINING, 0))[0] for env, seed in zip(plain, seeds, strict=True)]
        episode, over = [0, 0], [False, False]
        np.testing.assert_array_equal(envs.frame, np.stack(frames).astype(np.float32))
        for n in range(1, steps + 1):
            actions = rng.uniform(-1, 1, (2, kind.spec.actions)).astype(np.float32)
            answer, finished = envs.step(actions, n)
            ended += len(finished)
            for j, env in enumerate(plain):
                if over[j]:
                    episode[j] += 1
                    frame, reward, terminated, truncated = (
                        env.reset(seed=episode_seed(seeds[j], TRAINING, episode[j]))[0],
                        0.0,
                        False,
                        False,
                    )
                else:
                    frame, reward, terminated, truncated, _ = env.step(kind.spec.outside(actions[j]))
                np.testing.assert_array_equal(answer.frame[j], frame.astype(np.float32))
                assert answer.reward[j] == np.float32(reward)
                assert answer.terminated[j] == terminated
                over[j] = terminated or truncated
    finally:
        envs.close()
        for env in plain:
            env.close()
    assert ended > (20 if task in ("Ant-v5", "Hopper-v5", "Humanoid-v5", "Walker2d-v5") else 3)


@pytest.mark.parametrize(("task", "looking"), [("HalfCheetah-v5", False), ("Ant-v5", True), ("Humanoid-v5", False)])
def test_an_episode_is_restored_in_its_middle(task, looking, monkeypatch):
    many_cores(monkeypatch, looking)
    kind, rng = host_env(task), np.random.default_rng(1)
    actions = rng.uniform(-1, 1, (60, 2, kind.spec.actions)).astype(np.float32)
    one, other = (Workers(kind, (0, 1), TRAINING) for _ in range(2))
    try:
        one.reset()
        for n in range(37):
            one.step(actions[n], n + 1)
        for j in range(2):
            other.restore(j, one.journal(j))
        for n in range(37, 60):
            (a, _), (b, _) = one.step(actions[n], n + 1), other.step(actions[n], n + 1)
            np.testing.assert_array_equal(a.frame, b.frame)
            np.testing.assert_array_equal(a.reward, b.reward)
    finally:
        one.close()
        other.close()


def test_which_environments_run_in_processes(monkeypatch):
    for cores, seeds, expected in ((8, (0, 1), Workers), (8, (0,), HostEnvs), (2, (0, 1), HostEnvs)):
        monkeypatch.setattr(host.os, "sched_getaffinity", lambda _, cores=cores: set(range(cores)))
        envs = workers.stepping(host_env("Hopper-v5"), seeds, TRAINING)
        assert type(envs) is expected
        envs.close()
    assert host_env("Pendulum-v1").apart is None


@pytest.mark.parametrize("looking", [False, True])
def test_evaluation_in_processes_that_are_kept_changes_nothing(looking, monkeypatch):
    many_cores(monkeypatch, looking)

    def choose(obs, t):
        return np.sin(np.arange(3) + obs[..., :1] * 40 + t)

    apart = host_env("Hopper-v5")
    here, there = Stage(apart._replace(apart=None), (0, 5), 3), Stage(apart, (0, 5), 3)
    try:
        first, other, second = (list(there.play(1, choose, number)) for number in (0, 6, 0))
        assert there.envs
        assert [worker.process.poll() for worker in there.envs.workers] == [None] * 6  # waiting at a pipe, since they rest most of the time
        assert not there.envs.looking
    finally:
        there.close()
    assert first == second == list(here.play(1, choose))
    assert first != other == list(here.play(1, choose, 6))
    assert here.envs is None
    assert len({length for _, _, length in first}) > 2  # some rest while others play on


def test_workers_look_for_orders_where_cores_are_left_over():
    def emulators(count, cores=16, among=0, look=True):
        return workers.crew(count, among or count, cores, look, brief=False)

    def bodies(count, cores=16, among=0, look=True):
        return workers.crew(count, among or count, cores, look, brief=True)

    for crew in (emulators, bodies):
        assert crew(4) == (4, True)
        assert crew(10) == (10, True)
        assert crew(4, look=False) == (4, False)
        assert crew(2, cores=1) == (1, False)
        assert crew(5, cores=4) == (3, True)
    assert emulators(4, among=15) == (4, True)
    # Where all groups together take all cores, emulators sleep; bodies share those that the fleet's own thread leaves.
    assert emulators(4, among=16) == emulators(4, cores=4) == (4, False)
    assert emulators(10, cores=4) == (4, False)
    assert bodies(4, cores=4) == (2, True)
    assert bodies(10, cores=4) == (3, True)
    assert bodies(10, cores=8, among=20) == (3, True)
    assert bodies(10, cores=2, among=20) == (2, False)  # not a core for each group
    assert workers.workers_for(10, 16) == 10
    assert workers.workers_for(16, 15) == 8  # fifteen would be no faster
    assert workers.workers_for(100, 16) == 15


def test_workers_share_the_cores_of_a_machine(monkeypatch):
    many_cores(monkeypatch, looking=True)

    def made(count, beside=1, purpose=TRAINING):
        monkeypatch.setattr(Workers, "beside", beside)
        envs = Workers(host_env("Hopper-v5"), range(count), purpose)
        envs.close()
        return len(made_by.pop()), envs.looking

    made_by = []
    monkeypatch.setattr(Workers, "_hear", lambda self, pipes: made_by.append(self.workers))
    assert made(4) == (4, True)
    assert made(4, purpose=EVALUATION) == (4, False)
    assert made(4, beside=4) == (2, True)
    assert made(2, beside=16) == (1, False)


def test_a_worker_that_dies_is_noticed_without_a_pipe(monkeypatch):
    many_cores(monkeypatch, looking=True)
    monkeypatch.setattr(workers, "PATIENCE", 0.05)
    envs = Workers(host_env("Hopper-v5"), (0, 1), TRAINING)
    envs.reset()
    envs.workers[1].process.kill()
    with pytest.raises(EnvironmentFailure, match="a process that steps Hopper-v5 has died"):
        envs.step(np.zeros((2, 3), np.float32), 1)
    envs.close()


@pytest.mark.parametrize("where", ["host_env", "worker"])
def test_words_that_models_should_not_use_any_more_are_no_users_business(where, tmp_path):
    """MuJoCo would say so for every environment, and in a file; what else it has to say is said."""
    make = {"host_env": "from iterq.envs.host import host_env as make", "worker": "from iterq.worker import gymnasium_env as make"}[where]
    program = f"""
import mujoco
{make}
make("HalfCheetah-v5")
model = mujoco.MjModel.from_xml_string('<mujoco><worldbody><body><freejoint/><geom size="1"/></body></worldbody></mujoco>')
data = mujoco.MjData(model)
data.qvel[0] = float("nan")
mujoco.mj_step(model, data)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    (said,) = done.stderr.splitlines()
    assert re.match("MuJoCo: Nan, Inf or huge value in QVEL at DOF 0", said)
    assert list(tmp_path.iterdir()) == []


def without_display(words, folder, programs, **settings):
    """A process on a machine that has none."""
    kept = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL")}
    env = {**kept, **programs, "PYTHONPATH": os.getcwd(), **settings}
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300, env=env, check=False)


@pytest.fixture(scope="module")
def egl(tmp_path_factory, programs):
    """Only where MuJoCo can draw without a display, which it is asked itself."""
    program = "from mujoco.egl import GLContext; GLContext(8, 8).make_current()"
    done = without_display([sys.executable, "-c", program], tmp_path_factory.mktemp("egl"), programs, MUJOCO_GL="egl")
    if done.returncode:
        pytest.skip("MuJoCo cannot draw through EGL (Debian: apt-get install libegl1 libgl1-mesa-dri)")


def filmed(folder, programs, **settings):
    """`iterq eval --video` of an agent on Hopper."""
    model = iterq.make("sac", "Hopper-v5", features=(8,), seeds=(3,)).save(folder / "model")
    words = [sys.executable, "-m", "iterq.cli", "eval", str(model), "--episodes", "1", "--video", "--json"]
    return without_display(words, folder, programs, **settings)


@pytest.mark.usefixtures("egl")
def test_an_episode_is_filmed_without_a_display(tmp_path, programs):
    done = filmed(tmp_path, programs)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    pictures = pictures_of(told["video"], 480, 480)
    assert len(pictures) > 5
    assert all(np.ptp(picture) > 100 for picture in pictures)
    assert np.abs(pictures[-1].astype(int) - pictures[0]).mean() > 1  # it falls


LOOKING = """
import sys
import iterq
from iterq.video import _drawing, _picture
env = _drawing(iterq.make("sac", sys.argv[1], features=(8,)))
env.reset(seed=0)
_picture(env, "")  # the view is set up now
at = env.unwrapped.data.qpos.copy()
at[0] += 30  # m ahead
env.unwrapped.set_state(at, env.unwrapped.data.qvel)
picture = _picture(env, "").astype(int)
print((picture[..., 0] > picture[..., 2] + 40).sum())
"""


@pytest.mark.usefixtures("egl")
@pytest.mark.parametrize("task", TASKS)
def test_the_camera_moves_along(task, tmp_path, programs):
    done = without_display([sys.executable, "-c", LOOKING, task], tmp_path, programs)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 300, done.stderr  # pixels of skin, which floor and sky have nothing of


def test_where_nothing_can_be_drawn_that_is_said_in_one_line(tmp_path, programs):
    done = filmed(tmp_path, programs, MUJOCO_GL="egl", __EGL_VENDOR_LIBRARY_FILENAMES=str(tmp_path / "nowhere"))
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"iterq: (Hopper-v5 cannot be drawn|cannot make the environment 'Hopper-v5'): .*\n", done.stderr)
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
