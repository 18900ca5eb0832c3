"""Calibration of P(best): shares, Brier scores and bins by hand."""

import numpy as np
import pytest
import xarray as xr

from studies.engine.measures.best import best_by_cell, best_by_kind, reliability

NAN = [np.nan] * 3
STATED = {
    "one": [[0, 1, 0], [0, 0.96, 0.04], [0.97, 0.03, 0], [0.2, 0.5, 0.3]],
    "two": [[0, 1, 0], [0, 0.9, 0.1], NAN, [0, 1, 0]],
}
BRIER = np.array([0.0, 2 * 0.04**2, 2 * 0.97**2, 0.2**2 + 0.5**2 + 0.3**2])


def results(truth=(0.1, 0.3, 0.2)):
    """Two worlds of four replicates; the second says the same of the policies that the first does."""
    p = np.array([[[*STATED[m][r], np.nan] for m in STATED] for r in range(4)])
    dims = ("world", "replicate", "method", "policy")
    policies = ["base", "target", "rival", "target - base"]
    return xr.Dataset(
        {"p_best": (dims, np.stack([p, p])), "truth": ("policy", [*truth, truth[1] - truth[0]])},
        coords={"world": ["near", "far"], "method": list(STATED), "policy": policies},
    )


def test_shares_and_brier_scores_by_hand():
    one, two = best_by_cell(results(), "one")[:2].to_dict("records")
    assert (one["runs"], one["named"], one["names"], one["right"]) == (4, 0.75, 3, pytest.approx(2 / 3))
    assert one["brier"] == pytest.approx(BRIER.mean())
    assert one["brier_mcse"] == pytest.approx(BRIER.std(ddof=1) / 2) and one["brier_apart"] == 0
    assert (two["runs"], two["names"], two["right"], two["both"]) == (3, 2, 1.0, 3)
    apart = np.array([0.0, 2 * 0.1**2, 0.0]) - BRIER[[0, 1, 3]]
    assert two["brier_apart"] == pytest.approx(apart.mean())


def test_equal_policies_share_the_outcome():
    one, _ = best_by_cell(results((0.2, 0.2, 0.2)), "one")[:2].to_dict("records")
    assert one["right"] == pytest.approx(1 / 3)
    expected = ((np.array(STATED["one"]) - 1 / 3) ** 2).sum(axis=1).mean()
    assert one["brier"] == pytest.approx(expected)


def test_worlds_of_a_kind_are_pooled_over_their_runs():
    cells = best_by_cell(results(), "one")
    pooled = best_by_kind(cells, lambda world: "all").set_index("method")
    assert pooled["runs"].tolist() == [8, 6] and pooled["names"].tolist() == [6, 4]
    assert pooled.loc["one", "right"] == pytest.approx(2 / 3)
    assert pooled.loc["one", "brier"] == pytest.approx(BRIER.mean())
    assert pooled.loc["one", "brier_mcse"] == pytest.approx(BRIER.std(ddof=1) / 2 / np.sqrt(2))


def test_bins_by_hand():
    """Of six probabilities below .05 one is of the best policy, in the third replicate."""
    rows = reliability(results().sel(world=["near"]), ["one"], lambda world: "all").set_index("P(best)")
    assert rows["policies"].tolist() == [6, 1, 2, 3] and rows["policies"].sum() == 12
    assert rows.loc["0 to 0.05", "share best"] == pytest.approx(1 / 6)
    assert rows.loc["0 to 0.05", "share best_mcse"] == pytest.approx(np.sqrt(4 + 4 + 16) / 36)
    assert rows.loc["0.95 to 1", "share best"] == pytest.approx(2 / 3)
    assert rows.loc["0.95 to 1", "mean P(best)"] == pytest.approx((1 + 0.96 + 0.97) / 3)
