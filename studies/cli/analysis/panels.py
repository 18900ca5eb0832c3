"""The panels that ``cje-lab analyze --out`` draws beside the forest plot."""

import io
import re
import warnings
from collections.abc import Iterator
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
    from matplotlib.figure import Figure


def render_panels(analysis: Analysis) -> dict[str, bytes]:
    """Files by name; only the panels that the data can fill."""
    import matplotlib as mpl

    files = {}
    with to_files(), mpl.rc_context({**STYLE, "figure.dpi": 150}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a policy's name may be in any script
        for name, axes in _panels(analysis):
            figure = axes.get_figure(root=True)
            assert figure is not None
            files[f"{name}.png"] = image(figure)
    return files


def image(figure: "Figure", kind: str = "png") -> bytes:
    """A figure as a file, ``png`` or ``svg``; the same figure gives the same bytes."""
    settle(figure)
    stream = io.BytesIO()
    metadata = {"Software": None} if kind == "png" else {"Date": None, "Creator": None}
    figure.savefig(stream, format=kind, metadata=metadata)
    return stream.getvalue()


def _starred(analysis: Analysis) -> xr.Dataset:
    """Win matrix of the values that stand; a difference that is assumed gets no star."""
    wins = win_matrix(analysis.value)
    reported = (analysis.levels["level"] == "reported").sel(policy=wins["policy"]).values
    both = xr.DataArray(np.outer(reported, reported), dims=("policy", "other"))
    refused = (analysis.levels["level"] == "refused").sel(policy=wins["policy"]).values
    shown = xr.DataArray(~(refused[:, None] | refused), dims=("policy", "other"))
    return wins.assign({name: wins[name] & both for name in ("significant", "wins")}).assign(shown=shown)


def _sensitivity(analysis: Analysis) -> "Iterator[tuple[str, Axes]]":
    """What assumed levels and differences say if transport is off: curves up to three margins."""
    value, margin = analysis.value, float(analysis.transport.attrs["margin"])
    low, high = analysis.data.attrs["oracle_range"]
    shared: dict[str, Any] = {"borrowed": value["borrowed"].values.tolist(), "oracle_range": (low, high)}
    delta = np.linspace(0, 3 * margin, 61)
    levels = sensitivity.levels(value, delta, **shared)
    shown = levels.isel(policy=np.flatnonzero(np.isfinite(value["estimate"].values)))
    yield "sensitivity_levels", figures.sensitivity_levels(shown, margin=margin)
    if analysis.tipping is None:
        return
    differences = sensitivity.differences(value, delta, **shared)
    lent = np.isfinite(differences["difference"].values) & (differences["n_borrowed"].values > 0)
    if lent.any():
        pairs, tipping = (of.isel(pair=np.flatnonzero(lent)) for of in (differences, analysis.tipping))
        yield "sensitivity_differences", figures.sensitivity_differences(pairs, tipping, margin=margin)


def shares(analysis: Analysis) -> xr.Dataset:
    """Part of the labels in the variance of each value that stands, as the guide counts it; NaN for a refused one."""
    value = analysis.value
    found = []
    for policy in value["policy"].values.astype(str):
        one = analysis.estimates.get(analysis.standing(policy) or "", xr.Dataset())
        found.append(
            float(one["calibration_share"].sel(policy=policy)) if "calibration_share" in one else np.nan
        )
    return value[["route"]].assign(calibration_share=("policy", found))


def _panels(analysis: Analysis) -> "Iterator[tuple[str, Axes]]":
    """Names of the files, and what is in them; each is drawn when it is asked for."""
    estimate, value, overlap = analysis.estimates[analysis.primary], analysis.value, analysis.overlap
    yield "transport_residuals", figures.transport_residuals(analysis.transport)
    if analysis.reliability is not None:
        yield "reliability", figures.reliability(analysis.reliability)
        if analysis.reliability.attrs["mode"] == "two_stage":
            curve = calibration_curve(analysis.calibrated)
            yield "calibration_curve", figures.calibration_curve(curve)
            if analysis.calibrated.calibration.covariates:
                yield "covariate_effects", figures.covariate_effects(curve)[0]
    if "calibration_share" in estimate:
        yield "uncertainty_share", figures.uncertainty_share(shares(analysis))
    if "influence" in value and len(analysis.policies) > 1:
        yield "win_matrix", figures.win_matrix(_starred(analysis))
    if bool((value["borrowed"] & (analysis.levels["level"] == "assumed")).any()):
        yield from _sensitivity(analysis)
    for by, table in analysis.cohorts.items():
        yield f"cohorts_{_file_name(by)}", figures.cohorts(table)
    if overlap is None:
        return
    yield "ess_tails", figures.ess_tails(overlap, least=float(analysis.gates["good"].sel(gate="ess")))[0]
    for name in analysis.off_policy:
        if "orthogonality" in analysis.estimates[name]:
            yield f"orthogonality_{name}", figures.orthogonality(analysis.estimates[name])[0]
    weights = weight_map(analysis.calibrated)
    for policy in analysis.policies:
        if int(overlap["n_usable"].sel(policy=policy)):
            named = _file_name(policy)
            affinity = float(overlap["affinity"].sel(policy=policy))
            yield f"weights_{named}", figures.weight_stabilisation(weights, policy)
            yield f"overlap_{named}", figures.overlap_heatmap(weights, policy, affinity=affinity)[0]


def _file_name(name: str) -> str:
    """A policy's or a field's name, which need not be a file's, as one."""
    return re.sub(r"[^\w.-]+", "_", name)
