"""The reporting ledger: everything the paper's "Reporting ledger" and "Persisted artifacts" ask to keep, per policy.

One Dataset over ``policy`` that can be written to netCDF and read back the same. `ENTRIES` is its table of contents:
each variable, the item of the paper's list it belongs to, the piece it comes from, and what it means (also in its
attributes). A variable whose piece was not given, or does not carry it, is NaN or empty text and is named in the
attribute ``missing``: a reader can tell "not computed" from "computed and unknown".
"""

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr

from cje_core.calibration.calibrated import Calibrated, calibrated
from cje_core.calibration.calibrator import predict
from cje_core.calibration.oracle_slice import OracleSlice, held_out
from cje_core.calibration.reliability import fingerprint
from cje_core.checks import one_of
from cje_core.inference.sums import cluster_se
from cje_core.io.intake.names import CAUTION

SCHEMA = "cje-ledger/1"


class Entry(NamedTuple):
    """One variable of the ledger."""

    name: str
    item: str  # of the paper's list
    piece: str  # argument of `ledger` it comes from; "data" where it is computed here
    about: str
    source: str = ""  # its name in the piece, if another
    text: bool = False


ENTRIES = (
    Entry("calibrator_mode", "calibrator", "data", "index of the calibrator", text=True),
    Entry("calibrator_hash", "calibrator", "data", "hash of the knots and levels of f", text=True),
    Entry("calibrator_knot", "calibrator", "calibrator", "knots of f, on its index, the judge score if monotone"),
    Entry("calibrator_level", "calibrator", "calibrator", "levels of f at the knots, oracle units"),
    Entry("reward_pooled", "calibrator", "calibrator", "f at each label that taught it"),
    Entry("reward_oof", "calibrator", "calibrator", "f at each label, fitted without the label's fold"),
    Entry("reward_label", "calibrator", "calibrator", "the label"),
    Entry("n_teaching_labels", "calibrator", "data", "labels that taught f"),
    Entry("oof_rmse", "calibrator", "reliability", "out-of-fold root mean squared error of f"),
    Entry("oof_rmse_tertile", "calibrator", "reliability", "the same by tertile of the judge score"),
    Entry("reliability_term", "calibrator", "reliability", "mean squared gap of label and reward over bins"),
    Entry("covers_diagonal", "calibrator", "reliability", "1 if all simultaneous intervals reach it"),
    Entry("beta", "weights", "estimate", "stacking weights of the candidates, the identity included"),
    Entry("alpha", "weights", "estimate", "blend of the guard: 1 is no shrinkage"),
    Entry("orientation", "weights", "stabilisation", "map with the larger beta: up, down or none", text=True),
    Entry("map_score", "weights", "stabilisation", "scores at the ends of the blocks of the isotonic maps"),
    Entry("map_weight", "weights", "stabilisation", "weights there, of mean one where the map was fitted"),
    Entry("alpha_by_fold", "weights", "stabilisation", "blend that the guard would ask of one fold alone"),
    Entry("mean_weight", "weights", "stabilisation", "mean of the stabilised weights: one, but for rounding"),
    Entry("stack_weight", "weights", "estimate", "weights of the members of a stack of estimators"),
    Entry("rho", "weights", "options", "cap of the guard on the variance of the weights"),
    Entry("guard_engaged", "weights", "estimate", "share of maps whose guard acted"),
    Entry("ess_fraction", "overlap", "overlap", "effective sample size of the raw weights over n"),
    Entry("ess_fraction_stabilised", "overlap", "overlap", "the same of the stabilised weights"),
    Entry("max_share", "overlap", "overlap", "largest raw weight over their sum"),
    Entry("q995", "overlap", "overlap", "99.5th percentile of the mean-one weights"),
    Entry("hill", "overlap", "overlap", "tail index: median over the grid"),
    Entry("hill_lower", "overlap", "overlap", "tail index: lower quartile over the grid"),
    Entry("hill_upper", "overlap", "overlap", "tail index: upper quartile over the grid"),
    Entry("affinity", "overlap", "overlap", "Bhattacharyya affinity in judge space"),
    Entry("ttc", "overlap", "overlap", "logger mass of the target's typical set"),
    Entry("ttc_interval", "overlap", "overlap", "its interval"),
    Entry("cle_factor", "overlap", "overlap", "coverage-limited efficiency factor"),
    Entry("out_of_range", "coverage badge", "coverage", "share of responses outside the labelled judge range"),
    Entry("slope_low", "coverage badge", "coverage", "slope of f at the lower end of the labelled range"),
    Entry("slope_high", "coverage badge", "coverage", "slope of f at its upper end"),
    Entry("labels_near", "coverage badge", "coverage", "labels between its 10th and 90th score percentile"),
    Entry("orthogonality", "doubly robust", "estimate", "orthogonality score"),
    Entry("orthogonality_interval", "doubly robust", "estimate", "its interval"),
    Entry("direct_part", "doubly robust", "estimate", "DM part of the DM-IPS split"),
    Entry("ips_part", "doubly robust", "estimate", "IPS part of the DM-IPS split"),
    Entry("part_correlation", "doubly robust", "estimate", "correlation of their contributions"),
    Entry("residual_nan", "doubly robust", "estimate", "share of the judged logged responses without W (R - q)"),
    Entry("residual_df", "doubly robust", "estimate", "degrees of freedom of the variance of W (R - q)"),
    Entry("estimate", "estimator", "estimate", "value, oracle units"),
    Entry("std_error", "estimator", "estimate", "standard error, calibration included"),
    Entry("interval", "estimator", "estimate", "interval of the value"),
    Entry("df", "estimator", "estimate", "degrees of freedom of the interval"),
    Entry("status", "estimator", "estimate", "code of cje_core.inference.estimate.Status"),
    Entry("route", "estimator", "estimate", "how the number came about", text=True),
    Entry("influence_hash", "estimator", "estimate", "hash of the influence values", text=True),
    Entry("std_error_cluster", "estimator", "estimate", "sandwich standard error by the declared clusters"),
    Entry("std_error_evaluation", "uncertainty", "estimate", "standard error with f taken as known"),
    Entry("std_error_calibration", "uncertainty", "estimate", "standard error that comes from learning f"),
    Entry("calibration_share", "uncertainty", "estimate", "share of the variance that comes from learning f"),
    Entry("std_error_serial", "uncertainty", "serial", "standard error in blocks of time (stationary bootstrap)"),
    Entry("mean_block", "uncertainty", "serial", "mean length of these blocks, in prompts or clusters"),
    Entry("jackknife", "uncertainty", "variance", "value with each fold of labels left out"),
    Entry("variance_main", "uncertainty", "variance", "variance of the jackknife's estimate with f taken as known"),
    Entry("variance_calibration", "uncertainty", "variance", "variance that the left-out folds add"),
    Entry("variance_total", "uncertainty", "variance", "their sum"),
    Entry("transport_residual", "transport", "transport", "mean residual on probes", "residual"),
    Entry("transport_interval", "transport", "transport", "its interval", "interval"),
    Entry("transport_verdict", "transport", "transport", "PASS, FAIL, INCONCLUSIVE, NOT_CHECKED", "verdict", True),
    Entry("n_probes", "transport", "transport", "probe labels"),
    Entry("label_disagreement", "transport", "agreement",
          "mean residual of the policy's labels by the calibration of the other labelled policies, "
          "or where it is worst",
          "shown_residual"),
    Entry("label_disagreement_interval", "transport", "agreement",
          "its interval, simultaneous over policies", "shown_interval"),
    Entry("labels_contradict", "transport", "agreement", "whether it lies beyond the margin", "contradicts"),
    Entry("gate_state", "gates", "gates", "state of every gate", "state", True),
    Entry("gate_value", "gates", "gates", "what every gate read", "value"),
    Entry("assumption_verdict", "assumptions", "assumptions", "PASS, FAIL, INCONCLUSIVE, NOT_CHECKED", "verdict", True),
    Entry("assumption_value", "assumptions", "assumptions", "what was measured of it", "value"),
    Entry("assumption_interval", "assumptions", "assumptions", "its interval", "interval"),
    Entry("assumption_threshold", "assumptions", "assumptions", "what it is held against", "threshold"),
    Entry("assumption_relies", "assumptions", "assumptions", "whether an estimate rests on it", "relies"),
    Entry("assumption_action", "assumptions", "assumptions", "what to do", "action", True),
    Entry("interval_if_biased", "transport", "sensitivity",
          "interval of the level if the transport residual is anything up to delta", "interval"),
    Entry("flips_at", "transport", "tipping",
          "bound on the transport residual from which the difference from each other policy is undecided"),
    Entry("level", "gates", "levels", "reported, assumed or refused", text=True),
    Entry("level_source", "gates", "levels", "own, probes, borrowed or none", "source", True),
    Entry("level_reason", "gates", "levels", "why it is refused", "reason", True),
    Entry("cohort_value", "cohorts", "cohorts", "value in each cohort, oracle units", "estimate"),
    Entry("cohort_interval", "cohorts", "cohorts", "its interval", "interval"),
    Entry("cohort_level", "cohorts", "cohorts", "reported, assumed or refused", "level", True),
    Entry("cohort_share", "cohorts", "cohorts", "share of the policy's prompts", "share"),
    Entry("cohort_p_bh", "cohorts", "cohorts", "adjusted p-value of the difference from the whole", "p_bh"),
    Entry("cohort_difference", "cohorts", "cohorts", "the cohort's value minus the whole's", "difference"),
    Entry("cohort_difference_std_error", "cohorts", "cohorts", "its standard error", "difference_std_error"),
    Entry("cohort_prompts", "cohorts", "cohorts", "prompts of the policy in the cohort", "n_prompts"),
    Entry("cohort_labels", "cohorts", "cohorts", "its own labels there", "n_labels"),
    Entry("cohort_probes", "cohorts", "cohorts", "its probes there", "n_probes"),
    Entry("cohort_probe_residual", "cohorts", "cohorts", "mean residual of these probes", "probe_residual"),
    Entry("cohort_probe_p_bh", "cohorts", "cohorts", "adjusted p-value of that residual", "probe_p_bh"),
    Entry("cohort_logged", "cohorts", "cohorts", "logged responses with weights", "n_logged"),
    Entry("cohort_ess_fraction", "cohorts", "cohorts", "effective sample size over n, raw weights", "ess_fraction"),
    Entry("cohort_max_share", "cohorts", "cohorts", "largest raw weight over their sum", "max_share"),
    Entry("cohort_hill", "cohorts", "cohorts", "tail index of the raw weights there", "hill"),
    Entry("cohort_ttc", "cohorts", "cohorts", "logger's mass of what the policy typically says there", "ttc"),
    Entry("cohort_label_residual", "cohorts", "cohorts", "mean residual of its labels that taught f", "label_residual"),
    Entry("cohort_label_interval", "cohorts", "cohorts", "its interval", "label_interval"),
    Entry("cohort_label_p_bh", "cohorts", "cohorts", "adjusted p-value of that residual", "label_p_bh"),
    Entry("cohort_label_slope", "cohorts", "cohorts", "slope of its labels in their rewards", "label_slope"),
    Entry("n_responses", "filters", "data", "evaluated responses"),
    Entry("left_out", "filters", "left_out", "rows left out, by reason; rows of no policy count for each"),
    Entry("included", "filters", "data", "prompts that enter the mean (inclusion manifest)"),
    Entry("manifest_hash", "filters", "data", "hash of the ids of those prompts", text=True),
    Entry("p_adjusted", "multiplicity", "contrasts", "adjusted p-value of the difference from each other policy"),
)  # fmt: skip

