"""Limits of borrowed values and of their differences at any level, from an estimate that the spline posterior made.

The estimate carries `cje_core.formulas.borrowed.Borrowed` as the variables ``borrowed_...``: those of policies over
``policy`` first, so that a selection of policies stays one; of the curve over ``point`` (fixed draws) and ``label``.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from cje_core.checks import BoolArray, FloatArray, IntArray
from cje_core.formulas.borrowed import Borrowed, difference_limits, difference_p_value
from cje_core.formulas.borrowed import value_limits as value_limits

DIMS = {
    "draw": ("policy", "point"),
    "rest_draw": ("policy", "point"),
    "coefficient": ("policy", "label"),
    "fitted": ("policy", "label"),
    "offset": ("policy",),
    "response": ("policy", "component"),
    "own": ("policy",),
    "selection": ("point",),
    "variance": ("label",),
    "square": ("label",),
}
KIND = "spline"  # of intervals


def parts_variables(parts: Borrowed) -> dict[str, Any]:
    """Variables and the attribute of an estimate that carry the parts."""
    found: dict[str, Any] = {f"borrowed_{name}": (dims, getattr(parts, name)) for name, dims in DIMS.items()}
    return found | {"borrowed_df": list(parts.df)}


def parts_of(estimate: xr.Dataset) -> Borrowed | None:
    """Parts that an estimate carries, None where it has none."""
    if "borrowed_draw" not in estimate or "borrowed_df" not in estimate.attrs:
        return None
    arrays = {
        name: np.asarray(estimate.variables[f"borrowed_{name}"].transpose(*dims).values)
        for name, dims in DIMS.items()
    }
    nu0, cap = map(float, estimate.attrs["borrowed_df"])
    return Borrowed(**arrays | {"own": arrays["own"] > 0}, df=(nu0, cap))


def taken_from(estimate: xr.Dataset, wanted: BoolArray) -> Mapping[str, Any]:
    """Variables and the attribute of the parts for another estimate of the same policies, NaN where not `wanted`."""
    parts = parts_of(estimate)
    if parts is None or not (wanted & np.isfinite(parts.offset)).any():
        return {}
    blank: dict[str, Any] = {
        name: np.where(
            wanted.reshape(-1, *[1] * (np.ndim(getattr(parts, name)) - 1)), getattr(parts, name), np.nan
        )
        for name in ("draw", "rest_draw", "coefficient", "fitted", "offset", "response")
    }
    return parts_variables(parts._replace(**blank, own=parts.own & wanted))


def covered_pairs(estimate: xr.Dataset, parts: Borrowed, first: IntArray, second: IntArray) -> BoolArray:
    """Return which pairs have limits by the parts: both policies have them, and one borrows by the spline."""
    spline = estimate.variables["interval_kind"].values.astype(str) == KIND
    known = np.isfinite(parts.offset) & np.isfinite(
        estimate.variables["interval"].transpose("policy", ...).values
    ).all(axis=1)
    return np.asarray(known[first] & known[second] & (spline[first] | spline[second]))


def pair_limits(
    parts: Borrowed, first: IntArray, second: IntArray, prob: float, *, tested: bool
) -> tuple[FloatArray, FloatArray]:
    """Limits (pairs, 2) of differences and their p-values, NaN where not `tested`."""
    pairs = list(zip(first.tolist(), second.tolist(), strict=True))
    interval = np.array([difference_limits(parts, a, b, prob) for a, b in pairs]).reshape(-1, 2)
    p_value = [difference_p_value(parts, a, b) if tested else np.nan for a, b in pairs]
    return interval, np.array(p_value)
