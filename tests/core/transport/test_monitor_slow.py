"""The false alarms of the audits in time are as many as stated, whatever the law of a residual; planted errors show."""

from functools import partial

import numpy as np
import pytest
from scipy import stats

from cje_core.calibration.calibrated import calibrated
from cje_core.data import from_arrays
from cje_core.transport import drift, monitor
from cje_core.transport.audit import residuals
from cje_core.transport.monitor import anchor_audit, batch_audit, label_audit

pytestmark = pytest.mark.slow

ALPHA = 2 * stats.norm.sf(5)  # two-sided probability of five standard errors
N = 300  # replicates
LEVEL = 0.05
MOST = stats.binom.ppf(1 - ALPHA / 2, N, LEVEL)
LAWS = {
    "normal": lambda rng, shape: rng.normal(0.5, 0.2, shape),
    "rare failures": lambda rng, shape: (rng.random(shape) < 0.9).astype(float),
    "skewed": lambda rng, shape: rng.exponential(0.2, shape).clip(0, 3),
}
SIZE = np.array([20, 5, 12, 8, 5, 10, 5, 5])  # a baseline of 20 and seven uneven batches


def probed(rng, label):
    """Two policies: the first teaches, the second's probes come in batches and the calibration fits them."""
    n = SIZE.sum()
    score = rng.random((2, n))
    oracle = np.stack([label(rng, n), label(rng, n)])
    probe = np.zeros((2, n), bool)
    probe[1] = True
    return from_arrays(score, policies=["base", "target"], oracle=oracle, probe=probe, oracle_range=(-1, 4))


@pytest.mark.parametrize("law", LAWS)
def test_batches_alarm_at_most_as_often_as_stated(law, monkeypatch):
    """Through files' form of data: a calibrator is fitted to other labels, and residuals are given that f."""
    monkeypatch.setattr(drift, "MOST_DRAWN", 999 * SIZE.sum())  # orders enough for a p-value of .05
    rng, batch = np.random.default_rng(1), np.repeat(np.arange(len(SIZE)), SIZE)
    alarms = 0
    for _ in range(N):
        data = calibrated(probed(rng, LAWS[law]))
        order = np.argsort(residuals(data).prompt.values.astype(int), kind="stable")
        when = np.empty(len(order), dtype=int)
        when[order] = batch
        alarms += batch_audit(data, when, rng=rng).drifted.item() == 1.0
    assert alarms <= MOST
    if law != "rare failures":  # there a baseline without a failure shows no spread, and is no alarm
        assert alarms >= stats.binom.ppf(ALPHA / 2, N, LEVEL)


def test_normal_limits_would_not_hold_for_skewed_residuals():
    """What limits from normal residuals do with a dozen exponential ones and forty batches of one."""
    rng = np.random.default_rng(2)
    size = np.ones(40)
    z = (rng.standard_normal((4000, 40)) - rng.standard_normal((4000, 1)) / np.sqrt(12)) / np.sqrt(
        rng.chisquare(11, (4000, 1)) / 11
    )
    limit = np.quantile(np.nanmax(drift._paths(z, 0.5, 0.2), axis=1), 1 - LEVEL, axis=0)
    values = rng.exponential(size=(N, 52))
    base = values[:, :12]
    seen = (values[:, 12:] - base.mean(axis=1)[:, None]) / base.std(axis=1, ddof=1)[:, None] * np.sqrt(size)
    highest = np.nanmax(drift._paths(seen, 0.5, 0.2), axis=1)
    assert ((highest > limit).sum(axis=0) > MOST).any()
    orders = [
        residual.p_value.values[0] <= LEVEL
        for residual in (
            drift.residual_drift(row, np.repeat(np.arange(41), [12, *[1] * 40]), n_simulated=199, rng=rng)
            for row in values
        )
    ]
    assert (np.sum(orders, axis=0) <= MOST).all()


@pytest.mark.parametrize("n_streams", [1, 4])
def test_anchors_alarm_at_most_as_often_as_stated(n_streams, monkeypatch):
    """A judge that scores both times with fresh noise, its tau at the declared minimum: the worst that is harmless."""
    # of any number of sign flips the p-value holds its level; that of 1999 can be a twelfth of what alarms
    monkeypatch.setattr(monitor, "rank_drift", partial(drift.rank_drift, n_permutations=1999))
    rng = np.random.default_rng(3)
    truth = rng.uniform(size=(400, 400))
    noise = rng.normal(0, 0.08, (2, 400, 400))
    tau = float(
        np.mean(
            [stats.kendalltau(*(t + e)).statistic for t, e in zip(truth, noise.swapaxes(0, 1), strict=True)]
        )
    )
    alarms, harsher = 0, 0
    for _ in range(N):
        quality = rng.uniform(size=(n_streams, 40))
        then, now = quality + rng.normal(0, 0.08, (2, n_streams, 40))
        found = anchor_audit(then, now, min_tau=tau, rng=rng)
        alarms += bool((found.alarm == 1).any())
        harsher += bool((anchor_audit(then, now - 0.1, min_tau=tau, rng=rng).alarm == 1).all())
    assert alarms <= MOST
    assert harsher > 0.8 * N  # and it finds a judge that became harsher


@pytest.mark.parametrize(("mean", "wrong"), [(0.1, "FAIL"), (0.100001, "PASS")])
def test_labels_one_by_one_are_wrong_at_most_as_often_as_stated(mean, wrong):
    """Mean residual at the edge of the margin, looked at after every one of 300 labels, binary labels."""
    rng = np.random.default_rng(4)
    n, count = 300, 0
    for _ in range(N):
        score = np.zeros((2, n))  # one judge level: f is the mean label of the first policy, 0.5 exactly
        oracle = np.stack([np.tile([0.0, 1.0], n // 2), (rng.random(n) < 0.5 + mean).astype(float)])
        probe = np.zeros((2, n), bool)
        probe[1] = True
        data = from_arrays(score, policies=["base", "target"], oracle=oracle, probe=probe)
        out = label_audit(data, np.arange(n), margin=0.1)
        count += out.verdict.item() == wrong
    assert count <= MOST
