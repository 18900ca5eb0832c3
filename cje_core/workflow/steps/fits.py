"""A fitted slice as labelled groups, and back: labels, folds, knots and levels, pooled and without each fold."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from cje_core.calibration.calibrator import Calibrator
from cje_core.calibration.oracle_slice import FoldFits, OracleSlice
from cje_core.calibration.two_stage import Basis, FirstStage
from cje_core.inference.estimate import Status

Groups = Mapping[str, xr.Dataset]
BASIS, STAGE = "basis_", "first_stage_"


def slice_groups(fitted: OracleSlice, *, folds: bool = True) -> dict[str, xr.Dataset]:
    """Groups ``labels``, ``pooled`` and, with `folds`, ``without_<k>`` of a slice."""
    labels = xr.Dataset(
        {
            "z": (("label_row", "column"), fitted.z),
            "label": ("label_row", fitted.label),
            "weight": ("label_row", fitted.weight),
            "prompt_code": ("label_row", fitted.prompt),
            "fold": ("prompt_row", fitted.fold),
        },
        attrs={"status": int(fitted.status), "mode": fitted.mode, "increasing": bool(fitted.increasing)},
    )
    groups = {"labels": labels}
    if fitted.calibrator is not None:
        groups["pooled"] = _group(fitted.calibrator)
        for k in np.unique(fitted.fold[fitted.prompt]).tolist() if folds else []:
            without = fitted.without(k)
            if without is not None:
                groups[f"without_{k}"] = _group(without)
    return groups


def slice_of(groups: Groups) -> OracleSlice:
    """The slice of some groups."""
    labels = groups["labels"]
    out = OracleSlice(
        Status(labels.attrs["status"]),
        _calibrator(groups["pooled"]) if "pooled" in groups else None,
        labels["z"].values,
        labels["label"].values,
        labels["weight"].values,
        labels["prompt_code"].values.astype(np.intp),
        labels["fold"].values.astype(np.intp),
        str(labels.attrs["mode"]),
        bool(labels.attrs["increasing"]),
    )
    without = {
        int(name.removeprefix("without_")): _calibrator(group)
        for name, group in groups.items()
        if name.startswith("without_")
    }
    out.left_out.update(without)
    monotone = out.calibrator is not None and out.mode == "monotone" and without
    return out._replace(kept=_fold_fits(out.folds, without)) if monotone else out


def _fold_fits(own: FoldFits, without: Mapping[int, Calibrator]) -> FoldFits:
    """The fits without each fold, of the file; mean labels are those of the slice."""
    most = max(len(f.knot) for f in without.values())
    knot, value = np.zeros((2, len(own.mean), most))
    n_knots = np.zeros(len(own.mean), dtype=np.intp)
    for k, f in without.items():
        n_knots[k] = n = len(f.knot)
        knot[k, :n], value[k, :n] = f.knot, f.value
    return FoldFits(own.mean, knot, value, n_knots)


def _group(f: Calibrator) -> xr.Dataset:
    arrays: dict[str, Any] = {
        name: ("knot_row", getattr(f, name)) for name in ("knot", "value", "weight", "block")
    }
    stage = f.first_stage
    if stage is not None:
        known = {BASIS + k: v for k, v in stage.basis._asdict().items()}
        known |= {STAGE + k: v for k, v in stage._asdict().items() if k != "basis"}
        arrays |= {k: (f"{k}_row", v) if np.ndim(v) else ((), v) for k, v in known.items()}
    return xr.Dataset(arrays, attrs={"mode": f.mode, "sign": float(f.sign)})


def _calibrator(ds: xr.Dataset) -> Calibrator:
    stage = None
    if f"{STAGE}coef" in ds:
        basis = Basis(**{name: _value(ds[BASIS + name]) for name in Basis._fields})
        rest = {name: _value(ds[STAGE + name]) for name in FirstStage._fields if name != "basis"}
        stage = FirstStage(basis=basis, **rest)
    arrays = {name: ds[name].values for name in ("knot", "value", "weight", "block")}
    return Calibrator(mode=str(ds.attrs["mode"]), sign=float(ds.attrs["sign"]), first_stage=stage, **arrays)


def _value(array: xr.DataArray) -> Any:
    return array.values if array.ndim else array.values.item()
