"""Coverage of every kind of interval of Direct by repeated sampling: n = 1000, 50 and 250 labels, four worlds.

One simulated data set serves both label designs: its labels of all policies ("own"), and those of the base policy
alone ("borrowed"). The array-level functions run without their labelled shells, 2,000 data sets a cell, so a coverage
of 95% is known to within a Monte Carlo standard error of 0.5 points and the stated bands are 4 of them away.
"""

from functools import lru_cache

import numpy as np
import pytest

from cje_core.calibration.informative import Informative
from cje_core.calibration.oracle_slice import fit_slice
from cje_core.data.arrays import unpack
from cje_core.families.direct.bootstrap import bootstrap_direct
from cje_core.families.direct.bootstrap_intervals import bootstrap_rows
from cje_core.families.direct.fit import Lender, Options, fit_policy, make_lender
from cje_core.inference.estimate import cluster_se, percentile, wald
from cje_sim.scenarios import binary_oracle, discrete_judge, weak_judge, well_specified

N, N_REPLICATES = 1000, 2000
N_BOOT = 200  # quantiles of 200 draws cost half a point of coverage at most
N_TUNED, N_TUNED_BOOT = 1000, 500
WORLDS = {
    "well_specified": well_specified,
    "discrete_judge": discrete_judge,
    "weak_judge": weak_judge,
    "binary_oracle": binary_oracle,
}
CELLS = [(world, m) for world in WORLDS for m in (50, 250)]
OWN = {
    "influence": Options(),  # the default
    "theta_aug": Options(power_tuned=False),
    "tmle": Options(power_tuned=False, correction="tmle"),
    # the paper's baselines: plug-in, f taken as known; and with the delete-one-fold variance, 1.96
    "cluster": Options(correction="none", inference="cluster"),
    "jackknife": Options(correction="none", inference="jackknife", quantile="normal"),
}
VALUE, ERROR, LOWER, UPPER, TARGET = range(5)


def never_refuses(lender):
    """What a method covers is asked of every data set, not of those where a borrowed value would be printed."""
    if lender is None:  # a plug-in needs none
        return None
    boundless = lender.lesson._replace(n_clusters=0)  # whose allowance is more than all responses
    return Lender(Informative(1.0, 0.0, True), boundless)


@lru_cache
def simulate(world, m):
    """Per method an array (replicate, 5): value, standard error, interval, target."""
    scenario = WORLDS[world]
    truth = scenario.truth()
    names = sorted(truth.policy.values.tolist())
    target = truth.sel(policy=names).values
    base, high, low = (names.index(name) for name in ("base", "better", "worse"))
    out = {}

    def record(name, value, std_error, interval, goal):
        out.setdefault(name, []).append((value, std_error, *interval, goal))

    def student(name, value, std_error, df, goal):
        record(name, value, std_error, wald(value, std_error, df, 0.95), goal)

    for r in range(N_REPLICATES):
        rows = unpack(scenario.simulate(n=N, oracle_fraction=m / N, rng=r))
        rows = rows._replace(teaches=rows.labelled & (rows.policy == base))
        fitted = fit_slice(rows)
        for name, options in OWN.items():
            fit = fit_policy(rows, fitted, base, options)
            student(name, fit.result.value, fit.result.std_error, fit.result.df, target[base])
            if name == "theta_aug":
                arrays = bootstrap_rows(rows, fitted, [fit] * (base + 1), [base], options)
                draws = bootstrap_direct(arrays, N_BOOT, np.random.default_rng(r)).draws
                interval = percentile(draws, [fit.result.value], 0.95)[0]
                record("bootstrap", fit.result.value, draws.std(ddof=1), interval, target[base])
        for form in ("plug_in", "one_step"):
            options = Options(correction="none", borrowed=form)
            lender = never_refuses(make_lender(rows, fitted, options))
            a, b = (fit_policy(rows, fitted, p, options, lender).result for p in (high, low))
            student(f"{form} high", a.value, a.std_error, a.df, target[high])
            student(f"{form} low", b.value, b.std_error, b.df, target[low])
            error = float(cluster_se(a.influence - b.influence, rows.cluster))
            student(f"{form} contrast", a.value - b.value, error, min(a.df, b.df), target[high] - target[low])
    return {name: np.array(cell) for name, cell in out.items()}


@lru_cache
def tuned_bootstrap(world, m):
    """Like `simulate`, for the bootstrap of the estimate as shipped (power-tuned): fewer data sets, more draws."""
    scenario = WORLDS[world]
    truth = scenario.truth()
    base = sorted(truth.policy.values.tolist()).index("base")
    target = float(truth.sel(policy="base"))
    options = Options(inference="bootstrap")
    out = []
    for r in range(N_TUNED):
        rows = unpack(scenario.simulate(n=N, oracle_fraction=m / N, rng=r))
        rows = rows._replace(teaches=rows.labelled & (rows.policy == base))
        fitted = fit_slice(rows)
        fit = fit_policy(rows, fitted, base, options)
        arrays = bootstrap_rows(rows, fitted, [fit] * (base + 1), [base], options)
        draws = bootstrap_direct(arrays, N_TUNED_BOOT, np.random.default_rng(r)).draws
        value = fit.result.value
        out.append((value, draws.std(ddof=1), *percentile(draws, [value], 0.95)[0], target))
    return np.array(out)


