"""The function space Q_Θ: named parts, applied in order.

A network is a mapping such as `{"torso": MLP([64]), "head": nn.Dense(4)}` of flax.linen modules. The names are what a window
shares by (`shared=("torso",)`); a user's own modules are a network as they stand. The first input flows through the parts;
a part whose `__call__` names more arguments also receives the further inputs, in order.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

Params = dict[str, Any]
Initializer = Callable[..., jax.Array]
# Of kernels (outputs, inputs). Dopamine's JAX agents begin with XAVIER (DQN) or FAN_IN (all that learn distributions).
LECUN = nn.initializers.lecun_normal(in_axis=-1, out_axis=-2)
XAVIER = nn.initializers.xavier_uniform(in_axis=-1, out_axis=-2)
FAN_IN = nn.initializers.variance_scaling(3**-0.5, "fan_in", "uniform", in_axis=-1, out_axis=-2)


class Network(NamedTuple):
    """A parametric function as two pure functions; parameters are a dict of parts."""

    init: Callable[..., Params]  # (key, *inputs) -> θ
    apply: Callable[..., Any]  # (θ, *inputs) -> Q_θ(*inputs)


def network(parts: Mapping[str, nn.Module] | Network) -> Network:
    """The network that applies `parts` in order; a `Network` passes through."""
    if isinstance(parts, Network):
        return parts
    if not parts:
        raise ValueError("a network needs at least one part")
    takes = {name: _further_inputs(part) for name, part in parts.items()}

    def init(key: jax.Array, x: Any, *inputs: Any) -> Params:
        params: Params = {}
        for i, (name, part) in enumerate(parts.items()):
            x, variables = part.init_with_output(jax.random.fold_in(key, i), x, *inputs[: takes[name]])
            state = sorted(set(variables) - {"params"})
            if state:
                raise ValueError(f"part {name!r} keeps state ({', '.join(state)}); a network must be a function of its parameters")
            params[name] = variables.get("params", {})
        return params

    def apply(params: Params, x: Any, *inputs: Any) -> Any:
        for name, part in parts.items():
            x = part.apply({"params": params[name]}, x, *inputs[: takes[name]])
        return x

    return Network(init, apply)


def _further_inputs(part: nn.Module) -> int:
    """How many inputs beyond the first `part` takes."""
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [p for p in inspect.signature(part.__call__).parameters.values() if p.kind in positional and p.default is p.empty]
    return len(required) - 1


class Encode(nn.Module):
    """An observation as one vector (n,): bytes scaled to [0, 1], one of `states` as a one-hot, anything else flattened.

    Without `flat`, images keep their shape (height, width, channels), with one channel where they have only two axes.
    """

    states: int | None = None
    flat: bool = True

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        if self.states is not None:
            x = jax.nn.one_hot(x, self.states)
        scale = 1 / 255 if x.dtype == jnp.uint8 else 1
        x = x.reshape(-1) if self.flat else x if x.ndim == 3 else x[..., None]
        return x.astype(jnp.float32) * scale


class Linear(nn.Module):
    """One affine layer on a single input: (n,) -> (features,).

    `nn.Dense`, except that the kernel is the left factor: mapped over a batch, features then come before samples, which keeps the
    products of a narrow network at the speed of the machine (twice that of the other order on a CPU).
    """

    features: int
    kernel_init: Initializer = LECUN

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        kernel = self.param("kernel", self.kernel_init, (self.features, x.shape[0]))
        bias = self.param("bias", nn.initializers.zeros, (self.features,))
        return jnp.tensordot(kernel, x, 1) + bias.reshape(-1, *(1,) * (x.ndim - 1))


class MLP(nn.Module):
    """Dense layers of the given sizes, each followed by a ReLU: (n,) -> (features[-1],)."""

    features: Sequence[int]
    kernel_init: Initializer = LECUN

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for size in self.features:
            x = nn.relu(Linear(size, kernel_init=self.kernel_init)(x))
        return x


class Convolution(nn.Module):
    """A square convolution of one image: (height, width, channels) -> (height', width', features).

    With `patches`, these times a matrix. Mapped over members or agents, parameters and all, this stays one batch of matrix products,
    where a convolution would become a grouped one, which is slow on GPUs and very slow on CPUs. Without such a map, a convolution
    proper takes half the time on a CPU.
    """

    features: int
    size: int  # of the kernel, a multiple of the stride
    stride: int
    padding: str = "SAME"
    kernel_init: Initializer = XAVIER
    patches: bool = True

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        k, s, channels = self.size, self.stride, x.shape[-1]
        kernel = self.param("kernel", self.kernel_init, (k, k, self.features, channels))
        bias = self.param("bias", nn.initializers.zeros, (self.features,))
        if not self.patches:
            # Kernels (k, k, channels, features) are what the fast program for CPUs takes.
            order = ("NHWC", "HWIO", "NHWC")
            return jax.lax.conv_general_dilated(x[None], kernel.swapaxes(2, 3), (s, s), self.padding, dimension_numbers=order)[0] + bias
        pads = jax.lax.padtype_to_pads(x.shape[:2], (k, k), (s, s), self.padding)
        height, width = ((n + sum(pad) - k) // s + 1 for n, pad in zip(x.shape[:2], pads, strict=True))
        # Blocks of stride × stride become channels; a patch is then b × b neighbouring blocks.
        b, tall, wide = k // s, (height + k // s - 1) * s, (width + k // s - 1) * s
        x = jnp.pad(x, (*pads, (0, 0)))[:tall, :wide].reshape(tall // s, s, wide // s, s, channels)
        x = x.transpose(0, 2, 1, 3, 4).reshape(tall // s, wide // s, s * s * channels)
        patches = jnp.concatenate([x[i : i + height, j : j + width] for i in range(b) for j in range(b)], -1)
        matrix = kernel.reshape(b, s, b, s, self.features, channels).transpose(4, 0, 2, 1, 3, 5).reshape(self.features, -1)
        return jnp.tensordot(patches, matrix, ((2,), (1,))) + bias


class Nature(nn.Module):
    """The convolutions of Mnih et al. (2015) on frames (84, 84, stack): 7 744 features with SAME padding, 3 136 with VALID."""

    padding: str = "SAME"
    kernel_init: Initializer = XAVIER
    patches: bool = True  # see `Convolution`

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for features, size, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
            x = nn.relu(Convolution(features, size, stride, self.padding, self.kernel_init, self.patches)(x))
        return x.reshape(-1)


class Distribution(nn.Module):
    """A linear layer with `atoms` outputs for every action: (n,) -> (actions, atoms)."""

    actions: int
    atoms: int
    kernel_init: Initializer = LECUN

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return Linear(self.actions * self.atoms, kernel_init=self.kernel_init)(x).reshape(self.actions, self.atoms)


class QuantileEmbedding(nn.Module):
    """Features x (n,) modulated by each of the levels tau (N,): (n, N), features first, as a `Linear` takes them."""

    cosines: int = 64
    kernel_init: Initializer = LECUN

    @nn.compact
    def __call__(self, x: jax.Array, tau: jax.Array) -> jax.Array:
        # φ(τ) = relu(W cos(πiτ) + b),  i = 1 … cosines, as the authors of i-QN count; i = 0 in Dabney et al. is a second bias.
        i = jnp.arange(1, self.cosines + 1)
        phi = nn.relu(Linear(x.shape[0], kernel_init=self.kernel_init)(jnp.cos(jnp.pi * i[:, None] * tau)))
        # x ⊙ φ(τ)
        return x[:, None] * phi


def mlp(features: Sequence[int], outputs: int, kernel_init: Initializer = LECUN) -> dict[str, nn.Module]:
    """Hidden layers as the part `torso`, the linear output layer as the part `head`."""
    return {"torso": MLP(tuple(features), kernel_init), "head": Linear(outputs, kernel_init=kernel_init)}


def distributional_mlp(features: Sequence[int], actions: int, atoms: int, kernel_init: Initializer = LECUN) -> dict[str, nn.Module]:
    """`mlp` with a distribution per action, (actions, atoms): the logits of C51 or the quantiles of QR-DQN."""
    return {"torso": MLP(tuple(features), kernel_init), "head": Distribution(actions, atoms, kernel_init)}


def implicit_mlp(features: Sequence[int], actions: int, cosines: int = 64, kernel_init: Initializer = LECUN) -> dict[str, nn.Module]:
    """`mlp` of an observation and N levels, (actions, N): the quantiles of IQN, with the levels entering in the part `embed`."""
    parts = mlp(features, actions, kernel_init)
    return {"torso": parts["torso"], "embed": QuantileEmbedding(cosines, kernel_init), "head": parts["head"]}


def nature(features: Sequence[int], output: nn.Module, implicit: bool = False, torso: Nature | None = None) -> dict[str, nn.Module]:
    """Convolutions as the part `torso`; hidden layers and `output` together as the part `head`, which members of a chain do not share.

    implicit: the levels of IQN enter in the part `embed`.
    """
    torso = torso or Nature()
    embed = {"embed": QuantileEmbedding(kernel_init=torso.kernel_init)} if implicit else {}
    return {"torso": torso, **embed, "head": nn.Sequential([MLP(tuple(features), torso.kernel_init), output])}
