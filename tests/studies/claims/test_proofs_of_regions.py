"""Each line of the proofs about regions and about resamples of the label slice, computed on random instances."""

import itertools

import numpy as np
import pytest
from proof_lines import PAGES, numbered, registry, run
from scipy.optimize import brentq, minimize, minimize_scalar
from scipy.stats import binom, norm

CHECKS, line = registry()
MINE = ("ess_form", "typical_region", "bootstrap_stopping")
CLOSE = {"rtol": 1e-9, "atol": 1e-12}


def law(rng, k, scale=1.0):
    raised = np.exp(scale * rng.normal(size=k))
    return raised / raised.sum()


def region(rng, k=6):
    target, logger = law(rng, k), law(rng, k)
    inside = (np.arange(k) < rng.integers(1, k)).astype(float)
    return target, logger, inside, rng.normal(size=k), rng.uniform(0.2, 2, k)


@line("ess_form", 1)
def effective_size_of_the_region(rng):
    target, logger, t, _, _ = region(rng)
    w, alpha, beta = target / logger, target @ t, logger @ t
    within = ((target * t / alpha) ** 2 / np.where(t > 0, logger / beta, 1.0)).sum()
    limit = (logger @ (w * t)) ** 2 / (logger @ (w**2 * t))
    np.testing.assert_allclose(limit, beta / within, **CLOSE)
    np.testing.assert_allclose(limit, alpha**2 / (logger @ (w**2 * t)), **CLOSE)


def standard_error(target, logger, mean, noise):
    """``n SE^2`` of IPS with exact weights, by enumeration."""
    w = target / logger
    return logger @ (w**2 * (noise**2 + mean**2)) - (target @ mean) ** 2


@line("ess_form", 2)
def total_variance(rng):
    target, logger, t, mean, noise = region(rng)
    w, least = target / logger, noise[t > 0].min()
    within = logger @ (w**2 * noise**2)
    assert standard_error(target, logger, mean, noise) >= within >= least**2 * (logger @ (w**2 * t))


@line("ess_form", 3)
def repaired_form(rng):
    target, logger, t, mean, noise = region(rng)
    w, alpha = target / logger, target @ t
    size = alpha**2 / (logger @ (w**2 * t))
    assert standard_error(target, logger, mean, noise) >= alpha**2 * noise[t > 0].min() ** 2 / size


@line("ess_form", 4)
def clone(rng):
    logger, t = law(rng, 6), (np.arange(6) < 3).astype(float)
    sigma, alpha = rng.uniform(0.5, 2), logger @ t
    error = standard_error(logger, logger, np.zeros(6), np.full(6, sigma))
    size = alpha**2 / (logger @ t)
    np.testing.assert_allclose([error, size], [sigma**2, alpha], **CLOSE)
    np.testing.assert_allclose(sigma / np.sqrt(size) / np.sqrt(error), 1 / np.sqrt(alpha), **CLOSE)


@line("ess_form", 5)
def attained(rng):
    logger, t = law(rng, 6), (np.arange(6) < 3).astype(float)
    error = standard_error(logger, logger, np.zeros(6), t)
    np.testing.assert_allclose(error, (logger @ t) ** 2 / ((logger @ t) ** 2 / (logger @ t)), **CLOSE)


@line("ess_form", 6)
def every_smaller_region_breaks_it(rng):
    target, logger, t, _, _ = region(rng)
    w, alpha = target / logger, target @ t
    size = alpha**2 / (logger @ (w**2 * t))
    error = standard_error(target, logger, np.zeros(6), t)
    np.testing.assert_allclose(error, alpha**2 / size, **CLOSE)
    assert error < 1 / size


@line("ess_form", 7)
def the_other_reading(rng):
    target, logger, t, mean, noise = region(rng)
    w, draws = target / logger, 200_000
    rows = rng.choice(len(logger), draws, p=logger)
    size = draws / (w[rows] ** 2 * t[rows]).sum()  # ESS_T / n of this reading, and its limit
    spread = np.sqrt(logger @ (w**2 * t) ** 2 - (logger @ (w**2 * t)) ** 2) / np.sqrt(draws)
    assert abs(1 / size - logger @ (w**2 * t)) <= 5 * spread
    limit = 1 / (logger @ (w**2 * t))
    assert standard_error(target, logger, mean, noise) >= noise[t > 0].min() ** 2 / limit
    equal = standard_error(target, logger, np.zeros(6), t)  # and it is attained
    np.testing.assert_allclose(equal, 1 / limit, **CLOSE)


