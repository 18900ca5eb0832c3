"""What a plan forecasts of the default values: borrowed, probed, refused, and with labels of their own."""

import numpy as np
import oracles_plan as slow
import pytest
import xarray as xr
from oracles_uncertainty import row_dicts, table

from cje_core.data import from_arrays
from cje_core.estimators import direct, direct_corrected
from cje_core.inference.contrasts import against
from cje_core.inference.estimate import Status
from cje_core.io import from_frame
from cje_core.planning import probes, trial
from cje_core.planning.components import variance_components
from cje_core.planning.forecast import effect_at, std_error_at
from cje_core.planning.own_labels import if_equal_again, if_labelled, labels_to_match, worst_std_error
from cje_core.planning.power import detectable
from cje_core.planning.trial import resample_pilot, simulate_plan
from cje_core.verdict.headline import headline
from cje_sim.scenarios import well_specified

NEAR = {"base": (3.0, 2.0), "left": (2.7, 2.1), "right": (3.2, 1.9)}


def pilot(n=400, fraction=0.3, rng=4, **options):
    return well_specified.simulate(
        n=n, oracle_fraction=fraction, label_design="base", score_law=NEAR, rng=rng, **options
    )


@pytest.mark.parametrize("seed", range(3))
def test_components_of_borrowed_values_are_their_definition(seed):
    data = from_frame(table(n=60, seed=seed, share=0.8))
    rows, folds = row_dicts(data)
    found = variance_components(data).sel(policy="b")
    assert found["route"] == "balanced"
    expected = slow.borrowed(rows, "b", folds, 60)
    versus = variance_components(data, reference="a").isel(pair=0)
    numbers = [found.sigma2_eval, found.sigma2_cal, versus.sigma2_cal]
    np.testing.assert_allclose(numbers, expected, rtol=1e-5)
    paper = variance_components(data, borrowed="plug_in").sel(policy="b")
    assert abs(float(paper.sigma2_cal) / expected[1] - 1) > 0.01  # the plug-in's component is another
    alone = if_labelled(data).sel(policy="b")
    np.testing.assert_allclose([alone.sigma2_eval, alone.sigma2_cal], slow.own(rows, "b", folds), rtol=1e-9)


def test_the_forecast_at_the_pilots_size_is_the_standard_error():
    """Of levels; a difference is forecast with the spread of both its values, which share the labels' noise."""
    data = pilot()
    estimate = direct.estimate(data, borrowed="balanced")  # what a plan forecasts
    levels, pairs = variance_components(data), variance_components(data, reference="base")
    versus = against(estimate, "base").set_index(pair="first").sel(pair=pairs["first"].values)
    np.testing.assert_allclose(levels["std_error"], estimate["std_error"], rtol=1e-12)
    detected = effect_at(400, 120, pairs) / detectable(versus["std_error"].values, versus["df"].values)
    assert ((detected > 0.9) & (detected < 1.02)).all()
    # what both share is noise of one kind: the spread of a difference is smaller than what its test takes
    assert (pairs["sigma2_cal"] < pairs["sigma2_cal_tested"]).all()
    forecast = std_error_at(400, 120, levels)
    np.testing.assert_allclose(forecast.std_error, levels.std_error, rtol=1e-12)
    np.testing.assert_allclose(forecast.df, estimate.df, rtol=0.05)


def test_probes_are_the_tuned_probe_value_and_neither_prompts_nor_labels_move_their_part():
    data = pilot(n_probes=30)
    corrected = direct_corrected.estimate(data)
    found = variance_components(data)
    assert found["route"].values.tolist() == ["theta_aug", "probe_tuned", "probe_tuned"]
    np.testing.assert_allclose(found.std_error[1:], corrected.std_error[1:], rtol=1e-12)
    np.testing.assert_allclose(found.df_probes[1:], 28)
    many = std_error_at(10**9, 10**8, found)
    np.testing.assert_allclose(many.std_error[1:] ** 2, found.variance_probes[1:], rtol=1e-3)
    more = std_error_at(10**9, 10**8, found, probe_growth=4.0)
    np.testing.assert_allclose(many.std_error[1:] / more.std_error[1:], 2, rtol=1e-3)
    np.testing.assert_allclose(more.df[1:], 118, rtol=0.01)
    pairs = variance_components(data, reference="base")
    sources = xr.Dataset(
        {"source": ("policy", ["own", "probes", "probes"]), "level": ("policy", ["reported"] * 3)},
        {"policy": data["policy"].values},
    )
    printed = headline(direct.estimate(data), sources, corrected)
    versus = against(printed, "base").set_index(pair="first").sel(pair=pairs["first"].values)
    np.testing.assert_allclose(pairs.std_error, versus.std_error, rtol=1e-12)
    paper = variance_components(data, borrowed="plug_in")  # of policies with probes it says the same
    xr.testing.assert_identical(paper["std_error"], found["std_error"])
    without = variance_components(data.assign(probe=data.probe & False), borrowed="plug_in")
    assert without["route"].values.tolist() == ["theta_aug", "plug_in", "plug_in"]
    assert (without["variance_probes"] == 0).all()


