"""Ratio calibration: the identities by enumeration, the table against loops, size without coverage, power, verdicts."""

import json

import numpy as np
import oracles_ratios as slow
import pytest
import xarray as xr
from scipy import special, stats

import cje_core
from cje_core.data import DataError, from_arrays
from cje_core.formulas.ratio_calibration import bounded_weight, capped_weight, compare, max_t
from cje_core.offpolicy.ratio_calibration import CAP, MIN_OVERLAP, ratio_calibration

LENGTHS = np.array([3.0, 7.0, 20.0, 40.0, 4.0, 11.0])
LOGGER = np.array([0.3, 0.3, 0.2, 0.2, 0.0, 0.0])  # never gives the last two responses
TARGET = np.array([0.1, 0.25, 0.1, 0.2, 0.3, 0.05])
PLANTED = 0.05  # nats per token
ONE_IN_A_MILLION = 1e-6


def exact_ratio(error: float = 0.0) -> np.ndarray:
    """Log ratios of the finite world, with an error per token."""
    with np.errstate(divide="ignore"):
        return np.log(TARGET) - np.log(LOGGER) + error * LENGTHS


def test_the_bounded_identity_is_exact_without_coverage():
    """For every bounded g, by enumeration; an error of .05 nats per token breaks it, and g = 1 shows it."""
    for g in (np.ones(6), LENGTHS, np.random.default_rng(1).normal(size=6)):
        r = exact_ratio()
        left = LOGGER @ (bounded_weight(r, fresh=False) * g)
        assert left == pytest.approx(TARGET @ (bounded_weight(r, fresh=True) * g), abs=1e-15)
    for error in (PLANTED, -PLANTED):
        r = exact_ratio(error)
        gap = LOGGER @ bounded_weight(r, fresh=False) - TARGET @ bounded_weight(r, fresh=True)
        assert gap * np.sign(error) > 0.1


def test_the_one_sided_bound_holds_for_every_cap_and_region():
    for seed in range(20):
        h = np.random.default_rng(seed).random(6)
        for cap in (0.5, 1.0, 5.0, 1e9):
            assert LOGGER @ (capped_weight(exact_ratio(), cap) * h) <= TARGET @ h + 1e-15
    seen = LOGGER > 0  # raw weights are exact where the logger goes: the shortfall is the missing mass
    assert LOGGER @ capped_weight(exact_ratio(), 1e9) == pytest.approx(TARGET[seen].sum(), abs=1e-15)


def test_too_small_ratios_are_the_true_ratios_of_another_target():
    """So without log ratios of fresh responses no test tells a shortfall from lack of coverage."""
    r = exact_ratio(-PLANTED)
    other = LOGGER * np.exp(np.where(LOGGER > 0, r, 0.0))
    assert (other >= 0).all() and other.sum() < 1  # the rest lies where the logger never goes


def world(
    n: int,
    rng: np.random.Generator,
    *,
    error: float = 0.0,
    noise: float = 0.0,
    variance: float = 1.0,
    missing: float = 0.0,
    fresh_ratio: bool = True,
    draws: int = 1,
) -> xr.Dataset:
    """Normal log ratios of a given variance, tilted judge scores and random lengths, all exact but for the errors.

    A share of what the target says is `missing` from the logger's support; `error` and the standard deviation `noise`
    are per token, of the recorded ratio.
    """

    def side(shape: tuple[int, ...], *, target: bool) -> tuple[np.ndarray, ...]:
        tokens = rng.geometric(1 / 41, shape) + 9.0
        u = rng.random(shape)
        judge = (-0.6 + np.sqrt(0.36 + 1.6 * u)) / 0.8 if target else u  # density .6 + .8 s under the target
        v = variance * tokens / 50
        ratio = np.log(0.6 + 0.8 * judge) + rng.normal(v / 2 * (1 if target else -1), np.sqrt(v))
        ratio += np.log1p(-missing)
        if target:
            ratio = np.where(rng.random(shape) < missing, np.inf, ratio)
        return ratio + error * tokens + noise * np.sqrt(tokens) * rng.standard_normal(shape), tokens, judge

    r, tokens, judge = side((n,), target=False)
    own, own_tokens, own_judge = side((n, draws), target=True)
    base = -900.0 - tokens
    scores = np.stack([np.broadcast_to(judge[:, None], own.shape), own_judge])
    lengths = np.stack([np.broadcast_to(tokens[:, None], own.shape), own_tokens])
    return from_arrays(
        scores,
        policies=["base", "target"],
        covariate=lengths[..., None],
        features=["response_length"],
        log_ratio=np.stack([np.zeros(own.shape), own if fresh_ratio else np.full(own.shape, np.nan)]),
        calibration_policy=[],
        logged={
            "logp_target": np.stack([base, np.minimum(base + r, 0)]),
            "logp_logger": base,
            "n_tokens": tokens,
            "logged_judge": judge,
            "logged_covariate": tokens[:, None],
        },
    )


