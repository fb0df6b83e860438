"""i-FQI on the data set: one program per K, scanned over gradient steps and mapped over seeds.

Proposition 4.1 is evaluated on the whole data set every 30th gradient step, as in the authors' code: between the parameters
before and after that step, which with D = 1 is between two syncs.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from iterq.bellman import Transition, dqn
from iterq.chain import Chain, gradient_step, window
from iterq.diagnostics import Proposition
from iterq.envs import car_on_hill as env
from iterq.networks import Network, Params
from iterq.reproduce.car_on_hill import Config
from iterq.reproduce.car_on_hill.data import Rows
from iterq.reproduce.car_on_hill.on_rows import Block, cut, proposition_on_rows

CHECK_EVERY = 30  # gradient steps between two evaluations of Proposition 4.1
CACHED = 10  # networks trained side by side: their activations still fit a core's cache


class Training(NamedTuple):
    """What one K leaves behind, for S seeds."""

    iterates: Params  # (S, N + 1, ...) Q₀ … Q_N: θ₁ at the end of each window, then the rest of the last one
    checks: Proposition  # (S, checks, K)

    def policies(self) -> Params:
        """(S·N, ...) Q₁ … Q_N of all seeds in a row."""
        return jax.tree.map(lambda x: x[:, 1:].reshape(-1, *x.shape[2:]), self.iterates)


def authors_start(hidden: int, seed: int) -> Params:
    """The initial parameters of the authors' run with this seed.

    Table 1 of the paper comes from one seed, 11, and seeds differ much, so numbers are comparable only from the same start. It is what
    flax drew for two dense layers from PRNGKey(seed) with the random bits JAX used at the time.
    """

    class Authors(nn.Module):
        @nn.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            x = nn.relu(nn.Dense(hidden)(x))
            return nn.Dense(env.ACTIONS)(x)

    with jax.threefry_partitionable(False):
        drawn: Any = Authors().init(jax.random.PRNGKey(seed), jnp.zeros(2))["params"]
    first, second = ({"kernel": drawn[name]["kernel"].T, "bias": drawn[name]["bias"]} for name in ("Dense_0", "Dense_1"))
    return {"torso": {"Linear_0": first}, "head": second}


def train(rows: Rows, K: int, config: Config, net: Network, starts: Sequence[Params], tick: Callable[[], None]) -> Training:
    """Learn N Bellman updates, `K` at a time, in N - K + 1 windows of equally many gradient steps.

    starts: for each seed, the parameters from which all networks of the window start. tick: called after every window.
    """
    win = window(net, K, frozen=False)
    optimiser = optax.adam(config.learning_rate)
    learn = gradient_step(win, dqn, optimiser)
    measure = proposition_on_rows(win)
    held = jax.tree.map(jnp.asarray, rows.transitions()), cut(rows)  # handed to the program: as constants in it they slow its compilation
    windows = config.N - K + 1
    T = config.steps // windows

    def init(theta: Params) -> tuple[Chain, Any]:
        chain = window(Network(lambda key, x: theta, net.apply), K, frozen=False).init(jax.random.key(0), None, identical=True)
        return chain, optimiser.init(chain.online)

    def run_window(n: jax.Array, data: Transition, blocks: Block, root: jax.Array, chain: Chain, moments: Any) -> tuple:
        """Gradient steps `n` (T,) of one seed; also the loss of each and, where one is due, its check."""

        def step(carry: tuple, n: jax.Array) -> tuple:
            chain, moments = carry
            key = jax.random.fold_in(root, n)
            at = jax.random.randint(key, (config.batch,), 0, data.reward.shape[0])
            moved, moments, losses = learn(chain, moments, jax.tree.map(lambda x: x[at], data), key)
            nothing = Proposition(*[jnp.zeros(K)] * 4)
            checked = jax.lax.cond(n % CHECK_EVERY == 0, lambda: measure(chain, moved, blocks), lambda: nothing)
            return (moved, moments), (losses.mean(1).sum(), checked)

        return jax.lax.scan(step, (chain, moments), n)

    @jax.jit
    def advance(n: jax.Array, held: tuple[Transition, Block], seeds: tuple) -> tuple:
        return jax.lax.map(lambda seed: run_window(n, *held, *seed), seeds, batch_size=max(1, CACHED // K))

    members = jax.vmap(win.member, in_axes=(0, None))
    roots = jax.vmap(jax.random.key)(jnp.array(config.seeds))
    chains, moments = jax.vmap(init)(jax.tree.map(lambda *x: jnp.stack(x), *starts))
    iterates, checks = [chains.anchor], []
    for w in range(windows):
        n = w * T + 1 + np.arange(T)
        (chains, moments), (losses, checked) = advance(n, held, (roots, chains, moments))
        for i, s in np.argwhere(~np.isfinite(losses).T):
            raise FloatingPointError(f"non-finite loss at gradient step {n[i]} (K = {K}, seed {config.seeds[s]})")
        checks.append(jax.tree.map(lambda x, due=(n % CHECK_EVERY == 0): np.asarray(x)[:, due], checked))
        iterates += [members(chains.online, k) for k in (range(1, K + 1) if w == windows - 1 else [1])]
        chains = jax.vmap(win.shift)(chains)
        tick()
    return Training(
        jax.tree.map(lambda *x: np.stack(x, 1), *iterates), Proposition(*(np.concatenate(x, 1) for x in zip(*checks, strict=True)))
    )
