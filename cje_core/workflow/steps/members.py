"""Values of the members of a stack as labelled groups, and back: their sources of error and the fits they rest on."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from cje_core.calibration.oracle_slice import OracleSlice
from cje_core.checks import FloatArray
from cje_core.families.off_policy.value import Logs, Source, Term, Value
from cje_core.inference.estimate import Status
from cje_core.workflow.steps.fits import slice_groups, slice_of

SOURCES = ("direct", "ips", "orthogonality")


def value_groups(logs: Logs, p: int, value: Value | Status) -> dict[str, xr.Dataset]:
    """Groups of one member's value of policy p: its sources over prompts, its terms, and their slices where not f's."""
    if isinstance(value, Status):
        return {"value": xr.Dataset(attrs={"status": int(value)})}
    prompts = logs.rows.prompts
    arrays: dict[str, Any] = {"path": ("prompt", value.path)}
    for name in SOURCES:
        source = getattr(value, name)
        if source is not None:
            arrays[name] = ((), source.value)
            arrays[f"{name}_influence"] = ("prompt", source.influence)
            arrays[f"{name}_leverage"] = ("prompt", source.leverage)
    groups = {"value": xr.Dataset(arrays, coords={"prompt": prompts}, attrs={"status": int(Status.OK)})}
    taught: list[OracleSlice] = []
    mine = logs.of(p)
    for k, term in enumerate(value.terms):
        if term.taught is not logs.fitted and not any(term.taught is other for other in taught):
            taught.append(term.taught)
        number = next((j for j, other in enumerate(taught) if other is term.taught), -1)
        groups[f"term_{k}"] = xr.Dataset(
            {"weight": ("row", term.weight)},
            attrs={"fresh": term.z is mine.z_fresh, "taught": number},
        )
    for j, fitted in enumerate(taught):
        groups |= {f"taught_{j}/{name}": group for name, group in slice_groups(fitted, folds=False).items()}
    return groups


def value_of(logs: Logs, p: int, groups: Mapping[str, xr.Dataset]) -> Value | Status:
    """The value that `value_groups` was given."""
    ds = groups["value"]
    if ds.attrs["status"] != Status.OK:
        return Status(ds.attrs["status"])
    found = {name: _source(ds, name) for name in SOURCES if name in ds}
    path = ds["path"].values

    def terms() -> list[Term]:
        mine, taught = logs.of(p), {-1: logs.fitted}
        out = []
        for k in range(sum(name.startswith("term_") for name in groups)):
            term = groups[f"term_{k}"]
            number = int(term.attrs["taught"])
            if number not in taught:
                start = f"taught_{number}/"
                taught[number] = slice_of(
                    {n.removeprefix(start): g for n, g in groups.items() if n.startswith(start)}
                )
            z = mine.z_fresh if term.attrs["fresh"] else mine.z
            out.append(Term(taught[number], z, term["weight"].values))
        return out

    return Value(found["direct"], found["ips"], lambda: path, terms, lambda: found.get("orthogonality"))


def _source(ds: xr.Dataset, name: str) -> Source:
    made: tuple[FloatArray, FloatArray] = (
        np.asarray(ds[f"{name}_influence"].values),
        np.asarray(ds[f"{name}_leverage"].values),
    )
    return Source(float(ds[name]), lambda: made)
