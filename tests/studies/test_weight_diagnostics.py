"""The study of weight diagnostics: diagnostics against their definitions, the ROC area against pairs, sentences."""

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr

from cje_core.streams import Streams
from cje_sim.scenarios import arena_like
from studies import weight_diagnostics as diagnostics
from studies.engine import run, study
from studies.report import page

STUDY = study.load("weight_diagnostics")
CELL = {"n": 400, "shift": 0.1, "oracle_fraction": 0.25}


@pytest.fixture(scope="module")
def ds(tmp_path_factory):
    """Results of the smoke profile."""
    return run.run_study(STUDY, profile="smoke", out=tmp_path_factory.mktemp("smoke")).results


def test_raw_diagnostics_are_their_definitions():
    streams = Streams(1, STUDY.name, CELL, 0)
    found = STUDY.replicate(STUDY, CELL, streams)
    data = arena_like.simulate(**CELL, rng=streams("data")).sel(policy=list(STUDY.policies))
    for p, policy in enumerate(STUDY.policies):
        weight = np.exp((data["logp_target"] - data["logp_logger"]).sel(policy=policy).values)
        assert found.extra["ess_fraction"][p] == pytest.approx(
            weight.sum() ** 2 / (weight**2).sum() / len(weight)
        )
        assert found.extra["max_share"][p] == pytest.approx(weight.max() / weight.sum())
        own = data["surprisal"].sel(policy=policy).values.ravel()
        logged = -(data["logp_target"].sel(policy=policy) / data["n_tokens"]).values
        share = (logged <= np.sort(own)[int(np.ceil(0.8 * len(own))) - 1]).mean()
        assert found.extra["ttc"][p] == pytest.approx(share, abs=1.5 / len(logged))
    assert not found.failures


def test_the_area_is_the_share_of_pairs_told_apart():
    rng = np.random.default_rng(1)
    value, failed = np.round(rng.normal(size=120), 1), (rng.random(120) < 0.3).astype(float)
    pairs = [(a, b) for a in value[failed == 1] for b in value[failed == 0]]
    share = np.mean([(a < b) + 0.5 * (a == b) for a, b in pairs])
    assert diagnostics.area(value, failed) == pytest.approx(share)
    assert diagnostics.area(-value, failed) == pytest.approx(1 - share)
    assert np.isnan(diagnostics.area(value, np.zeros(120)))


@pytest.mark.slow
def test_the_error_of_an_area():
    """Against the spread of 300 areas, each of 200 replicates of three dependent rows."""
    rng, found = np.random.default_rng(4), []
    for _ in range(300):
        common = rng.normal(size=(200, 1, 1))
        health = common + rng.normal(size=(200, 1, 3))
        failed = (health + rng.normal(size=health.shape) < -1).astype(float)
        found.append(diagnostics.area_with_error(health, failed))
    areas, errors = np.array(found).T
    # the variance of a jackknife over 20 groups has 19 degrees of freedom: relative error sqrt(2/19/300) of its mean
    tolerance = 5 * np.sqrt(2 / 300 + 2 / 19 / 300) / 2
    assert np.sqrt((errors**2).mean()) == pytest.approx(areas.std(ddof=1), rel=tolerance)


@pytest.mark.slow
def test_sentences_tables_and_figure(ds):
    _, stable, chance, gate = diagnostics.findings(ds)
    assert "stabilised" in stable.sentence and "(" in gate.sentence and chance.rule
    many = ds.isel(replicate=[0, 1, 2, 3] * 10).assign_coords(replicate=np.arange(40))
    planted = many.copy(deep=True)
    bad = np.abs(planted["estimate"].sel({"method": "snips"}) - planted["truth"]) > diagnostics.WRONG
    if not bad.sel(policy=list(diagnostics.TRUSTED)).any():
        pytest.fail("no failure in the smoke run: nothing to tell")
    for name in ("ttc", "ess_fraction_stabilised"):
        planted[name] = (1.0 - bad).transpose(*planted["ttc"].dims)  # knows everything
    *_, chance, gate = diagnostics.findings(planted)
    assert chance.holds is False and gate.holds is True and "100.0% (0.0) fail" in gate.sentence
    paper, areas, failures, _ = STUDY.table(ds).values()
    assert len(paper) == 4 * len(areas) == 4 * len(diagnostics.DIAGNOSTICS) and len(failures) == 2
    assert paper.set_index("diagnostic").loc["TTC, %", "printed"].notna().all()
    with mpl.rc_context(page.STYLE):
        (figure,) = STUDY.figure(ds).values()
    assert len(figure.axes) == 8


@pytest.mark.slow
def test_the_order_of_the_targets_is_that_of_the_printed_table(ds):
    many = ds.isel(replicate=[0, 1, 2, 3] * 10).assign_coords(replicate=np.arange(40))
    for name in diagnostics.PRINTED["clone"]:
        printed = [diagnostics.PRINTED[p][name] for p in diagnostics.POLICIES]
        jitter = 1 + 0.001 * np.sin(np.arange(many[name].size)).reshape(many[name].shape)
        many[name] = many[name].copy(data=jitter) * xr.DataArray(printed, dims="policy")
    assert diagnostics.findings(many)[0].holds is True
    turned = many.assign(ttc=-many["ttc"])
    order = diagnostics.findings(turned)[0]
    assert order.holds is False and "TTC 0," in order.sentence and "tail index 6," in order.sentence
