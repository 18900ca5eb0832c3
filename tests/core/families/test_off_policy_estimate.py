"""What the off-policy family says once for all its members: options, help, facts with their dimensions."""

import inspect
import pickle
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from ope_world import logs_of, small

from cje_core import estimators
from cje_core.calibration.calibrated import Calibration
from cje_core.estimators import calibrated_dr_cpo, snips
from cje_core.families.off_policy import stages
from cje_core.families.off_policy.estimate import Method, estimator
from cje_core.families.off_policy.value import Along

FAMILY = (
    "calibrated_dr_cpo",
    "calibrated_ips",
    "capped_ips",
    "dr_cpo",
    "ips",
    "mrdr",
    "snips",
    "stacked_dr",
    "tmle",
)
SHARED = ["inference", "borrowed", "calibration", "interval"]


@pytest.mark.parametrize("name", FAMILY)
def test_help_describes_every_option_and_unknown_ones_are_refused(name):
    function = estimators.load(name).estimate
    names = list(inspect.signature(function).parameters)
    assert names[:3] == ["data", "ci_prob", "rng"] and names[-4:] == SHARED
    described = inspect.getdoc(function).partition("Parameters\n")[2].partition("Returns\n")
    heads = [line.split(" : ")[0] for line in described[0].splitlines() if line[:1].isalpha()]
    assert ", ".join(heads).split(", ") == names
    assert "ess_fraction_raw" in described[2]
    assert ("direct_part" in described[2]) == ("direct_part" in function(small()))
    with pytest.raises(TypeError, match="no_such_option"):
        function(small(), no_such_option=1)
    assert pickle.loads(pickle.dumps(function)) is function


def test_a_fact_lies_along_the_dimension_that_it_names():
    """Two numbers are an interval only where the estimator says so."""

    def value(logs, p):
        found = snips.policy_value(logs, p)
        halves = Along("half", ["first", "second"], np.array([1.0, 2.0]) * (p + 1))
        ends = Along("ci_bound", ["lower", "upper"], np.array([-1.0, 1.0]))
        return replace(found, facts={"by_half": halves, "ends": ends, "alone": float(p)})

    @estimator(fresh=False)
    def estimate() -> Method:
        """A planted estimator."""
        return Method(value)

    data = small()
    found = estimate(data)
    assert found["by_half"].dims == ("policy", "half") and found["half"].values.tolist() == [
        "first",
        "second",
    ]
    assert found["ends"].dims == ("policy", "ci_bound") and found["alone"].dims == ("policy",)
    policies = logs_of(data).rows.policies
    for p, name in enumerate(policies):
        at = found.sel(policy=name)
        assert at["by_half"].values.tolist() == [p + 1, 2 * p + 2] or np.isnan(at["estimate"])
    ours, usual = (one["estimate"].drop_vars("method") for one in (found, snips.estimate(data)))
    xr.testing.assert_identical(ours, usual)


def test_an_estimator_alone_computes_what_it_reads():
    logs = snips.estimate.prepare(small())
    assert logs.judge is not None and logs.residuals is not None
    assert not logs.outcomes and not logs.weights.stable and logs.fold_fits is None and logs.reruns is None
    rerun = snips.estimate.prepare(small(), inference="jackknife").reruns[0]
    assert not rerun.outcomes and not rerun.weights.stable and rerun.fitted.calibrator is None


@pytest.mark.parametrize("inference", ["influence", "jackknife"])
def test_stages_that_are_passed_on_are_not_computed_again(monkeypatch, inference):
    data = small()
    alone = {name: estimators.load(name).estimate(data, inference=inference) for name in FAMILY}
    logs = data
    for name in FAMILY:
        logs = estimators.load(name).estimate.prepare(logs, inference=inference)

    def again(*_, **__):
        raise AssertionError("computed again")

    for name in ("stack_candidates", "held_out_candidates", "held_out_calibrator", "without_fold", "refit"):
        monkeypatch.setattr(stages, name, again)
    for name, expected in alone.items():
        xr.testing.assert_identical(estimators.load(name).estimate(logs, inference=inference), expected)
    with pytest.raises(AssertionError, match="computed again"):
        calibrated_dr_cpo.estimate(data, inference=inference)


def test_logs_have_one_calibration():
    logs = snips.estimate.prepare(small())
    with pytest.raises(ValueError, match="calibrated already"):
        snips.estimate(logs, calibration=Calibration(mode="two_stage"))
