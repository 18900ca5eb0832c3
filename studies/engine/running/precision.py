"""How many replicates each cell needs until every coverage is known to a Monte Carlo standard error.

With k of n intervals that hold the truth, p = (k + 2) / (n + 4) (Agresti and Coull 1998: away from 0 and 1, where k/n
would claim to be exact after a few replicates), and the MCSE is sqrt(p (1 - p) / (n - 1)), not below the one that the
tables print. The worst method and estimand of a cell decides for it.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from cje_core.checks import FloatArray
from cje_core.streams import canonical
from studies.engine.blocks import Content
from studies.engine.outcome import NOT_RUN
from studies.engine.study import Study, StudyError


def replicates_for(
    study: Study, contents: Sequence[Content], wanted: Mapping[str, int], mcse: float
) -> dict[str, int]:
    """Replicates per cell that the next round needs; those of `wanted` where they suffice.

    Parameters
    ----------
    study : Study
        At its profile and levels.
    contents : sequence of Content
        Blocks that hold at least the replicates in `wanted`; what they hold beyond is not looked at.
    wanted : mapping
        Replicates of this round by canonical cell.
    mcse : float
        Monte Carlo standard error of the worst coverage of a cell, as a proportion.

    Raises
    ------
    StudyError
        If no method of the study gives an interval.
    """
    hits = {cell: np.zeros((len(study.methods), len(study.columns))) for cell in wanted}
    runs = {cell: np.zeros((len(study.methods), len(study.columns))) for cell in wanted}
    offers = np.zeros((len(study.methods), 1), bool)
    for content in contents:
        cell = canonical(dict(content.block.cell))
        if content.block.is_theory or cell not in wanted:
            continue
        if content.block.start >= wanted[cell]:
            continue
        use = slice(wanted[cell] - content.block.start)
        interval, truth = content.arrays["interval"][use], content.arrays["truth"][use]
        held = (interval[..., 0] <= truth[:, None]) & (truth[:, None] <= interval[..., 1])
        hits[cell] += held.sum(axis=0)
        runs[cell] += (content.arrays["status"][use] != NOT_RUN).sum(axis=0)
        finite: FloatArray = np.isfinite(interval).astype(float)
        offers |= finite.max(axis=(0, 2, 3))[:, None] > 0
    if not offers.any():
        raise StudyError(
            f"study {study.name}: no method gives an interval, so there is no coverage to know to {mcse}"
        )
    return {
        cell: _next(study, n, np.where(offers, hits[cell], np.nan), runs[cell], mcse)
        for cell, n in wanted.items()
    }


def worst_mcse(hits: FloatArray, runs: FloatArray) -> float:
    """Largest MCSE of the coverages of a cell; NaN where no method gives intervals or none was run.

    Examples
    --------
    >>> import numpy as np
    >>> round(worst_mcse(np.array([95.0]), np.array([100.0])), 4)
    0.0252
    """
    p = (hits + 2) / (runs + 4)
    spread = np.sqrt(p * (1 - p) / np.where(runs > 1, runs - 1, np.nan))
    return float(np.nanmax(spread)) if np.isfinite(spread).any() else math.nan


def _next(study: Study, n: int, hits: FloatArray, runs: FloatArray, mcse: float) -> int:
    """Replicates of one cell in the next round: by the square-root law, to the end of a block."""
    now = worst_mcse(hits, runs)
    if not now > mcse:
        return n
    needed = min(math.ceil(n * (now / mcse) ** 2), math.ceil(0.25 / mcse**2) + 1)
    return max(math.ceil(needed / study.block), n // study.block + 1) * study.block
