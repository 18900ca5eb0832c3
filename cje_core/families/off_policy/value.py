"""What the off-policy estimators share: calibrated rewards, weights, and the two forms of value.

Every estimator of the family (the paper's sections on estimators and influence-function stacking) is

    V = mean_fresh q(Z') + sum_i share_i (R_i - q_i),      share = W / sum W

over the logged responses i that have both log-likelihoods, with R = f(Z) the pooled calibrator and q = f^(-k)(Z) the
calibrator that never saw the prompt's fold; importance sampling has q = 0 and no first term. A `Value` has functions
for what its standard error needs, by source:

``direct``       which prompts and fresh responses were drawn: ``q(Z'_i) - mean q``
``ips``          which logged responses were drawn: ``W_i (u_i - sum share u) / mean W``, u = R or R - q (Hajek form)
``terms``        which labels were seen: V as a linear functional of its fits. Under DR the weights on f and on f^(-k)
                 at the logged responses cancel to first order, which leaves that of Direct's plug-in: 1/n at the
                 fresh responses

The labels then correct the fits themselves (`cje_core.families.off_policy.labels`), unless the paper's plug-in is asked
for: a `Value` here is the plug-in, and its terms say what the correction has to balance.

What the values rest on: every term above is a mean of fitted functions of Z, so labels enter through the fits, their
correction included, and in no other way. With a judge that is independent of the label all fits are flat, weights that
average to one leave the mean label of those who taught f, and every policy gets that number: the family borrows, its
doubly robust members too, whose residual is ``R - q`` and not ``Y - q`` (MRDR weights the labels that teach q, but its
correction takes q away again and puts f in its place). What would not borrow is a weighted mean of the *labels* of
logged responses, ``sum W Y / sum W``, or a doubly robust value with ``Y - q`` on them: consistent with any judge where
the weights are right. Of these only the diagnostic `orthogonality` is here. So one test decides for all members, see
`cje_core.families.off_policy.estimate`.
"""

from collections.abc import Mapping

import numpy as np

from cje_core.calibration.oracle_slice import OracleSlice
from cje_core.checks import FloatArray, IntArray
from cje_core.families.off_policy.logs import CALIBRATOR as CALIBRATOR
from cje_core.families.off_policy.logs import DEFAULT as DEFAULT
from cje_core.families.off_policy.logs import Along as Along
from cje_core.families.off_policy.logs import Fact as Fact
from cje_core.families.off_policy.logs import LabelledLogs as LabelledLogs
from cje_core.families.off_policy.logs import Logs as Logs
from cje_core.families.off_policy.logs import Outcome as Outcome
from cje_core.families.off_policy.logs import PolicyLogs as PolicyLogs
from cje_core.families.off_policy.logs import Source as Source
from cje_core.families.off_policy.logs import Stabilisation as Stabilisation
from cje_core.families.off_policy.logs import Stable as Stable
from cje_core.families.off_policy.logs import Term as Term
from cje_core.families.off_policy.logs import Value as Value
from cje_core.families.off_policy.smooth import smoothed_mean
from cje_core.families.off_policy.stages import feature_names as feature_names
from cje_core.families.off_policy.stages import make_logs as make_logs
from cje_core.families.off_policy.stages import places_on as places_on
from cje_core.families.off_policy.stages import weights_name
from cje_core.families.off_policy.stages import with_outcome as with_outcome
from cje_core.families.off_policy.stages import with_refit as with_refit
from cje_core.families.off_policy.stages import with_weights as with_weights
from cje_core.inference.influence import hajek as weighted_mean
from cje_core.offpolicy.weights import ess_fraction

NEEDS = {"judge", "oracle", "logp_target", "logp_logger", "logged_judge"}


# --- weights ---


def used_rows(logs: Logs, p: int) -> IntArray:
    """Prompts whose logged response has a weight for policy p."""
    return logs.of(p).used


def fresh_rows(logs: Logs, p: int) -> IntArray:
    """Rows of policy p that enter its mean."""
    return logs.of(p).fresh


def raw_weights(logs: Logs, p: int) -> FloatArray:
    """Mean-one weights of `used_rows`."""
    return logs.of(p).weight


def stabilised(
    logs: Logs, p: int, delta: str, weighting: Stabilisation = DEFAULT, outcome: tuple[str, ...] = ()
) -> Stable:
    """Stabilised weights of policy p, which has logged responses, from logs `with_weights`."""
    found = logs.weights.stable[weights_name(delta, weighting, outcome)][p]
    assert found is not None
    return found


def stabilised_weights(
    logs: Logs, p: int, delta: str, weighting: Stabilisation = DEFAULT, outcome: tuple[str, ...] = ()
) -> tuple[FloatArray, dict[str, Fact]]:
    """Stabilised weights of `used_rows` by `stabilised`, and the facts of how they came about."""
    found = stabilised(logs, p, delta, weighting, outcome)
    return found.weight, {
        "beta": Along("candidate", weighting.candidates, found.beta),
        "alpha": found.alpha,
        "guard_engaged": found.alpha < 1.0,
        "ess_fraction": ess_fraction(found.weight),
    }


