"""Overlap: tails, affinity and the whole table against loops, exact worlds, and the errors that others made."""

import numpy as np
import oracles_weights as oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import stats

from cje_core.data import DataError, from_arrays
from cje_core.offpolicy.overlap import affinity, ccdf, hill, overlap, overlap_by_group
from cje_core.offpolicy.weights import mean_one
from cje_core.verdict import gates
from cje_sim.exact import typicality as exact
from cje_sim.scenarios import tilted_logs, zipf_hot_target, zipf_tilt


def small_data(seed=0, n=240, **changes):
    """Two policies with fresh draws, surprisal and logged responses; some log-likelihoods are missing."""
    rng = np.random.default_rng(seed)
    judge = rng.integers(0, 6, (2, n)) / 5
    n_tokens = rng.integers(5, 40, n).astype(float)
    logp = -n_tokens * rng.uniform(1, 2, (3, n))
    logp[0, :5] = np.nan
    logged = {
        "logp_target": logp[:2],
        "logp_logger": np.minimum(logp[1] + 0.5 * rng.standard_normal(n), 0),
        "n_tokens": n_tokens,
        "logged_judge": rng.integers(0, 6, n) / 5,
    }
    settings_ = {
        "policies": ["b", "a"],
        "oracle": np.where(rng.random((2, n)) < 0.5, judge, np.nan),
        "surprisal": rng.uniform(1, 2, (2, n)),
        "logged": logged,
    }
    return from_arrays(judge, **(settings_ | changes))


# --- tails ---


def test_hill_against_the_definition():
    x = np.random.default_rng(0).standard_t(3, 600)
    out = hill(np.append(x, np.nan))
    assert out.size.tolist() == list(range(6, 31))
    assert_allclose(out.alpha, [oracles.hill(x.tolist(), int(k)) for k in out.size], rtol=1e-9)
    assert out.median == pytest.approx(np.median(out.alpha))
    low, high = out.quartiles
    assert low < out.median < high
    np.testing.assert_allclose(out.quartiles, 1 / np.quantile(1 / out.alpha, [0.75, 0.25]))


@pytest.mark.slow
def test_hill_of_pareto_weights():
    # 1 / alpha(k) is unbiased with standard error 1 / (alpha sqrt(k)); the paper's W_(k) shrinks it by (k - 1) / k.
    rng, reps, k = np.random.default_rng(1), 4000, 10
    for true in (0.7, 2.5):
        inverse = np.empty(reps)
        for i in range(reps):
            inverse[i] = 1 / hill(rng.exponential(1 / true, 1000)).alpha[0]
        assert abs(inverse.mean() - 1 / true) < 5 / (true * np.sqrt(k * reps))


def test_pitfall_17_a_tail_index_that_cannot_be_had_is_unknown_and_not_healthy():
    for log_weight in (
        [],
        np.full(5, np.nan),
        np.zeros(1000),
        np.arange(199.0),
        np.r_[np.ones(100), np.zeros(900)],
    ):
        out = hill(log_weight)
        assert np.isnan(out.median) and np.isnan(out.quartiles).all()
    assert np.isfinite(hill(np.arange(200.0)).median)
    assert np.isfinite(hill(-1e4 - np.arange(1000.0)).median)  # weights that underflow to 0 still have a tail


def test_ccdf():
    data = small_data()
    curve = ccdf(data, "a")
    w = 10**curve.log10_weight.values
    assert w.mean() == pytest.approx(1.0) and len(w) == 240
    assert_allclose(curve, [(w >= v - 1e-12).mean() for v in w])
    assert ccdf(data, "b").size == 235
    with pytest.raises(ValueError, match="no policy 'c'"):
        ccdf(data, "c")


