"""Exact theory of Markov chains, prompt classes and stop tokens, by transfer matrices.

Every quantity is a sum over token paths of products of one-step factors, so it is a product of (V, V) matrices:
``KL``, ``E0[W^2] = 1 + chi2``, mean lengths, and, with the factor ``e^(i omega v)`` in place, the characteristic
function of a sum of token scores and so its law (`cje_sim.exact.sums` explains tilt, lattice and bracket).

With a stop token the length ``|a|`` is random and "mean surprisal <= c" is not a statement about the total; but it is
one about the total of ``surprisal - c``, which is how it is computed.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import logsumexp

from cje_sim.exact import typicality
from cje_sim.exact.paths import Paths, tilted
from cje_sim.exact.sums import FloatArray, LogProb, combine_tails, solve_tilt
from cje_sim.tokens.laws import TokenPolicy

PATH_POINTS = 2**13


class Divergence(NamedTuple):
    """Exact sequence-level divergences of a target from its logger; divide by `mean_length` for per-token ones."""

    kl: float  # KL(pi' || pi_0), nats
    log1p_chi2: float  # log E0[W^2]; minus it is the log of the limit of ESS/n
    mean_length: float  # tokens under the target


def divergence(target: TokenPolicy, logger: TokenPolicy) -> Divergence:
    """Exact KL, chi-square and mean length of two token policies of one world.

    Examples
    --------
    >>> from cje_sim.targets.tilts import token_tilt
    >>> from cje_sim.tokens.laws import markov_policy, markov_with_stationary, zipf
    >>> chain = markov_policy(zipf(4, 1.2), markov_with_stationary(zipf(4, 1.2), rng=0), length=50)
    >>> divergence(token_tilt(chain, [1.0, 0.0, 0.0, 0.0], 0.0), chain)
    Divergence(kl=0.0, log1p_chi2=0.0, mean_length=50.0)
    """
    p, _, ratio, kernel = _aligned(target, logger)
    weights = np.asarray(target.class_prob)
    pairs = zip(kernel, ratio, strict=True)
    second = [Paths(*pair, target.length, target.stop).log_mgf(0.0) for pair in pairs]
    return Divergence(
        _clean(expected_sum(target, ratio)),
        _clean(float(logsumexp(second, b=weights))),
        expected_sum(target, np.ones_like(p)),
    )


def expected_sum(policy: TokenPolicy, table: FloatArray) -> float:
    """``E[sum_t f(a_(t-1), a_t)]`` for token scores `table` of shape (K, 1 + S, V), over prompt classes too."""
    total = 0.0
    for k, weight in enumerate(policy.class_prob):
        law = np.exp(_rows(policy.log_prob[k], table.shape[1]))
        scores = np.where(law > 0, table[k], 0.0)
        markov = law.shape[0] > 2
        alive = np.zeros(law.shape[0])
        alive[0] = 1.0
        for _ in range(policy.length):
            total += weight * float(alive @ (law * scores).sum(axis=1))
            here = alive @ law
            if policy.stop is not None:
                here[policy.stop] = 0.0
            alive = np.zeros(law.shape[0])
            alive[1:] = here if markov else here.sum()
    return total


def log_cdf(
    policy: TokenPolicy,
    table: FloatArray,
    x: float,
    *,
    log_kernel: FloatArray | None = None,
    points: int = PATH_POINTS,
) -> LogProb:
    """``log P(sum_t f(a_(t-1), a_t) <= x)`` under a token policy, relatively accurate at any depth.

    `table` (K, 1 + S, V) are the token scores. `log_kernel`, of the same shape, are one-step factors in place of the
    policy's log-probabilities; they need not be normalised, for instance ``2 log p - log q``, which gives ``log E0[W^2
    1(sum <= x)]``.
    """
    kernel = _rows(policy.log_prob, table.shape[1]) if log_kernel is None else log_kernel
    parts = [(weight, paths.log_cdf(x, points)) for weight, paths in _all_paths(policy, kernel, table)]
    return LogProb(*(float(logsumexp([weight + part[i] for weight, part in parts])) for i in range(3)))


def coverage(
    target: TokenPolicy,
    logger: TokenPolicy,
    *,
    level: float = 0.9,
    two_sided: bool = False,
    points: int = PATH_POINTS,
) -> typicality.Coverage:
    """Exact TTC and its companions for any two token policies; see `typicality.coverage`.

    The region of the result is one of *mean* surprisal, nats per token, ``[-inf, q_level]`` or, two-sided,
    ``H +- d`` with ``H = E[total surprisal] / E[length]`` under the target. Where the surprisal has atoms the upper
    edge is moved just past the atom that holds the quantile, so alpha is at least `level` up to the bracket. Costs
    O(points * L * V^2) for a chain: seconds at V = 20, L = 100; a stop token, which makes every trial value of the
    quantile a law of its own, some ten times that.
    """
    if not 0 < level < 1:
        raise ValueError(f"level={level}: it must lie in (0, 1)")
    p, q, _, squared = _aligned(target, logger)
    kernels = (p, q, squared)
    # A token the target cannot say makes the response atypical, however likely the rest is.
    surprisal = np.where(p > -np.inf, -p, 1e6)
    centre = expected_sum(target, surprisal) / expected_sum(target, np.ones_like(p))
    exact = [_mean_atoms(target, kernel, surprisal) for kernel in kernels]
    if exact[0] is not None:
        region = typicality.atom_region(*exact[0], centre, level, two_sided)
        alpha, beta, second = (_atoms_inside(part, region) for part in exact)
    else:
        region = _lattice_region(target, p, surprisal, centre, level, two_sided, points)
        alpha, beta, second = (_lattice_mass(target, kernel, surprisal, region, points) for kernel in kernels)
    return typicality.Coverage.of(region, alpha, beta, second.value)


class Rates(NamedTuple):
    """Long-run constants of a pair of Markov chains, nats per token."""

    entropy: float  # of the target
    collapse_margin: float  # which way one-sided TTC goes, see `cje_sim.exact.divergences.collapse_margin`
    rate: float  # at which two-sided TTC decays, and one-sided TTC if the margin is positive
    kl: float
    log1p_chi2: float


def rates(target: TokenPolicy, logger: TokenPolicy) -> Rates:
    """Collapse margin and large-deviation rate of two irreducible chains (one prompt class, no stop token).

    The cumulant function of the surprisal under the logger is the log of the Perron root of
    ``q(v | u) p(v | u)^(-theta)``; the rate is its Legendre transform at the target's entropy rate.

    Examples
    --------
    >>> from cje_sim.targets.tilts import temperature
    >>> from cje_sim.tokens.laws import markov_policy, markov_with_stationary, zipf
    >>> logger = markov_policy(zipf(4, 1.2), markov_with_stationary(zipf(4, 1.2), rng=0), length=50)
    >>> found = rates(temperature(logger, 0.5), logger)
    >>> found._fields
    ('entropy', 'collapse_margin', 'rate', 'kl', 'log1p_chi2')
    """
    if target.stop is not None or len(target.class_prob) > 1:
        raise ValueError("rates need one prompt class and no stop token; use coverage at finite length")
    p, q, ratio, squared = (
        x[0, 1:] if x.shape[1] > 2 else np.tile(x[0, 1], (x.shape[2], 1)) for x in _aligned(target, logger)
    )
    surprisal = np.where(p > -np.inf, -p, 0.0)
    entropy = _stationary(p) @ (np.exp(p) * surprisal).sum(axis=1)
    cross = _stationary(q) @ (np.exp(q) * surprisal).sum(axis=1)
    kl = _stationary(p) @ (np.exp(p) * ratio).sum(axis=1)
    scale = 1 / max(float(np.std(surprisal)), 1e-12)
    theta = solve_tilt(
        lambda t: _perron(q, surprisal, t)[1], float(entropy), float(cross), scale, 1e3 * scale
    )
    rate = max(theta * float(entropy) - _perron(q, surprisal, theta)[0], 0.0)
    second = _perron(squared, surprisal, 0.0)[0]
    return Rates(float(entropy), float(cross - entropy), rate, float(kl), second)


def _stationary(log_chain: FloatArray) -> FloatArray:
    """Stationary law of an irreducible chain, from ``pi (P - I + 1 1^T) = 1^T``."""
    n = len(log_chain)
    return np.asarray(np.linalg.solve((np.exp(log_chain) - np.eye(n) + 1.0).T, np.ones(n)))


def _perron(log_chain: FloatArray, scores: FloatArray, theta: float) -> tuple[float, float]:
    """Log of the Perron root of ``chain * e^(theta scores)`` and its derivative in theta."""
    kernel = tilted(log_chain, scores, theta)
    top = float(kernel.max())
    matrix = np.exp(kernel - top)
    roots, right = np.linalg.eig(matrix)
    k = int(np.argmax(roots.real))
    others, left = np.linalg.eig(matrix.T)
    r, left_vector = np.abs(right[:, k].real), np.abs(left[:, int(np.argmax(others.real))].real)
    slope = left_vector @ (matrix * scores) @ r / (left_vector @ matrix @ r)
    return top + float(np.log(roots[k].real)), float(slope)


def _rows(log_prob: FloatArray, rows: int) -> FloatArray:
    """Repeat the single "later" row of an i.i.d. layout so that it has `rows` rows (second-last axis)."""
    if log_prob.shape[-2] == rows:
        return log_prob
    if log_prob.shape[-2] > 2:
        raise ValueError(
            f"the scores have {rows} rows a class; a Markov policy needs 1 + V = {log_prob.shape[-2]}"
        )
    later = np.repeat(log_prob[..., 1:, :], rows - 1, axis=-2)
    return np.concatenate([log_prob[..., :1, :], later], axis=-2)


def _aligned(target: TokenPolicy, logger: TokenPolicy) -> tuple[FloatArray, ...]:
    """``log p``, ``log q``, log ratios (0 for what p never says) and ``log p^2 / q``, in one layout."""
    for name in ("vocab", "length", "stop", "class_prob"):
        if getattr(target, name) != getattr(logger, name):
            both = f"{getattr(target, name)} and {getattr(logger, name)}"
            raise ValueError(f"target and logger differ in {name} ({both}); they must agree")
    rows = max(target.log_prob.shape[1], logger.log_prob.shape[1])
    p, q = _rows(target.log_prob, rows), _rows(logger.log_prob, rows)
    if np.any((p > -np.inf) & (q == -np.inf)):
        raise ValueError(
            "the logger gives probability 0 to a token of the target: importance weights do not exist"
        )
    with np.errstate(invalid="ignore"):  # impossible tokens: -inf - -inf
        return p, q, np.where(p > -np.inf, p - q, 0.0), np.where(p > -np.inf, 2 * p - q, -np.inf)


def _clean(x: float) -> float:
    """Rounding noise of a quantity that is never negative."""
    return 0.0 if abs(x) < 1e-12 else x


def _all_paths(policy: TokenPolicy, kernel: FloatArray, scores: FloatArray) -> list[tuple[float, Paths]]:
    """Log-weight and paths of each prompt class that occurs."""
    return [
        (float(np.log(weight)), Paths(kernel[k], scores[k], policy.length, policy.stop))
        for k, weight in enumerate(policy.class_prob)
        if weight > 0
    ]


def _mean_atoms(
    policy: TokenPolicy, kernel: FloatArray, surprisal: FloatArray
) -> tuple[FloatArray, FloatArray] | None:
    """Atoms of the *mean* surprisal with their log-mass, or None where there may be too many."""
    values, masses = [], []
    for weight, paths in _all_paths(policy, kernel, surprisal):
        atoms = paths.atoms()
        if atoms is None:
            return None
        for n_tokens, sums, log_mass in atoms:
            values.append(sums / n_tokens)
            masses.append(log_mass + weight)
    return np.concatenate(values), np.concatenate(masses)


def _atoms_inside(atoms: tuple[FloatArray, FloatArray] | None, region: typicality.Region) -> LogProb:
    assert atoms is not None  # the same paths as the target's, or fewer
    values, log_mass = atoms
    inside = (values >= region.low) & (values <= region.high)
    out = float(logsumexp(log_mass[inside])) if inside.any() else float(-np.inf)
    return LogProb(out, out, out)


def _lattice_region(
    policy: TokenPolicy,
    kernel: FloatArray,
    surprisal: FloatArray,
    centre: float,
    level: float,
    two_sided: bool,
    points: int,
) -> typicality.Region:
    fixed = policy.stop is None
    laws = [(w, paths.lattice(0.0, points)) for w, paths in _all_paths(policy, kernel, surprisal)]
    # Splitting moves a mean by at most one spacing; over many tokens the errors average out.
    delta = max(law.delta / policy.length if fixed else law.h for _, law in laws)

    def cdf(means: FloatArray) -> FloatArray:
        out = np.zeros(len(means))
        if fixed:
            for weight, law in laws:
                edges, steps = law.cdf()
                out += np.exp(weight) * np.interp(policy.length * means, edges, steps)
            return out
        for i, c in enumerate(means):
            for weight, paths in _all_paths(policy, kernel, surprisal - c):
                edges, steps = paths.lattice(0.0, points).cdf()
                out[i] += np.exp(weight) * np.interp(0.0, edges, steps)
        return out

    possible = surprisal[kernel > -np.inf]
    low, high = float(possible.min()) - 1e-6, float(possible.max()) + 1e-6
    edge = None
    if not two_sided:
        edge = float(brentq(lambda c: float(cdf(np.array([c]))[0]) - level, low, high, xtol=1e-10))
    return typicality.smooth_region(cdf, edge, centre, level, max(centre - low, high - centre), delta)


def _lattice_mass(
    policy: TokenPolicy, kernel: FloatArray, surprisal: FloatArray, region: typicality.Region, points: int
) -> LogProb:
    """Log of the kernel's mass on the region; upper tails are taken where the region is rare from above."""
    paths = _all_paths(policy, kernel, surprisal)
    totals = np.array([weight + part.log_mgf(0.0) for weight, part in paths])
    total = float(logsumexp(totals))

    def share(scores: FloatArray) -> LogProb:
        inside = log_cdf(policy, scores, 0.0, log_kernel=kernel, points=points)
        return LogProb(*(v - total for v in inside))

    def below(c: float) -> LogProb:
        return share(surprisal - c)

    if region.low == -np.inf:
        inside = below(region.high)
    else:
        sums = np.array([part.slopes(0.0)[0] for _, part in paths])
        ones = _all_paths(policy, kernel, np.ones_like(surprisal))
        lengths = np.array([part.slopes(0.0)[0] for _, part in ones])
        of_class = np.exp(totals - total)
        mean = float(of_class @ sums / (of_class @ lengths))
        inside = combine_tails(mean, *region, below, lambda c: share(c - surprisal))
    return LogProb(*(v + total for v in inside))
