"""The plan tried out on resampled pilots: what is drawn, what is reported, and that a false plan is caught."""

import numpy as np
import pytest
import xarray as xr
from oracles_compare import only

from cje_core.data import DataError, from_arrays
from cje_core.estimators import direct
from cje_core.planning import probes, trial
from cje_core.planning.components import variance_components
from cje_core.planning.forecast import effect_at, std_error_at
from cje_core.planning.trial import resample_pilot, simulate_plan
from cje_sim.scenarios import clustered, well_specified


def pilot(design="own", n=400, fraction=0.3, rng=4, **options):
    return well_specified.simulate(n=n, oracle_fraction=fraction, label_design=design, rng=rng, **options)


def test_resampling_has_the_planned_sizes_and_whole_prompts():
    data = pilot("base", n_probes=20)
    study = resample_pilot(data, 1000, 300, 5)
    assert dict(study.sizes) == {"policy": 4, "prompt": 1000, "draw": 1}
    assert int(study.labelled.any(("policy", "draw")).sum()) == 300
    assert not study.probe.any()
    assert np.isfinite(study.oracle.values).sum() == int(study.labelled.sum()) == 300
    known = {tuple(column) for column in data.judge.values[:, :, 0].T.tolist()}
    assert {
        tuple(column) for column in study.judge.values[:, :, 0].T.tolist()
    } <= known  # policies stay paired
    with_label = data.labelled.values[0, :, 0]
    pairs = set(zip(data.judge.values[0, with_label, 0], data.oracle.values[0, with_label, 0], strict=True))
    seen = study.labelled.values[0, :, 0]
    assert set(zip(study.judge.values[0, seen, 0], study.oracle.values[0, seen, 0], strict=True)) <= pairs
    assert len(np.unique(study.cluster)) == 1000
    xr.testing.assert_identical(resample_pilot(data, 1000, 300, 5), study)
    assert data.probe.any()  # the pilot is untouched


def test_resampling_draws_every_prompt_equally_often():
    data = only(pilot(n=20, fraction=0.5), "base")
    drawn = resample_pilot(data, 40_000, 4000, 1)
    value, count = np.unique(drawn.judge.values, return_counts=True)
    labelled = np.isin(value, data.judge.values[data.labelled.values])
    expected = 36_000 / 20 + np.where(labelled, 4000 / 10, 0)
    assert (np.abs(count - expected) < 5 * np.sqrt(expected)).all()


def test_resampling_keeps_clusters_whole():
    data = clustered.simulate(n=300, oracle_fraction=0.3, label_scheme="cluster", rng=2)
    study = resample_pilot(data, 600, 150, 1)
    size, drawn = (np.unique(d.cluster.values, return_counts=True)[1] for d in (data, study))
    assert set(drawn) <= set(size)
    assert abs(study.sizes["prompt"] - 600) <= size.max()
    assert abs(int(study.labelled.any(("policy", "draw")).sum()) - 150) <= 2 * size.max()
    estimate = direct.estimate(study, inference="influence")
    assert np.isfinite(estimate.std_error).all()


def test_pilots_that_cannot_be_resampled_say_why():
    with pytest.raises(DataError, match="the pilot has 3 labelled prompts or clusters"):
        resample_pilot(from_arrays([[0.1, 0.5, 0.9, 0.3]], policies=["a"], oracle=[[1, 0, 1, np.nan]]), 10, 5)
    with pytest.raises(DataError, match="label_prob differs"):
        resample_pilot(pilot(label_scheme="score"), 100, 50)
    with pytest.raises(ValueError, match="4 <= m <= n"):
        simulate_plan(pilot(), 100, 101)
    with pytest.raises(ValueError, match="at least 20"):
        simulate_plan(pilot(), 100, 50, replicates=5)


@pytest.mark.slow
def test_simulated_plan_is_labelled_and_reproducible():
    data = pilot("base", n=200)
    seen = []

    def track(replicates):
        for r in replicates:
            seen.append(r)
            yield r

    found = simulate_plan(data, 300, 90, replicates=track(range(20)), rng=3, borrowed="plug_in")
    assert seen == list(range(20))
    assert found["first"].values.tolist() == ["better", "slightly_better", "worse"]
    assert (found["second"].values == "base").all()
    components = variance_components(data, borrowed="plug_in")
    contrast = variance_components(data, reference="base", borrowed="plug_in")
    np.testing.assert_allclose(found.planned_std_error, std_error_at(300, 90, components).std_error)
    np.testing.assert_allclose(found.planned_mde, effect_at(300, 90, contrast))
    assert (found.n_failed == 0).all() and found.attrs["replicates"] == 20
    xr.testing.assert_identical(simulate_plan(data, 300, 90, replicates=20, rng=3, borrowed="plug_in"), found)
    single = simulate_plan(only(data, "base"), 300, 90, replicates=30, rng=3)
    assert (single["first"].values == single["second"].values).all()
    np.testing.assert_allclose(single.planned_mde, effect_at(300, 90, components)[:1])


def test_spread_and_power_of_replicates_by_hand():
    values = np.array([[1.0, 2.0], [3.0, np.nan], [5.0, 6.0], [7.0, 4.0]])
    sd, mcse = trial._spread(values)
    np.testing.assert_allclose(sd, [np.std([1, 3, 5, 7], ddof=1), np.std([2, 6, 4], ddof=1)])
    deviation = (np.array([1, 3, 5, 7]) - 4.0) ** 2
    np.testing.assert_allclose(mcse[0], deviation.std() / 2 / (2 * np.sqrt(deviation.mean())))
    reached, _ = trial._power(
        np.array([[10.0], [12.0], [14.0], [np.nan]]),
        np.ones((4, 1)),
        np.full((4, 1), np.inf),
        np.array([3.5]),
        0.95,
    )
    # centred -2, 0, 2 and shifted by +-3.5: beyond 1.96 are 0 of -2 + 3.5, both of 0, 5.5 upwards, ...
    np.testing.assert_allclose(reached, (0.5 + 1.0 + 0.5 + 0.0) / 4)


@pytest.mark.slow
def test_a_plan_that_promises_too_much_is_caught(monkeypatch):
    """Planted: a quarter of the components, so standard errors half as large."""
    data = pilot("base", n=200)

    def planted(*arguments, **options):
        found = variance_components(*arguments, **options)
        return found.assign(sigma2_eval=found.sigma2_eval / 4, sigma2_cal=found.sigma2_cal / 4)

    honest = simulate_plan(data, 200, 60, replicates=80, rng=3, borrowed="plug_in")
    assert honest.held.all() and honest.power_held.all()
    monkeypatch.setattr(probes, "variance_components", planted)
    caught = simulate_plan(data, 200, 60, replicates=80, rng=3, borrowed="plug_in")
    caught = caught.isel(
        policy=slice(3), pair=slice(2)
    )  # the last lives off the labels: its forecast is cautious
    assert not caught.held.any() and not caught.power_held.any()
