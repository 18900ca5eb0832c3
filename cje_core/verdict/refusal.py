"""REFUSE-LEVEL: when a level may not be reported, and what is reported in its place.

The paper's gates refuse the level of a policy whose calibration has no support where its scores lie (identification),
and its transport audit those to which the calibration does not transport. What remains is bounds and order.

*Partial identification.* Where a policy's scores lie outside the labelled range, nothing is known of E[Y | S] but the
oracle's scale [l, h], so with q the share of responses out of range

    E[f(Z) 1(in)] + q l  <=  V(policy)  <=  E[f(Z) 1(in)] + q h,

which assumes transport *inside* the range: bounds are no answer to a failed audit. A covariate outside its labelled
range puts a response out of range as well. With ``monotone=True`` E[Y | S] is also taken to be nondecreasing, so f at
the range's end bounds it from one side (not where a covariate is outside). The interval covers the value, not the
whole set of bounds (Imbens and Manski, "Confidence intervals for partially identified parameters"): its critical value
falls from the two-sided to the one-sided t quantile as the bounds draw apart.

*Order.* A refused policy can still be ranked where its bounds, or its probe-corrected interval, lie clear of another
policy's interval: `rank_only`, the paper's "rank-only conclusions with conservative relative CIs".
"""

from itertools import combinations

import numpy as np
import xarray as xr

from cje_core.calibration.calibrated import Calibrated, calibrated
from cje_core.calibration.calibrator import predict
from cje_core.calibration.oracle_slice import calibration_part, outside
from cje_core.checks import probability
from cje_core.data.construct import dataset, in_order
from cje_core.inference.estimate import CI_BOUND, Row, Status
from cje_core.inference.influence import combine, mean_part
from cje_core.inference.sources import earned
from cje_core.transport.sensitivity import beyond_bias
from cje_core.verdict.gates import cells, describe

JUDGE = "judge score"  # the column of Z that is no covariate
COLUMNS = ("level", "source", "refused_by", "reason", "caveat")
SEEN = 0.005  # shares up to it are printed as 0%


def level(evaluated: xr.Dataset, estimate: xr.Dataset, probed: xr.Dataset | None = None) -> xr.Dataset:
    """What each policy's value rests on, and so whether its level is reported, assumed or refused.

    ``reported``  labels or probes of the policy's own are in the value, and it has an interval: no calibration has
                  to transport, so no gate takes the level away
    ``assumed``   no label of the policy's own: a calibration that is borrowed, with neither gates nor audit against it
                  (true if the judge means the same here), the judge at its word, or weighted logs
    ``refused``   no value, no interval, or one that is assumed and that a gate blocks (transport FAIL, no
                  identification)

    Parameters
    ----------
    evaluated : xr.Dataset
        From `cje_core.verdict.gates.evaluate`. An unknown gate refuses nothing; it is named in `caveat`.
    estimate : xr.Dataset
        The estimate whose levels are asked for.
    probed : xr.Dataset, optional
        Estimate of `cje_core.estimators.direct_corrected`: it takes the place of a borrowed value wherever it has one,
        whatever the audit said. To let the audit choose would be a pretest, whose value covers far less than it says.

    Returns
    -------
    xr.Dataset
        Over ``policy``: ``level``; ``source`` of the value (own, probes, borrowed, judge, logs, none); ``refused_by``
        (gates, comma-separated; ``estimate`` for a failed one, ``interval`` where there is none), ``reason``,
        ``caveat`` (level gates that warn or fail on an assumed value without blocking it, each with what to do, and
        those unknown).
    """
    about = evaluated.isel(gate=np.flatnonzero(evaluated["applies_to"].values == "level"))
    own = dict(zip(estimate["policy"].values.astype(str), earned(estimate).values, strict=True))
    rows = []
    for policy, gates in zip(evaluated["policy"].values.astype(str).tolist(), cells(about), strict=True):
        status = Status(int(Row.of(estimate, policy).take("status")))
        named, reasons, doubts = [], [], []
        owned = bool(own[policy]) and not status.failed
        if owned and bounded(estimate, policy):
            source, shown = "own", estimate
        elif probed is not None and bounded(probed, policy):
            source, shown = "probes", probed
        elif owned:
            source, shown = "own", estimate
        elif status.failed:
            source, shown = "none", None
            named, reasons = ["estimate"], [status.message]
        else:
            source, shown = _lent(estimate, policy), estimate
            blocked = [gate for gate in gates if gate.blocked]
            named, reasons = [gate.gate for gate in blocked], [gate.action for gate in blocked]
            doubts = [gate for gate in gates if not gate.blocked and gate.state != "pass"]
        if shown is not None and not bounded(shown, policy):
            named, reasons = ["interval", *named], [status.message, *reasons]
        word = "refused" if named else "reported" if source in ("own", "probes") else "assumed"
        words = [": ".join(filter(None, [describe(gate), gate.action])) for gate in doubts]
        rows.append((word, source, ", ".join(named), "; ".join(dict.fromkeys(reasons)), "; ".join(words)))
    columns = np.array(rows, dtype=str).reshape(-1, 5).T
    return xr.Dataset(
        {name: ("policy", column) for name, column in zip(COLUMNS, columns, strict=True)},
        coords={"policy": evaluated["policy"].values},
    )


