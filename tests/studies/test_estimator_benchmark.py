"""The benchmark of thirteen estimators: a replicate against the library, averages against loops, sentences, figures."""

import matplotlib as mpl
import numpy as np
import pytest

from cje_core.streams import Streams
from cje_core.workflow.paper import PAPER, paper_estimator
from cje_sim import simulate
from studies import estimator_benchmark as benchmark
from studies.engine import run, study
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
