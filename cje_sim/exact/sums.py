"""Laws of sums of independent token scores: exact atoms, tilted FFT, Cramer's rate.

The distribution function ``P(v_1 + ... + v_L <= x)`` comes from one of two routes. Few distinct sums (small
V, L): exact convolution of atoms. Otherwise FFT on a lattice, after an exponential tilt that puts the point
of interest in the centre of the law, so that probabilities keep their *relative* accuracy at any depth (a
plain FFT loses everything below 1e-14).

Discretisation: each score is split between its two neighbouring lattice points so that its mean is kept. Given the sum,
the lattice sum is then off by independent bounded mean-zero errors, so by Hoeffding it is within ``delta = h sqrt(L
log(2/1e-15) / 2)`` of it but for 1e-15: ``F(x - delta) <= F(x) <= F(x + delta)`` brackets the truth (up to a factor
``exp(+-theta^2 h^2 L / 8)`` under a tilt theta), and for smooth laws the value itself is accurate to second order in h.

Cramer's rate is ``I(x) = sup_theta (theta x - K(theta))``. The formulas of Lugannani and Rice (1980) and of Bahadur and
Rao (1960), and tilted Monte Carlo, check all this in the tests.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import gammaln, logsumexp

FloatArray = npt.NDArray[np.float64]

LATTICE_POINTS = 2**16
MAX_EXACT_SUMS = 20_000
# Chernoff bound, in nats, on the mass outside the FFT window, relative to the tilted law.
LOG_OUTSIDE = 45.0
# Sums that differ by less than this, relatively, are one atom.
ROUNDING = 1e-11


class LogProb(NamedTuple):
    """Log of a probability with the bracket of its discretisation error."""

    value: float
    lower: float
    upper: float


def log_cdf(
    values: FloatArray, log_law: FloatArray, length: int, x: float, *, points: int = LATTICE_POINTS
) -> LogProb:
    """``log P(v_1 + ... + v_L <= x)`` of independent token scores, relatively accurate at any depth.

    `values` and `log_law` (V,) are score and log-probability of each token; `points` are those of the lattice of the
    FFT route, with which the bracket shrinks in proportion.

    Examples
    --------
    >>> coin = np.log([0.5, 0.5])
    >>> round(float(np.exp(log_cdf(np.array([0.0, 1.0]), coin, 10, 2.0).value)), 6)  # (1 + 10 + 45) / 1024
    0.054688
    """
    if length < 1:
        raise ValueError(f"length={length}: it must be at least 1")
    values, log_law = _possible(values, log_law)
    low, high = float(values.min()), float(values.max())
    margin = ROUNDING * max(1.0, abs(length * low), abs(length * high))
    if x >= length * high - margin:
        return LogProb(0.0, 0.0, 0.0)
    if x < length * low - margin:
        return LogProb(-np.inf, -np.inf, -np.inf)
    atoms = exact_sums(values, log_law, length)
    if atoms is not None:
        sums, log_masses = atoms
        out = float(logsumexp(log_masses[sums <= x + margin]))
        return LogProb(out, out, out)
    theta = saddlepoint(values, log_law, x / length)
    return iid_lattice(values, log_law, length, theta, points).log_cdf(x)


def log_interval(
    values: FloatArray,
    log_law: FloatArray,
    length: int,
    low: float,
    high: float,
    *,
    points: int = LATTICE_POINTS,
) -> LogProb:
    """Log-probability that the sum lies in ``[low, high]``, computed in the tail where it is rare."""

    def below(x: float) -> LogProb:
        return log_cdf(values, log_law, length, x, points=points)

    def above(x: float) -> LogProb:
        return log_cdf(-values, log_law, length, -x, points=points)

    if low == -np.inf:
        return below(high)
    if high == np.inf:
        return above(low)
    possible, law = _possible(values, log_law)
    mean = length * float(np.exp(law) @ possible)
    return combine_tails(mean, low, high, below, above)


def cumulant(values: FloatArray, log_law: FloatArray, theta: float) -> tuple[float, float, float]:
    """Cumulant generating function ``K(theta) = log E e^(theta v)`` of one token, with ``K'`` and ``K''``."""
    exponent = log_law + theta * values
    largest = float(exponent.max())
    weight = np.exp(exponent - largest)
    total = float(weight.sum())
    mean = float(weight @ values) / total
    return largest + float(np.log(total)), mean, float(weight @ (values - mean) ** 2) / total


