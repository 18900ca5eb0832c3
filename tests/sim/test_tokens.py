"""Token policies: exact log-probabilities by enumeration, sampling frequencies, purity, bad input, speed."""

import time
import tracemalloc

import numpy as np
import oracles_sim as slow
import pytest
from scipy import stats

from cje_sim.tokens.laws import (
    TokenPolicy,
    by_prompt,
    iid_policy,
    log_normalise,
    markov_policy,
    markov_with_stationary,
    sample_sums,
    token_sums,
    zipf,
)

LAW = log_normalise([0.3, -0.2, 0.9])
CHAIN = log_normalise(np.random.default_rng(3).standard_normal((3, 3)))
POLICIES = {
    "iid": iid_policy(LAW, 4),
    "stop": iid_policy(LAW, 4, stop=1),
    "markov": markov_policy(LAW, CHAIN, 4),
    "markov_stop": markov_policy(LAW, CHAIN, 4, stop=2),
}


@pytest.mark.parametrize("name", POLICIES)
def test_log_probabilities_sum_to_one_and_match_the_chain_rule(name: str) -> None:
    policy = POLICIES[name]
    listed = slow.sequences(policy)
    scored = policy.score(slow.as_responses(listed))
    assert np.exp(scored).sum() == pytest.approx(1.0, abs=1e-12)
    assert scored == pytest.approx([slow.log_prob(policy, a) for a in listed], abs=1e-12)


@pytest.mark.parametrize("name", POLICIES)
def test_sampling_frequencies(name: str) -> None:
    """Pearson's chi-square over every sequence; the bound is its 1 - 1e-6 quantile."""
    policy, n = POLICIES[name], 200_000
    listed = slow.sequences(policy)
    place = {a: i for i, a in enumerate(listed)}
    drawn = policy.sample(n, rng=11).tokens
    rows, counts = np.unique(drawn, axis=0, return_counts=True)
    observed = np.zeros(len(listed))
    for row, count in zip(rows, counts, strict=True):
        observed[place[tuple(int(t) for t in row if t >= 0)]] = count
    expected = n * np.exp([slow.log_prob(policy, a) for a in listed])
    statistic = ((observed - expected) ** 2 / expected).sum()
    bound = stats.chi2.ppf(1 - 1e-6, len(listed) - 1)
    assert statistic < bound
    planted = expected * np.where(np.arange(len(listed)) % 2, 1.05, 0.95)  # the check would notice 5%
    assert ((observed - planted) ** 2 / planted).sum() > bound


