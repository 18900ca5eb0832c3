"""Evaluation data as a workflow is given it: files and tables to read, or a Dataset that is evaluation data already."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import xarray as xr

from cje_core.data import DataError, check_data
from cje_core.data.contract import check_names
from cje_core.data.files import COLUMNS, read
from cje_core.data.tables import Source

Given = Source | xr.Dataset


def take(
    path: Given,
    *,
    probes: Source | None = None,
    logged: str | Path | None = None,
    calibration_policy: str | Sequence[str] | None = None,
    covariates: Sequence[str] = (),
    judge_range: tuple[float, float] = (0.0, 1.0),
    oracle_range: tuple[float, float] = (0.0, 1.0),
) -> tuple[xr.Dataset, pd.DataFrame]:
    """Read as `cje_core.data.files.read` does; a Dataset is checked, and its policies put in order of name.

    A Dataset brings its own probes, logged responses, calibration policy and scales: `probes`, `logged` and
    `calibration_policy` are refused beside it, the ranges not looked at; `covariates` names some of its features.
    """
    if not isinstance(path, xr.Dataset):
        return read(
            path,
            probes=probes,
            logged=logged,
            covariates=covariates,
            calibration_policy=calibration_policy,
            judge_range=judge_range,
            oracle_range=oracle_range,
        )
    beside = {"probes": probes, "logged": logged, "calibration_policy": calibration_policy}
    for name, value in beside.items():
        if value is not None:
            raise DataError(f"{name}= goes with files, and a Dataset brings its own; leave {name}= out")
    return check_names(check_data(path)).sortby("policy"), pd.DataFrame(columns=COLUMNS)


def has_logs(path: Given, logged: str | Path | None) -> bool:
    """Whether logged responses are given."""
    return "logp_target" in path if isinstance(path, xr.Dataset) else logged is not None


def oracle_scale(path: Given, oracle_range: tuple[float, float]) -> tuple[float, float]:
    """Return the declared scale of the labels: a Dataset's own."""
    if not isinstance(path, xr.Dataset):
        return oracle_range
    low, high = path.attrs.get("oracle_range", oracle_range)
    return float(low), float(high)
