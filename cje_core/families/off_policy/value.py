"""What the off-policy estimators share: calibrated rewards, weights, and the two forms of value.

Every estimator of the family (the paper's sections on estimators and influence-function stacking) is

    V = mean_fresh q(Z') + sum_i share_i (R_i - q_i),      share = W / sum W

over the logged responses i that have both log-likelihoods, with R = f(Z) the pooled calibrator and q = f^(-k)(Z) the
calibrator that never saw the prompt's fold; importance sampling has q = 0 and no first term. A `Value` keeps what its
standard error needs, by source:

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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from cje_core.calibration.oracle_slice import OracleSlice
from cje_core.checks import FloatArray, IntArray
from cje_core.families.off_policy.logs import Logs as Logs
from cje_core.families.off_policy.logs import Outcome as Outcome
from cje_core.families.off_policy.logs import PolicyLogs as PolicyLogs
from cje_core.families.off_policy.logs import unpack_logs as unpack_logs
from cje_core.families.off_policy.logs import with_outcome as with_outcome
from cje_core.families.off_policy.logs import without_fold as without_fold
from cje_core.families.off_policy.smooth import smoothed_mean
from cje_core.inference.influence import hajek as weighted_mean
from cje_core.offpolicy.weights import CANDIDATES, check_options, ess_fraction, stack_candidates

NEEDS = {"judge", "oracle", "logp_target", "logp_logger", "logged_judge"}


class Stabilisation(NamedTuple):
    """How weights are stabilised (`cje_core.offpolicy.weights.stabilise`); the defaults are every estimator's."""

    candidates: Sequence[str] = CANDIDATES
    projection: str = "rescale"
    guard: str = "absolute"
    rho: float = 1.0


DEFAULT = Stabilisation()


@dataclass(frozen=True, eq=False)
class Source:
    """One source of sampling error: its share of the value, influence per prompt before any factor, and leverage."""

    value: float
    make: Callable[[], tuple[FloatArray, FloatArray]]  # influence and leverage, both (n,)

    @cached_property
    def _made(self) -> tuple[FloatArray, FloatArray]:
        return self.make()

    @property
    def influence(self) -> FloatArray:
        """(n,)."""
        return self._made[0]

    @property
    def leverage(self) -> FloatArray:
        """(n,)."""
        return self._made[1]


class Term(NamedTuple):
    """A linear functional ``sum_j weight_j f(z_j)`` of one fitted calibrator."""

    taught: OracleSlice
    z: FloatArray
    weight: FloatArray


class Along(NamedTuple):
    """A fact of one policy that is an array: the dimension it lies along, the labels there, and its values."""

    dim: str
    labels: Sequence[str]
    values: FloatArray


Fact = float | Along  # what an estimator says of one policy besides its value


@dataclass(frozen=True, eq=False)
class Value:
    """One policy's value by one estimator, with everything its standard error needs, made when it is asked for."""

    direct: Source  # zero for importance sampling
    ips: Source
    make_path: Callable[[], FloatArray]
    make_terms: Callable[[], list[Term]]
    make_orthogonality: Callable[[], Source | None] = lambda: None
    facts: Mapping[str, Fact] = field(default_factory=dict)

    @property
    def value(self) -> float:
        """The estimate."""
        return self.direct.value + self.ips.value

    @cached_property
    def path(self) -> FloatArray:
        """(n,) the paper's influence values, R^OOF in place of R."""
        return self.make_path()

    @cached_property
    def terms(self) -> list[Term]:
        """The value as functionals of its fits."""
        return self.make_terms()

    @cached_property
    def orthogonality(self) -> Source | None:
        """The score of that name, where logged responses have labels."""
        return self.make_orthogonality()


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


class Stable(NamedTuple):
    """Stabilised weights of one policy and how they came about."""

    weight: FloatArray  # of `used_rows`, mean one
    stack: FloatArray  # the same before the guard
    beta: FloatArray  # weights of the candidates
    alpha: float  # blend of the guard


def stabilised(logs: Logs, p: int, delta: str, weighting: Stabilisation = DEFAULT) -> Stable:
    """Stabilised weights of policy p: ``delta`` is what they multiply, "reward" R (IPS) or "residual" R - q (DR)."""
    check_options(**weighting._asdict())
    key = ("stabilised", p, delta, weighting._replace(candidates=tuple(weighting.candidates)))
    return logs.once(key, lambda: _stabilise(logs, p, delta, weighting))


def _stabilise(logs: Logs, p: int, delta: str, weighting: Stabilisation) -> Stable:
    mine = logs.of(p)
    multiplied = logs.reward - (logs.outcome.logged if delta == "residual" else 0.0)
    out = stack_candidates(
        mine.weight,
        mine.score,
        multiplied[mine.used],
        mine.candidates(weighting.candidates),
        **weighting._asdict(),
    )
    return Stable(out.weight, out.stack, out.beta, out.alpha)


