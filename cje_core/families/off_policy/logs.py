"""The objects of the off-policy family: logged responses with calibrated rewards, weights, outcome models, values.

All are frozen, and complete when made. What only some estimators read is a stage of `Logs` (`outcomes`, `weights`,
...), empty until a function of `cje_core.families.off_policy.stages` returns logs that have it: whoever runs several
estimators passes these on, so that each stage is computed once, and an estimator alone computes what it reads.

A delete-one-fold jackknife reruns an estimator on `Logs` without the labels of each oracle fold. What no label changes
(rows, weights, folds, where responses lie on the calibrator's splines, the monotone maps of the weights) is shared by
the estimate and its reruns; the fits are those of `cje_core.calibration.leave_out`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cje_core.calibration.calibrated import Calibrated
from cje_core.calibration.informative import Informative
from cje_core.calibration.leave_out import Ground, LeaveOut, Places
from cje_core.calibration.oracle_slice import OracleSlice
from cje_core.checks import BoolArray, FloatArray, IntArray
from cje_core.data.arrays import Logged, Rows
from cje_core.families.direct.balance import Lesson
from cje_core.formulas.linear_outcome import LinearOutcome
from cje_core.inference.estimate import Status
from cje_core.offpolicy.held_out_maps import HeldOutMaps
from cje_core.offpolicy.weights import CANDIDATES

CALIBRATOR = "calibrator"  # the fit that most terms are of: f, whose held-out fits count as it


# --- values ---


class Source(NamedTuple):
    """One source of sampling error: its share of the value, influence per prompt before any factor, and leverage."""

    value: float
    influence: FloatArray  # (n,)
    leverage: FloatArray  # (n,)


class Term(NamedTuple):
    """A linear functional ``sum_j weight_j f(z_j)`` of one fitted calibrator."""

    fit: str  # name of the fit: terms of one name are added before their error is computed
    labels: OracleSlice  # the labels of the fit, and the fit
    rows: str  # which responses, see `Logs.z_of`
    weight: FloatArray


class Along(NamedTuple):
    """A fact of one policy that is an array: the dimension it lies along, the labels there, and its values."""

    dim: str
    labels: Sequence[str]
    values: FloatArray


Fact = float | Along  # what an estimator says of one policy besides its value


@dataclass(frozen=True, eq=False)
class Value:
    """One policy's value by one estimator, and functions that compute what its standard error needs.

    A jackknife's reruns call none of them, hence functions; nothing is stored, so call each once.
    """

    direct: float  # 0 for importance sampling
    ips: float
    sources: Callable[[], tuple[Source, Source]]  # of `direct` and of `ips`
    held_out_influence: Callable[
        [], FloatArray
    ]  # (n,) influence of `ips` with R^OOF in place of R (the paper's)
    terms: Callable[[], list[Term]]  # the value as functionals of its fits
    orthogonality: Callable[[], Source | None] = lambda: (
        None
    )  # the score of that name, where there are labels
    facts: Mapping[str, Fact] = field(default_factory=dict)

    @property
    def value(self) -> float:
        """The estimate."""
        return self.direct + self.ips


# --- stages ---


class Outcome(NamedTuple):
    """A cross-fitted outcome model q."""

    logged: FloatArray  # (n,) q of each logged response, out of fold; NaN where nothing was logged
    fresh: FloatArray  # (r,) q of each row of `Rows`, out of fold; may be NaN for other policies' rows
    linear: LinearOutcome | None = None  # q(X, A) by least squares on the rewards of `Logs.seen`
    fit: str = CALIBRATOR  # name of the fit of the label that it follows
    labels: Callable[[], OracleSlice] | None = None  # its labels, pooled fit included; None: `Logs.fitted`


class Stabilisation(NamedTuple):
    """How weights are stabilised (`cje_core.offpolicy.weights.stabilise`); the defaults are every estimator's."""

    candidates: Sequence[str] = CANDIDATES
    projection: str = "rescale"
    guard: str = "absolute"
    rho: float = 1.0


DEFAULT = Stabilisation()


class Multiplied(NamedTuple):
    """Name of one set of stabilised weights: what they multiply, and how they are stabilised."""

    delta: str  # "reward" R (IPS) or "residual" R - q (DR)
    outcome: tuple[str, ...]  # features of q, as in `Logs.outcomes`; none for "reward"
    weighting: Stabilisation


