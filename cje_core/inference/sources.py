"""What a value rests on, as its estimator says it: the variable ``source(policy)`` of an estimate.

``own``       labels of the policy itself correct it, or make it
``probes``    probes of the policy do
``borrowed``  a calibration that no label of the policy corrects (it may have taught it among others)
``judge``     the judge's scores at their word
``logs``      logged responses of another policy, weighted, under a calibration
``truth``     what only a simulator knows
``none``      nothing: the estimator failed before it chose

A failed value has the source it would have had, where its estimator has but one.
"""

import numpy as np
import numpy.typing as npt
import xarray as xr

from cje_core.checks import BoolArray, IntArray
from cje_core.inference.estimate import Status

SOURCES = ("own", "probes", "borrowed", "judge", "logs", "truth", "none")


def borrows(estimate: xr.Dataset) -> xr.DataArray:
    """Whether each policy's estimate rests on a calibration that no label of its own corrects, over ``policy``.

    Weighted logs borrow unless their status is OK: else labels of the policy are not known to be among those that
    taught. So does an estimate that does not say what it rests on, and a failure without source.

    Examples
    --------
    >>> columns = {"status": ("policy", [0, 2, 9]), "source": ("policy", ["own", "borrowed", "logs"])}
    >>> borrows(xr.Dataset(columns)).values.tolist()
    [False, True, True]
    """
    if "source" not in estimate:
        return estimate["status"] != Status.OK
    found: xr.DataArray = xr.apply_ufunc(rests_on_others, estimate["status"], estimate["source"])
    return found


def rests_on_others(status: IntArray, source: npt.NDArray[np.str_]) -> BoolArray:
    """`borrows` of statuses and sources.

    Examples
    --------
    >>> rests_on_others(np.array([0, 0, 9]), np.array(["own", "none", "logs"])).tolist()
    [False, True, True]
    """
    return np.asarray(np.isin(source, ["borrowed", "none"]) | ((status != Status.OK) & (source == "logs")))


def earned(estimate: xr.Dataset) -> xr.DataArray:
    """Whether each value holds labels or probes of the policy's own: what a reported level has to rest on.

    False where nothing says so. A simulator's truth counts, since it needs no label.

    Examples
    --------
    >>> columns = {"status": ("policy", [0, 1, 0]), "source": ("policy", ["own", "borrowed", "judge"])}
    >>> earned(xr.Dataset(columns)).values.tolist()
    [True, False, False]
    """
    if "source" not in estimate:
        return xr.zeros_like(estimate["status"], dtype=bool)
    return estimate["source"].isin(["own", "probes", "truth"])