# What `ledger` takes beside data, an estimate and rows left out.
FOUND = (
    "overlap", "coverage", "reliability", "transport", "agreement", "gates", "levels", "sensitivity", "contrasts",
    "tipping", "assumptions", "stabilisation", "variance", "cohorts", "serial",
)  # fmt: skip


def ledger(
    data: xr.Dataset | Calibrated,
    *,
    estimate: xr.Dataset | None = None,
    left_out: pd.DataFrame | None = None,
    q: float = 0.05,
    **found: xr.Dataset | None,
) -> xr.Dataset:
    """Gather what there is into the reporting ledger.

    Parameters
    ----------
    data : xr.Dataset or Calibrated
    estimate : xr.Dataset, optional
    left_out : DataFrame, optional
        Rows left out (`cje_core.io.files.read`): columns ``policy`` and ``reason``.
    q : float
        Level at which the adjusted p-values are read.
    **found : xr.Dataset, optional
        Any of ``overlap``, ``coverage``, ``reliability``, ``transport``, ``agreement``, ``gates``, ``levels``,
        ``sensitivity``, ``contrasts``, ``tipping``, ``assumptions``, ``stabilisation``, ``variance``, ``cohorts``,
        ``serial``: from `cje_core.offpolicy.overlap.overlap`, `cje_core.calibration.reliability.coverage_badge` and
        ``reliability``, `cje_core.transport.audit.audit`, `cje_core.transport.agreement.agreement`,
        `cje_core.verdict.gates.evaluate`, `cje_core.verdict.refusal.level`, `cje_core.transport.sensitivity.levels`,
        `cje_core.inference.contrasts.contrasts` (of the estimate), `cje_core.transport.sensitivity.tipping_points`,
        `cje_core.verdict.assumptions.assumptions`, `cje_core.workflow.steps.stabilise.stabilisation` (of one Delta),
        `jackknife_trace` (default: of the estimate, where it is a jackknife's), a table over ``policy, cohort`` and
        `cje_core.workflow.serial.serial_errors`.

    Returns
    -------
    xr.Dataset
        Over ``policy``: the variables of `ENTRIES`, each with attributes ``item`` and ``about``; attributes ``missing``
        (JSON list), ``multiplicity`` (JSON: size of the family, method, q), ``estimator``, ``options`` and ``cohort``.
    """
    given = calibrated(data)
    data = given.data
    names = [str(name) for name in data["policy"].values]
    for name in found:
        one_of(name, "a piece of the ledger", FOUND)
    contrasts = found.get("contrasts")
    fitted = given.slice_with_logs if "logged_judge" in data else given.slice
    pieces: dict[str, Any] = {
        **found,
        "estimate": _with_hash(estimate, clustered="cluster" in data),
        "variance": _variance(found.get("variance"), estimate),
        "calibrator": _calibrator(fitted),
        "reliability": _from_attributes(found.get("reliability"), names),
        "contrasts": _symmetric(contrasts, ("p_adjusted", "p_bh"), "p_adjusted", names),
        "tipping": _symmetric(found.get("tipping"), ("tipping",), "flips_at", names),
        "left_out": _counted(left_out, names),
        "options": _options(estimate, names),
        "data": _from_data(data, fitted, names),
    }
    kept = {name: _kept(piece, name, names) for name, piece in pieces.items() if piece is not None}
    columns: dict[str, xr.Variable] = {}
    missing = []
    coords: dict[str, Any] = {"policy": names}
    labels = {"policy": pd.Index(names)}  # of each dimension, by the piece that is first to have it
    for entry in ENTRIES:
        piece, source = kept.get(entry.piece), entry.source or entry.name
        if piece is not None and source in piece:
            column = piece[source]
            for dim, index in column.indexes.items():
                if not labels.setdefault(str(dim), index).equals(index):
                    column = column.reindex({dim: labels[str(dim)]})
                coords.setdefault(str(dim), column[dim].variable)
            variable = column.variable.astype(str) if entry.text else column.variable.copy(deep=False)
        else:
            missing.append(entry.name)
            variable = xr.Variable("policy", np.full(len(names), "" if entry.text else np.nan))
        variable.attrs = {"item": entry.item, "about": entry.about}
        columns[entry.name] = variable
    out = xr.Dataset(columns, coords)
    family: dict[str, Any] = {"family": 0, "method": "none", "q": q}
    if contrasts is not None:
        family |= {"family": contrasts.sizes["pair"], "method": str(contrasts.attrs["adjustment"])}
    out.attrs = {
        "schema": SCHEMA,
        "missing": json.dumps(missing),
        "multiplicity": json.dumps(family),
        "estimator": "" if estimate is None else str(estimate.attrs["estimator"]),
        "options": "{}" if estimate is None else str(estimate.attrs["options"]),
        "cohort": str(data.attrs.get("cohort", "")),  # all prompts where it is empty
    }
    return out


