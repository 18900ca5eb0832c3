"""The benchmark of thirteen estimators: a replicate against the library, averages against loops, sentences, figures."""

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr

from cje_core import analyze
from cje_core.estimators import direct
from cje_core.streams import Streams
from cje_core.workflow.paper import PAPER, paper_estimator
from cje_sim import simulate
from studies import estimator_benchmark as benchmark
from studies.claims import tables
from studies.engine import run, study
from studies.ledger.claim import Trial
from studies.report import page

STUDY = study.load("estimator_benchmark")
CELL = {"n": 300, "oracle_fraction": 0.25}


@pytest.fixture(scope="module")
def ds(tmp_path_factory):
    """Results of the smoke profile."""
    return run.run_study(STUDY, profile="smoke", out=tmp_path_factory.mktemp("smoke")).results


def test_the_grid_is_the_papers():
    assert len(PAPER) == len(benchmark.PRINTED) == 13 and set(PAPER) == set(benchmark.PRINTED)
    whole = STUDY.at("paper")
    runs = sum(1 for _ in whole.cells()) * STUDY.profiles["paper"].replicates
    assert runs * len(PAPER) == 16_250


@pytest.mark.slow
def test_a_replicate_is_what_the_library_says():
    """Every row by its own call; the control by all labels of the same responses; the truth by labels of its own."""
    streams = Streams(1, STUDY.name, CELL, 0)
    found = STUDY.replicate(STUDY, CELL, streams)
    data = simulate("arena_like", **CELL, rng=streams("data"))
    names = list(STUDY.methods)
    for name in PAPER:
        module, options = paper_estimator(name)
        one = module.estimate(data, rng=streams(name), **options).sel(policy=list(STUDY.policies))
        np.testing.assert_array_equal(found.estimate[names.index(name)], one["estimate"])
        np.testing.assert_array_equal(found.interval[names.index(name)], one["interval"])
        if "ess_fraction" in one:
            np.testing.assert_array_equal(found.extra["ess_fraction"][names.index(name)], one["ess_fraction"])
    complete = simulate(
        "arena_like", **(CELL | {"oracle_fraction": 1.0}), label_design="own", rng=streams("data")
    )
    np.testing.assert_array_equal(complete["judge"], data["judge"])  # the same responses
    mean = complete["oracle"].mean(["prompt", "draw"]).sel(policy=list(STUDY.policies))
    np.testing.assert_allclose(found.estimate[names.index("all-labels")], mean)
    off = np.asarray(found.extra["measured_truth"]) - found.truth
    assert (np.abs(off) < 5 * np.sqrt(found.extra["measured_variance"])).all()
    assert (np.asarray(found.extra["measured_variance"]) <= 0.25 / benchmark.N_TRUTH).all()
    assert not found.failures


@pytest.mark.slow
def test_averages_are_their_definition(ds):
    """RMSE, RMSE^d, interval score and pairwise accuracy of one method by loops over cells and replicates."""
    found, truth = benchmark.averages(ds), ds["truth"].isel(n=0, oracle_fraction=0, replicate=0)
    one = ds.isel(n=0).sel({"method": "direct"})
    trusted = [p for p in ds["policy"].values if p != "unhelpful"]
    rmse, debiased, score, right = [], [], [], []
    for f in ds["oracle_fraction"].values:
        cell = one.sel(oracle_fraction=f)
        error = (cell["estimate"] - cell["truth"]).sel(policy=trusted).values
        rmse.append(np.sqrt((error**2).mean()))
        off = (cell["estimate"] - cell["measured_truth"]).sel(policy=trusted).values
        debiased.append(np.sqrt(max(0.0, (off**2).mean() - 0.25 / 4961)))
        low, high = cell["interval"].sel(policy=trusted).transpose("ci_bound", "replicate", "policy").values
        at = cell["truth"].sel(policy=trusted).values
        score.append((high - low + 40 * np.maximum(low - at, 0) + 40 * np.maximum(at - high, 0)).mean())
        for estimate in cell["estimate"].values:
            order = [
                (estimate[j] - estimate[k]) * (truth[j] - truth[k]) > 0
                for j in range(5)
                for k in range(j)
                if truth[j] != truth[k]
            ]
            assert len(order) == 9  # base and clone have the same value
            right.append(np.mean(order))
    k = list(ds["method"].values).index("direct")
    assert found["rmse"].value[k] == pytest.approx(np.mean(rmse))
    assert found["rmse_d"].value[k] == pytest.approx(np.mean(debiased))
    assert found["interval_score"].value[k] == pytest.approx(np.exp(np.mean(np.log(score))))
    assert found["pairwise"].value[k] == pytest.approx(np.mean(right))
    assert found["rmse"].value[k] != pytest.approx(np.sqrt(np.mean(np.square(rmse))), rel=1e-6)