def rate(p, q, x):
    """Cramer's rate of the logger's surprisal."""
    s = -np.log(p)
    found = minimize_scalar(lambda a: np.log(q @ np.exp(a * s)) - a * x, bracket=(-0.5, 0.5))
    return -found.fun


def counts(length, k):
    """All counts of k tokens in a response."""
    for cuts in itertools.combinations(range(length + k - 1), k - 1):
        edges = (-1, *cuts, length + k - 1)
        yield np.diff(edges) - 1


def mass(law_, length, member):
    """Mass of a set of types, by enumeration."""
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, length + 1)))])
    total = 0.0
    for n in counts(length, len(law_)):
        if member(n / length):
            total += np.exp(log_factorial[length] - log_factorial[n].sum() + n @ np.log(law_))
    return total


def entropy(p):
    return -p @ np.log(p)


def tokens(rng, sign=None):
    while True:
        p, q = law(rng, 3), law(rng, 3)
        margin = -q @ np.log(p) - entropy(p)
        if abs(margin) > 0.1 and sign in (None, np.sign(margin)):
            return p, q, margin


LENGTHS = (10, 25)


@line("typical_region", 1)
def chernoff(rng):
    p, q, _ = tokens(rng)
    centre = -q @ np.log(p)
    for length, side in itertools.product(LENGTHS, (-1, 1)):
        ends = -np.log(p)
        t = centre + side * 0.5 * (centre - ends.min() if side < 0 else ends.max() - centre)
        found = mass(q, length, lambda n, t=t, side=side: side * (-n @ np.log(p) - t) >= -1e-12)
        assert found <= np.exp(-length * rate(p, q, t)) < 1
        assert rate(p, q, t) > 0


@line("typical_region", 2)
def one_sided(rng):
    for sign in (1, -1):
        p, q, margin = tokens(rng, sign)
        for length in LENGTHS:
            edge = entropy(p) + margin / 3  # any edge on the target's side of the logger's mean
            outside = mass(q, length, lambda n, p=p, e=edge, s=sign: s * (-n @ np.log(p) - e) <= 0)
            assert outside <= np.exp(-length * rate(p, q, edge))


@line("typical_region", 3)
def rate_below_divergence(rng):
    p, q, _ = tokens(rng)
    delta, found = p @ np.log(p / q), rate(p, q, entropy(p))
    assert found <= delta + 1e-9
    nearest = minimize(  # Sanov's problem by a general solver
        lambda r: r @ np.log(r / q),
        p,
        bounds=[(1e-9, 1)] * 3,
        constraints=[
            {"type": "eq", "fun": lambda r: r.sum() - 1},
            {"type": "eq", "fun": lambda r: -r @ np.log(p) - entropy(p)},
        ],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 300},
    )
    np.testing.assert_allclose(nearest.fun, found, atol=1e-6)
    power = p ** rng.uniform(-0.5, 0.8)
    power /= power.sum()
    np.testing.assert_allclose(rate(p, power, entropy(p)), p @ np.log(p / power), rtol=1e-6, atol=1e-9)


@line("typical_region", 4)
def two_sided(rng):
    p, q, margin = tokens(rng)
    d = abs(margin) / 2
    for length in LENGTHS:
        found = mass(q, length, lambda n: abs(-n @ np.log(p) - entropy(p)) <= d)
        assert found <= np.exp(-length * rate(p, q, entropy(p) + np.sign(margin) * d))
    sd = np.sqrt(p @ np.log(p) ** 2 - entropy(p) ** 2)
    shrinking = [norm.ppf(0.95) * sd / np.sqrt(length) for length in (1e4, 1e6, 1e8, 1e12)]
    exponents = [rate(p, q, entropy(p) + np.sign(margin) * d) for d in shrinking if d < abs(margin)]
    assert (np.diff(exponents) > 0).all()
    np.testing.assert_allclose(exponents[-1], rate(p, q, entropy(p)), rtol=1e-3)


