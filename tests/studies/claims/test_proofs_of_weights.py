"""Each line of the proofs about stabilised and capped weights and designs of labels, on random instances."""

import numpy as np
import pytest
from proof_lines import numbered, registry, run
from scipy.optimize import brentq

CHECKS, line = registry()
MINE = ("weight_stabilisation", "variance_cap", "label_budget")
CLOSE = {"rtol": 1e-9, "atol": 1e-12}


def law(rng, k, scale=1.0):
    raised = np.exp(scale * rng.normal(size=k))
    return raised / raised.sum()


def pooled(m, p):
    """Projection on nondecreasing functions by pooling adjacent violators, and the block of each level."""
    blocks = [[[k], m[k]] for k in range(len(m))]
    k = 0
    while k < len(blocks) - 1:
        if blocks[k][1] > blocks[k + 1][1]:
            members = blocks[k][0] + blocks.pop(k + 1)[0]
            blocks[k] = [members, np.average(m[members], weights=p[members])]
            k = max(k - 1, 0)
        else:
            k += 1
    number = np.concatenate([[b] * len(members) for b, (members, _) in enumerate(blocks)])
    return np.concatenate([[value] * len(members) for members, value in blocks]), number


def levels(rng, k=6):
    p, target = law(rng, k), law(rng, k)
    m = target / p
    return p, m, *pooled(m, p), rng.uniform(size=k)


@line("weight_stabilisation", 1)
def block_means(rng):
    p, m, up, block = levels(rng)[:4]
    for b in set(block):
        here = block == b
        np.testing.assert_allclose(up[here], np.average(m[here], weights=p[here]), **CLOSE)
    # it is the projection: no rising function drawn is nearer
    for _ in range(200):
        other = np.sort(rng.normal(1, 1, len(p)))
        assert p @ (other - m) ** 2 >= p @ (up - m) ** 2


@line("weight_stabilisation", 2)
def functions_of_blocks(rng):
    p, m, up, block, _ = levels(rng)
    h = rng.normal(size=len(p))[block]
    np.testing.assert_allclose([p @ (up * h), p @ up], [p @ (m * h), 1.0], **CLOSE)


@line("weight_stabilisation", 3)
def covariance_is_lost(rng):
    p, m, up, block, reward = levels(rng)
    lost = 0.0
    for b in set(block):
        here = block == b
        share = p[here] / p[here].sum()
        lost += p[here].sum() * (share @ (m * reward)[here] - (share @ m[here]) * (share @ reward[here]))
    np.testing.assert_allclose(p @ (up * reward), p @ (m * reward) - lost, **CLOSE)


@line("weight_stabilisation", 4)
def sign_of_the_bias(rng):
    p, m, up, _, _ = levels(rng)
    for _ in range(50):
        assert p @ ((m - up) * np.sort(rng.normal(size=len(p)))) <= 1e-12
    falls = np.sort(rng.uniform(size=len(p)))[::-1]
    falls = falls / (p @ falls)
    np.testing.assert_allclose(pooled(falls, p)[0], 1.0, **CLOSE)


@line("weight_stabilisation", 5)
def convex_means(rng):
    joint = law(rng, 24).reshape(4, 6)
    w = rng.gamma(1, 1, (4, 1))
    w = np.broadcast_to(w / (joint * w).sum(), joint.shape)
    p = joint.sum(axis=0)
    m = (joint * w).sum(axis=0) / p
    up = pooled(m, p)[0]
    for convex in (np.square, np.exp, lambda x: np.abs(x - 0.7)):
        assert p @ convex(up) <= p @ convex(m) + 1e-12
        assert p @ convex(m) <= (joint * convex(w)).sum() + 1e-12


@line("weight_stabilisation", 6)
def variance_can_rise(rng):
    d = rng.uniform(0.05, 0.9)
    p, m = np.array([0.5, 0.5]), np.array([1 + d, 1 - d])
    reward = 0.1 / m
    up = pooled(m, p)[0]
    np.testing.assert_allclose(up, 1.0, **CLOSE)
    np.testing.assert_allclose(np.ptp(m * reward), 0, atol=1e-12)
    assert np.ptp(up * reward) > 0