def as_prompts(data: xr.Dataset, clusters: np.ndarray) -> list:
    """Input of the oracle: prompts with a logged and a fresh response of the target."""
    at = data.sel(policy="target")
    out = []
    for i in range(data.sizes["prompt"]):
        r = float(at["logp_target"][i] - at["logp_logger"][i])
        logged = (r, (float(data["logged_judge"][i]), float(data["logged_covariate"][i, 0])))
        draws = [
            (float(at["log_ratio"][i, d]), (float(at["judge"][i, d]), float(at["covariate"][i, d, 0])))
            for d in range(data.sizes["draw"])
            if at["evaluated"][i, d]
        ]
        out.append((clusters[i], logged, draws))
    return out


@pytest.mark.parametrize("fresh_ratio", [True, False])
def test_statistics_against_loops(fresh_ratio):
    """Draws, clusters, responses the logger cannot give and two features, one by one."""
    n = 90
    data = world(n, np.random.default_rng(3), draws=2, missing=0.1, error=0.01, fresh_ratio=fresh_ratio)
    clusters = np.arange(n) // 2
    data = data.assign(cluster=("prompt", [f"{k:02d}" for k in clusters]))
    data["evaluated"].values[:, ::5, 1] = False
    found = ratio_calibration(data).sel(policy="target")
    expected = slow.z_statistics(as_prompts(data, clusters), None if fresh_ratio else n / CAP)
    z = (found["difference"] / found["std_error"]).to_series()
    names = ["1", "log ratio", "judge score", "response_length"]
    if not fresh_ratio:
        names = ["1", *(f"{x}{end}" for x in names[2:] for end in ("", " (reversed)"))]
    np.testing.assert_allclose(z[names], expected, rtol=1e-10)
    assert found["method"] == ("two_sided" if fresh_ratio else "one_sided")
    largest = max(abs(x) for x in expected) if fresh_ratio else max(expected)
    tests = 2 * len(names) if fresh_ratio else len(names)
    p = min(1.0, tests * stats.t.sf(largest, len(set(clusters)) - 1))
    assert p < 0.5 and found["p_value"] == pytest.approx(p, rel=1e-10)
    assert found["uncovered"] == pytest.approx(0.1, abs=0.1) if fresh_ratio else np.isnan(found["uncovered"])


def test_the_order_of_policies_prompts_and_draws_does_not_matter():
    data = world(60, np.random.default_rng(4), draws=2)
    mixed = data.isel(policy=[1, 0], prompt=np.random.default_rng(1).permutation(60), draw=[1, 0])
    found, other = ratio_calibration(data), ratio_calibration(mixed)
    xr.testing.assert_identical(found, other.sel(policy=["base", "target"]))


@pytest.mark.parametrize(
    ("change", "verdict", "method"),
    [
        ({"missing": 0.3}, "consistent", "two_sided"),
        ({"missing": 0.3, "error": PLANTED}, "wrong", "two_sided"),
        ({"missing": 0.3, "error": -PLANTED}, "wrong", "two_sided"),
        ({"error": PLANTED, "fresh_ratio": False}, "wrong", "one_sided"),
        ({"error": -PLANTED, "fresh_ratio": False}, "undecided", "one_sided"),
        ({"missing": 0.3, "fresh_ratio": False}, "undecided", "one_sided"),
        ({"variance": 90.0}, "undecided", "one_sided"),  # next to no overlap
        ({"error": 100 * PLANTED}, "wrong", "one_sided"),  # by the ratios, that is
        ({"error": -100 * PLANTED}, "wrong", "one_sided"),
    ],
)
def test_verdicts(change, verdict, method):
    found = ratio_calibration(world(1000, np.random.default_rng(5), **change))
    at = found.sel(policy="target")
    assert (at["verdict"], at["method"]) == (verdict, method)
    assert found["verdict"].sel(policy="base") == "not_checked"  # the logger itself: nothing varies
    if "variance" in change or abs(change.get("error", 0)) > PLANTED:
        assert at["overlap_ess"] < MIN_OVERLAP


