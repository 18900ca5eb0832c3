"""How many replicates an open sentence of a study would take: its own rule, on results repeated."""

from collections.abc import Sequence

import numpy as np
import xarray as xr

from studies.engine.study import Finding, Study

DOUBLINGS = 6  # 64 times the replicates
BYTES = 2e9  # of repeated results, at most
IF = "if these numbers stay as they are"


def repeated(ds: xr.Dataset, times: int) -> xr.Dataset:
    """Return results with each replicate `times` times: every mean stays, a Monte Carlo error shrinks by its root.

    Examples
    --------
    >>> ds = xr.Dataset({"estimate": ("replicate", [0.1, 0.3])}, {"replicate": [0, 1]})
    >>> repeated(ds, 2)["estimate"].values.tolist(), repeated(ds, 2)["replicate"].values.tolist()
    ([0.1, 0.3, 0.1, 0.3], [0, 1, 2, 3])
    """
    run = ds.sizes["replicate"]
    return ds.isel(replicate=np.tile(np.arange(run), times)).assign_coords(replicate=np.arange(times * run))


def with_needs(study: Study, ds: xr.Dataset, found: Sequence[Finding]) -> list[Finding]:
    """Return the sentences, each open one followed by the replicates of a cell at which its rule would decide it.

    The rule is applied to the results repeated twice, four times and so on: it answers what these numbers would give
    if more replicates left them as they are. A sentence that stays open at the last size names that size.
    """
    run, most, open_ = ds.sizes["replicate"], 1, {_question(one) for one in found if one.holds is None}
    needs: dict[str, str] = {}
    for times in (2**k for k in range(1, DOUBLINGS + 1)):
        if study.findings is None or open_ <= needs.keys() or times * ds.nbytes > BYTES:
            break
        most = times
        for one in study.findings(repeated(ds, times)):
            if one.holds is not None and _question(one) in open_:
                size = f"{times * run // 2:,} to {times * run:,} replicates of a cell would decide this"
                needs.setdefault(_question(one), size)
    more = f"More than {most * run:,} replicates of a cell would be needed to decide this"
    return [
        one
        if one.holds is not None
        else one._replace(sentence=f"{one.sentence} {needs.get(_question(one), more)}, {IF}.")
        for one in found
    ]


def _question(one: Finding) -> str:
    """What a sentence asks: the part before its numbers."""
    return one.sentence.partition("?")[0]
