"""Labels that were not drawn at random are noticed, random ones are not, and declared probabilities are believed."""

import numpy as np
import pytest
from scipy import stats

from cje_core.calibration.label_balance import LEVEL, kolmogorov_smirnov, label_balance
from cje_core.data import from_arrays


def data(rng, weight, *, n=300, m=60, probe=False, label_prob=None):
    """One policy of n responses, m of them labelled with chances that rise with `weight` of their score."""
    score = rng.random(n).round(2)
    chance = weight(score)
    taken = np.zeros(n, bool)
    taken[rng.choice(n, m, replace=False, p=chance / chance.sum())] = True
    label = np.where(taken, score, np.nan)
    return from_arrays(
        [score], policies=["a"], oracle=[label], probe=[taken & probe],
        label_prob=None if label_prob is None else [np.where(taken, label_prob(score), np.nan)],
    )  # fmt: skip


@pytest.mark.slow
def test_random_labels_pass_at_the_stated_level():
    p = np.array(
        [label_balance(data(np.random.default_rng(r), np.ones_like)).p_value[0, 0] for r in range(400)]
    )
    assert (p < 0.05).sum() <= stats.binom.ppf(1 - 1e-6, 400, 0.05)  # ties make the test conservative
    assert (p < LEVEL).sum() <= stats.binom.ppf(1 - 1e-6, 400, LEVEL)


def test_labels_of_the_best_scores_are_noticed_and_so_are_probes():
    rng = np.random.default_rng(1)
    found = label_balance(data(rng, lambda s: (s > 0.5) + 1e-9))
    assert found.unbalanced.values.tolist() == [[True, False]] and np.isnan(found.p_value[0, 1])
    assert label_balance(data(rng, lambda s: (s > 0.5) + 1e-9, probe=True)).unbalanced.values.tolist() == [
        [False, True]
    ]


def test_declared_probabilities_and_few_labels_are_not_tested():
    rng = np.random.default_rng(2)
    assert np.isnan(
        label_balance(data(rng, lambda s: s + 0.01, label_prob=lambda s: (s + 0.01) / 3)).p_value[0, 0]
    )
    assert np.isnan(label_balance(data(rng, np.ones_like, m=3)).p_value[0, 0])


def test_several_draws_of_a_prompt_count_once():
    rng = np.random.default_rng(3)
    score = rng.random((1, 40, 1)).repeat(10, axis=2)
    label = np.where(np.arange(40)[None, :, None] < 12, score, np.nan)
    once = from_arrays(score[:, :, :1], policies=["a"], oracle=label[:, :, :1])
    many = from_arrays(score, policies=["a"], oracle=label)
    np.testing.assert_allclose(label_balance(many).p_value, label_balance(once).p_value)


@pytest.mark.parametrize("sizes", [(4, 4), (5, 40), (37, 120), (300, 299), (3000, 50)])
def test_the_test_of_balance_is_kolmogorovs_and_smirnovs(sizes):
    """Exact as scipy's, which computes it in another way; rounding alone may differ."""
    rng = np.random.default_rng(0)
    for shift in (0.0, 0.3, 2.0):
        first, second = rng.normal(size=sizes[0]), rng.normal(shift, size=sizes[1])
        if shift == 0.3:  # judges have few levels
            first, second = first.round(1), second.round(1)
        expected = stats.ks_2samp(first, second).pvalue
        np.testing.assert_allclose(kolmogorov_smirnov(first, second), expected, rtol=1e-9, atol=1e-300)
        np.testing.assert_allclose(kolmogorov_smirnov(second, first), expected, rtol=1e-9, atol=1e-300)
    assert kolmogorov_smirnov(first, first) == 1
