"""Labelled data sets of one shape as a block, for the estimators that take no more of them than a block holds."""

import numpy as np

from cje_core.data.block import Block


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
