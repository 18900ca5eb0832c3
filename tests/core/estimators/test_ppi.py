"""PPI and PPI++ against ppi-python, a definition written in loops, and repeated sampling."""

import json
from functools import cache

import numpy as np
import oracles_peers
import pytest
from blocks import on_block
from scipy import stats

from cje_core.calibration.folds import assign_folds
from cje_core.data import from_arrays
from cje_core.data.arrays import unpack
from cje_core.data.block import Block
from cje_core.estimators import labels_only, ppi, ppi_plus_plus
from cje_core.inference.contrasts import contrasts
from cje_core.inference.estimate import Status

ALPHA = 2 * stats.norm.sf(5)  # two-sided probability of five standard errors


def world(n=160, n_policies=2, seed=0, *, draws=1, clustered=False, unequal=False, share=0.3, noise=0.15):
    """Correlated scores and labels of every policy, on scales that are not [0, 1]."""
    rng = np.random.default_rng(seed)
    shape = (n_policies, n, draws)
    score = rng.choice(np.linspace(0, 10, 21), shape)
    label = np.clip(1 + 0.3 * score + rng.normal(0, 4 * noise, shape) + rng.normal(0, 0.4, (n, 1)), 1, 5)
    prob = np.clip(0.15 + 0.07 * score, 0.05, 1.0) if unequal else np.full(shape, share)
    seen = rng.uniform(size=shape) < prob
    if draws > 1:
        missing = rng.uniform(size=shape) < 0.3
        missing[:, :, 0] = False
        score, seen = np.where(missing, np.nan, score), seen & ~missing
    return from_arrays(
        score,
        policies=[f"p{k}" for k in range(n_policies)],
        oracle=np.where(seen, label, np.nan),
        label_prob=prob,
        cluster=np.arange(n) // 3 if clustered else None,
        judge_range=(0.0, 10.0),
        oracle_range=(1.0, 5.0),
    )


def row_dicts(data, policy):
    """One policy's evaluated rows as dicts, scores in oracle units."""
    rows = unpack(data)
    (low, high), (bottom, top) = data.attrs["judge_range"], data.attrs["oracle_range"]
    mine = np.flatnonzero((rows.policy == rows.policies.index(policy)) & rows.evaluated)
    return [
        {
            "prompt": rows.prompt[i],
            "cluster": rows.cluster[rows.prompt[i]],
            "score": bottom + (rows.score[i] - low) / (high - low) * (top - bottom),
            "label": rows.label[i] if rows.labelled[i] else None,
            "weight": rows.weight[i],
            "prob": rows.label_prob[i],
        }
        for i in mine
    ]


@pytest.mark.parametrize(("n", "m", "sign"), [(200, 25, 1), (500, 60, 1), (300, 12, -1), (60, 45, 1)])
def test_z_mode_is_ppi_python(n, m, sign):
    ppi_py = pytest.importorskip("ppi_py", reason="ppi-python is not installed (extra dev)")
    rng = np.random.default_rng(n)
    score = rng.beta(4, 1.5, n)
    label = np.clip(0.5 + sign * 0.4 * score**2 + rng.normal(0, 0.15, n), 0, 1)
    labelled = np.zeros(n, dtype=bool)
    labelled[rng.choice(n, m, replace=False)] = True
    data = from_arrays(score[None], policies=["a"], oracle=np.where(labelled, label, np.nan)[None])
    arguments = label[labelled], score[labelled], score[~labelled]
    for module, lam in ((ppi, 1.0), (ppi_plus_plus, None)):
        out = module.estimate(data, quantile="z", ci_prob=0.9, interval="wald").sel(policy="a")
        value = ppi_py.ppi_mean_pointestimate(*arguments, lam=lam)
        bounds = ppi_py.ppi_mean_ci(*arguments, alpha=0.1, lam=lam)
        np.testing.assert_allclose(out.estimate, np.squeeze(value), atol=1e-8, rtol=0)
        np.testing.assert_allclose(out.interval, np.squeeze(bounds), atol=1e-8, rtol=0)
    if sign < 0:
        assert float(out.lam) == 0  # an inverted judge is clipped away by both


