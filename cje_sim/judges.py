"""Judge and oracle relations with a known conditional mean.

Every relation here is *score first*: the judge score S (and a covariate X where there is one) is drawn from
the policy's own law, and the oracle label Y is then drawn around a stated ``E[Y | S, X]``. So the target of
reward calibration in "Causal Judge Evaluation" (its calibrator f estimates E[Y | S] or E[Y | S, X]) is known
exactly, and a policy's value is an integral of a known function against a known law: quadrature, never
simulation.

Scores live on [0, 1] and follow the Kumaraswamy law, ``P(S <= s) = 1 - (1 - s^a)^b``: it has the shapes of
the Beta law and a quantile function in closed form, so that dependence between the scores of one prompt can
be put in through a Gaussian copula without changing any margin.
"""

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from scipy import integrate, special

FloatArray = npt.NDArray[np.float64]

# Shapes of E[Y | S] from [0, 1] onto [0, 1], with the points where they are not smooth.
LINKS: dict[str, tuple[Callable[[FloatArray], FloatArray], tuple[float, ...]]] = {
    "linear": (lambda s: s, ()),
    "sigmoid": (
        lambda s: (special.expit(8 * s - 4) - special.expit(-4)) / (special.expit(4) - special.expit(-4)),
        (),
    ),
    "convex": (lambda s: s**3, ()),
    "plateau": (lambda s: np.minimum(s / 0.6, 1.0), (0.6,)),
    "dip": (lambda s: np.where(s < 0.5, 1.2 * s, np.where(s < 0.7, 1.1 - s, 2 * s - 1)), (0.5, 0.7)),
    "inverted": (lambda s: 1 - s, ()),
}


def oracle_mean(
    score: npt.ArrayLike, link: str = "sigmoid", low: float = 0.1, high: float = 0.95
) -> FloatArray:
    """``E[Y | S]``: one of the shapes of `LINKS`, stretched from `low` to `high`.

    Parameters
    ----------
    score : array of any shape
        Judge scores in [0, 1].
    link : str
        ``linear``, ``sigmoid``, ``convex``, ``plateau`` (flat above 0.6), ``dip`` (falls between 0.5 and 0.7:
        no monotone calibrator can follow it) or ``inverted`` (a better score means a worse answer).
    low, high : float
        Oracle means at the two ends of the shape, ``0 <= low <= high <= 1``.

    Examples
    --------
    >>> oracle_mean([0.0, 0.3, 0.6, 1.0], "plateau", low=0.0, high=1.0).tolist()
    [0.0, 0.5, 1.0, 1.0]
    """
    if link not in LINKS:
        raise ValueError(f"no link named {link!r}; there are: {', '.join(LINKS)}")
    if not 0 <= low <= high <= 1:
        raise ValueError(f"low={low}, high={high}: need 0 <= low <= high <= 1")
    return np.asarray(low + (high - low) * LINKS[link][0](np.asarray(score, dtype=float)))


def score_quantile(u: npt.ArrayLike, a: npt.ArrayLike, b: npt.ArrayLike) -> FloatArray:
    """Quantile function of the Kumaraswamy(a, b) law, ``(1 - (1 - u)^(1/b))^(1/a)``; arguments broadcast."""
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if not ((a > 0) & (b > 0)).all():
        raise ValueError(f"score law a={a.tolist()}, b={b.tolist()}: both must be > 0")
    return np.asarray((1 - (1 - np.asarray(u, dtype=float)) ** (1 / b)) ** (1 / a))


