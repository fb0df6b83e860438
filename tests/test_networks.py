"""Networks are mappings of flax modules, as a user writes them."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from iterq.networks import MLP, Linear, Network, mlp, network


def test_parts_apply_in_order_and_a_module_alone_is_a_network():
    net = network({"torso": nn.Dense(5), "head": nn.Dense(2)})
    theta = net.init(jax.random.key(0), jnp.ones(3))
    assert list(theta) == ["torso", "head"]
    by_hand = (jnp.ones(3) @ theta["torso"]["kernel"] + theta["torso"]["bias"]) @ theta["head"]["kernel"] + theta["head"]["bias"]
    np.testing.assert_allclose(net.apply(theta, jnp.ones(3)), by_hand, rtol=1e-6)
    assert network(net) is net
    assert isinstance(net, Network)


def test_a_part_that_names_more_inputs_gets_them():
    class Gate(nn.Module):
        @nn.compact
        def __call__(self, x, tau):
            return nn.Dense(4)(x) * tau

    net = network({"torso": nn.Dense(3), "gate": Gate(), "head": nn.Dense(2, use_bias=False)})
    theta = net.init(jax.random.key(0), jnp.ones(3), jnp.float32(1))
    np.testing.assert_allclose(net.apply(theta, jnp.ones(3), 0.0), [0, 0])
    np.testing.assert_allclose(net.apply(theta, jnp.ones(3), 2.0), 2 * net.apply(theta, jnp.ones(3), 1.0), rtol=1e-6)


def test_linear_is_dense_with_the_kernel_on_the_left_and_takes_columns():
    x = jax.random.normal(jax.random.key(1), (3, 7))
    theta = Linear(5).init(jax.random.key(0), x[:, 0])["params"]
    assert theta["kernel"].shape == (5, 3)
    dense = nn.Dense(5).apply({"params": {"kernel": theta["kernel"].T, "bias": theta["bias"]}}, x[:, 0])
    np.testing.assert_allclose(Linear(5).apply({"params": theta}, x[:, 0]), dense, rtol=1e-6)
    columns = Linear(5).apply({"params": theta}, x)
    assert columns.shape == (5, 7)
    np.testing.assert_allclose(columns[:, 0], dense, rtol=1e-5, atol=1e-6)


def test_initial_scale_is_that_of_the_inputs():
    kernel = Linear(2000).init(jax.random.key(0), jnp.zeros(50))["params"]["kernel"]
    assert abs(float(kernel.std()) * 50**0.5 - 1) < 0.02


def test_mlp_parts():
    parts = mlp([8, 6], 2)
    net = network(parts)
    theta = net.init(jax.random.key(0), jnp.zeros(4))
    assert isinstance(parts["torso"], MLP)
    assert theta["torso"]["Linear_1"]["kernel"].shape == (6, 8)
    assert net.apply(theta, jnp.zeros(4)).shape == (2,)


def test_parts_with_state_and_empty_networks_are_refused():
    class Stateful(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.BatchNorm(use_running_average=False)(x)

    with pytest.raises(ValueError, match=r"'norm' keeps state .batch_stats."):
        network({"norm": Stateful()}).init(jax.random.key(0), jnp.ones(3))
    with pytest.raises(ValueError, match="at least one part"):
        network({})
