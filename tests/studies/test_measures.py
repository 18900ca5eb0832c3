"""Performance measures and their MCSE against loops, textbook formulas, the jackknife and repeated studies."""

import re
from pathlib import Path

import numpy as np
import oracles_study as oracles
import pandas as pd
import pytest
import xarray as xr
from scipy import stats

from cje_core.inference.estimate import Status
from studies.engine.measures import (
    MEASURES,
    PROPORTIONS,
    REGISTRY,
    clopper_pearson,
    compute,
    flat_error,
    long_table,
    paired_table,
    performance,
    share_error,
    side_by_side,
    summary_table,
)
from studies.engine.outcome import CRASHED, NOT_RUN
from studies.engine.study import StudyError
from studies.report.page import with_mcse

REFERENCE = Path(__file__).parents[1] / "reference"
Z = stats.norm.ppf(0.975)


def results(estimate, std_error, interval, truth, status=None, ci_prob=0.95):
    """Study results with one factor of one level; arrays (R, M, P), truth (R, P)."""
    runs, methods, policies = estimate.shape
    dims = ("world", "replicate", "method", "policy")
    return xr.Dataset(
        {
            "estimate": (dims, estimate[None]),
            "std_error": (dims, std_error[None]),
            "interval": ((*dims, "ci_bound"), interval[None]),
            "truth": (("world", "replicate", "policy"), truth[None]),
            "status": (dims, np.zeros((1, *estimate.shape), int) if status is None else status[None]),
        },
        coords={
            "world": ["only"],
            "method": [f"m{k}" for k in range(methods)],
            "policy": [f"p{k}" for k in range(policies)],
            "replicate": np.arange(runs),
        },
        attrs={"ci_prob": ci_prob},
    )


def wald(estimate, std_error):
    return np.stack([estimate - Z * std_error, estimate + Z * std_error], axis=-1)


def random_results(rng, runs=60, policies=2, failures=True):
    """Skewed errors, a truth that differs between replicates, failures of three kinds, replicates not run."""
    truth = np.round(rng.normal(size=(runs, policies)), 3)
    estimate = truth[:, None] + rng.exponential(0.3, (runs, 2, policies)) - 0.2
    std_error = rng.uniform(0.2, 0.4, estimate.shape)
    status = np.zeros(estimate.shape, int)
    if failures:
        status[-7:] = NOT_RUN
        status[3:6, 0] = CRASHED
        estimate[status < 0] = np.nan
        std_error[10, 1, 0] = np.nan  # an estimate without SE, so without interval
    return results(estimate, std_error, wald(estimate, std_error), truth, status)


def test_measures_equal_the_loops():
    ds = random_results(np.random.default_rng(1))
    out = performance(ds)
    for m, method in enumerate(ds["method"].values):
        for p, policy in enumerate(ds["policy"].values):
            expected = oracles.measures(
                ds["estimate"].values[0, :, m, p],
                ds["std_error"].values[0, :, m, p],
                ds["interval"].values[0, :, m, p],
                ds["truth"].values[0, :, p],
                ds["status"].values[0, :, m, p],
                0.95,
            )
            assert set(expected) == set(MEASURES)
            for name, (value, mcse) in expected.items():
                at = {"measure": name, "world": "only", "method": method, "policy": policy}
                np.testing.assert_allclose(out["value"].sel(at), value, rtol=1e-12, err_msg=name)
                if mcse is not None:
                    np.testing.assert_allclose(
                        out["mcse"].sel(at), mcse, rtol=1e-12, atol=1e-15, err_msg=name
                    )
    assert (out["replicates"] == 53).all()