def expected_over_scores(
    f: Callable[[FloatArray], FloatArray],
    a: float,
    b: float,
    kinks: Sequence[float] = (),
    *,
    between: tuple[float, float] = (0.0, 1.0),
) -> float:
    """``E[f(S); low < S < high]`` for S ~ Kumaraswamy(a, b), by adaptive quadrature over quantiles.

    Parameters
    ----------
    f : callable
        Bounded function of the score.
    a, b : float
        Parameters of the score law, both > 0.
    kinks : sequence of float
        Scores at which `f` or its slope jumps.
    between : pair of float
        Low and high; by default all scores.

    Returns
    -------
    float
        The integral; an estimated error above 1e-9 raises.

    Examples
    --------
    >>> round(expected_over_scores(lambda s: s, 2.0, 1.0), 12)  # density 2s: mean 2/3
    0.666666666667
    """
    low, high = between
    cuts = [float(1 - (1 - k**a) ** b) for k in sorted({low, *kinks, high})]
    total = error = 0.0
    for start, stop in itertools.pairwise(cuts):
        # In t, with u = start + (stop - start) t^2 (3 - 2t), the quantile's infinite slopes at 0 and 1 are
        # tamed.
        def integrand(t: float, start: float = start, stop: float = stop) -> float:
            u = start + (stop - start) * t * t * (3 - 2 * t)
            return float(f(score_quantile(u, a, b))) * (stop - start) * 6 * t * (1 - t)

        value, bound = integrate.quad(integrand, 0.0, 1.0, limit=200, epsabs=1e-12, epsrel=1e-12)
        total, error = total + value, error + bound
    if error > 1e-9:
        raise ArithmeticError(
            f"quadrature over the law ({a}, {b}) left an error of {error:.1e}: name the kinks"
        )
    return total


def prompt_uniforms(
    shape: tuple[int, ...],
    rng: np.random.Generator,
    corr: float = 0.0,
    *,
    cluster: npt.NDArray[np.intp] | None = None,
    cluster_corr: float = 0.0,
) -> FloatArray:
    """Uniforms of shape (policies, prompts, ...), tied within a prompt and a cluster by a Gaussian copula.

    Each entry is uniform on (0, 1). Behind two entries stand normal variables with correlation
    ``cluster_corr + corr`` when they share the prompt (axis 1; whatever their policy or draw), `cluster_corr`
    when they share only the cluster, and 0 otherwise.

    Parameters
    ----------
    shape : tuple of int
        ``(policies, prompts)`` or ``(policies, prompts, draws)``.
    rng : Generator
    corr, cluster_corr : float
        Intraclass correlations on the normal scale, each >= 0, with sum <= 1.
    cluster : int array, shape (prompts,), optional
        Cluster code of each prompt, 0, 1, ...
    """
    if not (corr >= 0 and cluster_corr >= 0 and corr + cluster_corr <= 1):
        raise ValueError(f"corr={corr}, cluster_corr={cluster_corr}: need both >= 0 and their sum <= 1")
    if corr == 0 and cluster_corr == 0:
        return rng.random(shape)
    wide = (1, shape[1]) + (1,) * (len(shape) - 2)
    z = rng.standard_normal(shape)
    z *= np.sqrt(1 - corr - cluster_corr)
    if corr > 0:
        z += np.sqrt(corr) * rng.standard_normal(wide)
    if cluster_corr > 0:
        if cluster is None:
            raise ValueError("cluster_corr > 0 needs the cluster code of each prompt")
        z += np.sqrt(cluster_corr) * rng.standard_normal(int(cluster.max()) + 1)[cluster].reshape(wide)
    return np.asarray(special.ndtr(z, out=z))


