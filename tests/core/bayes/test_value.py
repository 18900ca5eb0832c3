"""Value and projection posteriors against loops over rows."""

import numpy as np
import oracles_bayes
import pytest
from scipy import stats

from cje_core.bayes import gibbs, value
from cje_core.bayes.gibbs import Draws
from cje_core.bayes.levels import grade
from cje_core.bayes.projection import projected_values
from cje_core.bayes.value import balance, inflation, spent, values, within
from cje_core.calibration.oracle_slice import fit_slice
from cje_core.data import from_arrays
from cje_core.data.arrays import unpack
from cje_sim.scenarios import discrete_judge

WORLDS = {
    "plain": {},
    "draws and clusters": {"draws": 2, "clustered": True},
    "propensities": {"unequal": True},
    "decreasing": {"direction": "decreasing"},
}


def world(n=40, seed=0, *, draws=1, clustered=False, unequal=False, direction="increasing"):
    """Two policies on scales that are not [0, 1], and rows, slice and levels of them."""
    rng = np.random.default_rng(seed)
    shape = (2, n, draws)
    quality = rng.choice([0.1, 0.4, 0.8, 0.9], shape)
    score = 10 * (quality if direction == "increasing" else 1 - quality)
    score[:, ::3, 1:] = np.nan
    prob = np.where(quality > 0.5, 0.8, 0.4) if unequal else np.full(shape, 0.6)
    seen = (rng.uniform(size=shape) < prob) & np.isfinite(score)
    label = 1 + 4 * np.clip(quality**2 + rng.normal(0, 0.2, shape), 0, 1)
    data = from_arrays(
        score,
        policies=["a", "b"],
        oracle=np.where(seen, label, np.nan),
        label_prob=prob if unequal else None,
        cluster=np.arange(n) // 2 if clustered else None,
        judge_range=(0, 10),
        oracle_range=(1, 5),
        calibration_policy="a",
    )
    rows = unpack(data)
    fitted = fit_slice(rows, direction=direction, calibrator="monotone")
    return rows, fitted, grade(rows, fitted, judge_range=(0, 10), oracle_range=(1, 5))


def kish(rows, p, omega=None):
    """Effective clusters of a policy's own labels, or of those that teach under weights omega."""
    cluster = rows.cluster[rows.prompt]
    mine = (rows.policy == p) & rows.labelled & rows.evaluated
    weight = rows.weight / rows.label_prob
    if omega is not None:
        mine, weight = rows.teaches, weight.copy()
        weight[list(omega)] *= list(omega.values())
    v = np.array([weight[mine & (cluster == g)].sum() for g in np.unique(cluster)])
    return v.sum() ** 2 / (v**2).sum()


def extended(rows, graded, model):
    """Draws of one of the models, and `graded` with what it needs."""
    draws = gibbs.sample(graded.levels, n_draws=6, rng=1)
    rng = np.random.default_rng(5)
    if model == "covariates":
        columns = rng.normal(size=(len(rows.score), 2))
        return draws._replace(beta=rng.normal(size=(6, 2))), graded._replace(columns=columns)
    if model == "one per policy":
        others = gibbs.sample(graded.levels, n_draws=6, rng=7).f
        return draws._replace(own=np.stack([draws.f, others], axis=1)), graded
    return draws, graded


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("model", ["judge", "covariates", "one per policy"])
@pytest.mark.parametrize("corrected", [(True, True), (True, False), (False, False)])
@pytest.mark.parametrize("one_step", [True, False])
def test_values_against_a_loop(name, model, corrected, one_step, monkeypatch):
    rows, _, graded = world(**WORLDS[name])
    draws, graded = extended(rows, graded, model)
    means = oracles_bayes.row_means(rows, graded, draws)
    own = np.array(corrected)
    found = values(rows, graded, draws, corrected=own, one_step=one_step, rng=2)
    position = means.mean(axis=0) if model == "covariates" else graded.levels.level[graded.at]
    omega = [oracles_bayes.omega(rows, position, p) for p in range(2)] if one_step else None
    factor, count = [], []
    for p in range(2):
        taught = rows.teaches if draws.own is None or not own[p] else rows.teaches & (rows.policy == p)
        size = kish(rows, p) if own[p] else kish(rows, p, omega[p]) if one_step else np.inf
        factor.append(inflation(size, spent(rows, graded, draws, taught)) if np.isfinite(size) else 1.0)
        count.append(size)
    expected = oracles_bayes.value_draws(rows, graded, means, own, factor, count, 2, borrowed=omega)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    monkeypatch.setattr(value, "inflation", lambda n_labels, df: 1.0)
    plain = values(rows, graded, draws, corrected=own, one_step=one_step, rng=2)
    expected = oracles_bayes.value_draws(rows, graded, means, own, [1, 1], count, 2, borrowed=omega)
    np.testing.assert_allclose(plain, expected, rtol=1e-12)


