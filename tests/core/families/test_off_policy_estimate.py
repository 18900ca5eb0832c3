"""What the off-policy family says once for all its members: options, help, facts with their dimensions."""

import inspect
import pickle
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from ope_world import logs_of, small

from cje_core import estimators
from cje_core.estimators import snips
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
