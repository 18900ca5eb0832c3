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
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cje_core.calibration.informative import Informative, informative, taught_alone
from cje_core.calibration.oracle_slice import OracleSlice, calibration_part
from cje_core.checks import FloatArray
from cje_core.families.direct.balance import balanced_residual, make_lesson, widened
from cje_core.families.off_policy.logs import CALIBRATOR, JudgeTest, Logs, Term
from cje_core.families.off_policy.value import used_rows
from cje_core.inference.influence import Part, combine
from cje_core.inference.sums import sum_by

# no widening of a single fit: the whole of a value's error is widened at once
UNTESTED = Informative(np.nan, 0.0, True)


class Functional(NamedTuple):
    """``sum_i weight_i f(z_i)``, all that a value asks of one fitted calibrator."""

    labels: OracleSlice
    z: FloatArray
    weight: FloatArray


class LabelError(NamedTuple):
    """What the labels add to a value, and the value's error that comes from them."""

    correction: float  # 0 for a plug-in
    part: Part


def functionals(logs: Logs, p: int, terms: Sequence[Term]) -> dict[str, Functional]:
    """Sum the terms of each fitted calibrator, by its name, so that what cancels between them does."""
    weights: dict[str, dict[str, FloatArray]] = {}
    for term in terms:
        by_rows = weights.setdefault(term.fit, {})
        known = by_rows.get(term.rows)  # members of a stack share their rows
        by_rows[term.rows] = term.weight if known is None else known + term.weight
    labels = {term.fit: term.labels for term in terms}
    return {
        fit: Functional(
            labels[fit],
            np.concatenate([logs.z_of(p, rows) for rows in by_rows]),
            np.concatenate(list(by_rows.values())),
        )
        for fit, by_rows in weights.items()
    }


def label_error(logs: Logs, p: int, terms: Sequence[Term], borrowed: str = "balanced") -> LabelError:
    """Correct the calibrators of policy p's value by the labels, and give the error that the labels leave in it.

    The error is joint per labelled prompt over all fitted calibrators. Where a value is printed only because the judge
    passed its test, it is larger along that test (`cje_core.families.direct.balance`). Logs are `with_judge` and
    `with_residuals` but for a plug-in.
    """
    parts, correction = [], 0.0
    for fit, of_fit in functionals(logs, p, terms).items():
        shift, part = _balanced(logs, fit, of_fit) if borrowed == "balanced" else (0.0, None)
        correction += shift
        parts.append(part or calibration_part(logs.rows, *of_fit))
    influence, _, df = combine(parts, logs.rows.cluster)
    if borrowed == "balanced":
        assert logs.judge is not None
        test, decides = logs.judge
        if test.widening > 1 and decides[p]:
            along = test._replace(moves=sum_by(logs.fitted.prompt, test.moves, len(influence)))
            influence = widened(influence, along, logs.rows.cluster)
    return LabelError(correction, Part(influence, df))


def _balanced(logs: Logs, fit: str, of_fit: Functional) -> tuple[float, Part | None]:
    """Balanced residual of one functional; without a part where all but one label is silent, and a plug-in is left."""
    labels, z, weight = of_fit
    residuals = logs.residuals if fit == CALIBRATOR else make_lesson(logs.rows, labels)
    assert residuals is not None
    inside = np.clip(z, labels.z.min(axis=0), labels.z.max(axis=0))
    shift, part = balanced_residual(logs.rows, labels, residuals, inside, weight, UNTESTED)
    return (0.0, None) if np.isnan(part.df) else (shift, part)


def with_residuals(logs: Logs) -> Logs:
    """Logs with the held-out residuals of the labels, which correct the calibrator."""
    if logs.residuals is not None:
        return logs
    return replace(logs, residuals=make_lesson(logs.rows, logs.fitted))


def with_judge(logs: Logs) -> Logs:
    """Logs with the test of the judge on the labels of the pooled calibrator, and the policies that it decides on.

    Spared is the policy whose own labels are all that the calibrator was fitted on: fresh ones, or, where the labels
    are of logged responses, the logger's.
    """
    if logs.judge is not None:
        return logs
    own = taught_alone(logs.rows, logs.fitted)
    if not logs.rows.teaches.any():
        own = own | np.array([is_logger(logs, p) for p in range(len(own))])
    return replace(logs, judge=JudgeTest(informative(logs.rows, logs.fitted), ~own))


def is_logger(logs: Logs, p: int) -> bool:
    """Whether the responses that policy p weights are its own: every ratio is one."""
    used = used_rows(logs, p)
    return len(used) > 0 and bool((logs.log_ratio[p, used] == 0).all())
