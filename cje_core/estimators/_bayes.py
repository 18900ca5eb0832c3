"""What the Bayesian estimators share: the slice on judge levels, posterior draws of f, and draws -> estimate."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr

from cje_core.bayes import gibbs
from cje_core.bayes.gibbs import Draws, Prior
from cje_core.bayes.levels import Graded, grade
from cje_core.calibration import OracleSlice, fit_slice
from cje_core.data import Rows, unpack
from cje_core.estimators._assemble import PolicyResult, assemble
from cje_core.result import Status, hdi, sum_by

FloatArray = npt.NDArray[np.float64]

ENGINES = ("gibbs", "nutpie", "pymc")
INTERVALS = ("eti", "hdi")
SILENT = (Status.FEW_LABELS_POSTERIOR, Status.CONSTANT_LABELS)  # a value, but no interval and no draws
MIN_RUN = (
    4000  # draws of a NUTS run before thinning: its gates ask for 400 effective draws of the worst weight
)
MIN_LABELS = 13  # labelled prompts below which the posterior is the prior's


class Setting(NamedTuple):
    """One data set, ready for a posterior."""

    rows: Rows
    fitted: OracleSlice
    graded: Graded
    unlabelled: FloatArray  # per policy: share of its responses on judge levels without a label


def check_options(*, ci_prob: float, n_draws: int, interval: str) -> None:
    """Stop at options out of range before anything is sampled."""
    if not 0 < ci_prob < 1:
        raise ValueError(f"ci_prob is {ci_prob}; it must lie strictly between 0 and 1")
    if n_draws < 2:
        raise ValueError(f"n_draws is {n_draws}; a posterior needs at least 2 draws")
    if interval not in INTERVALS:
        raise ValueError(f"interval is {interval!r}; use one of {', '.join(INTERVALS)}")


def prepare(data: xr.Dataset, *, direction: str) -> Setting:
    """Rows, teaching labels and judge levels of evaluation data."""
    rows = unpack(data)
    fitted = fit_slice(rows, direction=direction, calibrator="monotone")
    graded = grade(
        rows,
        fitted,
        judge_range=tuple(data.attrs["judge_range"]),
        oracle_range=tuple(data.attrs["oracle_range"]),
    )
    used = rows.evaluated
    empty = graded.levels.n[graded.at] == 0
    weight = np.where(used, rows.weight, 0.0)
    total = sum_by(rows.policy, weight, len(rows.policies))
    share = sum_by(rows.policy, weight * empty, len(rows.policies))
    unlabelled = np.divide(share, total, out=np.full(len(total), np.nan), where=total > 0)
    return Setting(rows, fitted, graded, unlabelled)


def calibrate(
    setting: Setting, *, engine: str, n_draws: int, prior: Prior, rng: np.random.Generator
) -> tuple[Draws, Status]:
    """Posterior draws of f, and NOT_CONVERGED where the sampler's own checks say so."""
    if engine not in ENGINES:
        raise ValueError(f"engine is {engine!r}; use one of {', '.join(ENGINES)}")
    if engine == "gibbs":
        return gibbs.sample(setting.graded.levels, n_draws=n_draws, prior=prior, rng=rng), Status.OK
    from cje_core.bayes import sampling  # PyMC: seconds to import, so only when it is asked for

    run = sampling.sample(
        setting.graded.levels,
        engine=engine,
        n_draws=max(n_draws, MIN_RUN),
        prior=prior,
        seed=int(rng.integers(2**31)),
    )
    kept = np.linspace(0, len(run.f) - 1, n_draws).astype(np.intp)
    draws = Draws(run.f[kept], run.weight[kept], run.sigma[kept], run.diagnostics)
    return draws, sampling.status(draws)


def corrected_policies(rows: Rows) -> npt.NDArray[np.bool_]:
    """Policies with enough labels of their own to correct their value."""
    cluster = rows.cluster[rows.prompt]
    own = rows.evaluated & rows.labelled
    return np.array(
        [len(np.unique(cluster[own & (rows.policy == p)])) >= MIN_LABELS for p in range(len(rows.policies))]
    )


def policy_status(setting: Setting, p: int, *, corrected: bool, convergence: Status) -> Status:
    """What must be said of one policy's posterior; failures first."""
    rows, fitted = setting.rows, setting.fitted
    if not (rows.evaluated & (rows.policy == p)).any():
        return Status.NO_RESPONSES
    if fitted.status.failed:
        return fitted.status
    if len(np.unique(rows.cluster[fitted.prompt])) < MIN_LABELS:
        return Status.FEW_LABELS_POSTERIOR
    if convergence is not Status.OK:
        return convergence
    if fitted.status is not Status.OK:
        return fitted.status
    return Status.OK if corrected else Status.TRANSPORT_ASSUMED


def to_estimate(
    data: xr.Dataset,
    setting: Setting,
    draws: FloatArray | None,
    status: Sequence[Status],
    *,
    route: Sequence[str],
    estimator: str,
    options: Mapping[str, Any],
    ci_prob: float,
    interval: str,
    extra: Mapping[str, Any] | None = None,
) -> xr.Dataset:
    """Estimate with posterior means, and intervals from the draws (P, n).

    Where the status forbids an interval the draws are NaN too: a probability made of them would pretend as much.
    """
    results = []
    for p, said in enumerate(status):
        if said.failed or draws is None:
            results.append(PolicyResult(said, "none"))
            continue
        value = float(draws[p].mean())
        own = np.full_like(draws[p], np.nan) if said in SILENT else draws[p]
        spread = float(own.std(ddof=1))
        bounds = hdi(own, ci_prob) if interval == "hdi" and said not in SILENT else None
        results.append(PolicyResult(said, route[p], value, std_error=spread, draws=own, bounds=bounds))
    order = [setting.rows.policies.index(str(name)) for name in data.policy.values]
    return assemble(
        data,
        setting.rows,
        results,
        estimator=estimator,
        options={**options, "interval": interval},
        ci_prob=ci_prob,
        draws_kind=interval,
        extra={"unlabelled_mass": ("policy", setting.unlabelled[order]), **(extra or {})},
    )