# --- judge space ---


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 12), st.integers(1, 6))
def test_affinity_against_loops(seed, n, m, n_bins):
    rng = np.random.default_rng(seed)
    score = rng.integers(0, 8, n + m) / 7
    logger = np.r_[np.ones(n), np.zeros(m)]
    target = np.r_[np.zeros(n), rng.choice([0.5, 1.0], m)]
    cluster = rng.integers(0, 6, n + m)

    def loops(keep):
        first = [(s, p) for s, p, k in zip(score, logger, keep, strict=True) if k and p > 0]
        second = [(s, q) for s, q, k in zip(score, target, keep, strict=True) if k and q > 0]
        # the bins stay those of all rows
        ends = [(score.min(), 0.0), (score.max(), 0.0)]
        return oracles.affinity(first + ends, second + ends, n_bins) if first and second else np.nan

    out = affinity(score, logger, target, cluster, n_bins)
    assert out.plug_in == pytest.approx(loops(np.ones(n + m, bool)), abs=1e-12)
    without = np.array([loops(cluster != g) for g in np.unique(cluster)])
    g = len(without)
    if g < 2 or np.isnan(without).any():
        assert np.isnan(out.corrected) and np.isnan(out.std_error)
    else:
        corrected = g * out.plug_in - (g - 1) * without.mean()
        assert out.corrected == pytest.approx(min(max(corrected, 0.0), 1.0), abs=1e-9)
        assert out.std_error**2 == pytest.approx(
            (g - 1) / g * ((without - without.mean()) ** 2).sum(), abs=1e-9
        )


def test_affinity_edges():
    one = affinity(
        np.full(6, 0.3), np.r_[np.ones(3), np.zeros(3)], np.r_[np.zeros(3), np.ones(3)], np.arange(6)
    )
    assert one.plug_in == pytest.approx(1.0) and one.corrected == pytest.approx(1.0)
    far = affinity(
        np.r_[np.zeros(3), np.ones(3)],
        np.r_[np.ones(3), np.zeros(3)],
        np.r_[np.zeros(3), np.ones(3)],
        np.arange(6),
    )
    assert far == (0.0, 0.0, 0.0)
    assert np.isnan(affinity(np.ones(2), np.zeros(2), np.ones(2), np.arange(2))).all()


@pytest.mark.slow
@pytest.mark.parametrize(("a", "b"), [((4, 1.5), (4, 1.5)), ((4, 1.5), (3, 1.5)), ((4, 1.5), (1.5, 3))])
@pytest.mark.parametrize(("n", "m"), [(200, 200), (1000, 50)])
def test_the_jackknife_brings_the_affinity_nearer_the_truth(a, b, n, m):
    rng, reps = np.random.default_rng(3), 400
    p, q = (np.diff(stats.beta.cdf(np.linspace(0, 1, 21), *shape)) for shape in (a, b))
    truth = np.sqrt(p * q).sum()
    ends = np.array([0.0, 1.0])  # two weightless rows that keep the bins at the 20 levels of the law
    mass = np.r_[np.ones(n), np.zeros(m + 2)]
    other = np.r_[np.zeros(n), np.ones(m), np.zeros(2)]
    cluster = np.r_[np.arange(n), np.arange(m), 0, 0]
    errors = np.empty((reps, 2))
    for i in range(reps):
        levels = np.r_[rng.choice(20, n, p=p / p.sum()), rng.choice(20, m, p=q / q.sum())]
        out = affinity(np.r_[(levels + 0.5) / 20, ends], mass, other, cluster)
        errors[i] = out.plug_in - truth, out.corrected - truth
    bias, noise = errors.mean(0), errors.std(0) / np.sqrt(reps)
    assert bias[0] < -5 * noise[0]  # the plug-in is biased down, far beyond noise
    assert abs(bias[1]) + 5 * noise[1] < abs(bias[0])
    assert (errors[:, 1] ** 2).mean() < (errors[:, 0] ** 2).mean()


@pytest.mark.parametrize(("n", "m"), [(1000, 30), (200, 30), (30, 30)])
def test_affinity_gate_seldom_rings_for_one_law_and_always_for_two(n, m):
    """One law: at most 5% (exact bound) fall below .85, where the plug-in does in a third; far laws are found."""
    rng, reps, gate = np.random.default_rng(9), 300, gates.BY_NAME["affinity"]
    mass, other = np.r_[np.ones(n), np.zeros(m)], np.r_[np.zeros(n), np.ones(m)]
    cluster = np.r_[np.arange(n), np.arange(m)]

    def drawn(shift):
        return [
            affinity(np.r_[rng.random(n), shift + rng.random(m)], mass, other, cluster) for _ in range(reps)
        ]

    same, far = drawn(0.0), drawn(0.7)
    assert sum(a.upper < gate.good for a in same) <= stats.binom.ppf(1 - 3e-7, reps, 0.05)
    assert sum(a.plug_in < gate.good for a in same) > reps / 3
    assert all(a.upper < gate.good for a in far)


