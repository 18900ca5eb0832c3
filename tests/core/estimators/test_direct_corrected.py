"""The tuned probe value against its definition; what it does without a usable judge; clusters; covariates."""

import numpy as np
import oracles_transport as oracles
import pandas as pd
import pytest
from audit_world import world

from cje_core.calibration.calibrated import Calibration
from cje_core.calibration.calibrator import predict
from cje_core.calibration.oracle_slice import fit_slice
from cje_core.data import from_arrays
from cje_core.data.arrays import unpack
from cje_core.estimators import direct_corrected, labels_only
from cje_core.inference.contrasts import contrasts
from cje_core.inference.estimate import Status
from cje_core.inference.sources import borrows
from cje_core.io import from_frame


@pytest.mark.parametrize(("slope", "inside"), [(0.3, True), (0.9, False), (-0.4, False), (0.5, True)])
def test_value_and_error_against_the_definition(slope, inside):
    """Lambda inside (0, 1) and clipped at either end; f has slope .6."""
    data = world(probes=30, seed=2)
    moved = data.oracle + (slope - 0.6) * data.judge.where(data.probe)
    data = data.assign(oracle=data.oracle.where(~data.probe, moved))
    found = direct_corrected.estimate(data).sel(policy="b")
    rows = unpack(data)
    mine = np.flatnonzero(rows.policy == 1)
    f = dict(zip(rows.prompt[mine], predict(fit_slice(rows).calibrator, rows.z[mine]), strict=True))
    probes = {rows.prompt[i]: (f[rows.prompt[i]], rows.label[i]) for i in mine[rows.probe[mine]]}
    value, error, lam = oracles.probe_value(f, probes)
    np.testing.assert_allclose([found.estimate, found.lam], [value, lam], rtol=1e-9)
    np.testing.assert_allclose(found.std_error, error, rtol=1e-6)
    assert (0 < lam < 1) == inside and found.route == "probe_tuned"
    assert float(found.df) > 28 - 1e-6 and found.status == Status.OK and not borrows(found)


def judged(judge, oracle, probe, **extra):
    return from_arrays(
        judge, policies=["a", "b"], oracle=oracle, probe=probe, calibration_policy="a", **extra
    )


def two(n=300, probes=30, *, judge=None, teach=100, seed=0):
    """Policy a teaches, b is probed; judge scores uniform unless given."""
    rng = np.random.default_rng(seed)
    score = rng.random((2, n)) if judge is None else np.full((2, n), judge)
    label = (0.2 + 0.5 * score + rng.normal(0, 0.1, score.shape)).clip(0, 1)
    probe, seen = np.zeros((2, n), bool), np.zeros((2, n), bool)
    probe[1, :probes] = True
    seen[0, :teach] = True
    return score, np.where(probe | seen, label, np.nan), probe


@pytest.mark.parametrize(
    ("judge", "teach", "probes"),
    [(0.5, 100, 30), (None, 2, 30), (None, 0, 30), (None, 100, 5), (None, 100, 4)],
)
def test_without_a_judge_it_is_the_mean_of_the_probes(judge, teach, probes):
    """A constant judge, a slice that failed, too few probes for a slope: value and error of the labels alone."""
    score, oracle, probe = two(judge=judge, teach=teach, probes=probes)
    found = direct_corrected.estimate(judged(score, oracle, probe)).sel(policy="b")
    own = np.where(np.arange(2)[:, None] == 1, oracle, np.nan)
    alone = labels_only.estimate(judged(score, own, np.zeros_like(probe))).sel(policy="b")
    assert float(found.lam) == 0.0 and not Status(int(found.status)).failed
    for name in ("estimate", "std_error", "df", "interval"):
        np.testing.assert_allclose(found[name], alone[name])


