"""The study of interval coverage: worlds, methods that run where, tables and figures on whole and partial grids."""

import inspect
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr

from cje_core.estimators import direct
from cje_core.inference.contrasts import contrasts
from cje_core.streams import Streams
from cje_sim import scenarios
from studies.engine import run
from studies.engine import study as _study
from studies.engine.measures import performance
from studies.engine.measures.bounds import flat_error
from studies.engine.outcome import NOT_RUN
from studies.engine.scenario import replicate_scenario
from studies.interval_coverage import DIFFERENCE, WORLDS, applies
from studies.report import page

STUDY = _study.load("interval_coverage")


def truth_of(scenario, arguments):
    """Return the truth of a scenario with those of the arguments that it asks for."""
    known = inspect.signature(scenario.truth).parameters
    return scenario.truth(**{name: value for name, value in arguments.items() if name in known})


@pytest.fixture(scope="module")
def ds(tmp_path_factory):
    """Results of the smoke profile."""
    return run.run_study(STUDY, profile="smoke", out=tmp_path_factory.mktemp("smoke")).results


@pytest.mark.slow
def test_the_controls_behave(ds):
    value = performance(ds.sel(world="smooth", policy=["base", "high", "low"]))["value"]
    bias = value.sel({"measure": "bias", "method": "raw_judge"})
    assert (bias > 0.05).all()  # the judge is on another scale: 0.14 on average
    assert (value.sel({"measure": "coverage", "method": "raw_judge"}) == 0).all()
    failed = value.sel({"measure": "n_failed", "method": "labels_only"}).sel(label_design="base")
    assert (failed.sel(policy="base") == 0).all() and (failed.drop_sel(policy="base") == 4).all()
    refused = value.sel({"measure": "refused", "method": "labels_only"}).sel(label_design="base")
    assert (refused == failed / 4).all()


@pytest.mark.slow
def test_the_methods_that_apply_run_and_no_other(ds):
    cells = {tuple(cell.values()) for cell in STUDY.at("smoke").cells()}
    assert ("smooth", 1000, 0.05, "own") in cells and ("weak", 1000, 0.05, "own") not in cells
    for world, n, fraction, design in cells:
        for method in ds["method"].values:
            at = ds["status"].sel(world=world, n=n, oracle_fraction=fraction, label_design=design)
            ran = (at.sel({"method": method}) != NOT_RUN).values
            cell = {"world": world, "label_design": design}
            assert ran.all() == ran.any() == applies(str(method), cell), (method, world, design)


@pytest.mark.parametrize("name", WORLDS)
def test_each_world_has_the_policies_and_the_labels_it_promises(name):
    world = WORLDS[name]
    design = {"n": 200, "oracle_fraction": 0.25, "label_design": world.design}
    data = scenarios.load(world.scenario).simulate(**design, **world.arguments, rng=1)
    labels = data["labelled"].sum(("prompt", "draw")).sel(policy=list(world.policies)).values
    assert labels.tolist() == ([50, 0, 0] if world.design == "base" else [50, 50, 50])
    truth = truth_of(scenarios.load(world.scenario), world.arguments).sel(policy=list(world.policies)).values
    assert (truth[1] == truth[2]) if world.equal else (abs(truth[1] - truth[2]) > 0.02)


def test_the_sentences_name_the_world_where_transport_fails(ds):
    """World shift is left out of the question and named, with the coverage that stands in the table."""
    shifted = planted(ds.sel(label_design=["base"], world=["weak"]), "direct", 400).assign_coords(
        world=["shift"]
    )
    both = xr.concat([planted(ds.sel(label_design=["base"], world=["weak"]), "direct", 20), shifted], "world")
    for one in STUDY.findings(both)[:2]:
        assert one.holds is True and "cells cover 95.0 (1.1)%" in one.sentence
        end = "Left out: world shift, where transport fails by construction (covers 0.0 (0.5)%)."
        assert one.sentence.endswith(end)


