"""The study of Bayesian and frequentist intervals: which methods run where, tables, figures, sentences."""

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr

from cje_core.inference.estimate import Status
from cje_core.streams import Streams
from studies import bayes_vs_frequentist
from studies.bayes_vs_frequentist import (
    BAYES,
    ENGINES,
    PRIORS,
    PROBED,
    REFERENCE,
    WORLDS,
    applies,
    engine_table,
)
from studies.engine import run
from studies.engine import study as _study
from studies.engine.measures import performance
from studies.engine.measures.best import of_values
from studies.engine.outcome import NOT_RUN
from studies.report import page

STUDY = _study.load("bayes_vs_frequentist")


@pytest.fixture(scope="module")
def ds(tmp_path_factory):
    """Results of the smoke profile."""
    return run.run_study(STUDY, profile="smoke", out=tmp_path_factory.mktemp("smoke")).results


@pytest.mark.slow
def test_every_method_that_applies_answers_and_no_other_runs(ds):
    for name in ds["world"].values:
        for method in ds["method"].values:
            at = ds.sel({"world": name, "method": method, "policy": ["target", "target - rival"]})
            ran = (at["status"] != NOT_RUN).all() and (at["status"] >= -1).all()
            assert bool(ran) == applies(method, WORLDS[name]), (name, method)
            needs_own_labels = method in ("labels_only", "ppi_plus_plus") and WORLDS[name].borrowed
            answers = np.isfinite(at["estimate"])
            assert (answers == ((at["status"] >= 0) & (at["status"] < Status.TOO_FEW_LABELS))).all()
            if name != "equal":  # where nothing is to be borrowed, a method may well refuse
                assert bool(answers.all()) == (bool(ran) and not needs_own_labels)
    assert not applies("bayes_tight_noise", WORLDS["shift"]) and applies("bayes_sparse", WORLDS["shift"])
    assert applies("bayes_nutpie", WORLDS["smooth"]) and not applies("bayes_nutpie", WORLDS["transport"])
    assert applies("direct_plug_in", WORLDS["shift"]) and not applies("direct_plug_in", WORLDS["smooth"])
    assert not any(applies(m, WORLDS["shift"]) for m in PROBED)
    assert all(applies(m, WORLDS["shift_probes"]) for m in PROBED)


@pytest.mark.parametrize("name", WORLDS)
def test_each_world_gives_the_truth_of_its_policies(name):
    """Base, target and rival differ (unless all are equal), and its labels are those that the design promises."""
    from cje_sim import scenarios

    world = WORLDS[name]
    scenario = scenarios.load(world.scenario)
    link = {k: v for k, v in world.arguments.items() if k == "link"}
    truth = scenario.truth(**link).sel(policy=list(world.policies))
    base, target, rival = truth.values
    if name == "equal":
        assert base == target == rival
    else:
        assert abs(base - target) > 0.02 and abs(target - rival) > 0.02
    data = scenario.simulate(
        n=200,
        oracle_fraction=0.25,
        label_design="base" if world.borrowed else "own",
        rng=1,
        **world.arguments,
    )
    labels = data["labelled"].sum(("prompt", "draw")).sel(policy=list(world.policies)).values
    assert labels.tolist() == [50, *([0, 0] if world.borrowed else [50, 50])]
    assert int(data["probe"].sel(policy=world.policies[1]).sum()) == world.arguments.get("n_probes", 0)


def test_the_outcome_stands_at_the_methods_places():
    """A replicate of one cell gives the same numbers as the estimator called by hand."""
    from cje_core.estimators import bayes_direct, direct, direct_corrected
    from cje_core.inference.contrasts import contrasts
    from cje_sim.scenarios import transport_shift

    study = STUDY.at("smoke")
    cell = {"world": "shift_probes", "n": 250, "labels": 50}
    streams = Streams(1, study.name, cell, 0)
    found = study.replicate(study, cell, streams)
    data = transport_shift.simulate(
        n=250, oracle_fraction=0.2, label_design="base", n_probes=50, rng=streams("data")
    )
    names = list(study.methods)
    for name, module in (("direct_influence", direct), ("direct_corrected", direct_corrected)):
        expected = module.estimate(data).sel(policy=["base", "lower", "same"])
        np.testing.assert_array_equal(found.interval[names.index(name)][:3], expected["interval"])
        against = contrasts(expected)["interval"].values[0]  # base - lower
        np.testing.assert_allclose(found.interval[names.index(name)][3], -against[::-1], rtol=1e-12)
    truth = transport_shift.truth().sel(policy=["base", "lower", "same"]).values
    np.testing.assert_allclose(found.truth, [*truth, truth[1] - truth[0], truth[1] - truth[2]])
    assert (found.status[names.index("bayes_hdi")] == NOT_RUN).all()
    p_best = np.asarray(found.extra["p_best"])
    assert np.isnan(p_best[names.index("labels_only")]).all()  # two of the three have no labels
    posterior = bayes_direct.estimate(data, rng=streams(BAYES), n_draws=100)["draws"].sel(
        policy=["base", "lower", "same"]
    )
    share = (posterior == posterior.max("policy")).mean("replicate")
    np.testing.assert_allclose(p_best[names.index(BAYES)][:3], share)
    assert p_best[names.index("direct_influence")][:3].sum() == pytest.approx(1.0)


