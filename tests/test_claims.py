"""What is claimed of methods is judged at the right place, with the right runs, and passes only where the runs say so."""

import numpy as np
import pytest
from scipy.stats import binomtest

from iterq.report import figures
from iterq.report.compare import comparison
from iterq.report.scores import EVALUATION, Log, Source
from iterq.report.stats import Estimate
from iterq.report.verdicts import compare_pairs
from iterq.reproduce import atari
from iterq.reproduce.claims import UNSAID, Claim, Level, judge

STEPS = np.arange(1, 5) * 100
SEEDS = np.arange(8)[:, None] * 0.01


def source(label, task, curve, steps=STEPS, seconds=1.0):
    """Eight agents whose curves lie close together."""
    logs = [Log(str(i), steps.astype(float), np.array(curve) + shift, steps * seconds) for i, shift in enumerate(SEEDS)]
    return Source(f"{label} on {task}", label, task, logs, {}, {}, "given", [], [])


def compared(**curves):
    """A comparison on one task without a unit of its own."""
    return comparison([source(label, "Task", curve) for label, curve in curves.items()], EVALUATION, epoch=100)


def unsaid(found):
    """Whether a claim is shown without a number and neither passed nor failed."""
    return (found.passed, found.verdict) == (None, UNSAID) and np.isnan(found.ours) and found.band != ""


def verdict(claim, c, marks=None, whole=True):
    found = judge(claim, c, marks or {}, whole)
    return found.passed, found.verdict, round(found.ours, 6)


def test_a_difference_is_looked_for_where_the_claim_says():
    c = compared(a=[3, 3, 1, 1], b=[1, 1, 1, 2])
    assert verdict(Claim("a", "b"), c) == (False, "worse", -1)
    assert verdict(Claim("a", "b", "worse"), c)[0] is True
    area = ((3 + 3) / 2 + (3 + 1) / 2 + 1) / 3 - (1 + 1 + 1.5) / 3
    assert verdict(Claim("a", "b", when="along"), c) == (True, "better", round(area, 6))


def test_equal_and_not_better():
    c = compared(a=[1] * 4, b=[1] * 4, c=[1.06] * 4, d=[2] * 4)
    assert verdict(Claim("a", "b", "equal"), c)[:2] == (True, "equal within 0.1")
    assert verdict(Claim("a", "b"), c)[0] is False  # equal is against "better"
    assert verdict(Claim("a", "b", "not better"), c)[0] is True
    assert verdict(Claim("d", "b", "not better"), c)[0] is False
    assert verdict(Claim("c", "b", "equal"), c)[:2] == (True, "better, by less than 0.1")
    assert verdict(Claim("c", "b"), c)[0] is True
    assert verdict(Claim("d", "b", ""), c)[:2] == (None, "better")  # nothing is claimed
    assert verdict(Claim("d", "b", "equal", times=2), c)[0] is True


def test_too_few_seeds_cannot_tell():
    few = [source(label, "Task", curve) for label, curve in {"a": [1] * 4, "b": [2] * 4}.items()]
    c = comparison([s._replace(logs=s.logs[:2]) for s in few], EVALUATION, epoch=100)
    passed, said, _ = verdict(Claim("b", "a"), c)
    assert passed is None
    assert said.startswith("cannot tell at 2 seeds")


def test_nothing_is_judged_before_the_whole_was_run():
    assert verdict(Claim("b", "a"), compared(a=[1] * 4, b=[2] * 4), whole=False)[:2] == (None, "better")


def test_a_claim_may_be_of_some_tasks():
    runs = [source(label, task, [x] * 4) for label, task, x in (("a", "T1", 1), ("b", "T1", 2), ("a", "T2", 5), ("b", "T2", 1))]
    c = comparison(runs, EVALUATION, baseline="a", epoch=100)
    assert verdict(Claim("b", "a", tasks=("T1",)), c)[0] is True
    assert verdict(Claim("b", "a", tasks=("T2",)), c)[0] is False
    assert unsaid(judge(Claim("b", "a", tasks=("T3",)), c, {}, True))


