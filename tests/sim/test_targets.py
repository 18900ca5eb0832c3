"""Target policies: each samples what it scores, and its divergences are those of enumeration."""

from collections.abc import Callable

import numpy as np
import oracles_sim as slow
import pytest
from scipy import stats

from cje_sim.exact.markov import Divergence, divergence
from cje_sim.targets import responses as sequence_policies
from cje_sim.targets.responses import BestOfN, CountTilt, EpsilonMixture
from cje_sim.targets.tilts import (
    additive_tilt,
    adversarial_utility,
    clone,
    first_token_tilt,
    temperature,
    token_mixture,
    token_tilt,
    utilities,
)
from cje_sim.tokens.laws import TokenPolicy, by_prompt, iid_policy, log_normalise, markov_policy, zipf

U = np.array([0.5, -1.0, 1.3])
IID = iid_policy(zipf(3, 1.2), 4)
MARKOV = markov_policy(
    zipf(3, 1.2), log_normalise(np.random.default_rng(1).standard_normal((3, 3))), 4, stop=1
)
CLASSES = by_prompt([IID, iid_policy(zipf(3, 0.2), 4)], [0.4, 0.6])
GAIN = np.array([0.0, 1.0, 3.0, 1.0, -2.0])

TARGETS: dict[str, tuple[TokenPolicy, "TokenPolicy | CountTilt | EpsilonMixture | BestOfN"]] = {
    "token_tilt": (IID, token_tilt(IID, U, 0.7)),
    "token_tilt_markov": (MARKOV, token_tilt(MARKOV, U, 0.7)),
    "first_token": (IID, first_token_tilt(IID, U, 0.8).policy),
    "additive": (IID, additive_tilt(IID, U, 2.0).policy),
    "temperature": (MARKOV, temperature(MARKOV, 1.25)),
    "token_mixture": (IID, token_mixture(IID, token_tilt(IID, U, 2.0), 0.2)),
    "clone": (MARKOV, clone(MARKOV)),
    "count": (IID, CountTilt(IID, (0, 2), GAIN, 1.5)),
    "mixture": (IID, EpsilonMixture(IID, token_tilt(IID, U, 1.0), 0.3)),
    "mixture_markov": (MARKOV, EpsilonMixture(MARKOV, temperature(MARKOV, 0.7), 0.3)),
    "best_of_4": (IID, BestOfN(IID, U, 4)),
    "best_of_4_noisy": (MARKOV, BestOfN(MARKOV, U, 4, noise_sd=0.5)),
}


def scored(policy: object, listed: list[tuple[int, ...]]) -> np.ndarray:
    return policy.score(slow.as_responses(listed))  # type: ignore[attr-defined, no-any-return]


def token_divergence(name: str) -> Divergence:
    """Divergence of the tokens' law (best of n with noise reports that of tokens and reward)."""
    base, target = TARGETS[name]
    if isinstance(target, TokenPolicy):
        return divergence(target, base)
    if isinstance(target, BestOfN):
        return divergence(target.marginal, base)
    return target.divergence()


@pytest.mark.parametrize("name", TARGETS)
def test_density_sums_to_one_and_divergences_are_exact(name: str) -> None:
    base, target = TARGETS[name]
    listed = slow.sequences(base)
    log_p, log_q = scored(target, listed), scored(base, listed)
    p = np.exp(log_p)
    assert p.sum() == pytest.approx(1.0, abs=1e-12)
    got = token_divergence(name)
    assert got.kl == pytest.approx(p @ (log_p - log_q), abs=1e-10)
    assert np.exp(got.log1p_chi2) == pytest.approx(p @ np.exp(log_p - log_q), rel=1e-10)
    assert got.mean_length == pytest.approx(p @ [len(a) for a in listed], rel=1e-10)


@pytest.mark.parametrize("name", TARGETS)
def test_samples_follow_the_density(name: str) -> None:
    """Pearson's chi-square over every response; the bound is its 1 - 1e-6 quantile."""
    base, target = TARGETS[name]
    listed, n = slow.sequences(base), 100_000
    place = {a: i for i, a in enumerate(listed)}
    drawn = target.sample(n, rng=3).tokens
    observed = np.zeros(len(listed))
    for row, count in zip(*np.unique(drawn, axis=0, return_counts=True), strict=True):
        observed[place[tuple(int(t) for t in row if t >= 0)]] = count
    expected = n * np.exp(scored(target, listed))
    assert ((observed - expected) ** 2 / expected).sum() < stats.chi2.ppf(1 - 1e-6, len(listed) - 1)


def test_sequence_tilts_are_pi0_exp_r_over_z() -> None:
    listed = slow.sequences(IID)
    log_q = scored(IID, listed)
    rewards: dict[str, tuple[object, float, Callable[[tuple[int, ...]], float], float]] = {
        "first": (*first_token_tilt(IID, U, 0.8), lambda a: U[a[0]], 0.8),
        "additive": (*additive_tilt(IID, U, 2.0), lambda a: sum(U[list(a)]), 2.0),
        "count": (
            TARGETS["count"][1],
            TARGETS["count"][1].log_z,  # type: ignore[union-attr]
            lambda a: GAIN[sum(t in (0, 2) for t in a)],
            1.5,
        ),
    }
    for policy, log_z, reward, beta in rewards.values():
        tilt = np.array([reward(a) for a in listed]) / beta
        z = np.exp(log_q) @ np.exp(tilt)
        assert np.exp(log_z) == pytest.approx(z, rel=1e-12)
        assert scored(policy, listed) == pytest.approx(log_q + tilt - np.log(z), abs=1e-12)