@pytest.mark.parametrize("name", ["empirical_se", "se_calibration"])
def test_delta_method_agrees_with_the_jackknife(name):
    # for g(mean of e^2) they differ by the relative amount |g'' / g'| * k3 / k2 / n, k the cumulants of e^2: with
    # centred exponential e, k3 / k2 = 240 / 8, and g = 1 / sqrt gives 45 / n; twice that leaves room for the next term
    runs = 3000
    ds = random_results(np.random.default_rng(2), runs=runs, failures=False)
    error = (ds["estimate"] - ds["truth"]).values[0, :, 0, 0]
    se = ds["std_error"].values[0, :, 0, 0]
    statistic = {
        "empirical_se": lambda e, s: e.std(ddof=1),
        "se_calibration": lambda e, s: np.sqrt((s**2).mean()) / e.std(ddof=1),
    }[name]
    at = {"measure": name, "world": "only", "method": "m0", "policy": "p0"}
    mcse = float(performance(ds)["mcse"].sel(at))
    assert mcse == pytest.approx(oracles.jackknife_mcse(statistic, error, se), rel=2 * 45 / runs)


def test_normal_errors_give_the_formulas_of_morris_white_crowther():
    # the MCSE rests on fourth moments: for Normal errors var((e - mean)^2) has relative SE sqrt(14 / n), its root half
    runs = 20_000
    rng = np.random.default_rng(3)
    estimate = rng.normal(size=(runs, 1, 1))
    std_error = rng.uniform(0.8, 1.2, estimate.shape)
    out = performance(results(estimate, std_error, wald(estimate, std_error), np.zeros((runs, 1))))
    value, mcse = (out[v].squeeze(("world", "method", "policy")) for v in ("value", "mcse"))
    rel = 5 * np.sqrt(14 / runs) / 2
    empirical, model = float(value.sel(measure="empirical_se")), float(value.sel(measure="model_se"))
    assert float(mcse.sel(measure="empirical_se")) == pytest.approx(
        empirical / np.sqrt(2 * (runs - 1)), rel=rel
    )
    spread = (std_error**2).var(ddof=1) / (4 * runs * model**4) + 1 / (2 * (runs - 1))
    expected = model / empirical * np.sqrt(spread)
    assert float(mcse.sel(measure="se_calibration")) == pytest.approx(expected, rel=rel)


@pytest.mark.slow
@pytest.mark.parametrize("pool", [False, True])
@pytest.mark.parametrize("refused", [0.0, 0.2])
def test_mcse_is_the_spread_over_repeated_studies(pool, refused):
    # 1500 studies of 80 replicates, policies correlated within a replicate: the mean squared MCSE must match the
    # variance of the value over studies. Both sides' errors are estimated from the studies themselves. A share of the
    # runs is refused, more often where the shared error is large, so that refusals vary and depend on what is measured.
    # Without the error of proportions that did not vary, which is no unbiased estimate of that spread.
    rng = np.random.default_rng(4)
    studies, runs, truth = 1500, 80, 1.0
    shared = rng.normal(size=(studies, runs, 1, 1))
    error = 0.1 + 0.8 * shared + 0.6 * rng.normal(size=(studies, runs, 1, 2))
    std_error = np.abs(error) * 0.1 + rng.uniform(0.7, 1.1, error.shape)  # correlated with the error
    error[rng.random(error.shape) < refused * (1 + np.sign(shared) / 2)] = np.nan
    std_error[np.isnan(error)] = np.nan
    estimate = np.moveaxis(truth + error, 1, 0)
    std_error = np.moveaxis(std_error, 1, 0)
    ran = np.ones(estimate.shape, bool)
    interval = wald(estimate, std_error)
    found = compute(estimate, std_error, interval, np.full(estimate.shape, truth), ran, 0.95)
    for name in MEASURES[:-1]:
        value, share, n = found[name]
        if pool:
            value, share, n = value.mean(axis=-1), share.mean(axis=-1), n.mean(axis=-1)
        else:
            value, share, n = value[..., 0], share[..., 0], n[..., 0]
        mcse2 = (share**2).sum(axis=0)
        some = np.isfinite(value) & np.isfinite(mcse2)  # a study may have one rejection, or none
        assert some.mean() > 0.99, name
        value, mcse2 = value[some], mcse2[some]
        square = (value - value.mean()) ** 2
        # what is constant could not fail
        silent = name == "failed" or (name in ("refused", "convergence") and not refused)
        assert square.any() or silent, name
        gap = square.mean() - mcse2.mean()
        noise = np.sqrt((square.var() + mcse2.var()) / studies)
        # the delta method is first-order: a relative bias of O(1 / replicates) comes on top of the Monte Carlo error
        assert abs(gap) <= 5 * noise + 3 / n.mean() * square.mean(), name


