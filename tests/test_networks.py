"""Networks are mappings of flax modules, as a user writes them."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from iterq.networks import MLP, Distribution, Linear, Nature, Network, QuantileEmbedding, distributional_mlp, implicit_mlp, mlp, network


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


def test_a_distribution_is_one_row_of_outputs_per_action():
    x = jnp.array([1.0, -2.0])
    kernel = jnp.arange(12.0).reshape(6, 2)  # rows (2i, 2i + 1): kernel x = 2i - 2(2i + 1) = -2i - 2
    theta = {"Linear_0": {"kernel": kernel, "bias": jnp.full(6, 10.0)}}
    np.testing.assert_allclose(Distribution(2, 3).apply({"params": theta}, x), [[8, 6, 4], [2, 0, -2]])
    shapes = jax.tree.map(jnp.shape, Distribution(2, 3).init(jax.random.key(0), x)["params"])
    assert shapes == jax.tree.map(jnp.shape, theta)


def test_levels_scale_the_features_through_their_cosines():
    # cos(πiτ), i = 1, 2, 3:  τ = 0: (1, 1, 1)   τ = ½: (0, -1, 0)   τ = 1: (-1, 1, -1)
    x, tau = jnp.array([2.0, -1.0]), jnp.array([0.0, 0.5, 1.0])
    theta = {"Linear_0": {"kernel": jnp.array([[1.0, 2.0, 3.0], [0.0, 0.0, -1.0]]), "bias": jnp.array([0.5, 0.0])}}
    # φ = relu of (6.5, -1.5, -1.5) and of (-1, 0, 1)
    expected = [[2 * 6.5, 0, 0], [0, 0, -1]]
    np.testing.assert_allclose(QuantileEmbedding(3).apply({"params": theta}, x, tau), expected, atol=1e-6)
    shapes = jax.tree.map(jnp.shape, QuantileEmbedding(3).init(jax.random.key(0), x, tau)["params"])
    assert shapes == jax.tree.map(jnp.shape, theta)


def test_distributional_parts_put_actions_first():
    net = network(distributional_mlp([8, 6], 2, 5))
    theta = net.init(jax.random.key(0), jnp.zeros(4))
    assert list(theta) == ["torso", "head"]
    assert net.apply(theta, jnp.zeros(4)).shape == (2, 5)


def test_an_implicit_network_treats_every_level_alone():
    net = network(implicit_mlp([8, 6], 2, cosines=7))
    obs, tau = jax.random.normal(jax.random.key(1), (4,)), jnp.array([0.1, 0.6, 0.9])
    theta = net.init(jax.random.key(0), obs, tau)
    assert list(theta) == ["torso", "embed", "head"]
    assert theta["embed"]["Linear_0"]["kernel"].shape == (6, 7)
    together = net.apply(theta, obs, tau)
    assert together.shape == (2, 3)
    one_by_one = jnp.concatenate([net.apply(theta, obs, tau[i : i + 1]) for i in range(3)], axis=1)
    np.testing.assert_allclose(together, one_by_one, rtol=1e-5, atol=1e-6)
    assert jnp.abs(together[:, 0] - together[:, 1]).min() > 1e-3


def test_parts_with_state_and_empty_networks_are_refused():
    class Stateful(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.BatchNorm(use_running_average=False)(x)

    with pytest.raises(ValueError, match=r"'norm' keeps state .batch_stats."):
        network({"norm": Stateful()}).init(jax.random.key(0), jnp.ones(3))
    with pytest.raises(ValueError, match="at least one part"):
        network({})


@pytest.mark.parametrize("patches", [False, True])
@pytest.mark.parametrize(("padding", "features"), [("SAME", 7744), ("VALID", 3136)])
def test_the_nature_torso_equals_flax_convolutions(padding, features, patches):
    class Reference(nn.Module):
        @nn.compact
        def __call__(self, x):
            for channels, size, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
                x = nn.relu(nn.Conv(channels, (size, size), (stride, stride), padding)(x))
            return x.reshape(-1)

    torso, plain, x = Nature(padding, patches=patches), Reference(), jax.random.uniform(jax.random.key(0), (84, 84, 4))
    params = torso.init(jax.random.key(1), x)["params"]
    theirs = {
        f"Conv_{i}": {"kernel": params[f"Convolution_{i}"]["kernel"].transpose(0, 1, 3, 2), "bias": jnp.zeros(n)}
        for i, n in enumerate((32, 64, 64))
    }
    ours, expected = torso.apply({"params": params}, x), plain.apply({"params": theirs}, x)
    assert ours.shape == (features,)
    np.testing.assert_allclose(ours, expected, atol=1e-5)
    # Xavier: uniform within √(6 / (fan in + fan out)), the fans those of a convolution.
    for i, (channels, n, size) in enumerate(((4, 32, 8), (32, 64, 4), (64, 64, 3))):
        bound = (6 / (size * size * (channels + n))) ** 0.5
        largest = np.abs(params[f"Convolution_{i}"]["kernel"]).max()
        assert 0.98 * bound < largest <= bound
