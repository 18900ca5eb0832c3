"""Slow, obvious second implementations of the Bayesian arm: loops, quadrature, importance sampling."""

import numpy as np
from scipy import special, stats

from cje_core.bayes.splines import isplines

# Where noise is summed over: steps of .09 in its logarithm, whose posterior sd is 1 / sqrt(2 m) for m labels. With up
# to 60 of these the sum is off by exp(-2 pi^2), as the trapezoidal rule is for a normal density at steps of its sd.
SIGMA = np.exp(np.linspace(np.log(0.01), np.log(2), 60))

# --- calibration: basis, judge levels, posterior ----------------------------------------------------------------------


def mspline(x, j, order, knots):
    """M-spline j by Ramsay's recursion; x inside (0, 1)."""
    span = knots[j + order] - knots[j]
    if span == 0:
        return np.zeros_like(x)
    if order == 1:
        return np.where((x >= knots[j]) & (x < knots[j + 1]), 1 / span, 0.0)
    left = (x - knots[j]) * mspline(x, j, order - 1, knots)
    right = (knots[j + order] - x) * mspline(x, j + 1, order - 1, knots)
    return order * (left + right) / ((order - 1) * span)


def isplines_by_integration(x, n_splines, degree, cells=20000):
    """Integrals of the M-splines from 0 to each x, by the midpoint rule."""
    knots = np.concatenate(
        [np.zeros(degree - 1), np.linspace(0, 1, n_splines - degree + 2), np.ones(degree - 1)]
    )
    middle = (np.arange(cells) + 0.5) / cells
    density = np.stack([mspline(middle, j, degree, knots) for j in range(n_splines)], axis=1)
    total = np.vstack([np.zeros(n_splines), np.cumsum(density, axis=0) / cells])
    return np.stack(
        [np.interp(x, np.linspace(0, 1, cells + 1), total[:, j]) for j in range(n_splines)], axis=1
    )


def shape_mixture(n_splines, concentration=1.0):
    """(mass, Dirichlet parameters) of every component, one after the other."""
    out = [(0.1, np.full(n_splines, alpha)) for alpha in (0.1, 0.2, 0.4, 0.8, 1.6)]
    for total in (2.0, 8.0):
        for c in (0.0, 0.25, 0.5, 0.75, 1.0):
            phi = np.array(
                [np.exp(-(((j + 0.5) / n_splines - c) ** 2) / (2 * 0.15**2)) for j in range(n_splines)]
            )
            out.append((0.05, total * (0.8 * phi / phi.sum() + 0.2 / n_splines)))
    return [(mass, concentration * a) for mass, a in out]


def prior_by_loop(n, n_splines, rng, *, concentration=1.0, flat=0.5):
    """Ends and shapes, draw by draw: ends by rejection from the uniform square, shapes by their component."""
    components = shape_mixture(n_splines, concentration)
    top = flat + (1 - flat) * n_splines * (n_splines + 1)
    ends = np.empty((0, 2))
    while len(ends) < n:
        square = rng.random((4 * n, 2))
        rise = np.maximum(square[:, 1] - square[:, 0], 0)
        density = flat + (1 - flat) * n_splines * (n_splines + 1) * rise ** (n_splines - 1)
        ends = np.concatenate([ends, square[rng.random(4 * n) * top < density]])
    counts = rng.multinomial(n, [mass for mass, _ in components])
    u = np.concatenate([rng.dirichlet(a, size=k) for (_, a), k in zip(components, counts, strict=True) if k])
    return ends[:n], rng.permutation(u)


def log_prior(ends, shape, sigma, *, concentration, flat, scale):
    """Log density in log odds of the ends and log ratios of the shape, draw by draw, up to a constant."""
    size = shape.shape[1]
    rise = np.maximum(ends[:, 1] - ends[:, 0], 0)
    out = np.log(flat + (1 - flat) * size * (size + 1) * rise ** (size - 1))
    out += np.log(ends * (1 - ends)).sum(axis=1) + np.log(shape).sum(axis=1)
    mixture = sum(mass * stats.dirichlet.pdf(shape.T, a) for mass, a in shape_mixture(size, concentration))
    out += np.log(mixture)
    return out if sigma is None else out - sigma**2 / (2 * scale**2)


