"""PPI and PPI++ on a block: `cje_core.families.prediction_powered` where each prompt is a cluster with one response."""

import numpy as np

from cje_core.calibration.folds import MIN_LABELLED_CLUSTERS
from cje_core.checks import FloatArray, IntArray
from cje_core.compiled import Kernel
from cje_core.data.block import Block
from cje_core.families.blocks.direct_kernels import mean_of_all, mean_of_own
from cje_core.families.blocks.estimates import (
    BlockEstimate,
    Numbers,
    assemble_block,
    own_evidence,
    own_status,
    standard_error,
)
from cje_core.inference.estimate import Status
from cje_core.inference.influence import pooled_df


def powered_block(block: Block, *, lam: float | None, ci_prob: float, interval: str) -> BlockEstimate:
    """Prediction-powered means with t intervals; ``lam`` None tunes it."""
    shape = block.score.shape[:2]
    value, influence = np.full(shape, np.nan), np.full(block.score.shape, np.nan)
    variance, df = np.full((*shape, 2), np.nan), np.full((*shape, 2), np.nan)
    fixed = np.nan if lam is None else lam
    _powered(block.oracle_units, block.label, block.label_prob, fixed, value, influence, variance, df)
    numbers = Numbers(value, influence, standard_error(influence), pooled_df(variance, df), _status(block))
    return assemble_block(block, numbers, ci_prob=ci_prob, kind=interval, evidence=own_evidence(block))


def _status(block: Block) -> IntArray:
    status = own_status(block)
    some = ~np.isfinite(block.label).all(axis=2)
    flat: FloatArray = np.ptp(block.score, axis=2)
    return np.where((status == Status.OK) & some & (flat == 0), Status.CONSTANT_JUDGE, status)


@Kernel
def _tuned(score, own_score, label, share, each, separate):  # type: ignore[no-untyped-def]
    """Lambda of least variance; NaN where the scores do not vary."""
    n, squares = len(score), (share**2).sum()
    if separate:
        squares += (n - len(share)) * each**2
        spread = ((score - score.mean()) ** 2).sum() / (n - 1) * squares
        slope = share * share
    else:
        about = (score - score.mean()) ** 2
        own_about = (own_score - score.mean()) ** 2
        spread = each**2 * about.sum() + (((share - each) ** 2 - each**2) * own_about).sum()
        slope = share * (share - each)
    if not spread > 0:
        return np.nan
    products = slope * (label - (share * label).sum()) * (own_score - (share * own_score).sum())
    return min(max(products.sum() / spread, 0.0), 1.0)


@Kernel
def _powered(scores, labels, probs, fixed, value, influence, variance, df):  # type: ignore[no-untyped-def]
    n = scores.shape[2]
    own_moves = np.empty(n)
    for r in range(len(scores)):
        for p in range(scores.shape[1]):
            at = np.flatnonzero(~np.isnan(labels[r, p]))
            m = len(at)
            if m < MIN_LABELLED_CLUSTERS:
                continue
            score, label, prob = scores[r, p], labels[r, p][at], probs[r, p][at]
            if m == n:
                value[r, p], df[r, p, 0] = mean_of_all(label, influence[r, p])
                variance[r, p, 0], variance[r, p, 1], df[r, p, 1] = (influence[r, p] ** 2).sum(), 0.0, np.inf
                continue
            separate = prob.max() == prob.min() and n - m >= MIN_LABELLED_CLUSTERS
            share = (1 / prob) / (1 / prob).sum()
            other = n - m if separate else n
            own_score = score[at]
            lam, spent = fixed, False
            if np.isnan(lam):
                lam = _tuned(score, own_score, label, share, 1.0 / other, separate)
                spent = not np.isnan(lam)
                lam = lam if spent else 0.0
            taken = np.ones(n)
            if separate:
                taken[at] = 0.0
            center = (taken * score).sum() / other
            moves = lam * n / other * np.sqrt(other / (other - 1)) * taken * (score - center)
            mean, own_df = mean_of_own(label - lam * (own_score - center), share, at, own_moves)
            if spent:
                left = max(own_df - 1, own_df / 2)
                own_moves *= np.sqrt(own_df / left)
                own_df = left
            value[r, p] = mean
            influence[r, p] = moves + own_moves
            variance[r, p, 0], df[r, p, 0] = (moves**2).sum(), other - 1.0
            variance[r, p, 1], df[r, p, 1] = (own_moves**2).sum(), own_df
