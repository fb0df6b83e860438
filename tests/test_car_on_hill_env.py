"""The dynamics against SciPy and against the conservation law that they obey."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import odeint

from iterq.envs import car_on_hill as env


def derivative(y, _, u):
    """Ernst et al. (2005), written out."""
    p, v = y
    if p < 0:
        h1, h2 = 2 * p + 1, 2.0
    else:
        h1, h2 = 1 / (1 + 5 * p**2) ** 1.5, -15 * p / (1 + 5 * p**2) ** 2.5
    return v, u / (1 + h1**2) - 9.81 * h1 / (1 + h1**2) - v**2 * h1 * h2 / (1 + h1**2)


def random_states(n, seed=0):
    rng = np.random.default_rng(seed)
    near_kink = np.stack([rng.uniform(-0.1, 0.1, n // 2), rng.uniform(-1, 1, n // 2)], 1)
    anywhere = np.stack([rng.uniform(-1, 1, n - n // 2), rng.uniform(-3, 3, n - n // 2)], 1)
    return np.concatenate([near_kink, anywhere]), rng.integers(0, 2, n)


def test_the_flow_is_scipys_over_random_states():
    states, actions = random_states(3000)
    exact = np.array(
        [odeint(derivative, s, [0, 0.1], args=(8 * (a - 0.5),), rtol=1e-10, atol=1e-10)[-1] for s, a in zip(states, actions, strict=True)]
    )
    default = np.array([odeint(derivative, s, [0, 0.1], args=(8 * (a - 0.5),))[-1] for s, a in zip(states, actions, strict=True)])
    with jax.enable_x64(True):
        ours = np.asarray(env.flow(jnp.asarray(states), jnp.asarray(actions)))
    assert ours.dtype == np.float64
    assert np.abs(ours - exact).max() < 1e-6
    assert np.abs(ours - default).max() < 1e-6 + np.abs(default - exact).max()
    single = np.asarray(env.flow(jnp.asarray(states, jnp.float32), jnp.asarray(actions)))
    assert single.dtype == np.float32
    assert np.abs(single - exact).max() < 5e-6  # sixteen sub-steps of float32 rounding


def test_energy_minus_work_is_conserved():
    # ½v²(1 + h′²) + g h - u p is constant while u is: multiply the equation of motion by v (1 + h′²).
    states, actions = random_states(2000, seed=1)

    def invariant(state):
        p, v = state[:, 0], state[:, 1]
        slope = jax.vmap(jax.grad(env.hill))(p)
        return v**2 / 2 * (1 + slope**2) + env.GRAVITY * env.hill(p) - env.FORCE * (2 * actions - 1) * p

    with jax.enable_x64(True):
        before = jnp.asarray(states)
        after = env.flow(before, jnp.asarray(actions))
        assert float(jnp.abs(invariant(after) - invariant(before)).max()) < 3e-6


def test_crossings_of_the_kink_happen_in_the_test_states():
    states, actions = random_states(3000)
    after = np.asarray(env.flow(jnp.asarray(states), jnp.asarray(actions)))
    assert ((states[:, 0] < 0) != (after[:, 0] < 0)).sum() > 500


@pytest.mark.parametrize(
    ("state", "action", "reward", "terminated"),
    [
        ((-0.5, 0.0), 1, 0.0, False),
        ((-0.99, -1.5), 0, -1.0, True),  # over the left end
        ((0.98, 2.0), 1, 1.0, True),  # over the right end in time
        ((0.9, 2.95), 1, -1.0, True),  # too fast, even if over the right end
        ((-0.2, -2.95), 0, -1.0, True),  # too fast to the left
    ],
)
def test_rewards_and_ends(state, action, reward, terminated):
    outcome = env.step(jnp.array(state), jnp.array(action))
    assert float(outcome.reward) == reward
    assert bool(outcome.terminated) == terminated


def test_the_bottom_of_the_valley_is_at_minus_half():
    assert float(jax.grad(env.hill)(-0.5)) == 0
    pushed = env.step(jnp.array(env.START), jnp.array(1)).state
    assert pushed[0] > -0.5
    assert pushed[1] > 0
