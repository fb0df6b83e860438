"""Every loss against numbers computed by hand, jitted and not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples.munchausen import fixed_point, learn, munchausen
from iterq.bellman import Transition, action_values, double_dqn, dqn, squared

KEY = jax.random.key(0)
TARGET = jnp.array([[1.0, 4.0, 2.0], [0.5, 0.0, -1.0]])  # Q̄ as a table: state, action
ONLINE = jnp.array([[3.0, 1.0, 2.0], [2.0, 0.0, 1.0]])
Qb, Q = (lambda s: TARGET[s]), (lambda s: ONLINE[s])
T = Transition(obs=1, action=2, reward=0.5, discount=0.9, next_obs=0)
END = T._replace(discount=0.0)


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda: dqn.backup(Qb, Q, T, KEY), 0.5 + 0.9 * 4.0),
        (lambda: dqn.backup(Qb, Q, END, KEY), 0.5),
        (lambda: double_dqn.backup(Qb, Q, T, KEY), 0.5 + 0.9 * 1.0),  # argmax of ONLINE[0] is action 0
        (lambda: double_dqn.backup(Qb, Q, END, KEY), 0.5),
        (lambda: squared(Q, jnp.float32(4.0), T, KEY), 9.0),  # (1 - 4)²
        (lambda: dqn.loss(Q, jnp.float32(1.5), T, KEY), 0.25),
        (lambda: action_values(Q, 1, KEY), [2.0, 0.0, 1.0]),
        # τ = 1: π̄(·|0) ∝ (e, e⁴, e²), log-sum-exp = 4.169846; π̄(·|1) ∝ (e^½, 1, e⁻¹), log-sum-exp = 1.104131
        (lambda: munchausen(1.0, 0.9, -10.0).backup(Qb, Q, T, KEY), 0.5 + 0.9 * (-1 - 1.104131) + 0.9 * 4.169846),
        (lambda: munchausen(1.0, 0.9, -1.0).backup(Qb, Q, T, KEY), 0.5 - 0.9 + 0.9 * 4.169846),
        (lambda: munchausen(1.0, 0.0, -1.0).backup(Qb, Q, END, KEY), 0.5),
    ],
)
def test_numbers_computed_by_hand(function, expected, jit):
    result = (jax.jit(function) if jit else function)()
    np.testing.assert_allclose(result, expected, rtol=1e-5)


@pytest.mark.parametrize("K", [1, 5])
def test_a_base_loss_from_outside_the_package_converges_to_its_fixed_point(K):
    np.testing.assert_allclose(learn(munchausen(), K), fixed_point(), atol=0.02)