def saddlepoint(values: FloatArray, log_law: FloatArray, mean: float) -> float:
    """The tilt theta with ``K'(theta) = mean``; bounded where `mean` is at an end of the support."""
    values, log_law = _possible(values, log_law)
    spread = float(values.max() - values.min())
    if spread == 0:
        return 0.0
    _, centre, variance = cumulant(values, log_law, 0.0)
    scale = 1 / max(np.sqrt(variance), 1e-12 * spread)
    return solve_tilt(lambda t: cumulant(values, log_law, t)[1], mean, centre, scale, 1e6 / spread)


def cramer_rate(values: FloatArray, log_law: FloatArray, mean: float) -> float:
    """Cramer's rate ``I(mean) = sup_theta (theta mean - K(theta))``, nats per token; inf outside the support.

    ``P(sum / L <= mean)`` for ``mean`` below the expectation (above: ``>=``) decays like ``exp(-L I)``.

    Examples
    --------
    >>> coin = np.log([0.5, 0.5])  # I(m) = log 2 + m log m + (1 - m) log(1 - m)
    >>> round(cramer_rate(np.array([0.0, 1.0]), coin, 0.25), 6)
    0.130812
    """
    values, log_law = _possible(values, log_law)
    low, high = float(values.min()), float(values.max())
    if not low - ROUNDING * (1 + abs(low)) <= mean <= high + ROUNDING * (1 + abs(high)):
        return float(np.inf)
    mean = min(max(mean, low), high)
    theta = saddlepoint(values, log_law, mean)
    return max(theta * mean - cumulant(values, log_law, theta)[0], 0.0)


def exact_sums(values: FloatArray, log_law: FloatArray, length: int) -> tuple[FloatArray, FloatArray] | None:
    """All distinct sums with their log-probabilities, or None where they may be too many (`MAX_EXACT_SUMS`)."""
    atoms, log_masses = merge_atoms(*_possible(values, log_law))
    n_types = len(atoms)
    # Sums of L tokens over D distinct scores: at most C(L + D - 1, D - 1) of them.
    if gammaln(length + n_types) - gammaln(n_types) - gammaln(length + 1) > np.log(MAX_EXACT_SUMS):
        return None
    sums, total = atoms, log_masses
    for _ in range(length - 1):
        sums, total = merge_atoms((sums[:, None] + atoms).ravel(), (total[:, None] + log_masses).ravel())
    return sums, total


