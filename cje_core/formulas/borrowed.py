"""Posterior of a borrowed value: a logistic spline through the labels of other policies, with half of a one-step.

Estimand: ``V_p = E[Y]`` of a policy without labels of its own, valid if ``E[Y | S] = f(S)`` is that of the labelled
policies. With g_p the mass of the policy's scores at the nodes of f, ``V_p = g_p . f``. Everything is deterministic:
the "draws" are 512 fixed points of one scrambled Sobol set. Steps, on the unit scale of the labels y (m,):

1. Nodes: the distinct labelled scores (16 quantiles where there are more) and the ends of the judge's range; f is
   linear between them (`place_nodes`). z are the nodes in units of the scores of the labelled policies.
2. Prior (`make_prior`): ``f = expit(mu + b0 + b1 z + L u)``, L L' a Matern 3/2 covariance with length 1.5,
   ``b0 ~ N(0, 2.5^2)``, ``b1 ~ N(0, t1^2)``, ``u ~ N(0, t2^2 I)`` on a grid of six (t1, t2).
3. Quasi-likelihood ``sum(y log p + (1 - y) log(1 - p)) / phi``; phi is 1 for binary labels (`dispersion`).
4. Mode of each grid point by Fisher scoring (`find_mode`), weighed by Laplace's approximation (`grid_modes`).
5. Draws of f from the six normal laws of the coefficients (`draw_curves`).
6. Selection (`selection_weights`): a value is printed only where the judge passes its test, and a curve that rarely
   passes explains that it did less well. Each draw weighs one over its probability of passing, at most 10.
7. Half of the one-step (`project`): with the weights a that balance the mean score,
   ``a_j = 1/2 [1/m + (zbar_p - zbar_L)(z_j - zbar_L) / sum (z - zbar_L)^2]``, the value moves by ``sum a (y - fbar)``.
   So the label j has the coefficient ``c_j = a_j + c~_j``, c~ its effect on ``g~ . f``, ``g~ = g_p - sum_j a_j h_j``.
8. Variance (`contrast`): of the labels ``V = max((nu V_h + nu0 V_m) / (nu + nu0), V_m / 2)``, from squared residuals
   (V_h) and from the model (V_m), nu the `effective` number of labels less one; and of the curve that the one-step
   leaves out, ``B = 2 max(Var(g~ . f) - sum c~^2 v, 0)``.
9. Limits (`limits`): weighted quantiles of the draws, stretched to the variance V + B and by t / z, plus the error of
   the responses drawn.
10. Differences subtract draws and coefficients, whatever is shared cancels. A policy with labels of its own takes part
    with its own value: with lam the weight of the judge in it, ``D = (1 - lam) mean_L f + lam mean f`` and
    ``c_j = 1{j own} / m_a + lam (c_j(its responses) - c_j(its labels))``.

Limits at other levels: the t quantile follows the level; beyond tails of 1%, where 512 points say little, the quantile
is that at 1% extended in proportion to the normal quantile.

Source: no publication; found by simulation (``docs/decisions.md``). Known short: plateaus and noise at one end of the
scale with 15 to 30 labels, nearly all labels equal, where coverage of 95% limits is .87 to .93.
"""

import math
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import special

from cje_core.checks import BoolArray, FloatArray, IntArray
from cje_core.compiled import Kernel

