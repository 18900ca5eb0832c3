"""The study of the gates: its curve and area against definitions, its replicate against the library, its findings."""

import re

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from cje_core.calibration.reliability import coverage_badge
from cje_core.estimators import direct, snips
from cje_core.offpolicy.overlap import overlap
from cje_core.streams import Streams
from cje_core.verdict.thresholds import BY_NAME
from cje_sim import scenarios
from studies import gates
from studies.claims import tables
from studies.engine import run, study
from studies.engine.measures import roc
from studies.engine.outcome import NOT_RUN
from studies.ledger.claim import Trial
from studies.report import page

STUDY = study.load("gates")


@pytest.fixture(scope="module")
def ds(tmp_path_factory):
    """Results of the smoke profile."""
    return run.run_study(STUDY, profile="smoke", out=tmp_path_factory.mktemp("smoke")).results


def test_the_area_is_the_share_of_ordered_pairs_and_that_under_the_curve():
    rng = np.random.default_rng(1)
    score, event = rng.integers(0, 6, 200).astype(float), rng.random(200) < 0.3
    pairs = score[event][:, None] - score[~event][None, :]
    value, _ = roc.area(score, event)
    assert value == pytest.approx(((pairs > 0) + 0.5 * (pairs == 0)).mean())
    false, true = roc.curve(score, event)
    assert value == pytest.approx(np.trapezoid(true, false))
    assert (false[0], true[0], false[-1], true[-1]) == (0, 0, 1, 1)
    for t in (1.5, 3.5):
        point = (score[~event] > t).mean(), (score[event] > t).mean()
        assert any(np.allclose(point, at) for at in zip(false, true, strict=True))


def test_the_standard_error_of_the_area_is_that_of_repeated_samples():
    """Normal scores one sd apart: area Phi(1 / sqrt(2)), its DeLong error against the spread of 1000 areas."""
    rng = np.random.default_rng(2)
    found = []
    for _ in range(1000):
        event = np.arange(150) < 40
        found.append(roc.area(rng.normal(event.astype(float)), event))
    value, error = np.array(found).T
    assert abs(value.mean() - stats.norm.cdf(2**-0.5)) < 5 * value.std() / 1000**0.5
    assert abs((error**2).mean() ** 0.5 / value.std() - 1) < 5 / 2000**0.5


def test_within_strata_a_gate_that_only_knows_the_stratum_knows_nothing():
    rng = np.random.default_rng(3)
    stratum = np.repeat([0, 1], 500)
    event = rng.random(1000) < np.where(stratum, 0.8, 0.1)
    score = 5.0 * stratum + rng.normal(size=1000)
    value, error = roc.area_within(score, event, stratum)
    assert roc.area(score, event)[0] > 0.8 and abs(value - 0.5) < 5 * error < 0.2


def test_a_replicate_is_what_the_library_says():
    cell = {"world": "near"}
    streams = Streams(1, STUDY.name, cell, 0)
    found = STUDY.replicate(STUDY, cell, streams)
    data = scenarios.load("zipf_tilt").simulate(
        n=500, oracle_fraction=0.2, label_design="base", n_probes=50, rng=streams("data")
    )
    names = list(STUDY.methods)
    lent = direct.estimate(data, borrowed="plug_in").sel(policy="tilt_0.1")
    weighted = snips.estimate(data).sel(policy="tilt_0.1")
    for name, expected in (("plug_in", lent), ("snips", weighted)):
        np.testing.assert_allclose(found.interval[names.index(name), 0], expected["interval"], rtol=1e-12)
    covered = overlap(data).sel(policy="tilt_0.1")
    assert found.extra["gate_ess"] == covered["ess_fraction"] and found.extra["gate_hill"] == covered["hill"]
    badge = coverage_badge(data).sel(policy="tilt_0.1")
    assert found.extra["gate_out_of_range"] == badge["out_of_range"] and found.extra["gate_n_labels"] == 100
    assert gates.GUARDS["ess"].threshold == BY_NAME["ess"].good and gates.GUARDS["ess"].least


