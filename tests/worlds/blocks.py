"""Labelled data sets of one shape as a block, for the estimators that take no more of them than a block holds."""

from dataclasses import replace

import numpy as np

from cje_core.data.block import Block
from cje_core.families.many import data_sets, estimate_each


def stack(data_sets):
    """`cje_core.data.block.Block` of data sets with one response a prompt; covariates and logs are left out."""
    first = data_sets[0]
    score, label, prob = (
        np.stack([data[name].isel(draw=0).values for data in data_sets])
        for name in ("judge", "oracle", "label_prob")
    )
    policies = tuple(first["policy"].values.tolist())
    return Block(
        policies, score, label, prob, tuple(first.attrs["judge_range"]), tuple(first.attrs["oracle_range"])
    )


def fewer(block, m, rng):
    """The block with m labels of each data set, a simple random sample of those that it has."""
    label = np.full(block.label.shape, np.nan)
    for kept, held in zip(label, block.label, strict=True):
        at = rng.permutation(np.flatnonzero(np.isfinite(held)))[:m]
        kept.flat[at] = held.flat[at]
    return replace(block, label=label, label_prob=np.where(block.label_prob > 0, m / label.shape[2], 0.0))


def on_block(module, block, *, ci_prob=0.95, rngs=None, **options):
    """What an estimator finds on each data set of a block."""
    drawn = [None] * len(block.score) if rngs is None else rngs
    return estimate_each(module.find, data_sets(block), ci_prob=ci_prob, rngs=drawn, **options)