MAX_NODES = 16  # among the labelled scores
LENGTH, JITTER = 1.5, 1e-6  # of the Matern covariance, in standard deviations of the scores
LEVEL_SD = 2.5
SLOPES, BENDS = (1.2, 4.0), (0.1, 0.3, 1.0)  # grid of prior standard deviations of b1 and u
MIDDLE = 1.5, 0.5  # those with which the dispersion is estimated
PRIOR_PHI = 0.1  # of a graded label, worth one label
STEPS, LONGEST, SMALLEST = 14, 1.5, 1e-3  # of Fisher scoring: their number, size on the logit scale, and end
EDGE = 1e-4  # means are kept this far from 0 and 1
FIRST_LOGIT, LAST_LOGIT = 12.0, 30.0  # bounds of the logit in modes and in draws
MIN_PASSING = 0.1  # probability of passing the judge's test below which a draw weighs no more
MODEL_DF = {True: 8.0, False: 3.0}  # nu0: labels that the model's variance is worth, binary or graded
BIAS = 2.0  # factor on the curve's variance that no label shows
MAX_LEVERAGE, MIN_CAP, MAX_DF = 0.9, 3.0, 400.0
TAIL = 0.01  # least tail probability that the points are asked for
SMALLEST_P, SMALLEST_VARIANCE = 1e-12, 1e-18
GRID = np.array([(slope, bend) for slope in SLOPES for bend in BENDS])


class Curve(NamedTuple):
    """Posterior of f at its nodes, and how the labels move it."""

    node: FloatArray  # (J,) scores
    z: FloatArray  # (J,) the same, scaled
    right: IntArray  # (m,) node to the right of each label
    part: FloatArray  # (m,) share of that node
    draw: FloatArray  # (N, J)
    selection: FloatArray  # (N,), summing to one
    gain: FloatArray  # (J, m): derivative of the mean of f by each label
    rest: FloatArray  # (m,) label less mean of f
    variance: FloatArray  # (m,) by the model
    square: FloatArray  # (m,) squared residual over (1 - leverage)^2
    df: tuple[
        float, float
    ]  # labels that the model's variance is worth, and degrees of freedom that the fit leaves


class Functional(NamedTuple):
    """A mean of f with half of its one-step."""

    draw: FloatArray  # (N,) g . f
    rest_draw: FloatArray  # (N,) g~ . f
    coefficient: FloatArray  # (m,) c
    fitted: FloatArray  # (m,) c~
    offset: float  # what the one-step adds


class Borrowed(NamedTuple):
    """Values made of one curve, from which limits at any level follow; policies without such a value are NaN."""

    draw: FloatArray  # (P, N)
    rest_draw: FloatArray  # (P, N); 0 for own values
    coefficient: FloatArray  # (P, m)
    fitted: FloatArray  # (P, m); 0 for own values
    offset: FloatArray  # (P,): value less the weighted mean of its draws (of an own value: the plain mean)
    response: FloatArray  # (P, K): a root of the covariance that the responses drawn leave
    own: BoolArray  # (P,) the policy has labels of its own
    selection: FloatArray  # (N,)
    variance: FloatArray  # (m,)
    square: FloatArray  # (m,)
    df: tuple[float, float]  # nu0 and the cap


class Contrast(NamedTuple):
    """A value or a difference: center and errors."""

    center: float
    deviation: FloatArray  # (N,) of the draws, with the variance of the labels and of the curve
    excess: float  # variance beyond that of the draws
    response: float  # variance due to the responses drawn
    df: float


@lru_cache(maxsize=1)
def points() -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Sobol points: normals of the coefficients (N, 20), of responses and excess noise (N,), uniforms of the grid."""
    uniform = np.load(Path(__file__).with_name("sobol_points.npy")) / 2.0**30
    inside = np.clip(uniform, 1e-6, 1 - 1e-6)
    normal = special.ndtri(inside)
    return (
        np.ascontiguousarray(normal[:, :-3]),
        normal[:, -3].copy(),
        normal[:, -2].copy(),
        inside[:, -1].copy(),
    )


def place_nodes(score: FloatArray, low: float, high: float) -> FloatArray:
    """Nodes of the curve: distinct labelled scores, or 16 of their quantiles, and the ends of the judge's range."""
    ordered = np.sort(score)
    node = np.unique(ordered)
    if len(node) > MAX_NODES:
        place = (len(ordered) - 1) * np.arange(MAX_NODES) / (MAX_NODES - 1)
        node = np.unique(ordered[np.round(place).astype(int)])
    gap = 1e-9 * (high - low)
    ends = [low] * bool(low < node[0] - gap), [high] * bool(high > node[-1] + gap)
    return np.concatenate([ends[0], node, ends[1]])