def test_a_difference_is_the_contrast_of_the_two_policies():
    """Value, interval and graver status, as the library gives them for the same data."""
    study = STUDY.at("smoke")
    cell = {"world": "equal", "n": 1000, "oracle_fraction": 0.05, "label_design": "base"}
    streams = Streams(1, study.name, cell, 0)
    found = replicate_scenario(study, cell, streams)
    arguments = {k: v for k, v in cell.items() if k != "world"}
    data = scenarios.load("equal_policies").simulate(**arguments, rng=Streams(1, study.name, cell, 0)("data"))
    for name in ("direct_plug_in", "direct_one_step", "direct"):
        estimate = direct.estimate(data, **study.methods[name].options)
        row, column = list(study.methods).index(name), study.columns.index(DIFFERENCE)
        pairs = contrasts(estimate)
        pair = pairs.isel(pair=(pairs["first"] == "disliked").values & (pairs["second"] == "favoured").values)
        interval = -pair["interval"].values[0, ::-1]  # the library's pairs stand in the order of the alphabet
        np.testing.assert_allclose(np.asarray(found.interval)[row, column], interval, rtol=1e-12)
        np.testing.assert_allclose(
            np.asarray(found.estimate)[row, column], -pair["difference"].values[0], rtol=1e-12
        )
        two = estimate["status"].sel(policy=["favoured", "disliked"]).values
        assert np.asarray(found.status)[row, column] == two.max()
    assert np.asarray(found.truth).tolist() == [0.6, 0.6, 0.6, 0.0]


@pytest.mark.slow
def test_contrasts_are_columns_after_the_policies(ds):
    assert STUDY.columns == ["base", "high", "low", DIFFERENCE] == ds["policy"].values.tolist()
    with pytest.raises(
        _study.StudyError, match="a contrast names an unknown policy; there are: base, high, low"
    ):
        replace(STUDY, contrasts=(("high", "nobody"),))


@pytest.mark.slow
def test_tables(ds):
    tables = STUDY.table(ds)
    coverage, false, widths, _, measures = tables.values()
    assert len(coverage) == 2 * (4 + 2 + 2)  # values and differences
    own = (coverage["label_design"] == "own").values
    assert coverage.loc[~own, "labels_only"].isna().all() and coverage.loc[own, "labels_only"].notna().all()
    for row in coverage.to_dict("records"):
        cell = {k: row[k] for k in ("world", "n", "oracle_fraction", "label_design")}
        values = ["high", "low"] if row["label_design"] == "base" else ["base", "high", "low"]
        policies = values if row["estimand"] == "value" else [DIFFERENCE]
        at = ds.sel(cell).sel({"method": "direct"}).sel(policy=policies)
        hit = (at["interval"].sel(ci_bound="lower") <= at["truth"]) & (
            at["truth"] <= at["interval"].sel(ci_bound="upper")
        )
        printed = np.isfinite(at["interval"]).all("ci_bound")
        assert row["policy"] == (policies[0] if len(policies) == 1 else f"mean of {', '.join(policies)}")
        assert row.get("direct_refused", 0.0) == pytest.approx(1 - float(printed.mean()))
        if not bool(printed.any("replicate").all()):  # every run refused: blank, not zero
            assert np.isnan(row["direct"])
            continue
        expected = hit.where(printed).mean("replicate").mean()  # of each policy, then over them
        assert row["direct"] == pytest.approx(float(expected))
        if float(expected) == 1.0:  # all replicates alike do not make it certain
            trials = float(printed.sum("replicate").mean())
            assert row["direct_mcse"] == pytest.approx(float(flat_error(trials)))
    assert 2 * 6 >= len(widths) >= 2 * 4  # borrowed calibrators only
    assert "direct_plug_in_refused" not in coverage  # the paper's way never refuses
    assert set(false["world"]) == {"equal"} and set(false["estimand"]) == {"difference"}
    shown = measures[(measures["world"] == "equal") & (measures["estimand"] == "difference")]
    for row in false.to_dict("records"):
        for method in ("direct_plug_in", "direct_one_step", "direct"):
            at = shown[
                (shown["oracle_fraction"] == row["oracle_fraction"]) & (shown["method"] == method)
            ].iloc[0]
            assert row[method] == pytest.approx((1 - np.nan_to_num(at["coverage"])) * (1 - at["refused"]))
    assert "direct_plug_in" not in widths and (widths["direct_one_step"] > 0).all()


def planted(ds, method, missed):
    """Results of 400 replicates whose intervals all hold the truth, but the first `missed` of one method's."""
    big = ds.isel(replicate=np.arange(400) % ds.sizes["replicate"]).assign_coords(replicate=np.arange(400))
    big["estimate"] = (big["truth"] + 0 * big["status"]).where(big["status"] != NOT_RUN)
    half = np.full((400, ds.sizes["method"]), 1.0)
    half[:missed, [str(m) for m in ds["method"].values].index(method)] = np.nan
    sides = xr.DataArray([-1.0, 1.0], coords={"ci_bound": ["lower", "upper"]})
    half = xr.DataArray(half, dims=("replicate", "method"), coords={"replicate": np.arange(400)})
    big["interval"] = (big["estimate"] + sides * half.fillna(0) + 2 * half.isnull()).transpose(
        *ds["interval"].dims
    )
    return big