def test_each_measure_says_what_it_is_and_where_it_comes_from():
    assert tuple(REGISTRY) == MEASURES and MEASURES[-1] == "n_failed"
    for name, one in REGISTRY.items():
        assert one.name == name == one.of.__name__ and one.of.__doc__
        assert one.formula and re.search(r"\(\d{4}\)|\d{4}", one.source), name
    assert set(PROPORTIONS) == {name for name, one in REGISTRY.items() if one.kind == "proportion"}


def test_one_may_ask_for_some_measures():
    ds = random_results(np.random.default_rng(21))
    everything, some = performance(ds), performance(ds, measures=("power", "bias"))
    assert some["measure"].values.tolist() == ["power", "bias"]
    xr.testing.assert_identical(some, everything.sel(measure=["power", "bias"]))
    with pytest.raises(StudyError, match="no measure named 'biass'; there are: bias, "):
        performance(ds, measures=["biass"])


def published():
    """One cell of the data set relhaz (White 2010; Gasparini 2018), log-hazard ratio -0.5, and what simsum makes of it.

    Exponential model and Cox model on Weibull data of 50 patients, 100 data sets. Value and MCSE as Stata's simsum
    1.x and rsimsum 0.13 give them (relative bias and bias-eliminated coverage to four digits, as printed).
    """
    return {
        "cox": {
            "bias": (-0.028187, 0.031145), "relative_bias": (0.0564, 0.0623), "empirical_se": (0.311455, 0.022134),
            "mse": (0.096829, 0.011670), "model_se": (0.305190, 0.001369), "model_se_error": (-0.02011512, 0.06977589),
            "coverage": (0.97, 0.017059), "coverage_bias_free": (0.95, 0.0218), "power": (0.43, 0.049508),
        },
        "exp": {
            "bias": (0.150921, 0.020413), "relative_bias": (-0.3018, 0.0408), "empirical_se": (0.204130, 0.014507),
            "mse": (0.064030, 0.008278), "model_se": (0.288843, 0.000539), "model_se_error": (0.41499294, 0.10059389),
            "coverage": (0.99, 0.009950), "coverage_bias_free": (1.0, 0.0), "power": (0.09, 0.028618),
        },
    }  # fmt: skip


def relhaz():
    frame = pd.read_csv(REFERENCE / "relhaz.csv")
    estimate = frame[["cox", "exp"]].to_numpy()[:, :, None]
    std_error = frame[["cox_se", "exp_se"]].to_numpy()[:, :, None]
    return results(estimate, std_error, wald(estimate, std_error), np.full((len(frame), 1), -0.5))


def test_published_numbers_of_simsum():
    # Proportions there have n for our n - 1. The MCSEs of the empirical SE and of the model SE's error are those of
    # Normal estimates, which ours are near: their relative SE is sqrt(14 / n) / 2, see above.
    out = performance(relhaz()).isel(world=0, policy=0)
    n = 100
    for method, rows in zip(("m0", "m1"), published().values(), strict=True):
        for name, (value, mcse) in rows.items():
            at = {"measure": name, "method": method}
            digits = 4 if name in ("relative_bias", "coverage_bias_free") else 6
            assert float(out["value"].sel(at)) == pytest.approx(value, abs=1.1 * 0.5 * 10.0**-digits), name
            found = float(out["mcse"].sel(at))
            if name in ("empirical_se", "model_se_error"):
                assert found == pytest.approx(mcse, rel=5 * np.sqrt(14 / n) / 2), name
                continue
            if name in PROPORTIONS:
                if value == 1:  # there: 0
                    assert found == pytest.approx(oracles.distance_to_the_exact_bound(n))
                    continue
                found *= np.sqrt((n - 1) / n)
            assert found == pytest.approx(mcse, abs=1.1 * 0.5 * 10.0**-digits), name
    # the gain in precision over Cox is 132.795837%: the ratio of the empirical SEs, squared and turned round;
    # the data have six digits, so an SE of .2 and one of .31 are known to relative 2.5e-6 and 1.6e-6
    ratio = paired_table(relhaz(), "m0", (), ratios=("empirical_se",)).iloc[0]["empirical_se_ratio"]
    assert 100 * (ratio**-2 - 1) == pytest.approx(132.795837, abs=2 * 233 * 4.1e-6)


