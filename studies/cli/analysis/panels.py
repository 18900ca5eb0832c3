"""The panels that ``cje-lab analyze --out`` draws beside the forest plot."""

import io
import re
import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from cje_core import figures
from cje_core.calibration.bands import calibration_band
from cje_core.calibration.reliability import calibration_curve
from cje_core.figures.style import STYLE, settle, to_files
from cje_core.inference.contrasts import win_matrix
from cje_core.offpolicy.weight_map import weight_map
from cje_core.streams import digest
from cje_core.transport import sensitivity
from cje_core.workflow.analysis import Analysis
from studies.report.parts import attempt

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LONGEST = 60  # letters of a name in that of a file


def render_panels(analysis: Analysis, broken: list[str]) -> dict[str, bytes]:
    """Files by name, each panel as PNG and SVG; only the panels that the data can fill.

    One that cannot be drawn is left out, and a line in `broken` says so.
    """
    import matplotlib as mpl

    files: dict[str, bytes] = {}
    with to_files(), mpl.rc_context({**STYLE, "figure.dpi": 150}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a policy's name may be in any script
        for name, draw in _panels(analysis):
            nothing: dict[str, bytes] = {}
            files |= attempt(f"the figure {name}", partial(_drawn, name, draw), nothing, broken)
    return files


def _drawn(name: str, draw: "Callable[[], Axes]") -> dict[str, bytes]:
    figure = draw().get_figure(root=True)
    assert figure is not None
    return {f"{name}.{kind}": image(figure, kind) for kind in ("png", "svg")}


def image(figure: "Figure", kind: str = "png") -> bytes:
    """A figure as a file, ``png`` or ``svg``; the same figure gives the same bytes."""
    import matplotlib as mpl

    settle(figure)
    stream = io.BytesIO()
    asked: dict[str, Any] = {"metadata": {"Date": None, "Creator": None}}
    if kind == "png":  # the least compression takes a third of the time, and a tenth more room
        asked = {"metadata": {"Software": None}, "pil_kwargs": {"compress_level": 1}}
    # savefig puts the layout back that the style asks for, and the next file would be laid out again
    with mpl.rc_context({"figure.constrained_layout.use": False}):
        figure.savefig(stream, format=kind, **asked)
    return stream.getvalue()


def _starred(analysis: Analysis) -> xr.Dataset:
    """Win matrix of the values that stand, starred as the rank sets decide; none for a difference that is assumed."""
    wins, together = win_matrix(analysis.value), analysis.ranks
    if together is not None:
        names = {"policy": wins["policy"], "other": wins["other"]}
        ahead = together["ahead"].reindex(names, fill_value=False).astype(bool)
        wins = wins.assign(significant=ahead | ahead.values.T, wins=ahead)
        wins = wins.assign_attrs(q=1 - together.attrs["ci_prob"], adjustment="all pairs together")
    reported = (analysis.levels["level"] == "reported").sel(policy=wins["policy"]).values
    both = xr.DataArray(np.outer(reported, reported), dims=("policy", "other"))
    refused = (analysis.levels["level"] == "refused").sel(policy=wins["policy"]).values
    shown = xr.DataArray(~(refused[:, None] | refused), dims=("policy", "other"))
    return wins.assign({name: wins[name] & both for name in ("significant", "wins")}).assign(shown=shown)


def _sensitivity(analysis: Analysis) -> "Iterator[tuple[str, Callable[[], Axes]]]":
    """What assumed levels and differences say if transport is off: curves up to three margins."""
    value, margin = analysis.value, float(analysis.transport.attrs["margin"])
    low, high = analysis.data.attrs["oracle_range"]
    shared: dict[str, Any] = {"borrowed": value["borrowed"].values.tolist(), "oracle_range": (low, high)}
    delta = np.linspace(0, 3 * margin, 61)
    levels = sensitivity.levels(value, delta, **shared)
    shown = levels.isel(policy=np.flatnonzero(np.isfinite(value["estimate"].values)))
    yield "sensitivity_levels", partial(figures.sensitivity_levels, shown, margin=margin)
    if analysis.tipping is None:
        return
    differences = sensitivity.differences(value, delta, **shared)
    lent = np.isfinite(differences["difference"].values) & (differences["n_borrowed"].values > 0)
    if lent.any():
        pairs, tipping = (of.isel(pair=np.flatnonzero(lent)) for of in (differences, analysis.tipping))
        draw = partial(figures.sensitivity_differences, pairs, tipping, margin=margin)
        yield "sensitivity_differences", draw


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


def _panels(analysis: Analysis) -> "Iterator[tuple[str, Callable[[], Axes]]]":
    """Names of the files, and what draws them when it is called."""
    estimate, value, overlap = analysis.estimates[analysis.primary], analysis.value, analysis.overlap
    yield "transport_residuals", partial(figures.transport_residuals, analysis.transport)
    if analysis.reliability is not None:
        yield "reliability", partial(figures.reliability, analysis.reliability)
        yield "calibration", lambda: figures.calibration_band(calibration_band(analysis.calibrated))
        if analysis.reliability.attrs["mode"] == "two_stage":
            curve = cache(partial(calibration_curve, analysis.calibrated))
            yield "calibration_curve", lambda: figures.calibration_curve(curve())
            if analysis.calibrated.calibration.covariates:
                yield "covariate_effects", lambda: figures.covariate_effects(curve())[0]
    if "calibration_share" in estimate:
        yield "uncertainty_share", lambda: figures.uncertainty_share(shares(analysis))
    if "influence" in value and len(analysis.policies) > 1:
        yield "win_matrix", lambda: figures.win_matrix(_starred(analysis))
    if bool((value["borrowed"] & (analysis.levels["level"] == "assumed")).any()):
        yield from _sensitivity(analysis)
    if analysis.drift is not None:
        charts = analysis.drift
        yield "drift", lambda: figures.control_charts(charts)[0][0]
    for by, table in analysis.cohorts.items():
        yield f"cohorts_{file_name(by)}", partial(figures.cohorts, table)
    if overlap is not None:
        yield from _of_logs(analysis, overlap)


def _of_logs(analysis: Analysis, overlap: xr.Dataset) -> "Iterator[tuple[str, Callable[[], Axes]]]":
    least = float(analysis.gates["good"].sel(gate="ess"))
    yield "ess_tails", lambda: figures.ess_tails(overlap, least=least)[0]
    for name in analysis.off_policy:
        if "orthogonality" in analysis.estimates[name]:
            yield f"orthogonality_{name}", partial(_first, figures.orthogonality, analysis.estimates[name])
    weights = weight_map(analysis.calibrated)
    for policy in analysis.policies:
        if int(overlap["n_usable"].sel(policy=policy)):
            named, affinity = file_name(policy), float(overlap["affinity"].sel(policy=policy))
            yield f"weights_{named}", partial(figures.weight_stabilisation, weights, policy)
            yield (
                f"overlap_{named}",
                partial(_first, figures.overlap_heatmap, weights, policy, affinity=affinity),
            )


def _first(draw: "Callable[..., tuple[Axes, Axes]]", *given: Any, **options: Any) -> "Axes":
    return draw(*given, **options)[0]


def file_name(name: str) -> str:
    """A policy's or a field's name, which need not be a file's, as one; what had to change gets a digest.

    Examples
    --------
    >>> file_name("gpt-4o"), file_name("a/b"), len(file_name("x" * 500))
    ('gpt-4o', 'a_b-da19', 65)
    """
    plain = re.sub(r"[^\w.-]+", "_", name)
    return plain if plain == name and len(name) <= LONGEST else f"{plain[:LONGEST]}-{digest(name, 2)}"
