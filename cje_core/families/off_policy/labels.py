"""What the labels do to an off-policy value: the correction of its calibrators, and the error of having learned them.

Every value of the family is, to first order, linear in its fitted calibrators: ``V = sum_i c_i f(Z_i) + rest`` with
coefficients c of any sign (`cje_core.families.off_policy.value.Term`; the weights of logged responses for importance
sampling, 1/n at fresh responses for the doubly robust members). The isotonic plug-in f is off where it followed the
noise of few labels, most of all with binary ones, so the plug-in of a policy at either end of the judge's scale is
driven apart from that of the logger. The remedy is that of borrowed values of Direct, and the same functions make it
(`cje_core.families.direct.balance`):

    V + sum_j a_j r_j,     r_j = Y_j - f^(-k)(Z_j),     sum_j a_j b(Z_j) = sum_i c_i b(Z_i)

over the labels j that taught f, with b the terms that are balanced (1, S, a natural cubic of S, covariates). So f is
replaced by ``f + b'gamma``, gamma the regression of the held-out residuals on b. The influence of a label and the
degrees of freedom are those of `balanced_residual`; the coefficients c need not sum to one, and of a difference of two
fits (MRDR's ``q``) they sum to zero. Each fit is corrected by the labels that taught it.

Responses beyond the labelled scores and covariates are balanced at the nearest labelled ones, where f is flat too: the
terms never extrapolate, and nothing is refused for it.

``borrowed="plug_in"`` leaves the correction out: the paper's values, with the infinitesimal jackknife of their fits.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cje_core.calibration.informative import Informative, informative, taught_alone
from cje_core.calibration.oracle_slice import OracleSlice, calibration_part
from cje_core.checks import BoolArray, FloatArray
from cje_core.families.direct.balance import Lesson, balanced_residual, make_lesson, widened
from cje_core.families.off_policy.value import Logs, Term, used_rows
from cje_core.inference.influence import Part, combine
from cje_core.inference.sums import sum_by

# no widening of a single fit: the whole of a value's error is widened at once
UNTESTED = Informative(np.nan, 0.0, True)


class Functional(NamedTuple):
    """``sum_i weight_i f(z_i)``, all that a value asks of one fitted calibrator."""

    taught: OracleSlice
    z: FloatArray
    weight: FloatArray


class LabelError(NamedTuple):
    """What the labels add to a value, and the value's error that comes from them."""

    correction: float  # 0 for a plug-in
    part: Part


def functionals(terms: Sequence[Term]) -> list[Functional]:
    """Sum the terms of each fitted calibrator, so that what cancels between them does."""
    by_slice: dict[int, dict[int, Term]] = {}
    for term in terms:
        same = by_slice.setdefault(id(term.taught), {})
        at = same.get(id(term.z))  # members of a stack share their rows
        same[id(term.z)] = term if at is None else at._replace(weight=at.weight + term.weight)
    out = []
    for rows in by_slice.values():
        z = np.concatenate([term.z for term in rows.values()])
        weight = np.concatenate([term.weight for term in rows.values()])
        out.append(Functional(next(iter(rows.values())).taught, z, weight))
    return out


def label_error(logs: Logs, p: int, terms: Sequence[Term], borrowed: str = "balanced") -> LabelError:
    """Correct the calibrators of policy p's value by the labels, and give the error that the labels leave in it.

    The error is joint per labelled prompt over all fitted calibrators. Where a value is printed only because the judge
    passed its test, it is larger along that test (`cje_core.families.direct.balance`).
    """
    parts, correction = [], 0.0
    for of_fit in functionals(terms):
        shift, part = _balanced(logs, of_fit) if borrowed == "balanced" else (0.0, None)
        correction += shift
        parts.append(part or calibration_part(logs.rows, *of_fit))
    influence, _, df = combine(parts, logs.rows.cluster)
    judge = judge_of(logs)
    if borrowed == "balanced" and judge.widening > 1 and rests_on_judge(logs)[p]:
        along = judge._replace(moves=sum_by(logs.fitted.prompt, judge.moves, len(influence)))
        influence = widened(influence, along, logs.rows.cluster)
    return LabelError(correction, Part(influence, df))


def _balanced(logs: Logs, of_fit: Functional) -> tuple[float, Part | None]:
    """Balanced residual of one functional; without a part where all but one label is silent, and a plug-in is left."""
    taught, z, weight = of_fit

    def lesson() -> Lesson:
        return make_lesson(logs.rows, taught)

    made = logs.once("lesson", lesson) if taught is logs.fitted else lesson()
    inside = np.clip(z, taught.z.min(axis=0), taught.z.max(axis=0))
    shift, part = balanced_residual(logs.rows, taught, made, inside, weight, UNTESTED)
    return (0.0, None) if np.isnan(part.df) else (shift, part)


def judge_of(logs: Logs) -> Informative:
    """Test of the judge on the labels that taught the pooled calibrator."""
    return logs.once("judge", lambda: informative(logs.rows, logs.fitted))


def rests_on_judge(logs: Logs) -> BoolArray:
    """Mark, per policy, values that rest on the judge and nothing else.

    Spared is the policy whose own labels are all that taught f: fresh ones, or, where the logs taught, the logger's.
    """
    return logs.once("rests_on_judge", lambda: _rests_on_judge(logs))


def _rests_on_judge(logs: Logs) -> BoolArray:
    own = taught_alone(logs.rows, logs.fitted)
    if not logs.rows.teaches.any():
        own = own | np.array([is_logger(logs, p) for p in range(len(own))])
    return ~own


def is_logger(logs: Logs, p: int) -> bool:
    """Whether the responses that policy p weights are its own: every ratio is one."""
    used = used_rows(logs, p)
    return len(used) > 0 and bool((logs.log_ratio[p, used] == 0).all())