@pytest.mark.parametrize("pool", [False, True])
def test_jackknife_over_replicates_is_the_usual_error(pool):
    ds = random_results(np.random.default_rng(22), failures=False)
    one = performance(ds, pool=pool)
    two = performance(ds.assign(draw=ds["replicate"]), pool=pool, unit="draw")
    for name in ("bias", "relative_bias", "mse", "width", "interval_score", "coverage", "power", "miss_left"):
        at = {"measure": name}
        for part in ("value", "mcse", "bound"):
            np.testing.assert_allclose(one[part].sel(at), two[part].sel(at), rtol=1e-9, err_msg=name)


@pytest.mark.slow
def test_jackknife_over_units_is_the_spread_over_repeated_studies():
    """Four replicates on each of 30 drawn populations: taken as 120, they would seem to tell too much."""
    rng = np.random.default_rng(23)
    studies, units, each = 400, 30, 4
    shared = np.repeat(rng.normal(size=(studies, units, 1, 1)), each, axis=1)
    estimate = 1.0 + shared + 0.5 * rng.normal(size=(studies, units * each, 1, 1))
    se = np.full(estimate.shape[1:], np.sqrt(1.25))
    parts = [
        results(estimate[k], se, wald(estimate[k], se), np.ones((units * each, 1))).assign_coords(world=[k])
        for k in range(studies)
    ]
    draw = np.repeat(np.arange(units), each)
    ds = xr.concat(parts, "world").assign(draw=("replicate", draw))
    names = ["bias", "rmse", "empirical_se", "coverage", "power"]
    naive = performance(ds, measures=names)
    right = performance(ds, measures=names, unit="draw")
    for name in names:
        value = naive["value"].sel(measure=name).values
        square = (value - value.mean()) ** 2
        mcse2 = right["mcse"].sel(measure=name).values ** 2
        noise = np.sqrt((square.var() + mcse2.var()) / studies)
        assert abs(square.mean() - mcse2.mean()) <= 5 * noise + 3 / units * square.mean(), name
        assert (naive["mcse"].sel(measure=name) ** 2).mean() < square.mean() - 5 * noise, name
    assert (right["trials"].sel(measure="bias") == units).all()
    with pytest.raises(StudyError, match="unit 'world'"):
        performance(ds, unit="world")


def test_a_proportion_that_did_not_vary_is_not_known_exactly():
    estimate = np.zeros((30, 1, 1))
    ds = results(estimate, estimate + 1, wald(estimate, estimate + 1), np.zeros((30, 1)))
    row = summary_table(ds, ["coverage", "power", "refused", "coverage_all"]).iloc[0]
    bound = clopper_pearson(30, 30)[0]
    for name in ("coverage", "power", "refused", "failed", "coverage_all"):
        assert row[f"{name}_mcse"] == pytest.approx((1 - bound) / Z, rel=1e-12)
    assert with_mcse(row["coverage"], row["coverage_mcse"]) == "1.000 (0.059)"
    # value -+ 1.96 errors holds p whenever the exact bounds do: enumeration of the binomial
    for n in (10, 30, 100):
        error = float(flat_error(n))
        for p in (0.5, 0.9, 0.99, 1 - Z * error):
            assert stats.binom.pmf(n, n, p) * (p < 1 - Z * error - 1e-12) <= 0.025
    np.testing.assert_allclose(
        share_error([0.0, 0.5, 1.0], [10, 10, 10]), [flat_error(10), np.sqrt(0.25 / 9), flat_error(10)]
    )
    assert np.isnan(share_error(1.0, 0))


