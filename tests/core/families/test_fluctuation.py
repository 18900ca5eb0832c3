"""Targeting (TMLE) of Direct: near the augmented mean, inside the range, and right where the prediction is wrong."""

import numpy as np
import pytest
from oracles_uncertainty import table
from statsmodels.genmod.families import Binomial
from statsmodels.genmod.generalized_linear_model import GLM

from cje_core.data import DataError, from_arrays
from cje_core.estimators import direct
from cje_core.families.fluctuation import fluctuate, targeted
from cje_core.io import from_frame


@pytest.mark.slow
def test_tmle_agrees_with_theta_aug_to_first_order():
    """The difference is of the order of the squared error: at four times the labels it falls fourfold, not by half."""
    rng = np.random.default_rng(0)
    gap, error = [], []
    for m in (100, 400, 1600):
        differences, std_errors = [], []
        for _ in range(40):
            score = rng.uniform(size=4 * m)
            label = np.where(np.arange(4 * m) < m, rng.beta(1 + 6 * score, 7 - 6 * score), np.nan)
            data = from_arrays(score[None], policies=["a"], oracle=label[None])
            one, two = (direct.estimate(data, correction=c, power_tuned=False) for c in ("theta_aug", "tmle"))
            differences.append((one.estimate - two.estimate).item())
            std_errors.append(one.std_error.item())
            np.testing.assert_allclose(two.std_error, one.std_error, rtol=0.1)
        gap.append(np.sqrt(np.mean(np.square(differences))))
        error.append(np.mean(std_errors))
    assert gap[0] < 0.2 * error[0]
    rates = np.diff(np.log(gap)) / np.log(4)
    assert (rates < -0.7).all()  # first order would be -1/2
    assert np.diff(np.log(error)) / np.log(4) == pytest.approx(-0.5, abs=0.1)


def test_tmle_stays_in_the_range_where_theta_aug_leaves_it():
    """Predictions near the top and the few labels below it: the residual pushes theta_aug past 1."""
    n, m = 200, 20
    score = np.r_[np.full(m // 2, 0.1), np.full(m // 2, 0.9), np.full(n - m, 0.9)]
    label = np.r_[np.linspace(0.3, 0.5, m // 2), np.full(m // 2, 1.0), np.full(n - m, np.nan)]
    label[:3] = 1.0
    data = from_arrays(score[None], policies=["a"], oracle=label[None])
    step = direct.estimate(data, power_tuned=False, interval="wald")
    tmle = direct.estimate(data, correction="tmle", power_tuned=False)
    logit = direct.estimate(data, interval="logit", power_tuned=False)
    assert tmle.estimate <= 1
    assert step.interval.sel(ci_bound="upper") > 1 >= logit.interval.sel(ci_bound="upper")


def test_pitfall_04_the_fluctuation_reaches_the_evaluated_rows():
    """Predictions 0.2 too low everywhere: the targeted mean over rows without labels is lifted, not just residuals."""
    guess, label = np.full(50, 0.3), np.full(20, 0.5) + np.tile([-0.1, 0.1], 10)
    one = np.ones
    lifted, own = targeted(guess, one(50), guess[:20], one(20), label, one(20), (0.0, 1.0))
    np.testing.assert_allclose(lifted, 0.5, atol=1e-12)
    np.testing.assert_allclose((label - own).sum(), 0, atol=1e-10)


def test_the_fluctuation_is_the_logistic_regression_of_statsmodels():
    """One coefficient beside an offset, by maximum likelihood. Planted once: with the factor H left out of the score it
    fails.
    """
    rng = np.random.default_rng(3)
    offset, clever, outcome = rng.normal(0, 1, 60), 1 / rng.uniform(0.2, 1, 60), rng.beta(2, 1, 60)
    weight = clever * rng.uniform(0.5, 2, 60)
    fit = GLM(outcome, clever, Binomial(), offset=offset, var_weights=weight / clever).fit(tol=1e-13)
    assert fluctuate(offset, clever, outcome, weight, 60) == pytest.approx(fit.params[0], rel=1e-9)


def test_targeting_all_ones_gives_the_end_of_the_range():
    one = np.ones
    lifted, _ = targeted(
        np.full(5, 2.0), one(5), np.full(4, 2.0), one(4), np.full(4, 3.0), one(4), (1.0, 3.0)
    )
    np.testing.assert_allclose(lifted, 3.0)


@pytest.mark.slow
def test_tmle_is_doubly_robust_in_a_wrong_prediction():
    """Known unequal probabilities and a calibrator that cannot see what drives them: the score equation repairs it."""
    rng = np.random.default_rng(3)
    n, reps = 2000, 60
    estimates = {"tmle": [], "none": []}
    for _ in range(reps):
        x = rng.integers(0, 2, n)
        label = np.clip(0.2 + 0.6 * x + rng.normal(0, 0.05, n), 0, 1)
        prob = np.where(x == 1, 0.1, 0.4)
        seen = rng.uniform(size=n) < prob
        data = from_arrays(
            np.full((1, n), 0.5) + rng.uniform(0, 0.1, (1, n)),  # a judge that knows nothing
            policies=["a"],
            oracle=np.where(seen, label, np.nan)[None],
            label_prob=prob[None],
        )
        for c in estimates:
            estimates[c].append(direct.estimate(data, correction=c, power_tuned=False).estimate.item())
    mean, spread = np.mean(estimates["tmle"]), np.std(estimates["tmle"]) / np.sqrt(reps)
    assert abs(mean - 0.5) < 5 * spread < 0.05


def test_tmle_needs_the_probability_of_every_response():
    frame = table(policies=("a",))
    frame["label_prob"] = np.where(frame.oracle_label.notna(), 0.5, np.nan)
    data = from_frame(frame)
    with pytest.raises(DataError, match="label_prob is missing"):
        direct.estimate(data, correction="tmle")
    assert np.isfinite(direct.estimate(data).estimate).all()
