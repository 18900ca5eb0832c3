"""Cluster bootstrap of Direct on each data set of a block: `cje_core.families.direct.bootstrap_intervals`."""

from collections.abc import Iterable

import numpy as np

from cje_core.calibration.two_stage import spline_rows
from cje_core.checks import BoolArray, FloatArray, IntArray
from cje_core.data.block import Block
from cje_core.families.blocks.direct_kernels import CORRECTED, LABEL_MEAN
from cje_core.families.blocks.slice_kernels import Slices
from cje_core.families.direct import bootstrap_kernels as kernels
from cje_core.families.direct.bootstrap import bootstrap_direct
from cje_core.families.direct.bootstrap_intervals import MIN_DRAWN
from cje_core.families.direct.cells import DirectRows


def bootstrap_block(
    block: Block,
    slices: Slices,
    route: IntArray,
    alive: BoolArray,
    canonical: IntArray,
    n_boot: int,
    rngs: Iterable[np.random.Generator],
) -> tuple[list[dict[int, FloatArray]], BoolArray]:
    """Bootstrap every policy that is `alive`, shape (R, P).

    Parameters
    ----------
    route : int array, shape (R, P)
        Of the kernels of a block; no prediction is tuned.
    canonical : int array, shape (n,)
        Prompts in the order of their names, in which clusters are numbered.
    rngs : iterable of Generator
        One per data set.

    Returns
    -------
    draws : list of mappings from policy to replicates
    few : bool array, shape (R, P)
        Where too few resamples held enough labels.
    """
    draws: list[dict[int, FloatArray]] = []
    few = np.zeros(route.shape, dtype=bool)
    sorted_policies = np.argsort(np.array(block.policies))
    for r, rng in enumerate(rngs):
        chosen = [int(p) for p in sorted_policies if alive[r, p]]
        draws.append({})
        if chosen:
            rows = bootstrap_rows(block, slices, route, canonical, r, chosen)
            drawn = bootstrap_direct(rows, n_boot, rng).draws
            for p, values in zip(chosen, drawn, strict=True):
                seen = np.isfinite(values)
                few[r, p] = seen.mean() < MIN_DRAWN
                if not few[r, p]:
                    draws[r][p] = values[seen]
    return draws, few


def bootstrap_rows(
    block: Block, slices: Slices, route: IntArray, canonical: IntArray, r: int, chosen: list[int]
) -> DirectRows:
    """Flat arrays of some policies of data set r, for `bootstrap_direct`."""
    n, m = len(canonical), int(slices.rows[r])
    score, label, prob = (
        values[r, chosen][:, canonical] for values in (block.score, block.label, block.label_prob)
    )
    fold = slices.fold[r, canonical]
    place = np.empty(n, dtype=np.intp)
    place[canonical] = np.arange(n)
    teach_cluster = place[slices.prompt[r, :m]]
    corrects = np.isin(route[r, chosen], (CORRECTED, LABEL_MEAN))
    policy, own = map(np.ascontiguousarray, np.nonzero(np.isfinite(label) & corrects[:, None]))
    together = np.concatenate([score.ravel(), slices.score[r, :m]])
    level, code = np.unique(together, return_inverse=True)
    at, teach_at = code[: score.size].reshape(score.shape), code[score.size :]
    plain = route[r, chosen] == LABEL_MEAN
    nothing = np.zeros(len(own))
    routes = {LABEL_MEAN: kernels.LABEL_MEAN, CORRECTED: kernels.HAJEK}
    return DirectRows(
        level=level,
        spline=spline_rows(None, together[:, None], slices.score[r, :m, None], slices.label[r, :m]),
        route=np.array([routes.get(int(k), kernels.PLUG_IN) for k in route[r, chosen]], dtype=np.intp),
        power=np.ones(len(chosen)),
        centered=np.zeros(len(chosen), dtype=np.intp),
        low=block.oracle_range[0],
        high=block.oracle_range[1],
        n_clusters=n,
        start=np.arange(len(chosen) + 1) * n,
        cluster=np.tile(np.arange(n), len(chosen)),
        at=at.ravel(),
        weight=np.ones(score.size),
        offset=np.zeros(score.size),
        clever=np.ones(score.size),
        inside=np.empty((0, 4)),
        teach_cluster=teach_cluster,
        teach_at=teach_at,
        teach_label=slices.label[r, :m],
        teach_weight=slices.weight[r, :m],
        teach_fold=fold[teach_cluster],
        own_start=np.concatenate([[0], np.cumsum(np.bincount(policy, minlength=len(chosen)))]),
        own_cluster=own,
        own_at=at[policy, own],
        own_label=label[policy, own],
        own_weight=np.where(plain[policy], 1.0, 1 / prob[policy, own]),
        own_clever=1 / prob[policy, own],
        own_offset=nothing,
        own_fold=fold[own],
    )