def jackknife_trace(estimate: xr.Dataset) -> xr.Dataset:
    """The trace of an estimate with ``inference="jackknife"``.

    Returns
    -------
    xr.Dataset
        Over ``policy``: ``jackknife(fold)``, the values without each oracle fold (absent where no policy has them);
        ``variance_main``, ``variance_calibration`` and ``variance_total``, their sum, in squared oracle units.
    """
    main, labels = (estimate[f"std_error_{part}"] ** 2 for part in ("evaluation", "calibration"))
    parts = {"variance_main": main, "variance_calibration": labels, "variance_total": main + labels}
    if "jackknife" in estimate:
        parts["jackknife"] = estimate["jackknife"]
    return xr.Dataset(parts).reset_coords(drop=True).drop_vars("fold", errors="ignore")


def digest(*arrays: npt.ArrayLike) -> str:
    """Hash of numbers to nine significant digits (or of texts), so that the last bits of a machine do not show.

    Examples
    --------
    >>> digest([0.1 + 0.2]) == digest([0.3]), digest(["a", "bc"]) == digest(["ab", "c"])
    (True, False)
    """
    out = blake2b(digest_size=8)
    for array in arrays:
        values = np.asarray(array)
        texts = [f"{v:.9g}" if values.dtype.kind in "fiu" else str(v) for v in values.ravel().tolist()]
        out.update(json.dumps([values.shape, texts]).encode())
    return out.hexdigest()


