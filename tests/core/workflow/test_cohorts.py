"""Cohorts add up to the whole, differences from it are those of the joint influence, and labels are told apart."""

import numpy as np
import pytest
from group_world import draw, value
from scipy import special, stats

from cje_core.calibration.calibrated import Calibration, calibrated
from cje_core.calibration.oracle_slice import held_out
from cje_core.calibration.reliability import reliability_by_group
from cje_core.data import DataError, from_arrays
from cje_core.data.cohorts import restrict
from cje_core.estimators import direct, labels_only, raw_judge
from cje_core.inference.contrasts import adjust_p
from cje_core.workflow.analyze import analyze
from cje_core.workflow.cohorts import together

SHIFT = (0.1, 0.0, -0.1)


@pytest.fixture(scope="module")
def world():
    return draw(400, 90, SHIFT, 1, target_labels=60)


def parts(data):
    """Data of each cohort, with its share of prompts and of each policy's labels."""
    for name in sorted(set(data["topic"].values.tolist())):
        inside = (data["topic"] == name).values
        labels = data["labelled"].values[:, :, 0]
        yield restrict(data, {"topic": name}), inside.mean(), labels[:, inside].sum(1) / labels.sum(1)


def test_cohorts_add_up_to_the_whole(world):
    plug_in = {"correction": "none", "power_tuned": False}
    corrected = {"power_tuned": False}
    total = dict.fromkeys(("raw", "labels", "plug_in", "mean", "residual"), 0.0)
    for part, prompts, labels in parts(world):
        total["raw"] += prompts * raw_judge.estimate(part).estimate.values
        total["labels"] += labels * labels_only.estimate(part).estimate.values
        f = direct.estimate(part, **plug_in).estimate.values
        total["plug_in"] += prompts * f
        total["residual"] += labels * (direct.estimate(part, **corrected).estimate.values - f)
    np.testing.assert_allclose(total["raw"], raw_judge.estimate(world).estimate, rtol=1e-12)
    np.testing.assert_allclose(total["labels"], labels_only.estimate(world).estimate, rtol=1e-12)
    np.testing.assert_allclose(total["plug_in"], direct.estimate(world, **plug_in).estimate, rtol=1e-12)
    whole = direct.estimate(world, **corrected).estimate
    np.testing.assert_allclose(total["plug_in"] + total["residual"], whole, rtol=1e-12)


@pytest.fixture(scope="module")
def found(world):
    return analyze(world, groups=["topic"])


@pytest.mark.slow
def test_a_cell_is_the_analysis_of_its_cohort(world, found):
    table = found.cohorts["topic"]
    assert table["cohort"].values.tolist() == ["g0", "g1", "g2"]
    for name in table["cohort"].values.tolist():
        alone = analyze(world, cohort={"topic": name})
        at = table.sel(cohort=name)
        np.testing.assert_array_equal(at["estimate"], alone.value["estimate"])
        np.testing.assert_array_equal(at["interval"], alone.value["interval"])
        assert at["level"].values.tolist() == [alone.level(policy) for policy in alone.policies]
    np.testing.assert_allclose(table["share"].sum("cohort"), 1.0)
    np.testing.assert_allclose(table["sum"], (table["share"] * table["estimate"]).sum("cohort"))
    assert int(table["n_labels"].sum()) == 150 and int(table["n_prompts"].sel(policy="base").sum()) == 400
    assert (np.abs(table["sum"] - table["whole"]) < table["std_error"].max("cohort")).all()
    for k, shift in enumerate(SHIFT):  # five standard errors
        off = table["estimate"].isel(cohort=k) - [value(p, [shift]) for p in ("base", "target")]
        assert (np.abs(off) < 5 * table["std_error"].isel(cohort=k)).all()


@pytest.mark.slow
def test_differences_from_the_whole_are_of_the_joint_influence(world, found):
    table, whole = found.cohorts["topic"], found.value
    for name in ("g0", "g2"):
        part = analyze(world, cohort={"topic": name}).value
        a, b = (one.sel(policy="base") for one in (part, whole))
        moves = (b["influence"] / b.sizes["prompt"]).to_series()
        moves = moves.sub(a["influence"].to_series() / a.sizes["prompt"], fill_value=0.0)
        std_error = np.sqrt((moves**2).sum())
        at = table.sel(policy="base", cohort=name)
        assert float(at["difference"]) == pytest.approx(float(a["estimate"] - b["estimate"]), abs=1e-12)
        assert float(at["difference_std_error"]) == pytest.approx(std_error, rel=1e-9)
        df = min(float(a["df"]), float(b["df"]))
        p = 2 * special.stdtr(df, -abs(float(at["difference"])) / std_error)
        assert float(at["p_value"]) == pytest.approx(p, rel=1e-9)
        assert bool(at["flagged"])
    p_bh = adjust_p(table["p_value"].values.ravel(), "bh")
    np.testing.assert_array_equal(table["p_bh"].values.ravel(), p_bh)


