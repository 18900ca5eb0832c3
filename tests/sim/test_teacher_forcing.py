"""Teacher-forcing errors: a clone's ESS/n is hit exactly, laws, mechanisms in a row, the scenario that uses them."""

import numpy as np
import oracles_teacher_forcing as slow
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from cje_sim.scenarios import arena_like, clone_with_tf_noise, zipf_tilt
from cje_sim.tokens.teacher_forcing import (
    MAX_NATS,
    Noise,
    clone_log_limit_ess,
    log_moment,
    observe,
    sd_for_ess,
)

LENGTHS = np.random.default_rng(0).integers(20, 60, 500)
MIX = [
    Noise("drift", sd=0.02, per="token"),
    Noise("server", "laplace", sd=0.1, unit_mean=True),
    Noise("tokenizer", sd=0.2, offset=-0.3, share=0.1),
    Noise("gap", "missing", share=0.05),
]
INEXACT = [
    {"per": "token", "n_tokens": LENGTHS},
    {"share": 0.1},
    {"share": 0.3, "per": "token", "n_tokens": LENGTHS, "unit_mean": True},
    {"passes": 2, "share": 0.5},
]


def sd_for(ess: float, *, passes: int = 1, n_tokens: object = None, **noise: object) -> float:
    """The sd at which a clone with that noise has that ESS/n."""
    return sd_for_ess(ess, Noise("noise", **noise), passes=passes, n_tokens=n_tokens)


def limit(sd: float, *, passes: int = 1, n_tokens: object = None, **noise: object) -> float:
    """Limit of ESS/n of a clone with that noise."""
    one = [Noise("noise", sd=sd, **noise)]
    return float(np.exp(clone_log_limit_ess(one, logger=one * (passes - 1), n_tokens=n_tokens)))


@pytest.mark.parametrize("ess", [1.0, 0.99, 0.26, 1e-3])
def test_calibration_in_closed_form(ess: float) -> None:
    assert sd_for(ess) == np.sqrt(-np.log(ess))
    assert sd_for(ess, per="token", n_tokens=64) == pytest.approx(np.sqrt(-np.log(ess)) / 8, rel=1e-15)
    for law in ("normal", "laplace"):
        assert limit(sd_for(ess, law=law), law=law) == pytest.approx(ess, rel=1e-12)
        each_token = sd_for(ess, law=law, per="token", n_tokens=[400, 400], passes=2)
        assert limit(each_token, law=law, per="token", n_tokens=400, passes=2) == pytest.approx(
            ess, rel=1e-11
        )
    s = sd_for(ess, law="laplace")
    assert (1 - 2 * s**2) / (1 - s**2 / 2) ** 2 == pytest.approx(ess, rel=1e-12)


@pytest.mark.parametrize("setting", INEXACT)
@pytest.mark.parametrize("law", ["normal", "laplace"])
@pytest.mark.parametrize("ess", [0.999, 0.26, 0.01])
def test_calibration_of_mixtures(ess: float, law: str, setting: dict) -> None:
    """Random lengths, shares of rows, two passes: solved, and monotone around the solution."""
    sd = sd_for(ess, law=law, **setting)
    assert limit(sd, law=law, **setting) == pytest.approx(ess, rel=1e-8)
    assert limit(0.99 * sd, law=law, **setting) > ess > limit(1.01 * sd, law=law, **setting)


def test_random_length_makes_per_token_noise_worse() -> None:
    """E[W | length] = exp(length sd^2/2) varies, so the fixed-length sd at the mean length is too large."""
    assert sd_for(0.26, per="token", n_tokens=LENGTHS) < sd_for(0.26) / np.sqrt(LENGTHS.mean())
    centred = sd_for(0.26, per="token", n_tokens=LENGTHS, unit_mean=True)
    assert np.mean(np.exp(LENGTHS * centred**2)) == pytest.approx(1 / 0.26, rel=1e-10)


@pytest.mark.parametrize("order", [1.0, 2.0, -1.0])
def test_moments_against_quadrature_and_enumeration(order: float) -> None:
    noises, lengths = MIX[:3], [1, 3, 7]
    expected = np.log(slow.moment(noises, order, lengths))
    assert log_moment(noises, order, n_tokens=lengths) == pytest.approx(expected, abs=1e-10)
    assert log_moment(MIX, order, n_tokens=lengths) == log_moment(noises, order, n_tokens=lengths)
    assert log_moment([], -order, logger=noises, n_tokens=lengths) == pytest.approx(expected, abs=1e-12)


