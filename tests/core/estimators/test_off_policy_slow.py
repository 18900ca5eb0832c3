"""Off-policy estimators against repeated sampling from an enumerable world with good overlap.

Each check that passes is run again with the standard error planted 20% too small, and must then fail.
"""

import numpy as np
import pytest
from bare_arrays import drawn, with_logs
from off_policy_numbers import values, with_intervals
from scipy import stats

from cje_core.estimators import (
    calibrated_dr_cpo,
    calibrated_ips,
    dr_cpo,
    ips,
    mrdr,
    snips,
    stacked_dr,
    tmle,
)
from cje_sim.scenarios import finite_model

N, FRACTION, N_REPLICATES = 800, 0.5, 1000
POLICIES = ["base", "far"]  # limit ESS / n of far: 0.6
ALPHA = 2 * stats.norm.sf(5)  # two-sided probability of five standard errors
PLANTED = 0.8

METHODS = {
    "snips": (snips, {}),  # and capped_ips: no weight reaches its cap of 28 here
    "ips": (ips, {}),
    "calibrated_ips": (calibrated_ips, {"borrowed": "plug_in"}),  # else refused, see its module
    "dr_cpo": (dr_cpo, {}),
    "calibrated_dr_cpo": (calibrated_dr_cpo, {}),
    "tmle": (tmle, {}),
    "mrdr": (mrdr, {"weights": "raw"}),
    "stacked_dr": (stacked_dr, {}),
}
CONSISTENT = [name for name in METHODS if name != "calibrated_ips"]


WORLD = {"n": N, "oracle_fraction": FRACTION, "label_design": "base"}


def simulate(r):
    return with_logs(drawn(finite_model, r, **WORLD), POLICIES)


def test_the_numbers_are_those_of_the_estimators():
    data = finite_model.simulate(**WORLD, rng=0).sel(policy=POLICIES)
    for name, found in with_intervals(values(simulate(0), METHODS, POLICIES, fresh=True)).items():
        module, options = METHODS[name]
        wanted = module.estimate(data, **options)
        for part, number in found._asdict().items():
            np.testing.assert_array_equal(number, wanted[part].values)


@pytest.fixture(scope="module")
def replicates():
    """Per method: estimates, standard errors and whether the interval covers, each (replicate, policy)."""
    truth = finite_model.truth().sel(policy=POLICIES).values
    found = [values(simulate(r), METHODS, POLICIES, fresh=True) for r in range(N_REPLICATES)]
    out = {}
    for name, (estimate, std_error, interval) in with_intervals(found).items():
        out[name] = estimate, std_error, (interval[..., 0] <= truth) & (truth <= interval[..., 1])
    return out


def calibrated(estimates, std_errors):
    """Whether mean SE^2 over the variance of the estimates is 1 within five Monte Carlo errors, policy by policy."""
    squared = std_errors**2
    ratio = squared.mean(axis=0) / estimates.var(axis=0, ddof=1)
    spread = squared.var(axis=0) / squared.mean(axis=0) ** 2 / N_REPLICATES
    return np.abs(ratio - 1) < 5 * ratio * np.sqrt(2 / (N_REPLICATES - 1) + spread)


def within(count, probability):
    """Whether a binomial count lies inside its exact five-sigma bounds."""
    low, high = stats.binom.ppf([ALPHA / 2, 1 - ALPHA / 2], N_REPLICATES, probability)
    return (low <= count) & (count <= high)


def bias(replicates, method):
    """Bias in Monte Carlo standard errors, policy by policy."""
    estimates = replicates[method][0]
    truth = finite_model.truth().sel(policy=POLICIES).values
    return (estimates.mean(axis=0) - truth) / (estimates.std(axis=0, ddof=1) / np.sqrt(N_REPLICATES))


@pytest.mark.slow
@pytest.mark.parametrize("method", CONSISTENT)
def test_unbiased_for_the_enumerated_truth(replicates, method):
    assert (np.abs(bias(replicates, method)) < 5).all()


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_standard_error_is_the_spread_of_the_estimates(replicates, method):
    estimates, std_errors, _ = replicates[method]
    assert calibrated(estimates, std_errors).all()
    assert not calibrated(estimates, PLANTED * std_errors).any()


@pytest.mark.slow
@pytest.mark.parametrize("method", CONSISTENT)
def test_intervals_keep_their_level(replicates, method):
    estimates, std_errors, covered = replicates[method]
    assert within(covered.sum(axis=0), 0.95).all()
    truth = finite_model.truth().sel(policy=POLICIES).values
    planted = np.abs(estimates - truth) < 1.96 * PLANTED * std_errors
    assert not within(planted.sum(axis=0), 0.95).any()


@pytest.mark.slow
def test_stabilised_importance_sampling_is_biased_towards_the_logger(replicates):
    """Even with good overlap: the stack may take the constant weight, whose value is the logger's."""
    base, far = bias(replicates, "calibrated_ips")
    assert abs(base) < 5
    assert far < -20
    assert replicates["calibrated_ips"][2][:, 1].mean() < 0.5


@pytest.mark.slow
def test_stack_is_no_more_variable_than_its_members(replicates):
    """Asymptotically at most the best member's variance; here within five Monte Carlo errors of a variance ratio."""
    variance = {
        name: replicates[name][0].var(axis=0, ddof=1) for name in ("calibrated_dr_cpo", "tmle", "stacked_dr")
    }
    best = np.minimum(variance["calibrated_dr_cpo"], variance["tmle"])
    assert (variance["stacked_dr"] < best * (1 + 5 * np.sqrt(2 / (N_REPLICATES - 1)))).all()
