"""Noise of likelihoods against lack of coverage: the mechanism, the exact causes, the share, and what decides."""

import matplotlib as mpl
import numpy as np
import pytest

from cje_core.streams import Streams
from cje_sim.scenarios import arena_like
from studies import tf_versus_coverage as versus
from studies.engine import run, study
from studies.engine.grids import average
from studies.report import page

STUDY = study.load("tf_versus_coverage")
CELL = {"likelihoods": "exact", "shift": 1.0, "n": 300, "oracle_fraction": 0.25}


@pytest.fixture(scope="module")
def ds(tmp_path_factory):
    """Results of the smoke profile."""
    return run.run_study(STUDY, profile="smoke", out=tmp_path_factory.mktemp("smoke")).results


def test_exact_likelihoods_of_a_copy_are_the_loggers():
    """So SNIPS of the copy is the mean calibrated reward of the logged responses: what base gets."""
    found = STUDY.replicate(STUDY, CELL, Streams(1, STUDY.name, CELL, 0))
    snips = np.asarray(found.estimate)[list(STUDY.methods).index("snips")]
    assert snips[0] == pytest.approx(snips[1], abs=1e-12)
    noisy = CELL | {"likelihoods": "every_row"}
    wrong = STUDY.replicate(STUDY, noisy, Streams(1, STUDY.name, noisy, 0))
    snips = np.asarray(wrong.estimate)[list(STUDY.methods).index("snips")]
    assert abs(snips[0] - snips[1]) > 1e-6
    np.testing.assert_array_equal(found.truth, wrong.truth)


@pytest.mark.parametrize("shift", [0.0, 0.3])
def test_ttc_scales_with_the_shift_as_in_a_large_sample(shift):
    """Exact TTC against the share of 40,000 logged responses below the 0.9 quantile of the target's own."""
    exact = arena_like.overlap(shift=shift, level=0.9, **versus.LIKELIHOODS["exact"])["ttc"]
    data = arena_like.simulate(n=40_000, shift=shift, noise_share=0.0, low_error=0.0, rng=3)
    for policy in versus.SHIFTED:
        own = data["surprisal"].sel(policy=policy).values.ravel()
        logged = -(data["logp_target"].sel(policy=policy) / data["n_tokens"]).values
        share = (logged <= np.quantile(own, 0.9)).mean()
        error = np.sqrt(2 * 0.25 / 40_000)  # of a share, and of the quantile below which it is taken
        assert abs(share - float(exact.sel(policy=policy))) < 5 * error
        assert abs(share - 0.9 * float(exact.sel(policy=policy))) > 5 * error  # a planted error is noticed


def test_causes_add_up():
    cell = CELL | {"likelihoods": "every_row", "shift": 0.1}
    exact = versus.theory(cell)
    sd = versus.LIKELIHOODS["every_row"]["noise_sd"]
    lost = np.asarray(exact["log10_ess"]) - np.asarray(exact["log10_ess_true"])
    np.testing.assert_allclose(lost[1:], -(sd**2) / np.log(10), rtol=1e-9)  # lognormal errors: exp(-s^2)
    assert lost[0] == 0 and 10 ** exact["log10_ess"][1] == pytest.approx(0.26)


def test_the_share_and_its_error():
    """Against its spread over 400 repetitions with errors drawn anew."""
    rng, found = np.random.default_rng(2), []
    for _ in range(400):
        cells = [average(scale * rng.chisquare(3, size=(1, 300, 1)) / 3) for scale in (4.0, 5.0, 1.0)]
        found.append(versus.coverage_share(*cells, 0))
    shares, errors = np.array(found).T
    assert abs(shares.mean() - 0.75) < 5 * shares.std() / 20
    assert np.sqrt((errors**2).mean()) == pytest.approx(shares.std(ddof=1), rel=5 / np.sqrt(800))


@pytest.mark.slow
def test_sentences_tables_and_figure(ds):
    assert len(versus.findings(ds)) == 4
    assert versus.findings(ds.sel(shift=[1.0])) == []  # nothing to compare with: no sentence
    wide = ds.isel(replicate=[0, 1, 2] * 40).assign_coords(replicate=np.arange(120)).copy(deep=True)
    wide["estimate"].values[:] = (
        wide["truth"].broadcast_like(wide["estimate"]).transpose(*wide["estimate"].dims)
    )
    noise = np.random.default_rng(0).normal(size=wide["estimate"].shape)
    by_coverage = wide.copy(deep=True)
    by_coverage["estimate"].values[:] += (
        noise * np.where(ds["shift"].values == 1, 0.1, 0.01)[None, :, None, None, None, None, None]
    )
    assert versus.findings(by_coverage)[0].holds is True
    by_noise = wide.copy(deep=True)
    by_noise["estimate"].values[:] += (
        noise
        * np.where(ds["likelihoods"].values == "exact", 0.01, 0.1)[:, None, None, None, None, None, None]
    )
    assert versus.findings(by_noise)[0].holds is False
    tables = STUDY.table(ds)
    assert [len(t) for t in tables.values()] == [4, 4, 4, 12, 12, 120]
    rmse = next(iter(tables.values()))
    one = ds.sel(likelihoods="exact", shift=1.0, n=1000, oracle_fraction=0.25, policy=list(versus.SHIFTED))
    error = (one["estimate"] - one["truth"]).sel({"method": "snips"}).values
    shown = rmse[(rmse["shift"] == 1) & (rmse["likelihoods"] == "exact")]["snips"].item()
    assert shown == pytest.approx(np.sqrt((error**2).mean()))
    with mpl.rc_context(page.STYLE):
        (figure,) = STUDY.figure(ds).values()
    assert len(figure.axes) == 3


@pytest.mark.slow
def test_what_the_study_says_of_the_audit_of_log_ratios(ds):
    """A planted size or power flips the sentence; where nothing overlaps it says so."""
    wide = ds.isel(replicate=[0, 1, 2] * 100).assign_coords(replicate=np.arange(300)).copy(deep=True)
    uniform = np.random.default_rng(3).random(wide["p_ratios"].shape)
    wide["p_ratios"].values[:] = np.nan
    assert versus.findings(wide)[-1].holds is None and "can be checked" in versus.findings(wide)[-1].sentence
    for size, power, holds in ((0.04, 0.99, True), (0.15, 0.99, False), (0.04, 0.8, False)):
        planted = wide.copy(deep=True)
        planted["p_ratios"].values[:] = uniform * versus.SIZE / size
        for name in ("p_ratios_high", "p_ratios_low"):
            planted[name].values[:] = uniform[::-1] * versus.SIZE / power
        found = versus.findings(planted)[-1]
        assert found.holds is holds, found.sentence


def test_planted_errors_are_found_by_the_studys_audit():
    """At n = 2,000 and a twentieth of the benchmark's divergence; exact log ratios pass."""
    exact = {**versus.LIKELIHOODS["exact"], "shift": 0.05, "n": 2000}
    found = versus.audited(arena_like.simulate(rng=5, **exact))
    shifted = {name: p.sel(policy=list(versus.SHIFTED)) for name, p in found.items()}
    assert (shifted["p_ratios"] > 0.001).all()
    assert (shifted["p_ratios_high"] < 1e-6).all() and (shifted["p_ratios_low"] < 1e-6).all()
    noisy = versus.audited(arena_like.simulate(rng=5, **exact | versus.LIKELIHOODS["every_row"]))
    assert (noisy["p_ratios"].sel(policy=["clone", *versus.SHIFTED]) < 0.01).all()