def test_methods_beside_the_arms_run_on_the_first_data_sets(monkeypatch):
    def chosen(study, cell, streams, *, of_estimate):
        return list(study.setting(study, cell).methods)

    monkeypatch.setattr(bayes_vs_frequentist, "replicate_with_facts", chosen)
    study, cell = STUDY.at("quick"), {"world": "smooth", "n": 1000, "labels": 50}
    at = {r: set(study.replicate(study, cell, Streams(1, study.name, cell, r))) for r in (0, 2, 10, 200, 400)}
    assert set(ENGINES) < at[0] and at[0] - at[2] == {"bayes_pymc"} and at[2] - at[10] == {"bayes_nutpie"}
    assert at[10] - at[200] == set(PRIORS[1:3])
    assert at[200] - at[400] == {"direct_bootstrap", "bayes_plug_in", "projection"}
    assert {REFERENCE, BAYES, "labels_only", "ppi_plus_plus"} < at[400]


@pytest.mark.slow
def test_tables(ds):
    short, coverage, best, bins, width, pairs, priors, statuses, times, best_cells, measures = STUDY.table(
        ds
    ).values()
    assert len(coverage) == len(width) == 2 * 4
    assert coverage.loc[coverage["world"] == "shift_probes", "labels_only"].isna().all()
    assert (coverage.loc[coverage["world"] == "shift_probes", "labels_only_refused"] == 1).all()
    for row in coverage.to_dict("records"):
        borrowed = WORLDS[row["world"]].borrowed
        policies = ["target"] if borrowed else ["base", "target"]
        if row["estimand"] == "difference":
            policies = ["target - rival" if borrowed else "target - base"]
        at = ds.sel(world=row["world"], n=row["n"], labels=row["labels"], policy=policies)
        at = at.sel({"method": "direct_influence"})
        low, high = (at["interval"].sel(ci_bound=end) for end in ("lower", "upper"))
        printed = np.isfinite(low) & np.isfinite(high)
        if not bool(printed.any("replicate").all()):  # every run refused: blank, not zero
            assert np.isnan(row["direct_influence"])
            continue
        covered = ((low <= at.truth) & (at.truth <= high)).where(printed)
        assert row["direct_influence"] == pytest.approx(float(covered.mean("replicate").mean()))
    assert set(pairs["world"]) | {"equal"} == set(coverage["world"]) and "direct_influence" not in set(
        pairs["method"]
    )
    one = pairs.set_index(["world", "estimand", "method"]).loc[("smooth", "value", "bayes_one_step")]
    both = ds.sel(world="smooth", n=250, labels=50, policy=["base", "target"])["interval"]
    both = both.diff("ci_bound").squeeze("ci_bound")
    mean = {m: float(both.sel({"method": m}).mean()) for m in ("bayes_one_step", "direct_influence")}
    assert one["width_ratio"] == pytest.approx(mean["bayes_one_step"] / mean["direct_influence"])
    assert set(priors["method"]) == set(PRIORS[1:]) and set(priors["world"]) == set(ds["world"].values)
    silent = statuses[(statuses["world"] == "shift_probes") & (statuses["method"] == "labels_only")]
    assert silent["status"].tolist() == ["no_labels"] and silent["share"].item() == 1.0
    refusals = coverage.set_index(["world", "estimand"])["direct_influence_refused"]
    at = statuses[(statuses["world"] == "equal") & (statuses["method"] == "direct_influence")]
    assert at["share"].sum() == pytest.approx(refusals["equal", "value"])
    assert (times["median"] > 0).all() and (times["median"] <= times["95th percentile"]).all()
    own = pairs[(pairs["method"] == BAYES) & pairs["world"].isin(["smooth", "binary"])]
    values = own[own["estimand"] == "value"]
    row = short[(short["labels of target"] == "own") & (short["estimand"] == "value")].squeeze()
    assert row["cells"] == 2 and row["width_ratio"] == pytest.approx(values["width_ratio"].mean())
    assert row["width_ratio_mcse"] == pytest.approx(np.hypot(*values["width_ratio_mcse"]) / 2)
    assert best_cells["runs"].max() == 3 and set(best["labels of target"]) == {
        "own",
        "borrowed",
        "transport fails",
    }
    assert set(bins["method"]) == {REFERENCE, BAYES}
    answers = measures["width"].notna() & (measures["method"] != "raw_judge")
    one = measures[answers]
    printed = 1 - one["refused"] - one["failed"]
    single = ~one["policy"].str.startswith("mean of")  # of an average the products do not multiply
    sides = one["coverage"] * printed + one["miss_left"] + one["miss_right"]
    np.testing.assert_allclose(sides[single], printed[single])


