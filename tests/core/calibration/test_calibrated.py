"""How the judge is calibrated is one value, and what is fitted with it is fitted once."""

from collections import Counter

import numpy as np
import pytest
import xarray as xr
from ope_world import small

from cje_core import estimators
from cje_core.calibration import calibrated as module
from cje_core.calibration.calibrated import Calibrated, Calibration, calibrated
from cje_core.calibration.oracle_slice import fit_slice
from cje_core.calibration.reliability import coverage_badge, reliability
from cje_core.data import DataError, build, contract
from cje_core.data.arrays import unpack
from cje_core.estimators import direct, snips
from cje_core.transport import agreement
from cje_core.transport.audit import audit
from cje_core.workflow.analyze import analyze
from cje_sim.scenarios import arena_like, well_specified


def test_a_calibration_that_means_nothing_is_refused_at_once():
    for bad, text in (
        ({"mode": "spline"}, "calibrator=.*spline.* monotone"),
        ({"direction": "up"}, "direction=.*up.* increasing, decreasing"),
        ({"covariates": "length"}, "covariates=.*length.* list"),
    ):
        with pytest.raises(DataError, match=text):
            Calibration(**bad)
    assert Calibration(["a", "b"]) == Calibration(("a", "b"))


def test_what_is_calibrated_in_one_way_is_not_taken_for_another():
    data = well_specified.simulate(n=60, rng=0)
    given = calibrated(data, Calibration(mode="two_stage"))
    assert calibrated(given) is given and calibrated(given, Calibration(mode="two_stage")) is given
    with pytest.raises(ValueError, match="calibrated already"):
        calibrated(given, Calibration())
    with pytest.raises(ValueError, match="calibrated already"):
        direct.estimate(given, calibration=Calibration())


@pytest.mark.parametrize("mode", ["default", "two_stage", "two_stage_monotone", "auto"])
def test_a_fit_that_is_passed_on_gives_the_numbers_of_one_made_anew(mode):
    data = arena_like.simulate(n=150, oracle_fraction=0.4, label_design="base", rng=1)
    how = Calibration(["response_length"], mode)
    given = calibrated(data, how)
    for again in range(2):  # the second call meets everything fitted
        del again
        for name in ("direct", "direct_corrected", "snips", "calibrated_dr_cpo"):
            if set(estimators.load(name).NEEDS) <= set(data):
                estimate = estimators.load(name).estimate
                xr.testing.assert_identical(estimate(given), estimate(data, calibration=how))
        for function in (audit, coverage_badge, reliability, agreement.agreement):
            xr.testing.assert_identical(function(given), function(calibrated(data, how)))
    one, two = given.slice, fit_slice(unpack(data, how.covariates), calibrator=mode)
    np.testing.assert_array_equal(one.calibrator.value, two.calibrator.value)


def test_slices_of_another_kind_are_what_they_say():
    data = arena_like.simulate(n=150, oracle_fraction=0.4, label_design="base", rng=2)
    plain, wide = calibrated(data), calibrated(data, Calibration(["response_length"]))
    assert plain.monotone is plain.slice
    assert wide.slice.mode == "two_stage" and wide.monotone.mode == "monotone"
    two_stage = calibrated(data, Calibration(mode="two_stage"))  # of the judge alone, so not what default is
    assert two_stage.slice.mode == "two_stage" and two_stage.monotone.mode == "monotone"
    assert plain.slice_with_logs is plain.slice
    unlabelled = data.assign(labelled=data["labelled"] & False)
    logs = calibrated(unlabelled)
    assert logs.slice.calibrator is None and logs.slice_with_logs.calibrator is not None
    xr.testing.assert_identical(snips.estimate(logs), snips.estimate(unlabelled))


@pytest.fixture
def counted(monkeypatch):
    """How often data are checked, and each slice is fitted."""
    calls = Counter()

    def check(data, **options):
        calls["check"] += 1
        return contract_check(data, **options)

    def fitted(rows, *, direction="increasing", calibrator="default", logged=None, **options):
        calls["slice", rows.teaches.tobytes(), rows.z.shape, direction, calibrator, logged is None] += 1
        return fit_slice(rows, direction=direction, calibrator=calibrator, logged=logged, **options)

    contract_check = contract.check_data
    for place in (build, module):
        monkeypatch.setattr(place, "check_data", check)
    for place in (module, agreement):
        monkeypatch.setattr(place, "fit_slice", fitted)
    return calls


def sources(arena):
    return {"logged": arena / "logged_data.jsonl", "probes": arena / "probe_slice"}


@pytest.mark.slow
@pytest.mark.parametrize("covariates", [[], ["response_length"]])
def test_analyze_checks_no_data_again_and_fits_each_slice_once(counted, arena, covariates):
    result = analyze(
        arena / "fresh_draws", calibration=Calibration(covariates), bayes="gibbs", **sources(arena)
    )
    assert counted.pop("check") == 2  # where they are read, and where they are taken
    assert counted and set(counted.values()) == {1}
    assert isinstance(result.calibrated, Calibrated)


def test_the_counter_sees_what_is_done_twice(counted):
    data = small()
    for _ in range(2):
        direct.estimate(data)
    assert counted.pop("check") == 3 and set(counted.values()) == {2}  # one check made the data
