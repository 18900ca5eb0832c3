"""Laws of sums at depth: FFT, saddlepoint, Cramer, Bahadur-Rao and tilted Monte Carlo check one another."""

import numpy as np
import oracles_sums as slow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from cje_sim.exact import divergences, sums, typicality
from cje_sim.targets.tilts import utilities
from cje_sim.tokens.laws import FloatArray, log_normalise, zipf

Q = zipf(1000, 1.2)
TARGETS = {
    "iid": log_normalise(Q + 0.5 * utilities("iid", 1000, rng=1)),
    "aligned": log_normalise(Q + 0.3 * utilities("aligned", 1000, rng=1)),
    "cold": log_normalise(Q / 0.8),
}


def depth(values: FloatArray, length: int, log10: float) -> float:
    """A threshold whose probability is about 10^log10, by bisection on Bahadur and Rao's form."""
    low, high = length * float(values.min()), length * float(np.exp(Q) @ values)
    for _ in range(80):
        mid = (low + high) / 2
        at = slow.log_cdf_saddlepoint(values, Q, length, mid) / np.log(10)
        low, high = (mid, high) if at < log10 else (low, mid)
    return mid


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("length", [100, 400])
@pytest.mark.parametrize("log10", [-1, -4, -8, -12])
def test_fft_against_saddlepoint_to_one_percent(name: str, length: int, log10: float) -> None:
    values = -TARGETS[name]
    x = depth(values, length, log10)
    got = sums.log_cdf(values, Q, length, x)
    assert got.value / np.log(10) == pytest.approx(log10, abs=0.02)
    assert abs(slow.log_cdf_saddlepoint(values, Q, length, x) - got.value) < 0.01
    assert got.lower < got.value < got.upper
    # The upper tail is the lower tail of the mirrored scores.
    complement = np.exp(sums.log_interval(values, Q, length, x, np.inf).value)
    assert complement == pytest.approx(-np.expm1(got.value), abs=1e-4)


def test_fft_against_the_binomial_law_at_any_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts of a token set are binomial: relative accuracy from 0.5 down to 1e-200 and in the upper tail."""
    monkeypatch.setattr(sums, "MAX_EXACT_SUMS", 1)
    law = np.log([0.7, 0.3])
    for k in (2, 20, 100, 250, 300, 350, 600):
        got = sums.log_cdf(np.array([0.0, 1.0]), law, 1000, k + 0.5)
        expected = stats.binom(1000, 0.3).logcdf(k)
        assert got.lower <= expected <= got.upper
        assert got.value == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("name", TARGETS)
def test_tilted_monte_carlo_near_1e_minus_30(name: str) -> None:
    values = -TARGETS[name]
    x = depth(values, 300, -30)
    exact_value = sums.log_cdf(values, Q, 300, x).value
    got = slow.log_cdf_monte_carlo(values, Q, 300, x, n=20_000, rng=7)
    assert got.relative_se < 0.03
    assert abs(np.expm1(got.log_prob - exact_value)) < 5 * got.relative_se
    # A planted error of 20% in the probability is noticed.
    assert abs(np.expm1(got.log_prob - exact_value + np.log(1.2))) > 5 * got.relative_se


@pytest.mark.parametrize("name", TARGETS)
def test_cramer_slope_against_tilted_fft_up_to_3200_tokens(name: str) -> None:
    """At the limit threshold H(p): slope in L, less that of the prefactor, against the rate; then the value itself."""
    p = TARGETS[name]
    rate = typicality.collapse_rate(p, Q)
    centre = divergences.entropy(p)
    logs = {length: sums.log_cdf(-p, Q, length, length * centre).value for length in (1600, 3200)}
    slope = -(logs[3200] - logs[1600]) / 1600
    assert slope == pytest.approx(rate + np.log(2) / 3200, rel=0.01)  # the prefactor is L^(-1/2)
    assert slow.log_cdf_bahadur_rao(-p, Q, 3200, 3200 * centre) == pytest.approx(logs[3200], rel=0.02)


def test_ttc_itself_follows_the_rate_with_its_root_l_term() -> None:
    """TTC's threshold is a quantile, H + O(L^-1/2): log TTC = -L I + b sqrt(L) - log(L)/2 + c."""
    p = TARGETS["aligned"]
    lengths = np.array([200, 400, 800, 1600, 3200])
    logs = np.array([typicality.coverage(p, Q, int(length)).log_beta for length in lengths])
    design = np.column_stack([lengths, np.sqrt(lengths), np.ones(len(lengths))])
    fitted = np.linalg.lstsq(design, logs + np.log(lengths) / 2, rcond=None)[0]
    assert -fitted[0] == pytest.approx(typicality.collapse_rate(p, Q), rel=0.02)
    assert logs[-1] < -100


