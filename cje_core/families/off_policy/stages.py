"""Functions that make `Logs` and add stages to them; each returns new logs, or the same where the stage is there.

Stages without labels of their own (candidates of weights, places of responses) are shared by the reruns without a fold.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from cje_core.calibration.calibrated import Calibrated
from cje_core.calibration.leave_out import Ground, LeaveOut, Places
from cje_core.calibration.oracle_slice import basis_of, refit
from cje_core.checks import FloatArray, IntArray
from cje_core.data.arrays import unpack, unpack_logged
from cje_core.families.off_policy.logs import (
    DEFAULT,
    FoldFits,
    Logs,
    Multiplied,
    Outcome,
    PolicyLogs,
    Stabilisation,
    Stable,
    Weights,
)
from cje_core.formulas.linear_outcome import linear_outcome
from cje_core.offpolicy.held_out_maps import HeldOutMaps
from cje_core.offpolicy.weights import CANDIDATES, check_options, log_ratios, mean_one, stack_candidates

JUDGE = "judge"  # the judge score among the features of q(X, A)


def make_logs(given: Calibrated, reward: FloatArray | None = None) -> Logs:
    """Join rows, logged responses and calibrator; labels of logged responses calibrate if no fresh ones do.

    ``reward`` (n,) takes the place of the calibrator's.
    """
    rows, logged, fitted = given.rows, given.logged, given.slice_with_logs
    log_ratio, n_folds = log_ratios(logged), int(fitted.fold.max()) + 1
    policies = []
    for p in range(len(rows.policies)):
        used = np.flatnonzero(np.isfinite(log_ratio[p]))
        fresh = np.flatnonzero((rows.policy == p) & rows.evaluated)
        z = logged.z[used]
        maps = HeldOutMaps(mean_one(log_ratio[p, used]), z[:, 0], fitted.fold[used], n_folds)
        policies.append(PolicyLogs(used, fresh, z, rows.z[fresh], maps))
    return Logs(
        given,
        rows,
        logged,
        np.flatnonzero(np.isfinite(logged.z).all(axis=1)),
        log_ratio,
        tuple(policies),
        pooled=fitted,
        fitted=fitted,
        reward=given.logged_reward if reward is None else reward,
    )


def on_prompts(logs: Logs, values: FloatArray) -> FloatArray:
    """Values of the logged responses seen as an array over prompts."""
    out = np.full(len(logs.rows.prompts), np.nan)
    out[logs.seen] = values
    return out


def places_on(logs: Logs, ground: Ground) -> Places:
    """Logged responses seen and then all `Rows`, on a ground."""
    return ground.places(np.concatenate([logs.logged.z[logs.seen], logs.rows.z]))


def with_fold_fits(logs: Logs) -> Logs:
    """Logs with the calibrator without one fold, or two, and the responses at which it is evaluated."""
    if logs.fold_fits is not None:
        return logs
    f = logs.pooled
    ground = Ground(f.z, f.fold[f.prompt], logs.n_folds, f.increasing, basis_of(f))
    fits = LeaveOut(ground, f.label, f.weight, f.mode == "two_stage_monotone")
    return replace(logs, fold_fits=FoldFits(fits, places_on(logs, ground)))


def fold_of_places(logs: Logs) -> IntArray:
    """Folds of the logged responses seen and then of all `Rows`."""
    return np.asarray(logs.fold[np.concatenate([logs.seen, logs.rows.prompt])])


# --- outcome models ---


def feature_names(outcome: Sequence[str]) -> tuple[str, ...]:
    """Names of the features of q(X, A), of which a list must be given."""
    if isinstance(outcome, str):
        raise ValueError(f"outcome={outcome!r}: give a list of names")
    return tuple(outcome)


def with_outcome(logs: Logs, features: tuple[str, ...] = ()) -> Logs:
    """Logs with q: f^(-k), which never saw the prompt's fold, or least squares on some features."""
    if features in logs.outcomes:
        return logs
    if logs.pooled.calibrator is not None:
        logs = with_fold_fits(logs)
    outcome = linear_model(logs, features) if features else held_out_calibrator(logs)
    return replace(logs, outcomes={**logs.outcomes, features: outcome})


def held_out_calibrator(logs: Logs) -> Outcome:
    """f^(-k): the calibrator that never saw the prompt's fold; the paper's R^OOF at logged responses."""
    fold = fold_of_places(logs)
    q = np.full(len(fold), np.nan)
    if logs.fold_fits is not None:
        q = logs.fold_fits.fits.predict(logs.fold_fits.places, fold, without=logs.left_out)
    return Outcome(on_prompts(logs, q[: len(logs.seen)]), q[len(logs.seen) :])