def calibrator(level, ends, shape):
    """Curves from their parameters, by the definition; I-splines from `isplines`, tested on their own."""
    g = shape @ isplines(level, shape.shape[1]).T
    return ends[:, :1] * (1 - g) + ends[:, 1:] * g


def probability_of_flat(levels, *, atom, n_splines, scale=0.3, n=40_000, seed=0):
    """Bayes' theorem with both evidences by prior draws (sigma over a grid): (probability, error of log odds)."""
    rng = np.random.default_rng(seed)
    ends, shape = prior_by_loop(n, n_splines, rng)
    c = rng.random(n)
    evidence = []
    for f in (calibrator(levels.level, ends, shape), np.repeat(c[:, None], len(levels.level), axis=1)):
        if levels.binary:
            log = special.xlogy(levels.total, f).sum(axis=1)
            log += special.xlog1py(levels.n - levels.total, -f).sum(axis=1)
        else:
            sigma = SIGMA
            rest = levels.squares - 2 * f @ levels.total + f**2 @ levels.n
            log = special.logsumexp(
                (1 - levels.n.sum()) * np.log(sigma)
                - rest[:, None] / (2 * sigma**2)
                - sigma**2 / (2 * scale**2),
                axis=1,
            )
        evidence.append(log)
    top = max(one.max() for one in evidence)
    curved, flat = (np.exp(one - top) for one in evidence)
    odds = atom / (1 - atom) * flat.mean() / curved.mean()
    error = np.hypot(*(one.std() / one.mean() / np.sqrt(n) for one in (curved, flat)))
    return odds / (1 + odds), error


def over_sigma(rest, log_density):
    """Log of the sum over `SIGMA` of ``exp(log_density - rest / (2 sigma^2))``, draw by draw and up to a constant.

    And the means of sigma and of its square. In place, for draws times grid are tens of millions.
    """
    joint = np.multiply.outer(rest, -1 / (2 * SIGMA**2))
    joint += log_density - (log_density - rest.min() / (2 * SIGMA**2)).max()
    np.exp(joint, out=joint)
    total = np.maximum(joint.sum(axis=1), 1e-300)
    return np.log(total), joint @ SIGMA / total, joint @ SIGMA**2 / total


def posterior_by_importance(levels, prior, *, n=200_000, seed=0, power=1.0):
    """Posterior means, sds and their simulation errors of (f at each level[, sigma]).

    Parameters are drawn from the prior and weighted by the likelihood; sigma is summed over a fine grid. The prior may
    be raised to a `power`, in the coordinates of `log_prior`.
    """
    rng = np.random.default_rng(seed)
    scale = prior.scale
    ends, shape = prior_by_loop(n, prior.n_splines, rng, concentration=prior.concentration, flat=prior.flat)
    f = calibrator(levels.level, ends, shape)
    if levels.binary:
        log_weight = special.xlogy(levels.total, f).sum(axis=1)
        log_weight += special.xlog1py(levels.n - levels.total, -f).sum(axis=1)
        values = f
    else:
        rest = levels.squares - 2 * f @ levels.total + f**2 @ levels.n
        # the grid is even in log sigma
        log_density = (1 - levels.n.sum()) * np.log(SIGMA) - SIGMA**2 / (2 * scale**2)
        log_weight, first, second = over_sigma(rest, log_density)
        values = np.column_stack([f, first])
    if power != 1.0:
        kept = (shape > 1e-300).all(axis=1)
        log_weight[~kept] = -np.inf
        log_weight[kept] += (power - 1.0) * log_prior(
            ends[kept], shape[kept], None, concentration=prior.concentration, flat=prior.flat, scale=scale
        )
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    mean = weight @ values
    square = values**2
    if not levels.binary:
        square[:, -1] = second
    sd = np.sqrt(weight @ square - mean**2)
    error = np.sqrt(weight**2 @ (values - mean) ** 2)
    # the delta method for the sd: d sd = d(E x^2 - mean^2) / (2 sd)
    sd_error = np.sqrt(weight**2 @ (square - weight @ square - 2 * mean * (values - mean)) ** 2) / (2 * sd)
    return mean, sd, error, sd_error