def draw_oracle(
    mean: npt.ArrayLike, u: npt.ArrayLike, *, spread: npt.ArrayLike = 0.8, atoms: float = 0.0
) -> FloatArray:
    """Oracle labels in [0, 1] with the given conditional means, increasing in the uniforms `u`.

    With probability `atoms` the label is 0 or 1 (Bernoulli of the mean); otherwise it is uniform on
    ``mean +- spread * min(mean, 1 - mean)``. Both parts have the given mean, so the mixture has too.

    Parameters
    ----------
    mean : array
        ``E[Y | S, X]``, in [0, 1].
    u : array, broadcast with `mean`
        Uniforms on (0, 1).
    spread : array or float in [0, 1]
        Half width of the continuous part, relative to the room there is; may vary with the score
        (heteroscedastic labels).
    atoms : float in [0, 1]
        Share of labels at 0 and 1; 1 gives a binary oracle.

    Examples
    --------
    >>> draw_oracle(0.25, [0.1, 0.5, 0.9], spread=1.0).round(3).tolist()
    [0.05, 0.25, 0.45]
    >>> draw_oracle(0.25, [0.1, 0.7, 0.9], atoms=1.0).tolist()
    [0.0, 0.0, 1.0]
    """
    m, v = np.asarray(mean, dtype=float), np.asarray(u, dtype=float)
    half = np.asarray(spread, dtype=float) * np.minimum(m, 1 - m)
    if not 0 <= atoms <= 1:
        raise ValueError(f"atoms={atoms}: a share lies in [0, 1]")
    if atoms == 0:
        return np.asarray(m + half * (2 * v - 1))
    zero, one = (1 - m) * atoms, 1 - m * atoms
    inner = (v - zero) / (1 - atoms) if atoms < 1 else np.zeros(np.broadcast_shapes(m.shape, v.shape))
    return np.asarray(np.where(v < zero, 0.0, np.where(v >= one, 1.0, m + half * (2 * inner - 1))))


def inflate(quality: npt.ArrayLike, amount: npt.ArrayLike) -> FloatArray:
    """Score of a judge that adds `amount` on the logit scale: ``expit(logit(quality) + amount)``.

    Length or style bias, self-preference and drift are all this with different amounts. The map is one to
    one, so when Y depends on quality only, ``E[Y | S, X] = E[Y | quality = inflate(S, -amount(X))]`` is
    known: it is monotone in the additive index ``logit(S) - amount(X)``.

    Examples
    --------
    >>> inflate([0.2, 0.5, 0.8], 0.5).round(3).tolist()
    [0.292, 0.622, 0.868]
    """
    return np.asarray(special.expit(special.logit(np.asarray(quality, dtype=float)) + np.asarray(amount)))


# Reporting scales of a judge: (lowest, highest, number of steps between them).
GRIDS = {
    "twentieths": (0.0, 1.0, 20),
    "percent": (0.0, 100.0, 100),
    "likert": (1.0, 5.0, 4),
    "binary": (0.0, 1.0, 1),
}


def report(score: npt.ArrayLike, grid: str) -> FloatArray:
    """Round scores in [0, 1] to the nearest level of a reporting scale of `GRIDS`, in that scale's units.

    Examples
    --------
    >>> report([0.0, 0.13, 0.9], "likert").tolist()
    [1.0, 2.0, 5.0]
    """
    if grid not in GRIDS:
        raise ValueError(f"no grid named {grid!r}; there are: {', '.join(GRIDS)}")
    low, high, steps = GRIDS[grid]
    return np.asarray(low + (high - low) * np.floor(np.asarray(score, dtype=float) * steps + 0.5) / steps)


def draw_levels(u: FloatArray, shares: npt.ArrayLike) -> npt.NDArray[np.intp]:
    """Level of a discrete judge for each uniform: row p of `u` gets levels with the probabilities
    ``shares[p]``.

    Levels rise with the uniforms, so that dependence between uniforms carries over.
    """
    table = np.atleast_2d(np.asarray(shares, dtype=float))
    if (table < 0).any() or np.abs(table.sum(axis=1) - 1).max() > 1e-9 or len(table) != len(u):
        raise ValueError(
            f"need one row of shares that sum to 1 for each of {len(u)} policies; got {table.tolist()}"
        )
    edges = np.cumsum(table, axis=1)[:, :-1]
    return np.stack([np.searchsorted(cut, row, side="right") for cut, row in zip(edges, u, strict=True)])


