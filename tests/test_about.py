"""What a run notes of its environment is all that decides what it does, the same every time, and plain JSON."""

import json

import gymnasium
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iterq.envs import noted, resolve
from iterq.envs.about import plain
from iterq.store import difference
from iterq.versions import versions


def said(env):
    return noted(*resolve(env)).said


def test_a_mujoco_task_is_told_with_the_settings_in_force():
    world = noted(*resolve("Hopper-v5"))
    told = world.said
    assert told["name"] == "Hopper-v5"
    assert told["class"] == "gymnasium.envs.mujoco.hopper_v5:HopperEnv"
    assert told["max_episode_steps"] == 1000
    assert "TimeLimit" in told["wrappers"]
    assert told["observation_space"] == "Box(-inf, inf, (11,), float64)"
    assert told["action_space"] == "Box(-1.0, 1.0, (3,), float32)"
    expected = {
        "xml_file": "hopper.xml",
        "frame_skip": 4,
        "ctrl_cost_weight": 1e-3,
        "healthy_z_range": [0.7, "inf"],
        "reset_noise_scale": 5e-3,
    }
    assert expected.items() <= told["settings"].items()
    assert world.packages == ["mujoco"]
    assert versions(world.packages)["mujoco"] == pytest.importorskip("mujoco").__version__


def test_other_versions_and_other_settings_show():
    with pytest.warns(DeprecationWarning, match="out of date"):
        old = said("Hopper-v4")
    assert difference(said("Hopper-v5"), old) == "name was Hopper-v5 and is Hopper-v4"

    def hopper():
        return gymnasium.make("Hopper-v5", terminate_when_unhealthy=False)

    def plainly():
        return gymnasium.make("Hopper-v5")

    changed = difference({**said(plainly), "name": ""}, {**said(hopper), "name": ""})
    assert changed == "settings.terminate_when_unhealthy was True and is False"


def test_an_atari_game_is_told_with_its_protocol():
    world = noted(*resolve("Breakout"))
    expected = {"game": "breakout", "buttons": ["NOOP", "FIRE", "RIGHT", "LEFT"], "frame_skip": 4, "repeat_action_probability": 0.25}
    assert {**expected, "horizon": 27_000, "size": 84} == world.said["settings"]
    assert world.packages == ["ale-py", "opencv-python-headless"]
    assert set(world.packages) <= set(versions(world.packages))


def test_an_environment_of_pure_functions_is_told():
    world = noted(*resolve("jax/CartPole-v1"))
    assert world.said == {"name": "jax/CartPole-v1", "max_episode_steps": 500, "observations": "float32 (4,)", "actions": 2}
    assert world.packages == []


class Own(gymnasium.Env):
    """With arguments that JSON has no words for."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, gain=np.float32(0.5), shape=np.arange(3), how=len, limits={1: (float("-inf"), None)}):  # noqa: B006, B008
        pass

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}


@pytest.mark.parametrize("env", [Own, Own(), lambda: gymnasium.wrappers.TimeLimit(Own(), 9)])
def test_an_environment_of_ones_own_is_told(env):
    told = said(env)
    assert told["class"] == f"{__name__}:Own"
    assert told["settings"] == {"gain": 0.5, "shape": [0, 1, 2], "how": "builtin_function_or_method", "limits": {"1": ["-inf", None]}}
    assert told["wrappers"] == (["TimeLimit"] if not isinstance(env, Own) and env is not Own else [])
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert difference(told, said(env)) == ""


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner),
)


@given(VALUES, VALUES)
def test_anything_becomes_json_that_is_only_equal_to_itself(x, y):
    x, y = plain(x), plain(y)
    assert json.loads(json.dumps(x, allow_nan=False)) == x
    assert difference(x, x) == ""
    assert bool(difference({"x": x}, {"x": y})) == (x != y)
