"""Intervals: the jackknife of the calibrator, shares of uncertainty, efficiency of the mean."""

import math

import numpy as np
from scipy import stats

from cje_core.streams import generator
from cje_sim.exact.judged_means import parts, two_phase
from studies.ledger.claim import Claim, Evidence, Params, Sides, Trial
from studies.ledger.worlds import Family, FloatArray, batches, number, over_worlds

Z95 = float(stats.norm.ppf(0.975))
FOLDS = 5


def naive(w: Params) -> Sides:
    """Coverage of a 95% interval whose estimate is biased, in standard errors, against a hundredth."""
    b = w["bias"] * math.sqrt(w["n"]) / w["sd"]
    return Sides(float(stats.norm.cdf(Z95 - b) - stats.norm.cdf(-Z95 - b)), 0.01)


def naive_by_simulation(w: Params) -> Sides:
    """The same from simulated scores."""

    def batch(rng: np.random.Generator) -> tuple[float, float]:
        x = w["bias"] + w["sd"] * rng.standard_normal((500, int(w["n"])))
        se = x.std(axis=1, ddof=1) / math.sqrt(w["n"])
        return float((np.abs(x.mean(axis=1)) <= Z95 * se).mean()), 0.01

    return batches(batch, generator(0, "claims", "inference", "naive"))


def one_step(labelled: FloatArray, good: FloatArray, rest: FloatArray) -> FloatArray:
    """The one-step estimate from counts over (replicate, fold, level): labels, good ones, responses without a label.

    Mean of the predictions of all, and of the labels' residuals, each by a fit without the row's fold.
    """
    fit = (good.sum(axis=1, keepdims=True) - good) / np.maximum(
        labelled.sum(axis=1, keepdims=True) - labelled, 1
    )
    n, m = (labelled + rest).sum(axis=(1, 2)), labelled.sum(axis=(1, 2))
    value = ((labelled + rest) * fit).sum(axis=(1, 2)) / n
    return np.asarray(value + (good - labelled * fit).sum(axis=(1, 2)) / m)


