"""Policies with labels of their own: the data sets of `reference.small_samples` through Direct's array-level core."""

import json
from pathlib import Path

import numpy as np
from reference import small_samples

from cje_core.calibration.oracle_slice import fit_slice
from cje_core.data import from_arrays
from cje_core.data.block import Block
from cje_core.families.direct.fit import Options, fit_policy

PLANTED = 0.8  # a standard error this much too small must be caught
FROZEN = json.loads(Path(small_samples.__file__).with_suffix(".json").read_text())


def as_data(score, label, m, names):
    """Evaluation data of one policy per row of `score`; the first m responses are labelled."""
    seen = np.arange(score.shape[-1]) < m
    return from_arrays(
        np.atleast_2d(score),
        policies=[f"{r:04d}" for r in range(len(np.atleast_2d(score)))],
        prompts=names,
        oracle=np.where(seen, np.atleast_2d(label), np.nan),
    )


def core(rows, **options):
    """Value, standard error and degrees of freedom of every policy, shape (policies, 3)."""
    fitted = fit_slice(rows, every_fold=False)
    fits = [fit_policy(rows, fitted, p, Options(**options)).result for p in range(len(rows.policies))]
    return np.array([(fit.value, fit.std_error, fit.df) for fit in fits])


def as_block(score, label, m):
    """Data sets (R, n) of one policy, whose first m responses are labelled."""
    seen = np.where(np.arange(score.shape[1]) < m, label, np.nan)
    scale = (0.0, 1.0)
    return Block(
        ("0000",), score[:, None], seen[:, None], np.ones((len(score), 1, score.shape[1])), scale, scale
    )


def core_of(block, *, power_tuned=True):
    """What `core` gives, of every data set of a block: shape (R, policies, 3)."""
    order = np.argsort(np.argsort(block.policies))  # rows are sorted by the policies' names
    return np.stack([core(rows, power_tuned=power_tuned)[order] for rows in block.rows()])


def score_ratio(ours, theirs):
    """Ratio of mean interval scores on the same data sets, and its Monte Carlo standard error (delta method)."""
    ratio = ours.mean() / theirs.mean()
    return ratio, (ours - ratio * theirs).std(ddof=1) / theirs.mean() / np.sqrt(len(ours))


def excess(found, bound=1.05):
    """Those not shown to keep the bound: a ratio and its standard error together exceed it."""
    return [entry for entry in found if entry[0] + entry[1] > bound]