def test_three_coverages_when_a_method_fails():
    """Ten data sets: three refused, one missed of the seven answered."""
    estimate = np.zeros((10, 1, 1))
    estimate[7:] = np.nan
    estimate[0] = 5.0
    ds = results(estimate, np.ones_like(estimate), wald(estimate, np.ones_like(estimate)), np.zeros((10, 1)))
    value = performance(ds)["value"].isel(world=0, policy=0, method=0)
    found = [float(value.sel(measure=f"coverage{end}")) for end in ("_all", "", "_unbounded")]
    np.testing.assert_allclose(found, [0.6, 6 / 7, 0.9])
    assert float(value.sel(measure="convergence")) == 0.7


def test_a_null_of_ones_own():
    rng = np.random.default_rng(24)
    estimate = 0.5 + rng.normal(size=(400, 1, 2))
    unit = np.ones_like(estimate)
    ds = results(estimate, unit, wald(estimate, unit), np.full((400, 2), 0.5))
    names = ["power", "type_s", "type_m"]
    at_truth = performance(ds, measures=names, null=0.5)
    np.testing.assert_allclose(
        at_truth["value"].sel(measure="power"), 1 - performance(ds)["value"].sel(measure="coverage")
    )
    assert at_truth["value"].sel(measure=["type_s", "type_m"]).isnull().all()
    by_policy = xr.DataArray([0.0, -9.0], {"policy": ["p0", "p1"]})
    found = performance(ds, measures=names, null=by_policy)["value"].isel(world=0, method=0)
    x = estimate[:, 0, 0]
    loud = np.abs(x) > Z
    np.testing.assert_allclose(
        found.sel(policy="p0"), [loud.mean(), (x[loud] < 0).mean(), np.abs(x[loud] / 0.5).mean()]
    )
    assert found.sel(policy="p1", measure="power") == 1 and found.sel(policy="p1", measure="type_s") == 0
    # exact values for N(.5, 1): power P(|X| > 1.96), type S and M by the normal law
    low, high = stats.norm.cdf(-Z - 0.5), stats.norm.sf(Z - 0.5)
    exact = {"power": low + high, "type_s": low / (low + high)}
    moment = 0.5 * high + stats.norm.pdf(Z - 0.5) - (0.5 * low - stats.norm.pdf(-Z - 0.5))
    exact["type_m"] = moment / (low + high) / 0.5
    out = performance(ds, measures=names).isel(world=0, method=0, policy=0)
    for name, value in exact.items():
        gap = abs(float(out["value"].sel(measure=name)) - value)
        assert gap < 5 * float(out["mcse"].sel(measure=name)), name


def test_pooling_keeps_the_correlation_of_policies():
    rng = np.random.default_rng(5)
    one = rng.normal(size=(40, 1, 1))
    twice = np.concatenate([one, one], axis=2)
    unit = np.ones_like(twice)
    ds = results(twice, unit, wald(twice, unit), np.zeros((40, 2)))
    single, pooled = performance(ds), performance(ds, pool=True)
    for name in MEASURES[:-1]:
        np.testing.assert_allclose(
            pooled["mcse"].sel(measure=name, policy="mean of p0, p1").values,
            single["mcse"].sel(measure=name, policy="p0").values,
            atol=1e-15,
        )
    independent = rng.normal(size=(40, 1, 2))
    unit = np.ones_like(independent)
    ds = results(independent, unit, wald(independent, unit), np.zeros((40, 2)))
    expected = independent.mean(axis=2).std(ddof=1) / np.sqrt(40)
    np.testing.assert_allclose(performance(ds, pool=True)["mcse"].sel(measure="bias").values.item(), expected)