@line("weight_stabilisation", 7)
def conditional_mean(rng):
    joint = law(rng, 24).reshape(4, 6)
    w = rng.gamma(1, 1, (4, 1)) * np.ones((1, 6))
    p, reward, h = joint.sum(axis=0), rng.uniform(size=6), rng.normal(size=6)
    m = (joint * w).sum(axis=0) / p
    np.testing.assert_allclose(p @ (m * h), (joint * w * h).sum(), **CLOSE)
    spread = (joint * w**2).sum(axis=0) / p - m**2
    whole = (joint * (w * reward) ** 2).sum() - (joint * w * reward).sum() ** 2
    kept = p @ (m * reward) ** 2 - (p @ (m * reward)) ** 2
    np.testing.assert_allclose(whole - kept, p @ (reward**2 * spread), **CLOSE)


def cone(rng):
    """Masses, m - 1, its projection u on the cone, and feasible points of a capped cone."""
    while True:
        p, m, up, _, _ = levels(rng)
        if p @ (up - 1) ** 2 > 1e-4:
            return p, m - 1, up - 1


def feasible(rng, p, radius):
    k = np.sort(rng.normal(size=len(p)))
    k = k - p @ k
    return k * min(1.0, radius / np.sqrt(p @ k**2)) * rng.uniform() ** 0.2


@line("variance_cap", 1)
def moreau(rng):
    p, x, u = cone(rng)
    np.testing.assert_allclose(p @ ((x - u) * u), 0, atol=1e-12)
    assert all(p @ ((x - u) * feasible(rng, p, 9.0)) <= 1e-12 for _ in range(50))


@line("variance_cap", 2)
def above_the_threshold(rng):
    p, x, u = cone(rng)
    np.testing.assert_allclose(p @ x**2, p @ u**2 + p @ (x - u) ** 2, **CLOSE)
    assert p @ u**2 <= p @ x**2 + 1e-12
    radius = np.sqrt(p @ x**2)  # rho = 1
    assert all(p @ (feasible(rng, p, radius) - x) ** 2 >= p @ (u - x) ** 2 for _ in range(200))


def capped(rng):
    p, x, u = cone(rng)
    t = rng.uniform(0.1, 0.95)
    return p, x, u, t


@line("variance_cap", 3)
def blend_is_feasible(rng):
    p, x, u, t = capped(rng)
    rho = t**2 * (p @ u**2) / (p @ x**2)
    np.testing.assert_allclose(p @ (t * u) ** 2, rho * (p @ x**2), **CLOSE)
    assert (np.diff(t * u) >= 0).all() and abs(p @ (t * u)) < 1e-12


@line("variance_cap", 4)
def split_of_the_inner_product(rng):
    p, x, u, t = capped(rng)
    z = t * u
    for _ in range(50):
        k = feasible(rng, p, np.sqrt(p @ z**2))
        first, second = p @ ((x - u) * (k - z)), (1 - t) * (p @ (u * (k - z)))
        np.testing.assert_allclose(p @ ((x - z) * (k - z)), first + second, **CLOSE)
        assert first <= 1e-12


@line("variance_cap", 5)
def variational_inequality(rng):
    p, x, u, t = capped(rng)
    z = t * u
    for _ in range(50):
        k = feasible(rng, p, np.sqrt(p @ z**2))
        bound = np.sqrt((p @ u**2) * (p @ k**2)) - t * (p @ u**2)
        assert p @ (u * (k - z)) <= bound + 1e-12 and bound <= 1e-12
        assert p @ ((x - z) * (k - z)) <= 1e-12
    half = 0.9 * z  # planted: a point inside does not satisfy it
    assert p @ ((x - half) * (z - half)) > 0


