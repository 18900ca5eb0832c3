"""Do a policy's labels look drawn at random? Its labelled judge scores against the rest of its scores.

Labels and probes of a policy's own make its value unbiased if they are a random sample of its responses (or if their
known probabilities are declared as ``label_prob``). Scores are the one thing known of labelled and unlabelled responses
alike, so a difference between the two shows that the sample was not random; no difference shows nothing of what the
judge does not see (Kolmogorov and Smirnov's two-sample test, on mean scores per prompt, exact where samples are small).
"""

import numpy as np
import xarray as xr
from scipy import stats

from cje_core.calibration.folds import MIN_LABELLED_CLUSTERS
from cje_core.data.arrays import Rows, unpack

LEVEL = 0.001  # every policy of every analysis is tested, and most labels are random


def label_balance(data: xr.Dataset) -> xr.Dataset:
    """Test each policy's labels and probes; see the module.

    Parameters
    ----------
    data : xr.Dataset
        Evaluation data.

    Returns
    -------
    xr.Dataset
        Over ``policy`` and ``kind`` (labels, probes): ``p_value`` and ``unbalanced`` (p below `LEVEL`). NaN where fewer
        than 4 prompts are on either side, or where declared probabilities differ.

    Examples
    --------
    >>> from cje_core.data import from_arrays
    >>> score = np.linspace(0, 1, 100)
    >>> top = from_arrays([score], policies=["a"], oracle=[np.where(score > 0.6, 1.0, np.nan)])
    >>> label_balance(top).unbalanced.sel(kind="labels").values.tolist()
    [True]
    """
    rows = unpack(data)
    kinds = {"labels": rows.labelled & rows.evaluated, "probes": rows.probe}
    p_value = np.array(
        [
            [_p_value(rows, rows.policy == p, chosen) for chosen in kinds.values()]
            for p in range(len(rows.policies))
        ]
    )
    out = xr.Dataset(
        {"p_value": (("policy", "kind"), p_value), "unbalanced": (("policy", "kind"), p_value < LEVEL)},
        coords={"policy": rows.policies, "kind": list(kinds)},
    )
    return out.sel(policy=data.policy.values)


def _p_value(rows: Rows, mine: np.ndarray, chosen: np.ndarray) -> float:
    """P-value for one policy and one kind of label, on mean scores of prompts with and without one."""
    own = mine & chosen
    if not own.any() or np.ptp(rows.label_prob[own]) > 0:
        return np.nan
    index = np.flatnonzero(mine & (rows.evaluated | chosen))
    prompt, at = np.unique(rows.prompt[index], return_inverse=True)
    mean = np.bincount(at, weights=rows.score[index]) / np.bincount(at)
    has = np.isin(prompt, rows.prompt[own])
    if min(has.sum(), (~has).sum()) < MIN_LABELLED_CLUSTERS:
        return np.nan
    return float(stats.ks_2samp(mean[has], mean[~has]).pvalue)
