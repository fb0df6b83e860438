"""Verdicts: p against every permutation written out, each word, and how often two methods are told wrongly."""

import json
from itertools import combinations, product

import numpy as np
import pytest
from scipy.stats import binomtest

from iterq.report.stats import iqm, mean, median
from iterq.report.verdicts import compare_scores, reaches

RNG = np.random.default_rng(0)


def drawn(rng, sizes, shift=0.0):
    """Skewed scores on tasks of different levels and spreads."""
    return [t / 2 + 2.0 ** (t % 3 - 1) * rng.lognormal(0, 1, n) / 2 + shift for t, n in enumerate(sizes)]


def brute_force(a, b, margin, aggregate):
    """Both ps by going through every way to share out the runs, task by task, the one that was found among them; means decide ties."""

    def gap(ours, theirs):
        first, second = ((np.concatenate(x), np.array([len(y) for y in x])) for x in (ours, theirs))
        return aggregate(*first) - aggregate(*second) + 1e-6 * (mean(*first) - mean(*second))

    def share(shift, strength):
        pools = [np.concatenate([x + shift, y]) for x, y in zip(a, b, strict=True)]
        found, hits, ways = strength(gap([x + shift for x in a], b)), 0, 0
        for chosen in product(*(combinations(range(len(pool)), len(x)) for pool, x in zip(pools, a, strict=True))):
            rest = [np.delete(pool, c) for pool, c in zip(pools, map(list, chosen), strict=True)]
            hits += strength(gap([pool[list(c)] for pool, c in zip(pools, chosen, strict=True)], rest)) >= found - 1e-11
            ways += 1
        return hits / ways

    return share(0, abs), max(share(margin, lambda x: x), share(-margin, lambda x: -x))


def test_p_by_hand():
    # 20 ways to give three of six runs to a; only the one that was found and its mirror image differ as much.
    apart = compare_scores([np.array([4.0, 5, 6])], [np.array([1.0, 2, 3])], 1)
    assert (apart.difference, apart.p, apart.word) == (3, 2 / 20, "cannot tell at 3 seeds")
    # 70 ways to give four of eight. An interquartile mean leaves out 5 and 4, so it stays where these change places; means do not.
    apart = compare_scores([np.array([5.0, 6, 7, 8])], [np.array([1.0, 2, 3, 4])], 1)
    assert (apart.difference, apart.p, apart.p_equal, apart.word) == (4, 2 / 70, 1, "better")
    # One run on each of two tasks: both or either may change places, and ties count.
    assert compare_scores([np.array([1.0]), np.array([1.0])], [np.array([0.0]), np.array([1.0])], 1, mean).p == 1
    assert compare_scores([np.array([1.0]), np.array([3.0])], [np.array([0.0]), np.array([1.0])], 1, mean).p == 2 / 4


@pytest.mark.parametrize("aggregate", [iqm, mean, median])
@pytest.mark.parametrize(("ours", "theirs"), [([4], [4]), ([3, 2], [2, 4]), ([2, 2, 1], [2, 3, 2])])
def test_few_permutations_are_all_gone_through(ours, theirs, aggregate):
    rng = np.random.default_rng(1)
    for shift in (0.0, 0.7):
        a, b = [x.round(1) for x in drawn(rng, ours, shift)], [x.round(1) for x in drawn(rng, theirs)]  # rounded, so that some tie
        found = compare_scores(a, b, 1.5, aggregate)
        assert (found.p, found.p_equal) == pytest.approx(brute_force(a, b, 1.5, aggregate))


def test_many_permutations_are_sampled():
    rng = np.random.default_rng(2)
    a, b = drawn(rng, [3, 4], 0.2), drawn(rng, [4, 3])
    exact = compare_scores(a, b, 0.8)  # 35 × 35 ways
    sampled = compare_scores(a, b, 0.8, permutations=1_200)
    assert 0.02 < exact.p < 0.98
    assert 0.02 < exact.p_equal < 0.98
    for p, q in ((exact.p, sampled.p), (exact.p_equal, sampled.p_equal)):
        assert p != q
        assert abs(p - q) < 4 * np.sqrt(p * (1 - p) / 1_200)


def test_runs_stay_in_their_task():
    # Tasks are far apart and methods are not: were runs to leave their task, no difference would stand out from that of tasks.
    a, b = ([100.0 * t + RNG.normal(shift, 1, 5) for t in range(8)] for shift in (2, 0))
    assert compare_scores(a, b, 1, mean).p == 1 / 10_000


