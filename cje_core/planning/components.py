"""What a pilot says about a larger study: the variance components of the value that `analyze` prints.

`variance_components` splits the variance of a value into a part that falls with the number of evaluated prompts n and
one that falls with the number of labelled ones m (the paper's "Efficient Budget Allocation";
`cje_core.planning.allocation` does the arithmetic). They are read off the influence values, without running anything
again. With s_i, c_i and q_i the parts of the influence at prompt i of N that come from the responses, the labels and
the probes,

    SE^2 = sum_i (s_i + c_i + q_i)^2 / N^2
         = [sum s_i^2 + cross terms] / N^2  +  sum c_i^2 / N^2  +  sum q_i^2 / N^2
           falls with 1 / n                    falls with 1 / m    stays, or falls with the number of probes

The cross terms go with 1 / n: labelled prompts are a subset of the evaluated ones, and their number cancels in them.
Which value a policy gets is that of `analyze`:

``theta_aug``    own labels: s is the prediction f (tuned, by default) and c is N/m times the residual e = Y - f; the
                 split is exact for simple random labelling, where mean_n f + mean_m e has the two-phase variance
                 ``[Var f + 2 Cov(f, e)] / n + Var e / m``, at m = n the familiar Var Y / n
``probe_tuned``  probes: ``lambda f`` on the responses, the probes' part of `cje_core.estimators.direct_corrected`;
                 labels of other policies do not enter
``balanced``     neither: f on the responses, and on the labels their leverage on the policy mean less the balanced mean
                 (`cje_core.families.direct.balance`) times a residual whose square is unbiased (HC2), without what
                 the judge's test adds to the estimate's own standard error: what is planned is the spread of the
                 estimates
``plug_in``      (option, the paper's; no probes either) f on the responses, and on the labels the
                 infinitesimal-jackknife term of the isotonic fit

For borrowed values 1 / m is the leading order only (the paper's note on O(1/m) calibration variance). A policy that
Direct would refuse has no components but a status: UNINFORMATIVE_JUDGE (the labels do not show that the judge ranks
them; also where fewer than five hold the rarer of two values) or LOW_SUPPORT. What gates, audit and the agreement of
the labels refuse besides, `cje_core.workflow.plan` takes out. Own labels or probes that are all equal showed no spread
to plan with: no components either, and the status CONSTANT_LABELS beside the route. What labels of its own would do for
a policy that borrows says `cje_core.planning.own_labels`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from cje_core.calibration.calibrated import Calibrated, calibrated
from cje_core.calibration.calibrator import predict
from cje_core.calibration.oracle_slice import OracleSlice, calibration_part, held_out
from cje_core.checks import BoolArray, FloatArray, IntArray, one_of
from cje_core.data.arrays import Rows
from cje_core.data.construct import dataset
from cje_core.estimators.direct_corrected import probe_value
from cje_core.families.direct.fit import Lender, Options, borrowed_residual, corrects, make_lender, own_weight
from cje_core.families.direct.power_tuning import charge, tuned_prediction
from cje_core.families.intervals import bounds, evidence_of
from cje_core.inference.estimate import Status
from cje_core.inference.influence import Part, mean_part
from cje_core.inference.sums import cluster_sums, sum_by
from cje_core.planning.split import Split, failed
from cje_core.planning.stacked import stacked_splits

FORECAST = ("balanced", "plug_in")  # of the forms of borrowing, those whose components are known
PLANNED = ("direct", "stacked_dr")  # estimators whose components are known


class Pilot(NamedTuple):
    """What all policies of a pilot share."""

    rows: Rows
    fitted: OracleSlice
    lender: Lender | None  # None for the plug-in, or where nobody borrows
    borrowed: str
    power_tuned: bool
    scale: tuple[float, float]  # of the oracle


def _spreadless(rows: Rows, route: str) -> Split:
    """A value whose labels are all equal: no spread was seen, so none can be planned with."""
    return failed(rows, Status.CONSTANT_LABELS)._replace(route=route)


def _bounded(
    pilot: Pilot, p: int, behind: BoolArray, value: float, std_error: float = np.nan, df: float = np.nan
) -> bool:
    """Whether a value that these labels of policy p make has an interval (at one level or at all)."""
    evidence = evidence_of(pilot.rows, p, behind, pilot.scale)
    found = bounds(value, std_error, df, evidence=evidence, kind="auto", ci_prob=0.95, scale=pilot.scale)
    return bool(np.isfinite(found.interval).all())


def split_policy(pilot: Pilot, p: int) -> Split:
    """Route and sources of error of policy p."""
    rows, fitted = pilot.rows, pilot.fitted
    index = np.flatnonzero((rows.policy == p) & rows.evaluated)
    if len(index) == 0:
        return failed(rows, Status.NO_RESPONSES)
    own, corrected = corrects(rows, p)
    # without an interval of its own labels a policy falls back on its probes, as in `refusal.level`
    constant = corrected and np.ptp(rows.label[own]) == 0
    if constant and _bounded(pilot, p, rows.labelled & rows.evaluated, float(rows.label[own[0]])):
        return _spreadless(rows, "theta_aug")
    untaught = fitted.status is Status.CONSTANT_LABELS and len(own) < len(index)
    if constant or untaught or not corrected:
        probed = _probed(pilot, p)
        if probed is not None:
            return probed
    if constant:
        return _spreadless(rows, "none")
    if fitted.calibrator is None:
        return failed(rows, fitted.status)
    weight = rows.weight[index]
    prediction = predict(fitted.calibrator, rows.z[index])
    status = Status.OK if corrected else Status.TRANSPORT_ASSUMED
    if corrected:
        route, spent = "theta_aug", 0.0
        weight_own = own_weight(rows, own)
        if pilot.power_tuned:
            tuned = tuned_prediction(rows, fitted, index, own, weight_own, pilot.scale)
            prediction, own_prediction, spent = tuned.evaluated, tuned.own, tuned.spent
        else:
            own_prediction = held_out(fitted, rows.z[own], rows.prompt[own])
        label_part = charge(mean_part(rows, own, rows.label[own] - own_prediction, weight_own)[1], spent)
    elif pilot.lender is None:
        route = "plug_in"
        label_part = calibration_part(rows, fitted, rows.z[index], weight / weight.sum())
    else:
        route = "balanced"
        lender, share = _unselected(pilot.lender), weight / weight.sum()
        refused, _, label_part = borrowed_residual(rows, fitted, lender, rows.z[index], share)
        if refused is not None:
            return failed(rows, refused)
    sampling = mean_part(rows, index, prediction, weight)[1]
    if fitted.status is not Status.OK:
        status = fitted.status
    sampled, learned = _per_cluster(rows, sampling), _per_cluster(rows, label_part)
    found = Split(status, route, sampled, learned, np.zeros(len(sampled)), sampling.df, label_part.df)
    if corrected and pilot.lender is not None and rows.teaches[own].all():
        found = found._replace(shared=_shared(rows, pilot.lender, own))
    if status is Status.CONSTANT_LABELS:  # of those that teach
        return _spreadless(rows, route)
    return found


def _shared(rows: Rows, lender: Lender, own: IntArray) -> FloatArray:
    """The labels' part of the mean over own labels, with the noise that they lend to other policies.

    The same labels stand behind both values of a difference. Told by two kinds of residual they would not cancel.
    """
    assert lender.lesson is not None  # plans are made for what the labels' residuals lend
    noise = np.zeros(len(rows.policy))
    noise[rows.teaches] = lender.lesson.noise
    weight = own_weight(rows, own)
    moves = weight / weight.sum() * noise[own]
    return sum_by(rows.cluster[rows.prompt[own]], moves, len(rows.cluster_names))


def _unselected(lender: Lender) -> Lender:
    """The lender without what being printed only after the judge's test adds to an error."""
    return lender._replace(judge=lender.judge._replace(widening=1.0))