def test_infinite_moments_are_infinite() -> None:
    student = [Noise("t", "student_t", sd=0.01, df=30.0)]
    assert log_moment(student, 1.0) == log_moment(student, -1.0) == np.inf
    assert clone_log_limit_ess(student) == -np.inf
    assert log_moment([Noise("t", "student_t", sd=0.01, share=0.0)], 2.0) == 0.0
    heavy = [Noise("l", "laplace", sd=1.0)]  # E[W] finite, E[W^2] not
    assert np.isfinite(log_moment(heavy, 1.0))
    assert log_moment(heavy, 2.0) == np.inf
    assert clone_log_limit_ess(heavy) == -np.inf
    assert np.isfinite(clone_log_limit_ess([Noise("l", "laplace", sd=0.707)]))


@pytest.mark.parametrize(("law", "ess"), [("normal", 0.26), ("laplace", 0.9)])
def test_simulated_clone_reaches_the_limit(law: str, ess: float) -> None:
    """ESS/n within 5 exact SE at n = 2e6; a Laplace ESS below .85 has no SE (E[W^4] is infinite)."""
    n, noises = 2_000_000, [Noise("noise", law, sd=sd_for(ess, law=law), unit_mean=True)]
    w = np.exp(observe(np.full(n, -90.0), noises, rng=1).log_prob + 90.0)
    se = ess * slow.clone_ess_relative_se(noises, n, log_moment)
    got = w.mean() ** 2 / (w**2).mean()
    assert se < 0.01 * ess
    assert abs(got - ess) < 5 * se
    planted = np.exp(1.05 * np.log(w))  # an sd that is 5% too large shows
    assert abs(planted.mean() ** 2 / (planted**2).mean() - ess) > 5 * se


def test_simulated_moments_of_a_mixture() -> None:
    """E[W] and E[W^2] within 5 exact SE, with random lengths and every kind of mechanism."""
    lengths = np.tile(LENGTHS, 1000)
    got = observe(np.zeros(len(lengths)), MIX, n_tokens=lengths, rng=2).log_prob
    w = np.exp(got[~np.isnan(got)])
    for k in (1, 2):
        mean, square = (np.exp(log_moment(MIX, float(j), n_tokens=LENGTHS)) for j in (k, 2 * k))
        assert abs((w**k).mean() - mean) < 5 * np.sqrt((square - mean**2) / len(w))


@pytest.mark.parametrize("per", ["response", "token"])
@pytest.mark.parametrize("law", ["normal", "laplace", "student_t"])
def test_law_of_the_error(law: str, per: str) -> None:
    """Kolmogorov-Smirnov at level 1e-6 against sums of SciPy's draws; an sd off by 10% is caught."""
    n, noise = 100_000, Noise("noise", law, sd=0.7, offset=-0.2, per=per)
    error = observe(np.zeros((2, n)), [noise], n_tokens=5, rng=3).error[0, 1]
    plain = slow.summed_errors(noise, n, 5, seed=4)
    assert stats.ks_2samp(error, plain).pvalue > 1e-6
    centre = -1.0 if per == "token" else -0.2
    assert stats.ks_2samp(centre + 1.1 * (error - centre), plain).pvalue < 1e-6


def test_student_ess_keeps_falling_while_normal_does_not() -> None:
    """With equal sd, medians over 40 samples: no limit above 0 for Student's t, exp(-s^2) for the normal."""

    def median_ess(law: str, n: int) -> float:
        w = np.exp(observe(np.zeros((40, n)), [Noise("noise", law, sd=1.0)], rng=5).log_prob)
        return float(np.median(w.mean(1) ** 2 / (w**2).mean(1)))

    assert median_ess("student_t", 50_000) < 0.1 * median_ess("student_t", 100)
    assert median_ess("normal", 50_000) == pytest.approx(np.exp(-1), rel=0.1)


def errors(sd):
    """Mechanisms that err, with a standard deviation from a given strategy."""
    return st.builds(
        Noise,
        reason=st.just("any"),
        law=st.sampled_from(["normal", "laplace", "student_t"]),
        sd=sd,
        offset=st.floats(-MAX_NATS, MAX_NATS),
        per=st.sampled_from(["response", "token"]),
        share=st.floats(0, 1),
        df=st.floats(2.01, 50),
    )


