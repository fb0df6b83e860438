"""It learns: DQN and i-DQN solve CartPole on every one of five seeds, with the preset of the README and no other setting.

The pure-JAX CartPole has the dynamics of CartPole-v1 (tests/test_pure_envs.py) in a tenth of the time; `iterq reproduce cart-pole` is
the same on CartPole-v1 itself.
"""

import numpy as np
import pytest

from iterq.api import make


@pytest.mark.parametrize("algorithm", ["dqn", "i-dqn"])
def test_cart_pole_is_solved_on_every_seed_within_100k_steps(algorithm):
    model = make(algorithm, "jax/CartPole-v1", seeds=5, eval_every=5_000)
    best = np.zeros(5)

    def solved(step, fleet):
        assert model.session
        for _, played in model.session.history:
            np.maximum(best, [np.mean(e.returns) for e in played], out=best)
        return not (best >= 475).all()  # False: no need to go on

    model.learn(100_000, callback=solved)
    assert best.min() >= 475


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