@pytest.mark.parametrize("quantile", ["t", "z"])
@pytest.mark.parametrize("lam", [1.0, 0.4, "tuned", "cross_fitted"])
@pytest.mark.parametrize(
    "options",
    [
        {"n": 60},
        {"n": 60, "draws": 2},
        {"n": 60, "clustered": True, "draws": 2},
        {"n": 60, "unequal": True},
        {"n": 60, "unequal": True, "clustered": True},
    ],
    ids=["plain", "draws", "clusters", "propensities", "all"],
)
def test_matches_the_definition(options, lam, quantile):
    data = world(**options, seed=3)
    out = ppi_plus_plus.estimate(data, lam=lam, quantile=quantile)
    rows = unpack(data)
    for policy in data.policy.values:
        dicts = row_dicts(data, policy)
        has_label = np.isin(np.arange(len(rows.cluster_names)), [r["cluster"] for r in dicts if r["label"]])
        fold = assign_folds(rows.cluster_names, has_label)
        expected = oracles_peers.prediction_powered(dicts, lam, quantile=quantile, fold=fold)
        mine = out.sel(policy=policy)
        np.testing.assert_allclose([mine.estimate, mine.lam, mine.std_error, mine.df], expected, rtol=1e-9)
        assert mine.route.item() == ("all_rows" if options.get("unequal") else "unlabelled")
    if lam == 1.0:
        plain = ppi.estimate(data, quantile=quantile)
        for name in ("estimate", "std_error", "interval", "df"):
            np.testing.assert_array_equal(plain[name], out[name])


def test_lambda_zero_is_the_label_mean():
    for options in ({}, {"draws": 2, "clustered": True}, {"unequal": True}):
        data = world(**options)
        zero, labels = ppi_plus_plus.estimate(data, lam=0.0), labels_only.estimate(data)
        for name in ("estimate", "std_error", "interval"):
            np.testing.assert_allclose(zero[name], labels[name], rtol=1e-10)


def test_pitfall_08_every_row_labelled_is_the_label_mean_in_value_and_error():
    data = world(share=1.0)
    labels = labels_only.estimate(data)
    for module in (ppi, ppi_plus_plus):
        out = module.estimate(data)
        assert set(out.route.values) == {"label_mean"}
        for name in ("estimate", "std_error", "interval", "influence"):
            np.testing.assert_allclose(out[name], labels[name], atol=1e-12)


def test_few_unlabelled_responses_do_not_lose_the_interval():
    """One unlabelled response shows no spread of its own: the score mean then runs over all responses."""
    data = world(share=1.0)
    data.oracle[:, 0], data.labelled[:, 0] = np.nan, False
    out = ppi.estimate(data)
    assert set(out.route.values) == {"all_rows"}
    np.testing.assert_allclose(out.std_error, labels_only.estimate(data).std_error, rtol=0.05)


def test_pitfall_03_draws_of_a_prompt_count_once():
    """The same response drawn three times says no more than once."""
    data = world(share=0.4)
    thrice = data.isel(draw=[0, 0, 0]).assign_coords(draw=[0, 1, 2])
    for module in (ppi, ppi_plus_plus):
        once, out = module.estimate(data, quantile="z"), module.estimate(thrice, quantile="z")
        np.testing.assert_allclose(out.estimate, once.estimate, rtol=2e-3)  # lambda counts rows, not prompts
        np.testing.assert_allclose(out.std_error, once.std_error, rtol=5e-3)