@line("typical_region", 5)
def no_margin(rng):
    p, start, end = law(rng, 3), law(rng, 3), law(rng, 3)
    # between a logger with a positive margin and one with a negative one lies one with none
    while (p - start) @ np.log(p) * ((p - end) @ np.log(p)) >= 0:
        start, end = law(rng, 3, 2.0), law(rng, 3, 2.0)
    share = brentq(lambda a: (p - (1 - a) * start - a * end) @ np.log(p), 0, 1)
    q = (1 - share) * start + share * end
    delta, s = p @ np.log(p / q), -np.log(p)
    assert delta > 0
    sd = [np.sqrt(x @ s**2 - (x @ s) ** 2) for x in (p, q)]
    length = 60
    d = norm.ppf(0.95) * sd[0] / np.sqrt(length)
    found = mass(q, length, lambda n: abs(n @ s - entropy(p)) <= d)
    limit = (
        2 * norm.cdf(norm.ppf(0.95) * sd[0] / sd[1]) - 1
    )  # of a band that shrinks; one that does not, fills up
    wide = [mass(q, n, lambda c: abs(c @ s - entropy(p)) <= sd[1]) for n in (10, 20, 60)]
    assert all(1 - found <= 1 / n for found, n in zip(wide, (10, 20, 60), strict=True))  # Chebyshev
    # Berry and Esseen at both ends, with the constant of Shevtsova (2011)
    third = q @ np.abs(s - q @ s) ** 3 / sd[1] ** 3
    assert abs(found - limit) <= 2 * 0.4748 * third / np.sqrt(length)
    edge = norm.ppf(0.90) * sd[0]
    below = mass(q, length, lambda n: n @ s - entropy(p) <= edge / np.sqrt(length))
    assert abs(below - norm.cdf(edge / sd[1])) <= 0.4748 * third / np.sqrt(length)
    uniform = np.full(3, 1 / 3)
    assert mass(q, 12, lambda n: abs(-n @ np.log(uniform) - np.log(3)) <= 1e-9) > 1 - 1e-9


@line("typical_region", 6)
def ratio_region(rng):
    p, q, _ = tokens(rng)
    delta, ratio = p @ np.log(p / q), np.log(p / q)
    for length, part in itertools.product(LENGTHS, (0.2, 0.6)):
        epsilon = part * delta
        logger, target = (mass(x, length, lambda n, e=epsilon: n @ ratio >= delta - e) for x in (q, p))
        assert logger <= np.exp(-length * (delta - epsilon)) * target * (1 + 1e-12)


@line("typical_region", 7)
def chebyshev(rng):
    p, q, _ = tokens(rng)
    ratio = np.log(p / q)
    delta = p @ ratio
    spread, epsilon = p @ (ratio - delta) ** 2, 0.6 * delta
    for length in LENGTHS:
        found = mass(p, length, lambda n: n @ ratio >= delta - epsilon)
        assert found >= 1 - spread / (length * epsilon**2)


@line("typical_region", 8)
def cramers_lower_half(rng):
    p, q, _ = tokens(rng)
    s = -np.log(p)
    t = q @ s - 0.5 * (q @ s - s.min())
    power = brentq(lambda a: (q * np.exp(a * s)) @ (s - t), -200, 0)  # the tilted law has mean surprisal t
    tilted = q * np.exp(power * s) / (q @ np.exp(power * s))
    for length in LENGTHS:
        d = 1 / np.sqrt(length)
        near = [mass(x, length, lambda n, d=d: abs(n @ s - t) <= d) for x in (q, tilted)]
        below, under = (mass(x, length, lambda n, d=d: -1e-12 <= t - n @ s <= d) for x in (q, tilted))
        lost = np.exp(-length * (rate(p, q, t) + abs(power) * d))
        assert near[0] >= lost * near[1] > 0
        assert below >= lost * under * (1 - 1e-9)
        everything = mass(q, length, lambda n: n @ s <= t + 1e-12)
        assert below <= everything <= np.exp(-length * rate(p, q, t)) * (1 + 1e-9)
    spread = np.sqrt(
        tilted @ (s - t) ** 2
    )  # the factor of a shrinking band, for many tokens, by the same law
    limit = norm.cdf(1 / spread) - norm.cdf(-1 / spread)
    third = tilted @ np.abs(s - t) ** 3 / spread**3
    assert abs(near[1] - limit) <= 2 * 0.4748 * third / np.sqrt(length)


