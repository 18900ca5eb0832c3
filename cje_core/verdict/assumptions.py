"""The assumptions ledger: what each number of an analysis rests on, what was measured of it, and what to do.

The paper's table "Assumptions Ledger", one row each:

``overlap``              the logger gives what the target gives: the overlap gates; TTC (else ESS/n) is the number
``transport``            ``E[Y - f(Z)] = 0`` under the policy: the audit on probes, or how its labels stand to the
                         calibration of the other labelled policies
``mean_sufficiency``     ``E[Y | Z]`` is f in every region of the judge's scale: mean residuals in up to 3 regions, of
                         probes, or held-out of the labels that teach; sufficient for transport, not needed beside it
``monotonicity``         E[Y | S] is monotone in the judge's score: out-of-fold risk of the monotone calibrator less
                         that of a natural cubic spline in S, which may fall, against margin^2 (two functions that
                         differ by the margin in root mean square differ by that much in risk). Not the two-stage
                         calibrator's: with covariates it would win by those
``calibration_coverage`` labels lie where the policy's scores do: share out of range, and flat boundaries
``shared_prompts``       all policies answer the same prompts: how far restricting a policy to the prompts that all have
                         moves its mean calibrated reward

Verdicts are those of an audit. PASS: its interval lies within the margin (or its gates pass). FAIL: it lies beyond.
INCONCLUSIVE: neither; not rejecting is not evidence. NOT_CHECKED: nothing was measured.

Which estimators rest on an assumption follows from their own contract: what they need (``NEEDS``: log-likelihoods are
weighted, fresh responses are compared across policies), whether they calibrate (an argument ``calibration``), and
whether their values say that they borrow (`cje_core.inference.sources.borrows`).
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import xarray as xr

from cje_core.calibration.calibrated import Calibrated
from cje_core.calibration.calibrator import predict
from cje_core.calibration.folds import MIN_LABELLED_CLUSTERS, count_clusters
from cje_core.calibration.oracle_slice import OracleSlice, held_out
from cje_core.calibration.reliability import reliability
from cje_core.checks import FloatArray
from cje_core.data.arrays import Rows, count_prompts
from cje_core.formulas.proportions import wilson
from cje_core.inference.estimate import CI_BOUND, Status, wald
from cje_core.inference.influence import mean_part
from cje_core.inference.sources import borrows
from cje_core.inference.sums import cluster_se
from cje_core.transport.agreement import REGIONS
from cje_core.transport.audit import verdicts
from cje_core.transport.local_audits import binned_audit
from cje_core.verdict.gates import ope_ok
from cje_core.verdict.thresholds import BY_NAME

CI_PROB = 0.95
MIN_LABELS = 20  # for a spline beside an isotonic fit
SPLINE_KNOTS = (0.05, 0.275, 0.5, 0.725, 0.95)  # quantiles of the labelled scores (Harrell's five)
UNKNOWN = (np.nan, np.nan)


class Contract(NamedTuple):
    """What an estimator says of itself, of its module's ``NEEDS`` and the signature of its ``estimate``."""

    weights_logs: bool  # it needs log-likelihoods of logged responses
    calibrates: bool  # it takes a calibration


class Assumption(NamedTuple):
    """One row of the paper's table."""

    name: str
    measure: str  # what the number is
    fails: str  # what to do if it is violated
    unchecked: str  # what to do to have it checked, or decided


ASSUMPTIONS = (
    Assumption(
        "overlap", "TTC, or ESS/n where TTC is unknown",
        "use overlap weights, restrict the cohort, or use Direct (TTC below its gate: no reweighting mends it)",
        "log token counts and the target's own surprisals, or use Direct",
    ),
    Assumption(
        "transport", "mean residual Y - f(Z) of the policy, oracle units",
        "correct by the policy's probes or labels, or give no level",
        "probe responses of this policy until the audit decides",
    ),
    Assumption(
        "mean_sufficiency", f"mean residual in the worst of up to {REGIONS} regions of its scores, oracle units",
        "use the two-stage calibrator with covariates; not needed where transport passes",
        "probe more responses of this policy; not needed where transport passes",
    ),
    Assumption(
        "monotonicity", "out-of-fold risk of the monotone calibrator less that of a spline, squared units",
        "use the two-stage calibrator",
        f"label more: {MIN_LABELS} labels to compare at all",
    ),
    Assumption(
        "calibration_coverage", "share of the policy's responses outside the labelled judge range",
        "rank only, and label where scores lie outside the labelled range",
        "label responses with scores like this policy's",
    ),
    Assumption(
        "shared_prompts", "mean calibrated reward of its responses less that on the prompts that all policies have",
        "restrict all policies to the shared prompts, or use logged responses: differences now compare prompts too",
        "restrict all policies to the shared prompts, or read differences as unpaired, which holds if all prompts were "
        "drawn alike",
    ),
)  # fmt: skip