def test_marks_are_at_shifts_and_need_not_be_at_the_same_steps():
    c = compared(slow=[1, 1, 1, 5], fast=[5, 7, 7, 7])
    marks = {"slow": ((10, 400),), "fast": ((10, 100),)}
    found = judge(Claim("fast", "slow", "equal", when="marks"), c, marks, True)
    assert (found.passed, found.name) == (True, "fast against slow, after about 10 shifts")
    assert unsaid(judge(Claim("fast", "slow", "equal", when="marks"), c, {**marks, "slow": ((10, 500),)}, True))


def test_hours_are_relative_to_those_of_the_other():
    runs = [source("a", "T", [1] * 4, seconds=1.9), source("b", "T", [1] * 4, seconds=1.0)]
    found = judge(Claim("a", "b", "equal", when="hours", times=1.89, margin=0.2), comparison(runs, EVALUATION, epoch=100), {}, True)
    assert found.ours == pytest.approx(0.01)
    assert found.passed is None  # one run each


@pytest.mark.parametrize(("level", "passed"), [(1.9, True), (3.0, False), (2.035, None)])
def test_a_level_is_reached_or_not(level, passed):
    assert verdict(Level("a", at_least=level), compared(a=[1, 1, 1, 2]))[0] is passed


@pytest.mark.parametrize(("paper", "margin", "passed"), [(2.0, 0.1, True), (1.0, 0.1, False), (2.0, 0.035, None)])
def test_what_the_paper_has_is_met_or_not(paper, margin, passed):
    found = judge(Level("a", paper=paper, margin=margin), compared(a=[1, 1, 1, 2]), {}, True)
    assert (found.passed, found.paper) == (passed, paper)
    assert ("differs" in found.verdict) == (passed is False)


def test_claims_of_methods_that_were_not_run_are_shown_and_not_judged():
    c = compared(a=[1] * 4)
    assert unsaid(judge(Claim("a", "b"), c, {}, True))
    assert unsaid(judge(Level("b", at_least=1), c, {}, True))
    found = atari.main.judged(c, True)
    assert len(found) == len(atari.main.claims)
    assert all(map(unsaid, found))


def test_a_mark_is_drawn_at_its_step(tmp_path, monkeypatch):
    """Audit 6 and 36: marks were indices of points, and one beyond the last was dropped without a word."""
    drawn = []
    monkeypatch.setattr(figures, "save", lambda figure, folder, name: drawn.append(figure))
    x = STEPS * 1_000
    found = Estimate(*(np.arange(4.0),) * 3)
    figures.draw_panels(tmp_path, "x", {"T": {"a": (x, found)}}, ["y"], marks={"a": (200_000, 900_000)})
    (stars,) = [line for line in drawn[0].axes[0].lines if line.get_marker() == "*"]
    assert (stars.get_xdata().tolist(), stars.get_ydata().tolist()) == ([200.0], [1.0])


def test_pairs_are_told_apart_by_the_signs_of_their_differences():
    rng = np.random.default_rng(5)
    start = rng.normal(0, 100, 6)  # which two methods share, and which hides them from a test that does not know
    other = start + np.array([1.0, 2, 1, 3, 1, 2])
    found = compare_pairs(other, start, margin=5)
    # All 2⁶ signs: only all plus and all minus are as extreme.
    assert found.p == pytest.approx(2 / 64, abs=0.01)
    assert (found.word, found.difference) == ("better, by less than 5", pytest.approx(10 / 6))
    turned = compare_pairs(start, other, margin=5)
    assert (turned.word, turned.p, turned.low) == ("worse, by less than 5", found.p, pytest.approx(-found.high))
    assert compare_pairs(start, start, margin=5).word == "equal within 5"
    assert compare_pairs(other[:4], start[:4], margin=5).word == "cannot tell at 4 seeds"  # 2 of 16
    assert compare_pairs(other + 50, start, margin=5).word == "better"
    with pytest.raises(ValueError, match="must be pairs"):
        compare_pairs(other, start[:3], margin=5)


@pytest.mark.parametrize("seeds", [5, 20])
def test_pairs_of_one_method_are_called_different_in_at_most_one_of_twenty(seeds):
    rng, draws = np.random.default_rng(seeds), 400
    found = [compare_pairs(rng.standard_t(3, seeds), rng.standard_t(3, seeds), margin=1, permutations=500) for _ in range(draws)]
    wrong = sum(v.better or v.worse for v in found)
    # The 99 % interval of the rate must not lie wholly above 5 %.
    assert binomtest(wrong, draws).proportion_ci(0.99).low <= 0.05