def test_too_few_probes_have_no_number_and_equal_labels_no_error():
    score, oracle, probe = two(probes=3)
    assert direct_corrected.estimate(judged(score, oracle, probe)).status.sel(policy="b") == Status.NO_PROBES
    score, oracle, probe = two(probes=12)
    oracle[1, :12] = 1.0
    found = direct_corrected.estimate(judged(score, oracle, probe)).sel(policy="b")
    assert found.status == Status.CONSTANT_LABELS and np.isnan(found.std_error)
    assert float(found.estimate) == pytest.approx(1.0)


def test_probes_apart_from_the_responses_weigh_both_samples():
    """Probes that are no evaluated responses: lambda is the slope times 1 / (1 + m / N)."""
    score, oracle, probe = two(n=200, probes=80)
    evaluated = ~probe
    found = direct_corrected.estimate(judged(score, oracle, probe, evaluated=evaluated)).sel(policy="b")
    inside = direct_corrected.estimate(judged(score, oracle, probe)).sel(policy="b")
    rows = unpack(judged(score, oracle, probe))
    mine = rows.probe & (rows.policy == 1)
    f = predict(fit_slice(rows).calibrator, rows.z[mine])
    slope = np.polyfit(f, rows.label[mine], 1)[0]
    np.testing.assert_allclose(inside.lam, np.clip(slope, 0, 1))
    np.testing.assert_allclose(found.lam, np.clip(slope / (1 + 80 / 120), 0, 1))


def test_copies_inside_a_cluster_change_nothing():
    score, oracle, probe = two(n=120, probes=24)
    frame = pd.DataFrame(
        {
            "policy": np.repeat(["a", "b"], 120),
            "prompt_id": np.tile([f"p{i}" for i in range(120)], 2),
            "judge_score": score.ravel(),
            "oracle_label": oracle.ravel(),
            "probe": probe.ravel(),
        }
    )
    twice = pd.concat([frame, frame.assign(prompt_id=frame.prompt_id + "+")])
    twice = twice.assign(cluster=twice.prompt_id.str.rstrip("+"))
    single, double = (
        direct_corrected.estimate(from_frame(t, calibration_policy="a")).sel(policy="b")
        for t in (frame, twice)
    )
    for name in ("estimate", "std_error", "df", "lam"):
        np.testing.assert_allclose(single[name], double[name], rtol=1e-9)


def test_an_inverted_judge_is_ignored_and_a_direction_turns_it_round():
    score, oracle, probe = two()
    turned = judged(1 - score, oracle, probe)
    ignored = direct_corrected.estimate(turned).sel(policy="b")
    used = direct_corrected.estimate(turned, calibration=Calibration(direction="decreasing")).sel(policy="b")
    plain = direct_corrected.estimate(judged(score, oracle, probe)).sel(policy="b")
    np.testing.assert_allclose(used.estimate, plain.estimate)
    assert used.std_error < 0.8 * ignored.std_error


def test_covariates_enter_f():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 300))
    score, oracle, probe = two()
    label = oracle + 0.1 * x
    data = judged(
        score, label.clip(-1, 2), probe, covariate=x[..., None, None], features=["x"], oracle_range=(-1, 2)
    )
    plain, helped = (
        direct_corrected.estimate(data, calibration=Calibration(c)).sel(policy="b") for c in ([], ["x"])
    )
    assert helped.std_error < plain.std_error


def test_contrasts_of_probed_policies_use_their_influence():
    data = world(probes=40, shift=(0.0, 0.0, -0.2))
    pairs = contrasts(direct_corrected.estimate(data))
    known = np.isfinite(pairs.difference.values)
    assert known.sum() == 1
    assert float(pairs.interval.values[known][0, 0]) < 0.2 < float(pairs.interval.values[known][0, 1])


def test_the_paper_correction_is_an_option():
    data = world(probes=40)
    paper = direct_corrected.estimate(data, tuned=False).sel(policy="b")
    assert (
        paper.route == "probe_corrected"
        and float(paper.lam) == 1.0
        and paper.attrs["estimator"] == "direct_corrected"
    )
