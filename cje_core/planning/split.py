"""A value's sources of error in a pilot, apart: what falls with the prompts, with the labels, with the probes."""

from typing import NamedTuple

import numpy as np

from cje_core.checks import FloatArray
from cje_core.data.arrays import Rows
from cje_core.inference.estimate import Status


class Split(NamedTuple):
    """One policy's sources of error, summed by cluster and divided by the number of prompts."""

    status: Status
    route: str
    evaluation: FloatArray  # (G,)
    calibration: FloatArray  # (G,)
    probes: FloatArray  # (G,)
    df_eval: float
    df_cal: float
    df_probes: float = np.inf
    probe_count: float = 0.0  # effective probed clusters
    shared: FloatArray | None = None  # (G,): the calibration part as the spread of a difference sees it


def failed(rows: Rows, status: Status) -> Split:
    """No components, and the status that says why."""
    nothing = np.full(len(rows.cluster_names), np.nan)
    return Split(status, "none", nothing, nothing, nothing, np.nan, np.nan, np.nan, np.nan)
