"""Cells of the bootstrap: the distribution of resampled rows, at the cost of labels and cells."""

import numpy as np
import pytest
from scipy import stats

from cje_core.calibration.oracle_slice import fit_slice
from cje_core.data import from_arrays
from cje_core.data.arrays import unpack
from cje_core.families.direct.bootstrap import bootstrap_direct, replicate_values
from cje_core.families.direct.bootstrap_intervals import bootstrap_rows
from cje_core.families.direct.cells import _multinomial, compress, draw_counts
from cje_core.families.direct.fit import Options, fit_policy

N, B = 12_000, 3_000


def flat_rows(n=N, n_labels=100, *, grid=False, low=0.0, high=1.0, **options):
    """DirectRows of one policy; the labels lie between two scores."""
    rng = np.random.default_rng(7)
    score = rng.uniform(size=n)
    score[:n_labels] = rng.uniform(low, high, n_labels)
    score = np.round(score, 2) if grid else score
    label = np.full(n, np.nan)
    label[:n_labels] = np.clip(score[:n_labels] ** 2 + rng.normal(0, 0.2, n_labels), 0, 1)
    rows = unpack(from_arrays(score[None], policies=["a"], oracle=label[None]))
    fitted, chosen = fit_slice(rows), Options(**options)
    return bootstrap_rows(rows, fitted, [fit_policy(rows, fitted, 0, chosen)], [0], chosen)


def row_weights(rng, n_units, n_draws, positive):
    """Weights of units drawn one by one."""
    if positive:
        return rng.standard_exponential(n_units)
    return np.bincount(rng.integers(0, n_units, n_draws), minlength=n_units).astype(float)


def same_law(one, other):
    """Means, variances and distribution functions agree: 5 Monte Carlo SEs, and a KS test of level 1e-6."""
    spread = np.sqrt((one.var() + other.var()) / len(one))
    return {
        "mean": abs(one.mean() - other.mean()) < 5 * spread,
        "variance": abs(np.log(one.var() / other.var())) < 5 * np.sqrt(4 / len(one)),
        "distribution": stats.ks_2samp(one, other).pvalue > 1e-6,
    }


@pytest.mark.slow
@pytest.mark.parametrize("positive", [False, True])
def test_intervals_have_the_law_of_rows_where_most_of_the_variance_is_inside_them(positive):
    """Labels below .1 leave an outer cell with nine tenths of the rows, across which the offset is a steep line.

    The labels are held, so that only what is pooled varies. Planted in the test: without the normal for the inside
    of cells the variance is too small, and this is seen.
    """
    rows = flat_rows(n_labels=20, high=0.1, power_tuned=False)
    rows = rows._replace(offset=rows.level[rows.at])
    pooled, cells = compress(rows, positive=positive, straight=True)
    assert len(cells.size) <= 20 + 2 * 20 + 1 and len(pooled.inside)
    rng = np.random.default_rng(1)
    free = np.flatnonzero(cells.cell_of >= cells.n_labelled)
    by_row, by_cell = np.empty(B), np.ones((B, len(cells.size)))
    for b in range(B):
        counts = np.ones((1, N))
        counts[0, free] = row_weights(rng, len(free), len(free), positive)
        by_row[b] = replicate_values(rows, counts)[0][0, 0]
    size = cells.size[cells.n_labelled :]
    if positive:
        by_cell[:, cells.n_labelled :] = rng.standard_gamma(size.astype(float), (B, len(size)))
    else:
        member = (cells.cell_of[free] - cells.n_labelled).astype(np.int32)
        by_cell[:, cells.n_labelled :] = _multinomial(np.full(B, len(free)), size, member, rng)
    found = replicate_values(pooled, by_cell, rng.standard_normal((B, 1)))[0][:, 0]
    assert all(same_law(found, by_row).values()), same_law(found, by_row)
    assert not same_law(replicate_values(pooled, by_cell)[0][:, 0], by_row)["variance"]


@pytest.mark.slow
@pytest.mark.parametrize("grid", [False, True])
@pytest.mark.parametrize("weights", ["multinomial", "exponential"])
def test_the_bootstrap_has_the_law_of_the_row_bootstrap(grid, weights):
    """Whole replicates: labels drawn, calibrators refitted, tuned prediction, cells of levels or of intervals."""
    rows = flat_rows(grid=grid)
    positive = weights == "exponential"
    pooled, cells = compress(rows, positive=positive, straight=True)
    assert len(cells.size) < N / 20 and bool(len(pooled.inside)) == (not grid)
    found = bootstrap_direct(rows, B, np.random.default_rng(2), weights=weights).draws[0]
    rng = np.random.default_rng(3)
    each = [replicate_values(rows, row_weights(rng, N, N, positive)[None])[0][0, 0] for _ in range(B)]
    assert all(same_law(found, np.array(each)).values()), same_law(found, np.array(each))
    # planted: draws stretched about their mean, which moments see at once and the distribution function when doubled
    assert not same_law(found + 0.3 * (found - found.mean()), np.array(each))["variance"]
    assert not same_law(2 * found - found.mean(), np.array(each))["distribution"]


def test_weights_of_one_give_the_estimate_in_cells_too():
    for grid in (False, True):
        rows = flat_rows(grid=grid)
        pooled, cells = compress(rows, positive=False, straight=True)
        np.testing.assert_allclose(
            replicate_values(pooled, cells.size[None].astype(float))[0],
            replicate_values(rows, np.ones((1, N)))[0],
            atol=1e-12,
        )


def test_numbers_of_draws_are_multinomial():
    """Sums exactly, means within 5 SEs, covariances within 5 of theirs, for few and for many draws."""
    size, rounds = np.array([1, 5, 30, 964]), 20_000
    member = np.repeat(np.arange(4, dtype=np.int32), size)
    share = size / size.sum()
    for n in (3, 40, 1_000):
        got = _multinomial(np.full(rounds, n), size, member, np.random.default_rng(n))
        assert (got.sum(axis=1) == n).all() and (got >= 0).all()
        assert (np.abs(got.mean(axis=0) - n * share) < 5 * np.sqrt(n * share * (1 - share) / rounds)).all()
        centred = got - n * share
        products = centred[:, :, None] * centred[:, None, :]
        expected = n * (np.diag(share) - np.outer(share, share))
        assert (np.abs(products.mean(axis=0) - expected) < 5 * products.std(axis=0) / np.sqrt(rounds)).all()


@pytest.mark.parametrize("grid", [False, True])
def test_a_resample_costs_labels_and_cells_whatever_the_number_of_rows(grid):
    """Weights drawn and rows visited per resample, for n and 2n rows and the same labels; planted: one by one."""
    costs = []
    for n in (N, 2 * N):
        rows = flat_rows(n, grid=grid)
        pooled, cells = compress(rows, positive=False, straight=True)
        counts = next(draw_counts(cells, 1, 1, np.random.default_rng(0), positive=False))
        assert counts.sum() == n
        costs.append(counts.size + len(pooled.at) + len(pooled.teach_at) + len(pooled.own_at))
        assert n + len(rows.at) > 20 * costs[-1]
    assert costs[1] <= 1.05 * costs[0]  # a few more of the grid's levels or intervals are met