def test_failures_are_no_misses_and_a_method_without_intervals_is_no_refusal():
    runs = 10
    estimate = np.zeros((runs, 3, 1))
    estimate[:, 1] = np.nan
    estimate[7:, 0] = np.nan
    interval = np.stack([estimate - 1, estimate + 1], axis=-1)
    interval[:, 2] = np.nan
    ds = results(estimate, np.ones_like(estimate), interval, np.zeros((runs, 1)))
    value = performance(ds)["value"].isel(world=0, policy=0)
    assert value.sel(measure="coverage_all").values.tolist()[:2] == [0.7, 0.0]
    assert value.sel(measure="coverage").values[0] == 1.0
    assert np.isnan(value.sel(measure="coverage").values[1:]).all()
    assert value.sel(measure="refused").values.tolist() == pytest.approx([0.3, 1.0, 0.0])
    assert value.sel(measure="n_failed").values.tolist() == [3, 10, 0]
    assert value.sel(measure="width").values[0] == 2  # over the intervals there are


def test_an_se_that_is_too_small_is_caught():
    # the power gate: at 2000 replicates a factor 0.8 lies far outside 5 MCSE of 1, the right SE within
    rng = np.random.default_rng(6)
    right = rng.normal(size=(2000, 1, 1))
    estimate = np.concatenate([right, right], axis=1)
    std_error = np.concatenate([np.full_like(right, 1.0), np.full_like(right, 0.8)], axis=1)
    out = performance(results(estimate, std_error, wald(estimate, std_error), np.zeros((2000, 1))))
    at = {"measure": "se_calibration", "world": "only", "policy": "p0"}
    z = ((out["value"] - 1) / out["mcse"]).sel(at).values
    assert abs(z[0]) < 5 and z[1] < -5
    bound = out["bound"].sel({**at, "measure": "coverage"}).values
    assert bound[0, 0] < 0.95 < bound[0, 1] and bound[1, 1] < 0.95


def test_exact_bounds_without_trials_and_of_a_count_that_rounding_lifts():
    assert np.isnan(clopper_pearson([0, np.nan], [0, 10])).all()
    np.testing.assert_array_equal(clopper_pearson([10 + 1e-14, -1e-17], 10), clopper_pearson([10, 0], 10))


def test_interval_score_is_minimal_at_the_true_quantiles():
    # propriety (Gneiting and Raftery 2007): no shifted or scaled interval scores better under its own law
    draws = stats.norm.ppf((np.arange(4000) + 0.5) / 4000)[:, None, None]

    def score(low, high):
        interval = np.stack([np.full_like(draws, low), np.full_like(draws, high)], axis=-1)
        found = compute(draws * 0, draws * 0 + 1, interval, draws, np.ones(draws.shape, bool), 0.95)
        return found["interval_score"][0].item()

    best = score(-Z, Z)
    assert all(score(-Z * a + b, Z * a + b) > best for a in (0.8, 1.25) for b in (0, 0.2, -0.2))
    assert score(-Z + 0.2, Z + 0.2) > best


def test_tables_leave_out_what_was_not_run():
    ds = random_results(np.random.default_rng(7))
    empty = ds.assign_coords(world=["empty"]).copy(deep=True)
    empty["status"][:] = NOT_RUN
    for name in ("estimate", "std_error", "interval", "truth"):
        empty[name][:] = np.nan
    both = xr.concat([ds, empty], "world")
    rows = long_table(performance(both))
    assert set(rows["world"]) == {"only"} and len(rows) == 2 * 2 * len(MEASURES)
    assert list(rows.columns) == [
        "world",
        "method",
        "policy",
        "measure",
        "value",
        "mcse",
        "lower",
        "upper",
        "replicates",
    ]
    frame = summary_table(both, ["bias", "coverage"])
    names = [f"{name}{end}" for name in ("bias", "coverage", "refused", "failed") for end in ("", "_mcse")]
    assert list(frame.columns) == ["world", "method", "policy", *names]
    assert set(frame["policy"]) == {"mean of p0, p1"}
    assert set(frame["world"]) == {"only"} and len(frame) == 2


