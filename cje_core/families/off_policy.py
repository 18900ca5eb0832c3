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

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from cje_core.calibration.calibrated import Calibrated, logged_reward
from cje_core.calibration.leave_out import Ground, LeaveOut, Places
from cje_core.calibration.oracle_slice import OracleSlice, basis_of, refit
from cje_core.checks import FloatArray, IntArray
from cje_core.data.arrays import Logged, Rows
from cje_core.inference.influence import hajek as weighted_mean
from cje_core.offpolicy.weights import (
    CANDIDATES,
    HeldOutMaps,
    check_options,
    ess_fraction,
    log_ratios,
    mean_one,
    stack_candidates,
)

NEEDS = {"judge", "oracle", "logp_target", "logp_logger", "logged_judge"}
Made = TypeVar("Made")


class Stabilisation(NamedTuple):
    """How weights are stabilised (`cje_core.offpolicy.weights.stabilise`); the defaults are every estimator's."""

    candidates: Sequence[str] = CANDIDATES
    projection: str = "rescale"
    guard: str = "absolute"
    rho: float = 1.0


DEFAULT = Stabilisation()


class Outcome(NamedTuple):
    """A cross-fitted outcome model q."""

    teach: Callable[[], OracleSlice]  # the labels that taught it, with their pooled fit; see `taught`
    logged: FloatArray  # (n,) q of each logged response, out of fold; NaN where nothing was logged
    fresh: FloatArray  # (r,) q of each row of `Rows`, out of fold; may be NaN for other policies' rows

    @property
    def taught(self) -> OracleSlice:
        """The labels that taught it, and its pooled fit: what errors need, and no value does."""
        return self.teach()


@dataclass(frozen=True, eq=False)
class Keeps:
    """What keeps what is made of it."""

    _kept: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What `make` gives, made when first asked for; the key says whose it is."""
        if key not in self._kept:
            self._kept[key] = make()
        made: Made = self._kept[key]
        return made


@dataclass(frozen=True, eq=False)
class PolicyLogs(Keeps):
    """What no label changes, of one policy: the same in a value and in its reruns without a fold."""

    used: IntArray  # prompts whose logged response has a weight
    fresh: IntArray  # rows that enter the mean
    weight: FloatArray  # mean-one weights of `used`
    score: FloatArray  # judge scores of `used`
    fold: IntArray  # of `used`
    n_folds: int
    z: FloatArray  # Z of `used`
    z_fresh: FloatArray  # Z of `fresh`

    @cached_property
    def maps(self) -> HeldOutMaps:
        """Held-out monotone maps of the weights."""
        return HeldOutMaps(self.weight, self.score, self.fold, self.n_folds)

    def candidates(self, names: Sequence[str]) -> FloatArray:
        """Out-of-fold candidates of stabilised weights, shape (names, used)."""
        return self.once(
            ("candidates", tuple(names)),
            lambda: np.stack([self.maps.at(name, self.score, self.fold) for name in names]),
        )


@dataclass(frozen=True, eq=False)
class Shared(Keeps):
    """What a value and its reruns without a fold share."""

    rows: Rows
    logged: Logged
    fitted: OracleSlice  # pooled f
    log_ratio: FloatArray  # (P, n) nats; NaN where unusable
    oracle_range: tuple[float, float]

    @property
    def n_folds(self) -> int:
        """Folds are 0..n_folds-1."""
        return int(self.fitted.fold.max()) + 1

    @cached_property
    def seen(self) -> IntArray:
        """Prompts with a judged logged response."""
        return np.flatnonzero(np.isfinite(self.logged.z).all(axis=1))

    @cached_property
    def fold(self) -> IntArray:
        """Fold of each row of `places`."""
        return np.asarray(self.fitted.fold[np.concatenate([self.seen, self.rows.prompt])])

    def places(self, ground: Ground) -> Places:
        """Logged responses seen and then all `Rows`, on a ground."""
        return ground.places(np.concatenate([self.logged.z[self.seen], self.rows.z]))

    @cached_property
    def without(self) -> tuple[LeaveOut, Places]:
        """The calibrator without one fold, or two, and where it is evaluated."""
        f = self.fitted
        ground = Ground(f.z, f.fold[f.prompt], self.n_folds, f.increasing, basis_of(f))
        return LeaveOut(ground, f.label, f.weight, f.mode == "two_stage_monotone"), self.places(ground)

    def on_prompts(self, values: FloatArray) -> FloatArray:
        """Values of the logged responses seen as an array over prompts."""
        out = np.full(len(self.rows.prompts), np.nan)
        out[self.seen] = values
        return out

    def of(self, p: int) -> PolicyLogs:
        """What no label changes, of policy p."""
        return self.once(p, lambda: self._policy(p))

    def _policy(self, p: int) -> PolicyLogs:
        used = np.flatnonzero(np.isfinite(self.log_ratio[p]))
        fresh = np.flatnonzero((self.rows.policy == p) & self.rows.evaluated)
        weight, z, fold = mean_one(self.log_ratio[p, used]), self.logged.z[used], self.fitted.fold[used]
        return PolicyLogs(used, fresh, weight, z[:, 0], fold, self.n_folds, z, self.rows.z[fresh])


@dataclass(frozen=True, eq=False)
class Logs(Keeps):
    """Logged responses with calibrated rewards, from all labels or without one oracle fold.

    Without fold k (`left_out`) calibrator, rewards and nuisances are those of the other folds, the mode is kept, and
    the labels of logged responses in that fold go too, for the estimators that read them.
    """

    shared: Shared
    left_out: int | None = None

    @property
    def rows(self) -> Rows:
        """The data as flat arrays."""
        return self.shared.rows

    @property
    def log_ratio(self) -> FloatArray:
        """(P, n) nats; NaN where unusable."""
        return self.shared.log_ratio

    @property
    def oracle_range(self) -> tuple[float, float]:
        """Declared range of the label."""
        return self.shared.oracle_range

    @property
    def fold(self) -> IntArray:
        """(n,) fold of every prompt."""
        return self.shared.fitted.fold

    @cached_property
    def logged(self) -> Logged:
        """The logged responses."""
        logged = self.shared.logged
        if self.left_out is None:
            return logged
        return logged._replace(label=np.where(self.fold == self.left_out, np.nan, logged.label))

    @cached_property
    def fitted(self) -> OracleSlice:
        """The labels that teach, and the pooled f."""
        whole = self.shared.fitted
        if self.left_out is None:
            return whole
        keep = whole.fold[whole.prompt] != self.left_out
        kept = {name: getattr(whole, name)[keep] for name in ("z", "label", "weight", "prompt")}
        return whole._replace(calibrator=refit(whole, keep, basis_of(whole)), **kept)

    @cached_property
    def reward(self) -> FloatArray:
        """(n,) R = f(Z) of each logged response; NaN where nothing was logged, and without a calibrator."""
        shared = self.shared
        if self.left_out is None or shared.fitted.calibrator is None:
            return logged_reward(shared.logged, shared.fitted)
        fits, places = shared.without
        seen = np.arange(len(shared.seen))
        return shared.on_prompts(fits.predict(places, np.full(len(seen), self.left_out), at=seen))

    @cached_property
    def outcome(self) -> Outcome:
        """f^(-k): the calibrator that never saw the prompt's fold."""
        shared = self.shared
        q = np.full(len(shared.fold), np.nan)
        if shared.fitted.calibrator is not None:
            fits, places = shared.without
            q = fits.predict(places, shared.fold, without=self.left_out)
        n_seen = len(shared.seen)
        return Outcome(lambda: self.fitted, shared.on_prompts(q[:n_seen]), q[n_seen:])

    def of(self, p: int) -> PolicyLogs:
        """What no label changes, of policy p."""
        return self.shared.of(p)


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


