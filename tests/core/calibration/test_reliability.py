"""Reliability table, coverage badge and calibration curve against hand counts, statsmodels and the calibrator."""

import numpy as np
import pytest
from statsmodels.stats.proportion import proportion_confint

from cje_core.calibration.calibrated import Calibration, calibrated
from cje_core.calibration.calibrator import fit, predict
from cje_core.calibration.oracle_slice import fit_slice, held_out
from cje_core.calibration.reliability import (
    calibration_curve,
    coverage_badge,
    fingerprint,
    reliability,
)
from cje_core.data import DataError, from_arrays
from cje_core.data.arrays import unpack
from cje_core.formulas.proportions import wilson
from cje_core.inference.estimate import Status
from cje_core.io.files import read
from cje_core.verdict import gates


def binary_world(m=200, seed=0, **options):
    rng = np.random.default_rng(seed)
    judge = rng.choice([0.1, 0.3, 0.5, 0.6, 0.8, 0.9], size=m, p=[0.05, 0.15, 0.2, 0.3, 0.2, 0.1])
    x = rng.normal(size=m)
    label = (rng.uniform(size=m) < np.clip(0.1 + 0.8 * judge + 0.1 * x, 0, 1)).astype(float)
    return from_arrays([judge], policies=["a"], oracle=[label], covariate=x[None, :, None], **options)


def test_intervals_of_binary_labels_are_wilsons():
    table = reliability(binary_world())
    assert (table["n"] >= 5).all() and int(table["n"].sum()) == 200
    for b in table["bin"].values:
        at = table.sel({"bin": b})
        count = round(float(at["oracle_mean"] * at["n"]))
        expected = proportion_confint(count, int(at["n"]), alpha=0.05, method="wilson")
        np.testing.assert_allclose(at["interval"], expected, atol=1e-12)
    np.testing.assert_allclose(wilson(0, 5, 0.9), proportion_confint(0, 5, 0.1, "wilson"), atol=1e-12)


def test_binary_labels_are_the_ends_of_the_declared_scale():
    """Wilson's interval of the share, carried to the scale; labels 0 and 1 on a scale up to 10 are not binary."""
    unit, data = reliability(binary_world()), binary_world()
    wide = data.assign(oracle=-1 + 3 * data.oracle).assign_attrs(oracle_range=[-1.0, 2.0])
    table = reliability(wide)
    np.testing.assert_allclose(table["interval"], -1 + 3 * unit["interval"], atol=1e-12)
    graded = reliability(data.assign_attrs(oracle_range=[0.0, 10.0]))
    assert (np.abs(graded["interval"] - unit["interval"]) > 1e-4).all()


@pytest.mark.parametrize("covariates", [(), ("x0",)])
def test_the_table_is_what_it_says_row_by_row(covariates):
    data = binary_world(150, 1)
    table = reliability(calibrated(data, Calibration(covariates)), n_bins=4)
    rows = unpack(data, covariates)
    fitted = fit_slice(rows)
    reward = held_out(fitted, fitted.z, fitted.prompt)
    score, label = fitted.z[:, 0], fitted.label
    assert (table["score_low"].values[1:] > table["score_high"].values[:-1]).all()
    term = 0.0
    for b in range(table.sizes["bin"]):
        inside = (score >= float(table["score_low"][b])) & (score <= float(table["score_high"][b]))
        assert int(table["n"][b]) == inside.sum()
        np.testing.assert_allclose(table["reward_mean"][b], reward[inside].mean())
        np.testing.assert_allclose(table["oracle_mean"][b], label[inside].mean())
        term += inside.mean() * (label[inside].mean() - reward[inside].mean()) ** 2
    np.testing.assert_allclose(table.attrs["reliability_term"], term)
    np.testing.assert_allclose(table.attrs["oof_rmse"], np.sqrt(((label - reward) ** 2).mean()))
    assert table.attrs["mode"] == ("two_stage" if covariates else "monotone")


def test_thirds_of_the_score_keep_ties_together_and_may_be_empty():
    rng = np.random.default_rng(2)
    judge = np.concatenate([np.full(90, 0.8), rng.uniform(0.9, 1.0, 10)])
    data = from_arrays([judge], policies=["a"], oracle=[rng.uniform(size=100)])
    table = reliability(data)
    low, middle, high = table.attrs["oof_rmse_tertile"]
    assert np.isnan(low) and np.isfinite([middle, high]).all()
    rows = unpack(data)
    fitted = fit_slice(rows)
    loss = (fitted.label - held_out(fitted, fitted.z, fitted.prompt)) ** 2
    np.testing.assert_allclose(middle, np.sqrt(loss[fitted.z[:, 0] == 0.8].mean()))
    assert int(table["n"][0]) == 90


