"""The LQR experiment against plain NumPy."""

import numpy as np
import pytest

from iterq.reproduce import lqr


def projected_descent(K, start, bound, steps, rate):
    """(K, 2) where gradient descent on Σₖ mean (Qₖ - r - Q̄ₖ₋₁(s′, 0))² ends, projected after each step; targets are the last iterates."""
    angle = np.linspace(0, np.pi, 10)
    s, a = np.cos(angle), np.sin(angle)
    r, s_next = -0.5 * s**2 + 0.4 * s * a - 0.5 * a**2, 0.8 * s - 0.9 * a
    points = [np.array(start) for _ in range(K)]
    for _ in range(steps):
        behind = [np.array(start), *points[:-1]]
        moved = []
        for (M, G), (_, G_bar) in zip(points, behind, strict=True):
            error = M * a**2 + G * s**2 - r - G_bar * s_next**2
            step = rate * np.array([(2 * error * a**2).mean(), (2 * error * s**2).mean()])
            moved.append(np.array([min(M - step[0], 0), np.clip(G - step[1], -bound, bound)]))
        points = moved
    return np.stack(points)


def test_riccati_by_value_iteration():
    P = 0.0
    for _ in range(500):
        P = -0.5 + 0.64 * P - (0.2 - 0.72 * P) ** 2 / (-0.5 + 0.81 * P)
    assert lqr.riccati() == pytest.approx((P, -0.5 + 0.81 * P, -0.5 + 0.64 * P), abs=1e-9)
    assert lqr.riccati() == pytest.approx((-0.4718, -0.8821, -0.8019), abs=1e-4)


def test_with_the_papers_sign_no_finite_value_exists():
    # +0.5 s²: from P = 0, a = -R̂⁻¹Ŝ s has R̂ = -0.5 + 0.81 P turning positive, so the reward is unbounded above.
    P = 0.0
    for _ in range(50):
        R = -0.5 + 0.81 * P
        if R >= 0:
            break
        P = 0.5 + 0.64 * P - (0.2 - 0.72 * P) ** 2 / R
    assert R >= 0


@pytest.mark.parametrize("K", [1, 2, 3])
def test_descent_ends_where_plain_projected_gradient_descent_does(K):
    _, M, G = lqr.riccati()
    start, bound = np.array([0.5 * M, G / 4]), abs(G) / 2
    path = lqr.descend(K, start, bound, 30, 0.05)
    assert path.shape == (31, K, 2)
    np.testing.assert_allclose(path[0], np.tile(start, (K, 1)), rtol=1e-6)
    np.testing.assert_allclose(path[-1], projected_descent(K, start, bound, 30, 0.05), atol=1e-6)


def test_the_limit_of_qn_is_the_projection():
    _, M, G = lqr.riccati()
    start, bound = np.array([0.5 * M, G / 4]), abs(G) / 2
    np.testing.assert_allclose(lqr.descend(1, start, bound, 3000, 0.2)[-1, 0], lqr.projection(start, bound), atol=1e-4)
    # The projection is the best point of the strip on a fine grid.
    t = lqr.data()
    y = t.reward + start[1] * t.next_obs**2
    Ms, Gs = np.meshgrid(np.linspace(-1.5, 0, 601), np.linspace(-bound, bound, 401), indexing="ij")
    error = ((Ms[..., None] * t.action**2 + Gs[..., None] * t.obs**2 - y) ** 2).mean(-1)
    best = np.unravel_index(error.argmin(), error.shape)
    np.testing.assert_allclose([Ms[best], Gs[best]], lqr.projection(start, bound), atol=3e-3)


def test_iqn_is_closer_to_the_optimum(tmp_path):
    result = lqr.run(lqr.Config(), tmp_path)
    assert result.passed
    ours = {q.name: q.ours for q in result.quantities}
    assert ours["distance of i-QN's Q2 to Q*"] < ours["distance of QN's Q1 to Q*"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["lqr.pdf", "lqr.png", "paths.csv"]