def name_outside(levels: xr.Dataset, bounds: xr.Dataset) -> xr.Dataset:
    """Levels whose reason LOW_SUPPORT says what lies outside the labels' range, and how much of it.

    From `level` and `partial_identification`.
    """
    reasons = []
    for policy, reason in zip(levels["policy"].values, levels["reason"].values.astype(str), strict=True):
        share = bounds["outside"].sel(policy=policy)
        named = [f"{column} {part:.0%}" for column, part in share.to_series().items() if part > SEEN]
        if named and Status.LOW_SUPPORT.message in reason:
            reason = f"{reason} (outside the labels' range: {', '.join(named)} of responses)"
        reasons.append(reason)
    return levels.assign(reason=("policy", np.array(reasons, dtype=str)))


def _lent(estimate: xr.Dataset, policy: str) -> str:
    """What a value without labels of the policy's own rests on: borrowed where the estimate does not say."""
    source = str(estimate["source"].sel(policy=policy).item()) if "source" in estimate else "borrowed"
    return source if source in ("judge", "logs") else "borrowed"


def wants_support(level: xr.Dataset, estimate: xr.Dataset) -> bool:
    """Whether one policy's level is refused for want of labels where its scores lie, and for nothing else."""
    refused_by = str(level["refused_by"].item())
    return refused_by == "identification" or (
        bool(refused_by) and int(estimate["status"]) == Status.LOW_SUPPORT
    )


def _basis(level: xr.Dataset, estimate: xr.Dataset) -> str:
    """Which piece orders one policy: estimate, corrected, bounds or none."""
    refused_by = str(level["refused_by"].item())
    if str(level["source"].item()) == "probes" or "transport" in refused_by:
        return "corrected"
    if not refused_by:
        return "estimate"
    return "bounds" if wants_support(level, estimate) else "none"


def bounded(estimate: xr.Dataset, policy: str) -> bool:
    """Whether one policy has a value with both ends of an interval."""
    at = Row.of(estimate, policy)
    return bool(np.isfinite(at.take("estimate")) and np.isfinite(at.take("interval")).all())


def partial_identification(
    data: xr.Dataset | Calibrated, *, ci_prob: float = 0.95, monotone: bool = False
) -> xr.Dataset:
    """Bounds on each policy's value that claim nothing where no label was; see the module.

    Parameters
    ----------
    data : xr.Dataset or Calibrated
        The labelled range is that of the judge scores, and of the covariates, of the labels that teach.
    ci_prob : float
        Probability that the interval covers the value.
    monotone : bool
        Take E[Y | S] to be monotone in the judge score outside the range too.

    Returns
    -------
    xr.Dataset
        Over ``policy``: ``bounds`` and ``interval`` (with ``ci_bound``), ``std_error`` of each bound, ``critical`` (the
        Imbens-Manski value), ``out_of_range``, its sides ``below`` and ``above`` in the judge score, and over
        ``column`` (the judge score and each covariate) the share ``outside``. NaN where nothing can be estimated.
    """
    probability(ci_prob)
    given = calibrated(data)
    data, rows, fitted = given.parts
    scale = np.asarray(data.attrs["oracle_range"], float)
    n_policies = len(rows.policies)
    bounds, std_error, interval, sides = np.full((4, n_policies, 2), np.nan)
    columns = np.full((n_policies, rows.z.shape[1]), np.nan)
    beyond_any, critical = np.full((2, n_policies), np.nan)
    for p in range(n_policies):
        index = np.flatnonzero((rows.policy == p) & rows.evaluated)
        f = fitted.calibrator
        if f is None or len(index) == 0:
            continue
        weight, score = rows.weight[index], rows.score[index]
        share = weight / weight.sum()
        beyond = np.stack([score < fitted.z[:, 0].min(), score > fitted.z[:, 0].max()])
        strange = outside(fitted.z, rows.z[index])
        sides[p], columns[p], beyond_any[p] = beyond @ share, share @ strange, share @ strange.any(axis=1)
        value = predict(f, rows.z[index])
        df = np.empty(2)
        for side in range(2):
            # monotone: f at the end of the range bounds E[Y | S] from the side that faces the range
            worse = beyond[side if fitted.increasing else 1 - side]
            unknown = worse | strange[:, 1:].any(axis=1) if monotone else strange.any(axis=1)
            limit = np.where(unknown, scale[side], value)
            mean, sampling = mean_part(rows, index, limit, weight)
            learned = calibration_part(rows, fitted, rows.z[index], np.where(unknown, 0.0, share))
            bounds[p, side] = mean
            std_error[p, side], df[side] = combine([sampling, learned], rows.cluster)[1:]
        critical[p] = imbens_manski(np.ptp(bounds[p]), std_error[p].max(), df.min(), ci_prob)
        # without any error (every response out of range) the bounds themselves are the interval
        half = np.where(std_error[p] == 0, 0.0, critical[p] * std_error[p])
        interval[p] = bounds[p] + np.array([-1.0, 1.0]) * half
    out = dataset(
        {
            "bounds": (("policy", "ci_bound"), bounds),
            "interval": (("policy", "ci_bound"), np.clip(interval, *scale)),
            "std_error": (("policy", "ci_bound"), std_error),
            "critical": ("policy", critical),
            "out_of_range": ("policy", beyond_any),
            "below": ("policy", sides[:, 0]),
            "above": ("policy", sides[:, 1]),
            "outside": (("policy", "column"), columns),
        },
        coords={
            "policy": rows.policies,
            "ci_bound": CI_BOUND,
            "column": [JUDGE, *given.calibration.covariates],
        },
        attrs={"ci_prob": ci_prob, "monotone": int(monotone), "ci_kind": "imbens_manski"},
    )
    return in_order(out, data)


