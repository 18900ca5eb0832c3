"""`analyze` and `plan` as calls of the library: data that are there already, and objects that show themselves."""

import re

import numpy as np
import pytest
import xarray as xr
from analysis import world as table

import cje_core
from cje_core.data import DataError
from cje_core.workflow.shown import Shown, decimals, number
from cje_sim.scenarios import arena_like

MONEY = {"budget": 40, "cost_judge": 0.02, "cost_oracle": 0.3, "replicates": 20}


@pytest.mark.slow
def test_a_dataset_gives_what_its_files_give():
    read = cje_core.analyze(table())
    held = read.data.copy(deep=True)
    taken = cje_core.analyze(held)
    assert held.identical(read.data) and taken.left_out.empty
    for name, estimate in read.estimates.items():
        xr.testing.assert_identical(taken.estimates[name], estimate)
    assert repr(taken) == repr(read)
    plans = [cje_core.plan(given, **MONEY) for given in (table(), held)]
    xr.testing.assert_identical(plans[0].forecast, plans[1].forecast)
    xr.testing.assert_identical(plans[0].check, plans[1].check)


def test_policies_of_a_dataset_stand_in_order_of_name():
    data = cje_core.analyze(table()).data
    turned = cje_core.analyze(data.isel(policy=slice(None, None, -1)))
    assert turned.policies == ["base", "other"]
    assert repr(turned) == repr(cje_core.analyze(data))


@pytest.mark.slow
def test_logs_covariates_and_scales_of_a_dataset_are_its_own():
    data = arena_like.simulate(n=200, rng=1)
    result = cje_core.analyze(data, calibration=cje_core.Calibration(["response_length"]))
    assert result.off_policy and result.overlap is not None
    wide = data.assign(oracle=100 * data["oracle"], logged_oracle=100 * data["logged_oracle"])
    scaled = cje_core.analyze(wide.assign_attrs(oracle_range=[0.0, 100.0]))
    assert scaled.transport.attrs["margin"] == pytest.approx(5.0)
    np.testing.assert_allclose(
        scaled.estimates["direct"].estimate, 100 * cje_core.analyze(data).estimates["direct"].estimate
    )


@pytest.mark.parametrize("name", ["probes", "logged", "calibration_policy"])
def test_what_goes_with_files_is_refused_beside_a_dataset(name):
    data = cje_core.analyze(table()).data
    with pytest.raises(DataError, match=f"{name}= goes with files"):
        cje_core.analyze(data, **{name: "x"})


def test_a_dataset_that_is_no_evaluation_data():
    with pytest.raises(DataError):
        cje_core.analyze(xr.Dataset())
    with pytest.raises(DataError, match="chosen='snips': it needs logged responses; give logged=FILE"):
        cje_core.analyze(table(), chosen=["snips"])


def test_an_analysis_shows_what_stands_first():
    rows = table(200)
    far = rows["policy"] == "other"
    rows.loc[far, "judge_score"] = 0.95  # where no label is
    result = cje_core.analyze(rows)
    heading, columns, base, other = repr(result).splitlines()
    assert heading == "2 policies, 200 prompts"
    assert re.split("  +", columns) == [
        "policy",
        "value",
        "95% interval",
        "level",
        "rests on (by), or why not",
    ]
    value = float(result.value["estimate"].sel(policy="base"))
    assert re.fullmatch(rf"base +{value:.3f} +\[0\.\d+, 0\.\d+\]  reported  own labels \(direct\)", base)
    reason = str(result.levels["reason"].sel(policy="other").item())
    assert reason and re.fullmatch(rf"other +- +- +refused +{re.escape(reason)}", other)


def test_a_plan_shows_its_errors():
    planned = cje_core.plan(table(), **MONEY)
    heading, columns, *rows = repr(planned).splitlines()
    assert heading.startswith(
        f"judge {planned.plan.n} prompts under 2 policies, label {planned.plan.m}, probe "
    )
    assert re.split("  +", columns) == ["policy", "planned SE", "simulated SE", "route, or why not"]
    assert [row.split()[0] for row in rows] == ["base", "other"]
    error = float(planned.forecast["std_error"].sel(policy="base"))
    assert float(rows[0].split()[1]) == pytest.approx(error, rel=1e-2)


@pytest.mark.slow
def test_html_says_the_same_and_escapes_names():
    rows = table(policies=("<b>base</b>", "a & b"))
    result = cje_core.analyze(rows)
    page = result._repr_html_()
    assert "<b>" not in page and "&lt;b&gt;base" in page and "a &amp; b" in page
    assert page.count("<tr>") == 3
    assert "planned SE" in cje_core.plan(rows, **MONEY)._repr_html_()


@pytest.mark.parametrize(
    ("scale", "expected"), [((0, 1), "0.500"), ((0, 5), "0.500"), ((0, 100), "0.5"), ((0, 1e4), "0")]
)
def test_numbers_by_the_scale(scale, expected):
    assert number(0.5, scale) == expected and number(np.nan, scale) == "-"
    assert decimals((0, 1e-9)) == 6


def test_a_table_of_no_rows():
    assert Shown("none", ["policy"], []).text() == "none\npolicy"
