"""Statistics of a report: against rliable, by hand, and what must hold of them whatever the scores."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from iterq.report.stats import (
    AGGREGATES,
    area,
    draws,
    estimate,
    first_reaching,
    iqm,
    mean,
    median,
    optimality_gap,
    probability_of_improvement,
    profile,
)

RNG = np.random.default_rng(0)
SCORES = RNG.gamma(2, 0.5, (6, 11)) + RNG.normal(0, 1, 11)  # (runs, tasks) as rliable has them
OTHERS = SCORES + RNG.normal(0.2, 0.5, SCORES.shape)


def by_task(scores):
    return list(scores.T)


@pytest.fixture(scope="module")
def rliable():
    """Their own library and metrics, where they can be imported."""
    library = pytest.importorskip("rliable.library", reason="rliable is not installed", exc_type=ImportError)
    from rliable import metrics

    return library, metrics


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", AGGREGATES)
def test_aggregates_and_intervals_are_those_of_rliable(name, rliable):
    library, metrics = rliable
    theirs = getattr(metrics, f"aggregate_{name}")
    points, intervals = library.get_interval_estimates(
        {"x": SCORES}, lambda x: np.array([theirs(x)]), reps=2_000, random_state=np.random.RandomState(1)
    )
    found = estimate(by_task(SCORES), AGGREGATES[name])
    np.testing.assert_allclose(found.value, points["x"][0], rtol=1e-6)
    low, high = intervals["x"].ravel()
    # Two bootstraps of 2 000 draws differ at the ends by a few hundredths of the width.
    assert abs(found.low - low) < 0.08 * (high - low)
    assert abs(found.high - high) < 0.08 * (high - low)


@pytest.mark.filterwarnings("ignore")
def test_improvement_and_profiles_are_those_of_rliable(rliable):
    library, metrics = rliable
    found = probability_of_improvement(by_task(SCORES), by_task(OTHERS))
    np.testing.assert_allclose(found.value, metrics.probability_of_improvement(SCORES, OTHERS), rtol=1e-6)
    taus = np.linspace(-1, 3, 21)
    theirs, intervals = library.create_performance_profile({"x": SCORES}, taus, reps=1_000)
    ours = profile(by_task(SCORES), taus)
    np.testing.assert_allclose(ours.value, theirs["x"], rtol=1e-6)
    np.testing.assert_allclose(ours.low, intervals["x"][0], atol=0.04)
    np.testing.assert_allclose(ours.high, intervals["x"][1], atol=0.04)


def test_aggregates_by_hand():
    scores = [np.array([0.0, 4.0]), np.array([1.0, 2.0, 9.0])]
    sizes, runs = np.array([2, 3]), np.concatenate(scores)
    assert iqm(runs, sizes) == pytest.approx((1 + 2 + 4) / 3)
    assert mean(runs, sizes) == pytest.approx((2 + 4) / 2)
    assert median(runs, sizes) == pytest.approx(3)
    assert optimality_gap(runs, sizes) == pytest.approx(1 - (0.5 + 1) / 2)
    assert probability_of_improvement([np.array([1.0, 3.0])], [np.array([2.0, 3.0])]).value == pytest.approx((0 + 0 + 1 + 0.5) / 4)
    np.testing.assert_allclose(profile(scores, np.array([-1, 0, 3.0, 9.0])).value, [1, 0.8, 0.4, 0])


def test_seeds_that_agree_leave_nothing_uncertain():
    found = estimate([np.full(4, 1.0), np.full(3, 7.0)])
    assert found.low == found.value == found.high


def test_points_along_training_are_estimated_one_by_one():
    scores = [RNG.normal(size=(4, 3)), RNG.normal(size=(5, 3))]
    found = estimate(scores)
    for point in range(3):
        alone = estimate([x[:, point] for x in scores])
        np.testing.assert_allclose([x[point] for x in found], alone)


def test_runs_only_change_places_within_their_task():
    at = draws((2, 3, 1), 500)
    for columns, runs in ((slice(0, 2), {0, 1}), (slice(2, 5), {2, 3, 4}), (slice(5, 6), {5})):
        assert set(np.unique(at[:, columns]).tolist()) == runs


FINITE = st.floats(-1e6, 1e6)


@settings(max_examples=60)
@given(arrays.arrays(float, st.integers(1, 30), elements=FINITE), st.randoms())
def test_the_interquartile_mean_does_not_depend_on_the_order(runs, random):
    shuffled = runs.tolist()
    random.shuffle(shuffled)
    assert iqm(np.array(shuffled), np.array([len(runs)])) == pytest.approx(iqm(runs, np.array([len(runs)])), abs=1e-6)
    assert runs.min() - 1e-6 <= iqm(runs, np.array([len(runs)])) <= runs.max() + 1e-6


@settings(max_examples=30)
@given(st.lists(arrays.arrays(float, st.integers(1, 6), elements=FINITE), min_size=1, max_size=4))
def test_profiles_fall_and_intervals_hold_them(scores):
    every = np.concatenate(scores)
    found = profile(scores, np.linspace(every.min() - 1, every.max() + 1, 15), resamples=100)
    for x in found:
        assert (np.diff(x) <= 1e-12).all()
    assert found.value[0] == 1
    assert found.value[-1] == 0
    assert (found.low <= found.value + 1e-12).all()
    assert (found.value <= found.high + 1e-12).all()


def test_intervals_shrink_with_runs():
    widths = []
    for runs in (5, 20, 80, 320):
        found = estimate([np.random.default_rng(7).normal(size=runs) for _ in range(4)])
        widths.append(float(found.high - found.low))
    assert widths == sorted(widths, reverse=True)


def test_where_a_curve_comes_to_a_level_and_the_area_under_it():
    steps, curve = np.array([10.0, 20.0, 40.0]), np.array([0.0, 1.0, 3.0])
    assert first_reaching(steps, curve, 0.5) == pytest.approx(15)
    assert first_reaching(steps, curve, 2.0) == pytest.approx(30)
    assert first_reaching(steps, curve, -1) == 10
    assert first_reaching(steps, curve, 4) is None
    assert area(steps, curve) == pytest.approx((10 * 0.5 + 20 * 2) / 30)
    assert area(steps[:1], curve[:1]) == 0