def two_stage_by_importance(level, columns, label, binary, *, prior, effect_scale, n=400_000, seed=0):
    """Posterior means of the mean of Y at each label, of beta, and of sigma where labels are continuous.

    With their simulation errors; prior draws weighted.

    ``logit E[Y] = logit f(level) + columns @ beta``; sigma is summed over a fine grid.
    """
    rng = np.random.default_rng(seed)
    ends, shape = prior_by_loop(n, prior.n_splines, rng)
    f = calibrator(level, ends, shape)
    beta = effect_scale * rng.standard_normal((n, columns.shape[1]))
    mean = special.expit(special.logit(np.clip(f, 1e-15, 1 - 1e-15)) + beta @ columns.T)
    if binary:
        log_weight = np.where(label > 0.5, np.log(mean), np.log1p(-mean)).sum(axis=1)
    else:
        rest = ((label - mean) ** 2).sum(axis=1)
        log_density = (1 - len(label)) * np.log(SIGMA) - SIGMA**2 / (2 * prior.scale**2)
        log_weight, first, _ = over_sigma(rest, log_density)
    weight = special.softmax(log_weight)
    values = np.column_stack([mean, beta])
    if not binary:
        values = np.column_stack([values, first])
    center = weight @ values
    return center, np.sqrt(weight**2 @ (values - center) ** 2)


