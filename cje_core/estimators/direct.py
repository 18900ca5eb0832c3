"""Direct: calibrated judge scores of fresh responses, corrected by the policy's own labels.

Estimand: V(policy) = E[Y]. With f the monotone calibrator fitted on the labels of the calibration policies, each policy
takes the route that its labels allow, and the result says which:

``theta_aug``     own labels (4 labelled prompts or more): mean f(S) + mean over own labels of Y - f^(-k)(S), the
                  paper's equation for theta_aug (one-step estimator of its proposition "Direct: EIF")
``aipw_hajek``    the same with declared, unequal ``label_prob``: residuals weighted by 1 / label_prob (Hajek form)
``label_mean``    every evaluated response labelled: the mean label
``plug_in``       fewer own labels: mean f(S) on the borrowed calibrator; status TRANSPORT_ASSUMED

Rows are averaged within a prompt first (weight 1 / draws), since the estimand averages over prompts.

Uncertainty (``inference``): ``bootstrap`` resamples prompt clusters and refits the calibrator in each replicate
(paper's algorithm Bootstrap-Direct, percentile interval); ``influence`` uses one joint influence function per
prompt for all policies, where a borrowed policy carries the infinitesimal-jackknife term of the isotonic fit, with a
t interval whose degrees of freedom follow the labelled clusters; ``cluster`` is the paper's baseline that treats
f as known and so under-covers. Point estimates do not depend on ``inference``; the influence function always comes
along for contrasts.

The study ``interval_coverage`` compares them: with own labels ``bootstrap`` and ``influence`` both keep their level;
for a borrowed policy the percentile bootstrap falls short of it, since the isotonic fit is biased at the ends of the
judge's scale where such a policy may live and a percentile interval counts that bias twice; ``influence`` is the
one to report there.

Failure modes: a borrowed policy is biased where the calibration does not transport (audit it); isotonic fits extend
flat beyond the labelled scores; labels missing not at random bias everything.
"""

import numpy as np
import numpy.typing as npt
import xarray as xr

from cje_core.calibration import (
    OracleSlice,
    calibration_part,
    fit_slice,
    held_out,
    mean_part,
    predict,
)
from cje_core.data import Rows, unpack
from cje_core.estimators._assemble import PolicyResult, assemble
from cje_core.folds import MIN_LABELLED_CLUSTERS
from cje_core.result import Status
from cje_core.uncertainty import AUGMENTED, LABEL_MEAN, PLUG_IN, DirectRows, Part, bootstrap_direct, combine

NEEDS = {"judge", "oracle"}
INFERENCE = ("bootstrap", "influence", "cluster")
ROUTES = ("auto", "plug_in")
MIN_DRAWN = 0.5  # share of the bootstrap replicates below which their spread is not reported


def estimate(
    data: xr.Dataset,
    *,
    ci_prob: float = 0.95,
    rng: np.random.Generator | int | None = None,
    inference: str = "bootstrap",
    route: str = "auto",
    n_boot: int = 2000,
    direction: str = "increasing",
) -> xr.Dataset:
    """Estimate each policy's value by Direct; see the module for formulas and routes.

    Parameters
    ----------
    data : xr.Dataset
        Evaluation data.
    ci_prob : float
        Probability of the interval.
    rng : Generator, int or None
        Source of the bootstrap; the other two kinds of inference use no randomness.
    inference : {"bootstrap", "influence", "cluster"}
    route : {"auto", "plug_in"}
        ``plug_in`` never corrects by own labels (the paper's uncorrected baseline).
    n_boot : int
        Bootstrap replicates B.
    direction : {"increasing", "decreasing"}
        Whether a higher judge score means a better response.

    Returns
    -------
    xr.Dataset
        Estimate contract, see `cje_core.result`; with ``draws`` when bootstrapped, and then the attribute
        ``n_rejected`` counts resamples that held too few labels.
    """
    rng = np.random.default_rng(rng)
    if inference not in INFERENCE:
        raise ValueError(f"inference is {inference!r}; use one of {', '.join(INFERENCE)}")
    if route not in ROUTES:
        raise ValueError(f"route is {route!r}; use one of {', '.join(ROUTES)}")
    if n_boot < 2:
        raise ValueError(f"n_boot is {n_boot}; a bootstrap distribution needs at least 2 replicates")
    rows = unpack(data)
    fitted = fit_slice(rows, direction=direction)
    results = [
        _one_policy(rows, fitted, p, route=route, evaluation_only=inference == "cluster")
        for p in range(len(rows.policies))
    ]
    n_rejected = 0
    # a policy that rests on one cluster would show only the calibrator's error: no interval for it
    alive = [p for p, r in enumerate(results) if not r.status.failed and np.isfinite(r.std_error)]
    if inference == "bootstrap" and alive:
        draws, n_rejected = bootstrap_direct(_bootstrap_rows(rows, fitted, results, alive), n_boot, rng)
        for p, values in zip(alive, draws, strict=True):
            drawn = np.isfinite(values)
            if drawn.mean() < MIN_DRAWN:
                results[p] = results[p]._replace(status=Status.FEW_RESAMPLES, std_error=np.nan)
            else:
                results[p] = results[p]._replace(draws=values[drawn])
    options = {"inference": inference, "route": route, "direction": direction}
    if inference == "bootstrap":
        options["n_boot"] = str(n_boot)
    out = assemble(data, rows, results, estimator="direct", options=options, ci_prob=ci_prob)
    if inference == "bootstrap":
        out.attrs["n_rejected"] = n_rejected
    return out


