"""Shift of the mean residual: closed form, quadrature, the cut, and the Arena sample."""

import numpy as np
import oracles_bayes
import pytest
from bare_arrays import rows_of
from scipy import special, stats

from cje_core.bayes import gibbs
from cje_core.bayes import shifts as transport
from cje_core.bayes.gibbs import Draws
from cje_core.bayes.levels import grade
from cje_core.bayes.shifts import SLAB, probe_corrected, shifts
from cje_core.bayes.value import inflation
from cje_core.calibration.oracle_slice import fit_slice
from cje_core.data import from_arrays
from cje_core.data.arrays import unpack
from cje_core.estimators import bayes_corrected, bayes_direct
from cje_core.io import files

ALPHA = 2 * stats.norm.sf(5)


def audit(shift, n_probes=(12, 9), *, seed=0, cluster=None, draws=1, copies=1):
    """A base with labels and one probed policy per entry of `shift`; f is known to be the score."""
    rng = np.random.default_rng(seed)
    n = 30
    names = ["base", *(f"p{k}" for k in range(len(shift)))]
    score = rng.choice([0.2, 0.5, 0.8], (len(names), n, draws))
    label = score + rng.normal(0, 0.1, score.shape) * (score > 0)
    probe = np.zeros(score.shape, bool)
    for k, (delta, count) in enumerate(zip(shift, n_probes, strict=False)):
        label[k + 1] += delta
        probe[k + 1, :count] = True
    label = np.clip(label, 0, 1)
    seen = probe.copy()
    seen[0] = True
    if copies > 1:
        score, label, seen, probe = (
            np.concatenate([x] * copies, axis=1) for x in (score, label, seen, probe)
        )
        cluster = np.tile(np.arange(n), copies)
    data = from_arrays(
        score, policies=names, oracle=np.where(seen, label, np.nan), probe=probe, cluster=cluster
    )
    rows = unpack(data)
    graded = grade(rows, fit_slice(rows, calibrator="monotone"), judge_range=(0, 1), oracle_range=(0, 1))
    return rows, graded


def known(graded, n_draws):
    """Draws of a calibrator without any doubt: f is the judge."""
    f = np.tile(graded.levels.level, (n_draws, 1))
    return Draws(f, f[:, [0, -1]], f, np.full(n_draws, 0.1), {})


def test_shifts_are_from_the_calibrator_at_the_probe_s_covariates():
    """An effect that is the same on every row of a level is an f of another shape: the same shifts, draw by draw."""
    rows, graded = audit((0.1, -0.05))
    draws = gibbs.sample(graded.levels, n_draws=40, rng=1)
    rng = np.random.default_rng(2)
    effect, beta = rng.normal(size=len(graded.levels.level)), rng.normal(size=(40, 1))
    f = special.expit(special.logit(draws.f) + beta * effect)
    columns = graded._replace(columns=effect[graded.at][:, None])
    found = shifts(rows, columns, draws._replace(beta=beta), rng=3).delta
    np.testing.assert_allclose(found, shifts(rows, graded, draws._replace(f=f), rng=3).delta, rtol=1e-9)
    assert (found[1:] != shifts(rows, graded, draws, rng=3).delta[1:]).all()


def moments(rows, graded, p):
    """Mean residual, sum of squares about it and count of policy p's probed prompts."""
    residual = []
    for i in np.unique(rows.prompt[rows.probe & (rows.policy == p)]):
        mine = rows.probe & (rows.policy == p) & (rows.prompt == i)
        residual.append((graded.label[mine] - graded.levels.level[graded.at[mine]]).mean())
    return np.mean(residual), np.sum((residual - np.mean(residual)) ** 2), len(residual)