def linear_model(logs: Logs, names: Sequence[str]) -> Outcome:
    """q(X, A) fitted to the rewards of all logged responses seen: without fold k, to f^(-k)(Z) outside it."""
    fold, at = fold_of_places(logs), np.arange(len(logs.seen))
    target = np.full((logs.n_folds, len(at)), np.nan)
    if logs.fold_fits is not None:
        fits, places = logs.fold_fits
        for k, row in enumerate(target):
            row[:] = fits.predict(places, np.full(len(at), k), without=logs.left_out, at=at)
    covariates = [name for name in names if name != JUDGE]
    columns = slice(None) if JUDGE in names else slice(1, None)
    logged = unpack_logged(logs.given.data, covariates, checked=True).z[logs.seen, columns]
    rows = unpack(logs.given.data, covariates, checked=True).z[:, columns]
    model = linear_outcome(logged, target, fold[: len(at)], rows, fold[len(at) :])
    return Outcome(on_prompts(logs, model.fitted), model.predicted, model)


# --- weights ---


def with_weights(
    logs: Logs, delta: str, weighting: Stabilisation = DEFAULT, outcome: tuple[str, ...] = ()
) -> Logs:
    """Logs with the stabilised weights of every policy: ``delta`` is what they multiply, see `Multiplied`."""
    check_options(**weighting._asdict())
    name = weights_name(delta, weighting, outcome)
    if name in logs.weights.stable:
        return logs
    if delta == "residual":
        logs = with_outcome(logs, outcome)
    candidates = logs.weights.candidates or tuple(map(held_out_candidates, logs.policies))
    multiplied = logs.reward - (logs.outcomes[outcome].logged if delta == "residual" else 0.0)
    stable = tuple(
        _stable(one, candidate, multiplied, weighting)
        for one, candidate in zip(logs.policies, candidates, strict=True)
    )
    return replace(logs, weights=Weights(candidates, {**logs.weights.stable, name: stable}))


def weights_name(delta: str, weighting: Stabilisation = DEFAULT, outcome: tuple[str, ...] = ()) -> Multiplied:
    """Name of stabilised weights among `Weights.stable`."""
    features = outcome if delta == "residual" else ()
    return Multiplied(delta, features, weighting._replace(candidates=tuple(weighting.candidates)))


def held_out_candidates(one: PolicyLogs) -> FloatArray:
    """Out-of-fold candidates of stabilised weights, shape (`CANDIDATES`, used)."""
    return np.stack([one.maps.at(name, one.score, one.fold) for name in CANDIDATES])


def _stable(
    one: PolicyLogs, candidate: FloatArray, multiplied: FloatArray, weighting: Stabilisation
) -> Stable | None:
    if not len(one.used):
        return None
    chosen = [CANDIDATES.index(name) for name in weighting.candidates]
    out = stack_candidates(
        one.weight, one.score, multiplied[one.used], candidate[chosen], **weighting._asdict()
    )
    return Stable(out.weight, out.stack, out.beta, out.alpha)


# --- reruns ---


def without_fold(logs: Logs, k: int, reward: FloatArray | None = None) -> Logs:
    """Logs without the labels of fold k; ``reward`` (n,) takes the place of f^(-k) at the logged responses."""
    whole = logs.pooled
    keep = whole.fold[whole.prompt] != k
    labels = (array[keep] for array in (whole.z, whole.label, whole.weight, whole.prompt))
    if reward is None:
        logs = with_fold_fits(logs)
        assert logs.fold_fits is not None
        fits, places = logs.fold_fits
        at = np.arange(len(logs.seen))
        reward = on_prompts(logs, fits.predict(places, np.full(len(at), k), at=at))
    return replace(
        logs,
        left_out=k,
        logged=logs.logged._replace(label=np.where(logs.fold == k, np.nan, logs.logged.label)),
        fitted=whole.with_labels(None, *labels),
        reward=reward,
        outcomes={},
        weights=Weights(logs.weights.candidates),
        judge=None,
        residuals=None,
        labelled=(),
        members={},
        reruns=None,
    )


def with_refit(logs: Logs) -> Logs:
    """Logs without a fold with the pooled fit of their labels, which errors need and most values do not."""
    if logs.left_out is None or logs.fitted.calibrator is not None:
        return logs
    whole = logs.pooled
    keep = whole.fold[whole.prompt] != logs.left_out
    return replace(logs, fitted=logs.fitted._replace(calibrator=refit(whole, keep, basis_of(whole))))


def with_reruns(logs: Logs, stages: Callable[[Logs], Logs] = lambda logs: logs) -> Logs:
    """Logs with reruns without the labels of each oracle fold, of which each has the same stages.

    None where fewer than three folds hold labels: with two, a rerun would have one fold left and no held-out
    calibrator for it.
    """
    reruns = () if logs.pooled.calibrator is None else logs.reruns
    if reruns is None:
        logs = with_fold_fits(logs)
        folds = np.unique(logs.pooled.fold[logs.pooled.prompt])
        reruns = tuple(without_fold(logs, int(k)) for k in folds) if len(folds) > 2 else ()
    return replace(logs, reruns=tuple(stages(_sharing(one, logs)) for one in reruns))


def _sharing(rerun: Logs, logs: Logs) -> Logs:
    """The rerun with what no label changes of the logs that it belongs to."""
    weights = Weights(logs.weights.candidates, rerun.weights.stable)
    return replace(rerun, weights=weights, covariates=logs.covariates)
