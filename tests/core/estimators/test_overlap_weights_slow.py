"""Overlap weights against repeated sampling from an enumerable world: unbiased for their own estimand, and covering it.

The checks that pass are run again with the standard error planted 20% too small, and must then fail.
"""

import numpy as np
import pytest
from bare_arrays import drawn, with_logs
from off_policy_numbers import values, with_intervals
from oracles_ope import overlap_population
from scipy import stats

from cje_core.estimators import overlap_weights
from cje_sim.scenarios import finite_model

N, FRACTION, N_REPLICATES = 500, 0.4, 2000
POLICIES = ["base", "far", "tilted"]
ALPHA = 2 * stats.norm.sf(5)  # two-sided probability of five standard errors
PLANTED = 0.8
METHODS = {"overlap_weights": (overlap_weights, {})}


WORLD = {"n": N, "oracle_fraction": FRACTION, "label_design": "base"}


def simulate(r):
    return with_logs(drawn(finite_model, r, **WORLD), POLICIES)


def test_the_numbers_are_those_of_the_estimator():
    found = with_intervals(values(simulate(0), METHODS, POLICIES, fresh=False))["overlap_weights"]
    wanted = overlap_weights.estimate(finite_model.simulate(**WORLD, rng=0)).sel(policy=POLICIES)
    for part, number in found._asdict().items():
        np.testing.assert_array_equal(number, wanted[part].values)


@pytest.fixture(scope="module")
def replicates():
    """Estimates, standard errors and intervals, (replicate, policy[, 2])."""
    found = [values(simulate(r), METHODS, POLICIES, fresh=False) for r in range(N_REPLICATES)]
    return tuple(with_intervals(found)["overlap_weights"])


def truth():
    return np.array([overlap_population(policy)[0] for policy in POLICIES])


@pytest.mark.slow
def test_unbiased_for_the_overlap_population_and_not_for_the_value(replicates):
    estimate = replicates[0]
    mcse = estimate.std(axis=0, ddof=1) / np.sqrt(N_REPLICATES)
    assert (np.abs(estimate.mean(axis=0) - truth()) < 5 * mcse).all()
    value = finite_model.truth().sel(policy="far").item()
    assert abs(estimate.mean(axis=0) - value)[1] > 5 * mcse[1]


@pytest.mark.slow
def test_standard_error_is_the_spread_of_the_estimates(replicates):
    """Five Monte Carlo errors of the ratio of variances: chi-square of the empirical, spread of the reported."""
    estimate, std_error, _ = replicates

    def right(error):
        squared = error**2
        ratio = squared.mean(axis=0) / estimate.var(axis=0, ddof=1)
        spread = squared.var(axis=0) / squared.mean(axis=0) ** 2 / N_REPLICATES
        return np.abs(ratio - 1) < 5 * ratio * np.sqrt(2 / (N_REPLICATES - 1) + spread)

    assert right(std_error).all()
    assert not right(PLANTED * std_error).any()


@pytest.mark.slow
def test_intervals_keep_their_level(replicates):
    """Between the exact five-sigma bounds of a binomial of 95%, which lie within 92.4 and 97.2%."""
    estimate, std_error, interval = replicates
    low, high = stats.binom.ppf([ALPHA / 2, 1 - ALPHA / 2], N_REPLICATES, 0.95) / N_REPLICATES
    assert low > 0.92 and high < 0.975
    covered = ((interval[..., 0] <= truth()) & (truth() <= interval[..., 1])).mean(axis=0)
    assert ((low <= covered) & (covered <= high)).all(), covered
    planted = (np.abs(estimate - truth()) < 1.96 * PLANTED * std_error).mean(axis=0)
    assert (planted < low).all()