@pytest.mark.parametrize("name", POLICIES)
def test_streamed_sums_are_those_of_the_stored_tokens(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = POLICIES[name]
    tables = np.random.default_rng(0).standard_normal((*policy.log_prob.shape, 3))
    stored = policy.sample(1000, rng=5)
    whole = sample_sums(policy, tables, 1000, rng=5)
    monkeypatch.setattr("cje_sim.tokens.laws.BLOCK_TOKENS", 28)  # many small blocks, the same stream
    for k in (1, 2, 3):
        blocks = sample_sums(policy, tables[..., :k], 1000, rng=5)
        assert np.array_equal(blocks.sums, whole.sums[:, :k])
        assert np.array_equal(blocks.sums, token_sums(policy, tables[..., :k], stored))
    assert np.array_equal(whole.n_tokens, (stored.tokens >= 0).sum(axis=1))
    assert np.array_equal(whole.first_token, stored.tokens[:, 0])


def test_prompt_classes_follow_their_own_law() -> None:
    policy = by_prompt([iid_policy(LAW, 2), iid_policy(LAW[::-1].copy(), 2)], [0.25, 0.75])
    drawn = policy.sample(100_000, rng=2)
    assert abs(drawn.prompt_class.mean() - 0.75) < 5 * np.sqrt(0.25 * 0.75 / 100_000)
    for k, law in enumerate((LAW, LAW[::-1])):
        tokens = drawn.tokens[drawn.prompt_class == k].ravel()
        p = np.exp(law)
        freq = np.bincount(tokens, minlength=3) / tokens.size
        assert (np.abs(freq - p) < 5 * np.sqrt(p * (1 - p) / tokens.size)).all()
        listed = slow.sequences(policy)
        scored = policy.score(slow.as_responses(listed, k))
        assert scored == pytest.approx([slow.log_prob(policy, a, k) for a in listed], abs=1e-12)
    assert np.array_equal(policy.sample(5, prompt_class=[0, 1, 1, 0, 1], rng=1).prompt_class, [0, 1, 1, 0, 1])


@pytest.mark.parametrize(("spread", "persistence"), [(0.0, 0.0), (1.0, 0.0), (2.0, 0.7)])
def test_markov_chain_keeps_its_stationary_law(spread: float, persistence: float) -> None:
    law = zipf(30, 1.2)
    chain = markov_with_stationary(law, spread=spread, persistence=persistence, rng=1)
    assert np.exp(chain).sum(axis=1) == pytest.approx(1.0, abs=1e-12)
    assert np.exp(law) @ np.exp(chain) == pytest.approx(np.exp(law), abs=1e-11)
    if spread == persistence == 0:
        assert chain == pytest.approx(np.tile(law, (30, 1)), abs=1e-12)


def test_zipf_at_a_large_vocabulary() -> None:
    law = zipf(50_000, 1.2)
    drawn = iid_policy(law, 100).sample(20_000, rng=4).tokens
    p = np.exp(law)
    freq = np.bincount(drawn.ravel(), minlength=50_000) / drawn.size
    common = p * drawn.size > 100
    assert (np.abs(freq - p)[common] < 5.5 * np.sqrt(p * (1 - p) / drawn.size)[common]).all()


def test_the_generator_governs_every_token() -> None:
    policy = POLICIES["markov"]
    assert np.array_equal(
        policy.sample(50, rng=9).tokens, policy.sample(50, rng=np.random.default_rng(9)).tokens
    )
    assert not np.array_equal(policy.sample(50, rng=9).tokens, policy.sample(50, rng=10).tokens)
    before = policy.log_prob.copy()
    np.random.default_rng(0)
    policy.score(policy.sample(10, rng=0))
    assert np.array_equal(policy.log_prob, before)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: zipf(1, 1.2), "at least 2"),
        (lambda: zipf(10, -1.0), "finite and >= 0"),
        (lambda: iid_policy(LAW, 0), "at least 1"),
        (lambda: iid_policy([0.0, 0.0], 3), "not normalised"),
        (lambda: iid_policy(LAW, 3, stop=3), "0..2"),
        (lambda: iid_policy(CHAIN, 3), "one axis"),
        (lambda: markov_policy(LAW, CHAIN[:2], 3), r"\(V, V\)"),
        (lambda: TokenPolicy(LAW, 3), "axes"),
        (lambda: TokenPolicy(np.tile(LAW, (1, 3, 1)), 3), "rows a class"),
        (lambda: by_prompt([POLICIES["iid"], POLICIES["stop"]], [0.5, 0.5]), "must agree"),
        (lambda: by_prompt([POLICIES["iid"]] * 2, [0.5, 0.6]), "sum to 1"),
        (lambda: markov_with_stationary(LAW, persistence=1.0), r"\[0, 1\)"),
        (lambda: markov_with_stationary(LAW, spread=-1.0), ">= 0"),
        (lambda: POLICIES["iid"].sample(-1), ">= 0"),
        (lambda: POLICIES["iid"].sample(2, prompt_class=[0, 1]), "0..0"),
        (lambda: sample_sums(POLICIES["iid"], np.zeros((1, 2, 4, 1)), 2), "tables have shape"),
        (lambda: POLICIES["iid"].score(slow.as_responses([(0, 1, 3)])), "0..2"),
        (lambda: POLICIES["iid"].score(slow.as_responses([(0,) * 5])), "at most 4"),
    ],
)
def test_bad_input_names_the_allowed_range(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]


def test_memory_of_sums_is_flat_in_length() -> None:
    """Peak allocation: the same for four times the tokens."""
    law, n = zipf(1000, 1.2), 20_000

    def peak(length: int) -> int:
        policy = iid_policy(law, length)
        tables = np.stack([-policy.log_prob, policy.log_prob], axis=-1)
        sample_sums(policy, tables, 1000, rng=0)
        tracemalloc.start()
        total = sample_sums(policy, tables, n, rng=0).sums[:, 0].sum()
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert abs(total / (n * length) - float(np.exp(law) @ -law)) < 0.05
        return used

    assert peak(200) < 1.2 * peak(50)


@pytest.mark.slow
@pytest.mark.parametrize("vocab", [1000, 50_000])
def test_sampling_costs_at_most_three_times_numpy_integers(vocab: int) -> None:
    policy = iid_policy(zipf(vocab, 1.2), 400)
    policy.sample(10, rng=0)
    rng = np.random.default_rng(0)

    def best(run: object) -> float:
        times = []
        for _ in range(7):
            start = time.process_time()
            run()  # type: ignore[operator]
            times.append(time.process_time() - start)
        return min(times)

    integers = best(lambda: rng.integers(0, vocab, size=(5000, 400), dtype=np.int32))
    assert best(lambda: policy.sample(5000, rng=rng)) < 3 * integers