def stabilised_weights(
    logs: Logs, p: int, delta: str, weighting: Stabilisation = DEFAULT
) -> tuple[FloatArray, dict[str, Fact]]:
    """Stabilised weights of `used_rows` by `stabilised`, and the facts of how they came about."""
    found = stabilised(logs, p, delta, weighting)
    return found.weight, {
        "beta": Along("candidate", weighting.candidates, found.beta),
        "alpha": found.alpha,
        "guard_engaged": found.alpha < 1.0,
        "ess_fraction": ess_fraction(found.weight),
    }


# --- the two forms of value ---


def hajek(n: int, prompt: IntArray, weight: FloatArray, values: FloatArray) -> Source:
    """``sum w v / sum w`` with influence ``n w (v - mean) / sum w`` per prompt."""

    def make() -> tuple[FloatArray, FloatArray]:
        _, error, leverage = weighted_mean(prompt, weight, values, n)
        return n * error, leverage

    return Source(float(weight @ values / weight.sum()), make)


def ips_value(logs: Logs, p: int, weight: FloatArray, facts: Mapping[str, Fact]) -> Value:
    """Self-normalised importance sampling of the calibrated reward: ``sum W R / sum W``, W of `used_rows`."""
    n, used = len(logs.rows.prompts), used_rows(logs, p)
    return Value(
        Source(0.0, lambda: (np.zeros(n), np.zeros(n))),
        hajek(n, used, weight, logs.reward[used]),
        lambda: hajek(n, used, weight, logs.held_out.logged[used]).influence,
        lambda: [Term(logs.fitted, logs.of(p).z, weight / weight.sum())],
        facts=facts,
    )


def dr_value(
    logs: Logs,
    p: int,
    weight: FloatArray,
    facts: Mapping[str, Fact],
    *,
    outcome: Outcome | None = None,
    smooth_g: bool = False,
) -> Value:
    """Doubly robust value ``mean_fresh q + sum W (R - q) / sum W`` (the paper's algorithm Calibrated-DR).

    W is of `used_rows`; q is `outcome`, by default that of the logs. `smooth_g`: the first mean by
    `cje_core.families.off_policy.smooth`.
    """
    q = logs.outcome if outcome is None else outcome
    n, used, index = len(logs.rows.prompts), used_rows(logs, p), fresh_rows(logs, p)
    mass, q_logged = logs.rows.weight[index], q.logged[used]
    direct, of_fresh = hajek(n, logs.rows.prompt[index], mass, q.fresh[index]), mass / mass.sum()
    if smooth_g:
        direct, of_fresh = _smoothed(logs, index, q.fresh[index])

    def path() -> FloatArray:
        return direct.influence + hajek(n, used, weight, logs.held_out.logged[used] - q_logged).influence

    def terms() -> list[Term]:
        if q.taught is logs.fitted and q.linear is None:  # + share on f and - share on f^(-k) cancel
            return [Term(q.taught, logs.of(p).z_fresh, of_fresh)]
        share = weight / weight.sum()
        return [*outcome_terms(logs, p, q, of_fresh, -share), Term(logs.fitted, logs.of(p).z, share)]

    return Value(
        direct,
        hajek(n, used, weight, logs.reward[used] - q_logged),
        path,
        terms,
        lambda: orthogonality(logs, used, weight, q_logged),
        facts,
    )


def outcome_terms(logs: Logs, p: int, q: Outcome, of_fresh: FloatArray, of_logged: FloatArray) -> list[Term]:
    """Return ``sum of_fresh q(Z') + sum of_logged q(Z)`` of policy p as functionals of fitted calibrators.

    Least squares is linear in its targets, which are the rewards of all logged responses; f^(-k) counts as f.
    """
    mine, shared = logs.of(p), logs.shared
    taught = q.taught  # made at each call, and terms of one fit are told by identity
    if q.linear is None:
        return [Term(taught, mine.z_fresh, of_fresh), Term(taught, mine.z, of_logged)]
    seen, rows = np.zeros(len(shared.seen)), np.zeros(len(logs.rows.z))
    seen[np.searchsorted(shared.seen, mine.used)], rows[mine.fresh] = of_logged, of_fresh
    return [Term(taught, shared.z_seen, q.linear.target_weights(seen, rows))]


def _smoothed(logs: Logs, index: IntArray, q: FloatArray) -> tuple[Source, FloatArray]:
    """The direct part by `cje_core.families.off_policy.smooth`, and the weight of each fresh response in it."""
    rows = logs.rows
    found = smoothed_mean(q, rows.prompt[index], rows.weight[index], logs.logged.z, logs.fold)
    n = len(rows.prompts)
    return Source(float(found.weight @ q), lambda: (n * found.error, found.leverage)), found.weight


def orthogonality(logs: Logs, used: IntArray, weight: FloatArray, q: FloatArray) -> Source | None:
    """``sum W (Y - q) / sum W`` over the labelled logged responses of `used`; None without any."""
    labelled = np.isfinite(logs.logged.label[used])
    if not (weight[labelled] > 0).any():
        return None
    rows = used[labelled]
    return hajek(len(logs.rows.prompts), rows, weight[labelled], logs.logged.label[rows] - q[labelled])
