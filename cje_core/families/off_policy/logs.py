"""Logged responses as the off-policy family sees them: calibrated rewards, outcome models, weights, and reruns.

A delete-one-fold jackknife reruns an estimator without the labels of each oracle fold. What no label changes (rows,
weights, folds, where responses lie on the calibrator's splines, the monotone maps of the weights) is made once and
shared by the estimate and its reruns, by all policies and by all members of a stack; the fits are those of
`cje_core.calibration.leave_out`. All of it is made when first asked for.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import xarray as xr

from cje_core.calibration.calibrated import Calibrated, logged_reward
from cje_core.calibration.leave_out import Ground, LeaveOut, Places
from cje_core.calibration.oracle_slice import OracleSlice, basis_of, refit
from cje_core.checks import FloatArray, IntArray
from cje_core.data.arrays import Logged, Rows, unpack, unpack_logged
from cje_core.formulas.linear_outcome import LinearOutcome, linear_outcome
from cje_core.offpolicy.held_out_maps import HeldOutMaps
from cje_core.offpolicy.weights import log_ratios, mean_one

Made = TypeVar("Made")
JUDGE = "judge"  # the judge score among the features of q(X, A)


class Outcome(NamedTuple):
    """A cross-fitted outcome model q."""

    teach: Callable[[], OracleSlice]  # the labels that taught it, with their pooled fit; see `taught`
    logged: FloatArray  # (n,) q of each logged response, out of fold; NaN where nothing was logged
    fresh: FloatArray  # (r,) q of each row of `Rows`, out of fold; may be NaN for other policies' rows
    linear: LinearOutcome | None = None  # q(X, A) by least squares on the rewards of `Shared.seen`

    @property
    def taught(self) -> OracleSlice:
        """The labels that taught it, and its pooled fit: what errors need, and no value does."""
        return self.teach()


@dataclass(frozen=True, eq=False)
class Keeps:
    """What keeps what is made of it."""

    _kept: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)

    def put(self, key: Hashable, made: Any) -> None:
        """Take what was made before, and kept in a file, in place of what would be made."""
        self._kept[key] = made

    def put_or(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What was `put`, or what `make` gives, which is not kept."""
        return self._kept[key] if key in self._kept else make()

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
    data: xr.Dataset

    @property
    def n_folds(self) -> int:
        """Folds are 0..n_folds-1."""
        return int(self.fitted.fold.max()) + 1

    @cached_property
    def seen(self) -> IntArray:
        """Prompts with a judged logged response."""
        return np.flatnonzero(np.isfinite(self.logged.z).all(axis=1))

    @cached_property
    def z_seen(self) -> FloatArray:
        """Z of the logged responses of `seen`."""
        return self.logged.z[self.seen]

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

    def features(self, names: Sequence[str]) -> tuple[FloatArray, FloatArray]:
        """Return features of the logged responses seen and of all `Rows`; `JUDGE` names the judge score."""
        covariates = [name for name in names if name != JUDGE]
        columns = slice(None) if JUDGE in names else slice(1, None)
        logged, rows = (
            unpack_logged(self.data, covariates, checked=True).z,
            unpack(self.data, covariates, checked=True).z,
        )
        return logged[self.seen, columns], rows[:, columns]

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
    outcome_features: tuple[str, ...] = ()  # of q(X, A); none: q is f^(-k)(Z)

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

    @property
    def reward(self) -> FloatArray:
        """(n,) R = f(Z) of each logged response; NaN where nothing was logged, and without a calibrator."""
        return self.once("reward", self._reward)

    @property
    def outcome(self) -> Outcome:
        """q: the calibrator that never saw the prompt's fold, or least squares on the features asked for."""
        if not self.outcome_features:
            return self.held_out
        model = self.once("linear", self._linear)
        return Outcome(lambda: self.fitted, self.shared.on_prompts(model.fitted), model.predicted, model)

    @property
    def held_out(self) -> Outcome:
        """f^(-k): the calibrator that never saw the prompt's fold; the paper's R^OOF at logged responses."""
        logged, fresh = self.once("outcome", self._held_out)
        return Outcome(lambda: self.fitted, logged, fresh)

    def _linear(self) -> LinearOutcome:
        """Fit q(X, A) to the rewards of all logged responses seen: without fold k, to f^(-k)(Z) outside it."""
        shared = self.shared
        at = np.arange(len(shared.seen))
        target = np.full((shared.n_folds, len(at)), np.nan)
        if shared.fitted.calibrator is not None:
            fits, places = shared.without
            for k, row in enumerate(target):
                row[:] = fits.predict(places, np.full(len(at), k), without=self.left_out, at=at)
        logged, rows = shared.features(self.outcome_features)
        return linear_outcome(logged, target, shared.fold[: len(at)], rows, shared.fold[len(at) :])

    def _reward(self) -> FloatArray:
        shared = self.shared
        if self.left_out is None or shared.fitted.calibrator is None:
            return logged_reward(shared.logged, shared.fitted)
        fits, places = shared.without
        seen = np.arange(len(shared.seen))
        return shared.on_prompts(fits.predict(places, np.full(len(seen), self.left_out), at=seen))

    def _held_out(self) -> tuple[FloatArray, FloatArray]:
        shared = self.shared
        q = np.full(len(shared.fold), np.nan)
        if shared.fitted.calibrator is not None:
            fits, places = shared.without
            q = fits.predict(places, shared.fold, without=self.left_out)
        n_seen = len(shared.seen)
        return shared.on_prompts(q[:n_seen]), q[n_seen:]

    def of(self, p: int) -> PolicyLogs:
        """What no label changes, of policy p."""
        return self.shared.of(p)


_LOGS: WeakKeyDictionary[Calibrated, Logs] = WeakKeyDictionary()


def unpack_logs(given: Calibrated) -> Logs:
    """Rows, logged responses and calibrators of the data; labels of logged responses teach if no fresh ones do.

    The same for every estimator that is given the same `Calibrated`.
    """
    if given not in _LOGS:
        low, high = given.data.attrs["oracle_range"]
        rows, logged = given.rows, given.logged
        shared = Shared(rows, logged, given.slice_with_logs, log_ratios(logged), (low, high), given.data)
        _LOGS[given] = Logs(shared)
    return _LOGS[given]


def without_fold(logs: Logs, k: int) -> Logs:
    """`Logs` without the labels of fold k."""
    return logs.once(("without", k), lambda: Logs(logs.shared, k, logs.outcome_features))


def with_outcome(logs: Logs, features: Sequence[str]) -> Logs:
    """`Logs` whose outcome model q(X, A) is least squares on some features; without any, the logs themselves."""
    if not features:
        return logs
    if isinstance(features, str):
        raise ValueError(f"outcome={features!r}: give a list of names")
    chosen = tuple(features)
    return logs.once(("outcome", chosen), lambda: Logs(logs.shared, logs.left_out, chosen))
