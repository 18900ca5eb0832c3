"""Gates: what each policy's diagnostics make of the thresholds, and what to do about it.

The thresholds are data, `cje_core.verdict.thresholds.GATES`. A metric between the two levels of a gate is a warning. A
metric that is NaN or was not computed is *unknown*, which is never a pass: a tail index that could not be estimated is
not a healthy one.

Overlap gates are about weights: they speak about off-policy estimators only (`ope_ok`) and leave Direct alone. Of the
gates about levels two block one when they fail, ``identification`` and ``transport`` (column ``blocks``; what takes the
level's place is in `cje_core.verdict.refusal`); the others, and a warning of these two, only qualify it. Transport is
about borrowed calibrations: an estimate that its policy's own labels correct is unbiased without it (`borrows`).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr

from cje_core.checks import FloatArray
from cje_core.inference.sources import borrows
from cje_core.verdict.thresholds import BY_NAME, GATES, MIN_TTC_DRAWS, RHO_SPAN, Gate

TRANSPORT_CODE = {"PASS": 0.0, "INCONCLUSIVE": 1.0, "FAIL": 2.0, "NOT_CHECKED": np.nan}
VERDICT = {code: name for name, code in TRANSPORT_CODE.items()}


def evaluate(
    metrics: xr.Dataset | Mapping[str, npt.ArrayLike],
    *,
    policies: Sequence[str] | None = None,
    gates: Sequence[Gate] = GATES,
) -> xr.Dataset:
    """State of every gate for every policy.

    Parameters
    ----------
    metrics : xr.Dataset over ``policy``, or mapping
        Any of the metrics named in the table, for instance from `collect`; others are ignored. In a mapping a value is
        a number for all policies or one per policy.
    policies : sequence of str, optional
        Names, for a mapping (default: one policy named ``"policy"``).
    gates : sequence of Gate
        Own thresholds: ``[gate._replace(good=0.5) ...]``.

    Returns
    -------
    xr.Dataset
        Over ``policy, gate``: ``value``, ``state`` (pass, warn, fail or unknown), ``action`` (empty unless warned or
        failed), ``blocked`` (whether the state rules out what the gate applies to; never for unknown). Over ``gate``:
        ``good``, ``critical``, ``least``, ``group``, ``metric``, ``applies_to``, ``source``.

    Examples
    --------
    >>> found = evaluate({"ess_fraction": [0.4, 0.2, 0.01], "ttc": 0.8}, policies=["a", "b", "c"])
    >>> found.state.sel(gate="ess").values.tolist(), found.state.sel(gate="hill").values.tolist()
    (['pass', 'warn', 'fail'], ['unknown', 'unknown', 'unknown'])
    """
    if not isinstance(metrics, xr.Dataset):
        names = list(policies) if policies is not None else ["policy"]
        full = {name: np.broadcast_to(np.asarray(v, float), (len(names),)) for name, v in metrics.items()}
        metrics = xr.Dataset({name: ("policy", v) for name, v in full.items()}, coords={"policy": names})
    names = [str(name) for name in metrics["policy"].values]
    value = np.full((len(names), len(gates)), np.nan)
    for g, gate in enumerate(gates):
        if gate.metric in metrics:
            value[:, g] = metrics[gate.metric].values
    of = {field: np.array([getattr(gate, field) for gate in gates]) for field in Gate._fields}
    sign = np.where(of["least"], 1.0, -1.0)
    passed = sign * value >= sign * of["good"]
    failed = sign * value < sign * of["critical"]  # false where critical is NaN
    state = np.select([np.isnan(value), passed, failed], ["unknown", "pass", "fail"], default="warn")
    warned = state == "warn"
    blocked = ((state == "fail") & (of["blocks"] != "never")) | (warned & (of["blocks"] == "warn"))
    cell = ("policy", "gate")
    return xr.Dataset(
        {
            "value": (cell, value),
            "state": (cell, state),
            "action": (cell, np.where(warned | (state == "fail"), of["action"], "")),
            "blocked": (cell, blocked),
            **{
                k: ("gate", of[k])
                for k in ("good", "critical", "least", "group", "metric", "applies_to", "source")
            },
        },
        coords={"policy": names, "gate": of["name"]},
    )


def ope_ok(evaluated: xr.Dataset) -> xr.Dataset:
    """Whether off-policy estimators may be relied on: every overlap gate known (`evaluate`), none blocking.

    Over ``policy``: ``ok``; ``state`` (ok, blocked, unknown); ``reason``, the gates behind it.

    Examples
    --------
    >>> healthy = {"ess_fraction": 0.5, "hill": 3.0, "affinity": 0.9, "ttc_two_sided": 0.8}
    >>> ope_ok(evaluate(healthy | {"ttc": 0.6})).reason.item(), ope_ok(evaluate(healthy)).state.item()
    ('ttc 0.6 (at least 0.7)', 'unknown')
    """
    about = np.flatnonzero(evaluated["group"].values == "overlap")
    state, reason = [], []
    for row in cells(evaluated.isel(gate=about)):
        unknown = [cell.gate for cell in row if cell.state == "unknown"]
        blocked = any(cell.blocked for cell in row)
        state.append("blocked" if blocked else "unknown" if unknown else "ok")
        named = {cell.gate: cell for cell in row if cell.blocked or cell.state == "unknown"}
        if {"ttc", "ttc_two_sided"} <= set(named) and "ttc" in unknown:
            del named["ttc_two_sided"]  # for the same reason
        reason.append("; ".join(map(describe, named.values())))
    return xr.Dataset(
        {
            "ok": ("policy", np.array(state) == "ok"),
            "state": ("policy", np.array(state, dtype=str)),
            "reason": ("policy", np.array(reason, dtype=str)),
        },
        coords={"policy": evaluated["policy"].values},
    )


class Cell(NamedTuple):
    """One gate of one policy in plain values."""

    gate: str
    metric: str
    value: float
    state: str
    action: str
    blocked: bool
    good: float
    least: bool


def cells(evaluated: xr.Dataset) -> list[list[Cell]]:
    """The gates of each policy, from `evaluate`: selected one by one, they cost a thousand times as much."""
    shape = evaluated.sizes["policy"], evaluated.sizes["gate"]
    columns = []
    for name in Cell._fields:
        variable = evaluated.variables[name]
        values = (
            variable.values if "policy" not in variable.dims else variable.transpose("policy", "gate").values
        )
        columns.append(np.broadcast_to(values, shape).tolist())
    return [[Cell(*cell) for cell in zip(*row, strict=True)] for row in zip(*columns, strict=True)]


def describe(cell: Cell) -> str:
    """One gate of one policy in words: name, value, threshold."""
    unknown = cell.state == "unknown"
    if cell.metric == "transport_code":
        return f"{cell.gate} {'NOT_CHECKED' if unknown else VERDICT[cell.value]}"
    if unknown:
        return f"{cell.gate} unknown"
    bound = "at least" if cell.least else "at most"
    if cell.metric == "affinity":
        bound = f"its upper bound; {bound}"  # see `collect`
    return f"{cell.gate} {cell.value:.3g} ({bound} {cell.good:.3g})"


def flags(
    evaluated: xr.Dataset, policy: str, *, applies_to: Sequence[str] = ("level", "comparison")
) -> list[str]:
    """Warned and failed gates of one policy as ``gate_state``, worst first; they travel with its estimates.

    `applies_to` says what the estimate is exposed to: add ``"off_policy"`` (and ``"dr"``) for estimators that weight
    logged responses.
    """
    at = evaluated.sel(policy=policy)
    at = at.isel(gate=np.flatnonzero(np.isin(at["applies_to"].values, list(applies_to))))
    return [
        f"{name}_{wanted}"
        for wanted in ("fail", "warn")
        for name, state in zip(at["gate"].values, at["state"].values, strict=True)
        if state == wanted
    ]


def collect(
    policies: Sequence[str],
    *,
    overlap: xr.Dataset | None = None,
    coverage: xr.Dataset | None = None,
    reliability: xr.Dataset | None = None,
    transport: xr.Dataset | None = None,
    drift: Mapping[str, Any] | xr.DataArray | None = None,
    estimate: xr.Dataset | None = None,
    cap: Mapping[str, xr.Dataset] | None = None,
    adjusted: bool | None = None,
) -> xr.Dataset:
    """Metrics of the gates, over ``policy``, from the pieces at hand; whatever is not given is unknown.

    Parameters
    ----------
    policies : sequence of str
    overlap : xr.Dataset, optional
        From `cje_core.offpolicy.overlap.overlap`. The affinity is taken at its bias-corrected value plus one standard
        error (``affinity_upper``), since few draws bias the plug-in down. A TTC whose threshold rests on fewer than 30
        effective target draws counts as unknown.
    coverage : xr.Dataset, optional
        From `cje_core.calibration.reliability.coverage_badge`. The mass out of range counts on the sides where the
        calibrator is flat (unknown counts as flat).
    reliability, transport : xr.Dataset, optional
        From `cje_core.calibration.reliability.reliability` and `cje_core.transport.audit.audit`.
    drift : mapping or DataArray over ``policy``, optional
        1 where an alarm of `cje_core.transport.drift` rang, 0 where none did.
    estimate : xr.Dataset, optional
        An estimate, perhaps with ``orthogonality_interval``, ``residual_nan``, ``residual_df`` or ``guard_engaged``. A
        policy that borrows no calibration there (`borrows`) needs no transport, so that gate passes whatever the audit
        of the pooled calibrator found.
    cap : mapping of policy to xr.Dataset, optional
        From `cje_core.offpolicy.weight_map.cap_curves`: beside an estimate with ``guard_engaged`` the metric of that
        name is the share of folds on which the guard would act alone, else 1 where it acted and 0 where not.
    adjusted : bool, optional
        Whether the comparisons shown are adjusted for multiplicity.
    """
    names = [str(name) for name in policies]

    def column(piece: xr.Dataset | None, variable: str) -> FloatArray:
        if piece is None or variable not in piece:
            return np.full(len(names), np.nan)
        known = dict(
            zip(piece["policy"].values.astype(str).tolist(), piece[variable].values.tolist(), strict=True)
        )
        return np.array([known.get(name, np.nan) for name in names], dtype=float)

    out: dict[str, npt.ArrayLike] = {
        name: column(overlap, name) for name in ("ess_fraction", "hill", "affinity", "ttc", "ttc_two_sided")
    }
    if overlap is not None and "affinity_upper" in overlap:
        out["affinity"] = column(overlap, "affinity_upper")
    if overlap is not None and "ttc_ess" in overlap:
        enough = column(overlap, "ttc_ess") >= MIN_TTC_DRAWS
        out |= {name: np.where(enough, out[name], np.nan) for name in ("ttc", "ttc_two_sided")}
    out["unsupported_mass"] = sum(
        np.where(column(coverage, f"flat_{side}") == 0, 0.0, column(coverage, f"out_{side}"))
        for side in ("low", "high")
    )
    out["labels_near"] = column(coverage, "labels_near")
    covers = None if reliability is None else reliability.attrs.get("covers_diagonal")
    out["uncovered_bins"] = np.full(len(names), np.nan if covers is None else 1.0 - float(covers))
    code = np.full(len(names), np.nan)
    if transport is not None:
        verdict = transport["verdict"].reindex(policy=names, fill_value="NOT_CHECKED").values
        code = np.array([TRANSPORT_CODE[str(v)] for v in verdict])
    if estimate is not None and "status" in estimate:
        own = ~borrows(estimate).reindex(policy=names, fill_value=True).values
        code = np.where(own, 0.0, code)
    out["transport_code"] = code
    alarms: Any = {}
    if drift is not None:
        alarms = drift.to_series() if isinstance(drift, xr.DataArray) else drift
    out["drift_alarm"] = [float(alarms.get(name, np.nan)) for name in names]
    engaged = column(estimate, "guard_engaged")
    folds = np.array(
        [
            float(cap[name]["guard_by_fold"].mean())
            if cap and "guard_by_fold" in cap.get(name, ())
            else np.nan
            for name in names
        ]
    )
    out["guard_engaged"] = np.where(np.isfinite(engaged) & np.isfinite(folds), folds, engaged)
    out |= {name: column(estimate, name) for name in ("residual_nan", "residual_df")}
    out["orthogonality_gap"] = np.full(len(names), np.nan)
    if estimate is not None and "orthogonality_interval" in estimate:
        low, high = estimate["orthogonality_interval"].reindex(policy=names).values.T
        out["orthogonality_gap"] = np.maximum(np.maximum(low, -high), np.where(np.isnan(low), np.nan, 0.0))
    out["cap_sensitivity"] = [cap_sensitivity(cap[name]) if cap and name in cap else np.nan for name in names]
    few = float(len(names)) if len(names) <= BY_NAME["multiplicity"].good else np.nan
    unadjusted = few if adjusted is None else 0.0 if adjusted else float(len(names))
    out["unadjusted_policies"] = np.full(len(names), unadjusted)
    columns = {name: ("policy", np.asarray(v, float)) for name, v in out.items()}
    return xr.Dataset(columns, coords={"policy": names})


def cap_sensitivity(curve: xr.Dataset, rho: float = 1.0) -> float:
    """How far the standard error moves when the cap is halved or doubled: largest over smallest, less one.

    Read from a curve over ``rho`` with ``std_error`` (`cje_core.offpolicy.weights.guard_curve`) between ``rho / 2`` and
    ``2 rho``, rho the cap in use; NaN where fewer than two caps lie there.

    Examples
    --------
    >>> curve = xr.Dataset({"std_error": ("rho", [0.01, 0.02, 0.03])}, coords={"rho": [0.5, 1.0, 4.0]})
    >>> cap_sensitivity(curve)
    1.0
    """
    caps = curve["rho"].values
    error = curve["std_error"].values[(caps >= rho / RHO_SPAN) & (caps <= rho * RHO_SPAN)]
    if len(error) < 2 or not np.isfinite(error).all() or error.min() <= 0:
        return float("nan")
    return float(error.max() / error.min() - 1)
