"""What a pilot says about a larger study: the variance components of Direct.

`variance_components` splits the variance of Direct into a part that falls with the number of evaluated prompts n and
one that falls with the number of labelled ones m (the paper's "Efficient Budget Allocation";
`cje_core.planning.allocation` does the arithmetic). They are read off the influence values, without running anything
again. With s_i and c_i the evaluation part and the calibration part of the influence at prompt i of N,

    SE^2 = sum_i (s_i + c_i)^2 / N^2 = [sum s_i^2 + 2 sum s_i c_i] / N^2  +  sum c_i^2 / N^2
                                       falls with 1 / n                     falls with 1 / m

The cross term goes with 1 / n: labelled prompts are a subset of the evaluated ones, and their number cancels in it.
For a policy with own labels (theta_aug) s is the prediction f (tuned, by default) and c is N/m times the residual e =
Y - f; the split is exact for simple random labelling, where mean_n f + mean_m e has the two-phase variance ``[Var f +
2 Cov(f, e)] / n + Var e / m``, at m = n the familiar Var Y / n. For a borrowed policy c is the
infinitesimal-jackknife term of the isotonic fit, so 1 / m is its leading order only (the paper's note on O(1/m)
calibration variance).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr

from cje_core.calibration.folds import MIN_LABELLED_CLUSTERS, count_clusters
from cje_core.calibration.oracle_slice import (
    OracleSlice,
    calibration_part,
    fit_slice,
    held_out,
    mean_part,
    predict,
)
from cje_core.data.arrays import Rows, unpack
from cje_core.families.direct.power_tuning import charge, tuned_prediction
from cje_core.inference.estimate import Status, cluster_sums
from cje_core.inference.influence import Part

FloatArray = npt.NDArray[np.float64]


class _Split(NamedTuple):
    """One policy's two sources of error, summed by cluster and divided by the number of prompts."""

    status: Status
    route: str
    evaluation: FloatArray  # (G,)
    calibration: FloatArray  # (G,)
    df_eval: float
    df_cal: float


def _split(rows: Rows, fitted: OracleSlice, p: int, power_tuned: bool) -> _Split:
    n = len(rows.prompts)
    nothing = np.full(len(rows.cluster_names), np.nan)
    index = np.flatnonzero((rows.policy == p) & rows.evaluated)
    if fitted.calibrator is None or len(index) == 0:
        status = Status.NO_RESPONSES if len(index) == 0 else fitted.status
        return _Split(status, "none", nothing, nothing, np.nan, np.nan)
    weight = rows.weight[index]
    prediction = predict(fitted.calibrator, rows.z[index])
    own = index[rows.labelled[index]]
    if count_clusters(rows, own) >= MIN_LABELLED_CLUSTERS:
        route, status, spent = "theta_aug", Status.OK, 0.0
        own_weight = rows.weight[own] / rows.label_prob[own]
        if power_tuned:
            tuned = tuned_prediction(rows, fitted, index, own, own_weight)
            prediction, own_prediction, spent = tuned.evaluated, tuned.own, tuned.spent
        else:
            own_prediction = held_out(fitted, rows.z[own], rows.prompt[own])
        label_part = charge(mean_part(rows, own, rows.label[own] - own_prediction, own_weight)[1], spent)
    else:
        route, status = "plug_in", Status.TRANSPORT_ASSUMED
        label_part = calibration_part(rows, fitted, rows.z[index], weight / weight.sum())
    sampling = mean_part(rows, index, prediction, weight)[1]
    if route == "theta_aug" and np.ptp(rows.label[own]) == 0:
        status = Status.CONSTANT_LABELS
    elif fitted.status is not Status.OK:
        status = fitted.status

    def per_cluster(part: Part) -> FloatArray:
        silent = status is Status.CONSTANT_LABELS  # no spread was seen, so none can be planned with
        return nothing if silent else np.asarray(cluster_sums(part.influence, rows.cluster) / n)

    return _Split(status, route, per_cluster(sampling), per_cluster(label_part), sampling.df, label_part.df)