def effective_draws(chain):
    """Effective sample size of one chain: Geyer's initial positive sequence of paired autocorrelations."""
    x = np.asarray(chain, float) - np.mean(chain)
    n = len(x)
    spectrum = np.fft.rfft(x, 2 * n)
    rho = np.fft.irfft(spectrum * spectrum.conj())[:n]
    rho = rho / rho[0]
    total = -1.0
    for k in range(n // 2 - 1):
        pair = rho[2 * k] + rho[2 * k + 1]
        if pair < 0:
            break
        total += 2 * pair
    return n / max(total, 1e-9)


def rhat(chains):
    """Split R-hat of chains (chain, draw)."""
    half = chains.shape[1] // 2
    parts = np.concatenate([chains[:, :half], chains[:, half : 2 * half]])
    within = parts.var(axis=1, ddof=1).mean()
    between = half * parts.mean(axis=1).var(ddof=1)
    return np.sqrt((half - 1) / half + between / within / half)


# --- values -----------------------------------------------------------------------------------------------------------


def row_means(rows, graded, draws):
    """Mean of Y at every row under every draw, (draws, rows), on the logit scale as the model says."""
    out = np.empty((len(draws.f), len(rows.score)))
    for i in range(len(rows.score)):
        curve = draws.f if draws.own is None else draws.own[:, rows.policy[i]]
        out[:, i] = curve[:, graded.at[i]]
        if draws.beta is not None:
            out[:, i] = special.expit(special.logit(out[:, i]) + draws.beta @ graded.columns[i])
    return out


def omega(rows, position, p):
    """Responses of policy p over labels, label by label: bins of the labelled positions, cut at their quantiles."""
    taught = [i for i in range(len(position)) if rows.teaches[i]]
    ordered = sorted(position[i] for i in taught)
    m = len(ordered)
    n_bins = max(3, min(10, len({rows.cluster[rows.prompt[i]] for i in taught}) // 12))
    edges = sorted({ordered[int(np.ceil(k * m / n_bins)) - 1] for k in range(1, n_bins)} - {ordered[0]})

    def cell(x):
        return sum(x >= edge for edge in edges)

    out = []
    for i in taught:
        mine = sum(
            rows.weight[j]
            for j in range(len(position))
            if rows.policy[j] == p and rows.evaluated[j] and cell(position[j]) == cell(position[i])
        )
        labels = sum(
            rows.weight[j] / rows.label_prob[j] for j in taught if cell(position[j]) == cell(position[i])
        )
        out.append(mine / labels)
    return dict(zip(taught, out, strict=True))


def value_draws(rows, graded, means, corrected, factor, count, rng, *, borrowed=None):
    """One-step or plug-in values, draw by draw and row by row; `factor` is c_m and `count` m of each policy.

    `borrowed`: for each policy without labels of its own, omega of every label that teaches; None for the plug-in.
    """
    rng = np.random.default_rng(rng)
    out = []
    for f_d in means:
        exponential = [rng.standard_exponential() for _ in rows.cluster_names]
        draw = []
        for p in range(len(rows.policies)):
            top = bottom = 0.0
            label, fitted, weight, raised = [], [], [], []
            for i in range(len(rows.score)):
                w = exponential[rows.cluster[rows.prompt[i]]]
                if borrowed is not None and not corrected[p] and i in borrowed[p]:
                    label.append(graded.label[i])
                    fitted.append(f_d[i])
                    weight.append(borrowed[p][i] * rows.weight[i] / rows.label_prob[i])
                    raised.append(w * weight[-1])
                if rows.policy[i] != p or not rows.evaluated[i]:
                    continue
                top += w * rows.weight[i] * f_d[i]
                bottom += w * rows.weight[i]
                if rows.labelled[i] and corrected[p]:
                    label.append(graded.label[i])
                    fitted.append(f_d[i])
                    raised.append(w * rows.weight[i] / rows.label_prob[i])
                    weight.append(rows.weight[i] / rows.label_prob[i])
            value = top / bottom if bottom else np.nan
            if label:
                pseudo = sum(weight) / count[p]
                moves = []
                for v in (weight, raised):
                    mean = np.average(fitted, weights=v)
                    with_one = np.average([*label, mean], weights=[*v, pseudo])
                    moves.append(special.logit(with_one) - special.logit(mean))
                odds = special.logit(value) + moves[0] + factor[p] * (moves[1] - moves[0])
                value = special.expit(odds)
            draw.append(value)
        out.append(draw)
    return graded.levels.low + graded.levels.width * np.array(out).T


def isotonic_by_minmax(y, w):
    """Weighted isotonic regression by its min-max formula."""
    n = len(y)
    return [
        max(min(np.average(y[a : b + 1], weights=w[a : b + 1]) for b in range(k, n)) for a in range(k + 1))
        for k in range(n)
    ]


def projection_draws(rows, graded, n_draws, rng):
    """Projection posterior by loops: isotonic regression of weighted labels, linear between judge levels."""
    rng = np.random.default_rng(rng)
    level, out = graded.levels.level, []
    for _ in range(n_draws):
        exponential = np.array([rng.standard_exponential() for _ in rows.cluster_names])
        w = exponential[rows.cluster[rows.prompt]]
        taught = np.flatnonzero(rows.teaches)
        seen = np.unique(graded.at[taught])
        total = np.array([sum(w[i] / rows.label_prob[i] for i in taught if graded.at[i] == k) for k in seen])
        summed = [
            sum(w[i] / rows.label_prob[i] * graded.label[i] for i in taught if graded.at[i] == k)
            for k in seen
        ]
        f = np.interp(level, level[seen], isotonic_by_minmax(np.array(summed) / total, total))
        draw = []
        for p in range(len(rows.policies)):
            mine = (rows.policy == p) & rows.evaluated
            draw.append(np.average(f[graded.at[mine]], weights=w[mine] * rows.weight[mine]))
        out.append(draw)
    return graded.levels.low + graded.levels.width * np.array(out).T


# --- transport --------------------------------------------------------------------------------------------------------


def normal_density(x, sd):
    """Of mean 0; SciPy checks its arguments for longer than it computes."""
    return np.exp(-0.5 * (x / sd) ** 2) / (np.sqrt(2 * np.pi) * sd)


def student_density(x, scale):
    """Student's t with three degrees of freedom."""
    return 2 / (np.pi * np.sqrt(3) * scale * (1 + (x / scale) ** 2 / 3) ** 2)


def shift_posterior(mean, square, n, *, prior, scale, slab):
    """Means and sds of the shifts of P policies by quadrature, given mean residual, sum of squares and count of each.

    sigma is integrated out (prior 1 / sigma^2), delta and tau are summed over grids, lambda too for the horseshoe.
    """
    tau = np.exp(np.linspace(-13.9, 5, 380))
    log_tau_prior = np.log(tau) - np.log1p((tau / scale) ** 2)  # even in log tau
    likelihood, grids = [], []
    for m, s, k in zip(mean, square, n, strict=True):
        half = 12 * np.sqrt(s / k / (k - 1)) + abs(m)
        delta = np.unique(
            np.concatenate([np.linspace(-half, half, 6001), np.sinh(np.linspace(-9, 9, 1201)) * 1e-5])
        )
        edge = np.gradient(delta)  # trapezoidal weights
        log_lik = -k / 2 * np.log(s + k * (m - delta) ** 2)
        if prior == "normal":
            density = normal_density(delta, tau[:, None])
        elif prior == "student":
            density = student_density(delta, tau[:, None])
        else:  # mix normal densities over lambda, tabulated over their standard deviation
            table = np.exp(np.linspace(-30, np.log(slab), 1500))
            normal = normal_density(delta, table[:, None])
            u = np.linspace(-13.9, 13.9, 200)
            mass = np.exp(u - np.log1p(np.exp(2 * u)))
            local = (tau[:, None] * np.exp(u)) ** 2
            sd = np.sqrt(slab**2 * local / (slab**2 + local))
            nearest = np.clip(np.searchsorted(table, sd), 0, len(table) - 1)
            mixing = np.zeros((len(tau), len(table)))
            for k in range(len(u)):
                np.add.at(mixing, (np.arange(len(tau)), nearest[:, k]), mass[k] / mass.sum())
            density = mixing @ normal
        joint = density * np.exp(log_lik - log_lik.max()) * edge
        likelihood.append(joint)
        grids.append(delta)
    log_evidence = log_tau_prior + sum(np.log(joint.sum(axis=1)) for joint in likelihood)
    share = np.exp(log_evidence - log_evidence.max())
    share /= share.sum()
    first, second = [], []
    for joint, delta in zip(likelihood, grids, strict=True):
        inside = joint / joint.sum(axis=1, keepdims=True)
        first.append(share @ (inside @ delta))
        second.append(share @ (inside @ delta**2))
    return np.array(first), np.sqrt(np.array(second) - np.array(first) ** 2)


def rogan_gladen_moments(counts, accuracy_prior, cells=140):
    """Means and sds of (v, Se, Sp) by a midpoint rule over the cube."""
    grid = (np.arange(cells) + 0.5) / cells
    v, se, sp = np.meshgrid(grid, grid, grid, indexing="ij")
    p = v * se + (1 - v) * (1 - sp)
    a, b = accuracy_prior
    log_density = (
        counts.passed * np.log(p)
        + (counts.n - counts.passed) * np.log1p(-p)
        + (a - 1 + counts.good_passed) * np.log(se)
        + (b - 1 + counts.good - counts.good_passed) * np.log1p(-se)
        + (a - 1 + counts.bad_failed) * np.log(sp)
        + (b - 1 + counts.bad - counts.bad_failed) * np.log1p(-sp)
        + counts.own_good * np.log(v)
        + (counts.own - counts.own_good) * np.log1p(-v)
    )
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    out = []
    for x in (v, se, sp):
        mean = float((weight * x).sum())
        out.append((mean, float(np.sqrt((weight * (x - mean) ** 2).sum()))))
    return out
