"""The panels that ``cje-lab analyze --out`` draws beside the forest plot."""

import io
import re
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from cje_core import figures
from cje_core.calibration.reliability import calibration_curve
from cje_core.figures.style import STYLE, settle, to_files
from cje_core.inference.contrasts import win_matrix
from cje_core.offpolicy.weight_map import weight_map
from cje_core.transport import sensitivity
from cje_core.workflow.analysis import Analysis

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def render_panels(analysis: Analysis) -> dict[str, bytes]:
    """PNG files by name; only the panels that the data can fill."""
    import matplotlib as mpl

    files = {}
    with to_files(), mpl.rc_context({**STYLE, "figure.dpi": 150}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a policy's name may be in any script
        for name, draw in _panels(analysis).items():
            figure = draw().get_figure(root=True)
            assert figure is not None
            stream = io.BytesIO()
            settle(figure)
            figure.savefig(stream, format="png", metadata={"Software": None})
            files[name] = stream.getvalue()
    return files


def _starred(analysis: Analysis) -> xr.Dataset:
    """Win matrix of the values that stand; a difference that is assumed gets no star."""
    wins = win_matrix(analysis.value)
    reported = (analysis.levels["level"] == "reported").sel(policy=wins["policy"]).values
    both = xr.DataArray(np.outer(reported, reported), dims=("policy", "other"))
    return wins.assign({name: wins[name] & both for name in ("significant", "wins")})


def _sensitivity(analysis: Analysis) -> "dict[str, Callable[[], Axes]]":
    """What assumed levels and differences say if transport is off: curves up to three margins."""
    value, margin = analysis.value, float(analysis.transport.attrs["margin"])
    low, high = analysis.data.attrs["oracle_range"]
    shared: dict[str, Any] = {"borrowed": value["borrowed"].values.tolist(), "oracle_range": (low, high)}
    delta = np.linspace(0, 3 * margin, 61)
    levels = sensitivity.levels(value, delta, **shared)
    shown = levels.isel(policy=np.flatnonzero(np.isfinite(value["estimate"].values)))
    panels: dict[str, Callable[[], Axes]] = {
        "sensitivity_levels": lambda: figures.sensitivity_levels(shown, margin=margin)
    }
    if analysis.tipping is not None:
        differences = sensitivity.differences(value, delta, **shared)
        open_ = np.flatnonzero(
            np.isfinite(differences["difference"].values) & (differences["n_borrowed"].values > 0)
        )
        tipping = analysis.tipping.isel(pair=open_)
        if len(open_):
            panels["sensitivity_differences"] = lambda: figures.sensitivity_differences(
                differences.isel(pair=open_), tipping, margin=margin
            )
    return panels


def shares(analysis: Analysis) -> xr.Dataset:
    """Part of the labels in the variance of each value that stands, as the guide counts it; NaN for a refused one."""
    value = analysis.value
    found = []
    for policy in value["policy"].values.astype(str):
        one = analysis.estimates.get(analysis.standing(policy) or "")
        if one is None or "calibration_share" not in one:
            found.append(np.nan)
        else:
            found.append(float(one["calibration_share"].sel(policy=policy)))
    return value[["route"]].assign(calibration_share=("policy", found))


def _panels(analysis: Analysis) -> "dict[str, Callable[[], Axes]]":
    estimate, value = analysis.estimates[analysis.primary], analysis.value
    panels: dict[str, Callable[[], Axes]] = {
        "transport_residuals": lambda: figures.transport_residuals(analysis.transport)
    }
    bins = analysis.reliability
    if bins is not None:
        panels["reliability"] = lambda: figures.reliability(bins)
        if bins.attrs["mode"] == "two_stage":
            curve = calibration_curve(analysis.calibrated)
            panels["calibration_curve"] = lambda: figures.calibration_curve(curve)
            if analysis.calibrated.calibration.covariates:
                panels["covariate_effects"] = lambda: figures.covariate_effects(curve)[0]
    if "calibration_share" in estimate:
        panels["uncertainty_share"] = lambda: figures.uncertainty_share(shares(analysis))
    if "influence" in value and len(analysis.policies) > 1:
        panels["win_matrix"] = lambda: figures.win_matrix(_starred(analysis))
    if bool((analysis.value["borrowed"] & (analysis.levels["level"] == "assumed")).any()):
        panels |= _sensitivity(analysis)
    overlap = analysis.overlap
    if overlap is None:
        return panels
    panels["ess_tails"] = lambda: figures.ess_tails(overlap)[0]
    for name in analysis.off_policy:
        one = analysis.estimates[name]
        if "orthogonality" in one:
            panels[f"orthogonality_{name}"] = lambda one=one: figures.orthogonality(one)[0]  # type: ignore[misc]
    weights = weight_map(analysis.calibrated)
    for policy in analysis.policies:
        if int(overlap["n_usable"].sel(policy=policy)):
            named = re.sub(r"[^\w.-]+", "_", policy)  # a policy's name need not be a file's
            affinity = float(overlap["affinity"].sel(policy=policy))
            panels[f"weights_{named}"] = lambda p=policy: figures.weight_stabilisation(weights, p)  # type: ignore[misc]
            panels[f"overlap_{named}"] = lambda p=policy, a=affinity: figures.overlap_heatmap(  # type: ignore[misc]
                weights, p, affinity=a
            )
    return panels
