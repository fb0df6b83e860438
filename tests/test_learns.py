"""It learns: DQN and i-DQN on CartPole, five seeds each, with the preset of the README and no other setting.

The pure-JAX CartPole has the dynamics of CartPole-v1 (tests/test_pure_envs.py) in a tenth of the time; `iterq reproduce cart-pole` is
the same on CartPole-v1 itself.
"""

import numpy as np
import pytest

from iterq.api import make
from iterq.report.verdicts import reaches

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("algorithm", ["dqn", "i-dqn"])
def test_cart_pole_is_learned_within_100k_steps(algorithm):
    model = make(algorithm, "jax/CartPole-v1", seeds=5, eval_every=10_000)
    model.learn(100_000)
    assert model.session
    returns = np.array([[np.mean(e.returns) for e in played] for _, played in model.session.history]).T  # (seeds, evaluations)
    assert returns[:, 0].max() < 100
    # No best of many: what all evaluations of the last 30,000 steps say, each on episodes of its own.
    found = reaches([returns[:, -3:].mean(1)], 300)
    assert found.better, found


@pytest.mark.parametrize("algorithm", ["qr-dqn", "c51", "iqn", "i-iqn", "bootstrapped-dqn", "i-double-dqn"])
def test_every_base_algorithm_learns_to_catch(algorithm):
    small = {"features": (32,), "batch_size": 32, "epsilon_decay": 2_000, "eval_every": 2_000}
    of_one = {"c51": {"atoms": 21, "v_min": -1, "v_max": 1}, **{name: {"quantiles": 16} for name in ("qr-dqn", "iqn", "i-iqn")}}
    model = make(algorithm, "jax/Catch", seeds=2, **small, **of_one.get(algorithm, {}))
    means = []  # over 20 episodes; a return is -1 or 1

    def not_yet(step, fleet):
        assert model.session
        means[:] = [np.mean([e.returns for e in played]) for _, played in model.session.history]
        return max(means) < 0.9  # False: no need to go on

    model.learn(24_000, callback=not_yet)
    assert means[0] < 0.5
    assert max(means) >= 0.9
