"""A probed policy's own value: its probe labels, helped by the borrowed calibrator as far as that helps.

Estimand: V(policy) = E[Y]. Probes are labels of the policy itself that never taught f, so the calibrator is, given the
labels that taught it, a fixed function of Z, right or wrong. Routes:

``probe_tuned``
    (default) ``V = lambda mean f(Z) over responses + mean(Y - lambda f(Z)) over probes``. Any lambda
    keeps this at E[Y] whatever the transport; lambda is the least-squares slope of Y on f over the
    probes, times the share of the gap in f between both samples that is the probes' own noise (1 where
    the probes are among the responses, ``1 / (1 + m / N)`` where m probes stand apart from N
    responses), clipped to [0, 1]: the lambda of least variance, so a judge that tells nothing of Y
    is ignored. It is 0, and V the probes' mean, where f is constant over the probes, where no
    calibrator could be fitted, and with fewer than 6 probed clusters
``probe_corrected``
    (``tuned=False``) the paper's transport correction, lambda = 1: plug-in plus mean residual

Influence of the tuned value: ``lambda (f - mean f)`` on responses, ``a_j e_j / (1 - h_j)`` on probes, with e the
deviations of Y - lambda f from their mean, a_j the probe's coefficient in V (1 / m, plus what it moves through lambda
where that is not clipped) and h_j its leverage in the regression on f; df m - 2, the slope having spent one of m - 1.
By cluster, where several prompts or draws share one; why not ``e_j sqrt(m / (m - 2)) / m``: ``docs/decisions.md``. The
fit has no term of its own: its error enters as lambda times the difference of mean f over responses and over probes,
whose mean is zero given f. The untuned value keeps the term (the leverage of the teaching labels is the *difference* of
the knot masses of responses and probes, so an error common to both cancels).

Failure modes: it corrects the mean only, not the calibration within subgroups; the probes must be a random sample of
the policy's responses; with a handful of probes it is as wide as they are few, and 9 binary labels near an end of the
scale are too few for either t interval (it covers .91).

Examples
--------
>>> import cje_sim
>>> data = cje_sim.simulate("transport_shift", n=300, n_probes=40, rng=1)
>>> found = estimate(data)
>>> found["estimate"].to_series().round(3).to_dict()
{'base': nan, 'same': 0.672, 'lower': 0.565, 'flatter': 0.615, 'compensating': 0.64}
>>> found["route"].to_series().to_dict()
{'base': 'none', 'same': 'probe_tuned', 'lower': 'probe_tuned', 'flatter': 'probe_tuned', 'compensating': 'probe_tuned'}
"""

from typing import NamedTuple

import numpy as np
import xarray as xr

from cje_core.calibration.calibrated import Calibrated, Calibration, calibrated
from cje_core.calibration.calibrator import predict
from cje_core.calibration.folds import MIN_LABELLED_CLUSTERS, count_clusters
from cje_core.calibration.oracle_slice import OracleSlice, calibration_part
from cje_core.checks import FloatArray, IntArray, Rng
from cje_core.data.arrays import Rows
from cje_core.estimators import Role
from cje_core.families.assemble import assemble
from cje_core.families.finish import Found, IntervalRule, PolicyResult
from cje_core.inference.estimate import Status
from cje_core.inference.influence import Part, combine, effective_clusters, mean_part
from cje_core.inference.sums import cluster_se, sum_by

NEEDS = {"judge", "oracle", "probe"}
ROLE = Role("probe-corrected", "always", place=1, corrects="direct")
MOST_LEVERAGE = 0.95
MIN_TUNED_CLUSTERS = 6  # probed clusters from which a slope is fitted: ``docs/decisions.md``


def estimate(
    data: xr.Dataset | Calibrated,
    *,
    ci_prob: float = 0.95,
    rng: Rng = None,
    calibration: Calibration | None = None,
    interval: str = "auto",
    tuned: bool = True,
) -> xr.Dataset:
    """Estimate each probed policy's value from its probes; see the module and its package.

    Parameters
    ----------
    tuned : bool
        Weigh the calibrator by what it explains of the probes' labels; False is the paper's plug-in plus mean
        residual, with the noise of the fit in its interval.

    Returns
    -------
    And ``std_error_evaluation`` (responses drawn), ``std_error_calibration`` (probes, and labels where untuned),
    ``calibration_share`` and ``lam``, the lambda used. Policies with fewer than 4 probed prompts have status NO_PROBES.
    """
    del rng
    given = calibrated(data, calibration)
    data, rows, fitted = given.parts
    found = [probe_value(rows, fitted, p, tuned=tuned) for p in range(len(rows.policies))]
    options = {
        "covariates": list(given.calibration.covariates),
        "calibrator": fitted.mode,
        "direction": given.calibration.direction,
        "interval": interval,
        "tuned": tuned,
        **given.calibration.recorded,
    }
    made = Found(
        rows,
        [one.result for one in found],
        options,
        IntervalRule(interval, rows.probe),
        decomposed=True,
        extra={"lam": ("policy", [one.lam for one in found])},
    )
    return assemble(data, made, estimator="direct_corrected", ci_prob=ci_prob)


class ProbeValue(NamedTuple):
    """A policy's probe value and what it is made of; without parts where there is none."""

    result: PolicyResult
    lam: float = np.nan
    sampling: Part | None = None  # lambda f over the responses
    correction: Part | None = None  # what the probes add, with the error of lambda
    n_effective: float = np.nan  # probed clusters, those of unequal weight counted as Kish does