@pytest.mark.parametrize(
    "options", [{}, {"draws": 2}, {"cluster": np.arange(30) // 2}], ids=["plain", "draws", "clusters"]
)
def test_without_pooling_probes_correct_as_own_labels_do(options):
    """Against the oracle of the one-step posterior, the probes of each policy in the place of its labels."""
    rows, graded = audit((0.1, -0.2), (12, 8), **options)
    draws = gibbs.sample(graded.levels, n_draws=7, rng=1)
    value, delta = probe_corrected(rows, graded, draws, rng=2)
    prompts = [len(set(rows.prompt[rows.probe & (rows.policy == p)])) for p in range(3)]
    assert prompts == [0, 12, 8]
    share = np.ones(len(rows.policy))
    for i in np.flatnonzero(rows.probe):
        share[i] = ((rows.probe & (rows.policy == rows.policy[i])) & (rows.prompt == rows.prompt[i])).sum()
    as_labels = rows._replace(labelled=rows.probe, label_prob=share * rows.weight)
    count = [np.inf]
    for p in (1, 2):
        mine = rows.probe & (rows.policy == p)
        each = np.bincount(rows.cluster[rows.prompt[mine]], 1 / share[mine])
        count.append(each.sum() ** 2 / (each**2).sum())
    factor = [inflation(m, 0.0) if np.isfinite(m) else 1.0 for m in count]
    own, means = np.array([False, True, True]), oracles_bayes.row_means(rows, graded, draws)
    expected = oracles_bayes.value_draws(as_labels, graded, means, own, factor, count, 2)
    np.testing.assert_allclose(value[1:], expected[1:], rtol=1e-12)
    plug_in = oracles_bayes.value_draws(rows, graded, means, own & False, factor, count, 2)
    np.testing.assert_allclose(delta[1:], (expected - plug_in)[1:], atol=1e-12)
    assert np.isnan(value[0]).all() and np.isnan(delta[0]).all()


def test_pooled_values_stay_on_the_scale():
    rows, graded = audit((0.3, 0.3), (12, 9))
    top = known(graded, 300)._replace(f=np.full((300, len(graded.levels.level)), 0.97))
    value, delta = probe_corrected(rows, graded, top, prior="student", rng=1)
    added = shifts(rows, graded, top, rng=np.random.default_rng(1)).delta
    assert (0.97 + added[1:] > 1).any()
    assert value[1:].max() <= 1
    np.testing.assert_allclose(value[1:], 0.97 + delta[1:])


def test_copies_inside_their_clusters_add_no_probes():
    rows, graded = audit((0.1, -0.2))
    tied, both = audit((0.1, -0.2), copies=2)
    found = shifts(tied, both, known(both, 200), prior="student", rng=1)
    expected = shifts(rows, graded, known(graded, 200), prior="student", rng=1)
    np.testing.assert_allclose(found.delta, expected.delta, rtol=1e-6)
    assert found.n_probes.tolist() == [0, 24, 18]


@pytest.mark.slow
@pytest.mark.parametrize("prior", ["normal", "student", "horseshoe"])
@pytest.mark.parametrize("shift", [(0.0,), (0.1, -0.01), (0.02, 0.01)])
def test_pooled_priors_against_quadrature(prior, shift):
    check_against_quadrature(*audit(shift, seed=4), prior, SLAB)


@pytest.mark.slow
def test_the_slab_holds_a_far_off_shift(monkeypatch):
    """As wide as the standard error of the mean residual, it pulls a shift of many standard errors half way back."""
    monkeypatch.setattr(transport, "SLAB", 0.03)
    check_against_quadrature(*audit((0.2,), seed=4), "horseshoe", 0.03)


def check_against_quadrature(rows, graded, prior, slab):
    found = shifts(rows, graded, known(graded, 20_000), prior=prior, scale=0.05, rng=3)
    tested = range(1, len(rows.policies))
    mean, square, n = np.array([moments(rows, graded, p) for p in tested]).T
    center, sd = oracles_bayes.shift_posterior(mean, square, n, prior=prior, scale=0.05, slab=slab)
    for p in tested:
        x = found.delta[p]
        mcse = x.std() / np.sqrt(oracles_bayes.effective_draws(x))
        assert abs(x.mean() - center[p - 1]) < 5 * mcse, (x.mean(), center[p - 1], mcse)
        squared = (x - x.mean()) ** 2
        spread = squared.std() / np.sqrt(oracles_bayes.effective_draws(squared)) / (2 * x.std())
        assert abs(x.std() - sd[p - 1]) < 5 * spread, (x.std(), sd[p - 1], spread)


def test_heavy_tails_let_an_outlier_go():
    """A far-off policy is pulled less by Student's t than by the normal prior, and the others are pooled more."""
    rows, graded = audit((0.0, 0.01, -0.01, 0.15), (20, 20, 20, 20), seed=2)
    found = {
        prior: probe_corrected(rows, graded, known(graded, 4000), prior=prior, rng=5)[1]
        for prior in ("flat", "normal", "student")
    }
    assert found["student"][1:4].std(axis=1).mean() < found["normal"][1:4].std(axis=1).mean()
    assert found["normal"][1:4].std(axis=1).mean() < found["flat"][1:4].std(axis=1).mean()


@pytest.mark.slow
def test_a_shift_that_few_binary_probes_show_is_covered():
    """Five probed policies, one shifted by -.25, 20 binary probes: a pooled prior pulls it to the others' and misses.

    Value of the shifted policy and its difference from another, within five standard errors of .95.
    """
    reps, n, hits = 150, 200, {"flat": np.zeros(2), "student": np.zeros(2)}
    large = np.random.default_rng(0).beta(3.5, 1.5, 1_000_000)
    truth = np.array([large.clip(0.25).mean() - 0.25, large.clip(0.25).mean() - 0.25 - 0.7])
    names = ["base", *(f"p{k}" for k in range(5))]
    for r in range(reps):
        rng = np.random.default_rng(r)
        score = rng.beta(3.5, 1.5, (6, n))
        mean = score - np.array([0, 0, 0, 0, 0, 0.25])[:, None]
        oracle = (rng.random((6, n)) < mean).astype(float)
        probe = (np.arange(n) < 20) & (np.arange(6) > 0)[:, None]
        oracle[~probe & ((np.arange(n) >= 100) | (np.arange(6) > 0)[:, None])] = np.nan
        rows = rows_of(score, oracle, names, probe=probe, teach=("base",))
        fitted = fit_slice(rows, calibrator="monotone", every_fold=False)
        graded = grade(rows, fitted, judge_range=(0, 1), oracle_range=(0, 1))
        draws = gibbs.sample(graded.levels, n_draws=199, rng=rng)
        for prior, hit in hits.items():
            value = probe_corrected(rows, graded, draws, prior=prior, rng=np.random.default_rng(r))[0]
            both = np.stack([value[5], value[5] - value[1]])
            low, high = np.quantile(both, [0.025, 0.975], axis=1, method="weibull")
            hit += (low <= truth) & (truth <= high)
    least = stats.binom.ppf(ALPHA / 2, reps, 0.95)
    assert (hits["flat"] >= least).all() and (hits["student"] < least).all()


def test_probes_never_bend_f():
    """The cut: other probe labels, same draws of f and of the plug-in."""
    rows, graded = audit((0.1,), (12,))
    label = graded.label.copy()
    label[rows.probe] = 1 - label[rows.probe]
    other = rows._replace(label=label)
    fitted = fit_slice(other, calibrator="monotone")
    again = grade(other, fitted, judge_range=(0, 1), oracle_range=(0, 1))
    np.testing.assert_array_equal(
        gibbs.sample(graded.levels, n_draws=20, rng=1).f, gibbs.sample(again.levels, n_draws=20, rng=1).f
    )
    assert not np.array_equal(graded.label[rows.probe], again.label[rows.probe])


def test_few_probes_have_no_shift():
    rows, graded = audit((0.1, 0.1), (3, 4))
    found = shifts(rows, graded, known(graded, 10), rng=1)
    assert np.isnan(found.delta[:2]).all()
    assert np.isfinite(found.delta[2]).all()
    nobody = rows._replace(probe=np.zeros_like(rows.probe))
    assert np.isnan(shifts(nobody, graded, known(graded, 10), rng=1).delta).all()


def test_names_do_not_matter():
    rows, graded = audit((0.1, -0.1), (12, 12))
    code = np.array([0, 2, 1])
    renamed = rows._replace(policy=code[rows.policy])
    first = shifts(rows, graded, known(graded, 30), rng=4).delta
    np.testing.assert_allclose(shifts(renamed, graded, known(graded, 30), rng=4).delta[code], first)


def test_options_out_of_range():
    rows, graded = audit((0.1,), (12,))
    with pytest.raises(ValueError, match="prior"):
        probe_corrected(rows, graded, known(graded, 5), prior="cauchy")
    with pytest.raises(ValueError, match="scale"):
        shifts(rows, graded, known(graded, 5), scale=0.0)


@pytest.mark.slow
def test_arena_acceptance(arena):
    data, _ = files.read(arena / "fresh_draws", probes=arena / "probe_slice", calibration_policy="base")
    out = bayes_corrected.estimate(data, rng=0, n_draws=4000).sel(
        policy=["unhelpful", "clone", "parallel_universe_prompt"]
    )
    far = out.sel(policy="unhelpful")
    assert -0.36 < float(far["shift"]) < -0.15
    assert (np.abs(far["shift_draws"]) < 0.05).mean() < 0.01
    assert (out["within_margin"].values[1:] > 0.85).all(), out["within_margin"].values
    low, high = far["interval"].values
    assert low < 0.159 < high
    base = bayes_direct.estimate(data, rng=0).sel(policy="base")
    assert abs(float(base["estimate"]) - 0.754) < 0.01
