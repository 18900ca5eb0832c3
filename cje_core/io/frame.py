"""Evaluation data from a table with one row per response, checked by the rules that files are."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr

from cje_core.data.build import from_arrays
from cje_core.data.meanings import DATA, attributes
from cje_core.io.columnar import Columns, columns_of
from cje_core.io.fields import typed


def from_frame(
    frame: pd.DataFrame,
    *,
    covariates: Sequence[str] = (),
    judge_range: tuple[float, float] = (0.0, 1.0),
    oracle_range: tuple[float, float] = (0.0, 1.0),
    calibration_policy: str | Sequence[str] | None = None,
    logged: Mapping[str, npt.ArrayLike] | None = None,
) -> xr.Dataset:
    """Evaluation data from a table with one row per response.

    Parameters
    ----------
    frame : DataFrame
        Columns ``policy``, ``prompt_id``, ``judge_score``; optional ``oracle_label`` (NaN: no label), ``draw_idx``
        (default 0), ``probe`` and ``evaluated`` (boolean), ``label_prob``, ``surprisal``, ``log_ratio``, ``cluster``,
        ``stratum``, ``cohort``, ``fold_id`` (0, 1, ...; -1: none).
        Every row needs a score; leave out responses that were not judged.
    covariates : sequence of str
        Numeric columns that become ``covariate(..., feature)``.
    judge_range, oracle_range, calibration_policy, logged
        As in `from_arrays`; logged responses in the order of the sorted policies and prompts.

    Returns
    -------
    xr.Dataset
        Policies and prompts sorted by name, so the order of rows never matters.

    Raises
    ------
    DataError
        With one line: row (counted from 1), column, what was found and how to mend it.

    Examples
    --------
    >>> table = pd.DataFrame({"policy": ["b", "a"], "prompt_id": [0, 0], "judge_score": [0.1, 0.9]})
    >>> from_frame(table).policy.values.tolist()
    ['a', 'b']
    """
    columns = columns_of(typed(frame, covariates), covariates)
    return from_columns(
        columns,
        covariates=covariates,
        judge_range=judge_range,
        oracle_range=oracle_range,
        calibration_policy=calibration_policy,
        logged=logged,
    )


def from_columns(
    columns: Columns,
    *,
    covariates: Sequence[str] = (),
    judge_range: tuple[float, float] = (0.0, 1.0),
    oracle_range: tuple[float, float] = (0.0, 1.0),
    calibration_policy: str | Sequence[str] | None = None,
    logged: Mapping[str, npt.ArrayLike] | None = None,
) -> xr.Dataset:
    """Evaluation data from checked columns.

    Parameters
    ----------
    columns : Columns
    covariates, judge_range, oracle_range, calibration_policy, logged
        As in `from_frame`.
    """
    shape, cell = columns.shape, columns.cell

    def spread(values: npt.NDArray[Any] | None, fill: Any = np.nan) -> npt.NDArray[Any] | None:
        if values is None:
            return None
        out = np.full((math.prod(shape), *values.shape[1:]), fill)
        out[cell] = values
        return out.reshape(*shape, *values.shape[1:])

    scores = spread(columns.numbers["judge_score"])
    assert scores is not None
    data = from_arrays(
        scores,
        policies=columns.policy.names.to_pylist(),
        prompts=columns.prompt.names,
        oracle=spread(columns.numbers.get("oracle_label")),
        probe=spread(columns.probe, False),
        evaluated=spread(columns.evaluated, False),
        label_prob=spread(columns.numbers.get("label_prob")),
        surprisal=spread(columns.numbers.get("surprisal")),
        log_ratio=spread(columns.numbers.get("log_ratio")),
        covariate=spread(np.column_stack([columns.numbers[f] for f in covariates])) if covariates else None,
        features=list(covariates) or None,
        cluster=columns.per_prompt.get("cluster"),
        stratum=columns.per_prompt.get("stratum"),
        cohort=columns.per_prompt.get("cohort"),
        fold=columns.per_prompt.get("fold_id"),
        judge_range=judge_range,
        oracle_range=oracle_range,
        calibration_policy=calibration_policy,
        logged=logged,
    )
    return _numbered(data, columns.draws)


def _numbered(data: xr.Dataset, draws: npt.ArrayLike) -> xr.Dataset:
    """The data with the numbers of their draws, which are 0, 1, ... nearly always: then nothing is merged."""
    if np.array_equal(draws, np.arange(data.sizes["draw"])):
        return data
    return data.assign_coords(draw=("draw", draws, attributes("draw", DATA)))