def test_fresh_responses_without_a_log_ratio_are_left_out_of_the_two_sided_test():
    data = world(200, np.random.default_rng(10), error=PLANTED)
    data["log_ratio"].values[1, ::2] = np.nan
    some = ratio_calibration(data).sel(policy="target")
    assert (some["method"], some["n_prompts"]) == ("two_sided", 100)
    xr.testing.assert_identical(
        some["fresh"], ratio_calibration(data.isel(prompt=slice(1, None, 2)))["fresh"][1]
    )


def test_too_few_prompts_and_impossible_ratios():
    data = world(29, np.random.default_rng(6))
    assert (ratio_calibration(data)["verdict"] == "not_checked").all()
    with pytest.raises(DataError, match="log_ratio of an own draw is -inf"):
        ratio_calibration(data.assign(log_ratio=xr.full_like(data["log_ratio"], -np.inf)))


def test_log_ratio_is_read_from_files(tmp_path):
    """In both ways of reading: by columns, and record by record (a field in the metadata)."""
    rows = [{"prompt_id": str(i), "judge_score": 0.5, "log_ratio": 0.25 * i} for i in range(4)]
    for odd in (False, True):
        if odd:
            rows[0]["metadata"] = {"log_ratio": rows[0].pop("log_ratio")}
        (tmp_path / "a_responses.jsonl").write_text("\n".join(map(json.dumps, rows)))
        data, _ = cje_core.read(tmp_path)
        assert data["log_ratio"].values.ravel().tolist() == [0.0, 0.25, 0.5, 0.75]


def rejections(n: int, replicates: int, seed: int, **changes) -> int:
    """Count replicates in which the two-sided test rejects at .05, on the formulas themselves."""
    rng, count = np.random.default_rng(seed), 0
    for _ in range(replicates):
        v, missing, error = changes["variance"], changes["missing"], changes.get("error", 0.0)
        tokens = rng.geometric(1 / 41, (2, n)) + 9.0
        sign = np.array([[-1.0], [1.0]])
        r = rng.normal(sign * v * tokens / 100, np.sqrt(v * tokens / 50)) + np.log1p(-missing)
        r[1, rng.random(n) < missing] = np.inf
        r += error * tokens
        weight = bounded_weight(r[0], fresh=False), bounded_weight(r[1], fresh=True)
        length = (tokens - 50) / 40
        parts = [
            w * np.stack([np.ones(n), np.tanh(x / 2), h]) for w, x, h in zip(weight, r, length, strict=True)
        ]
        found = compare(*parts, np.arange(n))
        z = (found.logged - found.fresh) / found.std_error
        count += max_t(np.concatenate([z, -z]), n - 1) < 0.05
    return count


@pytest.mark.slow
@pytest.mark.parametrize(("variance", "missing"), [(1.0, 0.4), (10.0, 0.4), (20.0, 0.2)])
def test_size_is_kept_where_coverage_alone_is_lacking(variance, missing):
    """At n = 2,000, with up to 40% of the target outside of the logger's support and log-variance up to 20."""
    count = rejections(2000, 600, 7, variance=variance, missing=missing)
    assert count <= stats.binom.isf(ONE_IN_A_MILLION, 600, 0.05)


def test_raw_weights_would_call_missing_coverage_an_error():
    """So the audit may not compare E[W] with 1: every sample of a logger that misses .4 of the target falls short."""
    rng = np.random.default_rng(9)
    w = 0.6 * np.exp(rng.normal(-0.5, 1.0, (200, 2000)))
    assert ((w.mean(axis=1) - 1) / (w.std(axis=1) / np.sqrt(2000)) < -1.96).all()


@pytest.mark.slow
@pytest.mark.parametrize("error", [PLANTED, -PLANTED])
@pytest.mark.parametrize(("variance", "missing"), [(1.0, 0.0), (10.0, 0.4)])
def test_power_against_an_error_per_token(variance, missing, error):
    """At least .9 for .05 nats per token at n = 2,000, by an exact binomial bound."""
    count = rejections(2000, 100, 8, variance=variance, missing=missing, error=error)
    assert count >= stats.binom.ppf(ONE_IN_A_MILLION, 100, 0.9)
    assert special.bdtr(count - 1, 100, 0.9) > 0.95  # and more: every sample rejects


def test_max_t_is_bonferroni():
    assert max_t(np.array([np.nan]), 10.0) != max_t(np.array([np.nan]), 10.0)
    assert max_t(np.array([1.0, 2.0]), 30.0) == pytest.approx(2 * stats.t.sf(2.0, 30.0))