GAPS = st.builds(Noise, reason=st.just("gap"), law=st.just("missing"), share=st.floats(0, 1))
NOISES = errors(st.floats(0, MAX_NATS)) | GAPS
MILD = errors(st.floats(0, 1e6, exclude_min=True, exclude_max=True))
TOKENS = np.array([1, 4, 9, 2])


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(NOISES, max_size=3), st.lists(NOISES, max_size=3), st.integers(0, 2**32))
@example([Noise("rare", offset=1.0, share=2e-311)], [], 0)
def test_composition(first: list[Noise], second: list[Noise], seed: int) -> None:
    """Mechanisms in one call or in two with the same generator: equal bit for bit, and nothing overflows."""
    exact = np.array([[-1.0, -50.0, np.nan, -np.inf], [-3.0, 0.0, -2e4, -7.0]])
    kept = exact.copy()
    whole = observe(exact, [*first, *second], n_tokens=TOKENS, rng=seed)
    rng = np.random.default_rng(seed)
    one = observe(exact, first, n_tokens=TOKENS, rng=rng)
    two = observe(one.log_prob, second, n_tokens=TOKENS, rng=rng)
    assert np.array_equal(whole.log_prob, two.log_prob, equal_nan=True)
    assert np.array_equal(whole.error, np.concatenate([one.error, two.error]))
    assert np.array_equal(whole.touched, np.concatenate([one.touched, two.touched]))
    assert np.array_equal(exact, kept, equal_nan=True)
    assert np.isfinite(whole.error).all()
    assert (np.isfinite(whole.log_prob) | np.isnan(whole.log_prob) | np.isneginf(exact)).all()
    clean = ~whole.touched.any(axis=0)
    assert np.array_equal(whole.log_prob[clean], exact[clean], equal_nan=True)
    assert whole.mechanisms.rows.tolist() == whole.touched.sum(axis=(1, 2)).tolist()
    assert (whole.error[~whole.touched] == 0).all()
    for order in (1.0, 2.0):
        assert not np.isnan(log_moment(first, order, n_tokens=TOKENS))
    assert not clone_log_limit_ess(first, n_tokens=TOKENS) > 1e-6 * max(
        [1.0, *(abs(x.offset) + x.sd**2 for x in first)]
    )


@pytest.mark.slow
@settings(deadline=None)
@given(MILD, st.floats(1e-3, 10), st.integers(0, 2**32))
def test_errors_are_proportional_to_sd_at_one_seed(noise: Noise, factor: float, seed: int) -> None:
    at = {"law": noise.law, "per": noise.per, "share": noise.share, "df": noise.df}
    small = observe(np.zeros(4), [Noise("a", sd=noise.sd, **at)], n_tokens=TOKENS, rng=seed).error
    large = observe(np.zeros(4), [Noise("a", sd=factor * noise.sd, **at)], n_tokens=TOKENS, rng=seed).error
    assert large == pytest.approx(factor * small, rel=1e-12)


def test_huge_noise_stays_in_log_space() -> None:
    noises = [Noise("noise", sd=MAX_NATS, per="token", unit_mean=True), Noise("far", offset=-MAX_NATS)]
    lengths = np.full(1000, 1_000_000)
    got = observe(np.full(1000, -1e7), noises, n_tokens=lengths, rng=6)
    assert np.isfinite(got.log_prob).all()
    assert np.isfinite(got.mechanisms[["mean", "sd"]]).all(axis=None)
    assert clone_log_limit_ess(noises, n_tokens=lengths) == pytest.approx(-1e106, rel=1e-9)
    assert sd_for(1e-300) == np.sqrt(-np.log(1e-300))


def test_ledger_accounts_for_every_row() -> None:
    n = 20_000
    noises = [
        Noise("tokenizer", offset=-20.0, share=0.2),
        Noise("gap", "missing", share=0.1),
        Noise("second gap", "missing", share=0.3),
    ]
    got = observe(np.full((2, n), -30.0), noises, rng=7)
    assert got.mechanisms.reason.tolist() == ["tokenizer", "gap", "second gap"]
    for share, rows in zip((0.2, 0.1, 0.9 * 0.3), got.mechanisms.rows, strict=True):
        assert abs(rows / (2 * n) - share) < 5 * np.sqrt(share * (1 - share) / (2 * n))
    assert got.mechanisms.share.tolist() == (got.mechanisms.rows / (2 * n)).tolist()
    assert got.mechanisms.loc[0, ["mean", "sd"]].tolist() == [-20.0, 0.0]
    assert got.mechanisms.loc[1:, ["mean", "sd"]].isna().all(axis=None)
    assert not (got.touched[1] & got.touched[2]).any()
    assert np.array_equal(np.isnan(got.log_prob), got.touched[1] | got.touched[2])
    assert np.array_equal(got.log_prob == -50.0, got.touched[0] & ~np.isnan(got.log_prob))
    empty = observe(np.zeros(0), noises, rng=7)
    assert empty.mechanisms.rows.tolist() == [0, 0, 0]
    assert observe([-1.0], []).mechanisms.empty


def test_determinism_and_no_global_state() -> None:
    state = np.random.get_state()[1].copy()  # noqa: NPY002 - read only
    first = observe(np.zeros(50), MIX, n_tokens=9, rng=8)
    again = observe(np.zeros(50), MIX, n_tokens=9, rng=np.random.default_rng(8))
    other = observe(np.zeros(50), MIX, n_tokens=9, rng=9)
    assert (np.random.get_state()[1] == state).all()  # noqa: NPY002
    assert np.array_equal(first.log_prob, again.log_prob, equal_nan=True)
    assert first.mechanisms.equals(again.mechanisms)
    assert not np.array_equal(first.log_prob, other.log_prob, equal_nan=True)


