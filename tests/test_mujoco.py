"""MuJoCo tasks in native threads are Gymnasium's own environments, bit for bit."""

import gymnasium
import numpy as np
import pytest

from iterq.envs import mujoco
from iterq.envs.host import TRAINING, HostEnvs, episode_seed, host_env
from iterq.envs.mujoco import Bodies

TASKS = ("Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Humanoid-v5", "HumanoidStandup-v5", "Walker2d-v5")


@pytest.mark.parametrize("task", TASKS)
def test_threads_change_nothing(task):
    """5 000 steps and more in all, with falls, time limits and resets."""
    seeds, steps = (3, 8), 2_600
    kind, plain = host_env(task), [gymnasium.make(task, disable_env_checker=True) for _ in (3, 8)]
    envs, rng, episode, over, ended = Bodies(kind, seeds, TRAINING), np.random.default_rng(0), [-1, -1], [True, True], 0
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


@pytest.mark.parametrize("task", ["HalfCheetah-v5", "Ant-v5", "Humanoid-v5"])
def test_an_episode_is_restored_in_its_middle(task):
    kind, rng = host_env(task), np.random.default_rng(1)
    actions = rng.uniform(-1, 1, (60, 2, kind.spec.actions)).astype(np.float32)
    one, other = (Bodies(kind, (0, 1), TRAINING) for _ in range(2))
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


def test_which_environments_run_in_threads(monkeypatch):
    kind = host_env("Hopper-v5")
    for cores, seeds, expected in ((8, (0, 1), Bodies), (8, (0,), HostEnvs), (2, (0, 1), HostEnvs)):
        monkeypatch.setattr(mujoco.os, "sched_getaffinity", lambda _, cores=cores: set(range(cores)))
        envs = kind.many(kind, seeds, TRAINING)
        assert type(envs) is expected
        envs.close()
    assert host_env("Pendulum-v1").many is None