def locate(score: FloatArray, node: FloatArray) -> tuple[IntArray, FloatArray]:
    """Node to the right of each score and the share of that node in its linear interpolation; flat beyond the ends."""
    right = np.clip(np.searchsorted(node, score), 1, len(node) - 1)
    left = node[right - 1]
    return right, np.clip((score - left) / (node[right] - left), 0.0, 1.0)


def between(right: IntArray, part: FloatArray, values: FloatArray) -> FloatArray:
    """Interpolate values at the nodes, which are the last axis."""
    return np.asarray((1 - part) * values[..., right - 1] + part * values[..., right])


def at_nodes(right: IntArray, part: FloatArray, weight: FloatArray, size: int) -> FloatArray:
    """Sum weights of scores by node: the transpose of `between`."""
    sums = np.bincount(right - 1, (1 - part) * weight, size) + np.bincount(right, part * weight, size)
    return np.asarray(sums, float)


def make_prior(z: FloatArray) -> FloatArray:
    """Functions of the nodes whose coefficients are independent a priori, (J, 2 + J): 1, z and the columns of L."""
    distance = np.sqrt(3.0) / LENGTH * np.abs(z[:, None] - z)
    smooth = (1 + distance) * np.exp(-distance) + JITTER * np.eye(len(z))
    return np.column_stack([np.ones(len(z)), z, np.linalg.cholesky(smooth)])


def prior_precision(slope: float, bend: float, size: int) -> FloatArray:
    """Prior precision of the coefficients."""
    return np.concatenate([[1 / LEVEL_SD**2, 1 / slope**2], np.full(size - 2, 1 / bend**2)])


@Kernel
def find_mode(y, right, part, basis, precision, level, phi, theta, f, factor):  # type: ignore[no-untyped-def]
    """Mode of the coefficients by Fisher scoring from `theta`, with f at the nodes and the Cholesky factor M = LL'.

    The gradient is ``Phi' F H'((y - p) w) - P theta`` and the information ``M = Phi' F H'W H F Phi + P`` with
    ``w = 1 / (phi p (1 - p))``, H the interpolation and F the slopes of the inverse logit. H'WH is tridiagonal. Fills
    `theta`, `f` and the lower triangle of `factor`. Loops over numbers compile in a tenth of the time of arrays.
    """
    size, width = basis.shape
    slope, moved, step = np.empty((size, width)), np.empty((size, width)), np.empty(width)
    diagonal, beside, residual = np.empty(size), np.empty(size), np.empty(size)
    last = False
    for turn in range(STEPS + 1):
        last = last or turn == STEPS
        for k in range(size):
            logit = level
            for i in range(width):
                logit += basis[k, i] * theta[i]
            f[k] = 1 / (1 + math.exp(-min(max(logit, -FIRST_LOGIT), FIRST_LOGIT)))
            for i in range(width):
                slope[k, i] = f[k] * (1 - f[k]) * basis[k, i]
            diagonal[k] = beside[k] = residual[k] = 0.0
        for j in range(len(y)):
            k, t = right[j], part[j]
            p = min(max((1 - t) * f[k - 1] + t * f[k], EDGE), 1 - EDGE)
            w = 1 / (phi * p * (1 - p))
            diagonal[k - 1] += (1 - t) ** 2 * w
            diagonal[k] += t * t * w
            beside[k] += t * (1 - t) * w
            residual[k - 1] += (1 - t) * (y[j] - p) * w
            residual[k] += t * (y[j] - p) * w
        for k in range(size):
            for i in range(width):
                moved[k, i] = diagonal[k] * slope[k, i]
                if k > 0:
                    moved[k, i] += beside[k] * slope[k - 1, i]
                if k < size - 1:
                    moved[k, i] += beside[k + 1] * slope[k + 1, i]
        for i in range(width):
            step[i] = -precision[i] * theta[i]
            for k in range(size):
                step[i] += slope[k, i] * residual[k]
            for c in range(i + 1):
                total = precision[i] if c == i else 0.0
                for k in range(size):
                    total += slope[k, i] * moved[k, c]
                for b in range(c):
                    total -= factor[i, b] * factor[c, b]
                factor[i, c] = math.sqrt(total) if c == i else total / factor[c, c]
        if last:
            return
        for i in range(width):  # step = M^-1 gradient, forwards and backwards
            for c in range(i):
                step[i] -= factor[i, c] * step[c]
            step[i] /= factor[i, i]
        for i in range(width - 1, -1, -1):
            for c in range(i + 1, width):
                step[i] -= factor[c, i] * step[c]
            step[i] /= factor[i, i]
        largest = 0.0
        for k in range(size):
            move = 0.0
            for i in range(width):
                move += basis[k, i] * step[i]
            largest = max(largest, abs(move))
        for i in range(width):
            theta[i] += step[i] * (LONGEST / largest if largest > LONGEST else 1.0)
        last = largest < SMALLEST