def _kept(piece: xr.Dataset, name: str, names: list[str]) -> xr.Dataset:
    """The variables over ``policy`` that the ledger takes from a piece, in its order of policies."""
    sources = [entry.source or entry.name for entry in ENTRIES if entry.piece == name]
    if name == "calibrator":  # one for all policies
        return piece
    taken = [source for source in sources if source in piece and "policy" in piece[source].dims]
    found = piece[taken].reset_coords(drop=True)
    return found.sel(policy=names) if taken else found


def _variance(trace: xr.Dataset | None, estimate: xr.Dataset | None) -> xr.Dataset | None:
    if trace is None and estimate is not None and "jackknife" in estimate:
        return jackknife_trace(estimate)
    return trace


def _calibrator(fitted: OracleSlice) -> xr.Dataset | None:
    """Knots and levels of f, and its values at the labels that taught it, pooled and held out."""
    f = fitted.calibrator
    if f is None:
        return None
    return xr.Dataset(
        {
            "calibrator_knot": ("knot", f.knot),
            "calibrator_level": ("knot", f.value),
            "reward_pooled": ("taught", predict(f, fitted.z)),
            "reward_oof": ("taught", held_out(fitted, fitted.z, fitted.prompt)),
            "reward_label": ("taught", fitted.label),
        }
    )


