"""Evaluation data with the calibrator that their labels teach, fitted once and passed on.

`Calibration` says how the judge is to be calibrated; `calibrated` joins it with data to a `Calibrated`, which
estimators, audits, diagnostics and planners take wherever they take evaluation data. What it holds is made when first
asked for and never again, so whoever calls several of them on the same data (`cje_core.workflow.analyze`) fits each
slice once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import xarray as xr

from cje_core.calibration.calibrator import predict
from cje_core.calibration.folds import FOLDS
from cje_core.calibration.oracle_slice import CALIBRATORS, DIRECTIONS, OracleSlice, fit_slice
from cje_core.checks import FloatArray, IntArray, one_of
from cje_core.data.arrays import Logged, Rows, unpack, unpack_logged
from cje_core.data.cohorts import group_codes
from cje_core.data.errors import DataError


@dataclass(frozen=True)
class Calibration:
    """How the judge is calibrated.

    Parameters
    ----------
    covariates : sequence of str
        Features that the calibrator sees beside the judge score.
    mode : {"default", "monotone", "two_stage", "two_stage_monotone", "auto"}
        Calibrator, see `cje_core.calibration.oracle_slice.fit_slice`.
    direction : {"increasing", "decreasing"}
        Whether a higher judge score means a better response.
    groups : str, optional
        Variable over ``prompt``: `cje_core.estimators.direct` shifts the calibrator in each of its groups, shrunk to
        the pooled one (`cje_core.families.direct.subgroups`). Others take the pooled calibrator.
    folds : {"dealt", "hash"}
        How prompts come to their cross-fitting folds: balanced over the labels, or the paper's ``hash(id) mod 5``.

    Examples
    --------
    >>> Calibration(mode="isotonic")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    cje_core.data.errors.DataError: calibrator='isotonic': use one of default, auto, monotone, ...
    """

    covariates: Sequence[str] = ()
    mode: str = "default"
    direction: str = "increasing"
    groups: str | None = None
    folds: str = "dealt"

    def __post_init__(self) -> None:
        """Stop at a name that means nothing, before anything is fitted."""
        if isinstance(self.covariates, str):
            raise DataError(f"covariates={self.covariates!r}: give a list of names")
        object.__setattr__(self, "covariates", tuple(self.covariates))
        one_of(self.mode, "calibrator", CALIBRATORS, DataError)
        one_of(self.direction, "direction", DIRECTIONS, DataError)
        one_of(self.folds, "folds", FOLDS, DataError)


class Slices(NamedTuple):
    """Slices of some data that were fitted before, and kept (`cje_core.workflow.steps`)."""

    fresh: OracleSlice
    with_logs: OracleSlice  # the same where fresh labels teach


@dataclass(frozen=True, eq=False)
class Calibrated:
    """Evaluation data and what their labels teach, from `calibrated`; the data must not be changed meanwhile."""

    data: xr.Dataset
    calibration: Calibration
    kept: Slices | None = None  # in place of fits of its own

    @cached_property
    def rows(self) -> Rows:
        """The data as flat arrays, the covariates of the calibration in ``z``."""
        return unpack(self.data, self.calibration.covariates)

    @cached_property
    def logged(self) -> Logged:
        """The logged responses; `DataError` where there are none."""
        return unpack_logged(self.data, self.calibration.covariates)

    @cached_property
    def group(self) -> IntArray | None:
        """(prompts,) code of each prompt's group, in the order of `rows`; None where the calibrator knows no groups."""
        return None if self.calibration.groups is None else group_codes(self.data, self.calibration.groups)[1]

    @cached_property
    def slice(self) -> OracleSlice:
        """The labelled fresh responses that teach, and their calibrator."""
        return self.kept.fresh if self.kept else self.slice_as(self.calibration.mode)

    @property
    def parts(self) -> tuple[xr.Dataset, Rows, OracleSlice]:
        """Data, rows and slice: what most who take calibrated data need."""
        return self.data, self.rows, self.slice

    @cached_property
    def slice_with_logs(self) -> OracleSlice:
        """The same, or the labels of logged responses where no fresh ones teach."""
        if self.kept:
            return self.kept.with_logs
        return self.slice if self.rows.teaches.any() else self.slice_as(self.calibration.mode, self.logged)

    @cached_property
    def logged_reward(self) -> FloatArray:
        """(n,) R = f(Z) of each judged logged response; NaN elsewhere, and where there is no calibrator."""
        return logged_reward(self.logged, self.slice_with_logs)

    @cached_property
    def monotone(self) -> OracleSlice:
        """The slice with a calibrator that sees the judge score alone."""
        alone = self.rows.z.shape[1] == 1 and self.calibration.mode == "default"
        return self.slice if alone or self.calibration.mode == "monotone" else self.slice_as("monotone")

    def slice_as(self, mode: str, logged: Logged | None = None) -> OracleSlice:
        """Fit the slice with a calibrator of any mode (and not keep it)."""
        return fit_slice(
            self.rows,
            direction=self.calibration.direction,
            calibrator=mode,
            logged=logged,
            every_fold="logged_judge" in self.data,  # weights of logged responses are cross-fitted too
            folds=self.calibration.folds,
        )


def logged_reward(logged: Logged, fitted: OracleSlice) -> FloatArray:
    """(n,) R = f(Z) of each judged logged response; NaN elsewhere, and where the slice has no calibrator."""
    judged = np.isfinite(logged.z).all(axis=1)
    reward = np.full(len(logged.z), np.nan)
    if fitted.calibrator is not None:
        reward[judged] = predict(fitted.calibrator, logged.z[judged])
    return reward


def calibrated(data: xr.Dataset | Calibrated, calibration: Calibration | None = None) -> Calibrated:
    """Join evaluation data with how their judge is calibrated.

    What is calibrated already is given back, and another calibration than its own is a `ValueError`. Default:
    ``Calibration()``.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("weak_judge", n=300, oracle_fraction=0.25, rng=1)
    >>> found = calibrated(data, Calibration(mode="monotone"))
    >>> calibrated(found) is found
    True
    """
    if not isinstance(data, Calibrated):
        return Calibrated(data, Calibration() if calibration is None else calibration)
    if calibration not in (None, data.calibration):
        raise ValueError("the data are calibrated already, in another way; give the dataset itself")
    return data
