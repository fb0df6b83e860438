"""QN and i-QN on a one-dimensional linear quadratic regulator (Appendix C.1).

    s′ = 0.8 s - 0.9 a        r = -0.5 s² + 0.4 s a - 0.5 a²        γ = 1        Q(s, a) = M a² + G s²

The paper prints +0.5 s². With that sign the problem has no solution; with -0.5, as in the authors' notebook, half of G* is the
paper's bound 0.4 on |G|. A Q-function is a point (M, G) of the half strip M ≤ 0, |G| ≤ |G*| / 2, to which every gradient step is
projected back. Γ*Q has a third term in s a, which this space cannot represent; on data symmetric in s it is orthogonal to the rest.
"""

import dataclasses
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.linalg import solve_discrete_are
from scipy.optimize import lsq_linear

from iterq.bellman import Bellman, Transition
from iterq.chain import gradient_step, window
from iterq.config import Seeds, WindowSizes
from iterq.errors import require
from iterq.reproduce.base import Quantity, Result, write_csv

A, B, Q_S, Q_A, Q_SA = 0.8, -0.9, -0.5, -0.5, 0.2  # s′ = A s + B a;  r = Q_S s² + 2 Q_SA s a + Q_A a²


@dataclasses.dataclass(frozen=True)
class Config:
    """The LQR experiment."""

    K: WindowSizes = (2,)
    """Window size of i-QN; the paper shows 2."""
    steps: int = 30
    """Gradient steps."""
    learning_rate: float = 0.05
    """Of plain gradient descent (the authors' code; the text says Adam)."""
    seeds: Seeds = (0,)
    """Accepted as everywhere; nothing here is random, so every seed gives the same result."""

    def __post_init__(self) -> None:
        require(len(self.K) == 1 and self.K[0] >= 2, "--K: the LQR experiment compares QN with one i-QN of K >= 2")
        require(self.steps >= 1, f"--steps must be at least 1, got {self.steps}")


SCALES = {"smoke": {}, "default": {}, "paper": {}}


class Quadratic(nn.Module):
    """Q(s, a) = M a² + G s²"""

    start: tuple[float, float]

    @nn.compact
    def __call__(self, s: jax.Array, a: jax.Array) -> jax.Array:
        M = self.param("M", nn.initializers.constant(self.start[0]), ())
        G = self.param("G", nn.initializers.constant(self.start[1]), ())
        return M * a**2 + G * s**2


# maxₐ′ Q̄(s′, a′) = Q̄(s′, 0), since M ≤ 0
lqr = Bellman(
    backup=lambda Qb, Q, t, key: t.reward + t.discount * Qb(t.next_obs, 0.0),
    loss=lambda Q, y, t, key: (Q(t.obs, t.action) - y) ** 2,
    values=lambda Q, obs, key: Q(obs, jnp.zeros(1)),
)


def riccati() -> tuple[float, float, float]:
    """(P, M*, G*): V*(s) = P s², and the coordinates of Q*."""
    P = float(solve_discrete_are(A, B, Q_S, Q_A, s=Q_SA)[0, 0])
    M, G = Q_A + B**2 * P, Q_S + A**2 * P
    residual = G - (Q_SA + A * B * P) ** 2 / M - P
    if abs(residual) > 1e-8 or M >= 0:
        raise FloatingPointError(f"the Riccati equation is not solved: residual {residual:g}")
    return P, M, G


def data() -> Transition:
    """Ten state-action pairs on a half circle."""
    angle = np.linspace(0, np.pi, 10)
    s, a = np.cos(angle), np.sin(angle)
    return Transition(s, a, Q_S * s**2 + 2 * Q_SA * s * a + Q_A * a**2, np.ones(10), A * s + B * a)


def backup(point: np.ndarray) -> np.ndarray:
    """The coordinates (M, G) of Γ*Q for Q at `point`."""
    return np.array([Q_A + B**2 * point[1], Q_S + A**2 * point[1]])


def projection(point: np.ndarray, bound: float) -> np.ndarray:
    """The representable Q nearest to Γ*Q, Q at `point`, in the norm of the data."""
    t = data()
    y = t.reward + point[1] * t.next_obs**2
    return lsq_linear(np.stack([t.action**2, t.obs**2], 1), y, ([-np.inf, -bound], [0, bound])).x


def descend(K: int, start: np.ndarray, bound: float, steps: int, learning_rate: float) -> np.ndarray:
    """(steps + 1, K, 2) the points of Q₁ … Q_K, all starting where Q̄₀ is, under projected gradient descent with D = 1."""
    win = window({"quadratic": Quadratic((float(start[0]), float(start[1])))}, K, frozen=False)
    optimiser = optax.sgd(learning_rate)
    step = gradient_step(win, lqr, optimiser)
    batch = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), data())

    def walk(carry: tuple, key: jax.Array) -> tuple:
        chain, moments, _ = step(*carry, batch, key)
        point = chain.online["quadratic"]
        projected = {"quadratic": {"M": jnp.minimum(point["M"], 0), "G": jnp.clip(point["G"], -bound, bound)}}
        return (chain._replace(online=projected), moments), projected

    key = jax.random.key(0)
    chain = win.init(key, batch.obs[0], batch.action[0], identical=True)
    _, path = jax.lax.scan(walk, (chain, optimiser.init(chain.online)), jax.random.split(key, steps))
    points = jax.tree.map(lambda first, rest: np.concatenate([np.asarray(first)[None], rest]), chain.online, path)["quadratic"]
    return np.stack([points["M"], points["G"]], -1).reshape(steps + 1, K, 2)


def run(config: Config, folder: Path) -> Result:
    """Both methods from the same start, the figure, and the comparison with Q*."""
    K = config.K[0]
    P, M_star, G_star = riccati()
    best, bound = np.array([M_star, G_star]), abs(G_star) / 2
    start = np.array([0.5 * M_star, -bound / 2])
    paths = {name: descend(size, start, bound, config.steps, config.learning_rate) for name, size in (("QN", 1), ("i-QN", K))}
    distance = {(name, k + 1): float(np.linalg.norm(p[-1, k] - best)) for name, p in paths.items() for k in range(p.shape[1])}

    from iterq.reproduce.figures import draw_lqr

    draw_lqr(folder, paths, best, start, backup(start), projection(start, bound), bound)
    rows = [(name, t, k + 1, *map(float, p[t, k])) for name, p in paths.items() for t in range(len(p)) for k in range(p.shape[1])]
    write_csv(folder / "paths.csv", ("method", "step", "k", "M", "G"), rows)

    ends = [(f"{n} Q{k}", *(f"{x:.4f}" for x in paths[n][-1, k - 1]), f"{d:.4f}") for (n, k), d in distance.items()]
    quantities = [
        Quantity("bound on |G|, |G*| / 2", bound, paper=0.4, band="0.4 to one digit", passed=round(bound, 1) == 0.4),
        Quantity("distance of QN's Q1 to Q*", distance["QN", 1]),
        Quantity(
            f"distance of i-QN's Q{K} to Q*", distance["i-QN", K], None, None, "below QN's Q1", distance["i-QN", K] < distance["QN", 1]
        ),
        Quantity("P of V* = P s²", P),
        Quantity("M of Q*", M_star),
        Quantity("G of Q*", G_star),
    ]
    table = (f"After {config.steps} gradient steps", ("", "M", "G", "distance to Q*"), ends)
    return Result("lqr", dataclasses.asdict(config), quantities, tables=[table])
