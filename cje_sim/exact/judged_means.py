"""Large-sample variances of a mean label from n judged responses of which m are labelled, by finite sums.

The judge reports one of k levels, the label takes one of l values, and a *law* is their joint distribution, shape (k,
l). The m labels are a simple random part of the n responses (own labels). For a fixed prediction g of the label,

    theta = mean_n g(S) + mean_m (Y - g(S))        has        Var theta = Var Y / n + Var(Y - g(S)) (1 / m - 1 / n),

exactly, up to the finite-population factor of sampling without replacement, which it includes; with ``g(s) = E[Y | S =
s]`` it is the efficiency bound (the paper's proposition "Direct: EIF"). A misclassification correction with its rates
from the same labels has influence ``(Y - theta) + (L n / m - 1) (E[Z | Y] - Z) / J``, so g is ``Z / J`` and its labels'
part is ``E Var(Z | Y) / J^2``: the 1 / J law, and ``1 / rho^2`` times the bound's, rho the correlation of verdict and
label.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cje_sim.judges import LINKS, FloatArray, expected_over_scores, oracle_mean


def two_phase(whole: float, left: float, n: float, m: float) -> float:
    """Variance with n responses and m labels: of the label `whole`, of what the prediction leaves `left`.

    Examples
    --------
    >>> two_phase(0.25, 0.25, 100, 50)  # a prediction that explains nothing: the mean of 50 labels
    0.005
    """
    return float(whole / n + left * (1 / m - 1 / n))


class Parts(NamedTuple):
    """Variance of the label and of what is left of it after a prediction from the judge."""

    whole: float
    bound: float  # the best prediction, E[Y | S]
    monotone: float  # the best prediction that rises with the level


def parts(law: FloatArray, labels: npt.ArrayLike) -> Parts:
    """Variance of the label and what the judge's levels leave of it.

    Examples
    --------
    >>> parts(np.array([[0.4, 0.1], [0.1, 0.4]]), [0, 1])  # E[Y | S] is .2 or .8
    Parts(whole=0.25, bound=0.16, monotone=0.16)
    """
    y = np.asarray(labels, float)
    share = law.sum(axis=1)
    mean = law @ y / np.where(share > 0, share, 1.0)
    second, center = float((law @ y**2).sum()), float((law @ y).sum())

    def left(g: FloatArray) -> float:
        return second - 2 * float((law @ y) @ g) + float(share @ g**2)

    rounded = (second - center**2, left(mean), left(rising(mean, share)))
    return Parts(*(round(v, 14) for v in rounded))


def rising(values: FloatArray, weight: FloatArray) -> FloatArray:
    """Weighted least-squares fit that never falls: the max-min formula, slow and plain.

    Examples
    --------
    >>> rising(np.array([0.0, 1.0, 0.5]), np.ones(3)).tolist()
    [0.0, 0.75, 0.75]
    """
    k = len(values)
    sums, mass = (np.concatenate([[0.0], np.cumsum(x)]) for x in (values * weight, weight))
    means = np.full((k, k), np.nan)
    for i in range(k):
        for j in range(i, k):
            heavy = mass[j + 1] - mass[i]
            means[i, j] = (sums[j + 1] - sums[i]) / heavy if heavy > 0 else np.nan
    return np.array([np.nanmax([np.nanmin(means[i, s:]) for i in range(s + 1)]) for s in range(k)])


def garbled(law: FloatArray, channel: FloatArray) -> FloatArray:
    """Law of a judge that sees only what a channel passes on: rows of `channel` are laws of the report given the level.

    Examples
    --------
    >>> garbled(np.array([[0.4, 0.1], [0.1, 0.4]]), np.full((2, 2), 0.5)).tolist()  # nothing gets through
    [[0.25, 0.25], [0.25, 0.25]]
    """
    if (channel < 0).any() or np.abs(channel.sum(axis=1) - 1).max() > 1e-9:
        raise ValueError("each row of a channel is a law: shares that sum to 1")
    return np.asarray(channel.T @ law)


class BinaryJudge(NamedTuple):
    """A pass/fail judge of good and bad responses."""

    good: float  # share of good responses
    sensitivity: float
    specificity: float

    @property
    def youden(self) -> float:
        """J."""
        return self.sensitivity + self.specificity - 1

    @property
    def passed(self) -> float:
        """Share that passes."""
        return self.good * self.sensitivity + (1 - self.good) * (1 - self.specificity)

    @property
    def values(self) -> tuple[float, float]:
        """Share of good responses among those that fail and those that pass."""
        return (
            self.good * (1 - self.sensitivity) / (1 - self.passed),
            self.good * self.sensitivity / self.passed,
        )

    @property
    def law(self) -> FloatArray:
        """Joint law of verdict (fail, pass) and label (bad, good)."""
        bad = (1 - self.good) * np.array([self.specificity, 1 - self.specificity])
        return np.stack([bad, self.good * np.array([1 - self.sensitivity, self.sensitivity])], axis=1)

    @property
    def noise(self) -> float:
        """``E Var(Z | Y)`` of the verdict Z."""
        se, sp = self.sensitivity, self.specificity
        return self.good * se * (1 - se) + (1 - self.good) * sp * (1 - sp)


class Limit(NamedTuple):
    """What an estimate tends to, and its large-sample standard error."""

    value: float
    std_error: float


def own_labels(judge: BinaryJudge, n: float, m: float) -> dict[str, Limit]:
    """Estimates from n verdicts on a policy and m labels of it, by estimator.

    ``direct`` is the efficiency bound, which the calibrated verdict, PPI++ and the joint likelihood all reach; ``ppi``
    takes the verdict as it is, on the n - m responses without a label.
    """
    whole, bound, _ = parts(judge.law, [0.0, 1.0])
    disagree = judge.law[0, 1] + judge.law[1, 0]
    shift = judge.law[1, 0] - judge.law[0, 1]
    efficient = two_phase(whole, bound, n, m)
    variance = {
        "raw_judge": judge.passed * (1 - judge.passed) / n,
        "labels_only": whole / m,
        "rogan_gladen": two_phase(whole, judge.noise / judge.youden**2, n, m),
        "ppi": judge.passed * (1 - judge.passed) / (n - m) + (disagree - shift**2) / m,
        "ppi_plus_plus": efficient,
        "direct": efficient,
    }
    value = dict.fromkeys(variance, judge.good) | {"raw_judge": judge.passed}
    return {name: Limit(value[name], float(np.sqrt(v))) for name, v in variance.items()}


def borrowed_labels(base: BinaryJudge, theta: float, n: float, m: float) -> dict[str, Limit]:
    """Estimates from n verdicts on a target and m labels of a base policy, by estimator.

    The judge passes the target's responses as often as its rates do at prevalence `theta`; which value that stands for
    the data do not say (`cje_sim.scenarios.binary_judge`), so limits are given, not biases.
    """
    p, (bad, good) = base._replace(good=theta).passed, base.values
    fit = p**2 * good * (1 - good) / base.passed + (1 - p) ** 2 * bad * (1 - bad) / (1 - base.passed)
    errors = theta**2 * base.sensitivity * (1 - base.sensitivity) / base.good
    errors += (1 - theta) ** 2 * base.specificity * (1 - base.specificity) / (1 - base.good)
    sampled = p * (1 - p) / n
    calibrated = Limit((1 - p) * bad + p * good, float(np.sqrt((good - bad) ** 2 * sampled + fit / m)))
    return {
        "raw_judge": Limit(p, float(np.sqrt(sampled))),
        "rogan_gladen": Limit(theta, float(np.sqrt((sampled + errors / m) / base.youden**2))),
        "direct_plug_in": calibrated,
        "direct": calibrated,
    }


def label_variance(mean: npt.ArrayLike, *, spread: float = 0.9, atoms: float = 0.05) -> FloatArray:
    """Variance of `cje_sim.judges.draw_oracle` around a mean, with the frame's defaults.

    Examples
    --------
    >>> float(label_variance(0.5, atoms=1.0)), float(label_variance(0.5, spread=0.6, atoms=0.0).round(12))
    (0.25, 0.03)
    """
    m = np.asarray(mean, float)
    half = spread * np.minimum(m, 1 - m)
    return np.asarray(atoms * m * (1 - m) + (1 - atoms) * half**2 / 3)


def score_parts(
    law: tuple[float, float], link: str, low: float, high: float, *, spread: float = 0.9, atoms: float = 0.05
) -> tuple[float, float]:
    """``Var E[Y | S]`` and ``E Var(Y | S)`` of a graded judge, S of a Kumaraswamy law, by quadrature.

    They are the components of the square-root law: ``Var theta = Var E[Y | S] / n + E Var(Y | S) / m``.

    Examples
    --------
    >>> [round(v, 6) for v in score_parts((1.0, 1.0), "linear", 0.0, 1.0, atoms=1.0)]  # uniform: 1/12 and 1/6
    [0.083333, 0.166667]
    """

    def mean(score: FloatArray) -> FloatArray:
        return oracle_mean(score, link, low, high)

    kinks = (*LINKS[link][1], 0.5) if link == "linear" else LINKS[link][1]
    center = expected_over_scores(mean, *law, kinks)
    between = expected_over_scores(lambda s: (mean(s) - center) ** 2, *law, kinks)
    within = expected_over_scores(lambda s: label_variance(mean(s), spread=spread, atoms=atoms), *law, kinks)
    return between, within