def test_every_word():
    x = np.arange(12.0) / 12
    words = {
        "better": (x + 3, x, 1),
        "worse": (x, x + 3, 1),
        "equal within 0.8": (x, x[::-1] + 0.01, 0.8),
        "better, by less than 3": (x + 1, x, 3),
        "worse, by less than 2.5": (x, x + 1, 2.5),
        "cannot tell at 12 seeds": (x, x + 0.1, 0.2),
        "cannot tell at 1 seed": (x[:1], x + 9, 1),
    }
    for word, (a, b, margin) in words.items():
        found = compare_scores([a], [b], margin)
        assert found.word == word
        assert (found.better, found.worse) == (word.startswith("better"), word.startswith("worse"))
        assert found.equal == ("equal" in word or "less than" in word)
        assert found.low <= found.difference <= found.high
        json.dumps(found._asdict(), allow_nan=False)


def test_the_other_way_round_says_the_same():
    for sizes, others, shift in (([5, 5], [5, 5], 0.5), ([6, 9], [8, 4], -1.0), ([3], [3], 0.1)):
        a, b = drawn(RNG, sizes, shift), drawn(RNG, others)
        one, other = compare_scores(a, b, 1.3), compare_scores(b, a, 1.3)
        assert (one.difference, one.p, one.p_equal, one.needed) == (-other.difference, other.p, other.p_equal, other.needed)
        assert (one.low, one.high) == pytest.approx((-other.high, -other.low))
        assert (one.better, one.worse, one.equal) == (other.worse, other.better, other.equal)
    a, b = [np.array([0.0, 0, 1, 1, 1, 1, 2, 2])] * 2, [np.array([0.0, 1, 1, 1, 1, 1, 1, 2])] * 2  # equal means
    assert compare_scores(a, b, 0.6, mean, 500)[4:6] == compare_scores(b, a, 0.6, mean, 500)[4:6]


def test_draws_are_seeded():
    a, b = drawn(RNG, [8, 8, 8], 0.3), drawn(RNG, [8, 8, 8])
    assert compare_scores(a, b, 1) == compare_scores(a, b, 1)
    assert compare_scores(a, b, 1).p != compare_scores(a, b, 1, seed=1).p


def test_the_interval_has_its_say():
    # Runs of one method spread more widely than those of the other: p is too small, and the interval knows.
    rng = np.random.default_rng(4)
    wide, narrow = rng.normal(0, 3, (400, 8)), rng.normal(0, 1, (400, 8))
    found = [compare_scores([x], [y], 1, permutations=99, resamples=300) for x, y in zip(wide, narrow, strict=True)]
    refused = [v for v in found if v.p <= 0.05 and not (v.better or v.worse)]
    assert refused
    assert all(v.low <= 0 <= v.high for v in refused)
    found = [compare_scores([x + 9], [y], 9, permutations=99, resamples=300) for x, y in zip(wide, narrow, strict=True)]
    refused = [v for v in found if v.p_equal <= 0.05 and not v.equal]
    assert refused
    assert all(v.high >= 9 for v in refused)


def test_identical_runs_and_ties():
    same = [RNG.normal(0, 1, 6), RNG.normal(5, 1, 6)]
    found = compare_scores(same, same, 4)
    assert (found.difference, found.p, found.word) == (0, 1, "equal within 4")
    flat = compare_scores([np.full(5, 0.1)], [np.full(5, 0.1)], 0.3)
    assert (flat.low, flat.high, flat.p, flat.p_equal, flat.needed) == (0, 0, 1, 1 / 252, None)
    assert compare_scores([np.full(3, 0.1)], [np.full(3, 0.1)], 0.3).p_equal == 1 / 20 == 0.05
    # 0.1 + 0.2 is not 0.3, and no difference either.
    assert compare_scores([np.array([0.1 + 0.2] * 6)], [np.array([0.3] * 6)], 1e-3).p == 1


def test_a_single_run_tells_nothing():
    alone = compare_scores([np.array([1e6])], [np.array([0.0])], 1)
    assert (alone.word, alone.p, alone.needed) == ("cannot tell at 1 seed", 1, None)
    assert reaches([np.array([1e6])], 1).word == "cannot tell at 1 seed"


