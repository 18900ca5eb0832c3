"""Each line of the proofs about stabilised and capped weights, computed on random instances."""

import numpy as np
import pytest
from proof_lines import numbered, registry, run

CHECKS, line = registry()
MINE = ("weight_stabilisation", "variance_cap")
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


@pytest.mark.parametrize(("page", "number"), sorted(CHECKS))
def test_line(page, number):
    run(CHECKS[page, number])


def test_every_numbered_line_has_a_check():
    assert set().union(*(numbered(page) for page in MINE)) == set(CHECKS)