@pytest.mark.slow
def test_the_sentences_follow_the_results(ds):
    """Estimates put in place of those drawn decide each sentence; the smoke run alone is too small for most."""
    assert len(benchmark.findings(ds)) == 6
    wide = ds.isel(replicate=[0, 1] * 200).assign_coords(replicate=np.arange(400))
    noise = np.random.default_rng(0).normal(size=wide["estimate"].shape) * 1e-4
    right = wide.assign(
        estimate=wide["truth"].broadcast_like(wide["estimate"]).transpose(*wide["estimate"].dims)
    )
    right = right.assign(estimate=right["estimate"] + noise)
    best, chance, useless, stacked, _, calibrated = benchmark.findings(right)
    assert best.holds is not True and chance.holds is False and stacked.holds is True
    assert useless.holds is not True  # calibrated IPS that ranks as well as Direct is not useless
    assert calibrated.holds is None or calibrated.holds is False

    turned = right.copy(deep=True)
    for name in ("SNIPS", "SNIPS+cov", "calibrated-ips", "calibrated-ips+cov"):
        mine = turned["method"].values == name
        turned["estimate"].values[..., mine, :] = 1 - turned["estimate"].values[..., mine, :]
    _, chance, useless, *_ = benchmark.findings(turned)
    assert chance.holds is True and useless.holds is True
    assert "0.0% (0.0)" in chance.sentence


@pytest.mark.slow
@pytest.mark.parametrize(("replicate", "ordered"), [(9, False), (10, True)])
def test_the_order_counted_is_the_order_printed(replicate, ordered):
    """Pairs with a refused value, by `analyze`: with a policy out of range there is an order in one data set of two."""
    cell = {"n": 500, "oracle_fraction": 0.25}
    streams = Streams(7, STUDY.name, cell, replicate)
    data = simulate("arena_like", **cell, rng=streams("data"))
    status = direct.estimate(data)["status"].sel(policy=list(STUDY.policies)).values
    m, last = list(STUDY.methods).index(benchmark.DEFAULT), STUDY.policies.index("unhelpful")
    refused = np.where(np.arange(len(STUDY.methods))[:, None] == m, status, 0)
    low, high = benchmark._order_bounds(STUDY, cell, streams, refused)
    printed = analyze(data).order
    for j, policy in enumerate(STUDY.policies[:-1]):
        pair = (printed["first"] == policy) & (printed["second"] == "unhelpful")
        apart = low[m, j] > high[m, last], high[m, j] < low[m, last]
        counted = np.select(apart, ("higher", "lower"), "not ordered").item()
        assert printed["order"].values[pair.values].tolist() == [counted]
        assert (counted == "higher") == ordered


@pytest.mark.slow
def test_a_refusal_is_no_wrong_order(ds):
    """Estimates that order rightly; the default refuses one policy, and bounds order it in one replicate of two."""
    wide = ds.isel(replicate=[0, 1] * 50).assign_coords(replicate=np.arange(100)).copy(deep=True)
    truth = wide["truth"].broadcast_like(wide["estimate"]).transpose(*wide["estimate"].dims)
    mine = (wide["method"] == benchmark.DEFAULT) & (wide["policy"] == "unhelpful")
    noise = np.random.default_rng(0).normal(size=truth.shape) * 1e-4
    wide["estimate"] = (truth + noise).where(~mine).transpose(*wide["estimate"].dims)
    apart = xr.where(wide["replicate"] % 2 == 0, 0.01, 1.0)  # half width of the bounds
    for name, side in zip(benchmark.BOUNDS, (-1, 1), strict=True):
        wide[name] = (
            (truth + side * apart).where(wide["method"] == benchmark.DEFAULT).transpose(*ds[name].dims)
        )
    found, place = benchmark.averages(wide), list(wide["method"].values).index(benchmark.DEFAULT)
    assert found["pairwise"].value[place] == pytest.approx((1 + 5 / 9) / 2)  # 5 of 9 pairs have two values
    assert found["right_of_ordered"].value[place] == pytest.approx(1.0)
    assert found["unordered"].value[place] == pytest.approx(2 / 9)
    said = "77.8% (1.6) of all pairs, 100.0% (0.0) of those that it orders (no order: 22.2% (1.6))"
    assert f"{benchmark.DEFAULT} {said}" in benchmark.findings(wide)[0].sentence


@pytest.mark.slow
def test_claims_read_the_sentences_as_they_are(ds, monkeypatch):
    said = [(f.holds, f.sentence, f.rule) for f in benchmark.findings(ds)]
    monkeypatch.setattr(tables, "of_page", lambda study: tables.Said(said, "here"))
    claims = [
        one
        for one in tables.CLAIMS
        if one.study == STUDY.name and one.decide is not tables.decide_stabilisation
    ]
    assert len(claims) == len(said)
    for claim in claims:
        assert claim.decide(Trial(claim.name)).text.count("From here: ") == 1, claim.name


@pytest.mark.slow
def test_tables_and_figures(ds):
    tables = STUDY.table(ds)
    accuracy, ranks, truths, ablations, ess, cells = tables.values()
    assert len(accuracy) == len(ranks) == len(truths) == len(STUDY.methods)
    assert accuracy["RMSE^d, paper"].notna().sum() == 13 and (ablations["without"] != ablations["with"]).all()
    assert len(cells) == 2 * len(STUDY.methods)
    raw, stable = ess["raw"].to_numpy(), ess["stabilised, IPS"].to_numpy()
    assert (stable >= raw - 1e-9).all() and (raw[1:] < stable[1:]).all()
    with mpl.rc_context(page.STYLE):
        figures = STUDY.figure(ds.sel(oracle_fraction=[0.25]))
    assert [len(figure.axes) for figure in figures.values()] == [4, 1]
