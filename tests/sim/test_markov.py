"""Markov chains, prompt classes, stop tokens: transfer matrices against enumeration, i.i.d. theory and simulation."""

import numpy as np
import oracles_sim as slow
import pytest
from scipy.special import logsumexp

from cje_sim.exact import divergences, markov, paths, typicality
from cje_sim.targets.tilts import token_tilt
from cje_sim.tokens.laws import (
    TokenPolicy,
    by_prompt,
    iid_policy,
    log_normalise,
    markov_policy,
    markov_with_stationary,
    sample_sums,
    zipf,
)

CHAIN = markov_with_stationary(zipf(3, 1.2), spread=1.0, rng=5)
UTILITY = np.array([0.4, -0.7, 1.1])
LOGGERS = {
    "iid": iid_policy(zipf(3, 1.2), 6),
    "stop": iid_policy(zipf(3, 1.2), 6, stop=1),
    "markov": markov_policy(zipf(3, 1.2), CHAIN, 7),
    "markov_stop": markov_policy(zipf(3, 1.2), CHAIN, 6, stop=2),
}


def pair(name: str) -> tuple[TokenPolicy, TokenPolicy]:
    return token_tilt(LOGGERS[name], UTILITY, 0.6), LOGGERS[name]


@pytest.mark.parametrize("name", LOGGERS)
def test_divergences_by_enumeration(name: str) -> None:
    target, logger = pair(name)

    def log_w(a: tuple[int, ...]) -> float:
        return slow.log_prob(target, a) - slow.log_prob(logger, a)

    got = markov.divergence(target, logger)
    assert got.kl == pytest.approx(slow.expectation(target, log_w), abs=1e-10)
    second = slow.expectation(logger, lambda a: np.exp(2 * log_w(a)))
    assert np.exp(got.log1p_chi2) == pytest.approx(second, rel=1e-10)
    assert got.mean_length == pytest.approx(slow.expectation(target, lambda a: float(len(a))), rel=1e-12)


@pytest.mark.parametrize("two_sided", [False, True])
@pytest.mark.parametrize("level", [0.5, 0.9])
@pytest.mark.parametrize("name", LOGGERS)
def test_coverage_by_enumeration(name: str, level: float, two_sided: bool) -> None:
    target, logger = pair(name)
    expected = slow.coverage(target, logger, level, two_sided)
    got = markov.coverage(target, logger, level=level, two_sided=two_sided)
    assert got.alpha == pytest.approx(expected["alpha"], abs=1e-10)
    assert got.ttc == pytest.approx(expected["beta"], abs=1e-10)
    assert np.exp(got.log_second_moment) == pytest.approx(expected["second"], rel=1e-10)
    assert np.expm1(got.log1p_chi2) == pytest.approx(expected["chi2"], abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOGGERS)
def test_lattice_law_against_atoms(name: str) -> None:
    """Distribution function of the sum at points off its atoms, both tails, under p and under p^2/q."""
    target, logger = pair(name)
    table = -target.log_prob
    for kernel in (target.log_prob, 2 * target.log_prob - logger.log_prob):
        part = paths.Paths(kernel[0], table[0], target.length, target.stop)
        atoms = part.atoms()
        assert atoms is not None
        values = np.concatenate([sums for _, sums, _ in atoms])
        masses = np.concatenate([mass for _, _, mass in atoms])
        assert logsumexp(masses) == pytest.approx(part.log_mgf(0.0), abs=1e-10)
        for x in np.linspace(values.min() + 0.05, values.max() - 0.05, 9):
            got = markov.log_cdf(target, table, float(x), log_kernel=kernel)
            near = [logsumexp(masses[values <= x + shift]) for shift in (-0.02, 0.02)]
            assert got.lower - 1e-9 <= near[1]
            assert near[0] <= got.upper + 1e-9
            if near[0] == near[1]:  # no atom near: the value is accurate to the lattice's slack
                assert got.value == pytest.approx(near[0], abs=1e-3)


