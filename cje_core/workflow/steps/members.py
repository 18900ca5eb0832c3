"""Values of the members of a stack as labelled groups, and back: their sources of error and the fits they rest on."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from cje_core.calibration.oracle_slice import OracleSlice
from cje_core.families.off_policy.logs import CALIBRATOR, Logs, Source, Term, Value
from cje_core.inference.estimate import Status
from cje_core.workflow.steps.fits import slice_groups, slice_of

LOCATION = "fit/"  # of the slice of a fit that is not the pooled calibrator's


def value_groups(logs: Logs, value: Value | Status) -> dict[str, xr.Dataset]:
    """Groups of one member's value: its sources over prompts, its terms, and the slices of other fits than f."""
    if isinstance(value, Status):
        return {"value": xr.Dataset(attrs={"status": int(value)})}
    direct, ips = value.sources()
    sources = {"direct": direct, "ips": ips, "orthogonality": value.orthogonality()}
    arrays: dict[str, Any] = {"held_out_influence": ("prompt", value.held_out_influence())}
    for name, source in sources.items():
        if source is not None:
            arrays[name] = ((), source.value)
            arrays[f"{name}_influence"] = ("prompt", source.influence)
            arrays[f"{name}_leverage"] = ("prompt", source.leverage)
    coords = {"prompt": logs.rows.prompts}
    groups = {"value": xr.Dataset(arrays, coords=coords, attrs={"status": int(Status.OK)})}
    other: dict[str, OracleSlice] = {}
    for k, term in enumerate(value.terms()):
        attrs = {"fit": term.fit, "rows": term.rows}
        groups[f"term_{k}"] = xr.Dataset({"weight": ("row", term.weight)}, attrs=attrs)
        if term.fit != CALIBRATOR:
            other[term.fit] = term.labels
    for fit, labels in other.items():
        parts = slice_groups(labels, folds=False)
        groups |= {f"{LOCATION}{fit}/{name}": group for name, group in parts.items()}
    return groups


def value_of(logs: Logs, groups: Mapping[str, xr.Dataset]) -> Value | Status:
    """The value that `value_groups` was given."""
    ds = groups["value"]
    if ds.attrs["status"] != Status.OK:
        return Status(ds.attrs["status"])
    direct, ips = _source(ds, "direct"), _source(ds, "ips")
    orthogonality = _source(ds, "orthogonality") if "orthogonality" in ds else None
    held_out_influence = np.asarray(ds["held_out_influence"].values)
    fits, terms = {CALIBRATOR: logs.fitted}, []
    for k in range(sum(name.startswith("term_") for name in groups)):
        term = groups[f"term_{k}"]
        fit, rows = str(term.attrs["fit"]), str(term.attrs["rows"])
        if fit not in fits:
            start = f"{LOCATION}{fit}/"
            parts = {n.removeprefix(start): g for n, g in groups.items() if n.startswith(start)}
            fits[fit] = slice_of(parts)
        terms.append(Term(fit, fits[fit], rows, term["weight"].values))
    return Value(
        direct.value,
        ips.value,
        lambda: (direct, ips),
        lambda: held_out_influence,
        lambda: terms,
        lambda: orthogonality,
    )


def _source(ds: xr.Dataset, name: str) -> Source:
    arrays = (np.asarray(ds[f"{name}_{what}"].values) for what in ("influence", "leverage"))
    return Source(float(ds[name]), *arrays)
