"""Evaluation data as a workflow is given it: files and tables to read, or a Dataset that is evaluation data already."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict, Unpack

import pandas as pd
import xarray as xr

from cje_core.data import DataError, check_data
from cje_core.data.contract import check_names
from cje_core.data.fields import Source
from cje_core.data.files import COLUMNS, read

Given = Source | xr.Dataset


class Reading(TypedDict, total=False):
    """How files are read: arguments of `cje_core.data.files.read`."""

    probes: Source | None
    logged: str | Path | None
    calibration_policy: str | Sequence[str] | None
    judge_range: tuple[float, float]
    oracle_range: tuple[float, float]


def take(
    path: Given, covariates: Sequence[str] = (), **reading: Unpack[Reading]
) -> tuple[xr.Dataset, pd.DataFrame]:
    """Read as `cje_core.data.files.read` does; a Dataset is checked, and its policies put in order of name.

    A Dataset brings its own probes, logged responses, calibration policy and scales: `probes`, `logged` and
    `calibration_policy` are refused beside it, the ranges not looked at; `covariates` names some of its features.
    """
    if not isinstance(path, xr.Dataset):
        return read(path, covariates=covariates, **reading)
    for name in ("probes", "logged", "calibration_policy"):
        if reading.get(name) is not None:
            raise DataError(f"{name}= goes with files, and a Dataset brings its own; leave {name}= out")
    return check_names(check_data(path)).sortby("policy"), pd.DataFrame(columns=COLUMNS)


def has_logs(path: Given, reading: Reading) -> bool:
    """Whether logged responses are given."""
    return "logp_target" in path if isinstance(path, xr.Dataset) else reading.get("logged") is not None


def oracle_scale(path: Given, reading: Reading) -> tuple[float, float]:
    """Return the declared scale of the labels: a Dataset's own."""
    declared = reading.get("oracle_range", (0.0, 1.0))
    low, high = path.attrs.get("oracle_range", declared) if isinstance(path, xr.Dataset) else declared
    return float(low), float(high)
