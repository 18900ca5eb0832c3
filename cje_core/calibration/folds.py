"""Deterministic cross-fitting folds, by cluster.

A fold belongs to a cluster (a prompt unless the data say otherwise), so all draws and policies of a prompt share
it. The assignment depends on ids alone: not on row order, worker or random state.
"""

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from cje_core.data import DataError
from cje_core.data.arrays import Rows
from cje_core.data.contract import NO_FOLD

N_FOLDS = 5
KEPT = 65_536  # hashes
KEYED = blake2b(digest_size=8, key=b"cje-lab/folds")
UNKNOWN = -1  # fold of a cluster that nobody asks about
FOLDS = ("dealt", "hash")  # how clusters come to their folds; the second is the paper's
MIN_LABELLED_CLUSTERS = 4  # below this there is no number, only a status


def count_clusters(rows: Rows, index: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> int:
    """Number of clusters that some rows, by index or mask, come from: what `MIN_LABELLED_CLUSTERS` is compared with.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("weak_judge", n=300, oracle_fraction=0.25, rng=1)
    >>> from cje_core.data.arrays import unpack
    >>> rows = unpack(data)
    >>> count_clusters(rows, rows.labelled)
    75
    """
    cluster = rows.cluster[rows.prompt[index]]
    if rows.stands_for.size:
        number = np.zeros(len(rows.cluster_names))
        np.maximum.at(number, cluster, rows.stands_for[index])
        return round(float(number.sum()))
    seen = np.zeros(len(rows.cluster_names), dtype=bool)
    seen[cluster] = True
    return int(np.count_nonzero(seen))


def _digest(name: str) -> bytes:
    state = KEYED.copy()  # a quarter less than to key a new one
    state.update(name.encode())
    return state.digest()


@lru_cache(maxsize=KEPT)  # studies ask for the same few thousand ids in every replicate
def stable_hash(name: str) -> int:
    """64-bit keyed hash of an id, the same on every machine and run."""
    return int.from_bytes(_digest(name), "big")


def _hashes(names: Sequence[str]) -> npt.NDArray[np.uint64]:
    """`stable_hash` of each; of more than are kept, without a look at those."""
    if len(names) <= KEPT:
        return np.fromiter(map(stable_hash, names), np.uint64, len(names))
    return np.frombuffer(b"".join(map(_digest, names)), dtype=">u8").astype(np.uint64)


def assign_folds(
    names: Sequence[str] | npt.NDArray[np.str_],
    labelled: npt.ArrayLike,
    *,
    n_folds: int = N_FOLDS,
    dealt: bool = True,
    asked: npt.ArrayLike = True,
    given: npt.NDArray[np.intp] | None = None,
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
    given : integer array, shape (G,), optional
        Folds that the user assigned, which stand; a cluster without one (`NO_FOLD`) takes ``hash mod K``, K the number
        of folds given. Labels in one fold alone, or none given but one, leave nothing to fit on: a `DataError`.

    Examples
    --------
    >>> assign_folds(["a", "b", "c", "d"], [True] * 4).tolist()  # 4 labelled clusters: K = 2, two in each
    [0, 0, 1, 1]
    """
    if n_folds < 2:
        raise ValueError(f"n_folds={n_folds}: cross-fitting needs at least 2")
    has_label = np.asarray(labelled, dtype=bool)
    if given is not None and (given != NO_FOLD).any():
        return _as_given(names, has_label, given)
    known = np.flatnonzero(has_label | np.asarray(asked, dtype=bool))
    chosen = np.asarray(names, dtype=str).take(known)
    hashes = _hashes(chosen.tolist())
    n_labelled = int(np.count_nonzero(has_label))
    if dealt and n_labelled < 2 * n_folds:
        n_folds = max(2, n_labelled // 2)
    folds = np.full(len(has_label), UNKNOWN, dtype=np.intp)
    folds[known] = hashes % np.uint64(n_folds)
    if dealt:
        by = np.argsort(hashes)
        if (hashes[by[1:]] == hashes[by[:-1]]).any():  # two names in 2^64 do not meet, but may
            by = np.lexsort((chosen, hashes))
        order = known[by]
        folds[order[has_label[order]]] = np.arange(n_labelled) % n_folds
    return folds


def _as_given(
    names: Sequence[str] | npt.NDArray[np.str_],
    labelled: npt.NDArray[np.bool_],
    given: npt.NDArray[np.intp],
) -> npt.NDArray[np.intp]:
    """Folds given, numbered without gaps; what has none by its hash."""
    numbers, code = np.unique(given, return_inverse=True)
    folds = code - int(numbers[0] == NO_FOLD)
    n_folds = int(folds.max()) + 1
    for k in np.flatnonzero(folds == NO_FOLD).tolist():
        folds[k] = stable_hash(str(names[k])) % n_folds
    if np.ptp(folds) == 0 or (labelled.sum() > 1 and np.ptp(folds[labelled]) == 0):
        who, where = "labels" if n_folds > 1 else "prompts", numbers[-1]
        raise DataError(
            f"fold_id puts all {who} into one fold ({where}): nothing is left to fit on without it; "
            "spread them over at least 2 folds, or leave fold_id out"
        )
    return folds
