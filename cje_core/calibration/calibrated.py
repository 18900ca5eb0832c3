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
from cje_core.calibration.first_stage import LearnedIndex, Taught, cross_fitted, to_judge_range
from cje_core.calibration.folds import FOLDS
from cje_core.calibration.oracle_slice import (
    CALIBRATORS,
    DIRECTIONS,
    OracleSlice,
    fit_slice,
    slice_folds,
    teaching_labels,
)
from cje_core.calibration.two_stage import MIN_ROWS
from cje_core.checks import FloatArray, IntArray, one_of
from cje_core.data.arrays import Logged, Rows, unpack, unpack_logged
from cje_core.data.cohorts import group_codes
from cje_core.data.contract import check_data
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
    first_stage : LearnedIndex, optional
        A regressor of one's own, with its covariates, whose cross-fitted prediction takes the judge score's place
        (`cje_core.calibration.first_stage`). With fewer than 20 labels it is left out.

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
    first_stage: LearnedIndex | None = None

    def __post_init__(self) -> None:
        """Stop at a name that means nothing, before anything is fitted."""
        if isinstance(self.covariates, str):
            raise DataError(f"covariates={self.covariates!r}: give a list of names")
        object.__setattr__(self, "covariates", tuple(self.covariates))
        one_of(self.mode, "calibrator", CALIBRATORS, DataError)
        one_of(self.direction, "direction", DIRECTIONS, DataError)
        one_of(self.folds, "folds", FOLDS, DataError)
        if self.first_stage is not None:
            for name, given, default in (
                ("covariates", list(self.covariates), []),
                ("calibrator", self.mode, "default"),
                ("direction", self.direction, "increasing"),
            ):
                if given != default:
                    raise DataError(
                        f"{name}={given!r}: first_stage learns the index, with its own covariates; leave one of the "
                        "two out"
                    )

    @property
    def features(self) -> tuple[str, ...]:
        """Covariates that the data must hold."""
        return tuple(self.covariates if self.first_stage is None else self.first_stage.covariates)

    @property
    def recorded(self) -> dict[str, str]:
        """What estimates record of the first stage; nothing where it is ours."""
        return {} if self.first_stage is None else {"first_stage": self.first_stage.name}


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
    # in place of the data's, of which only the ranges and the policies are asked for then
    laid_out: Rows | None = None
    laid_out_logs: Logged | None = None

    @cached_property
    def rows(self) -> Rows:
        """The data as flat arrays, the covariates of the calibration in ``z``, or the index of its first stage."""
        if self.laid_out is not None:
            return self.laid_out
        if self._index is None:
            return unpack(self.data, self.calibration.covariates, checked=True)
        return self._read[0]._replace(score=self._index[0], z=self._index[0][:, None])

    @cached_property
    def logged(self) -> Logged:
        """The logged responses; `DataError` where there are none."""
        if self.laid_out_logs is not None:
            return self.laid_out_logs
        if self._index is None:
            return unpack_logged(self.data, self.calibration.covariates, checked=True)
        return self._read[1]._replace(z=self._index[1][:, None])

    @cached_property
    def _read(self) -> tuple[Rows, Logged]:
        """Rows and logged responses (of nothing, where there are none) as the first stage sees them."""
        names = self.calibration.features
        rows = unpack(self.data, names, checked=True)
        if "logged_judge" in self.data:
            return rows, unpack_logged(self.data, names, checked=True)
        n, nothing = len(rows.prompts), np.full(len(rows.prompts), np.nan)
        unknown = np.full((len(rows.policies), n), np.nan)
        return rows, Logged(np.full((n, rows.z.shape[1]), np.nan), nothing, unknown, nothing, nothing)

    @cached_property
    def _index(self) -> tuple[FloatArray, FloatArray] | None:
        """Return the user's index of each row and of each logged response (NaN where there is none)."""
        stage = self.calibration.first_stage
        if stage is None:
            return None
        rows, logged = self._read
        labels = teaching_labels(rows, logged)
        if len(labels.label) < MIN_ROWS:
            return rows.score, logged.z[:, 0]
        fold, _ = slice_folds(rows, labels.prompt, every_fold=True, folds=self.calibration.folds)
        seen = np.flatnonzero(np.isfinite(logged.z).all(axis=1))
        taught = Taught(labels.z, labels.label, labels.weight, fold[labels.prompt])
        z, of_row = np.concatenate([rows.z, logged.z[seen]]), np.concatenate([fold[rows.prompt], fold[seen]])
        (low, high), (bottom, top) = (self.data.attrs[name] for name in ("oracle_range", "judge_range"))
        ranges = (float(low), float(high)), (float(bottom), float(top))
        index = to_judge_range(cross_fitted(stage.regressor, taught, z, of_row), *ranges)
        of_logged = np.full(len(logged.z), np.nan)
        of_logged[seen] = index[len(rows.z) :]
        return index[: len(rows.z)], of_logged

    @cached_property
    def group(self) -> IntArray | None:
        """(prompts,) code of each prompt's group, in the order of `rows`; None where the calibrator knows no groups."""
        return None if self.calibration.groups is None else group_codes(self.data, self.calibration.groups)[1]

    @cached_property
    def slice(self) -> OracleSlice:
        """The labelled fresh responses that teach, and their calibrator."""
        return self.kept.fresh if self.kept else self.slice_as(self.calibration.mode)

    @property
    def scale(self) -> tuple[float, float]:
        """The declared range of the oracle."""
        low, high = self.data.attrs["oracle_range"]
        return float(low), float(high)

    @property
    def judge_range(self) -> tuple[float, float]:
        """The declared range of the judge."""
        low, high = self.data.attrs["judge_range"]
        return float(low), float(high)

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
            # weights of logged responses are cross-fitted too, and so is an index of all responses
            every_fold="logged_judge" in self.data or self.calibration.first_stage is not None,
            folds=self.calibration.folds,
        )


def logged_reward(logged: Logged, fitted: OracleSlice) -> FloatArray:
    """(n,) R = f(Z) of each judged logged response; NaN elsewhere, and where the slice has no calibrator."""
    judged = np.isfinite(logged.z).all(axis=1)
    reward = np.full(len(logged.z), np.nan)
    if fitted.calibrator is not None:
        reward[judged] = predict(fitted.calibrator, logged.z[judged])
    return reward


def calibrated(
    data: xr.Dataset | Calibrated,
    calibration: Calibration | None = None,
    *,
    rows: Rows | None = None,
    logged: Logged | None = None,
) -> Calibrated:
    """Join evaluation data with how their judge is calibrated.

    What is calibrated already is given back, and another calibration than its own is a `ValueError`. Default:
    ``Calibration()``. Where ``rows`` (and ``logged``) are given, they are the data, and the dataset says names and
    ranges.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("weak_judge", n=300, oracle_fraction=0.25, rng=1)
    >>> found = calibrated(data, Calibration(mode="monotone"))
    >>> calibrated(found) is found
    True
    """
    if not isinstance(data, Calibrated):
        if rows is None:
            check_data(data, names=False)  # that names are unique is seen where they are sorted
        return Calibrated(data, calibration or Calibration(), laid_out=rows, laid_out_logs=logged)
    if calibration not in (None, data.calibration):
        raise ValueError("the data are calibrated already, in another way; give the dataset itself")
    return data