# --- the whole table ---


def test_pitfall_16_ttc_counts_surprisal_per_token():
    # Short and long responses of the same per-token law; by total surprisal only the short ones would look typical.
    rng = np.random.default_rng(2)
    n_tokens = np.where(np.arange(400) % 2, 10.0, 1000.0)
    logp = -n_tokens * rng.uniform(1.0, 2.0, 400)
    data = small_data(
        n=400,
        surprisal=rng.uniform(1.0, 2.0, (2, 400)),
        logged={
            "logp_target": [logp, logp],
            "logp_logger": logp,
            "n_tokens": n_tokens,
            "logged_judge": np.full(400, 0.5),
        },
    )
    out = overlap(data)
    assert (np.abs(out.ttc - 0.9) < 5 * np.sqrt(2 * 0.09 / 400)).all()
    assert (np.abs(out.surprisal_threshold - 1.9) < 5 * np.sqrt(0.09 / 400)).all()
    assert out.attrs["level"] == 0.9


def test_overlap_against_loops():
    data = small_data()
    out = overlap(data)
    assert out.policy.values.tolist() == ["b", "a"]
    for p, name in enumerate(out.policy.values):
        row = out.sel(policy=name)
        ratio = (data.logp_target[p] - data.logp_logger).values
        used = np.isfinite(ratio)
        w = np.array(oracles.mean_one([r if u else None for r, u in zip(ratio, used, strict=True)]), float)[
            used
        ]
        assert int(row.n_usable) == used.sum() == (235 if name == "b" else 240)
        assert float(row.ess_fraction) == pytest.approx(oracles.ess_fraction(w.tolist()))
        assert float(row.max_share) == pytest.approx(w.max() / w.sum())
        assert float(row.q995) == pytest.approx(np.quantile(w, 0.995))
        assert float(row.hill) == pytest.approx(hill(ratio).median)
        assert float(row.uplift) == pytest.approx(float(row.ess_fraction_stabilised / row.ess_fraction))
        first = [(s, 1.0) for s in data.logged_judge.values]
        second = [(s, 1.0) for s in data.judge.values[p, :, 0]]
        assert float(row.affinity) == pytest.approx(oracles.affinity(first, second, 20))
        assert float(row.affinity_upper) == pytest.approx(
            min(float(row.affinity_corrected + row.affinity_std_error), 1.0)
        )
        metric = gates.collect([str(row.policy.values)], overlap=out)["affinity"]
        assert metric.item() == row.affinity_upper.item()  # what the gate reads
        assert float(row.hellinger) == pytest.approx(np.sqrt(1 - float(row.affinity_corrected)))
        surprisal = (-data.logp_target[p] / data.n_tokens).values[used]
        ttc, threshold = oracles.ttc(data.surprisal.values[p, :, 0].tolist(), surprisal.tolist())
        assert float(row.ttc) == pytest.approx(ttc)
        assert float(row.surprisal_threshold) == pytest.approx(threshold)
        assert float(row.cle_factor) == pytest.approx(
            oracles.cle(w.tolist(), surprisal.tolist(), threshold, float(row.cle_alpha))
        )
        assert float(row.weight_variance.sum()) == pytest.approx(w.var())
        assert float(row.ttc_ess) == pytest.approx(240)
    assert (out.ttc_source == "fresh").all() and (out.affinity_source == "fresh").all()


def test_overlap_does_not_depend_on_order():
    data = small_data()
    out = overlap(data)
    order = np.random.default_rng(0).permutation(240)
    again = overlap(data.isel(policy=[1, 0], prompt=order)).sel(policy=out.policy)
    for name in out.data_vars:
        if out[name].dtype.kind == "f":
            assert_allclose(again[name], out[name], rtol=1e-9, err_msg=name)