def dispersion(y: FloatArray, right: IntArray, part: FloatArray, basis: FloatArray, level: float) -> float:
    """Dispersion phi of graded labels: Pearson's statistic over its degrees of freedom, with a prior worth one label.

    ``phi = (sum (y - p)^2 / (p (1 - p)) + .1) / (max(m - tr, 1) + 1)``, tr the effective number of coefficients; three
    refits from half the variance of the labels over that of binary ones.
    """
    m, (size, width) = len(y), basis.shape
    center = special.expit(level)
    phi = float(0.5 * ((y - center) ** 2).mean() / (center * (1 - center)) + 1e-4)
    precision = prior_precision(*MIDDLE, width)
    theta, f, factor = np.zeros(width), np.empty(size), np.zeros((width, width))
    for _ in range(3):
        find_mode(y, right, part, basis, precision, level, phi, theta, f, factor)
        inverse = np.linalg.inv(factor)
        spent = width - float(precision @ (inverse**2).sum(axis=0))
        p = np.clip(between(right, part, f), 0.01, 0.99)
        phi = (float(((y - p) ** 2 / (p * (1 - p))).sum()) + PRIOR_PHI) / (max(m - spent, 1.0) + 1)
    return phi


class Modes(NamedTuple):
    """Laplace's approximation at each of the A grid points of the prior."""

    theta: FloatArray  # (A, J + 2)
    factor: FloatArray  # (A, J + 2, J + 2) Cholesky factor of the information
    f: FloatArray  # (A, J)
    weight: FloatArray  # (A,), summing to one


def grid_modes(
    y: FloatArray, right: IntArray, part: FloatArray, basis: FloatArray, level: float, phi: float
) -> Modes:
    """Modes over the grid, with ``log weight = ql - theta' P theta / 2 + log|P| / 2 - log|M| / 2``."""
    size, width = basis.shape
    n = len(GRID)
    theta, factor, f, log_weight = (
        np.zeros((n, width)),
        np.zeros((n, width, width)),
        np.empty((n, size)),
        np.empty(n),
    )
    for a, (slope, bend) in enumerate(GRID):
        theta[a] = theta[max(a - 1, 0)]  # where the last search ended
        precision = prior_precision(slope, bend, width)
        find_mode(y, right, part, basis, precision, level, phi, theta[a], f[a], factor[a])
        p = np.clip(between(right, part, f[a]), EDGE, 1 - EDGE)
        log_likelihood = float((y * np.log(p) + (1 - y) * np.log(1 - p)).sum()) / phi
        log_prior = 0.5 * float(np.log(precision).sum() - precision @ theta[a] ** 2)
        log_weight[a] = log_likelihood + log_prior - float(np.log(np.diag(factor[a])).sum())
    weight = np.exp(log_weight - log_weight.max())
    return Modes(theta, factor, f, weight / weight.sum())


