"""Bayesian Rogan-Gladen as a PyMC model: what `cje_core.bayes.misclassification` draws without one."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cje_core.bayes.models.engines import pm
from cje_core.bayes.models.specification import Specification
from cje_core.data.arrays import Rows

BoolArray = npt.NDArray[np.bool_]


class JudgeCounts(NamedTuple):
    """A binary judge against binary labels, and its verdicts on unlabelled responses."""

    good: int  # labelled responses that are good
    good_passed: int  # of these, passed by the judge
    bad: int
    bad_passed: int
    n: npt.NDArray[np.int64]  # (P,) unlabelled responses of each policy
    passed: npt.NDArray[np.int64]  # (P,) of these, passed
    own_good: npt.NDArray[np.int64]  # (P,) good labels among the policy's own random sample
    own: npt.NDArray[np.int64]  # (P,) size of that sample; 0 for a policy that borrows the judge's accuracy


def judge_counts(rows: Rows, threshold: float, oracle_range: tuple[float, float]) -> JudgeCounts:
    """Count verdicts and labels.

    Parameters
    ----------
    rows : Rows
        With binary labels.
    threshold : float
        A score at or above it passes.
    oracle_range : pair of float
        Label of a bad and of a good response.

    Returns
    -------
    JudgeCounts
        Accuracy from the teaching labels; prevalence from each policy's own evaluated labels.
    """
    passes, good, taught = rows.score >= threshold, rows.label == oracle_range[1], rows.teaches
    if not np.isin(rows.label[taught | (rows.evaluated & rows.labelled)], oracle_range).all():
        raise ValueError("oracle labels are not binary: misclassification correction is not defined")

    def count(which: BoolArray) -> npt.NDArray[np.int64]:
        return np.bincount(rows.policy[which], minlength=len(rows.policies))

    free, own = rows.evaluated & ~rows.labelled, rows.evaluated & rows.labelled
    return JudgeCounts(
        good=int((taught & good).sum()),
        good_passed=int((taught & good & passes).sum()),
        bad=int((taught & ~good).sum()),
        bad_passed=int((taught & ~good & passes).sum()),
        n=count(free),
        passed=count(free & passes),
        own_good=count(own & good),
        own=count(own),
    )


def rogan_gladen(
    counts: JudgeCounts,
    *,
    accuracy_prior: tuple[float, float] = (1.0, 1.0),
    prevalence_prior: tuple[float, float] = (1.0, 1.0),
) -> Specification:
    """Bayesian Rogan-Gladen: shares of good responses behind a binary judge.

    ::

        Se, Sp ~ Beta(accuracy_prior)                 sensitivity, specificity; shared by the policies
        theta_p ~ Beta(prevalence_prior)              share of good responses, V_p on the [0, 1] oracle scale
        good_passed ~ Binomial(good, Se)              bad_passed ~ Binomial(bad, 1 - Sp)
        own_good_p ~ Binomial(own_p, theta_p)         the policy's own labelled random sample
        passed_p ~ Binomial(n_p, theta_p Se + (1 - theta_p)(1 - Sp))    unlabelled responses

    Nothing is clipped: where Se + Sp is near 1 the posterior of theta_p is as wide as its prior.

    Parameters
    ----------
    counts : JudgeCounts
    accuracy_prior, prevalence_prior : pair of float
        Parameters of the Beta priors.

    Returns
    -------
    Specification
        With ``sensitivity``, ``specificity`` and ``value`` (P,).
    """
    data = {name: np.asarray(value, dtype=np.int64) for name, value in counts._asdict().items()}
    return Specification(_declare, (accuracy_prior, prevalence_prior, len(counts.n)), data)


def _declare(seen, accuracy_prior, prevalence_prior, n_policies):
    sensitivity = pm.Beta("sensitivity", *accuracy_prior)
    specificity = pm.Beta("specificity", *accuracy_prior)
    value = pm.Beta("value", *prevalence_prior, shape=n_policies)
    share = value * sensitivity + (1.0 - value) * (1.0 - specificity)
    pm.Binomial("judge_on_good", seen["good"], sensitivity, observed=seen["good_passed"])
    pm.Binomial("judge_on_bad", seen["bad"], 1.0 - specificity, observed=seen["bad_passed"])
    pm.Binomial("own_labels", seen["own"], value, observed=seen["own_good"])
    pm.Binomial("verdicts", seen["n"], share, observed=seen["passed"])
