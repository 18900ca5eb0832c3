"""Rank drift against scipy and full enumeration; charts against their definition; false alarms in the slow part."""

import numpy as np
import oracles_transport as oracles
import pytest
from scipy import stats

from cje_core.transport.drift import _paths, cusum_arl, rank_drift, residual_drift

# --- anchors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [5, 8, 30, 60])
def test_without_ties_tau_and_p_are_scipys(n):
    rng = np.random.default_rng(n)
    then = rng.normal(size=n)
    now = 0.5 * then + rng.normal(size=n)
    found = rank_drift(then, now, rng=0)
    expected = stats.kendalltau(then, now, method="exact")
    np.testing.assert_allclose(
        [found.tau.item(), found.p_value.item()], [expected.statistic, expected.pvalue]
    )
    assert found.exact.item()


def test_ties_small_enough_are_enumerated():
    rng = np.random.default_rng(1)
    for _ in range(20):
        then, now = rng.integers(0, 3, (2, 6))
        if np.ptp(then) == 0 or np.ptp(now) == 0:
            continue
        found = rank_drift(then, now, rng=0)
        np.testing.assert_allclose(found.tau.item(), oracles.tau_b(then.tolist(), now.tolist()))
        np.testing.assert_allclose(found.p_value.item(), oracles.permutation_p(then.tolist(), now.tolist()))
        assert found.exact.item()


def test_ties_beyond_enumeration_agree_with_the_normal_law_of_scipy():
    rng = np.random.default_rng(2)
    n, n_permutations = 80, 4000
    then = rng.integers(0, 13, n)
    now = np.where(rng.random(n) < 0.15, then, rng.integers(0, 13, n))
    found = rank_drift(then, now, n_permutations=n_permutations, rng=0)
    expected = stats.kendalltau(then, now, method="asymptotic")
    np.testing.assert_allclose(found.tau.item(), expected.statistic)
    p = expected.pvalue
    assert not found.exact.item()
    # five Monte Carlo standard errors, and 0.005 for the normal approximation at n = 80
    assert abs(found.p_value.item() - p) < 5 * np.sqrt(p * (1 - p) / n_permutations) + 0.005


def test_monte_carlo_p_value_is_never_zero():
    score = np.repeat(np.arange(13), 10)
    found = rank_drift(score, score, n_permutations=99, rng=0)
    np.testing.assert_allclose(found.p_value.item(), 1 / 100)  # none of 99, plus the observed order itself
    assert found.tau.item() == 1.0 and found.alarm.item() == 0.0


def test_jackknife_interval_of_tau_is_its_definition():
    rng = np.random.default_rng(3)
    then = rng.integers(0, 10, 25)
    now = then + rng.integers(-2, 3, 25)
    rest = [oracles.tau_b(np.delete(then, i).tolist(), np.delete(now, i).tolist()) for i in range(25)]
    error = np.sqrt(24 / 25 * ((rest - np.mean(rest)) ** 2).sum())
    found = rank_drift(then, now, rng=0)
    half = stats.t.ppf(0.975, 24) * error
    np.testing.assert_allclose(found.interval.values[0], found.tau.item() + np.array([-half, half]))


@pytest.mark.slow
def test_each_kind_of_drift_alarms_and_a_steady_judge_does_not():
    rng = np.random.default_rng(4)
    then = rng.uniform(size=200)
    noise = rng.normal(0, 0.01, (3, 200))
    scrambled = np.where(rng.random(200) < 0.4, rng.uniform(size=200), then)
    now = np.stack([then + noise[0], then - 0.05 + noise[1], scrambled])
    found = rank_drift(np.tile(then, (3, 1)), now, rng=0)
    assert found.alarm.values.tolist() == [0.0, 1.0, 1.0]
    assert found.tau.values[1] > 0.9  # a harsher judge keeps its ranks: only the mean change shows it
    assert found.p_value.values[2] < 0.01  # and a scrambled one is still far from independent
    np.testing.assert_allclose(
        found.p_change_bh, stats.false_discovery_control(found.p_change.values), rtol=1e-12
    )


def test_sign_flip_is_exact_for_few_anchors():
    found = rank_drift([1.0, 2, 3, 4], [1.5, 2.5, 3.5, 4.5], rng=0)
    np.testing.assert_allclose(found.p_change.item(), 2 / 16)


def test_pitfall_17_unknown_drift_is_nan_and_not_quiet():
    found = rank_drift([[1, 2, 3, np.nan], [1, 1, 1, 1]], [[1, 2, 3, 4], [1, 2, 3, 4]], rng=0)
    assert np.isnan(found.tau).all() and np.isnan(found.alarm).all()
    assert found.n_anchors.values.tolist() == [3, 4]


# --- charts ----------------------------------------------------------------------------------------------------------