def draw_category(law: FloatArray, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    """One category for each row of probabilities, the last axis of `law`.

    Examples
    --------
    >>> draw_category(np.array([[1.0, 0.0], [0.0, 1.0]]), np.random.default_rng(0)).tolist()
    [0, 1]
    """
    edges = np.cumsum(law[..., :-1], axis=-1)
    return np.asarray((edges <= rng.random((*law.shape[:-1], 1))).sum(axis=-1))


def garble(score: npt.ArrayLike, bits: int) -> FloatArray:
    """Coarsened score: the lower edge of its cell among ``2^bits`` equal cells of [0, 1].

    ``garble(s, k)`` is a function of ``garble(s, k + 1)``, so the sigma-fields are nested and fewer bits mean
    a less informative judge (the setting of the paper's corollary on Blackwell ordering).
    """
    if not 0 <= bits <= 30:
        raise ValueError(f"bits={bits}: it must lie in 0..30")
    cells = 2**bits
    return np.asarray(np.minimum(np.floor(np.asarray(score, dtype=float) * cells), cells - 1) / cells)


def cell_means(
    f: Callable[[FloatArray], FloatArray],
    a: float,
    b: float,
    edges: Sequence[float],
    kinks: Sequence[float] = (),
) -> tuple[FloatArray, FloatArray]:
    """Probability of each cell of the score and ``E[f(S) | S in cell]``, for S ~ Kumaraswamy(a, b).

    This is ``E[Y | S']`` for a judge S' that reports only the cell: exact calibration targets for `report`
    and `garble`. Cells run between successive `edges`, from 0 to 1; an empty cell has mean NaN.
    """
    cdf = 1 - (1 - np.asarray(edges, dtype=float) ** a) ** b
    prob = np.diff(cdf)
    means = np.full(len(prob), np.nan)
    for i, (low, high) in enumerate(itertools.pairwise(edges)):
        if prob[i] > 0:
            inside = [k for k in kinks if low < k < high]
            means[i] = expected_over_scores(f, a, b, inside, between=(low, high)) / prob[i]
    return prob, means


def shifted_mean(
    mean: Callable[[FloatArray], FloatArray],
    kind: str,
    size: float,
    a: float,
    b: float,
    kinks: Sequence[float] = (),
) -> Callable[[FloatArray], FloatArray]:
    """``E[Y | S]`` of a policy for which the calibrator ``mean`` is wrong in a stated way, checked to stay in [0, 1].

    Parameters
    ----------
    mean : callable
        ``E[Y | S]`` under the base policy.
    kind : {"none", "mean", "shape", "compensating"}
        ``mean`` adds `size` everywhere: the transport residual ``E[Y - mean(S)]`` is `size`. ``shape``
        shrinks the curve towards its own average by the share `size`, and ``compensating`` adds `size` below
        the policy's median score and subtracts it above: both have residual exactly 0, so a mean audit cannot
        see them.
    size : float
    a, b, kinks
        The policy's score law, and where `mean` is not smooth.
    """
    center = expected_over_scores(mean, a, b, kinks) if kind == "shape" else 0.0
    median = float(score_quantile(0.5, a, b))
    shifts: dict[str, Callable[[FloatArray], FloatArray]] = {
        "none": mean,
        "mean": lambda s: mean(s) + size,
        "shape": lambda s: center + (1 - size) * (mean(s) - center),
        "compensating": lambda s: mean(s) + np.where(s < median, size, -size),
    }
    if kind not in shifts:
        raise ValueError(f"no shift named {kind!r}; there are: {', '.join(shifts)}")
    reach = shifts[kind](np.linspace(0, 1, 2001))
    if reach.min() < -1e-12 or reach.max() > 1 + 1e-12:
        raise ValueError(
            f"a {kind} shift of {size} moves E[Y | S] out of [0, 1], to "
            f"[{reach.min():.3g}, {reach.max():.3g}]; make it smaller"
        )
    return shifts[kind]
