"""The study of the transport audit: its replicate against its definitions, its tables and its figure."""

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr

from cje_core.calibration.calibrator import predict
from cje_core.calibration.oracle_slice import fit_slice
from cje_core.data.arrays import unpack
from cje_core.estimators import direct_corrected
from cje_core.streams import Streams
from cje_core.transport import audit
from cje_sim.scenarios import rare_probe_failures, transport_shift
from studies import transport_audit
from studies.engine import run, study
from studies.engine.measures.bounds import flat_error
from studies.report import page

STUDY = study.load("transport_audit")
CELL = {"judge": "weak", "probes": 50, "shift": 0.25, "n": 300, "labels": 100}


@pytest.fixture(scope="module")
def ds(tmp_path_factory):
    """Results of the smoke profile."""
    return run.run_study(STUDY, profile="smoke", out=tmp_path_factory.mktemp("smoke")).results


def test_a_replicate_is_what_the_library_says():
    streams = Streams(1, STUDY.name, CELL, 0)
    found = STUDY.replicate(STUDY, CELL, streams)
    law = {"base": (3.0, 2.0, "none", 0.0), "target": (3.0, 2.0, "mean", -0.25)}
    shape = transport_audit.JUDGES["weak"].arguments
    data = transport_shift.simulate(
        n=300, oracle_fraction=1 / 3, n_probes=50, policies=law, rng=streams("data"), **shape
    )
    report = audit.audit(data).sel(policy="target")
    names = list(STUDY.methods)
    assert transport_audit.VERDICTS[int(found.extra["verdict"][0])] == report.verdict.item()
    printed = np.isfinite(found.estimate[names.index("old_rule"), 0])
    assert printed == (report.verdict.item() != "FAIL")
    tuned = direct_corrected.estimate(data).sel(policy="target")
    np.testing.assert_allclose(found.interval[names.index("probe_tuned"), 0], tuned.interval)
    # residual of this f by brute force: a million draws of the target
    big = transport_shift.simulate(
        n=200_000,
        oracle_fraction=0.5,
        n_probes=0,
        policies=law,
        rng=5,
        **{**shape, "spread": 0.0, "atoms": 0.0},
    )
    score = big.judge.sel(policy="target").values.ravel()
    ends = {k: shape[k] for k in ("low", "high")}
    mean = transport_shift.truth(policies=law, **ends).sel(policy="target").item()
    f = predict(fit_slice(unpack(data)).calibrator, score)
    error = 5 * f.std() / np.sqrt(len(f))
    assert abs(found.extra["residual_of_f"][0] - (mean - f.mean())) < error
    assert found.truth[0] == mean


def test_failures_of_the_rare_judge_make_the_shift():
    """Value and residual of a perfect curve from a large sample, at a shift of .063, the scenario's 7% of failures."""
    world = dict(transport_audit.setting(STUDY, CELL | {"judge": "rare", "shift": 0.063}).arguments)
    assert world["failures"]["target"] == pytest.approx(0.07)
    truth = transport_audit.truth_of(transport_audit.JUDGES["rare"], world)
    assert truth == pytest.approx(0.9 - 0.063)
    draws = rare_probe_failures.simulate(
        **(world | {"n": 100_000, "n_probes": 0, "oracle_fraction": 0.001}), rng=1
    )
    score = np.sort(draws["judge"].sel(policy="target").values.ravel())
    assert abs(score.mean() - transport_audit.uniform_scores().mean()) < 5 * score.std() / 100_000**0.5
    np.testing.assert_allclose(
        np.quantile(score, [0.1, 0.9]), np.quantile(transport_audit.uniform_scores(), [0.1, 0.9]), atol=0.002
    )


@pytest.mark.slow
def test_tables(ds):
    printed, verdicts, errors, measures = STUDY.table(ds).values()
    assert len(verdicts) == 8 and len(printed) == 4 * 8 and len(errors) == 4 and len(measures) == 8 * 4
    shares = verdicts[list(transport_audit.VERDICTS)].sum(axis=1)
    np.testing.assert_allclose(shares, 1.0)
    silent = printed["verdict"] == "FAIL"
    assert printed.loc[silent, "old_rule"].isna().all()  # the old rule prints nothing after a FAIL
    anything = printed[printed["verdict"] == "any"].reset_index(drop=True)
    for k, row in anything.iterrows():
        at = ds.sel({c: row[c] for c in ("judge", "probes", "shift")}).isel(n=0, labels=0, policy=0)
        one = at.sel({"method": "probe_tuned"})
        low, high = one.interval.transpose("ci_bound", "replicate").values
        hit = (low <= one.truth.values) & (one.truth.values <= high)
        assert row["probe_tuned"] == pytest.approx(hit.mean()), k
    assert (verdicts.loc[verdicts["shift"] == 0.25, "FAIL"] >= 0.5).all()


def planted(ds, verdict, missed, shift=None):
    """600 replicates whose audits all say one thing (at one shift), and whose first `missed` intervals miss."""
    at = np.arange(600)
    big = ds.isel(replicate=at % ds.sizes["replicate"]).assign_coords(replicate=at).copy(deep=True)
    size = xr.where(big["shift"] > 0.05, 0.2, 0.0)
    big["residual_of_f"] = (0 * big["residual_of_f"] + size).transpose(*ds["residual_of_f"].dims)
    chosen = True if shift is None else big["shift"] == shift
    code = xr.where(chosen, float(transport_audit.VERDICTS.index(verdict)), float("nan"))
    big["verdict"] = (0 * big["residual_of_f"] + code).transpose(*ds["verdict"].dims)
    big["estimate"] = (0 * ds["estimate"].fillna(0).isel(replicate=at % ds.sizes["replicate"])).assign_coords(
        replicate=at
    ) + big["truth"]
    miss = xr.DataArray(2.0 * (at < missed), coords={"replicate": at})
    sides = xr.DataArray([-1.0, 1.0], coords={"ci_bound": ["lower", "upper"]})
    big["interval"] = (big["estimate"] + sides + miss).transpose(*ds["interval"].dims)
    return big


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verdict", "missed", "holds"),
    [
        ("PASS", 20, [True, False, False, True, True, True]),
        ("FAIL", 20, [False, True, True, True, True, True]),
        ("INCONCLUSIVE", 150, [True, True, False, False, False, False]),
    ],
)
def test_the_findings_follow_verdicts_and_intervals(ds, verdict, missed, holds):
    """Size, wrong PASS, power, indecision, coverage of the probe value, coverage of the old rule."""
    found = STUDY.findings(planted(ds, verdict, missed))
    assert [f.holds for f in found] == holds
    assert f"{100 * (1 - missed / 600):.1f} (" in found[4].sentence
    always = f"100.0 ({100 * flat_error(600):.1f})"
    everywhere = f"{always} to {always}%"
    assert everywhere in found[{"FAIL": 0, "PASS": 1, "INCONCLUSIVE": 3}[verdict]].sentence


@pytest.mark.slow
def test_few_audits_decide_nothing(ds):
    assert {f.holds for f in STUDY.findings(ds)} == {None}
    assert len(STUDY.findings(ds.sel(shift=[0.0]))) == 5  # no shift to find


@pytest.mark.slow
@pytest.mark.parametrize("levels", [{}, {"judge": ["weak"]}, {"shift": [0.25]}])
def test_figure_of_whole_and_partial_grids(ds, levels):
    part = ds.sel(levels)
    with mpl.rc_context(page.STYLE):
        (figure,) = STUDY.figure(part).values()
    assert len(figure.axes) == 2 * part.sizes["judge"]
    mpl.pyplot.close(figure)
