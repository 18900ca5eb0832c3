"""Reward calibration by isotonic regression: what it preserves, what it spreads, and what its ends do to contrasts."""

import math

import numpy as np
from scipy import stats

from cje_core.calibration.isotonic import isotonic
from cje_core.streams import generator
from cje_sim.exact.judged_means import rising
from studies.ledger.claim import Claim, ClaimError, Evidence, Params, Sides, Trial
from studies.ledger.own import decided, first_broken
from studies.ledger.worlds import Family, FloatArray, number, over_worlds

SIZES = (40, 80, 160, 320, 640, 1280)
FOLDS = 5
CENTRED = 0.1  # bias, in standard errors, that counts as none


def labels(z: FloatArray, size: int) -> dict[str, object]:
    """Labels in the order of their scores with weights, and a convex function: its kink and its slopes."""
    y, weight = z[: 2 * size].reshape(2, size)
    return {"label": y.tolist(), "weight": np.exp(weight / 2).tolist(), "kink": float(z[-1])}


LABELS = Family((2, 3, 5, 8), lambda size: 2 * size + 1, labels)


def fitted(w: Params) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Labels, weights and the isotonic fit."""
    y, weight = np.asarray(w["label"], float), np.asarray(w["weight"], float)
    if not (weight > 1e-9).all():
        raise ClaimError("weights must be positive")
    return y, weight, isotonic(y, weight)[0]


def mean_kept(w: Params) -> Sides:
    """Weighted mean of the fit and of the labels, both moved away from nought."""
    y, weight, fit = fitted(w)
    return Sides(10 + float(fit @ weight / weight.sum()), 10 + float(y @ weight / weight.sum()))


def convex_sums(w: Params) -> Sides:
    """Weighted sum of ``|f - kink| + (f - kink)^2`` over the fit, against that over the labels."""
    y, weight, fit = fitted(w)
    left, right = (float(weight @ (np.abs(v - w["kink"]) + (v - w["kink"]) ** 2)) for v in (fit, y))
    return Sides(left + 1e-9, right + 1e-9)


def two_routes(w: Params) -> Sides:
    """Distance of the pooled fit from the max-min formula, relative to the labels' size."""
    y, weight, fit = fitted(w)
    return Sides(1 + float(np.abs(fit - rising(y, weight)).max() / (1 + np.abs(y).max())), 1.0)


def out_of_fold_gap(rng: np.random.Generator, m: int) -> float:
    """Mean of out-of-fold predictions less the mean label, labels uniform around a rising curve."""
    s = np.sort(rng.random(m))
    y = s**2 + 0.5 * (rng.random(m) - 0.5)
    fold = rng.permutation(m) % FOLDS
    out = np.empty(m)
    for k in range(FOLDS):
        train = fold != k
        out[~train] = np.interp(s[~train], s[train], isotonic(y[train], np.ones(int(train.sum())))[0])
    return float((out - y).mean())


def rate(sizes: FloatArray, values: FloatArray, mcse: FloatArray) -> tuple[float, float]:
    """Slope of log value in log size and its standard error, weighted by the relative errors."""
    x, y, w = np.log(sizes), np.log(values), (values / mcse) ** 2
    centre = float(w @ x / w.sum())
    spread = float(w @ (x - centre) ** 2)
    return float(w @ ((x - centre) * y) / spread), float(spread**-0.5)


def decide_out_of_fold(trial: Trial) -> Evidence:
    """Rate at which the root mean square of the out-of-fold gap falls."""
    reps = trial.size(60, 400, 4000)
    sizes = np.array(SIZES[: trial.size(4, 5, 6)], float)
    rng = trial.rng("gaps")
    gaps = [np.array([out_of_fold_gap(rng, int(m)) for _ in range(reps)]) for m in sizes]
    size = np.array([math.sqrt(float((g**2).mean())) for g in gaps])
    error = size / math.sqrt(2 * reps)
    if trial.planted:
        size = size * sizes**1.2
    slope, mcse = rate(sizes, size, error)
    return Evidence(
        holds=None if abs(slope) < 5 * mcse else slope < -5 * mcse,
        measured=f"slope of log root mean square in log m: {slope:.2f} ({mcse:.2f})",
        expected="negative",
        mcse=mcse,
        text=f"Root mean square of the gap at {', '.join(f'{m:.0f}' for m in sizes)} labels: "
        f"{', '.join(number(v) for v in size)} ({reps} replicates each). It falls like m^{slope:.2f} ({mcse:.2f}): "
        "out of fold the mean is kept in the limit, not exactly as in the sample.",
        curve={"root mean square": list(zip(sizes.tolist(), size.tolist(), strict=True))},
        axes=("labels", "root mean square of the gap"),
    )