class Lattice(NamedTuple):
    """Law of a sum under a tilt, on a lattice."""

    at: FloatArray
    mass: FloatArray
    h: float  # spacing
    delta: float  # how far splitting errors may move mass
    theta: float  # the tilt
    log_mgf: float  # of the tilt
    slack: float  # how much splitting errors may change the log of a tilted tail

    def log_cdf(self, x: float) -> LogProb:
        """``log P(sum <= x)`` of the law before the tilt."""
        below = self.theta <= 0
        sign = 1.0 if below else -1.0
        value, narrow, wide = (self._log_tail(x + sign * shift) for shift in (0.0, -self.delta, self.delta))
        if below:
            return LogProb(value, narrow - self.slack, min(wide + self.slack, 0.0))
        return LogProb(log1m(value), log1m(wide + self.slack), log1m(narrow - self.slack))

    def cdf(self) -> tuple[FloatArray, FloatArray]:
        """Distribution function at the cell edges, of the tilted law itself."""
        cumulative = np.cumsum(self.mass)
        return np.asarray(self.at + self.h / 2), np.asarray(cumulative / cumulative[-1])

    def _log_tail(self, x: float) -> float:
        """Lower tail (theta <= 0) or upper tail: the side on which the weight e^(-theta s) is largest at x."""
        cell = (x - self.at[0]) / self.h + 0.5  # x lies this many cells past the window's first edge
        whole = int(np.clip(np.floor(cell), 0, len(self.at)))
        share = float(np.clip(cell - whole, 0.0, 1.0))
        inside = slice(0, whole) if self.theta <= 0 else slice(whole + 1, None)
        # Below e^-300 a weight cannot matter beside those at x, and denormal numbers are slow.
        weight = np.exp(np.clip(-self.theta * (self.at[inside] - x), -300.0, 700.0))
        total = float((weight * self.mass[inside]).sum())  # not BLAS, whose threads cost more than they save
        if whole < len(self.at):
            edge = np.exp(np.clip(-self.theta * (self.at[whole] - x), -300.0, 700.0)) * self.mass[whole]
            total += float(edge) * (share if self.theta <= 0 else 1.0 - share)
        return float(np.log(total) + self.log_mgf - self.theta * x) if total > 0 else float(-np.inf)


def iid_lattice(values: FloatArray, log_law: FloatArray, length: int, theta: float, points: int) -> Lattice:
    """Lattice law of the sum of `length` independent scores under the tilt `theta`."""
    values, log_law = _possible(values, log_law)
    top, _, variance = cumulant(values, log_law, theta)
    tilted = log_law + theta * values - top

    def log_mgf(t: FloatArray) -> FloatArray:
        exponent = tilted + t[:, None] * values
        largest = exponent.max(axis=1)
        return np.asarray(length * (largest + np.log(np.exp(exponent - largest[:, None]).sum(axis=1))))

    ends = chernoff_window(log_mgf, length * variance)
    start = max(ends[0], length * float(values.min()))
    stop = min(ends[1], length * float(values.max()))
    h, spill = lattice_spacing(start, stop, length, points)
    weights = np.exp(tilted)
    index, fraction = split_cells(values, h)
    pmf = np.bincount(index % points, weights * (1 - fraction), points)
    pmf += np.bincount((index + 1) % points, weights * fraction, points)
    mass = np.fft.irfft(_power(np.fft.rfft(pmf), length), points)
    return place(mass, start, h, spill, theta, length * top, length)


def _power(values: npt.NDArray[np.complex128], exponent: int) -> npt.NDArray[np.complex128]:
    """Positive whole powers by repeated squaring: NumPy's own go by logarithms from 100 on, ten times as long."""
    out = values if exponent % 2 else np.ones_like(values)
    while exponent := exponent // 2:
        values = values * values
        out = out * values if exponent % 2 else out
    return out


def chernoff_window(log_mgf: Callable[[FloatArray], FloatArray], variance: float) -> tuple[float, float]:
    """Ends outside which a sum has mass below ``2 exp(-LOG_OUTSIDE)``, from Chernoff's bound on a grid of tilts."""
    tilt = np.sqrt(2 * LOG_OUTSIDE / max(variance, 1e-300)) * 2.0 ** np.arange(-6, 4)
    left, right = (
        (LOG_OUTSIDE + part) / tilt for part in np.split(log_mgf(np.concatenate([-tilt, tilt])), 2)
    )
    return float(-left.min()), float(right.min())


def lattice_spacing(start: float, stop: float, length: int, points: int) -> tuple[float, int]:
    """Spacing of `points` lattice points over a window, and the room in cells left for splitting errors.

    Splitting errors carry mass past the ends of the window by up to `spill` cells; without room it would wrap round.
    """
    spill = int(np.ceil(np.sqrt(length * np.log(2e15) / 2)))
    if points < 8 * spill:
        raise ValueError(f"points={points}: it must be at least {8 * spill} at length {length}")
    return max(stop - start, 1e-12) / (points - 2 * spill - 4), spill


