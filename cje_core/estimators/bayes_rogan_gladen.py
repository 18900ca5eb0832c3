"""Bayesian misclassification correction of a binary judge: posterior of the share of good responses.

Estimand: V(policy) = E[Y], Y one of the two ends of ``oracle_range``. The judge is cut at a threshold; sensitivity,
specificity and the share of good responses have the posterior of `cje_core.bayes.misclassification`, with uniform
priors by default: the Bayesian counterpart of `cje_core.estimators.rogan_gladen` (the paper's section "Comparison to
Misclassification Correction"), which clips what falls outside [0, 1]. Routes, thresholds and effective counts are
those of that estimator. Where all labels had one probability the policy's own labels count as a sample of its
responses, and the verdicts are those of the others; else all verdicts count and labels teach Se and Sp alone.

The interval is that of highest density: near an end of the scale the posterior piles up there, and equal tails leave
the end out. Value .02 behind a judge of J .4, borrowed from 40 labels: equal tails cover about .8, highest density .94;
in the middle both keep their level (`docs/decisions.md`).

Failure modes: as there, a confusion matrix that moves with the policy biases every borrowed number. Where the interval
of Youden's J reaches 0 the verdicts say little of the value: with own labels the interval is then theirs, and holds;
without them it is the prior's (ILL_CONDITIONED). With unequal label probabilities labelled responses enter twice, as if
independent, and the interval is too wide. Each policy is drawn by itself: a contrast of two that borrow ignores the
confusion matrix they share, and is too wide as well.

Examples
--------
>>> import cje_sim
>>> data = cje_sim.simulate("binary_judge", n=300, oracle_fraction=0.5, rng=1)
>>> found = estimate(data, n_draws=200, rng=1)
>>> dict(found["draws"].sizes), found.attrs["ci_kind"]
({'policy': 2, 'replicate': 200}, 'hdi')
"""

from collections.abc import Mapping

import numpy as np
import xarray as xr

from cje_core.bayes.misclassification import Counts, Posterior, sample
from cje_core.calibration.calibrated import Calibrated, calibrated
from cje_core.checks import BoolArray, FloatArray, IntArray, Rng
from cje_core.data.arrays import Rows
from cje_core.families.assemble import assemble
from cje_core.families.finish import Found, IntervalRule, PolicyResult
from cje_core.families.misclassification import (
    ACCURACY,
    Verdicts,
    gather,
    judge_verdicts,
    label_weight,
    proportion,
    source_of,
)
from cje_core.families.posterior import MIN_LABELS, check_options
from cje_core.inference.estimate import Status, hdi

NEEDS = {"judge", "oracle"}
NEXT_TO_END = 0.005  # share of draws that may lie beyond an interval that reaches the end
MIN_EFFECTIVE = 400.0  # proposals that must count, for quantiles to be trusted


def estimate(
    data: xr.Dataset | Calibrated,
    *,
    ci_prob: float = 0.95,
    rng: Rng = None,
    threshold: float | None = None,
    accuracy_prior: tuple[float, float] = (1.0, 1.0),
    n_draws: int = 2000,
    interval: str = "hdi",
) -> xr.Dataset:
    """Estimate each policy's value by the posterior of its share of good responses; see the module and its package.

    Parameters
    ----------
    threshold : float, optional
        A score at or above it passes. Default: the middle of ``judge_range``.
    accuracy_prior : pair of float
        Beta prior of sensitivity and of specificity.

    Returns
    -------
    And the posterior means ``sensitivity``, ``specificity`` and ``youden`` over ``policy``.
    """
    rng = np.random.default_rng(rng)
    check_options(ci_prob=ci_prob, n_draws=n_draws, interval=interval)
    given = calibrated(data)
    data, rows, (bottom, top) = given.data, given.rows, given.scale
    verdicts = judge_verdicts(given, threshold)
    found = [_counts(rows, verdicts, p) for p in range(len(rows.policies))]
    results = [PolicyResult(status, route) for status, route, _ in found]
    accuracy = np.full((len(found), 3), np.nan)
    known = {p: counts for p, (_, _, counts) in enumerate(found) if counts is not None}
    for p, posterior in _posteriors(known, n_draws=n_draws, accuracy_prior=accuracy_prior, rng=rng).items():
        (status, route, _), counts = found[p], known[p]
        draws = bottom + (top - bottom) * posterior.value
        value, spread = float(draws.mean()), float(draws.std(ddof=1))
        said = _judged(status, posterior, counts.own > 0, ci_prob)
        if said is Status.FEW_LABELS_POSTERIOR:
            draws, spread = np.full_like(draws, np.nan), np.nan
        bounds = (
            _shortest(draws, (bottom, top), ci_prob) if interval == "hdi" and np.isfinite(spread) else None
        )
        results[p] = PolicyResult(
            said, route, source_of(route), value, std_error=spread, draws=draws, bounds=bounds
        )
        se, sp = posterior.sensitivity, posterior.specificity
        accuracy[p] = se.mean(), sp.mean(), (se + sp - 1.0).mean()
    options = {
        "threshold": verdicts.threshold,
        "accuracy_prior": list(accuracy_prior),
        "n_draws": n_draws,
        "interval": interval,
    }
    shown = {name: ("policy", accuracy[:, k]) for k, name in enumerate(ACCURACY)}
    made = Found(rows, results, options, IntervalRule(drawn=interval), extra=shown)
    return assemble(data, made, estimator="bayes_rogan_gladen", ci_prob=ci_prob)


