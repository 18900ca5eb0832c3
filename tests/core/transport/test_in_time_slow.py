"""Audits looked at after each label, and drift charts, against repeated sampling.

Each check that passes is run again with an error planted (an interval for one look, a limit that takes the baseline as
known) and must then fail.
"""

import numpy as np
import pytest
from exact_bounds import ALPHA, within
from scipy import stats

from cje_core.transport import drift
from cje_core.transport.audit_size import sequential_audit

pytestmark = pytest.mark.slow

# --- continuous peeking ----------------------------------------------------------------------------------------------

N_STREAMS, N_LABELS = 1000, 300


def streams(kind):
    rng = np.random.default_rng(17)
    if kind == "rare":  # a large error, seldom
        return np.where(rng.random((N_STREAMS, N_LABELS)) < 0.05, 0.95, -0.05)
    if kind == "coin":  # as noisy as residuals can be
        return np.where(rng.random((N_STREAMS, N_LABELS)) < 0.5, 1.0, -1.0)
    return rng.normal(0, 0.15, (N_STREAMS, N_LABELS)).clip(-1, 1)


@pytest.mark.parametrize("kind", ["rare", "coin", "smooth"])
def test_sequential_interval_never_loses_the_mean_more_often_than_alpha(kind):
    """The mean is 0 in every stream; the interval is looked at after each label."""
    lost = 0
    for residual in streams(kind):
        low, high = sequential_audit(residual, alpha=0.05, n_grid=401).interval.values[-1]
        lost += not low <= 0 <= high  # the running intersection remembers every earlier look
    assert lost <= stats.binom.ppf(1 - ALPHA / 2, N_STREAMS, 0.05)


@pytest.mark.parametrize("n_grid", [3, 6, 11, 21])
def test_no_grid_is_too_coarse(n_grid):
    """A mean between two candidates: the interval keeps it as often as on a fine grid."""
    rng = np.random.default_rng(3)
    lost = 0
    for residual in rng.choice(
        [-0.03, 0.13], (400, 400)
    ):  # mean .05, off every grid but the middle of a cell
        low, high = sequential_audit(residual, alpha=0.05, n_grid=n_grid).interval.values[-1]
        lost += not low <= 0.05 <= high
    assert lost <= stats.binom.ppf(1 - ALPHA / 2, 400, 0.05)


def test_peeking_check_sees_a_fixed_sample_interval():
    """The ordinary t interval, looked at after each label from the tenth on."""
    residual = streams("smooth")
    m = np.arange(1, N_LABELS + 1)
    mean = residual.cumsum(axis=1) / m
    error = np.sqrt(((residual**2).cumsum(axis=1) / m - mean**2) / np.maximum(m - 1, 1))
    half = stats.t.ppf(0.975, np.maximum(m - 1, 1)) * error
    lost = (np.abs(mean) > half)[:, 9:].any(axis=1).sum()
    assert lost > stats.binom.ppf(1 - ALPHA / 2, N_STREAMS, 0.05)


def test_sequential_verdicts_on_the_margin_are_wrong_at_most_alpha_often():
    wrong = 0
    for residual in streams("smooth")[:400]:
        wrong += (
            sequential_audit(residual + 0.05, bounds=(-1, 1.05), n_grid=401).final.item() != "INCONCLUSIVE"
        )
    assert wrong <= stats.binom.ppf(1 - ALPHA / 2, 400, 0.05)


# --- drift -----------------------------------------------------------------------------------------------------------


def quiet_streams(draw, n_streams=1000):
    """Streams without change: a short baseline, then twelve batches of uneven size."""
    size = np.array([12, 5, 20, 8, 30, 10, 10, 40, 6, 15, 10, 25, 10])
    batch = np.tile(np.repeat(np.arange(13), size), n_streams)
    return draw(len(batch)), batch, np.repeat(np.arange(n_streams), size.sum())


def test_drift_alarms_as_often_as_asked_for():
    rng = np.random.default_rng(5)
    values, batch, stream = quiet_streams(lambda n: rng.normal(-0.1, 0.2, n))
    found = drift.residual_drift(values, batch, stream=stream, n_simulated=999, rng=0)
    for chart in drift.CHARTS:
        assert within((found.p_value.sel(chart=chart) <= 0.05).mean().item(), 0.05, 1000)
        assert within((found.first_alarm.sel(chart=chart) >= 0).mean().item(), 0.05, 1000)
    # all nulls are true: any discovery at all is a false one, at most fdr often; here it is one family
    assert found.alarm.sum() <= 1


def test_drift_check_sees_a_center_taken_as_known(monkeypatch):
    """What a textbook limit does with a baseline of twelve residuals."""

    def known(early, later, size, slack, smoothing, n_simulated, rng):
        z = np.where(size > 0, rng.standard_normal((n_simulated, len(size))), np.nan)
        return np.nanmax(drift._paths(z, slack, smoothing), axis=1, initial=0.0)

    monkeypatch.setattr(drift, "_permuted_maxima", known)
    rng = np.random.default_rng(5)
    values, batch, stream = quiet_streams(lambda n: rng.normal(-0.1, 0.2, n), 200)
    found = drift.residual_drift(values, batch, stream=stream, n_simulated=999, rng=0)
    for chart in drift.CHARTS:
        assert not within((found.p_value.sel(chart=chart) <= 0.05).mean().item(), 0.05, 200)


def test_anchor_tests_have_their_level():
    """Independent rankings for Kendall's tau, exchangeable scorings for the sign flip; scores on a coarse grid."""
    rng = np.random.default_rng(6)
    then, now = rng.integers(0, 6, (2, 1000, 12)) / 5
    found = drift.rank_drift(then, now, n_permutations=199, rng=0)
    for p in (found.p_value, found.p_change):
        assert (p <= 0.05).mean() <= stats.binom.ppf(1 - ALPHA / 2, 1000, 0.05) / 1000
    assert (found.p_value <= 0.05).mean() > 0.02  # and is not idle
