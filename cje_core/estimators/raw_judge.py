"""Mean judge score, read as if it were the oracle's: the control that is biased.

Estimand: V(policy) = E[Y]. Formula: the mean of S over the policy's responses, mapped affinely from ``judge_range``
to ``oracle_range``. Failure mode: every systematic difference between judge and oracle; its intervals are honest
about sampling and blind to bias ("naive" in the paper's ablation table).

Examples
--------
>>> import cje_sim
>>> data = cje_sim.simulate("weak_judge", n=300, rng=1)
>>> found = estimate(data)
>>> found["estimate"].to_series().round(3).to_dict()
{'base': 0.627, 'better': 0.74, 'slightly_better': 0.651, 'worse': 0.445}
>>> found["interval"].sel(policy="better").values.round(3).tolist()
[0.72, 0.76]
"""

from collections.abc import Iterable

import numpy as np
import xarray as xr

from cje_core.checks import Rng
from cje_core.data.arrays import unpack
from cje_core.data.block import Block
from cje_core.families.assemble import IntervalRule, PolicyResult, assemble
from cje_core.families.blocks.estimates import (
    BlockEstimate,
    Numbers,
    assemble_block,
    standard_error,
    weighted_mean,
)
from cje_core.families.prediction_powered import oracle_units
from cje_core.inference.estimate import Status
from cje_core.inference.influence import combine, mean_part

NEEDS = {"judge"}


def estimate(
    data: xr.Dataset, *, ci_prob: float = 0.95, rng: Rng = None, interval: str = "auto"
) -> xr.Dataset:
    """Estimate each policy's value by its mean judge score; see the module and its package."""
    del rng
    rows = unpack(data)
    score = oracle_units(data, rows.score)
    results = []
    for p in range(len(rows.policies)):
        index = np.flatnonzero((rows.policy == p) & rows.evaluated)
        if len(index) == 0:
            results.append(PolicyResult(Status.NO_RESPONSES, "mean_score", "judge"))
            continue
        value, part = mean_part(rows, index, score[index], rows.weight[index])
        results.append(PolicyResult(Status.OK, "mean_score", "judge", value, *combine([part], rows.cluster)))
    return assemble(
        data,
        rows,
        results,
        estimator="raw_judge",
        options={"interval": interval},
        ci_prob=ci_prob,
        rule=IntervalRule(interval),
    )


def estimate_block(
    block: Block, *, ci_prob: float, rngs: Iterable[np.random.Generator] = (), interval: str = "auto"
) -> BlockEstimate:
    """The same for many data sets at once."""
    del rngs
    value, influence, df = weighted_mean(block.oracle_units, np.ones(block.score.shape))
    status = np.zeros(value.shape, dtype=np.int64)
    numbers = Numbers(value, influence, standard_error(influence), df, status)
    return assemble_block(block, numbers, ci_prob=ci_prob, kind=interval)
