"""Deterministic cross-fitting folds, by cluster.

A fold belongs to a cluster (a prompt unless the data say otherwise), so all draws and policies of a prompt share
it. The assignment depends on ids alone: not on row order, worker or random state.
"""

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from cje_core.data.arrays import Rows

N_FOLDS = 5
UNKNOWN = -1  # fold of a cluster that nobody asks about
MIN_LABELLED_CLUSTERS = 4  # below this there is no number, only a status


def count_clusters(rows: Rows, index: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> int:
    """Number of clusters that some rows, by index or mask, come from: what `MIN_LABELLED_CLUSTERS` is compared with."""
    seen = np.zeros(len(rows.cluster_names), dtype=bool)
    seen[rows.cluster[rows.prompt[index]]] = True
    return int(np.count_nonzero(seen))


@lru_cache(maxsize=65_536)  # studies ask for the same few thousand ids in every replicate
def stable_hash(name: str) -> int:
    """64-bit keyed hash of an id, the same on every machine and run."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8, key=b"cje-lab/folds").digest(), "big")


def assign_folds(
    names: Sequence[str] | npt.NDArray[np.str_],
    labelled: npt.ArrayLike,
    *,
    n_folds: int = N_FOLDS,
    dealt: bool = True,
    asked: npt.ArrayLike = True,
) -> npt.NDArray[np.intp]:
    """Fold of each of G clusters by their unique ids: values in ``0..K-1``, or `UNKNOWN`.

    Labelled clusters are ranked by hash and dealt round-robin, so folds stay balanced even with a dozen labels (a
    plain hash leaves some empty); the rest take ``hash mod K``. K falls to ``max(2, labelled // 2)`` when fewer than
    2K clusters are labelled.

    Parameters
    ----------
    labelled : boolean array, shape (G,)
        Clusters with at least one label that teaches or corrects.
    n_folds : int
        K, at least 2.
    dealt : bool
        False gives the paper's map, ``hash(id) mod K`` for every cluster.
    asked : boolean array, shape (G,)
        Clusters whose fold will be asked for; one that has neither a label nor this gets `UNKNOWN`. A hash costs a
        microsecond and an object, and most rows of a large data set have no label that could ask.

    Examples
    --------
    >>> assign_folds(["a", "b", "c", "d"], [True] * 4).tolist()  # 4 labelled clusters: K = 2, two in each
    [0, 0, 1, 1]
    """
    if n_folds < 2:
        raise ValueError(f"n_folds={n_folds}: cross-fitting needs at least 2")
    has_label = np.asarray(labelled, dtype=bool)
    known = np.flatnonzero(has_label | np.asarray(asked, dtype=bool))
    chosen = np.asarray(names, dtype=str)[known]
    hashes = np.fromiter((stable_hash(name) for name in chosen.tolist()), np.uint64, len(known))
    n_labelled = int(has_label.sum())
    if dealt and n_labelled < 2 * n_folds:
        n_folds = max(2, n_labelled // 2)
    folds = np.full(len(has_label), UNKNOWN, dtype=np.intp)
    folds[known] = hashes % np.uint64(n_folds)
    if dealt:
        order = known[np.lexsort((chosen, hashes))]
        folds[order[has_label[order]]] = np.arange(n_labelled) % n_folds
    return folds
