"""Which responses to label for a binary judge: the label allocation of Lee et al. for misclassification correction.

`cje_core.estimators.rogan_gladen` estimates the share of good responses by ``theta = (p + Sp - 1) / J`` with ``J = Se +
Sp - 1``, p the share that the judge passes among n responses, Se and Sp from m labels. By the delta method, p
independent of the labels,

    Var theta = [ p (1 - p) / n  +  theta^2 Se (1 - Se) / m_good  +  (1 - theta)^2 Sp (1 - Sp) / m_bad ] / J^2

with m_good and m_bad labels of either class ("How to Correctly Report LLM-as-a-Judge Evaluations", the interval's
variance). For ``m_good + m_bad = m`` it is least where (Neyman's allocation)

    m_good / m_bad = theta sqrt(Se (1 - Se)) / ((1 - theta) sqrt(Sp (1 - Sp)))

so the labels belong to the class that is common in the *evaluated* policy and on which the judge errs, whatever the
classes' shares among the responses that can be labelled. Who can choose by class has an old pool of labelled responses;
else a class is known only after it was paid for, and what can be chosen is the judge's *verdict*. With ``a = P(good |
pass)``, ``b = P(good | fail)``, pass share c and ``G = c a + (1 - c) b`` among the responses that can be labelled, Se
= ``c a / G`` and Sp = ``(1 - c) (1 - b) / (1 - G)``, and the labels' part of the variance is ``D_a^2 a (1 - a) /
m_pass + D_b^2 b (1 - b) / m_fail`` with

    D_a = c (1 - c) / J * [ (1 - theta) (1 - b) / (1 - G)^2  -  theta b / G^2 ]
    D_b = c (1 - c) / J * [ theta a / G^2  -  (1 - theta) (1 - a) / (1 - G)^2 ]

so ``m_pass / m_fail = |D_a| sqrt(a (1 - a)) / (|D_b| sqrt(b (1 - b)))``. The labels then carry their probabilities
(``label_prob``), by which the estimator weighs them. Both splits assume the confusion matrix to be that of the
evaluated policy, as the estimator does.
"""

from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from cje_core.calibration.calibrated import calibrated
from cje_core.estimators import rogan_gladen
from cje_core.families.misclassification import judge_verdicts
from cje_core.inference.estimate import Status

LEAST = 2  # labels of either kind without which an error rate has no spread


class Judge(NamedTuple):
    """A binary judge and the policy that it is used on."""

    theta: float  # share of good responses of the evaluated policy
    sensitivity: float
    specificity: float
    share_good: float  # share of good responses among those that can be labelled

    @property
    def youden(self) -> float:
        """J."""
        return self.sensitivity + self.specificity - 1

    @property
    def passed(self) -> float:
        """Share that the judge passes under the evaluated policy."""
        return self.theta * self.sensitivity + (1 - self.theta) * (1 - self.specificity)


def variance_by_class(n: float, m_good: float, m_bad: float, judge: Judge) -> float:
    """Variance of the corrected share with labels of either class; see the module.

    Examples
    --------
    >>> judge = Judge(0.7, 0.9, 0.8, 0.5)
    >>> round(variance_by_class(1000, 50, 50, judge) ** 0.5, 4)
    0.0531
    """
    p, (good, bad) = judge.passed, _by_class(judge)
    return float((p * (1 - p) / n + good**2 / m_good + bad**2 / m_bad) / judge.youden**2)


def variance_by_verdict(n: float, m_pass: float, m_fail: float, judge: Judge) -> float:
    """Variance with labels of responses that the judge passed and failed, weighed by their probabilities."""
    p, (passed, failed) = judge.passed, _by_verdict(judge)
    return float((p * (1 - p) / n + passed**2 / m_pass + failed**2 / m_fail) / judge.youden**2)


def variance_at_random(n: float, m: float, judge: Judge) -> float:
    """Variance with labels of a random part of the responses: the classes come as they come (leading order in 1/m)."""
    return variance_by_class(n, m * judge.share_good, m * (1 - judge.share_good), judge)


def split_by_class(m: int, judge: Judge) -> tuple[int, int]:
    """Good and bad responses to label, m together, with the least variance; at least 2 of each.

    Examples
    --------
    >>> split_by_class(100, Judge(0.7, 0.9, 0.8, 0.5))  # .7 * .3 : .3 * .4
    (64, 36)
    """
    return _neyman(m, *_by_class(judge))


def split_by_verdict(m: int, judge: Judge) -> tuple[int, int]:
    """Passed and failed responses to label, m together, with the least variance; at least 2 of each.

    Examples
    --------
    >>> passed, failed = split_by_verdict(100, Judge(theta=0.6, sensitivity=0.95, specificity=0.6, share_good=0.5))
    >>> passed + failed, passed > failed
    (100, True)
    """
    return _neyman(m, *_by_verdict(judge))