def test_every_replicate_is_covered_missed_on_a_side_or_failed():
    ds = random_results(np.random.default_rng(11))
    ds["interval"].values[0, 20:30, 1] += 0.6  # misses on both sides
    ds["interval"].values[0, 30:40, 1] -= 0.9
    value = performance(ds)["value"].sel(
        measure=["coverage_all", "miss_left", "miss_right", "refused", "failed"]
    )
    np.testing.assert_allclose(value.sum("measure"), 1, rtol=1e-12)
    moved = value.sel({"method": "m1", "policy": "p0"})
    assert (moved.sel(measure=["miss_left", "miss_right"]) > 0.1).all()


def test_a_paired_difference_is_the_mean_over_replicates():
    rng = np.random.default_rng(12)
    ds = random_results(rng, failures=False)
    row = paired_table(ds, "m1", ("coverage", "width", "bias"), ratios=("width",)).iloc[0]
    low, high = (ds["interval"].values[0, ..., k] for k in (0, 1))
    truth = ds["truth"].values[0][:, None]
    per = {
        "coverage": ((low <= truth) & (truth <= high)).mean(axis=2, dtype=float),
        "width": (high - low).mean(axis=2),
        "bias": (ds["estimate"].values[0] - truth).mean(axis=2),
    }
    for name, values in per.items():
        gap = values[:, 0] - values[:, 1]
        assert row[name] == pytest.approx(gap.mean())
        assert row[f"{name}_mcse"] == pytest.approx(gap.std(ddof=1) / np.sqrt(len(gap)))
    ratio = per["width"][:, 0].mean() / per["width"][:, 1].mean()
    rest = per["width"][:, 0] - ratio * per["width"][:, 1]  # linearised ratio, as in survey sampling
    mcse = rest.std(ddof=1) / np.sqrt(len(rest)) / per["width"][:, 1].mean()
    assert row["width_ratio"] == pytest.approx(ratio)
    assert row["width_ratio_mcse"] == pytest.approx(mcse)


def test_paired_differences_of_all_kinds_are_means_over_replicates():
    ds = random_results(np.random.default_rng(25), failures=False)
    row = paired_table(ds, "m1").iloc[0]
    error = (ds["estimate"] - ds["truth"]).values[0]
    gap = (error**2).mean(axis=2) @ [1, -1]
    assert row["mse"] == pytest.approx(gap.mean())
    assert row["mse_mcse"] == pytest.approx(gap.std(ddof=1) / np.sqrt(len(gap)))
    assert set(row.index) >= {
        f"{name}{end}" for name in ("bias", "coverage", "width", "mse") for end in ("", "_mcse")
    }


def test_refusing_the_hard_ones_is_no_merit_in_common_replicates():
    rng = np.random.default_rng(26)
    estimate = np.repeat(rng.normal(size=(200, 1, 1)), 2, axis=1)
    estimate[:, 0][estimate[:, 0] > 0.5] = np.nan  # the first method refuses where it would be far off
    estimate[:20, 1] = np.nan  # and the second now and then where the first does not
    estimate[:20, 0, 0] = -np.arange(20) / 20
    unit = np.where(np.isnan(estimate), np.nan, 1.0)
    ds = results(estimate, unit, wald(estimate, unit), np.zeros((200, 1)))
    alone = paired_table(ds, "m1").iloc[0]
    assert alone["bias"] < -5 * alone["bias_mcse"] < 0  # different replicates, so different means
    both = paired_table(ds, "m1", common=True).iloc[0]
    assert [both[name] for name in ("bias", "coverage", "width", "mse")] == [0, 0, 0, 0]
    assert [both[f"{name}_mcse"] for name in ("bias", "coverage", "width", "mse")] == [0, 0, 0, 0]


def test_methods_that_always_cover_may_still_differ():
    estimate = np.zeros((30, 2, 1))
    std_error = np.repeat([[[1.0], [2.0]]], 30, axis=0)
    ds = results(estimate, std_error, wald(estimate, std_error), np.zeros((30, 1)))
    row = paired_table(ds, "m0", ("coverage",)).iloc[0]
    assert row["coverage"] == 0 and row["coverage_mcse"] == pytest.approx(float(flat_error(30)))