def planted(ds, missed):
    """500 replicates in which the posterior alone is wrong, in the first `missed`: its intervals and its P(best)."""
    at = np.arange(500)
    big = ds.isel(replicate=at % ds.sizes["replicate"]).assign_coords(replicate=at)
    big["estimate"] = (big["truth"] + 0 * big["status"]).where(big["status"] != NOT_RUN)
    out = np.zeros((500, ds.sizes["method"]))
    out[:missed, [str(m) for m in ds["method"].values].index("bayes_one_step")] = 2.0
    sides = xr.DataArray([-1.0, 1.0], coords={"ci_bound": ["lower", "upper"]})
    moved = xr.DataArray(out, dims=("replicate", "method"), coords={"replicate": at})
    big["interval"] = (big["estimate"] + sides + moved).transpose(*ds["interval"].dims)
    truth = of_values(big)["truth"]
    best = (truth == truth.max("policy")) / (truth == truth.max("policy")).sum("policy")
    best = best.where(of_values(big)["status"] != NOT_RUN)
    wrong = best.roll(policy=1, roll_coords=False)
    big["p_best"] = best.where(moved == 0, wrong).reindex(policy=big["policy"]).transpose(*ds["p_best"].dims)
    return big


@pytest.mark.slow
def test_the_findings_follow_the_intervals(ds):
    """Five answers; then both arms own and borrowed, probes, coverage and refusals alike, precision."""
    yes = [True, True, None, True, True, *[True] * 6, True, True, True]
    no = [False, True, False, False, False, True, False, True, False, True, True, False, True, False]
    for missed, expected in ((10, yes), (150, no)):
        found = STUDY.findings(planted(ds, missed))
        assert [f.holds for f in found] == expected
        right = f"{100 * (1 - missed / 500):.1f}"
        assert f"the posterior {right}% (" in found[0].sentence and f"{right} (" in found[6].sentence
        assert (
            f"the posterior names one in 100.0% (0.2) of the runs, rightly in {right}%" in found[3].sentence
        )
        assert "for values with own labels 1.000" in found[1].sentence
    few = STUDY.findings(ds)
    assert {f.holds for f in few[5:11]} == {None}


def test_engines_are_compared_on_the_same_data(ds):
    """A copy of Gibbs whose means are .2 standard deviations higher and whose spread is 1.05 times as large."""
    part = ds.sel({"world": ["smooth"], "method": [REFERENCE, BAYES]})
    part["effective_draws"] = 200.0 + 0 * part["estimate"]
    other = part.sel({"method": [BAYES]}).assign_coords(method=["bayes_nutpie"])
    other["estimate"] = other["estimate"] + 0.2 * other["std_error"]
    other["std_error"] = 1.05 * other["std_error"]
    other["seconds"] = 2.0 + 0 * other["seconds"]
    both = xr.concat([part, other], "method", data_vars="minimal")
    row = engine_table(both).squeeze()
    assert row["fits"] == 3 and row["milliseconds"] == 2000 and row["effective draws per second"] == 100
    assert row["apart"] == pytest.approx(0.2) and row["sd_ratio"] == pytest.approx(1.05)
    cost = next(f for f in STUDY.findings(both) if f.sentence.startswith("What does a fit cost"))
    assert cost.holds is False and "bayes_nutpie takes 2 s" in cost.sentence
    both["estimate"][...] = both["estimate"].sel({"method": BAYES})
    cost = next(f for f in STUDY.findings(both) if f.sentence.startswith("What does a fit cost"))
    assert cost.holds is True


@pytest.mark.slow
def test_the_controls_behave(ds):
    part = ds.sel(policy=["base", "target", "rival"])
    bias = performance(part)["value"].sel({"measure": "bias", "method": "raw_judge"}).sel(world="smooth")
    assert (bias > 0.05).all()  # the judge is on another scale than the oracle


@pytest.mark.slow
@pytest.mark.parametrize("levels", [{}, {"world": ["binary"]}, {"world": ["equal", "shift_probes"]}])
def test_figures_and_tables_of_whole_and_partial_grids(ds, levels):
    part = ds.sel(levels)
    assert len(STUDY.table(part)) == 11
    texts = page.figures(STUDY, part)
    assert len(texts) == (2 if not levels else 1)
    assert all("mean width of the interval" in text for text in texts.values())
    with mpl.rc_context(page.STYLE):
        made = STUDY.figure(part)
    for caption, figure in made.items():
        [legend] = figure.legends
        names = [text.get_text() for text in legend.get_texts()]
        assert ("bayes_corrected" in names) == ("probe labels" in caption)
        assert len(names) == len(set(names))
        mpl.pyplot.close(figure)


def test_the_quick_profile_leaves_priors_of_the_noise_to_the_papers():
    quick, paper = STUDY.at("quick"), STUDY.at("paper")
    assert set(paper.methods) - set(quick.methods) == {*PRIORS[3:], "bayes_hdi"}
    assert STUDY.profiles["quick"].replicates >= 400