def draw_curves(basis: FloatArray, level: float, modes: Modes) -> FloatArray:
    """Draws of f at the nodes, (N, J): the grid point by its weight, then the coefficients from their normal law."""
    normal, _, _, uniform = points()
    chosen = np.minimum(np.searchsorted(np.cumsum(modes.weight), uniform), len(GRID) - 1)
    logit = np.empty((len(normal), len(basis)))
    for a in np.flatnonzero(np.bincount(chosen, minlength=len(GRID))):
        mine = chosen == a
        half = np.linalg.solve(modes.factor[a], basis.T)  # so that basis M^-1 basis' = half' half
        logit[mine] = basis @ modes.theta[a] + normal[mine, : len(half)] @ half
    return np.asarray(special.expit(np.clip(level + logit, -LAST_LOGIT, LAST_LOGIT)))


def selection_weights(
    draw: FloatArray, right: IntArray, part: FloatArray, rank: FloatArray, phi: float
) -> FloatArray:
    """Weight of each draw for being looked at only where the judge passes: 1 / P(pass), and that at least .1.

    ``tau = rho sqrt((m - 2) / (1 - rho^2))`` with rho the correlation of ranks of scores and labels that the draw
    implies; the test passes with probability ``Phi(tau - t_{m-2, .95})``.
    """
    m, size = len(rank), draw.shape[1]
    count, along = at_nodes(right, part, np.ones(m) / m, size), at_nodes(right, part, rank / m, size)
    mean, square = draw @ count, draw**2 @ count
    between_labels, noise = np.maximum(square - mean**2, 0.0), phi * (mean - square)
    rho = np.clip(draw @ along / np.sqrt(between_labels + noise + 1e-12), -0.98, 0.98)
    excess = rho * np.sqrt((m - 2) / (1 - rho**2)) - special.stdtrit(max(m - 2, 1), 0.95)
    weight = 1 / np.maximum(special.ndtr(excess), MIN_PASSING)
    return np.asarray(weight / weight.sum())


def gains(right: IntArray, part: FloatArray, basis: FloatArray, modes: Modes, phi: float) -> FloatArray:
    """Derivative of f at the nodes by each label, (J, m), averaged over the grid.

    At one grid point it is ``F Phi M^-1 Phi' F h_j / (phi p_j (1 - p_j))``, F the slopes of the inverse logit.
    """
    out = np.zeros((len(basis), len(right)))
    for factor, f, weight in zip(*modes[1:], strict=True):
        half = np.linalg.solve(factor, ((f * (1 - f))[:, None] * basis).T)
        p = np.clip(between(right, part, f), EDGE, 1 - EDGE)
        out += weight / (phi * p * (1 - p)) * between(right, part, half.T @ half)
    return out


def make_curve(
    score: FloatArray, y: FloatArray, scores: tuple[float, float], judge: tuple[float, float]
) -> Curve:
    """Fit the curve to labels.

    Parameters
    ----------
    score, y : arrays, shape (m,)
        Judge scores in the direction in which they are better, and labels on [0, 1].
    scores : pair of float
        Mean and standard deviation of all scores of the labelled policies.
    judge : pair of float
        Ends of the judge's range.
    """
    low, high = min(judge[0], float(score.min())), max(judge[1], float(score.max()))
    node = place_nodes(score, low, high)
    z = (node - scores[0]) / (scores[1] if scores[1] > 0 else 1.0)
    right, part = locate(score, node)
    basis, m = make_prior(z), len(y)
    level = float(special.logit((y.sum() + 0.5) / (m + 1)))
    binary = bool(((y == 0) | (y == 1)).all())
    phi = 1.0 if binary else dispersion(y, right, part, basis, level)
    modes = grid_modes(y, right, part, basis, level, phi)
    draw = draw_curves(basis, level, modes)
    rank = _midranks(score)
    selection = selection_weights(draw, right, part, (rank - rank.mean()) / rank.std(), phi)
    gain = gains(right, part, basis, modes, phi)
    f = between(right, part, draw.mean(axis=0))
    at = np.arange(m)
    lever = (1 - part) * gain[right - 1, at] + part * gain[right, at]
    square = ((y - f) / (1 - np.clip(lever, 1 / m, MAX_LEVERAGE))) ** 2
    df = (MODEL_DF[binary], max(m - 1 - float(lever.sum()), MIN_CAP))
    return Curve(node, z, right, part, draw, selection, gain, y - f, phi * f * (1 - f), square, df)