@pytest.mark.slow
def test_logs_are_weighted_only_where_there_are_logs(ds):
    ran = (ds["status"] != NOT_RUN).all(("replicate", "policy"))
    for world in ds["world"].values:
        logged = world in ("near", "farther")
        for method in ("snips", "dr_cpo"):
            assert bool(ran.sel({"world": world, "method": method})) == logged
        assert np.isfinite(ds["gate_ess"].sel(world=world)).all() == logged
        assert bool(ran.sel({"world": world, "method": "plug_in"}))
    inverted = ds["gate_inverted"].sel(world="inverted")
    assert (inverted < 0).all() and (ds["gate_inverted"].sel(world="benign") > 0).all()
    assert (ds["gate_refusal"].sel(world="inverted") == 1).all()


def planted(ds, gate, knows):
    """200 replicates a world of which half miss: one gate's metric tells them, or is drawn without looking."""
    at = np.arange(200)
    big = ds.isel(replicate=at % ds.sizes["replicate"]).assign_coords(replicate=at).copy(deep=True)
    misses = at % 2 == 0
    guard = gates.GUARDS[gate]
    m = [str(x) for x in ds["method"].values].index(guard.estimator)
    dims = ds["interval"].dims
    values = big["interval"].isel(method=m).transpose("replicate", ...)
    truth = big["truth"].broadcast_like(big["estimate"].isel(method=m)).transpose(*values.dims[:-1])
    moved = np.where(misses.reshape(-1, *[1] * (truth.ndim - 1)), 5.0, 0.0)
    for k, side in enumerate((-0.1, 0.1)):
        spot = {"ci_bound": k, "method": m}
        new = (truth + moved + side).transpose(*[d for d in dims if d not in ("ci_bound", "method")])
        big["interval"][spot] = new.values
    rng = np.random.default_rng(4)
    sign = -1 if guard.least else 1
    told = misses if knows else rng.random(200) < 0.5
    metric = guard.threshold + sign * np.where(told, 0.1, -0.1)
    shape = big[f"gate_{gate}"].transpose("replicate", ...)
    big[f"gate_{gate}"] = (0 * shape.fillna(0) + metric.reshape(-1, *[1] * (shape.ndim - 1))).transpose(
        *ds[f"gate_{gate}"].dims
    )
    return big


@pytest.mark.slow
@pytest.mark.parametrize("gate", ["transport_fail", "label_support", "ess"])
@pytest.mark.parametrize("knows", [True, False])
def test_a_finding_follows_what_the_gate_knows(ds, gate, knows):
    part = ds.sel(world=["near", "farther"])
    found = [
        f for f in STUDY.findings(planted(part, gate, knows)) if f.sentence.startswith(f"Does {gate} tell")
    ]
    assert len(found) == 1 and (found[0].holds is True) == knows
    assert ("misses (AUC 100.0 (0.0), within worlds 100.0 (0.0))" in found[0].sentence) == knows
    if knows:
        assert re.search(
            r"foretells 100\.0 \(([^)]+)\)% of the misses and stops 0\.0 \(([^)]+)\)%", found[0].sentence
        )
        assert (
            "(0.0)%" not in found[0].sentence.partition("threshold")[2]
        )  # finitely many runs show no certainty


def drawn(z):
    """Rows of the ROC table of 18 gates and two events whose AUCs lie z (18, 2) standard errors of .02 above .7."""
    names = [f"gate {k}" for k in range(len(z)) for _ in gates.EVENTS]
    return pd.DataFrame(
        {"gate": names, "runs": 400, "failures": 100, "auc": gates.TELLS + 0.02 * z.ravel(), "auc_mcse": 0.02}
    )


