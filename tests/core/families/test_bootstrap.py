"""Bootstrap of Direct: every replicate is the estimator on reweighted clusters, for every route."""

import numpy as np
import oracles
import oracles_uncertainty as slow
import pandas as pd
import pytest
from oracles_uncertainty import GRID, row_dicts, table

from cje_core.calibration.calibrated import Calibration
from cje_core.calibration.folds import assign_folds
from cje_core.calibration.oracle_slice import fit_slice
from cje_core.data import from_arrays
from cje_core.data.arrays import unpack
from cje_core.estimators import direct
from cje_core.estimators.direct import Bootstrap
from cje_core.families.direct.bootstrap import bootstrap_direct, replicate_values
from cje_core.families.direct.bootstrap_intervals import bootstrap_rows
from cje_core.families.direct.cells import OWN, compress
from cje_core.families.direct.fit import Options, fit_policy
from cje_core.inference.estimate import Status, bca, studentised
from cje_core.inference.influence import acceleration
from cje_core.io import from_frame


def arrays(data, **options):
    """DirectRows of a data set and the fits behind them."""
    chosen = Options(**options)
    rows = unpack(data)
    fitted = fit_slice(rows)
    fits = [fit_policy(rows, fitted, p, chosen) for p in range(len(rows.policies))]
    return bootstrap_rows(rows, fitted, fits, list(range(len(fits))), chosen), fits


@pytest.mark.parametrize("own", [("a",), ("a", "b")])
def test_bootstrap_replicates_are_the_estimator_on_the_resampled_table(own):
    """Every kernel replicate equals the slow estimator applied to the drawn clusters, repeated as drawn."""
    data = from_frame(table(n=30, own=own, share=0.6))
    n_boot = 25
    out = direct.estimate(
        data, inference=Bootstrap(n=n_boot), rng=np.random.default_rng(9), power_tuned=False
    )
    assert out.attrs["n_rejected"] == 0
    drawn = np.random.default_rng(9).integers(0, 30, size=(n_boot, 30), dtype=np.int32)
    dicts, folds = row_dicts(data)
    for b in range(n_boot):
        resampled = [r for i in drawn[b] for r in dicts if r["prompt"] == i]
        for policy in ("a", "b"):
            np.testing.assert_allclose(
                out.draws.sel(policy=policy)[b], oracles.theta(resampled, policy, folds)
            )


@pytest.mark.slow
def test_pooled_cells_have_the_distribution_of_resampled_rows():
    """Pooling clusters by pattern is exact in law: mean and variance agree within 5 Monte Carlo SEs."""
    rng = np.random.default_rng(0)
    n, n_boot = 12_000, 1500
    score = rng.choice(GRID, n)
    label = np.where(np.arange(n) < 100, np.clip(score + rng.normal(0, 0.2, n), 0, 1), np.nan)
    frame = pd.DataFrame(
        {"policy": "a", "prompt_id": np.arange(n), "judge_score": score, "oracle_label": label}
    )
    pooled = direct.estimate(from_frame(frame), inference=Bootstrap(n=n_boot), rng=1).draws.values[0]
    frame["cluster"] = frame.prompt_id
    frame["draw_idx"] = 0
    twice = pd.concat(
        [frame, frame.assign(draw_idx=1, oracle_label=np.nan)[:1]]
    )  # one repeated draw: no pooling
    alone = direct.estimate(from_frame(twice), inference=Bootstrap(n=n_boot), rng=2).draws.values[0]
    flat = arrays(from_frame(frame))[0]
    _, cells = compress(flat, positive=False, straight=True)
    assert len(cells.size) < n / 30  # the pooled path really was taken
    sd = np.sqrt((pooled.var() + alone.var()) / n_boot)
    assert abs(pooled.mean() - alone.mean()) < 5 * sd
    ratio = pooled.var(ddof=1) / alone.var(ddof=1)
    assert abs(np.log(ratio)) < 5 * np.sqrt(4 / n_boot)  # Var(log s^2) ~ 2 / n for each


def test_resamples_without_enough_labels_are_named_not_reported():
    """Forty policies with four labels each on prompts of their own: hardly any resample serves them all."""
    rng = np.random.default_rng(0)
    n = 400
    score = rng.choice(GRID, (40, n))
    label = np.full((40, n), np.nan)
    for p in range(40):
        mine = slice(10 * p, 10 * p + 4)
        label[p, mine] = np.clip(score[p, mine] + rng.normal(0, 0.2, 4), 0, 1)
    data = from_arrays(score, policies=[f"p{k:02d}" for k in range(40)], oracle=label)
    out = direct.estimate(data, inference=Bootstrap(n=40), rng=0)
    assert (out.status == Status.FEW_RESAMPLES).all()
    assert np.isfinite(out.estimate).all()
    assert np.isnan(out.interval).all()
    assert (direct.estimate(data, inference="influence").status == Status.OK).all()