def test_what_cannot_be_judged_is_refused():
    fine = [np.arange(4.0), np.arange(3.0)]
    bad = [
        [],
        fine[:1],
        [fine[0], np.array([])],
        [fine[0], np.array([0, np.nan])],
        [fine[0], np.array([np.inf])],
        [fine[0], np.zeros((3, 2))],
    ]
    for scores in [*bad, [fine[0], np.array([1e300])]]:
        for pair in ((fine, scores), (scores, fine)):
            with pytest.raises(ValueError, match="must"):
                compare_scores(*pair, 1.0)
    for margin in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match="must"):
            compare_scores(fine, fine, margin)
    with pytest.raises(ValueError, match="must"):
        compare_scores(fine, fine, 1.0, permutations=0)
    with pytest.raises(ValueError, match="must"):
        reaches(bad[3], 1.0)
    with pytest.raises(ValueError, match="must"):
        reaches(fine, np.nan)
    assert compare_scores(fine, fine, 1e-300).needed is None


def test_reaching_a_level():
    scores = [np.array([8.0, 9, 10, 11, 12]), np.array([9.0, 10, 11])]
    above, below, near = reaches(scores, 5), reaches(scores, 20), reaches(scores, 10)
    assert (above.word, above.better, above.worse) == ("reaches", True, False)
    assert (below.word, below.better, below.worse) == ("falls short", False, True)
    assert (near.word, near.better, near.worse) == ("cannot tell at 3 seeds", False, False)
    assert (above.difference, below.difference) == (5, -10)
    assert above.p < 0.05 < near.p
    # Whoever is at the highest score that there is has reached it.
    assert reaches([np.full(5, 500.0)], 500).word == "reaches"
    assert reaches([np.full(5, 500.0)], 500.1).word == "falls short"


def test_as_many_seeds_as_named_find_the_margin():
    # Means of n normal runs differ by 1 ± √(2/n): 2 · 2.8² = 15.7 and one more.
    rng = np.random.default_rng(5)
    named = [compare_scores([x], [y], 1, mean, 99).needed for x, y in rng.normal(0, 1, (50, 2, 40))]
    assert np.mean(named) == pytest.approx(17, abs=1)
    found = [compare_scores([x + 1], [y], 1, mean, 399).better for x, y in rng.normal(0, 1, (300, 2, 17))]
    assert binomtest(sum(found), 300, 0.8).pvalue > 0.01
    # Fewer than four on one task, and three on two, could not make p small, however large the effect.
    assert [compare_scores([np.arange(9.0)] * t, [np.arange(9.0)] * t, 1e3).needed for t in (1, 2, 3)] == [4, 3, 2]


def too_many(calls):
    """Whether the 99 % interval of a rate lies wholly above 5 %."""
    return binomtest(int(sum(calls)), len(calls)).proportion_ci(0.99).low > 0.05


def test_too_many_is_noticed():
    assert not too_many([True] * 30 + [False] * 570)
    assert too_many([True] * 48 + [False] * 552)


@pytest.mark.parametrize("tasks", [1, 4])
@pytest.mark.parametrize("seeds", [3, 5, 10, 30])
def test_false_calls_are_at_most_five_in_a_hundred(tasks, seeds):
    # A margin far wider than the scores: then only one test of "equal" can fail, and most of the 5 % are used.
    rng, far, how = np.random.default_rng([tasks, seeds]), 30.0, {"permutations": 99, "resamples": 100}
    pairs = [(drawn(rng, [seeds] * tasks), drawn(rng, [seeds] * tasks)) for _ in range(500)]
    same = [compare_scores(a, b, 1.0, **how) for a, b in pairs]
    apart = [compare_scores([x + far for x in a], b, far, **how) for a, b in pairs]
    assert not too_many([v.better or v.worse for v in same])
    assert not too_many([v.p <= 0.05 for v in same])
    assert not too_many([v.equal for v in apart])
    assert not too_many([v.p_equal <= 0.05 for v in apart])
    # It does say something: nearly always that they are better and worse when they are that far apart, but for one task of three seeds.
    assert np.mean([v.better for v in apart]) > 0.95 or (tasks, seeds) == (1, 3)


def test_the_interval_by_itself_would_make_more():
    rng = np.random.default_rng(6)
    found = [compare_scores(drawn(rng, [5] * 4), drawn(rng, [5] * 4), 1.0, permutations=1) for _ in range(1_000)]
    assert too_many([not v.low <= 0 <= v.high for v in found])
