"""The label allocation for a binary judge against brute force and against repeated sampling."""

import numpy as np
import pytest
from scipy import stats

from cje_core.data import from_arrays
from cje_core.planning.binary_judge import (
    Judge,
    binary_split,
    split_by_class,
    split_by_verdict,
    variance_at_random,
    variance_by_class,
    variance_by_verdict,
)

JUDGES = [
    Judge(0.7, 0.9, 0.8, 0.5),
    Judge(0.2, 0.75, 0.95, 0.6),
    Judge(0.5, 0.65, 0.7, 0.3),
    Judge(0.95, 0.9, 0.6, 0.9),
]
SIGMAS = 5


@pytest.mark.parametrize("judge", JUDGES)
@pytest.mark.parametrize("m", [40, 101])
def test_no_other_split_has_less_variance(judge, m):
    for split, variance in ((split_by_class, variance_by_class), (split_by_verdict, variance_by_verdict)):
        every = {k: variance(1000, k, m - k, judge) for k in range(2, m - 1)}
        best = split(m, judge)
        assert sum(best) == m and every[best[0]] == min(every.values())
    assert variance_by_class(1000, *split_by_class(m, judge), judge) <= variance_at_random(1000, m, judge)


def test_labels_by_verdict_in_proportion_are_labels_at_random():
    """Their error is then that of a random part to first order: stratification by verdict only takes the pass "
    "share's off.
    """
    for judge in JUDGES:
        c = judge.share_good * judge.sensitivity + (1 - judge.share_good) * (1 - judge.specificity)
        stratified = variance_by_verdict(1e12, 400 * c, 400 * (1 - c), judge)
        assert stratified <= variance_at_random(1e12, 400, judge) * (1 + 1e-9)


def corrected(rng, judge, kind, reps, n, first, second):
    """Corrected shares of repeated studies, by the definition of the estimator, from binomial counts."""
    p = rng.binomial(n, judge.passed, reps) / n
    if kind == "class":
        se, sp = (
            rng.binomial(first, judge.sensitivity, reps) / first,
            rng.binomial(second, judge.specificity, reps) / second,
        )
    else:
        share = judge.share_good
        c = share * judge.sensitivity + (1 - share) * (1 - judge.specificity)
        a = rng.binomial(first, share * judge.sensitivity / c, reps) / first
        b = rng.binomial(second, share * (1 - judge.sensitivity) / (1 - c), reps) / second
        good = c * a + (1 - c) * b
        se, sp = c * a / good, (1 - c) * (1 - b) / (1 - good)
    return (p + sp - 1) / (se + sp - 1)


@pytest.mark.parametrize("judge", JUDGES[:2])
@pytest.mark.parametrize("kind", ["class", "verdict"])
def test_variance_is_that_of_repeated_studies(judge, kind):
    """At 20,000 labels, where the delta method has a relative error of about 1 / m; a split swapped must show."""
    rng, reps, n, m = np.random.default_rng(1), 20_000, 50_000, 20_000
    split, variance = (
        (split_by_class, variance_by_class) if kind == "class" else (split_by_verdict, variance_by_verdict)
    )
    first, second = split(m, judge)
    drawn = corrected(rng, judge, kind, reps, n, first, second)
    expected = variance(n, first, second, judge)
    tolerance = SIGMAS * np.sqrt(2 / reps)
    assert abs(drawn.var() / expected - 1) < tolerance
    assert abs(drawn.mean() - judge.theta) < SIGMAS * np.sqrt(expected / reps) + 10 * expected
    swapped = variance(n, second, first, judge)
    assert abs(drawn.var() / swapped - 1) > tolerance


def pilot(n=400, labels=150, seed=0):
    rng = np.random.default_rng(seed)
    good = rng.random((2, n)) < np.array([[0.5], [0.75]])
    judged = np.where(good, rng.random((2, n)) < 0.9, rng.random((2, n)) < 0.25)
    oracle = np.where(np.arange(n) < labels, good.astype(float), np.nan)
    oracle[1] = np.nan
    return from_arrays(judged.astype(float), policies=["base", "other"], oracle=oracle)


def test_a_pilot_is_read():
    found = binary_split(pilot(), 1000, 200)
    at = found.sel(policy="other")
    judge = Judge(*(float(at[name]) for name in ("theta", "sensitivity", "specificity", "share_good")))
    assert (int(at.m_good), int(at.m_bad)) == split_by_class(200, judge)
    np.testing.assert_allclose(
        at.std_error_verdict, variance_by_verdict(1000, *split_by_verdict(200, judge), judge) ** 0.5
    )
    assert (found.std_error_class <= found.std_error_random).all()
    labels = found.share_good.values
    floor, ceiling = stats.binom.ppf([1e-6, 1 - 1e-6], 150, 0.5) / 150
    assert (floor <= labels).all() and (labels <= ceiling).all()  # both rest on the labels of base
    graded = pilot()
    graded["judge"][0, 0, 0] = 0.5
    assert binary_split(graded, 1000, 200) is None
    assert binary_split(pilot(labels=3), 1000, 3) is None


def test_too_few_labels_to_split():
    with pytest.raises(ValueError, match="m=3: either kind needs 2 labels"):
        split_by_class(3, JUDGES[0])