def _components(
    split: Sequence[_Split], n: int, m: int, labelled: npt.NDArray[np.bool_]
) -> dict[str, FloatArray]:
    """Components of each split: sums over clusters, so their error is that of a sum of independent terms."""
    evaluation = np.stack([part.evaluation for part in split])
    calibration = np.stack([part.calibration for part in split])
    terms = np.stack([n * (evaluation**2 + 2 * evaluation * calibration), m * calibration**2])  # (2, k, G)
    spread = np.zeros((2, 2, len(split)))
    for stratum in (labelled, ~labelled):
        size = int(stratum.sum())
        if size > 1:
            centred = terms[:, :, stratum] - terms[:, :, stratum].mean(axis=-1, keepdims=True)
            spread += size / (size - 1) * np.einsum("akg,bkg->abk", centred, centred)
    sigma2 = terms.sum(axis=-1)
    return {
        "sigma2_eval": sigma2[0],
        "sigma2_cal": sigma2[1],
        "sigma2_eval_se": np.sqrt(spread[0, 0]),
        "sigma2_cal_se": np.sqrt(spread[1, 1]),
        "sigma2_covariance": spread[0, 1],
        "sigma2_cross": 2 * n * (evaluation * calibration).sum(axis=-1),
        "std_error": np.sqrt(((evaluation + calibration) ** 2).sum(axis=-1)),
        "calibration_share": (sigma2[1] / m) / (sigma2[0] / n + sigma2[1] / m),
        "df_eval": np.array([part.df_eval for part in split]),
        "df_cal": np.array([part.df_cal for part in split]),
    }


def variance_components(
    data: xr.Dataset,
    *,
    reference: str | None = None,
    power_tuned: bool = True,
    direction: str = "increasing",
    covariates: Sequence[str] = (),
    calibrator: str = "default",
) -> xr.Dataset:
    """Components of the variance of Direct in a pilot, for levels or for contrasts.

    Parameters
    ----------
    data : xr.Dataset
        The pilot: evaluation data with labels. Probes are left out.
    reference : str, optional
        Give the components of every other policy's difference to this one, over ``pair``; by default those of the
        levels, over ``policy``. What two policies share cancels here as it does in `cje_core.inference.contrasts`.
    power_tuned, direction, covariates, calibrator
        As in `cje_core.estimators.direct`.

    Returns
    -------
    xr.Dataset
        ``sigma2_eval`` (of it ``sigma2_cross`` the cross term), ``sigma2_cal``, their standard errors ``*_se`` and
        ``sigma2_covariance`` (over independent clusters; the pilot's noise, not the error of the law), ``std_error``
        and ``calibration_share`` (omega) at the pilot's own size, ``df_eval``, ``df_cal``; for levels ``status`` and
        ``route``. A pilot that is labelled entirely is split as theta_aug, the route that fewer labels will take.
        Attributes count the pilot's design, which a plan scales: ``n`` prompts with an evaluated response, ``m``
        prompts with a label, ``responses_per_prompt`` and ``labels_per_prompt`` (judged responses per prompt, and
        labels per labelled prompt, over all policies), ``n_policies``; ``scale_width`` is that of the oracle. NaN with
        the status that says why where a policy has no number. A borrowed policy with few effective labels (``df_cal``
        below 20, say) has a heavy-tailed component whose standard error is too small: trust its order of magnitude
        only.
    """
    rows = unpack(data, covariates)
    fitted = fit_slice(rows, direction=direction, calibrator=calibrator)
    split = [_split(rows, fitted, rows.policies.index(str(name)), power_tuned) for name in data.policy.values]
    names = data.policy.values.astype(str)
    n, m = len(np.unique(rows.prompt[rows.evaluated])), len(np.unique(rows.prompt[rows.labelled]))
    labelled = np.zeros(len(rows.cluster_names), dtype=bool)
    labelled[rows.cluster[rows.prompt[rows.labelled]]] = True
    attrs = {
        "n": n,
        "m": m,
        "n_policies": len(names),
        "responses_per_prompt": float(rows.evaluated.sum() / max(n, 1)),
        "labels_per_prompt": float(rows.labelled.sum() / max(m, 1)),
        "scale_width": float(np.ptp(data.attrs["oracle_range"])),
    }
    if reference is None:
        found = _components(split, n, max(m, 1), labelled)
        out = xr.Dataset({key: ("policy", value) for key, value in found.items()}, {"policy": names}, attrs)
        out["status"] = ("policy", np.array([part.status for part in split], dtype=np.int8))
        return out.assign(route=("policy", np.array([part.route for part in split])))
    if reference not in names:
        raise ValueError(f"reference is {reference!r}; the data have {', '.join(sorted(names))}")
    base = split[names.tolist().index(reference)]
    others = [(name, part) for name, part in zip(names, split, strict=True) if name != reference]
    pairs = [
        part._replace(
            evaluation=part.evaluation - base.evaluation,
            calibration=part.calibration - base.calibration,
            df_eval=min(part.df_eval, base.df_eval),
            df_cal=min(part.df_cal, base.df_cal),
        )
        for _, part in others
    ]
    found = _components(pairs, n, max(m, 1), labelled) if pairs else {}
    first = [name for name, _ in others]
    coords = {"first": ("pair", first), "second": ("pair", [reference] * len(first))}
    return xr.Dataset({key: ("pair", value) for key, value in found.items()}, coords, attrs)