class Found(NamedTuple):
    """What was measured of one assumption for one policy."""

    verdict: str = "NOT_CHECKED"
    value: float = np.nan
    interval: tuple[float, float] | FloatArray = UNKNOWN
    said: str = ""  # what the number does not say
    threshold: float | None = None  # where it is not that of the whole row


def assumptions(
    given: Calibrated,
    estimates: Mapping[str, xr.Dataset],
    contracts: Mapping[str, Contract],
    *,
    transport: xr.Dataset,
    gates: xr.Dataset,
    agreement: xr.Dataset | None = None,
    overlap: xr.Dataset | None = None,
    coverage: xr.Dataset | None = None,
) -> xr.Dataset:
    """The assumptions ledger of one analysis; see the module.

    Parameters
    ----------
    given : Calibrated
    estimates : mapping of name to xr.Dataset
        The estimates of the analysis.
    contracts : mapping of name to Contract
        Of each estimator among them.
    transport, agreement, gates, overlap, coverage : xr.Dataset
        From `cje_core.transport.audit.audit`, whose margin is that of all rows, `cje_core.transport.agreement`,
        `cje_core.verdict.gates.evaluate`, `cje_core.offpolicy.overlap.overlap` and
        `cje_core.calibration.reliability.coverage_badge`.

    Returns
    -------
    xr.Dataset
        Over ``assumption, policy``: ``verdict`` (PASS, FAIL, INCONCLUSIVE, NOT_CHECKED), ``value`` and ``interval``
        (with ``ci_bound``; NaN where nothing was measured), ``threshold``, ``said`` (what the number does not say),
        ``action`` (empty on PASS). Over ``assumption``: ``measure`` (what the number is). Over ``assumption, policy,
        estimator``: ``relies``, whether that estimate of that policy rests on it.
    """
    names = [str(name) for name in given.data["policy"].values]
    margin = float(transport.attrs["margin"])
    found = {
        "overlap": _overlap(names, gates, overlap),
        "transport": _transport(names, transport, agreement),
        "mean_sufficiency": _mean_sufficiency(given, names, margin),
        "monotonicity": dict.fromkeys(names, _monotonicity(given, margin)),
        "calibration_coverage": _coverage(given, names, gates, coverage),
        "shared_prompts": _shared(given, names, margin),
    }
    threshold = dict.fromkeys(found, margin) | {
        "overlap": np.nan, "monotonicity": margin**2, "calibration_coverage": BY_NAME["identification"].good,
    }  # fmt: skip
    rows = [row.name for row in ASSUMPTIONS]
    table = [[found[row.name][name] for name in names] for row in ASSUMPTIONS]
    action = [
        [{"PASS": "", "FAIL": row.fails}.get(found[row.name][name].verdict, row.unchecked) for name in names]
        for row in ASSUMPTIONS
    ]
    cell = ("assumption", "policy")
    threshold_of = np.array(
        [
            [threshold[name] if at.threshold is None else at.threshold for at in row]
            for name, row in zip(rows, table, strict=True)
        ]
    )
    relies = np.stack(
        [_relies(estimates[name], contracts[name], given, names) for name in estimates], axis=-1
    )
    return xr.Dataset(
        {
            "verdict": (cell, np.array([[at.verdict for at in row] for row in table], dtype=str)),
            "value": (cell, np.array([[at.value for at in row] for row in table], float)),
            "interval": (
                (*cell, "ci_bound"),
                np.array([[tuple(at.interval) for at in row] for row in table], float),
            ),
            "said": (cell, np.array([[at.said for at in row] for row in table], dtype=str)),
            "action": (cell, np.array(action, dtype=str)),
            "measure": ("assumption", [row.measure for row in ASSUMPTIONS]),
            "threshold": (cell, threshold_of),
            "relies": ((*cell, "estimator"), relies),
        },
        coords={"assumption": rows, "policy": names, "ci_bound": CI_BOUND, "estimator": list(estimates)},
        attrs={"ci_prob": CI_PROB, "margin": margin},
    )


def _relies(estimate: xr.Dataset, contract: Contract, given: Calibrated, names: list[str]) -> np.ndarray:
    """Which assumptions each policy's value by one estimator rests on, shape (assumptions, policies)."""
    at = estimate[[name for name in ("status", "source") if name in estimate]].sel(policy=names)
    status = at["status"].values
    tried = (status < Status.TOO_FEW_LABELS) | np.isin(
        status, (Status.UNINFORMATIVE_JUDGE, Status.LOW_SUPPORT)
    )
    lends = borrows(at).values & tried & contract.calibrates
    fitted = given.slice
    monotone = fitted.calibrator is not None and fitted.mode != "two_stage"
    everyone = np.ones(len(names), dtype=bool)
    rests = {
        "overlap": everyone & contract.weights_logs,
        "transport": lends,
        "mean_sufficiency": lends,
        "monotonicity": lends & monotone,
        "calibration_coverage": lends,
        "shared_prompts": everyone & (not contract.weights_logs) & (len(names) > 1),
    }
    return np.stack([rests[row.name] for row in ASSUMPTIONS])


