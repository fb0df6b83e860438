"""A chain of K consecutive Bellman updates, learned at once (Section 4 of the paper).

    Q̄₀ ──Γ̂──▸ Q₁   Q̄₁ ──Γ̂──▸ Q₂   …   Q̄ₖ₋₁ ──Γ̂──▸ Qₖ

    anchor   θ̄₀            where the window starts; constant between two shifts
    online   θ₁ … θₖ       learned
    frozen   θ̄₁ … θ̄ₖ₋₁     a snapshot of `online`, refreshed every D steps; None: use `online` itself (D = 1)

Parameters are dicts of parts (see networks.py). A part named in `shared` is common to θ₁ … θₖ; every other part carries a
leading axis of size K, in `frozen` K - 1: nobody learns from the last. That is the whole difference between a shared torso and
independent networks. A chain of one stacks nothing: (anchor, online) are then the (target, online) of the base algorithm, and the same
program runs.

Algorithm 1 as printed shifts only the targets. Then θₖ, learned towards update k, would restart on update k + 1 while the next
sync overwrites θ̄ₖ with it, and the look-ahead would be lost within D steps; so the online parameters shift with their targets.
Optimiser moments stay where they are.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from iterq.bellman import Bellman
from iterq.events import SHIFT, STAY, SYNC, choose, event_at
from iterq.networks import Network, Params, network


class Chain(NamedTuple):
    """The parameters of a window; see the top of this file."""

    anchor: Params
    online: Params
    frozen: Params | None


class Window(NamedTuple):
    """Pure functions on a `Chain`, in the manner of an optax transformation."""

    K: int
    init: Callable[..., Chain]  # (key, *inputs, identical=False) -> chain
    targets: Callable[..., Any]  # (bellman, chain, batch, key) -> (K, B, ...)     Γ̂Q̄ₖ₋₁
    distances: Callable[..., jax.Array]  # (bellman, online, targets, batch, key) -> (K, B)   from Qₖ to given targets
    losses: Callable[..., jax.Array]  # (bellman, chain, batch, key) -> (K, B)         from Qₖ to Γ̂Q̄ₖ₋₁
    values: Callable[..., jax.Array]  # (bellman, online, obs, key) -> (K, B, A)
    roll: Callable[[Params], Params]  # online -> [θ₂ … θₖ, θₖ]
    sync: Callable[[Chain], Chain]
    shift: Callable[[Chain], Chain]
    track: Callable[[Chain, Any], Chain]
    member: Callable[[Params, Any], Params]  # (online, k) -> θₖ, k = 1 … K
    Q: Callable[[Params], Callable[..., Any]]  # θₖ -> Qₖ


def window(
    net: Mapping[str, nn.Module] | Network,
    K: int,
    shared: tuple[str, ...] = (),
    frozen: bool = True,
    consecutive: bool = True,
    own_keys: bool = False,
) -> Window:
    """A window of `K` Bellman updates over `net`.

    shared: the parts that θ₁ … θₖ have in common.
    frozen: keep a snapshot of `online` to learn from (D > 1); otherwise learn from `online` itself.
    consecutive: member k learns from member k - 1. If not, the window holds K chains of length one, each member learning from its
        own past self, which `anchor` then stores for all members (Bootstrapped DQN).
    own_keys: what a backup and a loss draw for a sample, such as which units dropout leaves out, is drawn anew for every member.
        Otherwise all members get the same key, and so levels of quantiles in common. `values` are always read with the same key.
    """
    if K < 1:
        raise ValueError(f"K must be at least 1, got {K}")
    if isinstance(net, Mapping) and not set(shared) <= set(net):
        raise ValueError(f"shared parts {sorted(set(shared) - set(net))} are not among the network's parts {list(net)}")
    net, members = network(net), np.arange(1, K + 1)

    def stacked(part: str) -> bool:
        return K > 1 and part not in shared

    def on_stack(f: Callable, *params: Params) -> Params:
        """f over every stacked part; shared parts are those of the first argument."""
        return {part: jax.tree.map(f, *(p[part] for p in params)) if stacked(part) else params[0][part] for part in params[0]}

    def axes(params: Params) -> dict[str, int | None]:
        return {part: 0 if stacked(part) else None for part in params}

    def member(online: Params, k: Any) -> Params:
        return on_stack(lambda x: x[k - 1], online)

    def but_last(online: Params) -> Params:
        """θ₁ … θₖ₋₁, from which others learn."""
        return on_stack(lambda x: x[:-1], online)

    def own(keys: jax.Array, k: Any) -> jax.Array:
        """(B,) what member k draws from."""
        return jax.vmap(jax.random.fold_in, (0, None))(keys, k) if own_keys and K > 1 else keys

    def Q(theta: Params) -> Callable[..., Any]:
        return lambda *inputs: net.apply(theta, *inputs)

    def init(key: jax.Array, *inputs: Any, identical: bool = False) -> Chain:
        thetas = [net.init(jax.random.fold_in(key, 1 if identical else k), *inputs) for k in range(1, K + 1)]
        online = on_stack(lambda *x: jnp.stack(x), *thetas)
        anchor = member(online, 1) if consecutive else online
        return Chain(anchor, online, but_last(online) if frozen and consecutive and K > 1 else None)

    def targets(bellman: Bellman, chain: Chain, batch: Any, key: jax.Array) -> Any:
        keys = per_sample(key, batch)

        def backup(bar: Params, theta: Params, k: Any) -> Any:
            return jax.vmap(lambda t, key: bellman.backup(Q(bar), Q(theta), t, key))(batch, own(keys, k))

        over_members = jax.vmap(backup, in_axes=(axes(chain.online), axes(chain.online), 0))
        if K > 1 and not consecutive:
            # yₖ = Γ̂Q̄ₖ
            return over_members(chain.anchor, chain.online, members)
        # y₁ = Γ̂Q̄₀
        first = jax.tree.map(lambda y: y[None], backup(chain.anchor, member(chain.online, 1), 1))
        if K == 1:
            return first
        # yₖ = Γ̂Q̄ₖ₋₁,  k = 2 … K
        bars = but_last(chain.online) if chain.frozen is None else chain.frozen
        rest = over_members(bars, on_stack(lambda x: x[1:], chain.online), members[1:])
        return jax.tree.map(lambda a, b: jnp.concatenate([a, b]), first, rest)

    def distances(bellman: Bellman, online: Params, ys: Any, batch: Any, key: jax.Array) -> jax.Array:
        keys = per_sample(key, batch)

        def distance(theta: Params, y: Any, k: Any) -> jax.Array:
            return jax.vmap(lambda y, t, key: bellman.loss(Q(theta), y, t, key))(y, batch, own(keys, k))

        if K == 1:
            return distance(online, jax.tree.map(lambda y: y[0], ys), 1)[None]
        return jax.vmap(distance, in_axes=(axes(online), 0, 0))(online, ys, members)

    def losses(bellman: Bellman, chain: Chain, batch: Any, key: jax.Array) -> jax.Array:
        # ℓ(Qₖ(s, a), Γ̂Q̄ₖ₋₁(s, a))
        key_backup, key_loss = jax.random.split(key)
        ys = jax.lax.stop_gradient(targets(bellman, chain, batch, key_backup))
        return distances(bellman, chain.online, ys, batch, key_loss)

    def values(bellman: Bellman, online: Params, obs: Any, key: jax.Array) -> jax.Array:
        keys = per_sample(key, obs)

        def read(theta: Params) -> jax.Array:
            return jax.vmap(lambda o, k: bellman.values(Q(theta), o, k))(obs, keys)

        return read(online)[None] if K == 1 else jax.vmap(read, in_axes=(axes(online),))(online)

    def roll(online: Params) -> Params:
        # θₖ ← θₖ₊₁, the last one kept
        return on_stack(lambda x: jnp.concatenate([x[1:], x[-1:]]), online)

    def sync(chain: Chain) -> Chain:
        # θ̄ₖ ← θₖ
        return chain._replace(frozen=None if chain.frozen is None else but_last(chain.online))

    def shift(chain: Chain) -> Chain:
        if not consecutive:
            # θ̄ₖ ← θₖ
            return chain._replace(anchor=chain.online)
        # θ̄₀ ← θ₁ ;  θₖ ← θₖ₊₁ ;  θ̄ₖ ← θₖ
        return sync(Chain(member(chain.online, 1), roll(chain.online), chain.frozen))

    def track(chain: Chain, tau: Any) -> Chain:
        # θ̄₀ ← τθ₁ + (1 - τ)θ̄₀ ;  θ̄ₖ ← θₖ
        ahead = member(chain.online, 1) if consecutive else chain.online
        anchor = jax.tree.map(lambda new, old: tau * new + (1 - tau) * old, ahead, chain.anchor)
        return sync(chain._replace(anchor=anchor))

    return Window(K, init, targets, distances, losses, values, roll, sync, shift, track, member, Q)


def per_sample(key: jax.Array, batch: Any) -> jax.Array:
    """(B,) one key per sample, the same for every member of the chain."""
    return jax.random.split(key, jax.tree.leaves(batch)[0].shape[0])


def gradient_step(win: Window, bellman: Bellman, optimiser: optax.GradientTransformation, reduce: Callable = jnp.sum) -> Callable:
    """One step of all K projections: (chain, moments, batch, key) -> (chain, moments, losses (K, B)).

    reduce: over members. The sum is Algorithm 1 and gives independent networks one optimiser each; the mean, which divides the gradient
        of every head by K, is what the published Atari runs used. Both are the base algorithm at K = 1.
    """

    def step(chain: Chain, moments: Any, batch: Any, key: jax.Array) -> tuple[Chain, Any, jax.Array]:
        def total(online: Params) -> tuple[jax.Array, jax.Array]:
            losses = win.losses(bellman, chain._replace(online=online), batch, key)
            # ℒₖ = the mean of ℓ over the batch
            return reduce(losses.mean(1)), losses

        grads, losses = jax.grad(total, has_aux=True)(chain.online)
        updates, moments = optimiser.update(grads, moments, chain.online)
        return chain._replace(online=optax.apply_updates(chain.online, updates)), moments, losses

    return step


Schedule = Callable[..., Chain]  # (window, chain, n, event=None) -> chain, applied after the gradient of step n


def hard(T: int, D: int = 1, G: int = 1) -> Schedule:
    """Shift every `T` and sync every `D` environment steps, with a gradient step every `G`."""
    if min(T, D, G) < 1:
        raise ValueError(f"T, D and G must be at least 1, got {T}, {D}, {G}")
    if T < G:
        raise ValueError(f"T = {T} is shorter than G = {G}: a window moves at most once per gradient step")

    def move(win: Window, chain: Chain, n: Any, event: int | None = None) -> Chain:
        event = event_at(n, T, D, G) if event is None else event
        return choose(event, {STAY: lambda chain: chain, SYNC: win.sync, SHIFT: win.shift}, chain)

    return move


def as_published(T: int, D: int, G: int, step: Callable) -> Callable:
    """`step` (see `gradient_step`) as (window, chain, n, …, event=None), with the moves in the order of the published Atari runs.

    When a shift is due, the online networks roll before the gradient step and the targets follow after it: one update per window is
    learned from targets that are a step behind. The anchor becomes θ₁ as it was before.
    """

    def run(win: Window, chain: Chain, n: Any, *args: Any, event: int | None = None) -> tuple[Chain, Any, jax.Array]:
        event = event_at(n, T, D, G) if event is None else event
        # θₖ ← θₖ₊₁
        rolled = choose(event, {STAY: lambda online: online, SYNC: lambda online: online, SHIFT: win.roll}, chain.online)
        after, moments, losses = step(chain._replace(online=rolled), *args)

        def shift(after: Chain) -> Chain:
            # θ̄₀ ← θ₁ ;  θ̄ₖ ← θₖ
            return win.sync(after._replace(anchor=win.member(chain.online, 1)))

        return choose(event, {STAY: lambda after: after, SYNC: win.sync, SHIFT: shift}, after), moments, losses

    return run


def polyak(tau: float) -> Schedule:
    """Let the anchor track θ₁ at rate `tau` after every gradient step; the rest of the chain follows by itself."""
    if not 0 <= tau <= 1:
        raise ValueError(f"tau must lie in [0, 1], got {tau}")
    return lambda win, chain, n, event=None: win.track(chain, tau)