def _per_cluster(rows: Rows, part: Part) -> FloatArray:
    return np.asarray(cluster_sums(part.influence, rows.cluster) / len(rows.prompts))


def _probed(pilot: Pilot, p: int) -> Split | None:
    """The tuned probe value, or None where the probes do not make one that has an interval."""
    rows = pilot.rows
    made = probe_value(rows, pilot.fitted, p, tuned=True)
    result, constant = made.result, made.result.status is Status.CONSTANT_LABELS
    if made.sampling is None or made.correction is None:
        return None
    std_error = np.nan if constant else result.std_error
    if not _bounded(pilot, p, rows.probe, result.value, std_error, result.df):
        return None
    if constant:
        return _spreadless(rows, result.route)
    sampled, corrected = _per_cluster(rows, made.sampling), _per_cluster(rows, made.correction)
    counts = made.sampling.df, np.inf, made.correction.df, made.n_effective
    return Split(result.status, result.route, sampled, np.zeros(len(sampled)), corrected, *counts)


def _components(split: Sequence[Split], n: int, m: int, strata: IntArray) -> dict[str, FloatArray]:
    """Components of each split: sums over clusters, so their error is that of a sum of independent terms."""
    s, c, q = (np.stack([getattr(part, name) for part in split]) for name in Split._fields[2:5])
    cross = 2 * (s * c + s * q + c * q)
    terms = np.stack([n * (s**2 + cross), m * c**2, q**2])  # (3, k, G)
    spread = np.zeros((3, 3, len(split)))
    for stratum in np.unique(strata):
        inside = strata == stratum
        size = int(inside.sum())
        if size > 1:
            centred = terms[:, :, inside] - terms[:, :, inside].mean(axis=-1, keepdims=True)
            spread += size / (size - 1) * np.einsum("akg,bkg->abk", centred, centred)
    sigma2 = terms.sum(axis=-1)
    counts = ("df_eval", "df_cal", "df_probes", "probe_count")
    whole = sigma2[0] / n + sigma2[1] / m + sigma2[2]
    return {
        "sigma2_eval": sigma2[0],
        "sigma2_cal": sigma2[1],
        "sigma2_eval_se": np.sqrt(spread[0, 0]),
        "sigma2_cal_se": np.sqrt(spread[1, 1]),
        "sigma2_covariance": spread[0, 1],
        "sigma2_cross": n * cross.sum(axis=-1),
        "variance_probes": sigma2[2],
        "variance_probes_se": np.sqrt(spread[2, 2]),
        "std_error": np.sqrt(((s + c + q) ** 2).sum(axis=-1)),
        # a difference of copies has no variance to share
        "calibration_share": np.divide(
            sigma2[1] / m, whole, out=np.full_like(whole, np.nan), where=whole > 0
        ),
        **{name: np.array([getattr(part, name) for part in split]) for name in counts},
    }


