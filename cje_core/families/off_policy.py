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

What the values rest on: every term above is a mean of fitted functions of Z, so labels enter through the fit and in no
other way. With a judge that is independent of the label all fits are flat, weights that average to one leave the mean
label of those who taught f, and every policy gets that number: the family borrows, its doubly robust members too, whose
residual is ``R - q`` and not ``Y - q`` (MRDR weights the labels that teach q, but its correction takes q away again and
puts f in its place). What would not borrow is a weighted mean of the *labels* of logged responses, ``sum W Y / sum W``,
or a doubly robust value with ``Y - q`` on them: consistent with any judge where the weights are right. Of these only
the diagnostic `orthogonality` is here. So one test decides for all members, see
`cje_core.families.off_policy_estimate`.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from cje_core.calibration.calibrated import Calibrated, logged_reward
from cje_core.calibration.oracle_slice import OracleSlice, basis_of, held_out, refit
from cje_core.checks import FloatArray, IntArray
from cje_core.data.arrays import Logged, Rows
from cje_core.inference.influence import hajek as weighted_mean
from cje_core.offpolicy.weights import CANDIDATES, ess_fraction, log_ratios, mean_one, stabilise

NEEDS = {"judge", "oracle", "logp_target", "logp_logger", "logged_judge"}


class Stabilisation(NamedTuple):
    """How weights are stabilised (`cje_core.offpolicy.weights.stabilise`); the defaults are every estimator's."""

    candidates: Sequence[str] = CANDIDATES
    projection: str = "rescale"
    guard: str = "absolute"
    rho: float = 1.0


DEFAULT = Stabilisation()


class Outcome(NamedTuple):
    """A cross-fitted outcome model q."""

    taught: OracleSlice  # the labels that taught it, and its pooled fit
    logged: FloatArray  # (n,) q of each logged response, out of fold; NaN where nothing was logged
    fresh: FloatArray  # (r,) q of each row of `Rows`, out of fold


class Logs(NamedTuple):
    """What no policy changes: rows, calibrated rewards of the logged responses, log importance ratios."""

    rows: Rows
    logged: Logged
    fitted: OracleSlice  # pooled f
    outcome: Outcome  # f^(-k)
    reward: FloatArray  # (n,) R = f(Z) of each logged response; NaN where nothing was logged
    log_ratio: FloatArray  # (P, n) nats; NaN where unusable
    oracle_range: tuple[float, float]


class Source(NamedTuple):
    """One source of sampling error: its share of the value, influence per prompt before any factor, and leverage."""

    value: float
    influence: FloatArray  # (n,)
    leverage: FloatArray  # (n,)


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


class Value(NamedTuple):
    """One policy's value by one estimator, with everything its standard error needs."""

    direct: Source  # zero for importance sampling
    ips: Source
    path: FloatArray  # (n,) the paper's influence values, R^OOF in place of R
    terms: list[Term]
    orthogonality: Source | None = None
    facts: Mapping[str, Fact] = {}

    @property
    def value(self) -> float:
        """The estimate."""
        return self.direct.value + self.ips.value


# --- rewards and outcome models ---


def unpack_logs(given: Calibrated) -> Logs:
    """Rows, logged responses and calibrators of the data; labels of logged responses teach if no fresh ones do."""
    low, high = given.data.attrs["oracle_range"]
    return reward_logs(given.rows, given.logged, given.slice_with_logs, (low, high))


def reward_logs(rows: Rows, logged: Logged, fitted: OracleSlice, oracle_range: tuple[float, float]) -> Logs:
    """`Logs` of a fitted slice; rewards and outcomes are NaN where the slice has no calibrator."""
    outcome = Outcome(fitted, np.full(len(rows.prompts), np.nan), np.full(len(rows.z), np.nan))
    if fitted.calibrator is not None:
        outcome = cross_fit(rows, logged, fitted)
    reward = logged_reward(logged, fitted)
    return Logs(rows, logged, fitted, outcome, reward, log_ratios(logged), oracle_range)


def cross_fit(rows: Rows, logged: Logged, taught: OracleSlice) -> Outcome:
    """Out-of-fold predictions of a slice's calibrator at the logged and at the fresh responses."""
    seen = np.flatnonzero(np.isfinite(logged.z).all(axis=1))
    q = held_out(taught, np.concatenate([logged.z[seen], rows.z]), np.concatenate([seen, rows.prompt]))
    on_logged = np.full(len(rows.prompts), np.nan)
    on_logged[seen] = q[: len(seen)]
    return Outcome(taught, on_logged, q[len(seen) :])