def rejections(data, n_boot, seed, *, residuals):
    """Resamples thrown away before `n_boot` are had, by counting the labels in each.

    Half of the labels must be drawn; and, where `residuals` are held out, something must be left to fit on.
    """
    order = sorted(data.prompt.values.tolist())
    names = data.prompt.values[data.labelled.any(("policy", "draw")).values].tolist()
    fold = assign_folds(names, np.ones(len(names), bool))
    fold_of = dict(zip([order.index(name) for name in names], fold, strict=True))
    rng = np.random.default_rng(seed)
    shape = (n_boot, len(order))
    drawn = np.concatenate([rng.integers(0, len(order), size=shape, dtype=np.int32) for _ in range(2)])
    seen = [[fold_of[i] for i in row if i in fold_of] for row in drawn.tolist()]
    enough = [len(folds) >= len(names) // 2 and (len(set(folds)) > 1 or not residuals) for folds in seen]
    needed = np.flatnonzero(enough)[n_boot - 1] + 1
    return needed - n_boot


@pytest.mark.parametrize("correction", ["theta_aug", "none"])
def test_rejected_resamples_are_those_with_too_few_labels(correction):
    frame = table(n=60, policies=("a",), share=0.0)
    frame.loc[:7, "oracle_label"] = np.linspace(0.1, 0.9, 8)
    n_boot = 200
    options = {"inference": Bootstrap(n=n_boot), "correction": correction, "power_tuned": False}
    data = from_frame(frame)
    out = direct.estimate(data, rng=4, **options)
    expected = rejections(data, n_boot, 4, residuals=correction != "none")
    assert out.attrs["n_rejected"] == expected > 0
    assert out.draws.notnull().all()


@pytest.mark.parametrize("power_tuned", [True, False])
def test_seven_labels_terminate_and_rejections_are_counted(power_tuned):
    """The paper's n_min = 30 never ends here; half the labels does, and the rejected resamples are reported."""
    data = from_frame(table(n=250, policies=("a",), share=0.05, seed=3))
    assert data.labelled.sum() == 7
    out = direct.estimate(data, inference=Bootstrap(n=500), rng=0, power_tuned=power_tuned)
    assert out.draws.notnull().all()
    # tuning gives the calibrator no weight here, so no resample is lost for want of a held-out fit
    assert out.attrs["n_rejected"] == rejections(data, 500, 0, residuals=not power_tuned) > 0


KINDS = {
    "plug_in": {"correction": "none"},
    "hajek": {"power_tuned": False},
    "ht": {"power_tuned": False, "normalise": "ht"},
    "tmle": {"power_tuned": False, "correction": "tmle"},
}


def unequal(seed=0, n=40):
    """Labels under both policies with unequal known probabilities, repeated draws, clusters of two prompts."""
    frame = table(n=n, seed=seed, own=("a", "b"), share=0.7, draws=2)
    frame["label_prob"] = 0.3 + 0.5 * frame["judge_score"]
    frame["cluster"] = frame.prompt_id.str[1:].astype(int) // 2
    return from_frame(frame)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weights", ["counts", "exponential"])
def test_kernel_is_the_definition_under_any_cluster_weights(kind, weights):
    """Values and analytic variances of replicates, by loops: counts with repeats and zeros, and positive weights."""
    data = unequal()
    flat, _ = arrays(data, **KINDS[kind])
    rng = np.random.default_rng(3)
    shape = (6, flat.n_clusters)
    times = rng.poisson(1.0, shape).astype(float) if weights == "counts" else rng.exponential(size=shape)
    values, variances, valid = replicate_values(flat, times, variance=True)
    assert valid.all()
    dicts, folds = row_dicts(data)
    for b in range(len(times)):
        drawn = dict(enumerate(times[b]))
        for p, policy in enumerate("ab"):
            np.testing.assert_allclose(values[b, p], slow.value(dicts, policy, folds, kind, drawn), atol=1e-9)
            expected = slow.variance(dicts, policy, folds, kind, drawn)
            np.testing.assert_allclose(variances[b, p], expected, rtol=1e-7)


@pytest.mark.parametrize("scale", [(0.0, 1.0), (-2.0, 3.0)])
@pytest.mark.parametrize("power_tuned", [True, False])
@pytest.mark.parametrize("correction", ["theta_aug", "tmle", "none"])
def test_pitfall_40_weights_of_one_give_the_estimate(correction, power_tuned, scale):
    """One point estimate: the kernel's with every cluster once is the analytic path's, route by route."""
    data = from_frame(table(n=80, own=("a", "b"), seed=4))
    data.attrs["oracle_range"] = list(scale)
    for design in (data, unequal(), from_frame(table(own=("a",))), from_frame(table(share=2.0))):
        options = {"correction": correction, "power_tuned": power_tuned, "scale": scale}
        if design is not data:
            options["scale"] = (0.0, 1.0)
        flat, fits = arrays(design, **options)
        values, _, _ = replicate_values(flat, np.ones((1, flat.n_clusters)))
        np.testing.assert_allclose(values[0], [fit.result.value for fit in fits], atol=1e-10)


def test_pooled_cells_keep_the_tuned_prediction():
    """A cell's first cluster stands for all: with counts spread over its members the value is the same."""
    data = from_frame(table(n=3000, share=0.02, policies=("a",), seed=2))
    flat, _ = arrays(data)
    pooled, cells = compress(flat, positive=False, straight=False)
    assert len(cells.size) < flat.n_clusters
    counts = np.random.default_rng(0).poisson(1.0, (4, flat.n_clusters)).astype(float)
    summed = np.stack([np.bincount(cells.cell_of, weights=row) for row in counts])
    np.testing.assert_allclose(
        replicate_values(pooled, summed)[0], replicate_values(flat, counts)[0], atol=1e-12
    )


@pytest.mark.parametrize("pooled", [False, True])
def test_bayesian_weights_have_the_moments_of_a_dirichlet(pooled):
    """The label mean under Dirichlet weights has mean Ybar and variance s^2 / (G + 1), in closed form."""
    n, n_boot = 1500, 4000
    rng = np.random.default_rng(5)
    score, label = rng.choice([0.2, 0.8], n), rng.choice([0.0, 0.5, 1.0], n)
    data = from_arrays(score[None], policies=["a"], oracle=label[None])
    flat, _ = arrays(data)
    if pooled:
        flat = flat._replace(own_start=np.array([0, 0]), route=np.array([0]), teach_label=label * 0 + score)
        flat = flat._replace(teach_cluster=flat.teach_cluster[:4], teach_at=flat.teach_at[:4])
        flat = flat._replace(
            teach_label=flat.teach_label[:4], teach_weight=np.ones(4), teach_fold=np.zeros(4, int)
        )
        flat = flat._replace(**{name: getattr(flat, name)[:0] for name in OWN})  # no label of its own
        label = score  # the plug-in of a calibrator that repeats the score
        assert len(compress(flat, positive=True, straight=True)[1].size) < n
    out = bootstrap_direct(flat, n_boot, np.random.default_rng(6), weights="exponential")
    assert out.n_rejected == 0
    expected = label.var() / (n + 1)
    assert abs(out.draws.mean() - label.mean()) < 5 * np.sqrt(expected / n_boot)
    assert abs(np.log(out.draws.var(ddof=1) / expected)) < 5 * np.sqrt(2 / n_boot)


def test_pitfall_31_bayesian_weights_multiply_label_weights():
    """In `test_kernel_is_the_definition...` both vary; here: doubling every weight changes nothing."""
    flat, _ = arrays(unequal(), power_tuned=False)
    times = np.random.default_rng(0).exponential(size=(3, flat.n_clusters))
    np.testing.assert_allclose(
        replicate_values(flat, times)[0], replicate_values(flat, 2 * times)[0], atol=1e-12
    )


def test_pitfall_26_bayesian_bootstrap_rejects_nothing():
    """Eight labels: the paper's resampling has to discard samples, positive weights keep every label."""
    frame = table(n=60, policies=("a",), share=0.0)
    frame.loc[:7, "oracle_label"] = np.linspace(0.1, 0.9, 8)
    data = from_frame(frame)
    paper = direct.estimate(data, inference=Bootstrap(n=300), rng=0)
    positive = direct.estimate(data, inference=Bootstrap("bayesian", 300), rng=0)
    assert paper.attrs["n_rejected"] > 0
    assert positive.attrs["n_rejected"] == 0


@pytest.mark.parametrize("kind", ["percentile", "bayesian", "bca", "studentised"])
@pytest.mark.parametrize("correction", ["theta_aug", "tmle", "none"])
def test_every_bootstrap_interval_contains_the_same_estimate(kind, correction):
    data = from_frame(table(n=80, seed=1))
    analytic = direct.estimate(data, correction=correction, borrowed="plug_in")
    out = direct.estimate(data, inference=Bootstrap(kind, 200), correction=correction, rng=0)
    assert out.attrs["ci_kind"] == kind
    np.testing.assert_array_equal(out.estimate, analytic.estimate)
    np.testing.assert_allclose(out.std_error, out.draws.std("replicate", ddof=1))
    assert (out.interval.sel(ci_bound="lower") < out.estimate).all()
    assert (out.interval.sel(ci_bound="upper") > out.estimate).all()
    ratio = (out.interval.diff("ci_bound").squeeze() / analytic.interval.diff("ci_bound").squeeze()).values
    assert ((ratio > 0.5) & (ratio < 2)).all()


def test_bca_matches_its_formula():
    rng = np.random.default_rng(0)
    draws, influence = rng.gamma(4.0, size=999), rng.exponential(size=40) - 1
    cluster = np.arange(40) // 2
    sums = [influence[2 * g] + influence[2 * g + 1] for g in range(20)]
    a = sum(u**3 for u in sums) / (6 * sum(u**2 for u in sums) ** 1.5)
    np.testing.assert_allclose(acceleration(influence, cluster), a)
    np.testing.assert_allclose(bca(draws, 4.1, a, 0.9), slow.bca(draws, 4.1, a, 0.9))
    plain = bca(draws, float(np.median(draws)), 0.0, 0.9)  # no bias, no skew: the percentile interval
    np.testing.assert_allclose(plain, np.quantile(draws, [0.05, 0.95]), rtol=1e-3)


def test_bca_acceleration_is_the_jackknife_of_a_mean():
    """For a mean the influence values give Efron's jackknife acceleration exactly."""
    y = np.random.default_rng(1).exponential(size=30)
    left_out = np.array([np.delete(y, i).mean() for i in range(30)])
    u = left_out.mean() - left_out
    np.testing.assert_allclose(
        acceleration(y - y.mean(), np.arange(30)), (u**3).sum() / (6 * (u**2).sum() ** 1.5)
    )


def test_studentised_interval_turns_the_pivot_round():
    draws, error = np.array([0.0, 1.0, 2.0, 3.0, 4.0]), np.array([1.0, 1.0, 1.0, 1.0, 2.0])
    np.testing.assert_allclose(studentised(draws, error, 1.0, 0.5, 0.5), [1 - 0.5 * 1.5, 1 - 0.5 * 0.0])
    rng = np.random.default_rng(0)
    draws, error = rng.gamma(4.0, size=999), rng.uniform(0.5, 2.0, 999)
    np.testing.assert_allclose(
        studentised(draws, error, 4.1, 1.3, 0.9), slow.studentised(draws, error, 4.1, 1.3, 0.9)
    )


def test_studentised_interval_is_students_for_normal_labels():
    """Five labels are few enough that the pivot is visibly wider than normal: about Student's t with m - 1 df."""
    rng = np.random.default_rng(2)
    m = 12
    label = rng.normal(0.5, 0.05, m)
    data = from_arrays(np.full((1, m), 0.5), policies=["a"], oracle=label[None])
    out = direct.estimate(data, inference=Bootstrap("studentised", 4000), rng=3)
    low, high = out.interval.values[0]
    se = label.std(ddof=1) / np.sqrt(m)
    assert 1.96 < (high - low) / 2 / se < 3.2  # t_11 is 2.20; percentile gives 1.9


def test_pitfall_32_a_label_shared_by_policies_gets_one_weight():
    """Teacher and borrower answer the same prompts: their replicates move together."""
    data = from_frame(table(n=100, seed=3))
    out = direct.estimate(data, inference=Bootstrap(n=800), rng=1, correction="none")
    a, b = out.draws.values
    assert np.corrcoef(a, b)[0, 1] > 0.4


def with_covariate(n=80, seed=0):
    rng = np.random.default_rng(seed)
    score, x = rng.uniform(size=(1, n)), rng.uniform(size=(1, n, 1))
    label = np.clip(0.6 * score + 0.3 * x[..., 0] + rng.normal(0, 0.1, (1, n)), 0, 1)
    label[:, 50:] = np.nan
    return from_arrays(score, policies=["a"], oracle=label, covariate=x, features=["x"])


@pytest.mark.parametrize("correction", ["theta_aug", "tmle", "none"])
def test_covariates_give_one_estimate_whatever_the_interval(correction):
    data = with_covariate()
    options = {"calibration": Calibration(["x"]), "correction": correction, "rng": 0}
    analytic = direct.estimate(data, **options)
    for more in (
        {"inference": Bootstrap(n=30)},
        {"inference": "jackknife"},
        {"inference": "plugin_iid"},
    ):
        np.testing.assert_array_equal(direct.estimate(data, **options, **more).estimate, analytic.estimate)
    assert analytic.estimate != direct.estimate(data, correction=correction).estimate


def test_a_studentised_two_stage_bootstrap_is_refused():
    with pytest.raises(ValueError, match="monotone"):
        direct.estimate(with_covariate(), calibration=Calibration(["x"]), inference=Bootstrap("studentised"))