# --- the two forms of value ---


def hajek_mean(weight: FloatArray, values: FloatArray) -> float:
    """``sum w v / sum w``."""
    return float(weight @ values / weight.sum())


def hajek(n: int, prompt: IntArray, weight: FloatArray, values: FloatArray) -> Source:
    """``sum w v / sum w`` with influence ``n w (v - mean) / sum w`` per prompt."""
    _, error, leverage = weighted_mean(prompt, weight, values, n)
    return Source(hajek_mean(weight, values), n * error, leverage)


def no_source(n: int) -> Source:
    """The source that a value of importance sampling does not have: fresh responses."""
    return Source(0.0, np.zeros(n), np.zeros(n))


def ips_value(logs: Logs, p: int, weight: FloatArray, facts: Mapping[str, Fact]) -> Value:
    """Self-normalised importance sampling of the calibrated reward: ``sum W R / sum W``, W of `used_rows`."""
    n, used = len(logs.rows.prompts), used_rows(logs, p)
    return Value(
        0.0,
        hajek_mean(weight, logs.reward[used]),
        lambda: (no_source(n), hajek(n, used, weight, logs.reward[used])),
        lambda: hajek(n, used, weight, logs.outcomes[()].logged[used]).influence,
        lambda: [Term(CALIBRATOR, logs.fitted, "logged", weight / weight.sum())],
        facts=facts,
    )


def dr_value(
    logs: Logs,
    p: int,
    weight: FloatArray,
    facts: Mapping[str, Fact],
    *,
    outcome: Outcome,
    smooth_g: bool = False,
) -> Value:
    """Doubly robust value ``mean_fresh q + sum W (R - q) / sum W`` (the paper's algorithm Calibrated-DR).

    W is of `used_rows`; q is `outcome`. `smooth_g`: the first mean by `cje_core.families.off_policy.smooth`.
    """
    q, rows, n = outcome, logs.rows, len(logs.rows.prompts)
    used, index = used_rows(logs, p), fresh_rows(logs, p)
    mass, q_logged, q_fresh = rows.weight[index], q.logged[used], q.fresh[index]
    moved = logs.reward[used] - q_logged
    of_fresh, smoothed = mass / mass.sum(), None
    if smooth_g:
        smoothed = smoothed_mean(q_fresh, rows.prompt[index], mass, logs.logged.z, logs.fold)
        of_fresh = smoothed.weight

    def sources() -> tuple[Source, Source]:
        direct = hajek(n, rows.prompt[index], mass, q_fresh)
        if smoothed is not None:
            direct = Source(float(of_fresh @ q_fresh), n * smoothed.error, smoothed.leverage)
        return direct, hajek(n, used, weight, moved)

    def terms() -> list[Term]:
        if q.fit == CALIBRATOR and q.linear is None:  # + share on f and - share on f^(-k) cancel
            return [Term(q.fit, logs.fitted, "fresh", of_fresh)]
        share = weight / weight.sum()
        return [*outcome_terms(logs, p, q, of_fresh, -share), Term(CALIBRATOR, logs.fitted, "logged", share)]

    return Value(
        hajek_mean(mass, q_fresh) if smoothed is None else float(of_fresh @ q_fresh),
        hajek_mean(weight, moved),
        sources,
        lambda: hajek(n, used, weight, logs.outcomes[()].logged[used] - q_logged).influence,
        terms,
        lambda: orthogonality(logs, used, weight, q_logged),
        facts,
    )


def outcome_terms(logs: Logs, p: int, q: Outcome, of_fresh: FloatArray, of_logged: FloatArray) -> list[Term]:
    """Return ``sum of_fresh q(Z') + sum of_logged q(Z)`` of policy p as functionals of fitted calibrators.

    Least squares is linear in its targets, which are the rewards of all logged responses; f^(-k) counts as f.
    """
    labels: OracleSlice = logs.fitted if q.labels is None else q.labels()
    if q.linear is None:
        return [Term(q.fit, labels, "fresh", of_fresh), Term(q.fit, labels, "logged", of_logged)]
    mine = logs.of(p)
    seen, rows = np.zeros(len(logs.seen)), np.zeros(len(logs.rows.z))
    seen[np.searchsorted(logs.seen, mine.used)], rows[mine.fresh] = of_logged, of_fresh
    return [Term(q.fit, labels, "seen", q.linear.target_weights(seen, rows))]


def orthogonality(logs: Logs, used: IntArray, weight: FloatArray, q: FloatArray) -> Source | None:
    """``sum W (Y - q) / sum W`` over the labelled logged responses of `used`; None without any."""
    labelled = np.isfinite(logs.logged.label[used])
    if not (weight[labelled] > 0).any():
        return None
    rows = used[labelled]
    return hajek(len(logs.rows.prompts), rows, weight[labelled], logs.logged.label[rows] - q[labelled])
