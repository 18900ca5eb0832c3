"""The study of stacking: mixtures against the arithmetic that defines them, regrets against loops, sentences."""

import matplotlib as mpl
import numpy as np
import pytest

from cje_core import estimators
from cje_core.estimators.stacked_dr import LIBRARY
from cje_core.streams import Streams
from cje_sim.scenarios import arena_like
from studies import stacking
from studies.engine import run, study
from studies.report import page

STUDY = study.load("stacking")
CELL = {"shift": 0.1, "n": 300, "oracle_fraction": 0.5}


@pytest.fixture(scope="module")
def ds(tmp_path_factory):
    """Results of the smoke profile."""
    return run.run_study(STUDY, profile="smoke", out=tmp_path_factory.mktemp("smoke")).results


def test_mixtures_are_weighted_sums_of_their_members():
    found = STUDY.replicate(STUDY, CELL, Streams(1, STUDY.name, CELL, 0))
    names = list(STUDY.methods)
    value = dict(zip(names, np.asarray(found.estimate), strict=True))
    np.testing.assert_allclose(value["uniform"], np.mean([value[m] for m in LIBRARY], axis=0), atol=1e-12)
    for name, options in stacking.STACKS.items():
        if name == "stacked_outer":
            continue  # its halves have weights of their own
        members = options.get("members", LIBRARY)
        weight = np.array([found.extra[f"weight_{m}"][names.index(name)] for m in members])
        np.testing.assert_allclose(weight.sum(axis=0), 1.0)
        mixed = (weight * np.array([value[m] for m in members])).sum(axis=0)
        np.testing.assert_allclose(value[name], mixed, rtol=0, atol=1e-9)
        assert not np.allclose(value[name], mixed + 1e-6, rtol=0, atol=1e-9)
        support = found.extra["stack_support"][names.index(name)]
        np.testing.assert_array_equal(support, (weight > 0).sum(axis=0))
        assert (support <= found.extra["stack_rank"][names.index(name)] + 1).all()  # Caratheodory
    assert not found.failures


def test_equal_weights_of_one_member_are_that_member():
    data = arena_like.simulate(**CELL, rng=5)
    one = estimators.load("tmle").estimate(data)
    same = stacking.uniform(data, members=("tmle",))
    np.testing.assert_allclose(same["estimate"], one["estimate"])
    np.testing.assert_allclose(same["std_error"], one["std_error"])


@pytest.mark.slow
def test_regrets_are_their_definition(ds):
    found = stacking.regrets(ds)
    assert len(found) == 2 * (len(stacking.STACKS) + 1)
    row = found[(found["mixture"] == "stacked") & (found["shift"] == 1)].iloc[0]
    part = ds.sel(shift=1.0, n=1000, oracle_fraction=0.5)
    rmse = {
        m: float(
            np.sqrt(((part["estimate"] - part["truth"]).sel({"method": m}) ** 2).mean("replicate")).mean()
        )
        for m in (*LIBRARY, "stacked")
    }
    best = min(LIBRARY, key=rmse.get)
    assert row["best member"] == best and row["regret"] == pytest.approx(rmse["stacked"] / rmse[best] - 1)


@pytest.mark.slow
def test_sentences_tables_and_figure(ds):
    assert len(stacking.findings(ds)) == 3
    names = list(ds["method"].values)
    wide = ds.isel(replicate=[0, 1, 2] * 100).assign_coords(replicate=np.arange(300)).copy(deep=True)
    noise = np.random.default_rng(0).normal(size=wide["estimate"].isel(method=0).shape)[..., None, :]
    scale = np.full(len(names), 0.01)
    scale[names.index("stacked_biased")], scale[names.index("uniform")] = 0.03, 0.02
    true = wide["truth"].broadcast_like(wide["estimate"]).transpose(*wide["estimate"].dims).values
    wide["estimate"].values[:] = true + noise * scale[:, None]
    regret, equal, biased = stacking.findings(wide)
    assert regret.holds is True and equal.holds is True and biased.holds is True
    wide["estimate"].values[..., names.index("stacked"), :] += 0.05  # a planted bias of the stack
    regret, equal, _ = stacking.findings(wide)
    assert regret.holds is False and equal.holds is False
    tables = STUDY.table(ds)
    assert [len(t) for t in tables.values()][1:3] == [2 * len(stacking.STACKS), 4]
    with mpl.rc_context(page.STYLE):
        (figure,) = STUDY.figure(ds).values()
    assert len(figure.axes) == 2