def _overlap(names: list[str], gates: xr.Dataset, overlap: xr.Dataset | None) -> dict[str, Found]:
    """By the gates: blocked is FAIL, unknown NOT_CHECKED, a warning INCONCLUSIVE."""
    if overlap is None:
        return dict.fromkeys(names, Found())
    states, out = ope_ok(gates), {}
    for name in names:
        at, state = overlap.sel(policy=name), states.sel(policy=name)
        about = gates.sel(policy=name).isel(gate=np.flatnonzero(gates["group"].values == "overlap"))
        warned = [
            str(gate)
            for gate, s in zip(about["gate"].values, about["state"].values, strict=True)
            if s == "warn"
        ]
        verdict = {"blocked": "FAIL", "unknown": "NOT_CHECKED"}.get(
            str(state["state"].item()), "INCONCLUSIVE" if warned else "PASS"
        )
        said = str(state["reason"].item()) or "; ".join(f"{gate} warns" for gate in warned)
        ttc = np.isfinite(float(at["ttc"]))
        value = float(at["ttc"] if ttc else at["ess_fraction"])
        least = float(gates["good"].sel(gate="ttc" if ttc else "ess"))
        out[name] = Found(verdict, value, at["ttc_interval"].values if ttc else UNKNOWN, said, least)
    return out


def _transport(names: list[str], transport: xr.Dataset, agreement: xr.Dataset | None) -> dict[str, Found]:
    """By the audit; without probes, labels that contradict the calibration of the others are a FAIL."""
    out = {}
    for name in names:
        at = transport.sel(policy=name)
        out[name] = Found(str(at["verdict"].item()), float(at["residual"]), at["interval"].values)
        if agreement is None or out[name].verdict != "NOT_CHECKED":
            continue
        other = agreement.sel(policy=name)
        if np.isfinite(float(other["shown_residual"])):
            interval = other["shown_interval"].values
            verdict = str(verdicts(interval[None], float(transport.attrs["margin"]))[0])
            said = "its labels by the calibration of the other labelled policies"
            out[name] = Found(verdict, float(other["shown_residual"]), interval, said)
    return out


def _mean_sufficiency(given: Calibrated, names: list[str], margin: float) -> dict[str, Found]:
    """Regional residuals of probes; of the labels that teach, held out, where a policy has no probes."""
    each = 1 - (1 - CI_PROB) / REGIONS  # all regions of a policy together
    audited = binned_audit(given, n_bins=REGIONS, ci_prob=each)
    teachers = {given.rows.policies[p] for p in np.unique(given.rows.policy[given.rows.teaches])}
    held = Found()
    if given.slice.calibrator is not None:
        bins = reliability(given, n_bins=REGIONS, ci_prob=each)
        gap = (bins["oracle_mean"] - bins["reward_mean"]).values
        interval = bins["interval"].values - bins["reward_mean"].values[:, None]
        held = _worst(gap, interval, margin, "labels that teach, held out")
    out = {}
    for name in names:
        at = audited.sel(policy=name)
        probed = _worst(at["residual"].values, at["interval"].values, margin, "")
        out[name] = held if probed.verdict == "NOT_CHECKED" and name in teachers else probed
    return out


def _worst(residual: FloatArray, interval: FloatArray, margin: float, said: str) -> Found:
    """Largest of several residuals by the verdict on all: one beyond the margin fails, all within pass."""
    some = np.isfinite(interval).all(axis=1)
    if not some.any():
        return Found()
    each, residual, interval = verdicts(interval[some], margin), residual[some], interval[some]
    verdict = "FAIL" if (each == "FAIL").any() else "PASS" if (each == "PASS").all() else "INCONCLUSIVE"
    at = np.flatnonzero(each == verdict)
    worst = int(at[np.argmax(np.abs(residual[at]))])
    return Found(verdict, float(residual[worst]), interval[worst], said)


def _monotonicity(given: Calibrated, margin: float) -> Found:
    """Held-out risk of the monotone calibrator of S less that of a spline that may fall; margin^2 is harmless."""
    monotone = given.monotone
    if monotone.calibrator is None or len(monotone.label) < MIN_LABELS:
        return Found()
    guesses = held_out(monotone, monotone.z, monotone.prompt), _spline_held_out(monotone)
    loss = [(monotone.label - guess) ** 2 for guess in guesses]
    value, interval = _mean_of_labels(given.rows, monotone, loss[0] - loss[1])
    if not np.isfinite(interval).all():
        return Found()
    low, high = interval
    verdict = "PASS" if high <= margin**2 else "FAIL" if low > margin**2 else "INCONCLUSIVE"
    return Found(verdict, value, interval, "not monotone" if low > 0 else "")