def test_weights_of_a_policy_that_borrows():
    """By hand: labels at .2 (six) and .8 (six), so two bins; 10 responses below .8, 31 from there on."""
    score = np.full((2, 41), np.nan)
    score[0, :12] = np.repeat([0.2, 0.8], 6)
    score[1] = np.repeat([0.1, 0.2, 0.8, 0.9], [4, 6, 30, 1])
    oracle = np.where(np.isfinite(score) & (np.arange(2) == 0)[:, None], score, np.nan)
    rows = unpack(from_arrays(score, policies=["a", "b"], oracle=oracle, calibration_policy="a"))
    expected = np.where(rows.score[rows.teaches] < 0.5, 10 / 6, 31 / 6)
    np.testing.assert_allclose(balance(rows, rows.score, 1), expected)
    np.testing.assert_allclose(balance(rows, rows.score, 0), 1.0)  # of its own labels


def test_borrowing_from_oneself_is_the_correction_by_own_labels():
    """Omega is 1 where the policy's responses are the labelled ones."""
    rng = np.random.default_rng(4)
    score = rng.choice([0.2, 0.6, 0.9], (1, 60))
    label = np.clip(score + rng.normal(0, 0.2, (1, 60)), 0, 1)
    rows = unpack(from_arrays(score, policies=["a"], oracle=label))
    graded = grade(rows, fit_slice(rows, calibrator="monotone"), judge_range=(0, 1), oracle_range=(0, 1))
    draws = gibbs.sample(graded.levels, n_draws=50, rng=1)
    own, borrowed = (values(rows, graded, draws, corrected=np.array([c]), rng=2) for c in (True, False))
    np.testing.assert_allclose(own, borrowed, rtol=1e-12)


@pytest.mark.parametrize("model", ["judge", "covariates", "one per policy"])
@pytest.mark.parametrize("binary", [False, True])
def test_spent_is_its_formula(model, binary):
    rows, _, graded = world(clustered=True)
    draws, graded = extended(rows, graded, model)
    graded = graded._replace(levels=graded.levels._replace(binary=binary))
    assert graded.share < 1
    means = oracles_bayes.row_means(rows, graded, draws)[:, rows.teaches]
    centre = means.mean(axis=0)
    noise = centre * (1 - centre) if binary else (draws.sigma**2).mean()
    expected = graded.share * (means.var(axis=0) / noise).sum()
    assert spent(rows, graded, draws, rows.teaches) == pytest.approx(expected)


def test_inflation_is_its_formula():
    for m, df in ((13, 2.0), (50, 3.5), (1000, 5.0)):
        nu = m - 1 - df
        expected = np.sqrt((m + 1) / nu) * stats.t.ppf(0.975, nu) / stats.norm.ppf(0.975) * (m + 1) / m
        assert inflation(m, df) == pytest.approx(expected)
    assert inflation(4, 10) == inflation(4, 1e6), "degrees of freedom never fall below 3"
    assert inflation(4, 10) == pytest.approx(
        5 / 4 * np.sqrt(5 / 3) * stats.t.ppf(0.975, 3) / stats.norm.ppf(0.975)
    )


def test_inflation_gives_labels_alone_a_t_interval():
    """A constant f spends nothing; the uninflated half-width is that of the bootstrap, m / (m + 1) of it moves V."""
    m = 15
    assert inflation(m, 0.0) * m / (m + 1) * 1.96 / np.sqrt(m + 1) == pytest.approx(
        stats.t.ppf(0.975, m - 1) / np.sqrt(m - 1), rel=1e-4
    )


def test_spent_counts_parameters():
    """Free means at each level spend one parameter each: Var(f_k) = sigma^2 / n_k."""
    rows, _, graded = world()
    levels = graded.levels
    rng = np.random.default_rng(0)
    n_draws, sigma = 20_000, 0.2
    f = 0.5 + sigma * rng.normal(size=(n_draws, len(levels.n))) / np.sqrt(np.maximum(levels.n, 1))
    seen = int((levels.n > 0).sum())
    draws = Draws(f, f[:, :2], f, np.full(n_draws, sigma), {})
    assert spent(rows, graded, draws, rows.teaches) == pytest.approx(
        seen, abs=5 * np.sqrt(2 * seen / n_draws)
    )
    graded = graded._replace(levels=levels._replace(binary=True))
    binary = spent(rows, graded, draws, rows.teaches)
    assert binary == pytest.approx(seen * sigma**2 / 0.25, rel=0.05)