def probe_value(rows: Rows, fitted: OracleSlice, p: int, *, tuned: bool) -> ProbeValue:
    """Result of policy p, its lambda, and the two parts of its error that are not the noise of f."""
    index = np.flatnonzero((rows.policy == p) & rows.evaluated)
    probes = np.flatnonzero((rows.policy == p) & rows.probe)
    if len(index) == 0:
        return ProbeValue(PolicyResult(Status.NO_RESPONSES, "none"))
    if count_clusters(rows, probes) < MIN_LABELLED_CLUSTERS:
        return ProbeValue(PolicyResult(Status.NO_PROBES, "none"))
    if fitted.calibrator is None and not tuned:
        return ProbeValue(PolicyResult(fitted.status, "none"))
    f_all, f_probes = np.zeros(len(index)), np.zeros(len(probes))
    if fitted.calibrator is not None:
        f_all, f_probes = (predict(fitted.calibrator, rows.z[which]) for which in (index, probes))
    slope = _slope(rows, index, probes, f_all, f_probes) if tuned else _Slope(1.0)
    lam = slope.lam
    plug_in, sampling = mean_part(rows, index, lam * f_all, rows.weight[index])
    shift, correction = _probe_part(rows, probes, rows.label[probes] - lam * f_probes, slope)
    fit_noise = [] if tuned else [_fit_noise(rows, fitted, index, probes)]
    influence, std_error, df = combine([sampling, correction, *fit_noise], rows.cluster)
    # labels that teach may be missing or constant, the probes may not: nothing would say how far off their mean is
    harmless = fitted.status is Status.CONSTANT_LABELS or fitted.status.failed
    status = Status.OK if harmless else fitted.status
    if np.ptp(rows.label[probes]) == 0:
        status = Status.CONSTANT_LABELS
    result = PolicyResult(
        status,
        "probe_tuned" if tuned else "probe_corrected",
        "probes",
        plug_in + shift,
        influence,
        std_error,
        df,
        se_evaluation=float(cluster_se(sampling.influence, rows.cluster)),
        se_calibration=float(cluster_se(influence - sampling.influence, rows.cluster)),
    )
    return ProbeValue(result, lam, sampling, correction, _n_effective(rows, probes))


class _Slope(NamedTuple):
    """Lambda and, per probe, what it owes to that probe's label."""

    lam: float
    leverage: FloatArray | None = None  # of each probe in the regression on f, the mean's part left out
    moves: FloatArray | None = None  # by how much V moves with its label, through lambda; 0 where clipped


def _slope(rows: Rows, index: IntArray, probes: IntArray, f_all: FloatArray, f_probes: FloatArray) -> _Slope:
    """Lambda learned from the probes, or zero where they cannot teach it.

    The variance of V is that of ``mean_probes(Y) - lambda D``, D the gap of mean f between probes and responses; with
    independent rows and D's row coefficients d it is least at slope times ``sum_probes v d / sum d^2``, v the probes'
    shares. Correlation inside clusters is ignored here, which costs width, not level.
    """
    v = rows.weight[probes] / rows.weight[probes].sum()
    spread = f_probes - (v * f_probes).sum()
    squared = float((v * spread**2).sum())
    rounding = 1e-12 * max(float(np.abs(f_probes).max()), 1.0)
    if np.ptp(f_probes) <= rounding or count_clusters(rows, probes) < MIN_TUNED_CLUSTERS:
        return _Slope(0.0)
    d = np.zeros(len(rows.policy))
    d[probes] += v
    u = rows.weight[index] / rows.weight[index].sum()
    d[index] -= u
    size = float((d**2 / rows.stands_for if rows.stands_for.size else d**2).sum())
    own = float((v * d[probes]).sum()) / size if size > 1e-12 * float((v**2).sum()) else 1.0
    per_label = own * v * spread / squared
    free = float((per_label * rows.label[probes]).sum())
    lam = float(np.clip(free, 0.0, 1.0))
    inner = free == lam
    gap = float((u * f_all).sum() - (v * f_probes).sum())
    return _Slope(lam, inner * v * spread**2 / squared, inner * gap * per_label)


def _probe_part(rows: Rows, probes: IntArray, left: FloatArray, slope: _Slope) -> tuple[float, Part]:
    """Mean over probes of Y - lambda f, and the error of the labels of the probes, with that of lambda."""
    weight = rows.weight[probes]
    if slope.leverage is None or slope.moves is None:
        return mean_part(rows, probes, left, weight)
    n, v = len(rows.prompts), weight / weight.sum()
    mean = float((v * left).sum())
    prompt = rows.prompt[probes]
    cluster = rows.cluster[prompt]
    leverage = sum_by(cluster, v + slope.leverage, len(rows.cluster_names))[cluster]
    moves = (v + slope.moves) * (left - mean) / (1 - np.minimum(leverage, MOST_LEVERAGE))
    m = _n_effective(rows, probes)
    return mean, Part(n * sum_by(prompt, moves, n), max(m - 2, (m - 1) / 2))


def _n_effective(rows: Rows, probes: IntArray) -> float:
    """Probed clusters behind the mean over probes."""
    v = rows.weight[probes] / rows.weight[probes].sum()
    return effective_clusters(sum_by(rows.prompt[probes], v, len(rows.prompts)), rows.cluster)


def _fit_noise(rows: Rows, fitted: OracleSlice, index: IntArray, probes: IntArray) -> Part:
    """What the labels that taught f add to the untuned value."""
    share = [rows.weight[which] / rows.weight[which].sum() for which in (index, probes)]
    both = np.concatenate([index, probes])
    return calibration_part(rows, fitted, rows.z[both], np.concatenate([share[0], -share[1]]))