def test_charts_are_their_recursion():
    z = np.random.default_rng(0).normal(0.3, 1, (3, 20))
    z[1, 4] = z[1, 5] = np.nan
    fast = _paths(z, 0.5, 0.2)
    for s in range(3):
        slow = oracles.charts([None if np.isnan(v) else v for v in z[s]], 0.5, 0.2)
        for c in range(2):
            np.testing.assert_allclose(
                fast[s, :, c], [np.nan if v is None else v for v in slow[c]], atol=1e-12
            )


def stream(shift=0.0, *, batches=20, size=30, start=10, seed=0):
    """Residuals of `batches` batches, shifted from batch `start` on."""
    rng = np.random.default_rng(seed)
    batch = np.repeat(np.arange(batches), size)
    return rng.normal(0, 0.2, len(batch)) + np.where(batch >= start, shift, 0.0), batch


def test_a_shift_is_found_after_it_began_and_a_steady_stream_is_quiet():
    steady, batch = stream(seed=1)
    moved, _ = stream(0.15, seed=2)
    found = residual_drift(
        np.concatenate([steady, moved]),
        np.tile(batch, 2),
        stream=np.repeat(["steady", "moved"], len(batch)),
        n_baseline=5,
        n_simulated=1999,
        rng=0,
    )
    assert found.alarm.sel(stream="steady").values.tolist() == [0.0, 0.0]
    assert found.alarm.sel(stream="moved").values.tolist() == [1.0, 1.0]
    assert (found.first_alarm.sel(stream="moved") >= 10).all()
    assert (found.first_alarm.sel(stream="steady") == -1).all()
    first = batch < 5
    np.testing.assert_allclose(found.center.sel(stream="moved"), moved[first].mean())
    np.testing.assert_allclose(found.sd.sel(stream="moved"), moved[first].std(ddof=1))
    mean = moved[batch == 7].mean()
    expected = (mean - moved[first].mean()) / moved[first].std(ddof=1) * np.sqrt(30)
    np.testing.assert_allclose(found.z.sel(stream="moved", batch=7), expected)
    assert np.isnan(found.z.sel(batch=slice(0, 4))).all()
    np.testing.assert_allclose(
        found.p_bh.values[:, 0], stats.false_discovery_control(found.p_value.values[:, 0])
    )


def test_a_bias_from_the_start_is_not_drift():
    values, batch = stream(seed=3)
    plain, biased = (
        residual_drift(v, batch, n_baseline=5, n_simulated=199, rng=0) for v in (values, values - 0.3)
    )
    np.testing.assert_allclose(plain.z, biased.z, atol=1e-9)


def test_short_baselines_cost_power_and_not_level():
    """The limit knows that a short baseline leaves the center uncertain: it lies higher."""
    values, batch = stream(seed=3)
    short, long = (residual_drift(values, batch, n_baseline=k, n_simulated=1999, rng=0) for k in (1, 10))
    assert (short.limit > long.limit).all()


def test_pitfall_17_a_stream_without_a_baseline_is_unknown():
    values, batch = stream(batches=4)
    which = np.where(np.arange(len(batch)) % 2 == 0, "a", "b")
    keep = (which == "a") | (batch >= 2)  # b has nothing in its first two batches
    found = residual_drift(values[keep], batch[keep], stream=which[keep], n_baseline=2, n_simulated=99, rng=0)
    assert np.isnan(found.alarm.sel(stream="b")).all() and not np.isnan(found.alarm.sel(stream="a")).any()
    constant = residual_drift(np.where(batch < 2, 0.5, values), batch, n_baseline=2, n_simulated=99, rng=0)
    assert np.isnan(constant.p_value).all()


def test_run_length_against_the_markov_chain():
    """Siegmund's formula is within 2% of the chain of Brook and Evans at the limits in use."""
    for limit, shift in ((4.0, 0.0), (5.0, 0.0), (5.0, 1.0)):
        np.testing.assert_allclose(
            cusum_arl(limit, 0.5, shift), oracles.run_length(limit, 0.5, shift), rtol=0.02
        )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rank_drift([1, 2], [1, 2, 3]), "same anchors"),
        (lambda: rank_drift([1, 2], [1, 2], n_permutations=0), "n_permutations"),
        (lambda: rank_drift([1, 2], [1, 2], fdr=1.0), "fdr"),
        (lambda: residual_drift([0.1, 0.2], [0]), "same length"),
        (lambda: residual_drift([0.1, np.nan], [0, 1]), "missing or infinite"),
        (lambda: residual_drift([0.1, 0.2], [0, 1], n_baseline=2), "n_baseline"),
        (lambda: residual_drift([0.1, 0.2], [0, 1], smoothing=0.0), "smoothing"),
        (lambda: residual_drift([0.1, 0.2], [0, 1], false_alarm=0.0), "false_alarm"),
    ],
)
def test_bad_input_raises_with_the_mend(call, message):
    with pytest.raises(ValueError, match=message):
        call()