def _shortest(draws: FloatArray, scale: tuple[float, float], ci_prob: float) -> FloatArray:
    """Compute the highest-density interval, to an end of the scale with `NEXT_TO_END` of the draws beyond it at most.

    There the density piles up, and the outermost draw of the shortest interval is not the end itself.
    """
    lower, upper = hdi(draws, ci_prob)
    return np.array(
        [
            scale[0] if (draws < lower).mean() <= NEXT_TO_END else lower,
            scale[1] if (draws > upper).mean() <= NEXT_TO_END else upper,
        ]
    )


def _posteriors(
    counts: Mapping[int, Counts],
    *,
    n_draws: int,
    accuracy_prior: tuple[float, float],
    rng: np.random.Generator,
) -> dict[int, Posterior]:
    """The posterior of each policy, one after the other by what was counted: names must not matter."""
    return {
        p: sample(counts[p], n_draws=n_draws, accuracy_prior=accuracy_prior, rng=rng)
        for p in sorted(counts, key=counts.__getitem__)
    }


def _judged(status: Status, posterior: Posterior, sampled: bool, ci_prob: float) -> Status:
    """Status of a value in the light of its posterior; `sampled` where own labels tell the share of good responses."""
    youden = posterior.sensitivity + posterior.specificity - 1.0
    ends = np.quantile(youden, [0.5 - ci_prob / 2, 0.5 + ci_prob / 2])
    if status is Status.FEW_LABELS_POSTERIOR:
        return status
    if posterior.effective < MIN_EFFECTIVE:
        return Status.NOT_CONVERGED
    if ends[0] <= 0 <= ends[1] and not sampled:
        return Status.ILL_CONDITIONED
    return Status.INVERTED_JUDGE if ends[1] < 0 else status


def _counts(rows: Rows, verdicts: Verdicts, p: int) -> tuple[Status, str, Counts | None]:
    """Status, route and effective counts of policy p; no counts where the status is a failure."""
    found = gather(rows, verdicts, p)
    if isinstance(found, Status):
        return found, "none", None
    weight = label_weight(rows)
    plain = found.route == "own_labels" and np.ptp(rows.label_prob[found.labels]) == 0
    fresh = found.evaluated[~rows.labelled[found.evaluated]] if plain else found.evaluated
    n_passed, n = _effective(rows, fresh, verdicts.passed, rows.weight)
    good_passed, n_good = _effective(rows, found.good, verdicts.passed, weight)
    bad_failed, n_bad = _effective(rows, found.bad, ~verdicts.passed, weight)
    own_good, n_own = _effective(rows, found.labels, verdicts.good, weight) if plain else (0.0, 0.0)
    counts = Counts(n_passed, n, good_passed, n_good, bad_failed, n_bad, own_good, n_own)
    few = found.n_clusters < MIN_LABELS
    return Status.FEW_LABELS_POSTERIOR if few else found.status, found.route, counts


def _effective(rows: Rows, index: IntArray, hit: BoolArray, weight: FloatArray) -> tuple[float, float]:
    """Effective hits and trials of a weighted share, rounded: sums in another order must give the same draws."""
    if len(index) == 0:
        return 0.0, 0.0
    share = proportion(rows, index, hit, weight)
    return round(share.value * share.n, 8), round(share.n, 8)