def decide_efficient(trial: Trial) -> Evidence:
    """Variance of the cross-fitted one-step estimator with a discrete calibrator, over the bound."""
    law = np.array([[0.25, 0.05], [0.2, 0.15], [0.05, 0.3]])
    found = parts(law, [0.0, 1.0])
    reps, n, m = trial.size(10_000, 100_000, 1_000_000), 6000, 1200
    rng = trial.rng("direct")
    bound = two_phase(found.whole, found.bound, n, m)
    level_mass = law.sum(axis=1)
    value = law[:, 1] / level_mass
    estimates = []
    for block in np.array_split(np.arange(reps), max(reps // 5000, 1)):
        shape = len(block), FOLDS
        labelled = rng.multinomial(m // FOLDS, level_mass, size=shape)
        rest = rng.multinomial((n - m) // FOLDS, level_mass, size=shape).astype(float)
        good = rng.binomial(labelled, value).astype(float)
        estimates.append(one_step(labelled.astype(float), good, rest))
    theta = np.concatenate(estimates)
    ratio = float(theta.var()) / bound * (1.3 if trial.planted else 1.0)
    mcse = ratio * math.sqrt(2 / reps)
    bias = float(theta.mean()) - float(law[:, 1].sum())
    room = 5 * mcse + len(law) * FOLDS / m  # the bound is of large samples; each level is fitted once a fold
    return Evidence(
        holds=abs(ratio - 1) < room,
        measured=f"variance / bound {ratio:.4f} ({mcse:.4f})",
        expected=f"1 within {room:.3f}",
        mcse=mcse,
        text=f"A judge of three levels, {n} prompts, {m} labels at random, {FOLDS} folds, {reps:,} replicates: the "
        f"one-step estimator has {ratio:.4f} ({mcse:.4f}) times the variance of the bound "
        f"Var(Y)/n + E Var(Y|S)(1/m - 1/n), and a bias of {bias:.1e}.",
    )


def decide_tmle(trial: Trial) -> Evidence:
    """Rate at which TMLE and the one-step estimator part, isotonic calibrator, five folds."""
    from cje_core.calibration.isotonic import isotonic

    sizes = np.array([100, 200, 400, 800, 1600][: trial.size(3, 4, 5)], float)
    reps = trial.size(60, 400, 3000)
    rng = trial.rng("tmle")
    gaps = []
    for n in sizes.astype(int):
        out = np.empty(reps)
        for r in range(reps):
            s = np.sort(rng.random(n))
            y = (rng.random(n) < 0.2 + 0.6 * s).astype(float)
            seen = rng.random(n) < 0.5
            fold = rng.permutation(n) % FOLDS
            fit = np.interp(s, s[seen], isotonic(y[seen], np.ones(int(seen.sum())))[0])
            held = np.empty(n)
            for k in range(FOLDS):
                train = seen & (fold != k)
                part = np.interp(s, s[train], isotonic(y[train], np.ones(int(train.sum())))[0])
                held[fold == k] = part[fold == k]
            one_step = fit.mean() + (y[seen] - held[seen]).mean()
            p = np.clip(held, 0.01, 0.99)
            eps = 0.0
            for _ in range(8):  # Newton steps of the intercept of a logistic fluctuation
                q = 1 / (1 + np.exp(-(np.log(p / (1 - p)) + eps)))
                eps += (y[seen] - q[seen]).sum() / (q[seen] * (1 - q[seen])).sum()
            q = 1 / (1 + np.exp(-(np.log(p / (1 - p)) + eps)))
            out[r] = q.mean() - one_step
        gaps.append(out)
    size = np.array([math.sqrt(float((g**2).mean())) for g in gaps]) * (sizes if trial.planted else 1)
    x = np.log(sizes)
    slope = float(np.polyfit(x, np.log(size), 1)[0])
    mcse = float(1 / math.sqrt(2 * reps) / np.sqrt(((x - x.mean()) ** 2).sum()))
    return Evidence(
        holds=None if abs(slope + 0.5) < 3 * mcse else slope < -0.5,
        measured=f"difference of order n^{slope:.2f} ({mcse:.2f})",
        expected="smaller than n^-.5",
        mcse=mcse,
        needs="" if abs(slope + 0.5) >= 3 * mcse else "more replicates: --profile paper",
        text=f"Root mean square of TMLE less the one-step estimator at {', '.join(f'{n:.0f}' for n in sizes)} "
        f"prompts, half "
        f"of them labelled: {', '.join(number(v) for v in size)} ({reps} replicates). It falls like n^{slope:.2f} "
        f"({mcse:.2f}), faster than the standard error.",
        curve={"root mean square": list(zip(sizes.tolist(), size.tolist(), strict=True))},
        axes=("prompts", "TMLE less one-step"),
    )


def scores(z: FloatArray, size: int) -> dict[str, float]:
    """Bias, spread and number of raw judge scores."""
    return {"bias": float(z[0]) / 10, "sd": float(np.exp(z[1] / 2)) / 5, "n": 50 + int(500 * abs(z[2]))}


CLAIMS: tuple[Claim, ...] = (
    over_worlds(
        name="naive-zero-coverage",
        source="ours: 'at most 1%' for Sections 1 and 5, where intervals on raw judge scores cover 0%",
        statement="a 95% interval around a raw judge mean covers at most 1%",
        why=r"Coverage is $\Phi(1.96 - b) - \Phi(-1.96 - b)$, b the bias in standard errors: a statement about "
        r"the judge's "
        "bias and n, not about judges.",
        family=Family((1,), lambda size: 3, scores),
        sides=naive,
        second=naive_by_simulation,
        condition="the bias is at least 4.3 standard errors",
        restrict=lambda w: {**w, "bias": 4.3 * w["sd"] / math.sqrt(w["n"]) * max(1.0, abs(w["bias"]))},
        planted="at most a millionth",
        falsified=lambda s: Sides(s.left, 1e-6),
    ),
    Claim(
        name="prop-direct-eif",
        source="Proposition (Direct: EIF and one-step estimator), prop:direct-eif",
        statement="the one-step estimator, cross-fitted, has the variance of the bound",
        rule="simulated variance over the exact bound, a judge of three levels",
        why=r"$Var\,\phi / n = Var(Y)/n + E Var(Y|S)(1/m - 1/n)$ at constant propensity.",
        decide=decide_efficient,
        planted="1.3 times the variance",
    ),
    Claim(
        name="tmle-equivalence",
        source="app:eif-direct: TMLE and the one-step estimator",
        statement="they agree to first order: their difference is of smaller order than the standard error",
        rule="fitted rate of the root mean square difference over sample sizes",
        why="Both solve the efficient score equation; the fluctuation is linear up to its square.",
        decide=decide_tmle,
        planted="n times the difference",
    ),
)
