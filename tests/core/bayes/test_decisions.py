"""Decisions from draws, against enumeration."""

import numpy as np
import pytest
import xarray as xr

from cje_core.bayes.decisions import decide
from cje_core.inference.estimate import hdi


def estimate(draws):
    names = ["a", "b", "c", "d"][: len(draws)]
    return xr.Dataset(
        {"draws": (("policy", "replicate"), np.array(draws, float))},
        coords={"policy": names},
        attrs={"estimator": "test"},
    )


DRAWS = [[1.0, 2, 3, 4], [2, 1, 5, 0], [0, 0, 4, 1]]


def test_by_enumeration():
    out = decide(estimate(DRAWS), threshold=1.5)
    np.testing.assert_allclose(out.best, [0.5, 0.5, 0])
    np.testing.assert_allclose(out["rank"], [[0.5, 0.25, 0.25], [0.5, 0.25, 0.25], [0, 0.5, 0.5]])
    # draw by draw, the best is 2, 2, 5, 4
    np.testing.assert_allclose(out.expected_loss, [3 / 4, 5 / 4, 8 / 4])
    np.testing.assert_allclose(out.above, [0.75, 0.5, 0.25])
    np.testing.assert_allclose(out.best_mcse, np.sqrt(np.array([0.25, 0.25, 0]) / 4))
    np.testing.assert_allclose(out.expected_loss_mcse[0], np.std([1, 0, 2, 0], ddof=1) / 2)


def test_loops_on_many_draws():
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(4, 500)) + np.arange(4)[:, None] / 3
    out = decide(estimate(draws), threshold=0.5)
    for p in range(4):
        place = [1 + sum(draws[q, d] > draws[p, d] for q in range(4)) for d in range(500)]
        for r in range(4):
            assert float(out["rank"][p, r]) == pytest.approx(np.mean(np.array(place) == r + 1))
        loss = [max(draws[:, d]) - draws[p, d] for d in range(500)]
        assert float(out.expected_loss[p]) == pytest.approx(np.mean(loss))
    np.testing.assert_allclose(out["rank"].sum("policy"), 1)
    np.testing.assert_allclose(out["rank"].sum("place"), 1)
    np.testing.assert_array_equal(out.best, out["rank"].sel(place=1))


def test_policies_without_draws_take_no_part():
    out = decide(estimate([*DRAWS, [np.nan] * 4]))
    np.testing.assert_allclose(out.best[:3], decide(estimate(DRAWS)).best)
    assert np.isnan(out.best[3])
    assert np.isnan(out["rank"][3]).all()
    assert np.isnan(out.above).all()
    assert np.isnan(decide(estimate([[np.nan] * 4])).best).all()


def test_without_draws_there_is_no_decision():
    with pytest.raises(ValueError, match="no draws"):
        decide(estimate(DRAWS).drop_vars("draws"))


@pytest.mark.parametrize("seed", [0, 1])
def test_hdi_against_arviz(seed):
    """Both versions of ArviZ take the same shortest interval; they count the draws inside by flooring."""
    from cje_core.bayes.models.engines import az

    draws = np.random.default_rng(seed).gamma(2.0, size=1999)
    keyword = {"prob": 0.9} if int(az.__version__.split(".")[0]) >= 1 else {"hdi_prob": 0.9}
    ordered = np.sort(draws)
    expected = np.asarray(az.hdi(draws, **keyword), float).ravel()
    step = np.diff(ordered[(ordered > expected[0] - 0.1) & (ordered < expected[0] + 0.1)]).max()
    tail = np.diff(ordered[-250:]).max()
    np.testing.assert_allclose(hdi(draws, 0.9), expected, atol=3 * max(step, tail))
    inside = (draws >= hdi(draws, 0.9)[0]) & (draws <= hdi(draws, 0.9)[1])
    assert inside.mean() == pytest.approx(0.9, abs=1 / 1999)


def test_ties_are_shared_whatever_the_order_of_the_policies():
    one = np.random.default_rng(3).normal(size=400)
    found = decide(estimate([one, one, one - 1.0]))
    np.testing.assert_allclose(found.best, [0.5, 0.5, 0.0])
    np.testing.assert_allclose(found["rank"], [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]])


def test_differences_below_rounding_are_ties():
    """The same sums in another order."""
    one = 0.1 + np.random.default_rng(3).random(400)
    found = decide(estimate([one, one + 1e-15, one - 1e-14, one - 0.5]))
    np.testing.assert_allclose(found.best, [1 / 3, 1 / 3, 1 / 3, 0], atol=1e-12)


def test_nothing_is_better_than_what_cannot_be_compared():
    """One policy left of three: it is not best, and it still clears a threshold or not."""
    found = decide(estimate([DRAWS[0], [np.nan] * 4, [np.nan] * 4]), threshold=1.5)
    for name in ("best", "rank", "expected_loss", "expected_loss_mcse"):
        assert np.isnan(found[name]).all(), name
    assert float(found.above[0]) == 0.75
    assert float(decide(estimate([DRAWS[0]])).best[0]) == 1.0
