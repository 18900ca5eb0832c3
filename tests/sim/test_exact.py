"""Exact theory of i.i.d. policies: enumeration for V <= 4, L <= 8, Monte Carlo beyond."""

import numpy as np
import oracles_sim as slow
import pytest

from cje_sim.exact import divergences, sums, typicality
from cje_sim.exact.typicality import coverage
from cje_sim.targets.tilts import token_tilt, utilities
from cje_sim.tokens.laws import TokenPolicy, iid_policy, log_normalise, sample_sums, zipf

CASES = [(2, 8, 1), (3, 6, 2), (4, 5, 3), pytest.param(4, 8, 4, marks=pytest.mark.slow)]  # V, L, seed


def pair(vocab: int, length: int, seed: int) -> tuple[TokenPolicy, TokenPolicy]:
    logger = iid_policy(zipf(vocab, 1.2), length)
    return token_tilt(logger, utilities("iid", vocab, rng=seed), 0.7), logger


def scores(target: TokenPolicy, logger: TokenPolicy) -> np.ndarray:
    return np.stack([-target.log_prob, target.log_prob - logger.log_prob], axis=-1)


@pytest.mark.parametrize(("vocab", "length", "seed"), CASES)
def test_divergences_by_enumeration(vocab: int, length: int, seed: int) -> None:
    target, logger = pair(vocab, length, seed)
    p, q = target.log_prob[0, 0], logger.log_prob[0, 0]

    def log_w(a: tuple[int, ...]) -> float:
        return slow.log_prob(target, a) - slow.log_prob(logger, a)

    assert slow.expectation(logger, lambda a: np.exp(log_w(a))) == pytest.approx(1.0, abs=1e-10)
    assert length * divergences.kl(p, q) == pytest.approx(slow.expectation(target, log_w), abs=1e-10)
    second = slow.expectation(logger, lambda a: np.exp(2 * log_w(a)))
    assert np.exp(length * divergences.log1p_chi2(p, q)) == pytest.approx(second, rel=1e-10)
    assert np.exp(divergences.log_limit_ess(p, q, length)) == pytest.approx(1 / second, rel=1e-10)


@pytest.mark.parametrize("power", [2, 4])
def test_draws_that_a_moment_needs_by_enumeration(power: int) -> None:
    """KL of the law ``W^k q / E0[W^k]`` of whole responses to q; below e^KL draws the mean misses its expectation."""
    target, logger = pair(3, 6, 2)
    p, q = target.log_prob[0, 0], logger.log_prob[0, 0]

    def log_w(a: tuple[int, ...]) -> float:
        return slow.log_prob(target, a) - slow.log_prob(logger, a)

    moment = slow.expectation(logger, lambda a: np.exp(power * log_w(a)))
    surprise = slow.expectation(
        logger, lambda a: np.exp(power * log_w(a)) / moment * (power * log_w(a) - np.log(moment))
    )
    assert divergences.log_draws_needed(p, q, 6, power) == pytest.approx(surprise, abs=1e-10)


def test_a_mean_of_too_few_draws_does_not_show_its_expectation() -> None:
    """Medians of simulated second moments over the exact one: near 1 with enough draws, near 0 below e^KL."""
    shown = []
    for length in (5, 25):
        logger = iid_policy(zipf(200, 1.2), length)
        target = token_tilt(logger, utilities("iid", 200, rng=3), 0.5)
        p, q = target.log_prob[0, 0], logger.log_prob[0, 0]
        beyond = np.log(20_000) - divergences.log_draws_needed(p, q, length, 2)
        ratios = []
        for k in range(9):
            drawn = sample_sums(logger, (target.log_prob - logger.log_prob)[..., None], 20_000, rng=k)
            ratios.append(
                np.mean(np.exp(2 * drawn.sums[:, 0])) / np.exp(length * divergences.log1p_chi2(p, q))
            )
        shown.append((beyond, np.median(ratios)))
    (enough, near_one), (short, near_zero) = shown
    assert enough > 3 and abs(near_one - 1) < 0.2, shown
    assert short < -3 and near_zero < 0.2, shown


