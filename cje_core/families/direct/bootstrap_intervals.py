"""Bootstrap of Direct: the policies' fits as flat arrays for the kernels, and intervals from the draws."""

import numpy as np

from cje_core.calibration.oracle_slice import OracleSlice
from cje_core.calibration.two_stage import SplineRows, spline_rows
from cje_core.checks import FloatArray, IntArray
from cje_core.data.arrays import Rows
from cje_core.families.direct.bootstrap import Bootstrap, bootstrap_direct, replicate_values
from cje_core.families.direct.bootstrap_kernels import HAJEK, HORVITZ, LABEL_MEAN, PLUG_IN, TMLE
from cje_core.families.direct.cells import DirectRows
from cje_core.families.direct.fit import Options, PolicyFit, own_weight
from cje_core.families.finish import PolicyResult
from cje_core.inference.estimate import Status, bca, studentised
from cje_core.inference.influence import acceleration

ROUTES = {
    "plug_in": PLUG_IN,
    "label_mean": LABEL_MEAN,
    "theta_aug": HAJEK,
    "aipw_hajek": HAJEK,
    "aipw_ht": HORVITZ,
    "aipw_tmle": TMLE,
}
MIN_DRAWN = 0.5  # share of the bootstrap replicates below which their spread is not reported


def add_draws(
    rows: Rows,
    fitted: OracleSlice,
    fits: list[PolicyFit],
    results: list[PolicyResult],
    options: Options,
    resampling: Bootstrap,
    ci_prob: float,
    rng: np.random.Generator,
) -> int:
    """Bootstrap every policy that has a standard error, in place in `results`; returns the resamples rejected."""
    kind = resampling.kind
    # a policy that rests on one cluster would show only the calibrator's error: no interval for it
    alive = [p for p, r in enumerate(results) if not r.status.failed and np.isfinite(r.std_error)]
    if not alive:
        return 0
    if kind == "studentised" and fitted.mode != "monotone":
        raise ValueError(
            "the studentised bootstrap knows the monotone calibrator only; use 'bca' or 'percentile'"
        )
    arrays = bootstrap_rows(rows, fitted, fits, alive, options)
    weights = "exponential" if kind == "bayesian" else "multinomial"
    drawn = bootstrap_direct(
        arrays, resampling.n, rng, weights=weights, studentised=kind == "studentised", n_min=resampling.n_min
    )
    pivot_error = np.empty((1, len(alive)))
    if kind == "studentised":
        pivot_error = np.sqrt(replicate_values(arrays, np.ones((1, arrays.n_clusters)), variance=True)[1])
    for row, p in enumerate(alive):
        result, values = results[p], drawn.draws[row]
        seen = np.isfinite(values)
        if seen.mean() < MIN_DRAWN:
            results[p] = result._replace(status=Status.FEW_RESAMPLES, std_error=np.nan)
            continue
        bounds = None
        if kind == "bca" and result.influence is not None and result.influence.any():
            skew = acceleration(result.influence, rows.cluster)
            bounds = bca(values[seen], result.value, skew, ci_prob)
        elif kind == "studentised":
            error = drawn.std_error[row][seen]
            bounds = studentised(values[seen], error, result.value, float(pivot_error[0, row]), ci_prob)
        results[p] = result._replace(draws=values[seen], bounds=bounds)
    return drawn.n_rejected


def bootstrap_rows(
    rows: Rows, fitted: OracleSlice, fits: list[PolicyFit], alive: list[int], options: Options
) -> DirectRows:
    """Flat arrays of the policies that have an estimate, for `bootstrap_direct`."""
    chosen = [fits[p] for p in alive]
    index = [np.flatnonzero((rows.policy == p) & rows.evaluated) for p in alive]
    evaluated = np.concatenate(index)
    own = np.concatenate([fit.own for fit in chosen])
    level, spline, (at, own_at, teach_at) = _levels(fitted, [rows.z[evaluated], rows.z[own], fitted.z])
    cluster, fold = rows.cluster[rows.prompt], fitted.fold[rows.prompt]
    plain = np.concatenate([np.full(len(fit.own), fit.result.route == "label_mean") for fit in chosen])
    clever = np.ones(len(evaluated))
    of_tmle = np.concatenate(
        [np.full(len(i), fit.result.route == "aipw_tmle") for i, fit in zip(index, chosen, strict=True)]
    )
    clever[of_tmle] = 1 / rows.label_prob[evaluated[of_tmle]]
    return DirectRows(
        level=level,
        spline=spline,
        route=np.array([ROUTES[fit.result.route] for fit in chosen], dtype=np.intp),
        power=np.array([fit.prediction.power for fit in chosen]),
        centered=np.array([int(fit.prediction.centered) for fit in chosen], dtype=np.intp),
        low=options.scale[0],
        high=options.scale[1],
        n_clusters=len(rows.cluster_names),
        start=np.cumsum([0] + [len(part) for part in index]),
        cluster=cluster[evaluated],
        at=at,
        weight=rows.weight[evaluated],
        offset=np.concatenate([fit.prediction.offset for fit in chosen]),
        clever=clever,
        inside=np.empty((0, 4)),
        teach_cluster=rows.cluster[fitted.prompt],
        teach_at=teach_at,
        teach_label=fitted.label,
        teach_weight=fitted.weight,
        teach_fold=fitted.fold[fitted.prompt],
        own_start=np.cumsum([0] + [len(fit.own) for fit in chosen]),
        own_cluster=cluster[own],
        own_at=own_at,
        own_label=rows.label[own],
        own_weight=np.where(plain, rows.weight[own], own_weight(rows, own)),
        own_clever=1 / rows.label_prob[own],
        own_offset=np.concatenate([fit.prediction.own_offset for fit in chosen]),
        own_fold=fold[own],
    )


def _levels(fitted: OracleSlice, parts: list[FloatArray]) -> tuple[FloatArray, SplineRows, list[IntArray]]:
    """Levels at which the refitted calibrator is wanted, its first stage there, and each part's codes."""
    sizes = np.cumsum([len(part) for part in parts])[:-1]
    together = np.concatenate(parts)
    first_stage = fitted.calibrator.first_stage if fitted.calibrator else None
    if first_stage is None:
        level, code = np.unique((1.0 if fitted.increasing else -1.0) * together[:, 0], return_inverse=True)
        return level, spline_rows(None, together, fitted.z, fitted.label), np.split(code, sizes)
    rows_of_z, code = np.unique(together, axis=0, return_inverse=True)
    spline = spline_rows(
        first_stage.basis, rows_of_z, fitted.z, fitted.label, monotone=fitted.mode == "two_stage_monotone"
    )
    return np.arange(len(rows_of_z), dtype=float), spline, np.split(code.ravel(), sizes)
