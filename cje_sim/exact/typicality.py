"""Typical regions of the target and the logger's mass on them (TTC), exactly.

For i.i.d. tokens the total surprisal ``S = sum_t -log p(a_t)`` is a sum of independent scores, so every
quantity of the paper's coverage argument is a distribution function of such a sum (`cje_sim.exact.sums`):

- target mass  ``alpha = P_p(S in T)``, logger mass (TTC) ``beta = P_q(S in T)``,
- ``E0[W^2 1_T] = (1 + chi2)^L P_m(S in T)`` with the token law ``m ~ p^2/q`` (lemma on the weight's second
  moment).

Markov chains, prompt classes and stop tokens are in `cje_sim.exact.markov`.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from cje_sim.exact.divergences import chi2_law, collapse_margin, entropy, log1p_chi2
from cje_sim.exact.sums import (
    LATTICE_POINTS,
    FloatArray,
    LogProb,
    cramer_rate,
    exact_sums,
    iid_lattice,
    log_interval,
)

# Region edges that sit on an atom are moved outwards by this relative amount, so that sums of the same tokens
# in another order (last-bit rounding) fall on the same side.
ATOM_MARGIN = 1e-9


class Region(NamedTuple):
    """Typical region: total surprisal under the target, in nats, between `low` and `high` (both included)."""

    low: float
    high: float


class Coverage(NamedTuple):
    """A typical region and what the paper's bound makes of it."""

    region: Region
    log_alpha: float  # target mass
    log_beta: float  # logger mass, whose exponential is TTC
    log_second_moment: float  # log E0[W^2 1_T]
    log1p_chi2: float  # log(1 + chi2(pi'_T || pi_0T)), the shape term
    beta_bracket: tuple[float, float]  # of the discretisation error of `log_beta`

    @classmethod
    def of(cls, region: Region, alpha: LogProb, beta: LogProb, second: float) -> "Coverage":
        """Coverage from the logs of the target's mass, the logger's, and ``E0[W^2 1_T]``."""
        shape = second + beta.value - 2 * alpha.value if np.isfinite(beta.value) else float(np.nan)
        return cls(region, alpha.value, beta.value, second, shape, (beta.lower, beta.upper))

    @property
    def alpha(self) -> float:
        """Target mass of the region."""
        return float(np.exp(self.log_alpha))

    @property
    def ttc(self) -> float:
        """Logger mass of the region: target-typicality coverage."""
        return float(np.exp(self.log_beta))

    def log_cle_floor(self, sigma: float, n: int) -> float:
        """Log of the CLE floor ``sigma_T alpha / sqrt(beta n) sqrt(1 + chi2_T)`` (paper, eq. cle-bound)."""
        return float(
            np.log(sigma) + self.log_alpha - 0.5 * (self.log_beta + np.log(n)) + 0.5 * self.log1p_chi2
        )


def coverage(
    log_p: FloatArray,
    log_q: FloatArray,
    length: int,
    *,
    level: float = 0.9,
    two_sided: bool = False,
    points: int = LATTICE_POINTS,
) -> Coverage:
    """Exact TTC and its companions for i.i.d. tokens.

    One-sided, as the paper defines it: ``T = {mean surprisal under the target <= q_level}`` with ``q_level``
    the smallest value whose distribution function under the target reaches `level`. Two-sided:
    ``T = {|mean surprisal - H(p)| <= d}`` with ``d`` the `level` quantile of that distance under the target.
    Where the surprisal has atoms, ``alpha = P(T)`` exceeds `level`; it is computed, not assumed.

    Examples
    --------
    >>> from cje_sim.tokens.laws import zipf
    >>> law = zipf(1000, 1.2)
    >>> round(coverage(law, law, 25).ttc, 6)  # a clone: the logger's mass is the target's
    0.9
    """
    region = _region(log_p, length, level, two_sided, points)
    alpha, beta, tilted = (
        log_interval(-log_p, law, length, *region, points=points)
        for law in (log_p, log_q, chi2_law(log_p, log_q))
    )
    return Coverage.of(region, alpha, beta, length * log1p_chi2(log_p, log_q) + tilted.value)