def test_the_value_hardly_depends_on_f_where_all_is_labelled(monkeypatch):
    """Every response labelled: plug-in and residual share w, so f cancels: labels and one pseudo-label are left."""
    rng = np.random.default_rng(3)
    score = rng.choice([0.2, 0.6, 0.9], (1, 60))
    label = np.clip(score + rng.normal(0, 0.2, (1, 60)), 0, 1)
    rows = unpack(from_arrays(score, policies=["a"], oracle=label))
    fitted = fit_slice(rows, calibrator="monotone")
    graded = grade(rows, fitted, judge_range=(0, 1), oracle_range=(0, 1))
    monkeypatch.setattr(value, "inflation", lambda n_labels, df: 1.0)
    own = np.array([True])
    one, other = (
        values(rows, graded, gibbs.sample(graded.levels, n_draws=50, rng=r), corrected=own, rng=9)
        for r in (1, 2)
    )
    # the pseudo-label weighs 1 beside a sum of 60 exponentials, five standard deviations below its mean at least
    assert 0 < np.abs(one - other).max() < 1 / (60 - 5 * np.sqrt(60))


def test_draws_stay_on_the_scale_where_labels_are_near_its_end():
    """29 good labels of 30: with the residuals added to the plug-in a fifth of the draws lay above 1."""
    rng = np.random.default_rng(0)
    label = np.where(np.arange(200) < 30, (np.arange(200) > 0).astype(float), np.nan)[None]
    score = rng.choice([0.2, 0.6, 0.9], (1, 200))
    rows = unpack(from_arrays(score, policies=["a"], oracle=label))
    fitted = fit_slice(rows, calibrator="monotone")
    graded = grade(rows, fitted, judge_range=(0, 1), oracle_range=(0, 1))
    draws = gibbs.sample(graded.levels, n_draws=1000, rng=1)
    found = values(rows, graded, draws, corrected=np.array([True]), rng=2)[0]
    assert found.min() > 0 and found.max() < 1
    assert abs(found.mean() - 29 / 30) < 2 / 30  # two labels at most from their mean
    # equal labels at the end are not taken for certain
    sure = graded._replace(label=np.where(np.isnan(graded.label), np.nan, 1.0))
    assert values(rows, sure, draws, corrected=np.array([True]), rng=2)[0].std() > 0


def test_conditioning_on_the_scale_keeps_ranks():
    rng = np.random.default_rng(0)
    draws = np.stack([rng.normal(0.9, 0.1, 4000), rng.normal(0.5, 0.05, 4000), np.full(4000, 1.2)])
    found = within(draws, (0.0, 1.0))
    assert found.min() >= 0 and found.max() <= 1
    assert stats.spearmanr(found[0], draws[0]).statistic == pytest.approx(1)
    kept = draws[0][draws[0] <= 1]
    assert stats.ks_2samp(found[0], kept).statistic < 2 / 4000 + 1 / len(kept)
    np.testing.assert_array_equal(found[1], draws[1])
    assert (found[2] == 1).all()


def test_a_contrast_keeps_the_covariance_of_its_policies():
    """Shared weights and f: a clone differs from its original by far less than two unrelated values would."""
    data = discrete_judge.simulate(n=400, oracle_fraction=0.25, label_design="base", rng=0)
    rows = unpack(data)
    fitted = fit_slice(rows, calibrator="monotone")
    graded = grade(rows, fitted, judge_range=(0, 1), oracle_range=(0, 1))
    draws = gibbs.sample(graded.levels, n_draws=2000, rng=1)
    never = np.zeros(len(rows.policies), bool)
    v = values(rows, graded, draws, corrected=never, one_step=False, rng=2)
    a, b = rows.policies.index("base"), rows.policies.index("clone")
    apart = np.hypot(v[a].std(), v[b].std())
    # f is shared, and the prompts' own scores are correlated: under half of the variance is left
    assert (v[a] - v[b]).std() < 0.7 * apart


def test_a_policy_without_responses_has_no_value():
    rows, _, graded = world()
    lost = rows._replace(evaluated=rows.evaluated & (rows.policy == 0))
    draws = gibbs.sample(graded.levels, n_draws=5, rng=1)
    found = values(lost, graded, draws, corrected=np.array([True, False]), rng=2)
    assert np.isfinite(found[0]).all()
    assert np.isnan(found[1]).all()


@pytest.mark.parametrize("name", WORLDS)
def test_projection_against_a_loop(name):
    rows, fitted, graded = world(**WORLDS[name])
    found = projected_values(rows, fitted, graded, n_draws=6, rng=2)
    np.testing.assert_allclose(found, oracles_bayes.projection_draws(rows, graded, 6, 2), rtol=1e-10)