def _spline_held_out(fitted: OracleSlice) -> FloatArray:
    """Natural cubic spline in the judge's score, least squares on the other folds, cut to their labels' range; (m,)."""
    score = fitted.z[:, 0]
    knot = np.unique(np.quantile(score, SPLINE_KNOTS))
    span = max(float(np.ptp(score)), np.finfo(float).tiny)
    basis = [np.ones(len(score)), (score - score.min()) / span]
    for k in range(len(knot) - 2):
        cube = np.maximum((score[:, None] - knot[[k, -2, -1]]) / span, 0.0) ** 3
        first, last = (
            (cube[:, 0] - cube[:, 2]) / (knot[-1] - knot[k]),
            (cube[:, 1] - cube[:, 2]) / (knot[-1] - knot[-2]),
        )
        basis.append((first - last) * span)
    design, out = np.stack(basis, axis=1), np.full(len(score), np.nan)
    fold, root = fitted.fold[fitted.prompt], np.sqrt(fitted.weight)
    for k in np.unique(fold):
        train = fold != k
        if train.any():
            weighted = design[train] * root[train, None]
            coef = np.linalg.lstsq(weighted, root[train] * fitted.label[train], rcond=None)[0]
            label = fitted.label[train]
            out[~train] = np.clip(design[~train] @ coef, label.min(), label.max())
    return out


def _mean_of_labels(rows: Rows, fitted: OracleSlice, values: FloatArray) -> tuple[float, FloatArray]:
    """Weighted mean over the labels that teach, with its t interval by cluster."""
    index = np.flatnonzero(rows.teaches)
    mean, part = mean_part(rows, index, values, fitted.weight)
    return mean, np.asarray(wald(mean, cluster_se(part.influence, rows.cluster), part.df, CI_PROB))


def _coverage(
    given: Calibrated, names: list[str], gates: xr.Dataset, coverage: xr.Dataset | None
) -> dict[str, Found]:
    """By the gate of identification: mass out of range counts where the calibrator is flat."""
    if coverage is None or "identification" not in gates["gate"].values:
        return dict.fromkeys(names, Found())
    states = gates.sel(gate="identification")["state"]
    out = {}
    for name in names:
        at, state = coverage.sel(policy=name), str(states.sel(policy=name).item())
        share = float(at["out_of_range"])
        rows = given.rows
        n = count_prompts(rows, rows.evaluated & (rows.policy == rows.policies.index(name)))
        if not np.isfinite(share):
            out[name] = Found()
            continue
        verdict = {"pass": "PASS", "unknown": "NOT_CHECKED"}.get(state, "FAIL")
        rises = share > BY_NAME["identification"].good and verdict == "PASS"
        if rises:  # the gate lets it pass, since the calibrator is not flat at that end; nothing shows what lies beyond
            verdict = "INCONCLUSIVE"
        out[name] = Found(verdict, share, wilson(share, n, CI_PROB), "boundaries not flat" if rises else "")
    return out


def _shared(given: Calibrated, names: list[str], margin: float) -> dict[str, Found]:
    """One set of prompts is a PASS; else by how far the prompts that not all policies have move a policy's mean."""
    rows, f = given.rows, given.slice.calibrator
    answered = given.data["evaluated"].any("draw").transpose("policy", "prompt").values
    having = answered.any(axis=1)
    common = answered[having].all(axis=0) if having.any() else answered.any(axis=0)
    shared = set(given.data["prompt"].values[common].astype(str).tolist())
    in_common = np.isin(rows.prompts, list(shared))
    out = {}
    for k, name in enumerate(names):
        if having.sum() < 2 or not answered[k].any():
            out[name] = Found()
            continue
        at = np.flatnonzero((rows.policy == rows.policies.index(name)) & rows.evaluated)
        inside = at[in_common[rows.prompt[at]]]
        n, n_shared = count_prompts(rows, at), count_prompts(rows, inside)
        said = f"{n_shared} of its {n} prompts are shared by all policies"
        found = Found("PASS" if n == n_shared else "INCONCLUSIVE", said=said)
        if n > n_shared and f is not None and count_clusters(rows, inside) >= MIN_LABELLED_CLUSTERS:
            whole, part = (mean_part(rows, i, predict(f, rows.z[i]), rows.weight[i]) for i in (at, inside))
            gap = whole[0] - part[0]
            error = cluster_se(whole[1].influence - part[1].influence, rows.cluster)
            interval = np.asarray(wald(gap, error, min(whole[1].df, part[1].df), CI_PROB))
            found = Found(str(verdicts(interval[None], margin)[0]), gap, interval, said)
        out[name] = found
    return out
