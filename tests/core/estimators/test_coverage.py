"""Standard errors and intervals against repeated sampling from a world with exact truth.

Each check that passes is run again with the standard error planted 20% too small, and must then fail. Data sets come in
blocks where every label is one policy's own.
"""

from itertools import combinations

import numpy as np
import pytest
from bare_arrays import Numbers, direct_numbers, drawn, numbers, rows_of
from blocks import on_block
from scipy import stats

from cje_core.calibration.calibrated import calibrated as fit_once
from cje_core.calibration.oracle_slice import fit_slice
from cje_core.estimators import direct, direct_corrected, labels_only, raw_judge
from cje_core.estimators.direct_corrected import probe_value
from cje_core.families.direct.fit import Options
from cje_core.inference.estimate import wald
from cje_core.transport.audit import audit, mean_residual
from cje_sim.scenarios import well_specified

N_REPLICATES, PER_BLOCK = 1000, 50
ALPHA = 2 * stats.norm.sf(5)  # two-sided probability of five standard errors
PLANTED = 0.8
EXCESS = 1.046  # (.003), both variances on 500 other data sets of the same design

METHODS = {
    "raw_judge": (raw_judge, {}),
    "labels_only": (labels_only, {}),
    "direct": (direct, {}),
    "theta_aug": (direct, {"power_tuned": False, "borrowed": "plug_in"}),
    "plug_in_naive": (direct, {"inference": "cluster", "correction": "none"}),
    "bootstrap": (direct, {"inference": direct.Bootstrap(n=100), "power_tuned": False}),
    "direct_corrected": (direct_corrected, {"tuned": False}),  # the tuned one has tests of its own
}


# labels of the base policy only, and probes of the others
AUDITED = {"n": 600, "oracle_fraction": 0.25, "label_design": "base", "n_probes": 60}


def draw(r):
    found = drawn(well_specified, r, **AUDITED)
    return rows_of(found.score, **found.fields)


def found(rows):
    """What each method, and the audit, says of rows: their array-level cores, without a labelled shell."""
    fitted, policies = fit_slice(rows, every_fold=False), range(len(rows.policies))
    known = Options(inference="cluster", correction="none")
    probed = [probe_value(rows, fitted, p, tuned=False).result for p in policies]
    out = {
        "theta_aug": direct_numbers(rows, fitted, Options(power_tuned=False)),
        "plug_in_naive": direct_numbers(rows, fitted, known),
        "direct_corrected": numbers(rows, probed, behind=rows.probe),
    }
    probes = [np.flatnonzero(rows.probe & (rows.policy == p)) for p in policies]
    left = [mean_residual(rows, fitted, at) if len(at) else None for at in probes]
    parts = np.array(
        [
            (np.nan,) * 3 if one is None else (one.value, one.std_error_with_fit, one.df_with_fit)
            for one in left
        ]
    )
    return out | {"audit": Numbers(*parts.T, wald(*parts.T, 0.95))}


def test_the_numbers_are_those_of_the_estimators():
    data = well_specified.simulate(**AUDITED, rng=0)
    fitted, policies = fit_once(data), sorted(data.policy.values.tolist())
    report = audit(fitted)
    wanted = {
        name: METHODS[name][0].estimate(fitted, **METHODS[name][1]) for name in ("theta_aug", "plug_in_naive")
    }
    wanted["direct_corrected"] = direct_corrected.estimate(fitted, tuned=False)
    with_fit = {name: report[f"{name}_with_fit"] for name in ("std_error", "df")}
    # by t: the room that PASS asks for has tests of its own
    by_t = wald(report.residual, with_fit["std_error"], with_fit["df"], 0.95)
    with_fit["interval"] = report["interval"].copy(data=by_t)
    wanted["audit"] = report.assign(with_fit | {"estimate": report.residual})
    bare = found(draw(0))
    assert set(bare) == set(wanted)
    for name, one in bare.items():
        for part, values in one._asdict().items():
            np.testing.assert_allclose(values, wanted[name][part].sel(policy=policies), rtol=1e-12)


def simulate():
    """Estimates, standard errors and coverage indicators, each (method) -> array (replicate, policy)."""
    truth = well_specified.truth().sortby("policy").values
    out = {}
    for r in range(N_REPLICATES):
        for name, one in found(draw(r)).items():
            target = np.zeros(len(truth)) if name == "audit" else truth
            record(out.setdefault(name, ([], [], [])), one.estimate, one, target)
    return {name: tuple(map(np.array, triple)) for name, triple in out.items()}