def test_equal_methods_differ_by_nothing_and_a_silent_one_has_no_difference():
    ds = random_results(np.random.default_rng(13), failures=False)
    ds["estimate"].values[:, :, 0] = ds["estimate"].values[:, :, 1]
    ds["interval"].values[:, :, 0] = ds["interval"].values[:, :, 1]
    row = paired_table(ds, "m1", ("coverage", "interval_score")).iloc[0]
    assert row["coverage"] == row["coverage_mcse"] == row["interval_score"] == row["interval_score_mcse"] == 0
    ds["estimate"].values[:, :, 0] = ds["interval"].values[:, :, 0] = np.nan
    row = paired_table(ds, "m1", ("coverage",)).iloc[0]
    assert np.isnan(row["coverage"]) and np.isnan(row["coverage_mcse"])


def test_refusals_are_told_apart_from_misses():
    """Ten data sets: three refused, one missed of the seven answered; exact bounds over those that answered."""
    estimate = np.zeros((10, 1, 1))
    estimate[7:] = np.nan
    estimate[0] = 5.0
    out = performance(
        results(estimate, np.ones_like(estimate), wald(estimate, np.ones_like(estimate)), np.zeros((10, 1)))
    )
    out = out.isel(world=0, policy=0, method=0)
    value = dict(zip(MEASURES, out["value"].values, strict=True))
    assert (value["coverage_all"], value["refused"], value["failed"], value["n_failed"]) == (0.6, 0.3, 0.0, 3)
    assert value["coverage"] == pytest.approx(6 / 7)
    np.testing.assert_allclose(out["bound"].sel(measure="coverage"), clopper_pearson(6, 7))


def test_refused_by_rule_and_failed_are_told_apart():
    """An exception and a sampler that did not converge failed; a status that takes the interval away refused."""
    estimate = np.zeros((10, 1, 1))
    estimate[8:] = np.nan
    interval = wald(estimate, np.ones_like(estimate))
    interval[5:8] = np.nan
    status = np.zeros((10, 1, 1), int)
    status[5:, 0, 0] = [Status.ONE_CLUSTER, Status.NOT_CONVERGED, 0, CRASHED, Status.NO_LABELS]
    value = performance(results(estimate, np.ones_like(estimate), interval, np.zeros((10, 1)), status))[
        "value"
    ]
    found = value.isel(world=0, policy=0, method=0).sel(measure=["refused", "failed", "convergence"])
    assert found.values.tolist() == [0.3, 0.2, 0.8]


def test_values_and_differences_are_never_one_average():
    ds = random_results(np.random.default_rng(14), policies=4)
    ds = ds.assign_coords(policy=["a", "b", "a - b", "b - a"])
    out, single = performance(ds, pool=True), performance(ds)
    assert out["policy"].values.tolist() == ["mean of a, b", "mean of a - b, b - a"]
    for label, members in (("mean of a, b", ["a", "b"]), ("mean of a - b, b - a", ["a - b", "b - a"])):
        expected = single["value"].sel(policy=members).mean("policy", skipna=False)
        np.testing.assert_allclose(out["value"].sel(policy=label), expected)
    assert (
        set(summary_table(ds, ["coverage"])["policy"])
        == set(paired_table(ds, "m1")["policy"])
        == set(out["policy"].values)
    )
    assert summary_table(ds.sel(policy=["a"]), ["coverage"])["policy"].tolist() == ["a", "a"]


def test_side_by_side_keeps_the_order_of_cells_and_methods():
    measures = pd.DataFrame(
        {
            "world": ["b", "b", "a"],
            "method": ["m1", "m0", "m1"],
            "coverage": [0.9, 0.8, 0.7],
            "coverage_mcse": [0.01, 0.02, 0.03],
        }
    )
    wide = side_by_side(measures, ["world"], "coverage", ["m0", "m1", "absent"])
    assert list(wide) == ["world", "m0", "m0_mcse", "m1", "m1_mcse"]
    assert wide["world"].tolist() == ["b", "a"]
    np.testing.assert_array_equal(wide["m0"], [0.8, np.nan])
    np.testing.assert_array_equal(wide["m1_mcse"], [0.01, 0.03])