@line("variance_cap", 6)
def quadratic_in_the_blend(rng):
    cells, u, t = law(rng, 12), rng.normal(size=12), rng.uniform()
    g, d = rng.normal(size=12), rng.normal(size=12)

    def cov(f, h):
        return cells @ (f * h) - (cells @ f) * (cells @ h)

    phi = g + (1 + t * u) * d
    by_parts = cov(g + d, g + d) + 2 * t * cov(g + d, u * d) + t**2 * cov(u * d, u * d)
    np.testing.assert_allclose(cov(phi, phi), by_parts, **CLOSE)
    np.testing.assert_allclose(cells @ phi - cells @ (g + d), t * (cells @ (u * d)), **CLOSE)


def budget(rng, k=5):
    """Masses, residual standard deviations, a design, Var(q) and both prices."""
    return law(rng, k), rng.uniform(0.05, 1, k), rng.uniform(0.05, 1, k), *rng.uniform(0.05, 1, 3)


def product(p, sd, e, between, judging, labelling):
    """Variance times budget per response."""
    return (between + p @ (sd**2 / e)) * (judging + labelling * (p @ e))


@line("label_budget", 1)
def spend_and_variance(rng):
    p, sd, _, between, judging, labelling = budget(rng)
    n, m = 1000.0, rng.uniform(50, 1000)
    spend = judging * n + labelling * m
    found = product(p, sd, np.full(5, m / n), between, judging, labelling)
    np.testing.assert_allclose((between / n + p @ sd**2 / m) * spend, found, **CLOSE)
    # the mean of q + L / e (Y - q), simulated law by law: its variance by enumeration of L and two values of Y
    q, e = rng.normal(size=5), m / n
    second = p @ (q**2 + e * (sd / e) ** 2) - (p @ q) ** 2
    np.testing.assert_allclose(second, p @ q**2 - (p @ q) ** 2 + p @ sd**2 / e, **CLOSE)


@line("label_budget", 2)
def least_cost(rng):
    p, sd, e, between, judging, labelling = budget(rng)
    middle = (np.sqrt(judging * between) + np.sqrt(labelling * (p @ (sd**2 / e)) * (p @ e))) ** 2
    assert product(p, sd, e, between, judging, labelling) >= middle
    assert middle >= (np.sqrt(judging * between) + np.sqrt(labelling) * (p @ sd)) ** 2


@line("label_budget", 3)
def attained(rng):
    p, sd, _, between, judging, labelling = budget(rng)
    e = sd * np.sqrt(judging / (labelling * between))
    least = (np.sqrt(judging * between) + np.sqrt(labelling) * (p @ sd)) ** 2
    np.testing.assert_allclose(product(p, sd, e, between, judging, labelling), least, **CLOSE)


@line("label_budget", 4)
def square_root_law(rng):
    p, sd, _, between, judging, labelling = budget(rng)
    e = np.full(5, np.sqrt(judging * (p @ sd**2) / (labelling * between)))
    least = (np.sqrt(judging * between) + np.sqrt(labelling * (p @ sd**2))) ** 2
    np.testing.assert_allclose(product(p, sd, e, between, judging, labelling), least, **CLOSE)


@line("label_budget", 5)
def corner(rng):
    p, sd, _, between, judging, labelling = budget(rng)
    between = 0.5 * judging * (p @ sd**2) / labelling  # the law asks for more labels than responses
    grid = [product(p, sd, np.full(5, e), between, judging, labelling) for e in np.linspace(0.01, 1, 400)]
    assert (np.diff(grid) < 0).all() and (np.diff(grid, 2) > 0).all()


@line("label_budget", 6)
def truncated(rng):
    p, sd, other, *_ = budget(rng)
    c = brentq(lambda c: p @ np.minimum(1, c * sd) - p @ other, 0, 1 / sd.min() + 1)
    e = np.minimum(1, c * sd)
    assert p @ (sd**2 / e) <= p @ (sd**2 / other)
    slope = -(sd**2) / e**2  # of v / e: equal where e < 1, steeper where e = 1
    free = e < 1
    assert not free.any() or (slope[~free] <= slope[free].min() + 1e-9).all()


@pytest.mark.parametrize(("page", "number"), sorted(CHECKS))
def test_line(page, number):
    run(CHECKS[page, number])


def test_every_numbered_line_has_a_check():
    assert set().union(*(numbered(page) for page in MINE)) == set(CHECKS)