def split_cells(values: FloatArray, h: float) -> tuple[npt.NDArray[np.int64], FloatArray]:
    """Lattice index below each value, and the share of its mass that goes to the next index."""
    cell = values / h
    index = np.floor(cell)
    return index.astype(np.int64), cell - index


def place(
    mass: FloatArray, start: float, h: float, spill: int, theta: float, log_mgf: float, length: int
) -> Lattice:
    """Unwrap FFT output (index modulo its size) to the window that starts at `start`."""
    lattice_index = int(np.floor(start / h)) - spill - 1 + np.arange(len(mass))
    unwrapped = np.maximum(mass[lattice_index % len(mass)], 0.0)
    slack = (theta * h) ** 2 * length / 8 + 1e-12  # Hoeffding's lemma on E[e^(-theta * splitting error)]
    return Lattice(np.asarray(h * lattice_index), unwrapped, h, h * spill, theta, log_mgf, slack)


def solve_tilt(
    slope: Callable[[float], float], mean: float, centre: float, scale: float, limit: float
) -> float:
    """Root of ``slope(theta) = mean`` for an increasing slope with ``slope(0) = centre``; at most +-`limit`."""
    if centre == mean:
        return 0.0
    sign = float(np.sign(mean - centre))
    inner, outer = 0.0, sign * min(scale, limit)
    while (slope(outer) - mean) * sign < 0:
        if abs(outer) >= limit:
            return outer
        inner, outer = outer, sign * min(2 * abs(outer), limit)
    return float(brentq(lambda t: slope(t) - mean, inner, outer, xtol=1e-13, rtol=1e-12))


def combine_tails(
    mean: float, low: float, high: float, below: Callable[[float], LogProb], above: Callable[[float], LogProb]
) -> LogProb:
    """``log P(low <= S <= high)`` from ``below(x) = log P(S <= x)`` and ``above(x) = log P(S >= x)``.

    The two probabilities subtracted are the ones in the tail where the interval is rare, so nothing cancels.
    """
    if low <= mean <= high:
        left, right = below(low), above(high)
        ends = (np.logaddexp(left.value, right.value), np.logaddexp(left.upper, right.upper))
        return LogProb(log1m(ends[0]), log1m(ends[1]), log1m(np.logaddexp(left.lower, right.lower)))
    big, small = (below(high), below(low)) if mean > high else (above(low), above(high))
    return LogProb(
        log_minus(big.value, small.value),
        log_minus(big.lower, small.upper),
        log_minus(big.upper, small.lower),
    )


def log1m(log_x: float) -> float:
    """log(1 - exp(x)); -inf where rounding carries x to 0 or above."""
    return float(-np.inf) if log_x >= 0 else float(np.log(-np.expm1(log_x)))


def log_minus(a: float, b: float) -> float:
    """log(exp(a) - exp(b)); -inf where b >= a."""
    return float(-np.inf) if b >= a else float(a + log1m(b - a))


def _possible(values: FloatArray, log_law: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Leave out impossible tokens, whose score may be infinite."""
    keep = log_law > -np.inf
    return values[keep], log_law[keep]


def merge_atoms(values: FloatArray, log_masses: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Sort atoms and join those that differ by rounding only."""
    order = np.argsort(values, kind="stable")
    values, log_masses = values[order], log_masses[order]
    tolerance = ROUNDING * max(1.0, float(np.abs(values).max()))
    starts = np.concatenate([[0], np.flatnonzero(np.diff(values) > tolerance) + 1])
    top = np.maximum.reduceat(log_masses, starts)
    counts = np.diff(np.concatenate([starts, [len(values)]]))
    joined = np.add.reduceat(np.exp(log_masses - np.repeat(top, counts)), starts)
    return values[starts], top + np.log(joined)