def test_pitfall_29_degrees_of_freedom_follow_the_labelled_clusters():
    data = world(n=3000, share=0.004)
    m = data.labelled.sum(("prompt", "draw"))
    tuned, fixed = ppi_plus_plus.estimate(data), ppi_plus_plus.estimate(data, lam=0.5)
    assert (tuned.df < 1.1 * (m - 2)).all()
    assert (fixed.df > tuned.df).all()  # a tuned lambda costs a degree of freedom
    assert (fixed.df < 1.1 * (m - 1)).all()


def test_pitfall_40_the_quantile_moves_no_estimate():
    data = world()
    for module in (ppi, ppi_plus_plus):
        normal, student = (module.estimate(data, quantile=q) for q in ("z", "t"))
        np.testing.assert_array_equal(normal.estimate, student.estimate)
        width = student.interval.diff("ci_bound") / normal.interval.diff("ci_bound")
        assert (width > 1).all()


def test_pitfall_34_constant_labels_claim_no_precision():
    data = world()
    data["oracle"] = data.oracle.where(~data.labelled, 3.0)
    for module in (ppi, ppi_plus_plus):
        out = module.estimate(data)
        assert (out.status == Status.CONSTANT_LABELS).all()
        assert np.isfinite(out.estimate).all()
        assert np.isnan(out.std_error).all()
        assert np.isnan(out.interval).all()


def test_statuses():
    data = world(n=40, n_policies=4)
    data.labelled[1], data.oracle[1] = False, np.nan
    chosen = np.flatnonzero(data.labelled[2, :, 0])
    data.labelled[2, chosen[3:]], data.oracle[2, chosen[3:]] = False, np.nan
    data["judge"][3] = 4.0
    for module in (ppi, ppi_plus_plus):
        out = module.estimate(data)
        expected = [Status.OK, Status.NO_LABELS, Status.TOO_FEW_LABELS, Status.CONSTANT_JUDGE]
        assert out.status.values.tolist() == expected
        assert np.isfinite(out.interval.sel(policy=["p0", "p3"])).all()
    assert float(out.lam.sel(policy="p3")) == 0
    labels = labels_only.estimate(data).sel(policy="p3")
    np.testing.assert_allclose(out.sel(policy="p3").interval, labels.interval)