@pytest.mark.slow
def test_the_findings_follow_the_intervals(ds):
    """Missing 5% of the truths keeps the level, missing a fifth does not, and four replicates cannot tell."""
    for missed, expected in ((20, True), (80, False)):
        found = STUDY.findings(planted(ds, "direct", missed))[:4]
        assert [f.holds for f in found] == [expected] * 4
        share = (
            f"{100 * (1 - missed / 400):.1f} ({100 * np.sqrt(missed / 400 * (1 - missed / 400) / 399):.1f})"
        )
        assert all(f"cells cover {share}" in f.sentence for f in found)
    assert [f.holds for f in STUDY.findings(ds)[:4]] == [None] * 4


@pytest.mark.slow
def test_the_papers_ranges_are_met_where_the_coverages_lie_in_them(ds):
    for missed, expected in ((80, True), (200, False)):
        found = STUDY.findings(planted(ds, "plug_in_jackknife", missed))
        of_jackknife = [f for f in found if "(plug_in_jackknife, " in f.sentence]
        assert [f.holds for f in of_jackknife] == [expected] * 2 and "70-89%" in of_jackknife[0].sentence
        others = [f for f in found if "(aug_jackknife, " in f.sentence]
        assert [f.holds for f in others] == [False]  # covers always: above the range


@pytest.mark.slow
def test_the_jackknife_is_the_papers(ds):
    """Its variance is that of the mean of f(S) over prompts plus (K - 1) / K times the sum over deleted folds."""
    streams = Streams(1, STUDY.name, {"world": "smooth"}, 0)
    data = scenarios.load("well_specified").simulate(
        n=250, oracle_fraction=0.25, label_design="own", rng=streams("data")
    )
    found = direct.estimate(data, **STUDY.methods["plug_in_jackknife"].options)
    left_out = found["jackknife"].values
    folds = left_out.shape[1]
    variance = (folds - 1) / folds * ((left_out - left_out.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    # folds of 60 labels by a hash of the prompt differ in size, for which the library's formula allows
    np.testing.assert_allclose(found["std_error_calibration"] ** 2, variance, rtol=0.05)
    total = np.sqrt(found["std_error_evaluation"] ** 2 + found["std_error_calibration"] ** 2)
    np.testing.assert_allclose(found["std_error"], total, rtol=1e-10)
    half = found["interval"].diff("ci_bound").values[:, 0] / 2
    np.testing.assert_allclose(half, 1.959964 * total, rtol=1e-6)


@pytest.mark.slow
def test_a_refusal_is_no_false_difference(ds):
    """A method that refuses every run is shown as refused, not as one that errs or covers."""
    silent = ds.copy(deep=True)
    place = list(ds["method"].values).index("direct")
    silent["estimate"][{"method": place}] = np.nan
    silent["interval"][{"method": place}] = np.nan
    coverage, false, *_ = STUDY.table(silent).values()
    equal = (coverage["world"] == "equal").values
    assert (coverage.loc[equal, "direct_refused"] == 1).all() and coverage.loc[equal, "direct"].isna().all()
    assert all("No interval at all in" in one.sentence for one in STUDY.findings(silent)[:4])
    assert (false["direct"] == 0).all()
    with mpl.rc_context(page.STYLE):
        for figure in STUDY.figure(silent).values():
            mpl.pyplot.close(figure)


@pytest.mark.slow
@pytest.mark.parametrize(
    "levels",
    [
        {},
        {"label_design": ["base"], "world": ["smooth"]},
        {"label_design": ["own"], "oracle_fraction": [0.25]},
        {"world": ["weak", "equal"], "label_design": ["base"]},
    ],
)
def test_figures_of_whole_and_partial_grids(ds, levels):
    part = ds.sel(levels)
    texts = list(page.figures(STUDY, part).values())
    paper, borrowed = "smooth" in part["world"].values, "base" in part["label_design"].values
    assert len(texts) == paper + borrowed
    if paper:
        assert "coverage (stretched scale)" in texts[0] and "prompts, and share of them labelled" in texts[0]
    if borrowed:
        assert "share of runs refused" in texts[-1] and "coverage of the difference" in texts[-1]
    with mpl.rc_context(page.STYLE):
        figures = list(STUDY.figure(part).values())
    if paper:
        top = figures[0].axes[0]
        assert top.get_yscale() == "function" and list(top.get_ylim()) == [-0.25, 1.01]
    for figure in figures:
        mpl.pyplot.close(figure)