def without_fold(logs: Logs, k: int) -> Logs:
    """`Logs` without the labels of fold k: calibrator, rewards and nuisances refitted, the mode kept.

    The labels of logged responses in that fold go too, for the estimators that read them.
    """
    fitted = logs.fitted
    keep = fitted.fold[fitted.prompt] != k
    kept = {name: getattr(fitted, name)[keep] for name in ("z", "label", "weight", "prompt")}
    rest = fitted._replace(calibrator=refit(fitted, keep, basis_of(fitted)), **kept)
    logged = logs.logged._replace(label=np.where(fitted.fold == k, np.nan, logs.logged.label))
    return reward_logs(logs.rows, logged, rest, logs.oracle_range)


# --- weights ---


def used_rows(logs: Logs, p: int) -> IntArray:
    """Prompts whose logged response has a weight for policy p."""
    return np.flatnonzero(np.isfinite(logs.log_ratio[p]))


def fresh_rows(logs: Logs, p: int) -> IntArray:
    """Rows of policy p that enter its mean."""
    return np.flatnonzero((logs.rows.policy == p) & logs.rows.evaluated)


def raw_weights(logs: Logs, p: int) -> FloatArray:
    """Mean-one weights of `used_rows`."""
    return mean_one(logs.log_ratio[p, used_rows(logs, p)])


def stabilised_weights(
    logs: Logs, p: int, delta: FloatArray, weighting: Stabilisation = DEFAULT
) -> tuple[FloatArray, dict[str, Fact]]:
    """Stabilised weights of `used_rows` and the facts of how they came about; `delta` (n,) is what they multiply."""
    used = used_rows(logs, p)
    out = stabilise(
        raw_weights(logs, p),
        logs.logged.z[used, 0],
        delta[used],
        logs.fitted.fold[used],
        **weighting._asdict(),
    )
    return out.weight, {
        "beta": Along("candidate", weighting.candidates, out.beta),
        "alpha": out.alpha,
        "guard_engaged": out.engaged,
        "ess_fraction": ess_fraction(out.weight),
    }


# --- the two forms of value ---


def hajek(n: int, prompt: IntArray, weight: FloatArray, values: FloatArray) -> Source:
    """``sum w v / sum w`` with influence ``n w (v - mean) / sum w`` per prompt."""
    mean, error, leverage = weighted_mean(prompt, weight, values, n)
    return Source(mean, n * error, leverage)


def ips_value(logs: Logs, p: int, weight: FloatArray, facts: Mapping[str, Fact]) -> Value:
    """Self-normalised importance sampling of the calibrated reward: ``sum W R / sum W``, W of `used_rows`."""
    n, used = len(logs.rows.prompts), used_rows(logs, p)
    return Value(
        direct=Source(0.0, np.zeros(n), np.zeros(n)),
        ips=hajek(n, used, weight, logs.reward[used]),
        path=hajek(n, used, weight, logs.outcome.logged[used]).influence,
        terms=[Term(logs.fitted, logs.logged.z[used], weight / weight.sum())],
        facts=facts,
    )


def dr_value(
    logs: Logs,
    p: int,
    weight: FloatArray,
    facts: Mapping[str, Fact],
    *,
    outcome: Outcome | None = None,
) -> Value:
    """Doubly robust value ``mean_fresh q + sum W (R - q) / sum W`` (the paper's algorithm Calibrated-DR).

    W is of `used_rows`; q is `outcome`, by default f^(-k).
    """
    q = logs.outcome if outcome is None else outcome
    n, used, index = len(logs.rows.prompts), used_rows(logs, p), fresh_rows(logs, p)
    mass, z, z_fresh = logs.rows.weight[index], logs.logged.z[used], logs.rows.z[index]
    direct = hajek(n, logs.rows.prompt[index], mass, q.fresh[index])
    terms = [Term(q.taught, z_fresh, mass / mass.sum())]
    if q.taught is not logs.fitted:  # else + share on f and - share on f^(-k) cancel
        share = weight / weight.sum()
        terms += [Term(logs.fitted, z, share), Term(q.taught, z, -share)]
    return Value(
        direct=direct,
        ips=hajek(n, used, weight, logs.reward[used] - q.logged[used]),
        path=direct.influence + hajek(n, used, weight, (logs.outcome.logged - q.logged)[used]).influence,
        terms=terms,
        orthogonality=orthogonality(logs, used, weight, q.logged[used]),
        facts=facts,
    )


def orthogonality(logs: Logs, used: IntArray, weight: FloatArray, q: FloatArray) -> Source | None:
    """``sum W (Y - q) / sum W`` over the labelled logged responses of `used`; None without any."""
    labelled = np.isfinite(logs.logged.label[used])
    if not (weight[labelled] > 0).any():
        return None
    rows = used[labelled]
    return hajek(len(logs.rows.prompts), rows, weight[labelled], logs.logged.label[rows] - q[labelled])
