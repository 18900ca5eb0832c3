"""Agreement of judge and oracle against statsmodels, tables, pairs and refits in loops."""

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.inter_rater import cohens_kappa
from statsmodels.stats.weightstats import DescrStatsW

from cje_core.inference.raters import MEASURES, Rated, agreement


def slow(judge, label, weight):
    """By statsmodels, and AC1 and alpha by cross table and by all pairs: nothing vectorised."""
    w = weight / weight.sum()
    table = np.zeros((2, 2))
    for a, b, one in zip(judge, label, w, strict=True):
        table[int(a >= 0.5), int(b >= 0.5)] += one
    observed = table[0, 0] + table[1, 1]
    rows, columns = table.sum(1), table.sum(0)
    shares = (rows + columns) / 2
    even = sum(share * (1 - share) for share in shares)
    values = [*zip(judge, weight, strict=True), *zip(label, weight, strict=True)]
    within = sum(one * (a - b) ** 2 for a, b, one in zip(judge, label, w, strict=True))
    among, mass = 0.0, 0.0
    for i, (x, u) in enumerate(values):
        for j, (y, v) in enumerate(values):
            if i != j:
                among, mass = among + u * v * (x - y) ** 2, mass + u * v
    return [
        cohens_kappa(table, return_results=False),
        (observed - even) / (1 - even),
        1 - within / (among / mass),
        DescrStatsW(np.stack([judge, label], axis=1), weight).corrcoef[0, 1],
    ]


def rated(seed, m=30, weights=False):
    rng = np.random.default_rng(seed)
    label = rng.random(m).round(1)
    judge = np.clip(label + rng.normal(0, 0.3, m), 0, 1).round(1)
    weight = 1 / rng.uniform(0.3, 1, m) if weights else np.ones(m)
    return Rated(judge, label, rng.integers(0, 12, m), weight)


@pytest.mark.parametrize("seed", range(4))
def test_values_and_intervals_against_loops(seed):
    one = rated(seed)
    found = agreement(one, ci_prob=0.9)
    np.testing.assert_allclose(found["value"], slow(one.judge, one.label, one.weight), rtol=1e-10)
    groups = np.unique(one.cluster)
    left = []
    for g in groups:
        kept = one.cluster != g
        left.append(np.arctanh(slow(one.judge[kept], one.label[kept], one.weight[kept])))
    spread = np.sqrt((len(groups) - 1) / len(groups) * ((left - np.mean(left, 0)) ** 2).sum(0))
    half = stats.t.ppf(0.95, len(groups) - 1) * spread
    center = np.arctanh(slow(one.judge, one.label, one.weight))
    np.testing.assert_allclose(
        found["interval"], np.tanh(np.stack([center - half, center + half], -1)), rtol=1e-8
    )


def test_weights_enter_all_but_the_number_of_values():
    """Of unequal weights all but alpha's correction for drawing without replacement is the loop's."""
    one = rated(9, weights=True)
    found, expected = agreement(one)["value"].values, slow(*one[:2], one.weight)
    np.testing.assert_allclose(found[[0, 1, 3]], np.array(expected)[[0, 1, 3]], rtol=1e-10)
    assert found[2] == pytest.approx(expected[2], abs=0.02)


@pytest.mark.slow
def test_the_correlation_s_interval_covers_as_it_says():
    """In 600 data sets of 40 normal pairs; exact binomial bounds at 1e-4."""
    rng, truth, hits, n = np.random.default_rng(5), 0.6, 0, 600
    for _ in range(n):
        x = rng.standard_normal(40)
        y = truth * x + np.sqrt(1 - truth**2) * rng.standard_normal(40)
        low, high = (
            agreement(Rated(x, y, np.arange(40), np.ones(40)))["interval"].sel(measure="pearson").values
        )
        hits += low <= truth <= high
    # the jackknife of Fisher's z on 40 pairs is a t interval within two points of what it says
    assert stats.binom.ppf(1e-4, n, 0.93) <= hits <= stats.binom.ppf(1 - 1e-4, n, 0.97)


def test_what_cannot_be_told_is_nan():
    flat = Rated(np.ones(10), np.ones(10), np.arange(10), np.ones(10))
    # where all is good AC1 alone is defined: that is what it is for
    assert np.isnan(agreement(flat)["value"].sel(measure=["kappa", "alpha", "pearson"])).all()
    assert float(agreement(flat)["value"].sel(measure="ac1")) == 1
    few = rated(1, m=6)._replace(cluster=np.array([0, 0, 1, 1, 2, 2]))
    assert np.isfinite(agreement(few)["value"]).any() and np.isnan(agreement(few)["interval"]).all()
    assert agreement(few)["measure"].values.tolist() == list(MEASURES)
