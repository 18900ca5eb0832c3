"""Cohorts: groups of prompts by a variable that each prompt has one value of, and evaluation data of one cohort.

A cohort's value is the mean over its own prompts; who teaches the calibrator does not change. So `restrict` keeps every
label that teaches, wherever its prompt lies, and takes everything else of the other prompts away: their responses leave
the means, their labels correct nothing, their probes audit nothing and their logged responses carry no weight. The
calibrator, its folds and so every prediction are those of the whole, and means of predictions over cohorts add up to
the mean over all prompts, by the cohorts' shares of prompts.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from cje_core.data.contract import RESPONSE, teaching_policies
from cje_core.data.errors import DataError, line


def group_names(data: xr.Dataset, name: str) -> npt.NDArray[np.str_]:
    """Value of a variable over prompts at each prompt, in the order of the data; `DataError` where it is none."""
    if name not in data or data[name].dims != ("prompt",) or data[name].dtype.kind not in "UOT":
        held = [str(v) for v in data.data_vars if data[v].dims == ("prompt",) and data[v].dtype.kind in "UOT"]
        raise DataError(f"the data have no names of prompts {name!r}; they have {', '.join(held) or 'none'}")
    return data[name].values.astype(str)


def group_codes(data: xr.Dataset, name: str) -> tuple[npt.NDArray[np.str_], npt.NDArray[np.intp]]:
    """Names of the groups in order, and the code of each prompt's, prompts in the order of `cje_core.data.arrays.Rows`.

    Examples
    --------
    >>> from cje_core.data import from_arrays
    >>> data = from_arrays([[0.2, 0.8]], policies=["a"], prompts=["q2", "q1"])
    >>> group_codes(data.assign(topic=("prompt", ["x", "y"])), "topic")[1].tolist()
    [1, 0]
    """
    order = np.argsort(data["prompt"].values.astype(str), kind="stable")
    names, code = np.unique(group_names(data, name)[order], return_inverse=True)
    return names, code


def restrict(data: xr.Dataset, cohort: Mapping[str, str]) -> xr.Dataset:
    """Evaluation data of one cohort: the prompts with these values, and the labels of others only as teachers.

    Parameters
    ----------
    data : xr.Dataset
    cohort : mapping
        Value of each variable over prompts (``{"topic": "code"}``); a prompt belongs if it has them all.

    Returns
    -------
    xr.Dataset
        Outside the cohort nothing is evaluated, nothing is a probe, and no logged response has a log-likelihood; labels
        stay. Prompts of which nothing stays are gone. The attribute ``cohort`` names it.

    Examples
    --------
    >>> from cje_core.data import from_arrays
    >>> data = from_arrays([[0.2, 0.8, 0.5]], policies=["a"], oracle=[[0.0, 1.0, np.nan]])
    >>> data = data.assign(topic=("prompt", ["code", "chat", "chat"]))
    >>> inside = restrict(data, {"topic": "chat"})
    >>> inside.evaluated.sum().item(), inside.labelled.sum().item(), inside.attrs["cohort"]
    (2, 2, 'topic=chat')
    """
    inside = np.ones(data.sizes["prompt"], dtype=bool)
    for name, value in cohort.items():
        held = group_names(data, name)
        if not (held == str(value)).any():
            there = line(", ".join(sorted(set(held.tolist()))), 80)
            raise DataError(f"cohort='{name}={value}': no prompt has this value; there are {there}")
        inside &= held == str(value)
    words = ", ".join(f"{name}={value}" for name, value in cohort.items())
    if not inside.any():
        raise DataError(f"cohort={words!r}: no prompt has all of these values; leave one of them out")
    of_response = inside[None, :, None]
    stays = data["labelled"].values | of_response
    out = {
        "evaluated": data["evaluated"].values & of_response,
        "probe": data["probe"].values & of_response,
        "oracle": np.where(stays, data["oracle"].values, np.nan),
        "judge": np.where(stays, data["judge"].values, np.nan),
    }
    changed: dict[str, tuple[object, npt.NDArray[Any]]] = {k: (RESPONSE, v) for k, v in out.items()}
    kept = stays.any(axis=(0, 2))
    if "logp_logger" in data:
        # labels of logged responses teach where no fresh ones do
        fresh = bool((data["labelled"] & data["policy"].isin(teaching_policies(data))).any())
        teaches = np.zeros(len(inside), dtype=bool)
        if "logged_oracle" in data and not fresh:
            teaches = np.isfinite(data["logged_oracle"].values)
        kept |= teaches
        for name in ("logp_target", "logp_logger"):
            changed[name] = data[name].dims, np.where(inside, data[name].values, np.nan)
        for name in ("logged_judge", "logged_oracle"):
            if name in data:
                changed[name] = "prompt", np.where(inside | teaches, data[name].values, np.nan)
    restricted = data.assign(changed).isel(prompt=np.flatnonzero(kept))
    within = data.attrs.get("cohort")  # of a cohort of its own
    return restricted.assign_attrs(cohort=words if within is None else f"{within}, {words}")
