"""Where a judge begins to pay, against data sets drawn and adjusted one by one."""

import numpy as np
import pytest
import xarray as xr

from cje_core.planning.judge_worth import adjusted_variance, effective_labels, judge_worth, least_correlation


def by_simulation(correlation, m, n, replicates, seed):
    """Variance of the adjusted mean over that of the labels alone, with its Monte Carlo error."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((replicates, n))
    y = correlation * x[:, :m] + np.sqrt(1 - correlation**2) * rng.standard_normal((replicates, m))
    own = x[:, :m] - x[:, :m].mean(1, keepdims=True)
    slope = (own * y).sum(1) / (own**2).sum(1)
    adjusted = y.mean(1) + slope * (x.mean(1) - x[:, :m].mean(1))
    loss, alone = adjusted**2, y.mean(1) ** 2
    ratio = loss.mean() / alone.mean()
    moves = (loss - ratio * alone) / alone.mean()
    return ratio, moves.std(ddof=1) / np.sqrt(replicates)


@pytest.mark.parametrize(("m", "n"), [(12, 60), (12, 400), (25, 250)])
def test_at_the_least_correlation_the_judge_neither_pays_nor_costs(m, n):
    r = least_correlation(m)
    ratio, error = by_simulation(r, m, n, 20_000, seed=m + n)
    # what the formula leaves out is of the order 1 / (n m)
    assert abs(ratio - adjusted_variance(r, m, n)) < 5 * error + 1 / (n * m) * 5
    assert adjusted_variance(r, m, n) == pytest.approx(1.0)
    better, spread = by_simulation(2 * r, m, n, 20_000, seed=1)
    assert better + 5 * spread < 1 and adjusted_variance(2 * r, m, n) < 1


def test_labels_that_the_judge_replaces():
    """With m labels a judge that halves the variance makes them as good as 2 m."""
    assert effective_labels(80, np.sqrt(2.0), 1.0) == pytest.approx(160)
    one, two = (
        xr.Dataset({"std_error": ("policy", s)}, {"policy": ["a", "b", "c"]})
        for s in ([1.0, 2, 1], [2.0, 1, 2])
    )
    found = judge_worth(one, two, [50, 50, 60], [500, 500, 60])
    assert found["replaced"].values[0] == pytest.approx(150) and found["replaced"].values[1] < 0
    assert np.isnan(found["replaced"].values[2])  # all are labelled: nothing is left for the judge