def slice_of(rng):
    clusters = int(rng.integers(40, 1000))
    return clusters, int(rng.integers(4, min(60, clusters // 2)))


@line("bootstrap_stopping", 1)
def distinct_labels(rng):
    clusters, m = slice_of(rng)
    drawn = rng.integers(clusters, size=(500, clusters))
    assert max(len(set(row[row < m])) for row in drawn) <= m


@line("bootstrap_stopping", 2)
def draws_until_valid(rng):
    clusters, m = slice_of(rng)
    n_min = m + int(rng.integers(0, m))
    share, asked = m / clusters, n_min / clusters
    kl = asked * np.log(asked / share) + (1 - asked) * np.log((1 - asked) / (1 - share))
    accepted = binom.sf(n_min - 1, clusters, share)
    assert 1 / accepted >= np.exp(clusters * kl) * (1 - 1e-12)
    said = [round(1 / binom.sf(29, 250, labels / 250), digits) for labels, digits in ((12, 0), (25, 2))]
    text = " ".join((PAGES / "bootstrap_stopping.md").read_text(encoding="utf-8").split())
    assert f"takes {said[0]:,.0f} draws on average; with 25 labels it takes {said[1]}." in text


def conditional_inverse(clusters, m, least):
    """``E[1 / N | N >= least]`` and ``E[N | N >= least]``."""
    n = np.arange(least, clusters + 1)
    mass_ = binom.pmf(n, clusters, m / clusters)
    return (mass_ / n).sum() / mass_.sum(), (mass_ * n).sum() / mass_.sum()


@line("bootstrap_stopping", 3)
def too_small_errors(rng):
    clusters, m = slice_of(rng)
    n_min = m + int(rng.integers(1, m))
    accepted, _ = conditional_inverse(clusters, m, n_min)
    usual, mean = conditional_inverse(clusters, m, 1)
    assert accepted <= 1 / n_min
    assert usual >= 1 / mean
    assert np.sqrt(accepted / usual) <= np.sqrt(mean / n_min)
    assert round(np.sqrt(12 / 30), 2) == 0.63


@line("bootstrap_stopping", 4)
def few_rejections(rng):
    clusters, m = slice_of(rng)
    assert binom.cdf(-(-m // 2) - 1, clusters, m / clusters) <= np.exp(-m / 8)


@line("bootstrap_stopping", 5)
def expected_draws(rng):
    clusters, m = slice_of(rng)
    n_min = min(30, -(-m // 2))
    assert 1 / binom.sf(n_min - 1, clusters, m / clusters) <= 1 / (1 - np.exp(-m / 8))
    assert 1 / (1 - np.exp(-4 / 8)) <= 2.55 and round(1 / (1 - np.exp(-12 / 8)), 2) == 1.29


@line("bootstrap_stopping", 6)
def total_variation(rng):
    clusters, m = slice_of(rng)
    n_min = min(30, -(-m // 2))
    whole = binom.pmf(np.arange(clusters + 1), clusters, m / clusters)
    given = np.where(np.arange(clusters + 1) >= n_min, whole, 0) / whole[n_min:].sum()
    np.testing.assert_allclose(np.abs(whole - given).sum() / 2, whole[:n_min].sum(), **CLOSE)


@line("bootstrap_stopping", 7)
def stopping_rule(rng):
    clusters, m = slice_of(rng)
    replicates = int(rng.integers(100, 10_000))
    draws = int(np.ceil(8 * (np.log(replicates) + 7) / m))
    rejected = binom.cdf(min(30, -(-m // 2)) - 1, clusters, m / clusters)
    assert replicates * rejected**draws <= replicates * np.exp(-draws * m / 8) < 1e-3


@pytest.mark.parametrize(("page", "number"), sorted(CHECKS))
def test_line(page, number):
    run(CHECKS[page, number])


def test_every_numbered_line_has_a_check():
    assert set().union(*(numbered(page) for page in MINE)) == set(CHECKS)