def _own_labels(rows: Rows, p: int) -> npt.NDArray[np.intp]:
    return np.flatnonzero((rows.policy == p) & rows.labelled & rows.evaluated)


def _one_policy(
    rows: Rows, fitted: OracleSlice, p: int, *, route: str, evaluation_only: bool
) -> PolicyResult:
    """Route, value and influence of policy p; with `evaluation_only` the error of the calibration is left out."""
    index = np.flatnonzero((rows.policy == p) & rows.evaluated)
    if len(index) == 0:
        return PolicyResult(Status.NO_RESPONSES, "none")
    own = _own_labels(rows, p)
    corrected = route == "auto" and len(np.unique(rows.cluster[rows.prompt[own]])) >= MIN_LABELLED_CLUSTERS
    own_weight = rows.weight[own] / rows.label_prob[own]
    if corrected and len(own) == len(index):
        value, part = mean_part(rows, own, rows.label[own], rows.weight[own])
        status = Status.CONSTANT_LABELS if np.ptp(rows.label[own]) == 0 else Status.OK
        return PolicyResult(status, "label_mean", value, *combine([part], rows.cluster))
    if fitted.calibrator is None:
        return PolicyResult(fitted.status, "none")
    weight = rows.weight[index]
    value, sampling = mean_part(rows, index, predict(fitted.calibrator, rows.z[index]), weight)
    if corrected:
        residual = rows.label[own] - held_out(fitted, rows.z[own], rows.prompt[own])
        shift, correction = mean_part(rows, own, residual, own_weight)
        unequal = np.ptp(rows.label_prob[own]) > 0
        name, status, parts = "aipw_hajek" if unequal else "theta_aug", Status.OK, [sampling, correction]
        value += shift
    else:
        name, status = "plug_in", Status.OK if len(own) and route == "plug_in" else Status.TRANSPORT_ASSUMED
        parts = [sampling, calibration_part(rows, fitted, rows.z[index], weight / weight.sum())]
    if fitted.status is not Status.OK:
        status = fitted.status
    if evaluation_only:
        parts = [Part(sampling.influence, np.inf)]
    return PolicyResult(status, name, value, *combine(parts, rows.cluster))


def _bootstrap_rows(
    rows: Rows, fitted: OracleSlice, results: list[PolicyResult], alive: list[int]
) -> DirectRows:
    """Flat arrays of the policies that have an estimate, for `bootstrap_direct`."""
    code = np.full(len(rows.policies), -1)
    code[alive] = np.arange(len(alive))
    kinds = {"plug_in": PLUG_IN, "label_mean": LABEL_MEAN}
    route = np.array([kinds.get(results[p].route, AUGMENTED) for p in alive], dtype=np.intp)
    evaluated = np.flatnonzero(rows.evaluated & (code[rows.policy] >= 0))
    own = np.flatnonzero(rows.labelled & rows.evaluated & (code[rows.policy] >= 0))
    own = own[route[code[rows.policy[own]]] != PLUG_IN]
    signed = rows.score if fitted.increasing else -rows.score
    taught = (1.0 if fitted.increasing else -1.0) * fitted.z[:, 0]
    level = np.unique(np.concatenate([signed[evaluated], signed[own], taught]))
    own_weight = rows.weight[own] / np.where(
        route[code[rows.policy[own]]] == LABEL_MEAN, 1.0, rows.label_prob[own]
    )
    cluster = rows.cluster[rows.prompt]
    fold = fitted.fold[rows.prompt]
    return DirectRows(
        level=level,
        route=route,
        n_clusters=len(rows.cluster_names),
        policy=code[rows.policy[evaluated]],
        cluster=cluster[evaluated],
        at=np.searchsorted(level, signed[evaluated]),
        weight=rows.weight[evaluated],
        teach_cluster=rows.cluster[fitted.prompt],
        teach_at=np.searchsorted(level, taught),
        teach_label=fitted.label,
        teach_weight=fitted.weight,
        teach_fold=fitted.fold[fitted.prompt],
        own_policy=code[rows.policy[own]],
        own_cluster=cluster[own],
        own_at=np.searchsorted(level, signed[own]),
        own_label=rows.label[own],
        own_weight=own_weight,
        own_fold=fold[own],
    )