def test_two_sided_region_repairs_the_sign_but_not_a_zero_margin() -> None:
    """Two-sided TTC falls for a hot target too; where E_q[-log p] = H(p) it does not, though KL > 0."""
    hot = log_normalise(Q / 1.25)
    one, two = (typicality.coverage(hot, Q, 400, two_sided=side) for side in (False, True))
    assert one.ttc > 0.999
    assert two.log_beta < -10
    u = utilities("iid", 1000, rng=2)

    def target(c: float) -> FloatArray:
        return log_normalise(Q + 0.3 * u - c * Q)

    low, high = -0.3, 0.3  # cold to hot: the margin changes sign in between
    assert divergences.collapse_margin(target(low), Q) > 0 > divergences.collapse_margin(target(high), Q)
    for _ in range(200):
        mid = (low + high) / 2
        low, high = (mid, high) if divergences.collapse_margin(target(mid), Q) > 0 else (low, mid)
    balanced = target(mid)
    assert divergences.kl(balanced, Q) > 0.01
    for side in (False, True):
        assert typicality.collapse_rate(balanced, Q, two_sided=side) < 1e-12
        assert typicality.coverage(balanced, Q, 3200, two_sided=side).ttc > 0.5


def test_rate_is_at_most_kl() -> None:
    for p in TARGETS.values():
        assert 0 < typicality.collapse_rate(p, Q) <= divergences.kl(p, Q) * (1 + 1e-9)


def test_interval_probabilities_in_every_position() -> None:
    law, values = zipf(3, 1.0), np.array([0.0, 1.0, 3.0])
    atoms, logs = sums.exact_sums(values, law, 6)  # type: ignore[misc]
    for low, high in ((-np.inf, 4.0), (1.0, 3.0), (5.0, 9.0), (14.0, 18.0), (17.5, np.inf)):
        expected = np.exp(logs[(atoms >= low - 1e-9) & (atoms <= high + 1e-9)]).sum()
        # both edges included: the lower one is moved below its atom
        got = np.exp(sums.log_interval(values, law, 6, low - 1e-6, high + 1e-6).value)
        assert got == pytest.approx(expected, rel=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("eta", [0.1, 5.0])
@pytest.mark.parametrize("kind", ["iid", "aligned", "anti_aligned"])
def test_no_overflow_at_the_largest_size(kind: str, eta: float) -> None:
    """V = 50,000, L = 4,000, eta = 5: every log stays finite or -inf, and nothing warns."""
    q = zipf(50_000, 1.2)
    p = log_normalise(q + eta * utilities(kind, 50_000, rng=0))
    got = typicality.coverage(p, q, 4000)
    assert 0.9 - 1e-6 <= got.alpha <= 1
    assert got.log_beta <= 0
    assert np.isfinite(got.log_second_moment)
    errors = divergences.first_token_errors(p, q, utilities(kind, 50_000, rng=0), 0.5, 4000, 1000)
    assert np.isfinite([errors.log_se_ips, errors.log_se_snips, errors.log_se_direct]).all()
    assert divergences.log_limit_ess(p, q, 4000) <= 0


@pytest.mark.slow
@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    vocab=st.integers(2, 1000),
    alpha=st.floats(0.0, 3.0),
    eta=st.floats(-5.0, 5.0),
    length=st.integers(1, 4000),
    kind=st.sampled_from(["iid", "aligned", "anti_aligned"]),
    two_sided=st.booleans(),
)
def test_invariants_hold_anywhere(
    vocab: int, alpha: float, eta: float, length: int, kind: str, two_sided: bool
) -> None:
    """Laws of probability and of divergence, for any world of the family and without a warning."""
    q = zipf(vocab, alpha)
    p = log_normalise(q + eta * utilities(kind, vocab, rng=1))
    got = typicality.coverage(p, q, length, two_sided=two_sided)
    low, high = got.beta_bracket
    assert 0.9 - 2e-3 <= got.alpha <= 1 + 1e-12
    assert low - 1e-9 <= got.log_beta <= high + 1e-9 <= 2e-9
    second = length * divergences.log1p_chi2(p, q)
    assert got.log_second_moment <= second + 1e-6 * max(1.0, second)  # E0[W^2 1_T] <= E0[W^2]
    if np.isfinite(got.log_beta) and high - low < 1e-2:
        assert got.log1p_chi2 >= -0.02  # chi-square within the region, up to the bracket
    assert divergences.kl(p, q) <= divergences.log1p_chi2(p, q) + 1e-12  # Jensen
    assert typicality.collapse_rate(p, q, two_sided=two_sided) <= divergences.kl(p, q) * (1 + 1e-6) + 1e-9


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sums.log_cdf(np.arange(3.0), zipf(3, 1.0), 0, 1.0), "at least 1"),
        (lambda: sums.log_cdf(-Q, Q, 400, 1000.0, points=256), "points=256"),
        (lambda: slow.log_cdf_bahadur_rao(-Q, Q, 10, 1000.0), "below the mean"),
        (lambda: slow.log_cdf_monte_carlo(-Q, Q, 10, 10.0, n=1), "at least 2"),
    ],
)
def test_bad_input_names_the_allowed_range(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]
