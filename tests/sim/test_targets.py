"""Target policies: each samples what it scores, and its divergences are those of enumeration."""

import numpy as np
import oracles_sim as slow
import pytest
from scipy import stats

from cje_sim.exact.markov import divergence
from cje_sim.targets.tilts import (
    clone,
    temperature,
    token_tilt,
    utilities,
)
from cje_sim.tokens.laws import iid_policy, log_normalise, markov_policy, zipf

U = np.array([0.5, -1.0, 1.3])
IID = iid_policy(zipf(3, 1.2), 4)
MARKOV = markov_policy(
    zipf(3, 1.2), log_normalise(np.random.default_rng(1).standard_normal((3, 3))), 4, stop=1
)

TARGETS = {
    "token_tilt": (IID, token_tilt(IID, U, 0.7)),
    "token_tilt_markov": (MARKOV, token_tilt(MARKOV, U, 0.7)),
    "temperature": (MARKOV, temperature(MARKOV, 1.25)),
    "clone": (MARKOV, clone(MARKOV)),
}


def scored(policy: object, listed: list[tuple[int, ...]]) -> np.ndarray:
    return policy.score(slow.as_responses(listed))  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize("name", TARGETS)
def test_density_sums_to_one_and_divergences_are_exact(name: str) -> None:
    base, target = TARGETS[name]
    listed = slow.sequences(base)
    log_p, log_q = scored(target, listed), scored(base, listed)
    p = np.exp(log_p)
    assert p.sum() == pytest.approx(1.0, abs=1e-12)
    got = divergence(target, base)
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


def test_utilities() -> None:
    draws, up, down = (utilities(kind, 200, rng=4) for kind in ("iid", "aligned", "anti_aligned"))
    assert np.array_equal(np.sort(draws), down)
    assert np.array_equal(up, down[::-1])
    assert utilities("token_set", 5, tokens=[1, 3]).tolist() == [0, 1, 0, 1, 0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: utilities("rank", 5), "one of iid"),
        (lambda: utilities("token_set", 5), "0..4"),
        (lambda: utilities("token_set", 5, tokens=[5]), "0..4"),
        (lambda: token_tilt(IID, U[:2], 1.0), "3 finite numbers"),
        (lambda: token_tilt(IID, U, np.inf), "finite"),
        (lambda: temperature(IID, -1.0), "> 0"),
    ],
)
def test_bad_input_names_the_allowed_range(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]