def false_difference(rng: np.random.Generator, m: int, reps: int, slow: bool = False) -> FloatArray:
    """Fitted mean on the upper half of the scale less that on the lower, labels without any relation to the score.

    Labels are standard normal; two policies spread over one half each. Their true difference is 0.
    """
    out = np.empty(reps)
    one = np.ones(m)
    for r in range(reps):
        y = rng.standard_normal(m)
        fit = rising(y, one) if slow else isotonic(y, one)[0]
        out[r] = fit[m // 2 :].mean() - fit[: m // 2].mean()
    return out


def end_bias_slowly(w: Params) -> Sides:
    """The same by the max-min formula, on other draws."""
    return end_bias(w, slow=True)


def end_bias(w: Params, slow: bool = False) -> Sides:
    """Bias of the contrast in units of the labels' standard error sqrt(4/m), against a tenth of it."""
    m, reps = int(w["labels"]), 100 if slow else 600
    found = false_difference(generator(0, "claims", "end bias", m, slow), m, reps, slow) * math.sqrt(m / 4)
    return Sides(float(found.mean()), CENTRED, float(found.std() / math.sqrt(reps)))


def decide_end_bias(trial: Trial) -> Evidence:
    """Bias of a contrast of two borrowed plug-ins at the ends of the scale, over sizes of the slice."""
    reps = trial.size(100, 1500, 10_000)
    sizes = np.array(SIZES[: trial.size(4, 5, 6)], float)
    rng = trial.rng("contrast")
    found = [false_difference(rng, int(m), reps) for m in sizes]
    bias = np.array([f.mean() for f in found])
    mcse = np.array([f.std() / math.sqrt(reps) for f in found])
    spread = np.array([f.std() for f in found])
    slope, error = rate(sizes, bias, mcse)
    ratio = bias / spread
    asked = 0.001 if trial.planted else CENTRED
    return Evidence(
        holds=bool((ratio < asked).all()),
        measured=f"bias of order m^{slope:.2f} ({error:.2f}); {ratio.min():.2f} to {ratio.max():.2f} standard "
        f"deviations",
        expected="below a tenth of the standard deviation, and falling faster than m^-.5",
        mcse=error,
        text="Labels have nothing to do with the score, both policies are worth the same, and one spreads over "
        "the lower "
        f"half of the scale, the other over the upper. The plug-in difference is biased by "
        f"{', '.join(number(b) for b in bias)} standard deviations of a label at "
        f"{', '.join(f'{m:.0f}' for m in sizes)} labels, "
        f"of order m^{slope:.2f} ({error:.2f}): {ratio.min():.2f} to {ratio.max():.2f} of its own standard deviation, "
        "however many labels. The sides below are in other units: standard errors sqrt(4 / m) of the labels' own "
        "difference, and a tenth of one.",
        counterexample=first_broken(({"labels": m} for m in range(2, SIZES[0] + 1)), end_bias),
        curve={"bias": list(zip(sizes.tolist(), bias.tolist(), strict=True))},
        axes=("labels", "bias of the contrast"),
    )


def unordered(z: FloatArray, size: int) -> dict[str, object]:
    """Labels of each of two levels, their rates, and the upper level's share under two policies."""
    share = 1 / (1 + np.exp(-z))
    return {
        "labels": [1 + int(6 * share[0]), 1 + int(6 * share[1])],
        "rate": share[2:4].tolist(),
        "upper": share[4:6].tolist(),
    }


def without_order(w: Params) -> Sides:
    """Expected difference of two policies' means of the levels' label means, all counts enumerated; and the truth.

    Both moved from 0.
    """
    rates, upper = np.asarray(w["rate"], float), np.asarray(w["upper"], float)
    if not (min(w["labels"]) >= 1 and (rates >= 0).all() and (rates <= 1).all()):
        raise ClaimError("each level needs a label, and a rate between 0 and 1")
    counts = [np.arange(m + 1) for m in w["labels"]]
    low, high = (stats.binom.pmf(c, m, r) for c, m, r in zip(counts, w["labels"], rates, strict=True))
    mean_low, mean_high = (c / m for c, m in zip(counts, w["labels"], strict=True))
    value = upper[:, None, None] * mean_high + (1 - upper[:, None, None]) * mean_low[:, None]
    expected = float(np.einsum("i,j,ij->", low, high, value[0] - value[1]))
    return Sides(2 + expected, 2 + float((upper[0] - upper[1]) * (rates[1] - rates[0])))


def difference_sign(w: Params) -> Sides:
    """Mean label of the lower half, after less before the fit, against that of the upper: the fit spreads the ends."""
    y, weight, fit = fitted(w)
    half = len(y) // 2
    before = float(
        y[half:] @ weight[half:] / weight[half:].sum() - y[:half] @ weight[:half] / weight[:half].sum()
    )
    after = float(
        fit[half:] @ weight[half:] / weight[half:].sum() - fit[:half] @ weight[:half] / weight[:half].sum()
    )
    return Sides(10 + max(before, 0.0), 10 + after)


CLAIMS: tuple[Claim, ...] = (
    over_worlds(
        name="lem-iso-mean",
        source="Lemma (mean preservation; PAVA), lem:iso-mean",
        statement="the isotonic fit has the (weighted) mean of the labels",
        why="Each block of the fit is the mean of its labels.",
        family=LABELS,
        sides=mean_kept,
        relation="==",
        planted="right side times 1.01",
        falsified=lambda s: Sides(s.left, 1.01 * s.right),
    ),
    over_worlds(
        name="lem-majorisation",
        source="Lemma (dispersion reduction by majorization), lem:maj",
        statement=r"$\sum w_i \varphi(\hat u_i) \le \sum w_i \varphi(y_i)$ for convex $\varphi$ (here absolute "
        r"value and "
        "square around any point)",
        why="Jensen's inequality within each block.",
        family=LABELS,
        sides=convex_sums,
        planted="half of the right side",
        falsified=lambda s: Sides(s.left, 0.5 * s.right),
    ),
    over_worlds(
        name="isotonic-projection",
        source="app:projections: PAVA is the least-squares projection on rising vectors",
        statement=r"the pooled fit is the max-min formula $\max_{i \le k} \min_{j \ge k} mean(y_{i..j})$",
        why="Two constructions of one projection; the second is slow and needs no pooling.",
        family=LABELS,
        sides=two_routes,
        relation="==",
        planted="right side times 1.01",
        falsified=lambda s: Sides(s.left, 1.01 * s.right),
    ),
    Claim(
        name="lem-oof-mean",
        source="Lemma (OOF mean preservation), lem:oof-mean",
        statement=r"$P_n[R^{OOF}] - P_n[Y] \to 0$",
        rule="fitted rate of the root mean square over sizes of the slice, with its standard error",
        why="Each map keeps the mean of the rows it was fitted on; of the rows held out it keeps it up to sampling.",
        decide=decide_out_of_fold,
        planted="the gap times m^1.2",
    ),
    over_worlds(
        name="isotonic-widens-ends",
        source="ours: on borrowed contrasts",
        statement="a rising fit never makes the difference between the upper and the lower half smaller than the "
        "labels' "
        "own, nor negative",
        why=r"$\langle y - \hat u, h\rangle \le 0$ for every rising h, here the step at the middle; and $\hat u$ "
        r"rises. So "
        "errors of the labels that raise the difference stay and those that lower it are cut off.",
        family=LABELS,
        sides=difference_sign,
        planted="left side times 1.1",
        falsified=lambda s: Sides(1.1 * s.left, s.right),
    ),
    decided(
        name="contrast-borrowed",
        source="ours: the plug-in of Section 3 with a borrowed calibrator, as found by the studies",
        statement="a difference of two borrowed plug-ins is centred: its bias is small beside its standard deviation",
        rule="two policies at the ends of the scale, a judge without information, equal values; fitted order of "
        "the bias",
        why=r"By `isotonic-widens-ends` the fitted difference is at least the positive part of the labels' own, a "
        r"normal "
        r"variable of standard deviation $2\sigma/\sqrt m$: its mean is at least $\sqrt{2/\pi}\,\sigma/\sqrt m$. "
        r"The bias "
        r"is of the order of the standard error and does not go away; more labels do not help.",
        decide=decide_end_bias,
        sides=end_bias,
        second=end_bias_slowly,
        planted="below a thousandth of the standard deviation",
    ),
    over_worlds(
        name="contrast-borrowed-repaired",
        source="ours: repairs contrast-borrowed",
        statement="with the labels balanced to each policy and no order imposed (level means in place of the isotonic "
        "fit) the difference of two borrowed values is centred at every number of labels",
        why=r"$E[\bar y_s] = E[Y|S = s]$ in each level, and the difference is linear in these means: what the order "
        "takes from errors of one sign it takes from the sum. The price is the variance that pooling saves.",
        rule="random worlds, then an optimiser; all counts of binary labels enumerated",
        family=Family((1,), lambda size: 6, unordered),
        sides=without_order,
        relation="==",
        repairs="contrast-borrowed",
        planted="right side times 1.1",
        falsified=lambda s: Sides(s.left, 1.1 * s.right),
    ),
)