def imbens_manski(width: float, std_error: float, df: float, ci_prob: float) -> float:
    """Critical value c with ``F_t(c + width / SE) - F_t(-c) = ci_prob``; NaN without a standard error.

    Examples
    --------
    >>> round(imbens_manski(0.0, 0.1, np.inf, 0.95), 2), round(imbens_manski(1.0, 0.01, np.inf, 0.95), 2)
    (1.96, 1.64)
    """
    if not std_error > 0:
        return float("nan")
    return float(beyond_bias(np.asarray(width / std_error / 2), np.asarray(df), ci_prob))


def rank_only(
    estimate: xr.Dataset,
    levels: xr.Dataset,
    *,
    bounds: xr.Dataset | None = None,
    corrected: xr.Dataset | None = None,
) -> xr.Dataset:
    """Order of every pair of policies, from intervals that stay valid where a level is refused.

    A policy enters with the interval of the value that stands: its estimate's, or that of its probes. One refused by
    the transport gate enters with that of its probes too, since bounds assume transport inside the range; one refused
    for want of labels where its scores lie (the identification gate, LOW_SUPPORT) with its partial identification
    interval; one refused for any other reason not at all. Without the piece it needs a policy is not ordered. Two
    intervals of probability ``1 - a`` that do not overlap order the pair with error at most 2 a, whatever their
    dependence: give pieces made with ``ci_prob=0.975`` for statements at 95%.

    Parameters
    ----------
    estimate, levels : xr.Dataset
        An estimate, and what `level` says of it.
    bounds, corrected : xr.Dataset, optional
        From `partial_identification`, and the estimate of `cje_core.estimators.direct_corrected`.

    Returns
    -------
    xr.Dataset
        Over ``pair`` with coordinates ``first`` and ``second`` (names in order): ``interval`` (lowest and highest
        difference, first minus second), ``order`` ("higher", "lower", or "not ordered", of the first), ``refused``
        (whether a level is). Over ``policy``: ``basis`` (estimate, corrected, bounds or none) and ``used`` interval.

    Examples
    --------
    >>> estimate = xr.Dataset(
    ...     {"interval": (("policy", "ci_bound"), [[0.7, 0.8], [0.5, 0.6]]), "status": ("policy", [0, 0])},
    ...     {"policy": ["a", "b"], "ci_bound": ["lower", "upper"]})
    >>> levels = xr.Dataset(
    ...     {"level": ("policy", ["reported"] * 2), "refused_by": ("policy", [""] * 2),
    ...      "source": ("policy", ["own"] * 2)}, {"policy": ["a", "b"]})
    >>> rank_only(estimate, levels)["order"].item()
    'higher'
    """
    names = sorted(str(name) for name in estimate["policy"].values)
    used, basis = np.full((len(names), 2), np.nan), []
    for i, name in enumerate(names):
        source = _basis(levels.sel(policy=name), estimate.sel(policy=name))
        piece = {"estimate": estimate, "corrected": corrected, "bounds": bounds}.get(source)
        if piece is not None:
            used[i] = piece["interval"].sel(policy=name).values
        basis.append(source if np.isfinite(used[i]).all() else "none")
    pairs = np.array(list(combinations(range(len(names)), 2)), dtype=np.intp).reshape(-1, 2)
    first, second = pairs.T
    difference = np.column_stack([used[first, 0] - used[second, 1], used[first, 1] - used[second, 0]])
    apart = [difference[:, 0] > 0, difference[:, 1] < 0]
    refused = (levels["level"].sel(policy=names) == "refused").values
    return xr.Dataset(
        {
            "interval": (("pair", "ci_bound"), difference),
            "order": ("pair", np.select(apart, ["higher", "lower"], default="not ordered")),
            "refused": ("pair", refused[first] | refused[second]),
            "basis": ("policy", np.array(basis, dtype=str)),
            "used": (("policy", "ci_bound"), used),
        },
        coords={
            "policy": names,
            "ci_bound": CI_BOUND,
            "first": ("pair", np.array(names, dtype=str)[first]),
            "second": ("pair", np.array(names, dtype=str)[second]),
        },
    )