@pytest.mark.parametrize("n_probes", [4, 5, 6, 30])
def test_degrees_of_freedom_of_few_probes_are_those_of_the_value(n_probes):
    """Under six probes no slope is fitted, so none is paid for."""
    data = pilot(n_probes=n_probes)
    corrected, found = direct_corrected.estimate(data), variance_components(data)
    assert found["route"].values.tolist() == ["theta_aug", "probe_tuned", "probe_tuned"]
    spent = 1 if n_probes < 6 else 2
    np.testing.assert_allclose(found.df_probes[1:], n_probes - spent)
    at_pilot = std_error_at(400, 120, found)
    np.testing.assert_allclose(at_pilot.df[1:], corrected.df[1:], rtol=1e-9)
    more = std_error_at(10**9, 10**8, found, probe_growth=10.0)
    np.testing.assert_allclose(more.df[1:], 10 * n_probes - spent, rtol=0.01)
    pairs = variance_components(data, reference="base")
    np.testing.assert_allclose(pairs.df_probes, n_probes - spent)


def test_probes_that_are_all_equal_take_the_place_of_what_is_borrowed_where_they_have_a_bound():
    """At an end of the scale, as in the estimate; inside it they have no interval, and the policy borrows."""
    for label, route in ((1.0, "probe_tuned"), (0.7, "balanced")):
        data = pilot(n_probes=20)
        data = data.assign(oracle=data.oracle.where(~data.probe, label))
        bounded = np.isfinite(direct_corrected.estimate(data)["interval"].values[1:]).all()
        found = variance_components(data)
        assert bounded == (route == "probe_tuned")
        assert found["route"].values[1:].tolist() == [route, route]
        assert np.isnan(found["std_error"].values[1:]).all() == bounded
        assert (found["status"].values[1:] == Status.CONSTANT_LABELS).all() == bounded


def test_own_labels_at_worst():
    """Half of the labels at either end have the largest variance; clusters of k prompts count once."""
    data = pilot()
    ends = np.repeat([0.0, 1.0], 5000)
    assert worst_std_error(data, 10_000) == pytest.approx(ends.std() / 100)
    assert worst_std_error(data.assign_attrs(oracle_range=[0.0, 10.0]), 25) == pytest.approx(1.0)
    whole = data.assign_coords(cluster=("prompt", np.repeat(np.arange(100), 4).astype(str)))
    assert worst_std_error(whole, 100) == pytest.approx(0.5 / np.sqrt(25))
    assert if_equal_again(data, 30, 0.95) == pytest.approx(1 - 0.025 ** (1 / 30))


def refused_pilots():
    rng = np.random.default_rng(0)
    score, label = rng.uniform(size=(2, 200)), np.full((2, 200), np.nan)
    label[0, :60] = np.clip(score[0, :60] + rng.normal(0, 0.1, 60), 0, 1)
    constant, random = np.full_like(score, 0.5), rng.permuted(score, axis=1)
    rare = np.where(np.isfinite(label), 1.0, np.nan)
    rare[0, np.argsort(score[0, :60])[:4]] = 0.0
    far = score.copy()
    far[1] = 1 + 0.001 * far[1]
    far[0] *= 0.9
    wide = {"judge_range": (0.0, 2.0)}
    return {
        "constant": (constant, label, {}, Status.UNINFORMATIVE_JUDGE),
        "random": (random, label, {}, Status.UNINFORMATIVE_JUDGE),
        "rare": (score, rare, {}, Status.UNINFORMATIVE_JUDGE),
        "far": (far, label, wide, Status.LOW_SUPPORT),
    }


@pytest.mark.parametrize("name", ["constant", "random", "rare", "far"])
def test_what_would_be_refused_has_no_forecast(name):
    score, label, options, status = refused_pilots()[name]
    data = from_arrays(score, policies=["base", "other"], oracle=label, **options)
    found = variance_components(data)
    assert found["status"].values[1] == status == direct.estimate(data)["status"].values[1]
    assert np.isnan(found["std_error"].values).tolist() == [False, True]
    assert np.isnan(std_error_at(400, 100, found).std_error.values).tolist() == [False, True]
    pairs = variance_components(data, reference="base")
    assert np.isnan(effect_at(400, 100, pairs).values).all()
    assert np.isnan(if_labelled(data)["sigma2_cal"].values).all()
    check = simulate_plan(data, 200, 60, replicates=20, rng=1)
    for variable in ("simulated_std_error", "reported_std_error", "planned_std_error"):
        assert np.isfinite(check[variable].values).tolist() == [True, False]
    assert np.isnan(check["simulated_power"].values).all() and not check["beyond_scale"].any()
    assert np.isfinite(variance_components(data, borrowed="plug_in")["std_error"].values).all()