@pytest.mark.slow
def test_lattice_coverage_against_atoms(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("markov", "markov_stop"):
        for two_sided in (False, True):
            expected = markov.coverage(*pair(name), two_sided=two_sided)
            with monkeypatch.context() as patch:
                patch.setattr(paths, "MAX_ATOMS", 0)
                got = markov.coverage(*pair(name), two_sided=two_sided)
            assert got.alpha == pytest.approx(expected.alpha, abs=1e-3)
            assert got.ttc == pytest.approx(expected.ttc, abs=1e-3)
            assert got.log_second_moment == pytest.approx(expected.log_second_moment, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("two_sided", [False, True])
def test_transfer_agrees_with_the_iid_theory(two_sided: bool) -> None:
    """The same i.i.d. pair, once as such and once as a chain whose rows are equal."""
    q = zipf(25, 1.2)
    p = log_normalise(q + 0.4 * np.sin(np.arange(25.0)))
    as_chain = [markov_policy(law, np.tile(law, (25, 1)), 60) for law in (p, q)]
    expected = typicality.coverage(p, q, 60, two_sided=two_sided)
    got = markov.coverage(as_chain[0], as_chain[1], two_sided=two_sided)
    assert got.log_alpha == pytest.approx(expected.log_alpha, abs=1e-4)
    assert got.log_beta == pytest.approx(expected.log_beta, abs=1e-3)
    assert got.log_second_moment == pytest.approx(expected.log_second_moment, abs=1e-3)
    divergence = markov.divergence(as_chain[0], iid_policy(q, 60))
    assert divergence.kl == pytest.approx(60 * divergences.kl(p, q), rel=1e-12)
    assert divergence.log1p_chi2 == pytest.approx(60 * divergences.log1p_chi2(p, q), rel=1e-12)
    rates = markov.rates(*as_chain)
    assert rates.rate == pytest.approx(typicality.collapse_rate(p, q, two_sided=True), rel=1e-6)
    assert rates.collapse_margin == pytest.approx(divergences.collapse_margin(p, q), rel=1e-9)
    assert rates.kl == pytest.approx(divergences.kl(p, q), rel=1e-9)
    assert rates.log1p_chi2 == pytest.approx(divergences.log1p_chi2(p, q), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["markov", "classes", "stop"])
def test_coverage_against_monte_carlo(kind: str) -> None:
    """V = 12: masses of the region under both laws, within 5 binomial standard errors."""
    law, n = zipf(12, 1.2), 40_000
    chain = markov_with_stationary(law, spread=0.8, persistence=0.2, rng=8)
    loggers = {
        "markov": markov_policy(law, chain, 80),
        "classes": by_prompt([iid_policy(law, 80), iid_policy(law[::-1].copy(), 80)], [0.3, 0.7]),
        "stop": markov_policy(law, chain, 60, stop=4),
    }
    logger = loggers[kind]
    target = token_tilt(logger, np.cos(np.arange(12.0)), 0.15)
    got = markov.coverage(target, logger, points=2**12)
    assert got.alpha == pytest.approx(0.9, abs=0.002)
    for policy, mass, seed in ((target, got.alpha, 1), (logger, got.ttc, 2)):
        drawn = sample_sums(policy, -target.log_prob[..., None], n, rng=seed)
        inside = np.mean(drawn.sums[:, 0] / drawn.n_tokens <= got.region.high)
        assert abs(inside - mass) < 5 * np.sqrt(mass * (1 - mass) / n)


@pytest.mark.slow
def test_markov_rate_is_the_slope_of_the_tail() -> None:
    law = zipf(8, 1.2)
    chain = markov_with_stationary(law, spread=1.0, rng=8)
    logs = {}
    for length in (200, 400):
        logger = markov_policy(law, chain, length)
        target = token_tilt(logger, np.linspace(1, -1, 8), 0.4)
        rates = markov.rates(target, logger)
        logs[length] = markov.log_cdf(logger, -target.log_prob, length * rates.entropy).value
    assert rates.collapse_margin > 0
    assert 0 < rates.rate < rates.kl
    slope = -(logs[400] - logs[200]) / 200
    assert slope == pytest.approx(rates.rate + np.log(2) / 400, rel=0.02)  # the prefactor is L^(-1/2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: markov.divergence(LOGGERS["iid"], LOGGERS["markov"]), "differ in length"),
        (lambda: markov.divergence(LOGGERS["iid"], LOGGERS["stop"]), "differ in stop"),
        (lambda: markov.coverage(*pair("iid"), level=0.0), r"\(0, 1\)"),
        (lambda: markov.rates(*pair("stop")), "no stop token"),
        (lambda: markov.log_cdf(LOGGERS["markov"], np.zeros((1, 2, 3)), 1.0), "needs 1 \\+ V"),
    ],
)
def test_bad_input_names_the_mend(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]