def test_first_token_tilt_acts_in_each_prompt_class() -> None:
    target, log_z = first_token_tilt(CLASSES, U, 1.0)
    assert log_z.shape == (2,)
    assert np.exp(log_z) == pytest.approx(np.exp(CLASSES.log_prob[:, 0]) @ np.exp(U))
    got = divergence(target, CLASSES)
    kl = [np.exp(target.log_prob[k, 0]) @ (target.log_prob[k, 0] - CLASSES.log_prob[k, 0]) for k in (0, 1)]
    assert got.kl == pytest.approx(0.4 * kl[0] + 0.6 * kl[1], rel=1e-10)


@pytest.mark.parametrize("noise_sd", [0.0, 0.5])
def test_best_of_n_against_its_definition(noise_sd: float) -> None:
    """Winners of n candidates follow the marginal; log ratios have mean weight one and the closed-form moments."""
    target, n = BestOfN(IID, U, 4, noise_sd=noise_sd), 200_000
    drawn, reward = target.sample_with_reward(n, rng=5)
    first = np.exp(target.marginal.log_prob[0, 0])
    freq = np.bincount(drawn.tokens[:, 0], minlength=3) / n
    assert (np.abs(freq - first) < 5 * np.sqrt(first * (1 - first) / n)).all()
    log_w = target.log_ratio(reward)
    got = target.divergence()
    for value, expected in ((log_w, got.kl), (np.exp(log_w), np.exp(got.log1p_chi2))):
        assert abs(value.mean() - expected) < 5 * value.std() / np.sqrt(n)
    rng = np.random.default_rng(6)
    logged = IID.sample(n, rng=rng)
    weight = np.exp(target.log_ratio(U[logged.tokens[:, 0]] + noise_sd * rng.standard_normal(n)))
    assert abs(weight.mean() - 1) < 5 * weight.std() / np.sqrt(n)


def test_best_of_one_is_the_logger() -> None:
    for sd in (0.0, 0.5):
        assert BestOfN(IID, U, 1, noise_sd=sd).marginal.log_prob == pytest.approx(IID.log_prob, abs=1e-12)


def test_mixture_keeps_its_weights_above_one_minus_epsilon_and_fft_agrees_with_atoms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    base = iid_policy(zipf(4, 1.2), 8)
    target = EpsilonMixture(base, token_tilt(base, utilities("iid", 4, rng=0), 0.5), 0.2)
    responses = base.sample(1000, rng=0)
    assert (target.score(responses) - base.score(responses)).min() > np.log(0.8)
    by_atoms = target.divergence()
    monkeypatch.setattr(sequence_policies, "exact_sums", lambda *_: None)
    assert target.divergence().kl == pytest.approx(by_atoms.kl, rel=1e-6)


def test_utilities() -> None:
    draws, up, down = (utilities(kind, 200, rng=4) for kind in ("iid", "aligned", "anti_aligned"))
    assert np.array_equal(np.sort(draws), down)
    assert np.array_equal(up, down[::-1])
    assert utilities("token_set", 5, tokens=[1, 3]).tolist() == [0, 1, 0, 1, 0]


@pytest.mark.parametrize("eta", [0.5, 1.0, 2.0])
def test_adversarial_target_has_high_judge_scores_and_low_oracle_outcomes(eta: float) -> None:
    logger = iid_policy(zipf(200, 1.2), 10)
    oracle = utilities("iid", 200, rng=2)
    judge = adversarial_utility(oracle, logger.log_prob[0, 0], share=0.1, bonus=8.0)
    exploited = np.exp(logger.log_prob[0, 0])[judge > oracle].sum()
    assert 0.03 < exploited <= 0.1
    target = token_tilt(logger, judge, eta)
    change = np.exp(target.log_prob[0, 0]) - np.exp(logger.log_prob[0, 0])
    assert change @ judge > 1
    assert change @ oracle < -0.5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: utilities("rank", 5), "one of iid"),
        (lambda: utilities("token_set", 5), "0..4"),
        (lambda: utilities("token_set", 5, tokens=[5]), "0..4"),
        (lambda: token_tilt(IID, U[:2], 1.0), "3 finite numbers"),
        (lambda: token_tilt(IID, U, np.inf), "finite"),
        (lambda: first_token_tilt(IID, U, 0.0), "> 0"),
        (lambda: additive_tilt(MARKOV, U, 1.0), "i.i.d. tokens of fixed length"),
        (lambda: temperature(IID, -1.0), "> 0"),
        (lambda: token_mixture(IID, MARKOV, 0.5), "must agree"),
        (lambda: token_mixture(IID, IID, 1.0), r"\(0, 1\)"),
        (lambda: adversarial_utility(U, IID.log_prob[0, 0], share=1.0), r"\(0, 1\)"),
        (lambda: adversarial_utility(U[:2], IID.log_prob[0, 0]), "token law"),
        (lambda: CountTilt(MARKOV, (0,), GAIN, 1.0), "i.i.d. tokens"),
        (lambda: CountTilt(IID, (0,), GAIN[:3], 1.0), "L \\+ 1 = 5"),
        (lambda: CountTilt(IID, (0, 1, 2), GAIN, 1.0), "every token"),
        (lambda: CountTilt(IID, (0,), GAIN, 0.0), "> 0"),
        (lambda: EpsilonMixture(IID, IID, 0.0), r"\(0, 1\)"),
        (lambda: EpsilonMixture(IID, MARKOV, 0.5).divergence(), "must agree"),
        (lambda: BestOfN(IID, U, 0), "n >= 1"),
        (lambda: BestOfN(IID, U, 2, noise_sd=-1.0), ">= 0"),
    ],
)
def test_bad_input_names_the_allowed_range(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]