def simulate_blocks(methods, *, n, fraction):
    """The same for labels of all policies, and the differences of `theta_aug`."""
    out = {name: ([], [], []) for name in [*methods, "contrasts"]}
    for seed in range(0, N_REPLICATES, PER_BLOCK):
        rngs = [np.random.default_rng(seed + r) for r in range(PER_BLOCK)]
        block = well_specified.simulate.block(rngs, n=n, oracle_fraction=fraction, label_design="own")
        target = well_specified.truth().sel(policy=list(block.policies)).values
        for name in methods:
            module, options = METHODS[name]
            drawn = (np.random.default_rng(seed + r) for r in range(PER_BLOCK))
            result = on_block(module, block, ci_prob=0.95, rngs=drawn, **options)
            record(out[name], result.estimate, result, target)
            if name == "theta_aug":
                first, second = np.array(list(combinations(range(len(target)), 2))).T
                pairs = result.pairs(first, second, 0.95)
                record(out["contrasts"], pairs.difference, pairs, target[first] - target[second])
    return {name: tuple(map(np.concatenate, triple)) for name, triple in out.items()}


def record(triple, estimate, result, target):
    interval = np.asarray(result.interval)
    triple[0].append(estimate)
    triple[1].append(np.asarray(result.std_error))
    triple[2].append((interval[..., 0] <= target) & (target <= interval[..., 1]))


@pytest.fixture(scope="module")
def own():
    methods = ["raw_judge", "labels_only", "direct", "theta_aug", "bootstrap"]
    return simulate_blocks(methods, n=400, fraction=0.25)


@pytest.fixture(scope="module")
def borrowed():
    return simulate()


def within(count, probability):
    """Whether a binomial count lies inside its exact five-sigma bounds."""
    low, high = stats.binom.ppf([ALPHA / 2, 1 - ALPHA / 2], N_REPLICATES, probability)
    return (low <= count) & (count <= high)


def variance_ratio(estimates, std_errors):
    """Mean SE^2 over the variance of the estimates, and five Monte Carlo standard errors of that ratio."""
    squared = std_errors**2
    ratio = squared.mean(axis=0) / estimates.var(axis=0, ddof=1)
    spread = squared.var(axis=0) / squared.mean(axis=0) ** 2 / N_REPLICATES
    return ratio, 5 * ratio * np.sqrt(2 / (N_REPLICATES - 1) + spread)


def calibrated(estimates, std_errors):
    """Whether the standard errors are right: ratio 1 within five MCSE, policy by policy."""
    ratio, noise = variance_ratio(estimates, std_errors)
    return np.abs(ratio - 1) < noise


def not_too_small(estimates, std_errors):
    """Whether the ratio is at least 0.9 within five MCSE, policy by policy.

    For what rests on the infinitesimal jackknife of an isotonic fit, which holds to first order: at 150 labels it is
    within 10% below, and conservative for a policy that lives where the slice has few labels (it converges to 1: at
    n = 2,400 the worst ratio was 1.29 where n = 600 gave 1.47).
    """
    ratio, noise = variance_ratio(estimates, std_errors)
    return ratio > 0.9 - noise


@pytest.mark.slow
@pytest.mark.parametrize("method", ["raw_judge", "labels_only", "direct", "theta_aug", "contrasts"])
def test_standard_errors_of_labelled_policies(own, method):
    estimates, std_errors, _ = own[method]
    assert calibrated(estimates, std_errors).all()
    assert not calibrated(estimates, PLANTED * std_errors).any()


@pytest.mark.slow
def test_bootstrap_standard_error_errs_on_the_wide_side(own):
    """Refitting five folds inside each replicate adds noise: its variance is `EXCESS` times influence's."""
    estimates, std_errors, _ = own["bootstrap"]

    def as_measured(factor):
        ratio, noise = variance_ratio(estimates, factor * std_errors)
        return np.abs(ratio - EXCESS) < noise

    assert as_measured(1.0).all()
    assert not as_measured(PLANTED).any() and not as_measured(1 / PLANTED).any()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["labels_only", "direct", "theta_aug", "contrasts"])
def test_coverage_of_labelled_policies(own, method):
    assert within(own[method][2].sum(axis=0), 0.95).all()


@pytest.mark.slow
def test_bootstrap_coverage_is_at_least_nominal(own):
    hits = own["bootstrap"][2].sum(axis=0)
    assert (hits >= stats.binom.ppf(ALPHA / 2, N_REPLICATES, 0.95)).all()


@pytest.mark.slow
def test_raw_judge_never_covers(own):
    """Its error is bias: the interval is honest about the wrong number."""
    assert (own["raw_judge"][2].mean(axis=0) < 0.01).all()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["theta_aug", "direct_corrected", "audit"])
def test_errors_that_include_the_fit_of_the_calibrator(borrowed, method):
    first = 0 if method == "theta_aug" else 1  # the base policy has no probes
    estimates, std_errors, hits = (values[:, first:] for values in borrowed[method])
    assert not_too_small(estimates, std_errors).all()
    assert not not_too_small(estimates, PLANTED * std_errors).all()
    low = stats.binom.ppf(ALPHA / 2, N_REPLICATES, 0.94)
    assert (hits.sum(axis=0) >= low).all()


@pytest.mark.slow
def test_treating_the_calibrator_as_known_under_covers(borrowed):
    assert (borrowed["plug_in_naive"][2].mean(axis=0) < 0.9).all()