def _region(log_p: FloatArray, length: int, level: float, two_sided: bool, points: int) -> Region:
    if not 0 < level < 1:
        raise ValueError(f"level={level}: it must lie in (0, 1)")
    surprisal = -log_p
    centre = length * entropy(log_p)
    atoms = exact_sums(surprisal, log_p, length)
    if atoms is not None:
        return atom_region(*atoms, centre, level, two_sided)
    lattice = iid_lattice(surprisal, log_p, length, 0.0, points)
    edges, steps = lattice.cdf()
    edge = None if two_sided else float(np.interp(level, steps, edges))
    widest = float(max(centre - edges[0], edges[-1] - centre))
    return smooth_region(lambda x: np.interp(x, edges, steps), edge, centre, level, widest, lattice.delta)


def smooth_region(
    cdf: Callable[[FloatArray], FloatArray],
    edge: float | None,
    centre: float,
    level: float,
    widest: float,
    delta: float,
) -> Region:
    """Typical region of a law by its distribution function, in which atoms are smeared over +-`delta`.

    One-sided up to `edge`, the quantile at `level`; without it two-sided, ``cdf(centre + d) - cdf(centre - d) = level``
    at a distance of at most `widest`.
    """
    if edge is not None:
        return Region(float(-np.inf), edge + past_atom(cdf, edge, delta))

    def excess(distance: float) -> float:
        low, high = cdf(np.array([centre - distance, centre + distance]))
        return float(high - low) - level

    distance = float(brentq(excess, 0.0, widest, xtol=1e-12 * max(1.0, widest)))
    distance += max(past_atom(cdf, centre + side * distance, delta) for side in (-1, 1))
    return Region(centre - distance, centre + distance)


def past_atom(cdf: Callable[[FloatArray], FloatArray], edge: float, delta: float) -> float:
    """How far to move an edge so that an atom there, smeared by the lattice over +-delta, is wholly inside.

    An atom shows as mass within +-delta of the edge that its surroundings (delta to 3 delta) do not have.
    """
    at = cdf(edge + delta * np.array([-3.0, -1.0, 1.0, 3.0]))
    within, around = at[2] - at[1], (at[3] - at[2] + at[1] - at[0]) / 2
    return 2 * delta if within > 3 * around + 1e-3 else 0.0


def atom_region(
    values: FloatArray, log_mass: FloatArray, centre: float, level: float, two_sided: bool
) -> Region:
    """Typical region of a law given by its atoms; edges lie just past the atom that reaches the level."""
    score = np.abs(values - centre) if two_sided else values
    order = np.argsort(score, kind="stable")
    cumulative = np.cumsum(np.exp(log_mass[order]))
    place = min(int(np.searchsorted(cumulative, level - 1e-12)), len(order) - 1)
    edge = float(score[order][place])
    edge += ATOM_MARGIN * max(1.0, abs(centre), abs(edge))
    return Region(centre - edge, centre + edge) if two_sided else Region(float(-np.inf), edge)


def collapse_rate(log_p: FloatArray, log_q: FloatArray, *, two_sided: bool = False) -> float:
    """Rate of TTC collapse, nats per token: ``-lim log(TTC) / L``.

    One-sided TTC: Cramer's rate ``I_q(H(p))`` of the logger's surprisal at the target's entropy if the logger's
    cross-entropy exceeds that entropy (`exact.collapse_margin` > 0), else 0: TTC tends to 1 (margin < 0) or to a
    constant (margin = 0). Two-sided TTC: ``I_q(H(p))`` whatever the sign. Since the target itself has mean surprisal
    H(p), the rate is at most ``KL(p || q)``, with equality when the target is the logger at another temperature.

    Examples
    --------
    >>> from cje_sim.tokens.laws import log_normalise, zipf
    >>> from cje_sim.exact.divergences import kl
    >>> q = zipf(100, 1.2)
    >>> cold, hot = log_normalise(q / 0.8), log_normalise(q / 1.25)
    >>> [bool(np.isclose(collapse_rate(p, q, two_sided=True), kl(p, q))) for p in (cold, hot)]
    [True, True]
    >>> collapse_rate(hot, q)
    0.0
    """
    if not two_sided and collapse_margin(log_p, log_q) <= 0:
        return 0.0
    return cramer_rate(-log_p, log_q, entropy(log_p))