def _midranks(score: FloatArray) -> FloatArray:
    """Ranks, those of equal scores averaged."""
    _, code, count = np.unique(score, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(count) - (count - 1) / 2)[code])


def mass(curve: Curve, score: FloatArray, share: FloatArray) -> FloatArray:
    """Mass of scores at the nodes, (J,)."""
    return np.asarray(at_nodes(*locate(score, curve.node), share, len(curve.node)))


def project(curve: Curve, mass: FloatArray) -> Functional:
    """Mean of f over scores with this mass at the nodes, and half of the one-step that balances the labels to it."""
    m = len(curve.rest)
    z = between(curve.right, curve.part, curve.z)
    about = z - z.mean()
    spread = max(float(about @ about), 1e-12)
    balance = 0.5 * (1 / m + (float(mass @ curve.z) - z.mean()) * about / spread)
    rest = mass - at_nodes(curve.right, curve.part, balance, len(mass))
    fitted = rest @ curve.gain
    return Functional(
        curve.draw @ mass, curve.draw @ rest, balance + fitted, fitted, float(balance @ curve.rest)
    )


def own_functional(
    responses: Functional, labels: Functional, own: BoolArray, lam: float, value: float
) -> Functional:
    """The value of a policy with labels of its own, as far as it moves with the curve and its labels.

    Parameters
    ----------
    responses, labels : Functional
        Means of f over the policy's responses and over its labelled ones.
    own : bool array, shape (m,)
        Labels of the policy.
    lam : float
        Weight of the judge in the value ``mean y + lam (mean f - mean_L f)``.
    value : float
        The value that its own labels give.
    """
    draw = (1 - lam) * labels.draw + lam * responses.draw
    coefficient = own / own.sum() + lam * (responses.coefficient - labels.coefficient)
    nothing = np.zeros(len(own))
    return Functional(draw, np.zeros(len(draw)), coefficient, nothing, value - float(draw.mean()))


def label_errors(
    coefficient: FloatArray,
    fitted: FloatArray,
    rest_draw: FloatArray,
    variance: FloatArray,
    square: FloatArray,
    df: tuple[float, float],
) -> tuple[float, float]:
    """Variance V + B that the labels leave, and its degrees of freedom; equation 8."""
    nu0, cap = df
    squared = coefficient**2
    model, seen = float(squared @ variance), float(squared @ square)
    nu = max(effective(coefficient) - 1, 0.0)
    labels = max((nu * seen + nu0 * model) / (nu + nu0), model / 2)
    bias = BIAS * max(float(rest_draw.var()) - float(fitted**2 @ variance), 0.0)
    share = labels / max(labels + bias, 1e-300)
    return labels + bias, min(min(nu + nu0, cap) / max(share**2, 1e-3), MAX_DF)


def contrast(parts: Borrowed, first: int, second: int | None = None) -> Contrast:
    """Center and errors of a value, or of a difference of two."""
    draw, rest_draw, coefficient, fitted, offset, response = (
        x[first] if second is None else x[first] - x[second] for x in parts[:6]
    )
    labels, df = label_errors(coefficient, fitted, rest_draw, parts.variance, parts.square, parts.df)
    of_draws = carried = max(float(draw.var()), SMALLEST_VARIANCE)
    # noise of own labels is not in the draws: where there is some, they are not stretched to hold it
    if second is None or not parts.own[[first, second]].any() or labels < of_draws:
        carried = labels
    center = float(parts.selection @ draw)
    return Contrast(
        center + float(offset),
        np.sqrt(carried / of_draws) * (draw - center),
        labels - carried,
        float(response @ response),
        df,
    )


