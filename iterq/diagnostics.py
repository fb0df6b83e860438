"""The quantities of Section 4 as functions of chains: approximation errors, Proposition 4.1, and the spread between members.

All norms are empirical, ‖f‖² = mean of f² over the batch, which stands for ν. Targets must be scalars per sample.
"""

from typing import Any, NamedTuple

import jax

from iterq.bellman import Bellman
from iterq.chain import Chain, Window


class Proposition(NamedTuple):
    """The squared norms of Proposition 4.1 between two syncs t and t + 1, each (..., K)."""

    before: Any  # ‖Γ̂Qᵗₖ₋₁ - Qᵗₖ‖²
    fitted: Any  # ‖Γ̂Qᵗₖ₋₁ - Qᵗ⁺¹ₖ‖²
    after: Any  # ‖Γ̂Qᵗ⁺¹ₖ₋₁ - Qᵗ⁺¹ₖ‖²
    displacement: Any  # ‖Γ̂Qᵗ⁺¹ₖ₋₁ - Γ̂Qᵗₖ₋₁‖²


def approximation_errors(win: Window, bellman: Bellman, chain: Chain, batch: Any, key: jax.Array) -> jax.Array:
    """(K,) ‖Γ̂Qₖ₋₁ - Qₖ‖² along the online chain, from Q̄₀ on."""
    return win.losses(bellman, chain._replace(frozen=None), batch, key).mean(1)


def csae(win: Window, bellman: Bellman, chain: Chain, batch: Any, key: jax.Array) -> jax.Array:
    """() Σₖ ‖Γ̂Qₖ₋₁ - Qₖ‖², the considered sum of approximation errors."""
    return approximation_errors(win, bellman, chain, batch, key).sum()


def proposition(win: Window, bellman: Bellman, before: Chain, after: Chain, batch: Any, key: jax.Array) -> Proposition:
    """The terms of Proposition 4.1 for the same window at t and at t + 1."""
    key_backup, key_loss = jax.random.split(key)
    # Γ̂Qₖ₋₁ along the online chain, from Q̄₀ on
    old = win.targets(bellman, before._replace(frozen=None), batch, key_backup)
    new = win.targets(bellman, after._replace(frozen=None), batch, key_backup)
    return Proposition(
        before=win.distances(bellman, before.online, old, batch, key_loss).mean(1),
        fitted=win.distances(bellman, after.online, old, batch, key_loss).mean(1),
        after=win.distances(bellman, after.online, new, batch, key_loss).mean(1),
        displacement=((new - old) ** 2).mean(1),
    )


def terms(y: jax.Array, q: jax.Array, y_next: jax.Array, q_next: jax.Array, weight: jax.Array) -> Proposition:
    """The same from the values themselves: targets and predictions (K, B) at t, then at t + 1, and ν as weights (B,)."""
    return Proposition(*((x**2) @ weight for x in (y - q, y - q_next, y_next - q_next, y_next - y)))


def margins(terms: Proposition, slack: float = 1.0) -> Any:
    """(..., K) left minus right side of Equation 4; the condition holds where all are ≥ 0.

    slack: a factor on the displacement of the target. 1 is Equation 4; the authors' code multiplies by γ, although Γ̂ contains it
        already, and so tests a weaker condition that no longer implies the decrease.
    """
    # √b - √f = (b - f) / (√b + √f), whose sign is exact where the two are close
    gain = (terms.before - terms.fitted) / (terms.before**0.5 + terms.fitted**0.5)
    return gain - slack * terms.displacement**0.5


def decrease(terms: Proposition) -> Any:
    """(...,) how much the CSAE falls from t to t + 1; Equation 5 holds where it is ≥ 0."""
    return (terms.before - terms.after).sum(-1)


def spread(win: Window, bellman: Bellman, chain: Chain, obs: Any, key: jax.Array) -> jax.Array:
    """() standard deviation between the K members' action values, averaged over observations and actions."""
    return win.values(bellman, chain.online, obs, key).std(0).mean()