@pytest.mark.slow
def test_cohorts_of_a_cohort(world):
    """Prompts of other cohorts, which only teach, make no row; the words say both restrictions."""
    side = world.assign(side=("prompt", np.where(world["topic"] == "g0", "west", "east")))
    east = analyze(side, cohort={"side": "east"}, groups=["topic"])
    assert repr(east).startswith(f"2 policies, {int((side['side'] == 'east').sum())} prompts of side=east\n")
    table = east.cohorts["topic"]
    assert table["cohort"].values.tolist() == ["g1", "g2"]
    np.testing.assert_allclose(table["share"].sum("cohort"), 1.0)
    alone = analyze(side, cohort={"topic": "g1"})
    np.testing.assert_array_equal(table["estimate"].sel(cohort="g1"), alone.value["estimate"])
    inner = restrict(restrict(side, {"side": "east"}), {"topic": "g1"})
    assert inner.attrs["cohort"] == "side=east, topic=g1"


def test_one_cohort_that_is_the_whole_differs_from_nothing(world):
    table = analyze(world.assign(topic=("prompt", ["all"] * 400)), groups=["topic"]).cohorts["topic"]
    np.testing.assert_allclose(table["estimate"].isel(cohort=0), table["whole"], rtol=1e-12)
    assert table["p_value"].isnull().all() and not table["flagged"].any()


@pytest.mark.slow
def test_reliability_by_group_is_that_of_its_labels(world, found):
    out = reliability_by_group(world, "topic")
    given = calibrated(world)
    taught = given.slice
    left = taught.label - held_out(taught, taught.z, taught.prompt)
    group = world.sortby("prompt")["topic"].values[taught.prompt]
    within = np.sqrt(np.mean([(e - left[group == g].mean()) ** 2 for e, g in zip(left, group, strict=True)]))
    for name, shift in zip(("g0", "g1", "g2"), SHIFT, strict=True):
        mine, at = left[group == name], out.sel(group=name)
        assert float(at["residual"]) == pytest.approx(mine.mean(), abs=1e-12)
        noise = max(mine.std(ddof=1), within)  # labels that are all alike show none of their own
        assert float(at["std_error"]) == pytest.approx(noise / np.sqrt(len(mine)), rel=1e-9)
        assert int(at["n_labels"]) == len(mine)
        reward = taught.label[group == name] - mine
        slope = np.polyfit(reward, taught.label[group == name], 1)[0]
        assert float(at["slope"]) == pytest.approx(slope, rel=1e-9)
        assert bool(at["flagged"]) == (shift != 0)
    table = found.cohorts["topic"]
    np.testing.assert_array_equal(table["label_residual"], out["residual"])
    few = reliability_by_group(world.assign(topic=("prompt", world.prompt.values)), "topic")
    assert few["residual"].isnull().all() and not few["flagged"].any()


def test_tables_are_kept_together_for_the_ledger(found):
    table = found.cohorts["topic"]
    both = together({"topic": table, "side": table})
    assert both["cohort"].values.tolist()[::3] == ["topic=g0", "side=g0"]
    assert both["label_residual"].dims == ("policy", "cohort") or both["label_residual"].dims == (
        "cohort",
        "policy",
    )
    assert together({}) is None


def test_names_that_are_no_groups_are_refused(world):
    with pytest.raises(DataError, match="field 'own' of prompts: it has 400 values"):
        analyze(world.assign(own=("prompt", world.prompt.values)), groups=["own"])


def test_groups_of_the_calibrator_are_read_and_are_no_table(world):
    grouped = analyze(world, calibration=Calibration(groups="topic"))
    assert (
        grouped.cohorts == {} and grouped.estimates["direct"].attrs["options"].count('"groups": "topic"') == 1
    )


@pytest.mark.slow
def test_groups_whose_rare_labels_are_all_alike_are_not_flagged():
    """P(any flag) of 300 data sets of equal groups is 5% at most; by each group's own noise alone it is over 40%."""
    rng, flagged, n_sets = np.random.default_rng(3), 0, 300
    for _ in range(n_sets):
        oracle = np.where(np.arange(90) < 40, rng.random(90) < 0.06, np.nan)
        data = from_arrays(rng.beta(2, 2, 90)[None], policies=["base"], oracle=oracle[None])
        data = data.assign(side=("prompt", np.array(["a", "b", "c"])[rng.integers(0, 3, 90)]))
        flagged += bool(reliability_by_group(data, "side")["flagged"].any())
    assert flagged <= stats.binom.ppf(1 - 3e-7, n_sets, 0.05)