def effective(coefficient: FloatArray) -> float:
    """Return the effective number of labels, ``(sum c^2)^2 / sum c^4``; 0 where no label has a coefficient."""
    squared = coefficient**2
    fourth = float(squared @ squared)
    return float(squared.sum()) ** 2 / fourth if fourth > 0 else 0.0


def limits(parts: Borrowed, found: Contrast, prob: float) -> FloatArray:
    """Lower and upper limit of a contrast at level `prob`, shape (2,)."""
    return np.array([_limit(parts, found, prob, side) for side in (-1.0, 1.0)])


def value_limits(
    parts: Borrowed, policy: int, prob: float, scale: tuple[float, float] = (-np.inf, np.inf)
) -> FloatArray:
    """Limits of a policy's value at level `prob`, cut to the scale, shape (2,)."""
    return np.clip(limits(parts, contrast(parts, policy), prob), *scale)


def difference_limits(parts: Borrowed, first: int, second: int, prob: float) -> FloatArray:
    """Limits of the difference of two values at level `prob`, shape (2,)."""
    found = contrast(parts, first, second)
    if found.center < 0:  # the points are not symmetric: both orders of a pair are looked at from one side
        return -limits(parts, contrast(parts, second, first), prob)[::-1]
    return limits(parts, found, prob)


def _limit(parts: Borrowed, found: Contrast, prob: float, side: float) -> float:
    """One limit: the weighted quantile of stretched draws, beyond 1% extended by the normal quantile."""
    _, of_responses, of_excess, _ = points()
    z = float(special.ndtri(0.5 + prob / 2))
    stretch = float(special.stdtrit(found.df, 0.5 + prob / 2)) / z
    x = (
        stretch * (found.deviation + math.sqrt(found.excess) * of_excess)
        + math.sqrt(found.response) * of_responses
    )
    tail = (1 - prob) / 2
    at = weighted_quantile(side * x, parts.selection, 1 - max(tail, TAIL))
    return found.center + side * at * (1.0 if tail >= TAIL else z / float(-special.ndtri(TAIL)))


def weighted_quantile(values: FloatArray, weight: FloatArray, level: float) -> float:
    """Quantile of weighted values, each of which stands at the middle of its weight."""
    order = np.argsort(values)
    ordered = weight[order]
    middle = np.cumsum(ordered) - 0.5 * ordered
    return float(np.interp(level, middle, values[order]))


def difference_p_value(parts: Borrowed, first: int, second: int) -> float:
    """Smallest alpha whose limits of the difference leave out 0, to a relative error of 1e-4.

    Found by false position on the normal quantile of ``1 - alpha / 2``, in which limits are nearly linear; at least
    1e-12, at which a quantile is still told from rounding.
    """
    found = contrast(parts, first, second)
    if found.center < 0:
        found = contrast(parts, second, first)

    def gap(z: float) -> float:
        """Distance of the lower limit above 0."""
        return _limit(parts, found, 1 - 2 * float(special.ndtr(-z)), -1.0)

    low, high = 1e-6, float(-special.ndtri(SMALLEST_P / 2))
    at_low, at_high = gap(low), gap(high)
    if at_low <= 0:
        return 1.0
    if at_high >= 0:
        return SMALLEST_P
    for _ in range(60):
        z = (low * at_high - high * at_low) / (at_high - at_low)
        value = gap(z)
        if value > 0:
            low, at_low, at_high = z, value, at_high / 2
        else:
            high, at_high, at_low = z, value, at_low / 2
        if high - low < 1e-5 or value == 0:
            break
    return float(2 * special.ndtr(-(low + high) / 2))
