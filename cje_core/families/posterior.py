"""What the Bayesian estimators share: the slice on judge levels, posterior draws of f, and draws -> estimate."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from cje_core.bayes import covariates as two_stage
from cje_core.bayes import flat, gibbs
from cje_core.bayes.covariates import EFFECTS, effects
from cje_core.bayes.gibbs import Draws
from cje_core.bayes.levels import Graded, grade
from cje_core.bayes.prior import Prior
from cje_core.calibration.calibrated import Calibrated
from cje_core.calibration.folds import count_clusters
from cje_core.calibration.informative import informative
from cje_core.calibration.oracle_slice import OracleSlice
from cje_core.checks import BoolArray, FloatArray, IntArray, one_of, probability
from cje_core.data.arrays import Rows
from cje_core.families.assemble import assemble
from cje_core.families.direct.balance import supported
from cje_core.families.finish import Found, IntervalRule, PolicyResult
from cje_core.inference.estimate import Status, hdi
from cje_core.inference.sums import sum_by

ENGINES = ("gibbs", "nutpie", "pymc")
POOLING = ("complete", "partial")
INTERVALS = ("eti", "hdi")
SILENT = (Status.FEW_LABELS_POSTERIOR, Status.CONSTANT_LABELS)  # a value, but no interval and no draws
SOURCE = {"corrected": "own", "probe_corrected": "probes"}  # of a route; the others borrow
# draws of a NUTS run before thinning: its gates ask for 400 effective ones of the worst weight
MIN_RUN = 8000
MIN_LABELS = 13  # labelled prompts below which the posterior is the prior's


class CalibratorPosterior(NamedTuple):
    """Posterior of the calibrator f, which several estimators may take their values from."""

    draws: Draws
    status: Status  # NOT_CONVERGED where the checks of NUTS say so
    trace: Any = None  # of NUTS, every draw of every chain


class Setting(NamedTuple):
    """One data set, ready for a posterior."""

    rows: Rows
    fitted: OracleSlice
    graded: Graded
    unlabelled: FloatArray  # per policy: share of its responses on judge levels without a label
    pooling: str  # "partial": one calibrator per policy


def check_options(*, ci_prob: float, n_draws: int, interval: str) -> None:
    """Stop at options out of range before anything is sampled."""
    probability(ci_prob)
    if n_draws < 2:
        raise ValueError(f"n_draws={n_draws}: a posterior needs at least 2 draws")
    one_of(interval, "interval", INTERVALS)


def prepare(
    given: Calibrated,
    *,
    effect: str = "linear",
    pooling: str = "complete",
) -> Setting:
    """Rows, teaching labels and judge levels of evaluation data, and the columns of a covariate effect."""
    data, rows, fitted = given.data, given.rows, given.monotone
    covariates = given.calibration.covariates
    one_of(effect, "effect", EFFECTS)
    one_of(pooling, "pooling", POOLING)
    if pooling == "partial" and covariates:
        raise ValueError("there is no model with covariates and partial pooling; leave out one of the two")
    graded = grade(
        rows,
        fitted,
        judge_range=tuple(data.attrs["judge_range"]),
        oracle_range=tuple(data.attrs["oracle_range"]),
    )
    if covariates and not fitted.status.failed:
        graded = graded._replace(columns=effects(rows, effect))
    used = rows.evaluated
    empty = graded.levels.n[graded.at] == 0
    weight = np.where(used, rows.weight, 0.0)
    total = sum_by(rows.policy, weight, len(rows.policies))
    share = sum_by(rows.policy, weight * empty, len(rows.policies))
    unlabelled = np.divide(share, total, out=np.full(len(total), np.nan), where=total > 0)
    return Setting(rows, fitted, graded, unlabelled, pooling)


def choose_likelihood(setting: Setting, likelihood: str) -> str:
    """Return the likelihood of the labels at hand, ``bernoulli`` for binary ones; raise if there is no such model."""
    one_of(likelihood, "likelihood", ("normal", "beta"))
    if setting.graded.levels.binary:
        return "bernoulli"
    if likelihood == "normal":
        return likelihood
    if setting.pooling == "partial" or setting.graded.columns is not None:
        raise ValueError(
            "likelihood='beta' has no model with covariates or partial pooling; leave out one of the two"
        )
    return likelihood


def choose_engine(engine: str | None, *, extended: bool) -> str:
    """Sampler to use: Gibbs unless the model is one that only NUTS samples."""
    if engine is None:
        return "nutpie" if extended else "gibbs"
    one_of(engine, "engine", ENGINES)
    if extended and engine == "gibbs":
        raise ValueError(
            "engine 'gibbs' samples one calibrator that is cut from the probes, with the default likelihood; use "
            "'nutpie' or 'pymc' with partial pooling, a joint posterior or likelihood='beta'"
        )
    return engine


def calibrate(
    setting: Setting,
    *,
    engine: str,
    n_draws: int,
    prior: Prior,
    rng: np.random.Generator,
    likelihood: str = "normal",
) -> CalibratorPosterior:
    """Draw the posterior of f by the sampler that `engine` names.

    One calibrator for all policies may be flat (`cje_core.bayes.flat`); with one per policy, or with the bounded
    likelihood ``beta``, that is left out.
    """
    rows, graded, status, trace = setting.rows, setting.graded, Status.OK, None
    if engine == "gibbs":
        if graded.columns is None:
            found = gibbs.sample(graded.levels, n_draws=n_draws, prior=prior, rng=rng)
        else:
            found = two_stage.sample(rows, graded, n_draws=n_draws, prior=prior, rng=rng)
    else:
        from cje_core.bayes.models import draws as fits
        from cje_core.bayes.models import nuts

        options = nuts.NutsOptions(engine, n_draws=max(n_draws, MIN_RUN))
        if setting.pooling == "partial":
            run = fits.hierarchical(rows, graded, options, prior=prior, rng=rng)
        elif likelihood == "beta":
            run = fits.bounded(rows, graded, options, prior=prior, rng=rng)
        else:
            trace = fits.trace(rows, graded, options, prior=prior, rng=rng)
            run = fits.draws_of(trace, graded, options)
        found, status = thin(run, n_draws), nuts.gates(run.diagnostics)
    if setting.pooling == "complete" and likelihood != "beta":
        found = flat.mix(rows, graded, found, prior=prior, rng=rng)
    return CalibratorPosterior(found, status, trace)


def joint(
    setting: Setting, *, engine: str, n_draws: int, prior: Prior, scale: float, rng: np.random.Generator
) -> tuple[Draws, FloatArray, Status]:
    """Draws of f and of the shifts (P, n_draws) from their joint posterior."""
    from cje_core.bayes.models import draws as fits
    from cje_core.bayes.models import nuts

    options = nuts.NutsOptions(engine, n_draws=max(n_draws, MIN_RUN))
    run, found = fits.joint(setting.rows, setting.graded, options, prior=prior, scale=scale, rng=rng)
    return thin(run, n_draws), found.delta[:, spaced(len(run.f), n_draws)], nuts.gates(run.diagnostics)


def spaced(size: int, n: int) -> IntArray:
    """`n` of `size` places, evenly spaced."""
    return np.linspace(0, size - 1, n).astype(np.intp)


def thin(run: Draws, n_draws: int) -> Draws:
    """`n_draws` of the draws, evenly spaced."""
    kept = spaced(len(run.f), n_draws)
    return run.each(lambda _, draws: draws[kept])


def enough(rows: Rows, which: BoolArray) -> BoolArray:
    """Policies with `MIN_LABELS` labelled prompts (clusters of them) among some rows."""
    n_clusters = [count_clusters(rows, which & (rows.policy == p)) for p in range(len(rows.policies))]
    return np.array(n_clusters) >= MIN_LABELS


def policy_status(
    setting: Setting,
    p: int,
    *,
    correcting: BoolArray | None,
    convergence: Status,
) -> Status:
    """What must be said of one policy's posterior; failures first.

    `correcting` marks the rows whose labels correct the value. Where they never vary, their residuals show the spread
    of f or nothing, and a posterior made of them would be too sure. Without correction the value assumes transport,
    unless the policy's labels are among those that teach.
    """
    rows, fitted = setting.rows, setting.fitted
    mine = rows.policy == p
    if not (rows.evaluated & mine).any():
        return Status.NO_RESPONSES
    if fitted.status.failed:
        return fitted.status
    if len(np.unique(rows.cluster[fitted.prompt])) < MIN_LABELS:
        return Status.FEW_LABELS_POSTERIOR
    said = fitted.status
    if correcting is not None:
        # labels that teach may be constant, those that correct may not
        constant = np.ptp(rows.label[correcting & mine]) == 0
        said = Status.CONSTANT_LABELS if constant else Status.OK if said is Status.CONSTANT_LABELS else said
    if said is Status.CONSTANT_LABELS:
        return said
    if convergence is not Status.OK:
        return convergence
    if said is not Status.OK:
        return said
    return Status.OK if correcting is not None or enough(rows, rows.teaches)[p] else Status.TRANSPORT_ASSUMED


def refuse(setting: Setting, status: Sequence[Status], borrows: BoolArray) -> list[Status]:
    """`status` of each policy, with why it may not borrow where it `borrows` and has a posterior.

    UNINFORMATIVE_JUDGE where the labels do not show that the judge ranks them the right way
    (`cje_core.calibration.informative`). LOW_SUPPORT where too much of the policy's responses lies beyond all labels
    (`cje_core.families.direct.balance.supported`).
    """
    rows, fitted = setting.rows, setting.fitted
    spoken = [said.failed or said is Status.FEW_LABELS_POSTERIOR for said in status]
    asked = np.flatnonzero(borrows & ~np.array(spoken))
    found = list(status)
    if len(asked) == 0:
        return found
    ranks = informative(rows, fitted).informative
    n_clusters = count_clusters(rows, rows.teaches)
    for p in asked:
        mine = rows.evaluated & (rows.policy == p)
        share = rows.weight[mine] / rows.weight[mine].sum()
        if not ranks:
            found[p] = Status.UNINFORMATIVE_JUDGE
        elif not supported(rows.z[rows.teaches], n_clusters, rows.z[mine], share):
            found[p] = Status.LOW_SUPPORT
    return found


def to_estimate(
    data: xr.Dataset,
    setting: Setting,
    draws: FloatArray | None,
    status: Sequence[Status],
    route: Sequence[str],
    *,
    estimator: str,
    options: Mapping[str, Any],
    ci_prob: float,
    extra: Mapping[str, Any],
) -> xr.Dataset:
    """Estimate with posterior means, and intervals of the kind ``options["interval"]`` from the draws (P, n).

    Where the status forbids an interval the draws are NaN too: a probability made of them would pretend as much.
    """
    results = []
    for p, said in enumerate(status):
        if said.failed or draws is None:
            results.append(PolicyResult(said, "none"))
            continue
        value = float(draws[p].mean())
        own = np.full_like(draws[p], np.nan) if said in SILENT else draws[p]
        bounds = hdi(own, ci_prob) if options["interval"] == "hdi" and said not in SILENT else None
        source = SOURCE.get(route[p], "borrowed")
        spread = float(own.std(ddof=1))
        results.append(
            PolicyResult(said, route[p], source, value, std_error=spread, draws=own, bounds=bounds)
        )
    shown = {"unlabelled_mass": ("policy", setting.unlabelled), **extra}
    found = Found(setting.rows, results, options, IntervalRule(drawn=options["interval"]), extra=shown)
    return assemble(data, found, estimator=estimator, ci_prob=ci_prob)


def trace(data: xr.Dataset, setting: Setting, draws: Draws) -> dict[str, tuple[Any, ...]]:
    """Draws of every parameter, as variables of an estimate, with the judge's levels."""
    levels, (low, high) = setting.graded.levels, data.attrs["judge_range"]
    at = levels.level if setting.fitted.increasing else 1.0 - levels.level
    out: dict[str, tuple[Any, ...]] = {
        "level": ("level", low + (high - low) * at),
        "calibrator": (("replicate", "level"), levels.low + levels.width * draws.f),
        "ends": (("replicate", "end"), levels.low + levels.width * draws.ends),
        "shape": (("replicate", "spline"), draws.shape),
    }
    if not levels.binary:
        out["sigma"] = ("replicate", levels.width * draws.sigma)
    if draws.beta is not None:
        out["covariate_effect"] = (("replicate", "effect"), draws.beta)
    if draws.own is None:
        out["flat_judge"] = ((), draws.flat)
    else:
        own = levels.low + levels.width * draws.own
        out["own_calibrator"] = (("policy", "replicate", "level"), own.swapaxes(0, 1))
    return out | {name: ((), value) for name, value in draws.diagnostics.items()}
