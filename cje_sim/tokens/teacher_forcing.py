"""Teacher forcing that fails: what a log-probability looks like after a serving stack has reported it.

A recorded log-probability is the exact one plus the errors of any number of independent mechanisms (`Noise`):
random error per response or per token, heavy tails, a systematic offset, a tokenizer mismatch on a share of rows,
missing rows. `observe` applies them in turn and keeps the error and the rows of each, so that exact and recorded
weights can be compared row by row: what the exact weights lack is coverage, the rest is teacher forcing.

For a clone (target = logger) every exact weight is one. With error e its effective sample size tends to

    ``ESS/n -> E[exp(e)]^2 / E[exp(2 e)]``,    ``exp(-s^2)`` for normal errors with standard deviation s,

over the rows that are not missing, and to 0 where ``E[exp(2 e)]`` is infinite. Where the errors are independent of
the exact weights, this limit multiplies the limit of their ESS/n. "Causal Judge Evaluation" reports .26 for its
clone: `sd_for_ess` gives the noise that would do it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.optimize import brentq
from scipy.special import logsumexp

from cje_sim.tokens.laws import FloatArray, Rng

Law = Literal["normal", "laplace", "student_t", "missing"]
Unit = Literal["response", "token"]

MAX_NATS = 1e50  # far past any use; squares and sums over tokens of it are still finite
NO_EXPONENTIAL = "exp() of a Student t error has no mean at any sd > 0"


@dataclass(frozen=True)
class Noise:
    """One mechanism of failure; the error of a touched row is ``(offset + noise)`` per response or per token.

    A contaminated normal is two mechanisms, the wide one with a share.

    Examples
    --------
    >>> drift = Noise("API nondeterminism", sd=0.01, per="token")
    >>> mismatch = Noise("tokenizer mismatch", offset=-3.0, sd=2.0, share=0.05)
    >>> gaps = Noise("no log-probability", law="missing", share=0.01)
    """

    reason: str  # its name among the mechanisms
    law: Law = "normal"  # of the noise; "missing" leaves NaN
    sd: float = 0.0  # of the noise, nats: laws with equal sd differ in their tails only
    offset: float = 0.0  # systematic error, nats
    per: Unit = "response"  # whether these are of a response, or of each of its tokens (independent noise)
    share: float = 1.0  # probability that a row is touched, independently of everything else
    df: float = 3.0  # degrees of freedom of Student's t, above 2
    unit_mean: bool = False  # shift the error so that E[exp(error)] = 1 for a touched row, at offset 0

    def __post_init__(self) -> None:
        """Refuse what is not a mechanism, with the allowed range."""
        laws, units = get_args(Law), get_args(Unit)
        infinite = NO_EXPONENTIAL if self.law == "student_t" else "a Laplace sd must be < sqrt(2)"
        for right, message in (
            (self.law in laws, f"law={self.law!r}: it must be one of {', '.join(laws)}"),
            (self.per in units, f"per={self.per!r}: it must be one of {', '.join(units)}"),
            (0 <= self.sd <= MAX_NATS, f"sd={self.sd}: it must lie in [0, {MAX_NATS:g}] nats"),
            (abs(self.offset) <= MAX_NATS, f"offset={self.offset}: it must lie within +-{MAX_NATS:g} nats"),
            (0 <= self.share <= 1, f"share={self.share}: it must lie in [0, 1]"),
            (2 < self.df < np.inf, f"df={self.df}: it must be finite and > 2, or sd would not be the sd"),
            (
                self.law != "missing" or not (self.sd or self.offset or self.unit_mean),
                "a missing row has no error: law='missing' takes a share and no sd, offset or unit_mean",
            ),
            (
                not (self.unit_mean and np.isinf(_log_mgf(self, 1.0))),
                f"sd={self.sd}: unit_mean needs a finite E[exp(error)]: {infinite}",
            ),
        ):
            if not right:
                raise ValueError(message)

    @property
    def shift(self) -> float:
        """Centre of the error per response or token, nats."""
        return self.offset - (_log_mgf(self, 1.0) if self.unit_mean else 0.0)


class Observed(NamedTuple):
    """Recorded log-probabilities and the account of what happened to them, mechanism by mechanism."""

    log_prob: FloatArray  # of the shape of the input, NaN where missing
    error: FloatArray  # (mechanisms, ...): nats added, 0 where not touched, and for a missing row
    touched: npt.NDArray[np.bool_]  # (mechanisms, ...)
    mechanisms: pd.DataFrame  # reason, rows touched, their share of all, mean and sd of the error over them


def observe(
    log_prob: npt.ArrayLike,
    noises: Sequence[Noise],
    *,
    n_tokens: npt.ArrayLike | None = None,
    rng: Rng = None,
) -> Observed:
    """Pass exact log-probabilities through mechanisms of failure, in their order.

    A row that is NaN, by the input or by an earlier mechanism, is not touched again. Every mechanism draws for every
    row, so results with one seed share their draws: errors are proportional to `sd`, and mechanisms that are appended
    leave those before them as they were. Nothing is clipped: at large noise a recorded value can exceed 0.

    Parameters
    ----------
    log_prob : array, shape (..., n)
        Exact log-probabilities, nats. Pass target and logger apart, unless they share one erring pass.
    n_tokens : array that broadcasts to `log_prob`
        Tokens of each response; needed for noise per token.

    Examples
    --------
    >>> observed = observe([-10.0, -20.0], [Noise("rounding", offset=0.5, per="token")], n_tokens=[2, 4], rng=0)
    >>> observed.log_prob.tolist(), observed.mechanisms.rows.tolist()
    ([-9.0, -18.0], [2])
    """
    rng = np.random.default_rng(rng)
    recorded = np.array(log_prob, dtype=float)
    if recorded.ndim == 0 or np.isposinf(recorded).any():
        raise ValueError("log_prob must be an array (..., n) of log-probabilities: NaN or below +inf")
    lengths = _lengths(noises, n_tokens)
    try:
        lengths = np.broadcast_to(lengths, recorded.shape)
    except ValueError as err:
        raise ValueError(f"n_tokens {lengths.shape} must broadcast to log_prob {recorded.shape}") from err
    error = np.zeros((len(noises), *recorded.shape))
    touched = np.zeros(error.shape, dtype=bool)
    for i, noise in enumerate(noises):
        touched[i] = (rng.random(recorded.shape) < noise.share) & ~np.isnan(recorded)
        if noise.law == "missing":
            recorded[touched[i]] = np.nan
            continue
        counts = (lengths if noise.per == "token" else np.ones(recorded.shape)).astype(np.int64)
        drawn = noise.sd * _unit_noise(noise, counts, rng) + noise.shift * counts
        error[i] = np.where(touched[i], drawn, 0.0)
        recorded += error[i]
    lines = [
        (noise.reason, rows.sum(), rows.mean() if rows.size else np.nan)
        + ((e[rows].mean(), e[rows].std()) if rows.any() and noise.law != "missing" else (np.nan, np.nan))
        for noise, e, rows in zip(noises, error, touched, strict=True)
    ]
    mechanisms = pd.DataFrame(lines, columns=["reason", "rows", "share", "mean", "sd"]).astype({"rows": int})
    return Observed(recorded, error, touched, mechanisms)


def log_moment(
    noises: Sequence[Noise],
    order: float,
    *,
    logger: Sequence[Noise] = (),
    n_tokens: npt.ArrayLike | None = None,
) -> float:
    """Exact ``log E[W^order]`` of a clone's recorded weight; ``inf`` where the moment is infinite.

    Given its length l, a response of a mechanism with share p and moment m(k) contributes ``1 - p + p m(k)``;
    mechanisms multiply. `noises` are the errors of the target's log-probability, `logger` those of the logger's if that
    comes from an erring pass of its own. The average is over the lengths `n_tokens` (k,), which noise per token needs,
    as over the rows of a sample.
    """
    lengths = _lengths([*noises, *logger], n_tokens)
    total = np.zeros(lengths.shape)
    for noise, k in [*((noise, order) for noise in noises), *((noise, -order) for noise in logger)]:
        if noise.law == "missing" or noise.share == 0:
            continue
        each = _log_mgf(noise, k) + k * noise.shift
        if np.isinf(each):
            return float(np.inf)
        touched = each * (lengths if noise.per == "token" else np.ones_like(lengths))
        with np.errstate(divide="ignore"):  # log(0) = -inf where every row is touched
            total += np.logaddexp(np.log1p(-noise.share), np.log(noise.share) + touched)
    return float(logsumexp(total) - np.log(lengths.size))


def clone_log_limit_ess(
    noises: Sequence[Noise], *, logger: Sequence[Noise] = (), n_tokens: npt.ArrayLike | None = None
) -> float:
    """Log of the limit of a clone's ESS/n, parameters as in `log_moment`; ``-inf`` (a limit of 0) where E[W^2] = inf.

    Splitting ``W`` at M gives ``mean(W)^2 / mean(W^2) <= (M / sqrt(mean(W^2)) + sqrt(share of W > M))^2``, so the
    limit is 0 whenever ``E[W^2]`` is infinite, whether ``E[W]`` is finite or not. ESS/n may fall to it slowly: what a
    sample shows is then no estimate of anything.

    Examples
    --------
    >>> round(clone_log_limit_ess([Noise("noise", sd=1.16)]), 4)  # -1.16^2
    -1.3456
    >>> clone_log_limit_ess([Noise("noise", law="laplace", sd=0.8)])  # finite below sd = 1/sqrt(2)
    -inf
    """
    second = log_moment(noises, 2.0, logger=logger, n_tokens=n_tokens)
    if np.isinf(second):
        return float(-np.inf)
    return 2 * log_moment(noises, 1.0, logger=logger, n_tokens=n_tokens) - second


def sd_for_ess(
    ess: float, noise: Noise = Noise("noise"), *, passes: int = 1, n_tokens: npt.ArrayLike | None = None
) -> float:
    """Standard deviation, nats, of normal or Laplace noise at which a clone's ESS/n tends to `ess`, in (0, 1].

    Normal noise per response, every row touched: ``sd^2 = -log(ess) / passes``, and so over the length for noise per
    token at one length. Otherwise the mixture over rows and lengths (see `log_moment`) is solved: ``d log ESS`` is a
    difference of means of the number of errors under exponential tilts, so the ESS falls in sd and the solution is
    unique. With 2 `passes` the logger's log-probabilities come from one of their own with the same noise; `n_tokens` as
    in `log_moment`.

    Raises
    ------
    ValueError
        For Student t noise, whose limit is 0 at any sd; and where the answer is lost in rounding.

    Examples
    --------
    >>> round(sd_for_ess(0.26), 4), round(sd_for_ess(0.26, Noise("noise", per="token"), n_tokens=100), 4)
    (1.1606, 0.1161)
    >>> round(sd_for_ess(0.26, Noise("noise", "laplace")), 4)  # (1 - 2 s^2) / (1 - s^2/2)^2 = .26
    0.6471
    """
    if not 0 < ess <= 1:
        raise ValueError(f"ess={ess}: it must lie in (0, 1]")
    if noise.law == "student_t":
        raise ValueError(f"{NO_EXPONENTIAL}, so ESS/n tends to 0; take normal or laplace noise")
    if noise.law == "missing" or not noise.share > 0 or passes not in (1, 2):
        raise ValueError("calibration needs a law with an sd, a share in (0, 1] and passes 1 or 2")
    if passes == 2 and noise.unit_mean:
        raise ValueError("unit_mean is that of one pass; with passes=2 leave it out")
    if ess == 1:
        return 0.0

    def excess(variance: float) -> float:
        one = [replace(noise, sd=float(np.sqrt(variance)))]
        limit = clone_log_limit_ess(one, logger=one * (passes - 1), n_tokens=n_tokens)
        return max(limit, -1e9) - float(np.log(ess))  # brentq needs finite values

    lengths = _lengths([noise], n_tokens) if noise.per == "token" else np.ones(1)
    if noise.law == "normal" and noise.share == 1 and lengths.min() == lengths.max():
        return float(np.sqrt(-float(np.log(ess) / (passes * lengths[0]))))
    high = 0.5
    while noise.law == "normal" and excess(high) > 0:  # Laplace: the limit is 0 from a variance of 1/2 on
        high *= 2
    variance = brentq(excess, 0.0, high, xtol=1e-300, rtol=1e-15, maxiter=1000)
    if abs(excess(variance)) > 1e-8 * (1 - np.log(ess)):
        raise ValueError(
            f"ess={ess} is reached only within rounding of the sd where it is 0; ask for a larger ess"
        )
    return float(np.sqrt(variance))


def _lengths(noises: Sequence[Noise], n_tokens: npt.ArrayLike | None) -> FloatArray:
    """Checked lengths; a single 1 where nobody asks for them."""
    if n_tokens is None:
        if any(noise.per == "token" for noise in noises):
            raise ValueError("noise per token needs n_tokens, the number of tokens of each response")
        return np.ones(1)
    lengths = np.atleast_1d(np.asarray(n_tokens, dtype=float))
    if lengths.size == 0 or not ((lengths >= 1) & (lengths < 2**53) & (lengths == np.round(lengths))).all():
        raise ValueError("n_tokens must be integers >= 1")
    return lengths


def _log_mgf(noise: Noise, order: float) -> float:
    """``log E exp(order * e)`` of the centred noise of one response or token."""
    square = (order * noise.sd) ** 2
    if noise.law == "laplace":
        return float(-np.log1p(-square / 2)) if square < 2 else float(np.inf)
    if noise.law == "student_t":
        return float(np.inf) if square else 0.0
    return square / 2


def _unit_noise(noise: Noise, counts: npt.NDArray[np.int64], rng: np.random.Generator) -> FloatArray:
    """Sums of `counts` independent noises of unit variance; memory does not grow with the counts."""
    if noise.law == "laplace":  # a difference of exponentials, so a sum of them is one of gammas
        return np.asarray((rng.standard_gamma(counts) - rng.standard_gamma(counts)) / np.sqrt(2))
    if noise.law == "student_t":
        total = np.zeros(counts.shape)
        for t in range(int(counts.max(initial=0))):  # their sums have no closed form
            rows = counts > t
            total[rows] += rng.standard_t(noise.df, int(rows.sum()))
        return np.asarray(total * np.sqrt((noise.df - 2) / noise.df))
    return np.asarray(np.sqrt(counts) * rng.standard_normal(counts.shape))
