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

Values are printed only where the test's statistic T exceeds its critical value c, and who just passes has a steep fit.
What of a value's error moves with T is the projection of its influence on that of T (`Informative.moves`); among the
values that are printed its law is that of ``T - tau`` given ``T > c``, with T normal about an unknown tau. The interval
of tau that inverts the test of ``|T - tau|`` in that law reaches down by q, where (the other tail is cut away)

    (1 - Phi(q)) / (1 - Phi(q - g)) = .05,    g = T - c

and with `Informative.widening` = ``max(q / 1.96, 1)`` the interval ``T +- 1.96 widening`` covers tau in at least 95% of
what is printed, whatever tau is (the conditional inference of Lee, Sun, Sun and Taylor 2016, in one dimension). It is 1
for ``p < .00015`` and grows without bound as p nears `LEVEL`: an interval goes over into a refusal without a jump. What
is borrowed has a standard error that is so much larger along T, and nowhere else (`cje_core.families.direct.balance`).

Failure modes: a judge that ranks the policy's own responses may still miss what sets the policy apart: that is
transport, which only labels of that policy can show. A weak judge is refused with few labels; that is the price of
refusing an independent one.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from cje_core.calibration.oracle_slice import OracleSlice, held_out, mean_labels
from cje_core.checks import FloatArray, IntArray
from cje_core.data.arrays import Rows
from cje_core.inference.influence import REFERENCE
from cje_core.inference.rank_test import rank_moves, rank_test

LEVEL = 0.05  # of the one-sided test
MIN_MINORITY = 5  # labelled clusters at the rarer of two labels
CLOSEST = (
    1e-3  # a statistic no nearer to its critical value than this: the interval is far wider than any scale
)


class Informative(NamedTuple):
    """What the labels say of the judge."""

    spearman: float  # NaN where judge, prediction or label is constant
    p_value: float  # one-sided: small where the labels are ranked the right way
    informative: bool  # p_value below `LEVEL`
    widening: float = 1.0  # of errors along the test's direction, for being printed only where it is passed
    moves: FloatArray = np.empty(0)  # (m,): that direction, what each labelled row adds to the correlation


def informative(rows: Rows, fitted: OracleSlice) -> Informative:
    """Test whether the slice's labels show that its prediction ranks them the right way; see the module.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("weak_judge", n=300, oracle_fraction=0.25, rng=1)
    >>> from cje_core.calibration.calibrated import calibrated
    >>> _, rows, fitted = calibrated(data).parts
    >>> bool(informative(rows, fitted).p_value < 0.05)
    True
    """
    if fitted.calibrator is None:
        return Informative(np.nan, 1.0, False)
    claim: FloatArray | IntArray
    if fitted.mode == "monotone":
        claim = fitted.at  # codes of the judge's scores, in the direction that is claimed
    else:
        _, outside = mean_labels(fitted)
        claim = held_out(fitted, fitted.z, fitted.prompt) - outside[fitted.fold[fitted.prompt]]
    cluster = rows.cluster[fitted.prompt]
    levels = np.unique(fitted.label)
    if len(levels) == 2 and min(len(np.unique(cluster[fitted.label == y])) for y in levels) < MIN_MINORITY:
        return Informative(np.nan, 1.0, False)
    found = fitted.rank if fitted.mode == "monotone" else None
    found = found or rank_test(claim, fitted.label, cluster, fitted.weight)
    if not found.p_value < LEVEL:
        return Informative(found.spearman, found.p_value, False)
    moves = rank_moves(claim, fitted.label, fitted.weight)
    return Informative(found.spearman, found.p_value, True, widening(found.p_value), moves)


def widening(p_value: float) -> float:
    """How much wider the interval of the tested statistic is for being looked at only where ``p_value < LEVEL``.

    See the module; 1 where nothing is looked at.

    Examples
    --------
    >>> [round(widening(p), 3) for p in (0.5, 0.04, 0.01, 0.001, 1e-4)]
    [1.0, 14.451, 2.305, 1.21, 1.0]
    """
    if not p_value < LEVEL:
        return 1.0
    gap = max(float(special.ndtri(LEVEL) - special.ndtri(max(p_value, np.finfo(float).tiny))), CLOSEST)
    size, normal = 2 * (1 - REFERENCE), float(special.ndtri(REFERENCE))

    def excess(q: float) -> float:
        return float(special.log_ndtr(-q) - special.log_ndtr(gap - q) - np.log(size))

    if excess(normal) <= 0:
        return 1.0
    from scipy import optimize  # a tenth of a second that few analyses need

    return float(optimize.brentq(excess, normal, 4 / gap + 4)) / normal


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