@pytest.mark.slow
def test_eighteen_gates_are_answered_at_once():
    """Where every AUC is .7 some gate is answered in at most 5% of the tables, plus five binomial errors.

    Without the adjustment some gate is answered in 1 - (.975^2 - .05^2)^18, 62%, of them.
    """
    rng = np.random.default_rng(5)
    wrong = np.mean(
        [
            any(v is not None for v in gates.decide(drawn(rng.normal(size=(18, 2)))).values())
            for _ in range(200)
        ]
    )
    assert wrong < gates.FAMILY + 5 * (gates.FAMILY * (1 - gates.FAMILY) / 200) ** 0.5


def test_answers_of_gates_by_hand():
    """Holm over 36 hypotheses: its first step asks for p < .05 / 36, z > 2.99, or 3.20 for one of two events."""
    z = np.zeros((18, 2))
    z[0], z[1], z[2], z[3], z[4] = (3.3, -9), (3.1, -9), (-3.1, -3.1), (-2.9, -9), (9, 9)
    found = gates.decide(drawn(z))
    assert [found[f"gate {k}"] for k in range(5)] == [True, None, False, None, True]
    few = drawn(z).assign(failures=[gates.FEWEST - 1] * 2 + [100] * 34)
    assert gates.decide(few)["gate 0"] is None and gates.decide(few)["gate 4"] is True
    certain = drawn(z).assign(auc=1.0, auc_mcse=0.0)
    assert set(gates.decide(certain).values()) == {True}


def test_worlds_hold_coverage_apart_from_effective_sample_size():
    """By exact TTC and limit of ESS/n: each of the four combinations of the two gates occurs."""
    least = {name: BY_NAME[name].good for name in ("ttc", "ess")}
    found = {}
    for name in ("clone", "near", "far", "farther", "hot", "cold", "narrow"):
        world = gates.WORLDS[name]
        exact = scenarios.load(world.scenario).overlap(**world.arguments).sel(policy=world.policy)
        passes = bool(exact["ttc"] >= least["ttc"]), bool(10 ** exact["log10_ess"] >= least["ess"])
        found.setdefault(passes, []).append(name)
    assert found == {
        (True, True): ["near"],
        (True, False): ["clone", "far", "farther", "hot"],
        (False, False): ["cold"],
        (False, True): ["narrow"],
    }


@pytest.mark.slow
def test_few_runs_decide_nothing(ds):
    few = ds.isel(replicate=[0, 1])
    assert {f.holds for f in STUDY.findings(few)} == {None}


@pytest.mark.slow
def test_the_claim_reads_the_sentences_as_they_are(ds, monkeypatch):
    said = [(f.holds, f.sentence, f.rule) for f in STUDY.findings(ds)]
    monkeypatch.setattr(tables, "of_page", lambda study: tables.Said(said, "here"))
    (claim,) = [one for one in tables.CLAIMS if one.study == STUDY.name]
    assert claim.decide(Trial(claim.name)).text.count(" tell when ") == len(tables.OF_TABLE)


@pytest.mark.slow
def test_tables_count_every_run(ds):
    rocs, failures, spoken = STUDY.table(ds).values()
    one = rocs[(rocs["gate"] == "transport_fail") & (rocs["event"] == "miss")].iloc[0]
    assert one["runs"] == 5 * 6
    low, high = ds["interval"].sel({"method": "plug_in"}).isel(policy=0).transpose("ci_bound", ...).values
    truth = ds["truth"].isel(policy=0).broadcast_like(ds["status"].isel(policy=0, method=0)).values
    assert one["failures"] == ((truth < low) | (high < truth)).sum()
    assert set(failures["method"]) == {"plug_in", "snips", "dr_cpo"} and (failures["runs"] == 6).all()
    hacked = spoken[(spoken["gate"] == "transport_fail") & (spoken["world"] == "hacked")]
    assert hacked["speaks"].item() == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("levels", [{}, {"world": ["benign"]}, {"world": ["near", "farther"]}])
def test_figure_of_whole_and_partial_grids(ds, levels):
    part = ds.sel(levels)
    with mpl.rc_context(page.STYLE):
        (figure,) = STUDY.figure(part).values()
    assert len(figure.axes) == (2 if levels.get("world") == ["benign"] else 6)
    mpl.pyplot.close(figure)