# --- from data ---

_LOGS: WeakKeyDictionary[Calibrated, Logs] = WeakKeyDictionary()


def unpack_logs(given: Calibrated) -> Logs:
    """Rows, logged responses and calibrators of the data; labels of logged responses teach if no fresh ones do.

    The same for every estimator that is given the same `Calibrated`.
    """
    if given not in _LOGS:
        low, high = given.data.attrs["oracle_range"]
        rows, logged = given.rows, given.logged
        shared = Shared(rows, logged, given.slice_with_logs, log_ratios(logged), (low, high))
        _LOGS[given] = Logs(shared)
    return _LOGS[given]


def without_fold(logs: Logs, k: int) -> Logs:
    """`Logs` without the labels of fold k."""
    return logs.once(("without", k), lambda: Logs(logs.shared, k))


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


def stabilised_weights(
    logs: Logs, p: int, delta: FloatArray, weighting: Stabilisation = DEFAULT
) -> tuple[FloatArray, dict[str, Fact]]:
    """Stabilised weights of `used_rows` and the facts of how they came about; `delta` (n,) is what they multiply."""
    check_options(**weighting._asdict())
    mine = logs.of(p)
    out = stack_candidates(
        mine.weight,
        mine.score,
        delta[mine.used],
        mine.candidates(weighting.candidates),
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
        lambda: hajek(n, used, weight, logs.outcome.logged[used]).influence,
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
) -> Value:
    """Doubly robust value ``mean_fresh q + sum W (R - q) / sum W`` (the paper's algorithm Calibrated-DR).

    W is of `used_rows`; q is `outcome`, by default f^(-k).
    """
    q = logs.outcome if outcome is None else outcome
    n, used, index = len(logs.rows.prompts), used_rows(logs, p), fresh_rows(logs, p)
    mass, q_logged = logs.rows.weight[index], q.logged[used]
    direct = hajek(n, logs.rows.prompt[index], mass, q.fresh[index])

    def path() -> FloatArray:
        return direct.influence + hajek(n, used, weight, logs.outcome.logged[used] - q_logged).influence

    def terms() -> list[Term]:
        taught, z = q.taught, logs.of(p).z
        found = [Term(taught, logs.of(p).z_fresh, mass / mass.sum())]
        if taught is not logs.fitted:  # else + share on f and - share on f^(-k) cancel
            share = weight / weight.sum()
            found += [Term(logs.fitted, z, share), Term(taught, z, -share)]
        return found

    return Value(
        direct,
        hajek(n, used, weight, logs.reward[used] - q_logged),
        path,
        terms,
        lambda: orthogonality(logs, used, weight, q_logged),
        facts,
    )


def orthogonality(logs: Logs, used: IntArray, weight: FloatArray, q: FloatArray) -> Source | None:
    """``sum W (Y - q) / sum W`` over the labelled logged responses of `used`; None without any."""
    labelled = np.isfinite(logs.logged.label[used])
    if not (weight[labelled] > 0).any():
        return None
    rows = used[labelled]
    return hajek(len(logs.rows.prompts), rows, weight[labelled], logs.logged.label[rows] - q[labelled])