def test_intervals_of_graded_labels_are_t_intervals_by_cluster():
    rng = np.random.default_rng(3)
    judge, label = np.repeat([0.2, 0.8], 30), rng.uniform(0.1, 0.9, 60)
    data = from_arrays([judge], policies=["a"], oracle=[label], cluster=np.arange(60) // 3)
    table = reliability(data)
    for b, inside in enumerate([judge == 0.2, judge == 0.8]):
        means = label[inside].reshape(10, 3).mean(axis=1)
        error = means.std(ddof=1) / np.sqrt(10)
        half = 2.2621571628540993 * error  # t quantile at 9 degrees of freedom
        np.testing.assert_allclose(table["interval"][b], means.mean() + np.array([-half, half]))


def test_covers_diagonal_sees_a_calibrator_that_is_wrong_and_passes_one_that_is_right():
    """The free two-stage calibrator is right about a judge that the monotone one cannot follow."""
    rng = np.random.default_rng(4)
    judge = rng.uniform(size=400)
    label = (rng.uniform(size=400) < 0.1 + 0.8 * np.abs(2 * judge - 1)).astype(float)
    data = from_arrays([judge], policies=["a"], oracle=[label])
    assert reliability(data).attrs["covers_diagonal"] == 0
    assert reliability(calibrated(data, Calibration(mode="two_stage"))).attrs["covers_diagonal"] == 1


def test_the_band_is_simultaneous():
    """Bonferroni over the bins: where the judge is slightly off, a single interval may miss and the band hold."""
    verdicts = set()
    for seed in range(10):
        rng = np.random.default_rng(seed)
        judge = rng.uniform(size=300)
        label = (rng.uniform(size=300) < 0.4 + 0.3 * np.abs(2 * judge - 1)).astype(float)
        table = reliability(from_arrays([judge], policies=["a"], oracle=[label]), n_bins=5)
        count = np.round(table["oracle_mean"].values * table["n"].values)
        inside = []
        for alpha in (0.05, 0.05 / table.sizes["bin"]):
            low, high = proportion_confint(count, table["n"].values, alpha, "wilson")
            inside.append(bool(((low <= table["reward_mean"]) & (table["reward_mean"] <= high)).all()))
        assert table.attrs["covers_diagonal"] == inside[1]
        verdicts.add(tuple(inside))
    assert {(False, True), (False, False), (True, True)} <= verdicts


@pytest.mark.slow
def test_the_band_covers_the_diagonal_of_a_correct_calibrator_at_its_level():
    """200 worlds where f is right up to its own noise: misses at 5% (joint) stay under the binomial bound for 10%.

    f's noise is not in the band, which the slack of 5% is for: P(Binomial(200, .10) > 37) < 1e-4.
    """
    misses = sum(
        not reliability(binary_world(300, seed), n_bins=5).attrs["covers_diagonal"] for seed in range(200)
    )
    assert misses <= 37


def test_coverage_badge_by_hand():
    judge = np.array([[0.2, 0.3, 0.4, 0.5, 0.6, 0.7], [0.1, 0.15, 0.3, 0.5, 0.9, np.nan]])
    oracle = np.full((2, 6), np.nan)
    oracle[0] = [0.1, 0.2, 0.4, 0.4, 0.4, 0.4]
    badge = coverage_badge(from_arrays(judge, policies=["b", "a"], oracle=oracle))
    np.testing.assert_allclose(badge["out_of_range"].sel({"policy": "a"}), 0.6)
    np.testing.assert_allclose(badge["out_low"].sel({"policy": "a"}), 0.4)
    np.testing.assert_allclose(badge["out_high"].sel({"policy": "a"}), 0.2)
    np.testing.assert_allclose(badge["out_of_range"].sel({"policy": "b"}), 0)
    np.testing.assert_allclose(badge["slope_low"], (0.2 - 0.1) / (0.3 - 0.2))
    np.testing.assert_allclose(badge["slope_high"], 0, atol=1e-12)
    assert not badge["flat_low"].any() and badge["flat_high"].all()
    assert badge["labels_near"].sel({"policy": "a"}) == 6
    assert badge["labels_near"].sel({"policy": "b"}) == 6


def test_labels_near_counts_where_the_policy_lives():
    rng = np.random.default_rng(5)
    judge = np.stack([rng.uniform(0.4, 1, 200), rng.uniform(0, 0.5, 200)])
    oracle = np.stack([judge[0], np.full(200, np.nan)])
    badge = coverage_badge(from_arrays(judge, policies=["a", "b"], oracle=oracle))
    inner = np.quantile(judge[1], [0.1, 0.9], method="inverted_cdf")
    expected = ((judge[0] >= inner[0]) & (judge[0] <= inner[1])).sum()
    assert 0 < expected < 40 and int(badge["labels_near"].sel({"policy": "b"})) == expected


def test_the_curve_is_the_calibrators():
    data = binary_world(150, 6)
    curve = calibration_curve(calibrated(data, Calibration(["x0"])), n_grid=21)
    fitted = fit_slice(unpack(data, ["x0"]))
    z = np.column_stack([curve["score"].values, np.full(21, fitted.z[:, 1].mean())])
    np.testing.assert_allclose(curve["two_stage"], predict(fitted.calibrator, z))
    np.testing.assert_allclose(curve["monotone"], predict(fit(fitted.z, fitted.label), z))
    assert (np.diff(curve["monotone"]) >= 0).all() and (np.diff(curve["two_stage_monotone"]) >= -1e-9).all()
    assert (np.diff(curve["reward"]) >= 0).all()
    effect = curve["partial_effect"].sel({"feature": "x0"}).values
    assert effect[-1] > effect[0]  # the label rises with x in this world
    at = np.interp(fitted.z[:, 1], curve["covariate_value"].values[0], effect)
    np.testing.assert_allclose(at.mean(), 0, atol=0.01)
    assert calibration_curve(data, n_grid=5)["partial_effect"].shape == (0, 5)


def test_fingerprints_tell_functions_apart_and_not_their_last_bits():
    rng = np.random.default_rng(7)
    z, label = rng.uniform(size=50), rng.uniform(size=50)
    one = fingerprint(fit(z, label))
    assert one == fingerprint(fit(z, label * (1 + 1e-15)))
    assert one != fingerprint(fit(z, label**2)) and one != fingerprint(fit(z, label, increasing=False))


@pytest.mark.parametrize(("n_labels", "status"), [(0, Status.NO_LABELS), (3, Status.TOO_FEW_LABELS)])
def test_too_few_labels_are_data(n_labels, status):
    """As in the audit: NaN with a status, which the gates call unknown and not flat, covered or reliable."""
    label = np.where(np.arange(30) < n_labels, np.arange(30) % 2, np.nan)
    few = from_arrays([np.linspace(0, 1, 30)], policies=["a"], oracle=[label])
    table, badge = reliability(few), coverage_badge(few)
    for found in (table, badge):
        assert Status(found["status"].item()) is status
    assert table["n"].values.tolist() == [n_labels]
    assert np.isnan(table["oracle_mean"]).all() and np.isnan(table.attrs["covers_diagonal"])
    numbers = badge.drop_vars(["status", "labels_near"])
    assert all(np.isnan(values).all() for values in numbers.data_vars.values())
    assert (badge["labels_near"] <= n_labels).all()
    metrics = gates.collect(["a"], coverage=badge, reliability=table)
    states = gates.evaluate(metrics).state
    assert (states.sel(gate=["reliability", "identification"]) == "unknown").all()


def test_what_cannot_be_asked_says_why():
    with pytest.raises(DataError, match="needs 20"):
        calibration_curve(binary_world(19))
    with pytest.raises(ValueError, match="ci_prob"):
        reliability(binary_world(), ci_prob=1.0)
    with pytest.raises(ValueError, match="n_bins"):
        reliability(binary_world(), n_bins=0)


def test_arena_judge_is_reliable_where_it_is_labelled_and_thin_where_unhelpful_lives(arena):
    data, _ = read(arena / "fresh_draws")
    table = reliability(data)
    assert table.attrs["covers_diagonal"] == 1 and table["n"].values.tolist() == [65, 294, 29, 57, 35]
    np.testing.assert_allclose(table.attrs["oof_rmse"], 0.2091, atol=5e-4)
    badge = coverage_badge(data)
    np.testing.assert_allclose(badge["out_of_range"].sel({"policy": "unhelpful"}), 0.013, atol=1e-9)
    assert int(badge["labels_near"].sel({"policy": "unhelpful"})) < 70
    assert (badge["labels_near"].sel({"policy": ["base", "clone"]}) > 400).all()