def test_options_are_checked_and_recorded():
    data = world()
    for bad in ({"quantile": "normal"}, {"lam": "tunned"}, {"lam": 1.5}, {"lam": float("nan")}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            ppi_plus_plus.estimate(data, **bad)
    with pytest.raises(ValueError, match="quantile"):
        ppi.estimate(data, quantile="")
    recorded = json.loads(ppi_plus_plus.estimate(data).attrs["options"])
    assert recorded == {"quantile": "t", "lam": "tuned", "interval": "auto"}


def test_contrasts_keep_what_two_policies_share():
    """Two policies that are one: their difference has no error, whatever their own intervals say."""
    data = world(n_policies=1)
    both = data.isel(policy=[0, 0]).assign_coords(policy=["p0", "q0"])
    out = contrasts(ppi_plus_plus.estimate(both))
    np.testing.assert_allclose(out.difference, 0, atol=1e-15)
    assert np.isnan(out.std_error).all()


# --- repeated sampling -----------------------------------------------------------------------------------------------

N_REPLICATES = 2000


def smooth(rng, shape):
    score = rng.beta(4, 1.5, shape)
    return score, np.clip(0.2 + 0.6 * score**2 + rng.normal(0, 0.15, shape), 0, 1)


def binary(rng, shape):
    score = np.round(rng.beta(4, 1.5, shape) * 20) / 20
    return score, (rng.uniform(size=shape) < 0.05 + 0.8 * score**2).astype(float)


def weak(rng, shape):
    score = np.round(rng.beta(5, 1.2, shape), 1)
    return score, np.clip(0.6 + 0.15 * score + rng.normal(0, 0.2, shape), 0, 1)


def clipped(mean, sd):
    """Mean of a normal that is cut to [0, 1]."""
    low, high = -mean / sd, (1 - mean) / sd
    inside = stats.norm.cdf(high) - stats.norm.cdf(low)
    return mean * inside + sd * (stats.norm.pdf(low) - stats.norm.pdf(high)) + stats.norm.sf(high)


def over_grades(f, law, steps):
    """Mean of f over a score that is rounded to one of ``steps`` equal steps."""
    grade = np.arange(steps + 1) / steps
    return np.diff(law.cdf(np.append(-1, grade + 0.5 / steps))) @ f(grade)


TRUTH = {  # exact
    smooth: stats.beta(4, 1.5).expect(lambda s: clipped(0.2 + 0.6 * s**2, 0.15)),
    binary: over_grades(lambda s: 0.05 + 0.8 * s**2, stats.beta(4, 1.5), 20),
    weak: over_grades(lambda s: clipped(0.6 + 0.15 * s, 0.2), stats.beta(5, 1.2), 10),
}


@pytest.mark.slow
@pytest.mark.parametrize("world_", TRUTH)
def test_the_truth_of_a_world_is_its_mean(world_):
    label = world_(np.random.default_rng(1), 200_000)[1]
    assert abs(label.mean() - TRUTH[world_]) < 5 * label.std() / np.sqrt(len(label))


@cache
def replicates(world_, n, m):
    """Data sets whose policies are independent replicates of a world (50 in one: it saves time), and as one block."""
    rng = np.random.default_rng([n, m])
    sets, drawn = [], []
    for _ in range(N_REPLICATES // 50):
        score, label = world_(rng, (50, n))
        rank = np.argsort(rng.random((50, n)), axis=1).argsort(axis=1)
        oracle = np.where(rank < m, label, np.nan)
        sets.append(from_arrays(score, policies=[f"{r:02d}" for r in range(50)], oracle=oracle))
        drawn.append((score, oracle))
    score, oracle = np.concatenate(drawn, axis=1)[:, :, None]
    block = Block(("00",), score, oracle, np.full(score.shape, m / n), (0.0, 1.0), (0.0, 1.0))
    return sets, block


@cache
def coverage(world_, n, m, module, **options):
    """Replicates whose interval holds the truth, and their mean width."""
    (sets, block), truth = replicates(world_, n, m), TRUTH[world_]
    found = on_block(module, block, ci_prob=0.95, **options)
    if found is None:
        interval = np.concatenate([module.estimate(data, **options).interval.values for data in sets])
    else:
        interval = found.interval[:, 0]
    low, high = interval.T
    return int(((low <= truth) & (truth <= high)).sum()), float((high - low).mean())


def at_least(level):
    """Least count, at five sigma, of a method whose coverage is `level`."""
    return stats.binom.ppf(ALPHA / 2, N_REPLICATES, level)


@pytest.mark.slow
@pytest.mark.parametrize("world_", [smooth, binary, weak])
def test_t_intervals_keep_their_level_with_15_labels(world_):
    """Five-sigma binomial bound below 95%; the normal interval (about .90 here) is the planted error."""
    for module, options in ((ppi, {}), (ppi_plus_plus, {}), (ppi_plus_plus, {"lam": "cross_fitted"})):
        count, _ = coverage(world_, 500, 15, module, **options)
        assert count >= at_least(0.95), (module.__name__, options, count / N_REPLICATES)
    count, _ = coverage(world_, 500, 15, ppi_plus_plus, quantile="z", interval="wald")
    assert count < at_least(0.95)


@pytest.mark.slow
def test_power_tuning_costs_nothing_with_a_weak_judge():
    """At most 3% wider than the labels alone, where the untuned interval is a fifth wider."""
    labels = coverage(weak, 500, 15, labels_only)[1]
    for lam in ("tuned", "cross_fitted"):
        assert coverage(weak, 500, 15, ppi_plus_plus, lam=lam)[1] < 1.03 * labels
    assert coverage(weak, 500, 15, ppi)[1] > 1.15 * labels