def test_limit_agrees_with_a_scenario_that_derives_its_own() -> None:
    """arena_like: the clone's only error is normal with sd 1.5 on 10% of rows."""
    exact = float(arena_like.overlap(noise_share=0.1, noise_sd=1.5).log10_ess.sel(policy="clone"))
    ours = clone_log_limit_ess([Noise("noise", sd=1.5, share=0.1)]) / np.log(10)
    assert ours == pytest.approx(
        exact, abs=1e-6
    )  # the scenario's own weights are a midpoint sum over lengths


@pytest.mark.parametrize("law", ["normal", "laplace"])
def test_scenario_separates_noise_from_coverage(law: str) -> None:
    world = {"length": 20, "noise_law": law, "noise_sd": 0.3, "mismatch": 0.1, "mismatch_sd": 0.2}
    data = clone_with_tf_noise.simulate(n=100_000, rng=10, missing=0.2, **world)
    same = zipf_tilt.simulate(n=100_000, rng=10, length=20, eta=clone_with_tf_noise.ETA)
    assert np.array_equal(data.logp_logger, same.logp_logger)
    error = (data.logp_target - same.logp_target).values
    assert (error[0] == 0).all()
    there = np.isfinite(error)
    assert (np.abs(1 - there[1:].mean(1) - 0.2) < 5 * np.sqrt(0.16 / 1e5)).all()
    exact = clone_with_tf_noise.overlap(**world)
    lost = (exact.log10_ess - exact.true_log10_ess).values
    for i in (1, 2):
        w = np.exp(error[i][there[i]])
        influence = 2 * w / w.mean() - w**2 / (w**2).mean() - 1
        ratio = w.mean() ** 2 / (w**2).mean()
        assert abs(ratio / 10 ** lost[i] - 1) < 5 * influence.std() / np.sqrt(len(w))
    assert exact.true_log10_ess.sel(policy="clone") == pytest.approx(0.0, abs=1e-12)
    hopeless = clone_with_tf_noise.overlap(noise_law="student_t")
    assert (hopeless.log10_ess[1:] == -np.inf).all()
    assert len(clone_with_tf_noise.simulate(n=20, rng=0, noise_law="student_t").prompt) == 20


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Noise("a", "cauchy"), "one of normal"),
        (lambda: Noise("a", per="word"), "one of response, token"),
        (lambda: Noise("a", sd=-1.0), r"\[0, 1e\+50\]"),
        (lambda: Noise("a", sd=np.nan), r"\[0, 1e\+50\]"),
        (lambda: Noise("a", offset=np.inf), r"within \+-1e\+50"),
        (lambda: Noise("a", share=1.5), r"\[0, 1\]"),
        (lambda: Noise("a", "student_t", df=2.0), "> 2"),
        (lambda: Noise("a", "missing", sd=1.0), "takes a share"),
        (lambda: Noise("a", "student_t", sd=1.0, unit_mean=True), "no mean"),
        (lambda: Noise("a", "laplace", sd=1.5, unit_mean=True), r"sqrt\(2\)"),
        (lambda: observe(-1.0, []), r"\(\.\.\., n\)"),
        (lambda: observe([np.inf], []), "below"),
        (lambda: observe([-1.0], [Noise("a", sd=1.0, per="token")]), "needs n_tokens"),
        (lambda: observe([-1.0], [], n_tokens=[1, 2]), "broadcast"),
        (lambda: observe([-1.0], [], n_tokens=0), "integers >= 1"),
        (lambda: observe([-1.0], [], n_tokens=2.5), "integers >= 1"),
        (lambda: sd_for(0.0), r"\(0, 1\]"),
        (lambda: sd_for(np.nan), r"\(0, 1\]"),
        (lambda: sd_for(0.5, law="student_t"), "no mean"),
        (lambda: sd_for(0.5, law="missing"), "a law with an sd"),
        (lambda: sd_for(0.5, share=0.0), r"\(0, 1\]"),
        (lambda: sd_for(0.5, passes=3), "1 or 2"),
        (lambda: sd_for(0.5, passes=2, unit_mean=True), "one pass"),
        (lambda: sd_for(0.5, per="token"), "needs n_tokens"),
        (lambda: sd_for(1e-20, law="laplace"), "within rounding"),
        (lambda: clone_with_tf_noise.simulate(missing=1.5), r"\[0, 1\]"),
        (lambda: clone_with_tf_noise.simulate(noise_sd=-1.0), "must lie in"),
    ],
)
def test_bad_input_names_the_allowed_range(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