def _by_class(judge: Judge) -> tuple[float, float]:
    """J times the error that one label of either class leaves."""
    se, sp = judge.sensitivity, judge.specificity
    return judge.theta * np.sqrt(se * (1 - se)), (1 - judge.theta) * np.sqrt(sp * (1 - sp))


def _by_verdict(judge: Judge) -> tuple[float, float]:
    """J times the error that one label of a passed, and of a failed response leaves."""
    share = judge.share_good
    c = share * judge.sensitivity + (1 - share) * (1 - judge.specificity)
    a, b = share * judge.sensitivity / c, share * (1 - judge.sensitivity) / (1 - c)
    good, bad = judge.theta / share**2, (1 - judge.theta) / (1 - share) ** 2
    of_pass, of_fail = abs(bad * (1 - b) - good * b), abs(good * a - bad * (1 - a))
    return tuple(c * (1 - c) * d * np.sqrt(q * (1 - q)) for d, q in ((of_pass, a), (of_fail, b)))


def _neyman(m: int, one: float, other: float) -> tuple[int, int]:
    """Whole numbers in the ratio of two errors of one label, at least `LEAST` each."""
    if m < 2 * LEAST:
        raise ValueError(f"m={m}: either kind needs {LEAST} labels, so {2 * LEAST} together")
    total = one + other
    if total == 0:  # a judge without an error: any split is as good
        return m - m // 2, m // 2
    law = m * one / total
    around = {int(np.clip(k, LEAST, m - LEAST)) for k in (np.floor(law), np.ceil(law))}
    best = min(around, key=lambda k: one**2 / k + other**2 / (m - k))
    return best, m - best


def binary_split(data: xr.Dataset, n: int, m: int) -> xr.Dataset | None:
    """How m labels are best split for the correction of a pilot's policies; None unless judge and oracle are binary.

    Parameters
    ----------
    data : xr.Dataset
        The pilot: every judge score and every label is an end of its declared scale.
    n, m : int
        Evaluated and labelled prompts of the planned study.

    Returns
    -------
    xr.Dataset
        Over ``policy``: ``theta``, ``sensitivity``, ``specificity``, ``share_good`` (of the labels), in shares;
        ``m_good``, ``m_bad``, ``m_pass``, ``m_fail``; and, in oracle units, ``std_error_random``, ``std_error_class``,
        ``std_error_verdict``. NaN where the pilot's correction is not identified or shows no error of the judge.

    Examples
    --------
    >>> import cje_sim
    >>> pilot = cje_sim.simulate("binary_judge", n=300, oracle_fraction=0.5, rng=1)
    >>> sorted(binary_split(pilot, n=1000, m=100).policy.values.tolist())
    ['base', 'target']
    """
    given = calibrated(data)
    rows, (bottom, top) = given.rows, given.judge_range
    labels = rows.label[rows.labelled]
    verdicts = judge_verdicts(given, None)
    graded = np.isfinite(rows.score) & (rows.score != bottom) & (rows.score != top)
    if m < 2 * LEAST or not len(labels) or graded.any() or not verdicts.binary[rows.labelled].all():
        return None
    found = rogan_gladen.estimate(given)
    low, high = given.scale
    names: tuple[str, ...] = (
        "theta",
        "sensitivity",
        "specificity",
        "share_good",
        "m_good",
        "m_bad",
        "m_pass",
        "m_fail",
    )
    names += ("std_error_random", "std_error_class", "std_error_verdict")
    table = {name: np.full(found.sizes["policy"], np.nan) for name in names}
    for k, policy in enumerate(found["policy"].values):
        at = found.sel(policy=policy)
        own = rows.labelled & (rows.policy == rows.policies.index(str(policy)))
        behind = own if at["route"] == "own_labels" else rows.teaches
        judge = Judge(
            (float(at["estimate"]) - low) / (high - low),
            float(at["sensitivity"]),
            float(at["specificity"]),
            float(np.mean(verdicts.good[behind])) if behind.any() else np.nan,
        )
        shown = all(0 < share < 1 for share in judge)
        if (
            Status(int(at["status"])).failed
            or Status(int(at["status"])) is Status.ILL_CONDITIONED
            or not shown
        ):
            continue
        by_class, by_verdict = split_by_class(m, judge), split_by_verdict(m, judge)
        errors = (
            variance_at_random(n, m, judge),
            variance_by_class(n, *by_class, judge),
            variance_by_verdict(n, *by_verdict, judge),
        )
        values: list[Any] = [*judge, *by_class, *by_verdict, *((high - low) * np.sqrt(errors))]
        for name, value in zip(names, values, strict=True):
            table[name][k] = value
    return xr.Dataset(
        {name: ("policy", column) for name, column in table.items()},
        coords={"policy": found["policy"].values},
        attrs={"n": n, "m": m},
    )
