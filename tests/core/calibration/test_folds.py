"""Folds: balanced, stable, by cluster."""

import numpy as np
import pytest

from cje_core.calibration import folds as module
from cje_core.calibration.calibrated import calibrated
from cje_core.calibration.folds import UNKNOWN, assign_folds, count_clusters
from cje_core.calibration.oracle_slice import fit_slice, held_out
from cje_core.data import from_arrays
from cje_core.data.arrays import unpack

IDS = [f"arena_{i}" for i in range(500)]


def test_labelled_clusters_are_balanced_and_unlabelled_ones_spread():
    labelled = np.arange(500) < 37
    folds = assign_folds(IDS, labelled)
    assert set(folds) == set(range(5))
    sizes = np.bincount(folds[labelled])
    assert sizes.max() - sizes.min() <= 1


def test_order_does_not_matter():
    labelled = np.arange(500) % 7 == 0
    order = np.random.default_rng(3).permutation(500)
    folds = assign_folds(IDS, labelled)
    assert (assign_folds([IDS[i] for i in order], labelled[order]) == folds[order]).all()


@pytest.mark.parametrize(("n_labelled", "n_folds"), [(4, 2), (5, 2), (7, 3), (9, 4), (10, 5), (200, 5)])
def test_folds_shrink_with_the_slice(n_labelled, n_folds):
    folds = assign_folds(IDS, np.arange(500) < n_labelled)
    assert len(set(folds[:n_labelled])) == n_folds
    assert folds.max() < n_folds


def test_paper_mode_is_a_plain_hash():
    few = assign_folds(IDS, np.arange(500) < 4, dealt=False)
    many = assign_folds(IDS, np.ones(500, bool), dealt=False)
    assert (few == many).all()


def test_known_values_do_not_drift():
    """The map must not change between versions: results would."""
    assert assign_folds(["0", "1", "2", "3", "4"], [True] * 5, dealt=False).tolist() == [0, 4, 2, 4, 3]


def test_folds_that_nobody_asks_for_are_unknown_and_the_others_do_not_notice():
    labelled, asked = np.arange(500) % 7 == 0, np.arange(500) % 5 == 0
    every, some = assign_folds(IDS, labelled), assign_folds(IDS, labelled, asked=asked)
    known = labelled | asked
    assert (some[known] == every[known]).all()
    assert (some[~known] == UNKNOWN).all()


def test_only_clusters_with_labels_are_hashed(monkeypatch):
    """Cost follows the labels: hashes grow with them, not with the rows, where no logged response asks."""
    hashed = []
    monkeypatch.setattr(module, "stable_hash", lambda name: hashed.append(name) or hash(name) % 2**64)
    for n in (1_000, 2_000):
        oracle = np.where(np.arange(n) < 40, np.linspace(0, 1, n), np.nan)
        given = calibrated(from_arrays(np.linspace(0, 1, n)[None], policies=["a"], oracle=oracle[None]))
        assert (given.slice.fold != UNKNOWN).sum() == 40
    assert len(hashed) == 80
    assert (fit_slice(given.rows).fold != UNKNOWN).all()  # every fold, unless told that none asks
    with pytest.raises(ValueError, match="every_fold=True"):
        held_out(given.slice, given.rows.z, given.rows.prompt)


def test_one_fold_is_refused():
    with pytest.raises(ValueError, match="at least 2"):
        assign_folds(IDS, np.ones(500, bool), n_folds=1)


def test_clusters_are_counted_once_whatever_their_prompts_and_draws():
    cluster = [f"c{i // 2}" for i in range(6)]
    rows = unpack(from_arrays(np.full((2, 6, 2), 0.5), policies=["a", "b"], cluster=cluster))
    assert count_clusters(rows, np.flatnonzero(rows.policy == 1)) == 3
    assert count_clusters(rows, np.flatnonzero(rows.prompt < 3)) == 2
    assert count_clusters(rows, rows.prompt < 2) == 1
    assert count_clusters(rows, np.empty(0, dtype=np.intp)) == 0