@pytest.mark.parametrize("two_sided", [False, True])
@pytest.mark.parametrize("level", [0.5, 0.9])
@pytest.mark.parametrize(("vocab", "length", "seed"), CASES)
def test_coverage_by_enumeration(vocab: int, length: int, seed: int, level: float, two_sided: bool) -> None:
    target, logger = pair(vocab, length, seed)
    expected = slow.coverage(target, logger, level, two_sided)
    got = coverage(target.log_prob[0, 0], logger.log_prob[0, 0], length, level=level, two_sided=two_sided)
    assert got.alpha == pytest.approx(expected["alpha"], abs=1e-10)
    assert got.alpha >= level - 1e-12
    assert got.ttc == pytest.approx(expected["beta"], abs=1e-10)
    assert np.exp(got.log_second_moment) == pytest.approx(expected["second"], rel=1e-10)
    assert np.expm1(got.log1p_chi2) == pytest.approx(expected["chi2"], abs=1e-9)


@pytest.mark.parametrize(("vocab", "length", "seed"), CASES)
def test_fft_on_scores_that_lie_on_a_lattice(
    vocab: int, length: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole scores and half-way thresholds: the lattice route must then equal enumeration, in both deep
    tails.
    """
    law = pair(vocab, length, seed)[0].log_prob[0, 0]
    values = np.array([0.0, 1.0, 3.0, 7.0])[:vocab]
    for x in (0.5, 1.5, 3.5, length * values.max() / 2 + 0.25, length * values.max() - 0.5):
        expected = sums.log_cdf(values, law, length, x).value
        with monkeypatch.context() as patch:
            patch.setattr(sums, "MAX_EXACT_SUMS", 1)
            got = sums.log_cdf(values, law, length, x, points=2**18)
        assert got.lower <= expected <= got.upper
        assert got.upper - got.lower < 1e-6


def test_moments_and_errors_by_enumeration() -> None:
    target, logger = pair(4, 5, 7)
    p, q = target.log_prob[0, 0], logger.log_prob[0, 0]
    utility, noise, n = utilities("iid", 4, rng=7), 0.3, 50

    def weight(a: tuple[int, ...]) -> float:
        return float(np.exp(slow.log_prob(target, a) - slow.log_prob(logger, a)))

    value = slow.expectation(target, lambda a: utility[a[0]])
    second = slow.expectation(logger, lambda a: weight(a) ** 2 * (utility[a[0]] ** 2 + noise**2))
    centred = slow.expectation(logger, lambda a: weight(a) ** 2 * ((utility[a[0]] - value) ** 2 + noise**2))
    slope = slow.expectation(logger, lambda a: weight(a) ** 2 * (utility[a[0]] - value))
    direct = slow.expectation(target, lambda a: (utility[a[0]] - value) ** 2) + noise**2
    got = divergences.first_token_errors(p, q, utility, noise, 5, n)
    assert got.value == pytest.approx(value, abs=1e-12)
    assert np.exp(2 * got.log_se_ips) == pytest.approx((second - value**2) / n, rel=1e-10)
    assert np.exp(2 * got.log_se_snips) == pytest.approx(centred / n, rel=1e-10)
    assert np.exp(2 * got.log_se_direct) == pytest.approx(direct / n, rel=1e-10)
    assert got.snips_bias == pytest.approx(-slope / n, rel=1e-10)

    totals = np.array([-slow.log_prob(target, a) for a in slow.sequences(logger)])
    mass = np.exp([slow.log_prob(logger, a) for a in slow.sequences(logger)])
    mean, variance = mass @ totals, mass @ (totals - mass @ totals) ** 2
    assert 5 * divergences.expectation(q, -p) == pytest.approx(mean, rel=1e-10)
    assert 5 * divergences.variance(q, -p) == pytest.approx(variance, rel=1e-10)


@pytest.mark.parametrize("length", [25, 100, 400])
@pytest.mark.parametrize("eta", [0.1, 0.3, 0.5])
def test_coverage_at_the_papers_size_against_monte_carlo(eta: float, length: int) -> None:
    """V = 1000, alpha = 1.2: masses of the exact region under both laws, within 5 binomial standard
    errors.
    """
    logger = iid_policy(zipf(1000, 1.2), length)
    target = token_tilt(logger, utilities("iid", 1000, rng=1), eta)
    n = 20_000
    for two_sided in (False, True):
        got = coverage(target.log_prob[0, 0], logger.log_prob[0, 0], length, two_sided=two_sided)
        assert got.alpha == pytest.approx(0.9, abs=1e-5)  # second order in the lattice spacing
        low, high = np.exp(got.beta_bracket)
        assert low <= got.ttc <= high
        for policy, mass, seed in ((target, got.alpha, 1), (logger, got.ttc, 2)):
            s = sample_sums(policy, scores(target, logger), n, rng=seed).sums[:, 0]
            inside = np.mean((s >= got.region.low) & (s <= got.region.high))
            assert abs(inside - mass) < 5 * np.sqrt(mass * (1 - mass) / n)
    # Planted error: the paper's "mean surprisal" taken over one token too few is noticed.
    edge = (
        typicality.coverage(target.log_prob[0, 0], logger.log_prob[0, 0], length).region.high
        * (length - 1)
        / length
    )
    s = sample_sums(target, scores(target, logger), n, rng=1).sums[:, 0]
    assert length > 100 or abs(np.mean(s <= edge) - 0.9) > 5 * np.sqrt(0.09 / n)


def test_lumpy_law_keeps_its_atom() -> None:
    """A target that nearly always says token 0: the quantile is an atom, and alpha is its mass, not 0.9."""
    logger = iid_policy(zipf(400, 1.2), 60)
    utility = np.where(np.arange(400) == 0, 1.0, 0.0) + 0.01 * utilities("iid", 400, rng=0)
    target = token_tilt(logger, utility, 8.5)
    p, q = target.log_prob[0, 0], logger.log_prob[0, 0]
    atom = np.exp(60 * p[0])
    assert atom > 0.92
    got = coverage(p, q, 60)
    assert got.alpha == pytest.approx(atom, rel=1e-6)
    assert got.beta_bracket[0] <= 60 * q[0] <= got.beta_bracket[1]
    assert got.beta_bracket[1] - got.beta_bracket[0] < 1e-3


def test_mean_weight_is_one_in_the_simulation() -> None:
    logger = iid_policy(zipf(1000, 1.2), 25)
    target = token_tilt(logger, utilities("iid", 1000, rng=1), 0.3)
    w = np.exp(sample_sums(logger, scores(target, logger), 200_000, rng=3).sums[:, 1])
    second = np.exp(25 * divergences.log1p_chi2(target.log_prob[0, 0], logger.log_prob[0, 0]))
    assert abs(w.mean() - 1) < 5 * np.sqrt((second - 1) / len(w))


def test_clone_is_covered_and_temperature_is_not_seen_by_one_sided_ttc() -> None:
    q = zipf(1000, 1.2)
    clone = coverage(q, q, 100)
    assert clone.ttc == pytest.approx(clone.alpha, abs=1e-12)
    assert clone.log1p_chi2 == pytest.approx(0.0, abs=1e-9)
    hot = log_normalise(q / 1.25)
    got = coverage(hot, q, 400)
    assert got.ttc > 0.999
    assert divergences.log_limit_ess(hot, q, 400) / np.log(10) < -40
    assert divergences.collapse_margin(hot, q) < 0 < divergences.collapse_margin(log_normalise(q / 0.8), q)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: coverage(zipf(10, 1.2), zipf(10, 1.0), 5, level=1.0), r"\(0, 1\)"),
        (lambda: divergences.kl(zipf(10, 1.2), zipf(11, 1.2)), r"both must be \(V,\)"),
        (lambda: divergences.kl(np.log([0.5, 0.5]), np.array([0.0, -np.inf])), "probability 0"),
    ],
)
def test_bad_input_names_the_allowed_range(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]