def _from_data(data: xr.Dataset, fitted: OracleSlice, names: list[str]) -> xr.Dataset:
    f = fitted.calibrator
    evaluated = data["evaluated"]
    included = evaluated.any("draw")
    prompts = data["prompt"].values.astype(str)
    same = {
        "calibrator_mode": "" if f is None else f.mode,
        "calibrator_hash": "" if f is None else fingerprint(f),
        "n_teaching_labels": float(len(fitted.label)),
    }
    columns = {key: ("policy", np.full(len(names), value)) for key, value in same.items()}
    manifests = [digest(np.sort(prompts[row])) for row in included.transpose("policy", "prompt").values]
    return xr.Dataset(
        {
            **columns,
            "n_responses": evaluated.sum(("prompt", "draw")),
            "included": included,
            "manifest_hash": ("policy", np.array(manifests, dtype=str)),
        },
        coords={"policy": names},
    )


def _with_hash(estimate: xr.Dataset | None, *, clustered: bool) -> xr.Dataset | None:
    """The estimate with hashes of its influence values, and their sandwich standard error by declared clusters."""
    if estimate is None or "influence" not in estimate:
        return estimate
    influence = estimate["influence"].transpose("policy", "prompt").values
    out = estimate.assign(influence_hash=("policy", np.array([digest(row) for row in influence], dtype=str)))
    if not clustered or "cluster" not in estimate.coords:
        return out
    _, code = np.unique(estimate["cluster"].values.astype(str), return_inverse=True)
    return out.assign(std_error_cluster=("policy", cluster_se(influence, code)))


