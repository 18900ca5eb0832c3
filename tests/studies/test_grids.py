"""Averages over grids and rankings against their definitions, written out."""

import itertools

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from studies.engine import grids
from studies.engine.outcome import NOT_RUN


def slow_ranking(estimate, truth):
    """Pairwise accuracy, top-1 and tau, pair by pair."""
    pairs = [(j, k) for j, k in itertools.combinations(range(len(truth)), 2) if truth[j] != truth[k]]
    products = [(estimate[j] - estimate[k]) * (truth[j] - truth[k]) for j, k in pairs]
    right = sum(p > 0 for p in products)
    wrong = sum(p < 0 for p in products)
    best = [j for j in range(len(truth)) if truth[j] == max(truth)]
    chosen = [j for j in range(len(truth)) if estimate[j] == max(estimate)]
    top = all(j in best for j in chosen)
    return right / len(pairs), float(top), (right - wrong) / len(pairs)


@pytest.mark.parametrize("seed", range(4))
def test_rankings_are_their_definition(seed):
    rng = np.random.default_rng(seed)
    truth = np.array([0.5, 0.5, 0.7, 0.6, 0.1]) if seed % 2 else rng.normal(size=5)
    estimate = np.round(rng.normal(size=(30, 5)), 1)  # with ties
    found = grids.ranking(estimate, truth)
    for k, one in enumerate(estimate):
        assert (found.pairwise[k], found.top1[k], found.tau[k]) == pytest.approx(slow_ranking(one, truth))
    if not seed % 2:
        untied = rng.normal(size=5)
        assert float(grids.ranking(untied, truth).tau) == pytest.approx(stats.kendalltau(untied, truth)[0])


def test_what_has_no_estimate_is_ordered_wrongly():
    found = grids.ranking(np.array([0.1, np.nan, 0.3]), [0.1, 0.2, 0.3])
    assert float(found.pairwise) == pytest.approx(1 / 3) and float(found.top1) == 1.0
    assert float(grids.ranking(np.array([0.1, 0.2, np.nan]), [0.1, 0.2, 0.3]).top1) == 0.0
    equal = grids.ranking(np.full(3, 0.4), [0.1, 0.2, 0.3])  # one value for every policy orders none
    assert (float(equal.pairwise), float(equal.top1), float(equal.tau)) == (0.0, 0.0, 0.0)


def test_bounds_order_what_has_no_estimate():
    """The second policy has no value; its bounds put it above the first, and leave its pair with the third open."""
    estimate, truth = np.array([0.1, np.nan, 0.3]), [0.1, 0.2, 0.3]
    bounds = np.array([[0.0, 0.15], [0.18, 0.4], [0.2, 0.45]])
    found = grids.ranking(estimate, truth, bounds)
    assert (float(found.pairwise), float(found.unordered)) == pytest.approx((2 / 3, 1 / 3))
    assert float(found.top1) == 1.0 and float(found.tau) == pytest.approx(2 / 3)
    bounds[1] = [0.5, 0.6]  # above the best one, which is wrong
    wrong = grids.ranking(estimate, truth, bounds)
    assert (float(wrong.pairwise), float(wrong.top1), float(wrong.unordered)) == pytest.approx((2 / 3, 0, 0))
    lost = grids.ranking(
        np.array([0.1, 0.2, np.nan]), truth, np.array([[0.0, 0.15], [0.1, 0.25], [0.3, 0.4]])
    )
    assert float(lost.top1) == 1.0 and float(lost.pairwise) == 1.0


def drawn(rng, replicates):
    """Squares of correlated errors of two methods in three cells of different size."""
    common = rng.normal(size=(3, replicates, 1))
    error = (common + 0.5 * rng.normal(size=(3, replicates, 2))) * np.array([1.0, 2.0, 4.0])[:, None, None]
    return error**2 * np.array([1.0, 1.5])


@pytest.mark.parametrize("link", grids.LINKS)
def test_errors_of_averages_and_of_paired_comparisons(link):
    """The reported MCSE against the spread over 400 repetitions of the whole study, within 5 of its own errors."""
    rng, found = np.random.default_rng(7), []
    for _ in range(400):
        level = grids.average(drawn(rng, 200), link)
        one, other = level.at(1), level.at(0)
        found.append(
            [*(v for part in (level, one.less(other), one.over(other)) for v in (part.value, part.mcse))]
        )
    for value, mcse in ((0, 1), (2, 3), (4, 5)):
        spread = np.std([row[value] for row in found], axis=0, ddof=1)
        said = np.sqrt(np.mean([row[mcse] ** 2 for row in found], axis=0))
        np.testing.assert_allclose(said, spread, rtol=5 / np.sqrt(2 * 400))
        assert not np.allclose(1.25 * said, spread, rtol=5 / np.sqrt(2 * 400))  # a planted error is noticed


def test_missing_numbers_and_clipped_roots():
    rows = np.array([[[1.0, np.nan], [3.0, np.nan]], [[4.0, 2.0], [np.nan, 4.0]]])
    found = grids.average(rows)
    assert found.value.tolist() == [3.0, 3.0]  # means 2 and 4; the cell without the second method is left out
    clipped = grids.average(np.array([[[1.0], [1.2]]]), "root", debias=4.0)
    assert clipped.value.tolist() == [0.0] and clipped.mcse.tolist() == [0.0]
    assert np.isnan(grids.average(np.full((1, 2, 1), np.nan)).value).all()
    with pytest.raises(ValueError, match="use one of mean, root, log"):
        grids.average(rows, "median")


def results(estimate, truth):
    """Results of one cell with unit intervals of half width .1."""
    values = np.asarray(estimate, float)[None]
    dims = ("n", "replicate", "method", "policy")
    return xr.Dataset(
        {
            "estimate": (dims, values),
            "std_error": (dims, np.full(values.shape, 0.05)),
            "interval": ((*dims, "ci_bound"), np.stack([values - 0.1, values + 0.1], axis=-1)),
            "status": (dims, np.zeros(values.shape, np.int8)),
            "truth": (("n", "replicate", "policy"), np.broadcast_to(truth, (1, len(estimate), len(truth)))),
        },
        coords={"ci_bound": ["lower", "upper"], "n": [10]},
        attrs={"ci_prob": 0.95},
    )


def test_numbers_of_a_replicate():
    ds = results([[[0.5, 0.8]], [[0.65, np.nan]], [[0.2, 0.2]]], [0.5, 0.6])
    ds["status"][0, 2] = NOT_RUN
    found = grids.scored(ds)
    assert found["error"][0, 0, 0].tolist() == pytest.approx([0.0, 0.2])
    np.testing.assert_array_equal(found["hit"][0, :2, 0], [[1.0, 0.0], [0.0, np.nan]])
    assert (
        found["refused"][0, :2, 0].tolist() == [[0.0, 0.0], [0.0, 1.0]] and not found["failed"][0, :2].any()
    )
    assert found["interval_score"][0, 0, 0].tolist() == pytest.approx([0.2, 0.2 + 40 * 0.1])
    assert np.isnan(found["hit"][0, 2]).all() and np.isnan(grids.ranked(ds).pairwise[0, 2]).all()
    assert grids.ranked(ds).pairwise[0, :2, 0].tolist() == [1.0, 0.0]
    ds["truth"] = ds["truth"] + xr.DataArray([0.0, 0.1, 0.0], dims="replicate")
    with pytest.raises(ValueError, match="same true values"):
        grids.ranked(ds)