def _minus(part: Split, base: Split, *, shared: bool) -> Split:
    """The difference of two values; where one is borrowed and `shared`, the labels' noise is told alike for both."""
    shared = shared and "balanced" in (part.route, base.route)
    ours, theirs = (
        one.shared if shared and one.shared is not None else one.calibration for one in (part, base)
    )
    scarcer = min((part, base), key=lambda one: one.df_probes)
    return part._replace(
        evaluation=part.evaluation - base.evaluation,
        calibration=ours - theirs,
        probes=part.probes - base.probes,
        df_eval=min(part.df_eval, base.df_eval),
        df_cal=min(part.df_cal, base.df_cal),
        df_probes=scarcer.df_probes,
        probe_count=scarcer.probe_count,
    )


def variance_components(
    data: xr.Dataset | Calibrated,
    *,
    reference: str | None = None,
    borrowed: str = "balanced",
    power_tuned: bool = True,
    estimator: str = "direct",
) -> xr.Dataset:
    """Components of the variance of a pilot's values, for levels or for contrasts.

    Parameters
    ----------
    data : xr.Dataset or Calibrated
        The pilot: evaluation data with labels.
    reference : str, optional
        Give the components of every other policy's difference to this one, over ``pair``; by default those of the
        levels, over ``policy``. What two policies share cancels here as it does in `cje_core.inference.contrasts`.
    borrowed : {"balanced", "plug_in"}
        Value of a policy without labels or probes of its own: what `analyze` prints by default, or the paper's plug-in,
        which a useless judge does not refuse.
    power_tuned
        As in `cje_core.estimators.direct`.
    estimator : {"direct", "stacked_dr"}
        Whose value: what `analyze` prints by default, or stacked DR, for data with logged responses
        (`cje_core.planning.stacked`); ``borrowed`` and ``power_tuned`` are of the first.

    Returns
    -------
    xr.Dataset
        ``sigma2_eval`` (of it ``sigma2_cross`` the cross terms), ``sigma2_cal``, their standard errors ``*_se`` and
        ``sigma2_covariance`` (over independent clusters; the pilot's noise, not the error of the law),
        ``variance_probes`` with its standard error (at the pilot's number of probes), ``std_error`` and
        ``calibration_share`` (omega) at the pilot's own size, ``df_eval``, ``df_cal``, ``df_probes``, ``probe_count``
        (effective probed clusters); for levels ``status`` and ``route``. For differences, unless plug-ins,
        ``sigma2_eval_tested``, ``sigma2_cal_tested``: the standard error that `cje_core.inference.contrasts` tests
        with. It exceeds the spread of a borrowing policy's difference to one with labels of its own, the more the more
        alike the two are, for the labels behind both come with two kinds of residual, which do not cancel. A pilot that
        is labelled entirely is split as theta_aug, the route that fewer labels will take. Attributes count the pilot's
        design, which a plan scales: ``n`` prompts with an evaluated response, ``m`` prompts with a label,
        ``responses_per_prompt`` and ``labels_per_prompt`` (judged responses per prompt, and labels per labelled prompt,
        over all policies), ``n_policies``; ``scale_width`` is that of the oracle. NaN with the status that says why
        where a policy has no number. A borrowed policy with few effective labels (``df_cal`` below 20, say) has a
        heavy-tailed component whose standard error is too small: trust its order of magnitude only.
    """
    one_of(estimator, "estimator", PLANNED)
    given = calibrated(data)
    data, rows = given.data, given.rows
    order = [rows.policies.index(str(name)) for name in data.policy.values]
    if estimator == "direct":
        pilot = read_pilot(given, borrowed, power_tuned)
        split = [split_policy(pilot, p) for p in order]
    else:
        splits = stacked_splits(given)
        split = [splits[p] for p in order]
    names = data.policy.values.astype(str)
    strata = np.zeros(len(rows.cluster_names), dtype=np.intp)
    strata[rows.cluster[rows.prompt[rows.labelled]]] += 1
    strata[np.unique(rows.cluster[rows.prompt[rows.probe]])] += 2
    attrs = design(data, rows)
    n, m = attrs["n"], max(attrs["m"], 1)
    if reference is None:
        found = _components(split, n, m, strata)
        out = dataset({key: ("policy", value) for key, value in found.items()}, {"policy": names}, attrs)
        out["status"] = ("policy", np.array([part.status for part in split], dtype=np.int8))
        return out.assign(route=("policy", np.array([part.route for part in split])))
    if reference not in names:
        raise ValueError(f"reference={reference!r}: the data have {', '.join(sorted(names))}")
    base = split[names.tolist().index(reference)]
    first = [str(name) for name in names if name != reference]
    others = [part for name, part in zip(names, split, strict=True) if name != reference]
    found = _components([_minus(part, base, shared=True) for part in others], n, m, strata) if others else {}
    if others and borrowed == "balanced" and estimator == "direct":
        tested = _components([_minus(part, base, shared=False) for part in others], n, m, strata)
        found |= {f"{name}_tested": tested[name] for name in ("sigma2_eval", "sigma2_cal")}
    coords = {"first": ("pair", first), "second": ("pair", [reference] * len(first))}
    return dataset({key: ("pair", value) for key, value in found.items()}, coords, attrs)


def read_pilot(data: xr.Dataset | Calibrated, borrowed: str, power_tuned: bool) -> Pilot:
    """The pilot with its calibrator and what the labels may lend; arguments as in `variance_components`."""
    one_of(borrowed, "borrowed", FORECAST)
    data, rows, fitted = calibrated(data).parts
    lender = make_lender(rows, fitted, Options(borrowed=borrowed))
    low, high = data.attrs["oracle_range"]
    return Pilot(rows, fitted, lender, borrowed, power_tuned, (float(low), float(high)))


def design(data: xr.Dataset, rows: Rows) -> dict[str, Any]:
    """Counts of the pilot that a plan scales."""
    n, m = len(np.unique(rows.prompt[rows.evaluated])), len(np.unique(rows.prompt[rows.labelled]))
    return {
        "n": n,
        "m": m,
        "n_policies": data.sizes["policy"],
        "responses_per_prompt": float(rows.evaluated.sum() / max(n, 1)),
        "labels_per_prompt": float(rows.labelled.sum() / max(m, 1)),
        "scale_width": float(np.ptp(data.attrs["oracle_range"])),
    }