def _from_attributes(reliability: xr.Dataset | None, names: list[str]) -> xr.Dataset | None:
    """Give every policy what the reliability table says of the one calibrator they share."""
    if reliability is None:
        return None
    found: dict[str, Any] = {}
    for name in (e.name for e in ENTRIES if e.piece == "reliability" and e.name in reliability.attrs):
        values = np.asarray(reliability.attrs[name], dtype=float)
        dims = ("policy", *["tertile"] * values.ndim)
        found[name] = (dims, np.broadcast_to(values, (len(names), *values.shape)))
    return xr.Dataset(found, coords={"policy": names})


def _options(estimate: xr.Dataset | None, names: list[str]) -> xr.Dataset | None:
    """Numbers among the estimator's options that the ledger keeps per policy."""
    options: Mapping[str, Any] = {} if estimate is None else json.loads(estimate.attrs["options"])
    if "rho" not in options:
        return None
    rho = np.full(len(names), float(options["rho"]))
    return xr.Dataset({"rho": ("policy", rho)}, coords={"policy": names})


def _counted(left_out: pd.DataFrame | None, names: list[str]) -> xr.Dataset | None:
    if left_out is None:
        return None
    left_out = left_out[~left_out["reason"].astype(str).str.startswith(CAUTION)]
    reasons = sorted(left_out["reason"].astype(str).unique())
    counts = np.zeros((len(names), len(reasons)), dtype=np.int64)
    for policy, reason in zip(left_out["policy"].astype(str), left_out["reason"].astype(str), strict=True):
        of = [names.index(policy)] if policy in names else range(len(names))
        counts[of, reasons.index(reason)] += 1
    return xr.Dataset(
        {"left_out": (("policy", "filter"), counts)},
        coords={"policy": names, "filter": np.array(reasons, dtype=str)},
    )


def _symmetric(
    pairs: xr.Dataset | None, sources: Sequence[str], name: str, names: list[str]
) -> xr.Dataset | None:
    """The first of `sources` that a table of pairs has, as a symmetric matrix with NaN on its diagonal."""
    source = next((s for s in sources if pairs is not None and s in pairs), None)
    if pairs is None or source is None:
        return None
    matrix = np.full((len(names), len(names)), np.nan)
    columns = (pairs[column].values for column in ("first", "second", source))
    for first, second, value in zip(*columns, strict=True):
        a, b = names.index(str(first)), names.index(str(second))
        matrix[a, b] = matrix[b, a] = value
    return xr.Dataset({name: (("policy", "other"), matrix)}, coords={"policy": names, "other": names})