class Stable(NamedTuple):
    """Stabilised weights of one policy and how they came about."""

    weight: FloatArray  # of `PolicyLogs.used`, mean one
    stack: FloatArray  # the same before the guard
    beta: FloatArray  # weights of the candidates
    alpha: float  # blend of the guard


class Weights(NamedTuple):
    """Stabilised weights of every policy."""

    candidates: tuple[FloatArray, ...] = ()  # per policy (`CANDIDATES`, used), out of fold
    stable: Mapping[Multiplied, tuple[Stable | None, ...]] = {}  # per policy; None without logged responses


class FoldFits(NamedTuple):
    """Calibrators without one fold, or two, and the responses at which they are evaluated."""

    fits: LeaveOut
    places: Places  # logged responses of `Logs.seen`, then all `Rows`


class JudgeTest(NamedTuple):
    """Test of the judge on the labels of the pooled calibrator."""

    test: Informative
    decides: (
        BoolArray  # (P,) policies whose value depends on the judge alone: it is refused where the test fails
    )


class LabelledLogs(NamedTuple):
    """Labelled logged responses that one policy has weights for, as a calibrator of its own sees them."""

    at: IntArray  # places among `PolicyLogs.used`
    ground: Ground
    places: Places  # as in `FoldFits`


# --- logs ---


@dataclass(frozen=True, eq=False)
class PolicyLogs:
    """Logged and fresh responses of one policy: no label changes them, so they serve reruns without a fold too."""

    used: IntArray  # prompts whose logged response has a weight
    fresh: IntArray  # rows that enter the mean
    z: FloatArray  # Z of `used`
    z_fresh: FloatArray  # Z of `fresh`
    maps: HeldOutMaps  # of the weights on the judge score

    @property
    def weight(self) -> FloatArray:
        """Mean-one weights of `used`."""
        return self.maps.weight

    @property
    def score(self) -> FloatArray:
        """Judge scores of `used`."""
        return self.maps.score

    @property
    def fold(self) -> IntArray:
        """Folds of `used`."""
        return self.maps.fold


@dataclass(frozen=True, eq=False)
class Logs:
    """Logged responses with calibrated rewards, from all labels or without one oracle fold.

    Without fold k (`left_out`) calibrator, rewards and nuisances are those of the other folds, the mode is kept, and
    the labels of logged responses in that fold go too, for the estimators that read them.
    """

    given: Calibrated
    rows: Rows
    logged: Logged
    seen: IntArray  # prompts with a judged logged response
    log_ratio: FloatArray  # (P, n) nats; NaN where unusable
    policies: tuple[PolicyLogs, ...]  # in the order of `Rows.policies`
    pooled: OracleSlice  # all labels and their pooled f
    fitted: (
        OracleSlice  # those that are not left out; without fold k it has no calibrator before `with_refit`
    )
    reward: FloatArray  # (n,) R = f(Z); NaN where nothing was logged, and without a calibrator
    left_out: int | None = None

    fold_fits: FoldFits | None = None
    outcomes: Mapping[tuple[str, ...], Outcome] = field(default_factory=dict)  # by features; none: f^(-k)(Z)
    weights: Weights = field(default_factory=Weights)
    judge: JudgeTest | None = None
    residuals: Lesson | None = None  # held-out residuals of the labels of `fitted`, which correct it
    covariates: tuple[
        tuple[FloatArray, FloatArray], ...
    ] = ()  # TMLE's h per policy, of `used` and of `fresh`
    labelled: tuple[LabelledLogs | Status, ...] = ()  # MRDR's labels per policy, or why there is no model
    members: Mapping[str, tuple[Value | Status | None, ...]] = field(default_factory=dict)  # of a stack
    reruns: tuple["Logs", ...] | None = None  # without each fold

    @property
    def oracle_range(self) -> tuple[float, float]:
        """Declared range of the label."""
        return self.given.scale

    @property
    def fold(self) -> IntArray:
        """(n,) fold of every prompt."""
        return self.pooled.fold

    @property
    def n_folds(self) -> int:
        """Folds are 0..n_folds-1."""
        return int(self.fold.max()) + 1

    def of(self, p: int) -> PolicyLogs:
        """Responses of policy p."""
        return self.policies[p]

    def z_of(self, p: int, rows: str) -> FloatArray:
        """Z of policy p's responses of one kind: "logged" (`used`), "fresh", or all logged ones "seen"."""
        if rows == "seen":
            return self.logged.z[self.seen]
        return {"logged": self.policies[p].z, "fresh": self.policies[p].z_fresh}[rows]