def test_repeated_draws_of_a_prompt_share_its_weight():
    data = small_data()
    more = np.full((2, 240, 3), np.nan)
    more[:, :, 0], more[0, :80, 1:] = data.judge[..., 0], 1.0
    surprisal = np.where(np.isfinite(more), 3.0, np.nan)
    surprisal[:, :, 0] = data.surprisal[..., 0]
    logged = {name: data[name].values for name in ("logp_target", "logp_logger", "n_tokens", "logged_judge")}
    evaluated = np.isfinite(more)
    evaluated[0, :40, 1] = False  # audit-only responses do not count
    wide = from_arrays(more, policies=["b", "a"], surprisal=surprisal, logged=logged, evaluated=evaluated)
    out = overlap(wide).sel(policy="b")
    first = [(s, 1.0) for s in data.logged_judge.values]
    drawn = [
        (more[0, i, d], 1 / evaluated[0, i].sum()) for i in range(240) for d in range(3) if evaluated[0, i, d]
    ]
    assert float(out.affinity) == pytest.approx(oracles.affinity(first, drawn, 20))
    mass = np.array([m for _, m in drawn])
    assert float(out.ttc_ess) == pytest.approx(mass.sum() ** 2 / (mass**2).sum())
    assert float(out.surprisal_threshold) == pytest.approx(
        3.0
    )  # 40 * 1 / 2 + 40 * 2 / 3 of 240 prompts: 19% are at 3
    assert_allclose(overlap(wide).sel(policy="a").ttc, overlap(data).sel(policy="a").ttc)


def test_without_fresh_surprisal_ttc_rests_on_the_weights():
    data = small_data().drop_vars("surprisal")
    out = overlap(data)
    assert (out.ttc_source == "weighted_logged").all()
    assert np.isfinite(out.ttc).all() and np.isnan(out.ttc_interval).all()
    assert_allclose(out.ttc_ess, out.ess_fraction * out.n_usable)
    unknown = overlap(data.drop_vars("n_tokens"))
    assert (unknown.ttc_source == "unknown").all()
    for name in ("ttc", "ttc_two_sided", "cle_factor", "cle_shape", "ttc_ess", "weight_variance"):
        assert np.isnan(unknown[name]).all()
    assert np.isfinite(unknown.ess_fraction).all()


def test_a_policy_without_fresh_responses_takes_the_weighted_scores():
    data = small_data()
    data["evaluated"][0] = False
    data["labelled"][0] = False
    data["oracle"][0] = np.nan
    out = overlap(data.assign_attrs(calibration_policy=["a"])).sel(policy="b")
    assert (
        str(out.affinity_source.values) == "weighted_logged"
        and str(out.ttc_source.values) == "weighted_logged"
    )
    ratio = (data.logp_target[0] - data.logp_logger).values
    used = np.isfinite(ratio)
    s = data.logged_judge.values[used]
    first, second = [(v, 1.0) for v in s], list(zip(s, mean_one(ratio)[used], strict=True))
    assert float(out.affinity) == pytest.approx(oracles.affinity(first, second, 20))


def test_what_is_unknown_is_nan():
    data = small_data()
    data["logp_target"][0] = np.nan
    out = overlap(data).sel(policy="b")
    assert int(out.n_usable) == 0
    for name in (
        "ess_fraction",
        "ess_fraction_stabilised",
        "uplift",
        "max_share",
        "q995",
        "hill",
        "ttc",
        "cle_factor",
    ):
        assert np.isnan(out[name]), name
    assert np.isfinite(out.affinity)  # needs no log-likelihood
    few = small_data(oracle=np.full((2, 240), np.nan))
    assert np.isnan(overlap(few).ess_fraction_stabilised).all()  # no labels, no reward to stabilise for
    with pytest.raises(DataError, match="logged responses"):
        overlap(small_data(logged={}))


def test_hot_target_passes_ttc_and_fails_the_effective_sample_size():
    # The one-sided region calls every fluent response typical: both have to be looked at.
    data = zipf_hot_target.simulate(n=1000, length=200, rng=0)
    out = overlap(data).sel(policy="hot")
    assert out.ttc > 0.9 and out.ess_fraction < 0.05
    assert out.ttc_two_sided < 0.7


