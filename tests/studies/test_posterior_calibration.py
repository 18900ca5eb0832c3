"""The study of the samplers: its replicates, tables, and that it says no of a sampler of another prior."""

from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest

from cje_core.bayes import gibbs
from cje_core.bayes.prior import Prior
from cje_core.streams import Streams
from studies import posterior_calibration
from studies.engine import run
from studies.engine import study as _study
from studies.engine.outcome import NOT_RUN
from studies.posterior_calibration import N_RANKS, QUANTITIES
from studies.report import page

STUDY = _study.load("posterior_calibration")


@pytest.fixture(scope="module")
def ds(tmp_path_factory):
    """Results of the smoke profile."""
    return run.run_study(STUDY, profile="smoke", out=tmp_path_factory.mktemp("smoke")).results


def uniform(ds, skew=1.0):
    """400 replicates in which every rank occurs ten times; with a skew, low ranks more often."""
    at = np.arange(400)
    big = ds.isel(replicate=at % ds.sizes["replicate"]).assign_coords(replicate=at)
    rank = np.floor((N_RANKS + 1) * ((at % 40 + 0.5) / 40) ** skew)
    big["rank"] = (big["rank"] * 0).where(big["status"] != NOT_RUN) + rank.reshape(
        [400 if d == "replicate" else 1 for d in big["rank"].dims]
    )
    return big


def test_a_replicate_ranks_the_truth_among_the_draws():
    study, cell = STUDY.at("smoke"), {"likelihood": "normal", "concentration": 1.0}
    found = study.replicate(study, cell, Streams(1, study.name, cell, 0))
    rank, low, high = found.extra["rank"][0], *found.interval[0].T
    assert ((rank >= 0) & (rank <= N_RANKS)).all()
    np.testing.assert_array_equal((low < found.truth) & (found.truth < high), (rank > 0) & (rank < N_RANKS))
    binary = {"likelihood": "bernoulli", "concentration": 0.5}
    found = study.replicate(study, binary, Streams(1, study.name, binary, 0))
    assert np.flatnonzero(found.status[0] == NOT_RUN).tolist() == [QUANTITIES.index("noise")]


def test_uniform_ranks_pass_and_skewed_ones_do_not(ds):
    """Mean and spread by hand: of 40 equally frequent ranks .5 and 1."""
    ranks, _ = STUDY.table(uniform(ds)).values()
    np.testing.assert_allclose(ranks["mean"], 0.5)
    np.testing.assert_allclose(ranks["spread"], 1.0)
    assert set(ranks["inside"]) == {"yes"} and len(ranks) == 2 * (6 + 5)
    assert [f.holds for f in STUDY.findings(uniform(ds))] == [True, True]
    found = STUDY.findings(uniform(ds, skew=1.3))
    assert [f.holds for f in found] == [False, False] and "not quantity=f(0.3)" in found[0].sentence
    assert {f.holds for f in STUDY.findings(ds)} == {None}


@pytest.mark.slow
def test_a_sampler_of_another_prior_is_told(monkeypatch, tmp_path):
    sample = gibbs.sample

    def planted(levels, **options):
        return sample(levels, **{**options, "prior": Prior(scale=0.02), "thin": 20})

    monkeypatch.setattr(posterior_calibration.gibbs, "sample", planted)
    profile = replace(
        STUDY.profiles["smoke"], replicates=150, factors={"likelihood": ("normal",), "concentration": (1.0,)}
    )
    one = replace(STUDY, profiles={**STUDY.profiles, "smoke": profile})
    study = one.at("smoke")
    cell = {"likelihood": "normal", "concentration": 1.0}
    noise = QUANTITIES.index("noise")
    ranks = [
        study.replicate(study, cell, Streams(1, study.name, cell, r)).extra["rank"][0, noise]
        for r in range(150)
    ]
    assert np.mean(ranks) > 0.6 * N_RANKS


def test_figures_of_whole_and_partial_grids(ds):
    for levels in ({}, {"likelihood": ["bernoulli"]}):
        with mpl.rc_context(page.STYLE):
            figure = STUDY.figure(ds.sel(levels))
        assert len(figure.axes) == 6 * len(levels.get("likelihood", ds["likelihood"]))