def coverage(cell, *, shrink=1.0, centered=False):
    """Share of intervals that hold the target; `shrink` plants a wrong standard error, `centered` removes the bias."""
    value, target = cell[:, VALUE], cell[:, TARGET]
    low, high = (value + shrink * (cell[:, end] - value) for end in (LOWER, UPPER))
    goal = target + (value - target).mean() * centered
    return float(((low <= goal) & (goal <= high)).mean())


@pytest.mark.slow
@pytest.mark.parametrize(("world", "m"), CELLS)
@pytest.mark.parametrize("method", ["influence", "theta_aug", "tmle"])
def test_default_theta_aug_and_tmle_keep_their_level(world, m, method):
    """Within [93, 97]%; with the standard error planted 20% too small, not."""
    cell = simulate(world, m)[method]
    assert 0.93 <= coverage(cell) <= 0.97
    assert coverage(cell, shrink=0.8) < 0.93


@pytest.mark.slow
@pytest.mark.parametrize(("world", "m"), CELLS)
def test_bootstrap_that_refits_keeps_its_level_or_errs_on_the_wide_side(world, m):
    """Within [93, 98.5]%: refitting five folds inside each replicate adds noise at 50 labels."""
    cell = simulate(world, m)["bootstrap"]
    assert 0.93 <= coverage(cell) <= 0.985
    assert coverage(cell, shrink=0.8) < 0.93


@pytest.mark.slow
def test_power_tuned_bootstrap_keeps_its_level():
    """Within [93, 98.5]% with 50 labels: the weights of the tuned prediction are not drawn again."""
    cell = tuned_bootstrap("well_specified", 50)
    assert 0.93 <= coverage(cell) <= 0.985
    assert coverage(cell, shrink=0.8) < 0.93


@pytest.mark.slow
@pytest.mark.parametrize(("world", "m"), CELLS)
def test_the_papers_ordering(world, m):
    """F taken as known under 60% with 50 labels; the fold jackknife above it and below the bootstrap."""
    out = simulate(world, m)
    known, jackknife, bootstrap = (coverage(out[name]) for name in ("cluster", "jackknife", "bootstrap"))
    assert known < jackknife < bootstrap
    if m == 50:
        assert known < 0.6


# of these 50 labels two lie where the low policy's scores do: no method can know its level there
SPARSE = ("discrete_judge", 50)


@pytest.mark.slow
@pytest.mark.parametrize(("world", "m"), [cell for cell in CELLS if cell != SPARSE])
@pytest.mark.parametrize("what", ["high", "low", "contrast"])
def test_one_step_of_borrowed_policies_and_their_contrast_keep_their_level(world, m, what):
    """The policies at the two ends of the judge's scale, labels of the base policy only."""
    assert 0.93 <= coverage(simulate(world, m)[f"one_step {what}"]) <= 0.985


@pytest.mark.slow
def test_one_step_where_two_labels_support_the_low_policy():
    """Its level and the contrast are 4 points short of 95%, by a bias and a standard error that is too small; within
    5 Monte Carlo standard errors of 91%. The high policy, where the labels are, keeps its level.
    """
    out = simulate(*SPARSE)
    noise = 5 * np.sqrt(0.91 * 0.09 / N_REPLICATES)
    for what in ("low", "contrast"):
        cell = out[f"one_step {what}"]
        assert abs(coverage(cell) - 0.91) < noise
        assert abs(coverage(cell, shrink=0.8) - 0.91) > noise
        assert 0.5 < cell[:, ERROR].mean() / (cell[:, VALUE] - cell[:, TARGET]).std() < 0.75
    assert 0.93 <= coverage(out["one_step high"]) <= 0.985


# share of the plug-in contrast's bias that the one-step leaves, with the other sign (measured .46, .56; .84, .66)
BIAS_LEFT = {"weak_judge": 2 / 3, "binary_oracle": 0.9}


@pytest.mark.slow
@pytest.mark.parametrize("world", ["weak_judge", "binary_oracle"])
@pytest.mark.parametrize("m", [50, 250])
def test_borrowed_plug_ins_are_driven_apart(world, m):
    """Why the one-step exists: the contrast of two plug-ins is biased away from zero, at 250 labels too."""
    cell = simulate(world, m)["plug_in contrast"]
    error = cell[:, VALUE] - cell[:, TARGET]
    assert error.mean() > 5 * error.std() / np.sqrt(N_REPLICATES)
    assert coverage(cell) < 0.9
    corrected = simulate(world, m)["one_step contrast"]
    left = (corrected[:, VALUE] - corrected[:, TARGET]).mean()
    assert -BIAS_LEFT[world] * error.mean() < left < 0