def test_exact_overlap_of_a_mild_tilt():
    data = zipf_tilt.simulate(n=20_000, length=25, rng=0)
    out, truth = overlap(data), zipf_tilt.overlap(length=25)
    inside = (out.ttc_interval[:, 0] <= truth.ttc) & (truth.ttc <= out.ttc_interval[:, 1])
    assert inside.all()
    mild = out.sel(policy="tilt_0.1")
    assert np.log10(mild.ess_fraction) == pytest.approx(
        float(truth.log10_ess.sel(policy="tilt_0.1")), abs=0.02
    )
    policies = zipf_tilt.tokens(length=25).policies
    laws = [policies[name].log_prob[0, 0] for name in ("tilt_0.1", "base")]
    world = exact.coverage(*laws, 25)
    assert float(mild.cle_shape) == pytest.approx(np.exp(world.log1p_chi2), rel=0.03)
    factor = np.exp(world.log_cle_floor(1.0, 1))
    assert float(mild.cle_factor) == pytest.approx(factor, rel=0.03)


def test_arena_overlap(arena):
    from cje_core.io.files import read

    data, _ = read(arena / "fresh_draws", logged=arena / "logged_data.jsonl")
    out = overlap(data)
    clone, prompt, unhelpful = (out.sel(policy=p) for p in ("clone", "parallel_universe_prompt", "unhelpful"))
    assert float(clone.ess_fraction) == pytest.approx(0.2146, abs=1e-3)
    assert float(prompt.ess_fraction) == pytest.approx(0.0034, abs=5e-5)
    assert float(unhelpful.ess_fraction) == pytest.approx(0.0078, abs=5e-5)
    assert_allclose([float(p.max_share) * 1000 for p in (clone, prompt, unhelpful)], [43, 514, 195], atol=0.5)
    # Published grid medians 1.23, .70, .19 are over k = 1, 2, 5 and 10% of n: tails twice as wide as ours.
    assert_allclose([clone.hill, prompt.hill, unhelpful.hill], [1.149, 0.634, 0.200], atol=2e-3)
    assert float(clone.affinity) == pytest.approx(0.998, abs=2e-3)
    assert float(prompt.affinity) == pytest.approx(0.989, abs=1e-3)
    assert float(unhelpful.affinity) == pytest.approx(0.474, abs=5e-3)
    assert (out.ttc_source == "unknown").all()  # no token counts, and characters are not tokens
    assert (out.ess_fraction_stabilised.dropna("policy") > 0.8).all()


def test_overlap_by_group_finds_the_group_where_it_fails():
    """The logger's own likelihoods in one topic, a tilt in the other: the whole hides what each group shows."""
    data = tilted_logs.simulate(n=1200, rng=3)
    easy = np.arange(1200) % 2 == 0
    target = np.where(easy, data["logp_logger"].values, data["logp_target"].sel(policy="better").values)
    data["logp_target"].loc[{"policy": "better"}] = target
    data["topic"] = "prompt", np.where(easy, "easy", "hard")
    found = overlap_by_group(data, "topic")
    assert found["group"].values.tolist() == ["easy", "hard"]
    better = found.sel(policy="better")
    ratio = np.exp(target - data["logp_logger"].values)[~easy]
    assert better.ess_fraction.sel(group="easy") == 1
    assert better.ess_fraction.sel(group="hard").item() == pytest.approx(
        ratio.sum() ** 2 / (600 * (ratio**2).sum())
    )
    assert better.max_share.sel(group="hard").item() == pytest.approx(ratio.max() / ratio.sum())
    assert better.hill.sel(group="hard").item() == pytest.approx(hill(np.log(ratio)).median)
    assert better.hill.sel(group="easy").isnull()  # equal weights have no tail
    whole = overlap(data).sel(policy="better")
    assert float(better.ess_fraction.min()) < float(whole.ess_fraction) < 1
    assert (found.n_usable == 600).all() and (found.ttc.sel(policy="base") > 0.85).all()