def test_labels_of_ones_own_that_do_as_well_as_borrowing():
    data = pilot()
    levels, own = variance_components(data), if_labelled(data)
    assert np.isnan(own["sigma2_cal"].values).tolist() == [True, False, False]
    planned = std_error_at(800, 200, levels)["std_error"]
    fewest = labels_to_match(planned, 800, own)
    assert np.isnan(fewest[0])
    for k in (1, 2):
        at, before = (float(std_error_at(800, float(fewest[k]) - d, own)["std_error"][k]) for d in (0, 1))
        assert at <= float(planned[k]) < before
    assert np.isnan(labels_to_match(planned / 100, 800, own)).all()


def test_all_labelled_the_variance_is_that_of_the_label():
    """Forecast from labels of base, within five of its standard errors; planted: the labels' part alone is not."""
    own = if_labelled(pilot(n=2000, fraction=0.5)).isel(policy=[1, 2])
    every = well_specified.simulate(n=100_000, oracle_fraction=1.0, score_law=NEAR, rng=1)
    label = every.oracle.sel(policy=own["policy"]).values[..., 0]
    truth, apart = label.var(axis=1), (label - label.mean(axis=1, keepdims=True)) ** 2
    error = np.sqrt(
        own.sigma2_eval_se**2
        + own.sigma2_cal_se**2
        + 2 * own.sigma2_covariance
        + apart.var(axis=1) / label.shape[1]
    )
    whole = own.sigma2_eval + own.sigma2_cal
    assert (np.abs(whole - truth) < 5 * error).all()
    assert (np.abs(own.sigma2_cal - truth) > 5 * error).all()


def test_resampled_probes_keep_their_number_and_their_policy():
    data = pilot(n_probes=30)
    study = resample_pilot(data, 500, 100, 1, with_probes=True)
    assert (
        study.probe.sum(("prompt", "draw")).values.tolist()
        == data.probe.sum(("prompt", "draw")).values.tolist()
    )
    assert not (study.probe & study.labelled).any()
    assert not study.probe.sel(policy="base").any()
    assert np.isfinite(study.oracle.values).sum() == int(study.probe.sum() + study.labelled.sum())
    assert int(study.labelled.any(("policy", "draw")).sum()) == 100 and study.sizes["prompt"] == 500


@pytest.mark.slow
def test_the_check_runs_the_values_that_are_printed(monkeypatch):
    """Planted: components of a quarter are missed, for the borrowing policy and for the probed one."""
    data = pilot(n=200, n_probes=30)
    data["probe"].loc[{"policy": "right"}] = False
    honest = simulate_plan(data, 200, 60, replicates=25, rng=3)
    assert honest["held"].all() and honest["power_held"].all() and (honest["n_failed"] == 0).all()
    planned = std_error_at(200, 60, variance_components(data))["std_error"]
    np.testing.assert_allclose(honest["planned_std_error"], planned)

    def planted(*arguments, **options):
        found = variance_components(*arguments, **options)
        names = ("sigma2_eval", "sigma2_cal", "variance_probes", "sigma2_eval_tested", "sigma2_cal_tested")
        return found.assign({name: found[name] / 4 for name in names if name in found})

    monkeypatch.setattr(probes, "variance_components", planted)
    caught = simulate_plan(data, 200, 60, replicates=25, rng=3)
    assert not caught["held"].any() and not caught["power_held"].any()


@pytest.mark.slow
def test_more_labels_than_the_pilots_are_not_refused_for_want_of_scores_that_it_never_had():
    data = well_specified.simulate(n=400, oracle_fraction=0.3, label_design="base", rng=6)
    known = np.isfinite(variance_components(data)["std_error"].values)
    assert known.sum() >= 3
    check = simulate_plan(data, 1600, 480, replicates=20, rng=1)
    # what is promised is the pilot's, levels and differences alike: not that of the scores drawn in for the trial
    shape = variance_components(data, reference="base")
    drawn_in = trial._within_reach(data, np.setdiff1d(data["policy"].values[known], "base"))
    np.testing.assert_array_equal(check["planned_mde"], effect_at(1600, 480, shape))
    np.testing.assert_array_equal(
        check["planned_std_error"], std_error_at(1600, 480, variance_components(data))["std_error"]
    )
    other = effect_at(1600, 480, variance_components(drawn_in, reference="base"))
    assert np.nanmax(np.abs(other / check["planned_mde"].values - 1)) > 1e-3
    assert (check["n_failed"].values[known] <= 4).all()


def test_options_that_do_not_exist_are_refused():
    with pytest.raises(ValueError, match="borrowed='one_step': use one of balanced, plug_in"):
        variance_components(pilot(), borrowed="one_step")


def test_policies_that_are_copies_have_no_variance_to_share():
    """Of their difference; nothing is divided by it, or a warning would fail the test."""
    rng = np.random.default_rng(0)
    score = rng.random(60)
    label = (score > 0.5) * 1.0
    found = variance_components(
        from_arrays([score] * 2, policies=["a", "b"], oracle=[label] * 2), reference="a"
    )
    assert found["std_error"].values.tolist() == [0.0]
    assert np.isnan(found["calibration_share"].values).all()
