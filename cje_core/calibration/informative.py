"""Whether the labels show that the judge tells good from bad: without it nothing can be borrowed.

A policy that borrows is told apart from another by its judge scores alone. With a judge that is independent of the
label the borrowed values of all policies are one number, the labelled policy's mean, whatever the policies are worth,
and its interval knows nothing of that. So a borrowed value (and any difference with it) is printed only where a
one-sided test at level .05 finds that what is borrowed ranks the labels the right way.

The test is Spearman's (`cje_core.inference.rank_test`), of the judge score in the declared direction with the label
where the calibrator is monotone in the score. With covariates it is of the held-out prediction ``f^(-k)(Z)`` about
the level of its training labels: the covariates may tell what the judge does not, and it is the prediction that is
borrowed. (About its level, since the mean of the labels outside a fold moves against the labels inside it, which
alone would make the held-out prediction of an independent judge rank them the wrong way.)

Labels drawn with unequal probabilities are weighted by the inverse (`OracleSlice.weight`), so that the test is about
the responses of the labelled policies and not about the labels chosen.

Where labels take two values and fewer than five clusters hold the rarer one, nothing is borrowed either: which scores
the one or two failures happen to have would decide every difference. (With one success among 60 labels, differences of
borrowed values covered in .86 and .87 of 140 data sets, Monte Carlo SE .03.)

Failure modes: a judge that ranks the policy's own responses may still miss what sets the policy apart: that is
transport, which only labels of that policy can show. A weak judge is refused with few labels; that is the price of
refusing an independent one.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cje_core.calibration.oracle_slice import OracleSlice, held_out, mean_labels
from cje_core.data.arrays import Rows
from cje_core.inference.rank_test import rank_test

LEVEL = 0.05  # of the one-sided test
MIN_MINORITY = 5  # labelled clusters at the rarer of two labels


class Informative(NamedTuple):
    """What the labels say of the judge."""

    spearman: float  # NaN where judge, prediction or label is constant
    p_value: float  # one-sided: small where the labels are ranked the right way
    informative: bool  # p_value below `LEVEL`


def informative(rows: Rows, fitted: OracleSlice) -> Informative:
    """Test whether the slice's labels show that its prediction ranks them the right way; see the module."""
    if fitted.calibrator is None:
        return Informative(np.nan, 1.0, False)
    if fitted.mode == "monotone":
        claim = fitted.z[:, 0] if fitted.increasing else -fitted.z[:, 0]
    else:
        _, outside = mean_labels(fitted)
        claim = held_out(fitted, fitted.z, fitted.prompt) - outside[fitted.fold[fitted.prompt]]
    cluster = rows.cluster[fitted.prompt]
    levels = np.unique(fitted.label)
    if len(levels) == 2 and min(len(np.unique(cluster[fitted.label == y])) for y in levels) < MIN_MINORITY:
        return Informative(np.nan, 1.0, False)
    found = rank_test(claim, fitted.label, cluster, fitted.weight)
    return Informative(found.spearman, found.p_value, found.p_value < LEVEL)


def taught_alone(rows: Rows, fitted: OracleSlice) -> npt.NDArray[np.bool_]:
    """Policies whose own fresh labels are all that taught f, shape (P,); at most one is true.

    A value that no label corrects is, with an independent judge, the mean of the labels that taught f. That is the
    policy's own value where they are all its own, and for any other rests on the judge and nothing else.
    """
    teachers = np.unique(rows.policy[rows.teaches])
    alone = np.zeros(len(rows.policies), dtype=bool)
    if len(teachers) == 1 and len(fitted.label) == rows.teaches.sum():
        alone[teachers] = True
    return alone
