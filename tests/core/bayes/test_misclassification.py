"""Bayesian Rogan-Gladen: posterior against quadrature, statuses and coverage."""

import numpy as np
import oracles_bayes
import pytest
from bare_arrays import rows_of
from scipy import stats

from cje_core.bayes.misclassification import Counts, sample
from cje_core.data import from_arrays
from cje_core.estimators import bayes_rogan_gladen, rogan_gladen
from cje_core.families.misclassification import Verdicts
from cje_core.inference.estimate import Status

ALPHA = 2 * stats.norm.sf(5)  # two-sided probability of five standard errors

CASES = {
    "borrowed": Counts(60.0, 100.0, 27.0, 30.0, 20.0, 26.0, 0.0, 0.0),
    "own labels": Counts(60.0, 100.0, 27.0, 30.0, 20.0, 26.0, 30.0, 56.0),
    "weak judge": Counts(50.0, 100.0, 8.0, 14.0, 6.0, 11.0, 14.0, 25.0),
    "at the edge": Counts(97.0, 100.0, 18.0, 20.0, 14.0, 20.0, 0.0, 0.0),
    "effective counts": Counts(30.5, 41.3, 10.2, 12.7, 5.5, 9.1, 12.7, 21.8),
    "nothing unlabelled": Counts(0.0, 0.0, 9.0, 12.0, 8.0, 10.0, 12.0, 22.0),
    "fewer passed than the bad ones should be": Counts(2.0, 100.0, 27.0, 30.0, 16.0, 26.0, 0.0, 0.0),
    "own labels against the verdicts": Counts(150.0, 1000.0, 80.0, 100.0, 90.0, 100.0, 90.0, 100.0),
}


N_DRAWS = 399  # where they are counted
QUICK = ("weak judge", "own labels")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in CASES]
)
def test_posterior_against_quadrature(name):
    n_draws = 20_000
    found = sample(CASES[name], n_draws=n_draws, accuracy_prior=(1.5, 1.0), rng=1)
    expected = oracles_bayes.rogan_gladen_moments(CASES[name], (1.5, 1.0))
    effective = min(found.effective, n_draws)
    assert effective > 1000
    for draws, (mean, sd) in zip((found.value, found.sensitivity, found.specificity), expected, strict=True):
        # weighted draws: the error of a mean may exceed that of Kish's count of proposals, not by a factor of 2
        assert abs(draws.mean() - mean) < 5 * 1.5 * sd / np.sqrt(effective), (draws.mean(), mean)
        assert abs(draws.std() / sd - 1) < 5 * 1.5 / np.sqrt(effective), (draws.std(), sd)


def test_an_uninformative_judge_leaves_the_prior():
    """Se + Sp - 1 near 0, known well: v stays uniform."""
    found = sample(Counts(5e5, 1e6, 5e5, 1e6, 5e5, 1e6, 0.0, 0.0), n_draws=4000, rng=0)
    assert found.value.std() == pytest.approx(1 / np.sqrt(12), rel=0.1)


def arrays(n=400, m=100, seed=0, *, se=0.85, sp=0.8, theta=(0.6, 0.3), labels="both", unequal=False):
    """Scores, visible labels and their probabilities, (2, n) each; no probabilities where they are equal."""
    rng = np.random.default_rng(seed)
    good = rng.uniform(size=(2, n)) < np.array(theta)[:, None]
    passed = rng.uniform(size=(2, n)) < np.where(good, se, 1 - sp)
    prob = np.where(passed, 0.5, 0.2)
    seen = rng.uniform(size=(2, n)) < prob if unequal else np.broadcast_to(np.arange(n) < m, (2, n)).copy()
    if labels == "base":
        seen[1] = False
    oracle = np.where(seen, np.where(good, 3.0, 1.0), np.nan)
    return np.where(passed, 7.0, 2.0), oracle, prob if unequal else None


def world(*args, **law):
    score, oracle, prob = arrays(*args, **law)
    return from_arrays(
        score,
        policies=["a", "b"],
        oracle=oracle,
        label_prob=prob,
        judge_range=(0, 10),
        oracle_range=(1, 3),
        calibration_policy="a",
    )


def value_draws(seed, **law):
    """What `bayes_rogan_gladen` draws of each policy's value, (2, draws), without a labelled data set."""
    score, oracle, prob = arrays(seed=seed, **law)
    rows = rows_of(score, oracle, ["a", "b"], label_prob=prob, teach=["a"])
    good = rows.label == 3.0
    verdicts = Verdicts(5.0, rows.score >= 5.0, good, good | (rows.label == 1.0))
    counts = {p: bayes_rogan_gladen._counts(rows, verdicts, p)[2] for p in range(2)}
    options = {"n_draws": N_DRAWS, "accuracy_prior": (1.0, 1.0), "rng": np.random.default_rng(seed)}
    found = bayes_rogan_gladen._posteriors(counts, **options)
    return 1 + 2 * np.stack([found[p].value for p in range(2)])


@pytest.mark.parametrize("unequal", [False, True])
def test_the_draws_are_those_of_the_estimator(unequal):
    data = world(m=50, seed=7, unequal=unequal)
    wanted = bayes_rogan_gladen.estimate(data, rng=7, n_draws=N_DRAWS)
    np.testing.assert_array_equal(value_draws(7, m=50, unequal=unequal), wanted["draws"].values)


@pytest.mark.slow
def test_statuses():
    def said(data, **options):
        return [Status(s) for s in bayes_rogan_gladen.estimate(data, rng=0, **options).status.values]

    assert said(world()) == [Status.OK] * 2
    assert said(world(labels="base")) == [Status.OK, Status.TRANSPORT_ASSUMED]
    assert said(world(m=0)) == [Status.NO_LABELS] * 2
    assert said(world(m=3)) == [Status.TOO_FEW_LABELS] * 2
    assert said(world(theta=(1.0, 0.5)))[0] == Status.ONE_CLASS
    assert said(world(se=0.15, sp=0.2)) == [Status.INVERTED_JUDGE] * 2
    assert said(world(se=0.5, sp=0.5, m=40)) == [Status.OK] * 2
    assert said(world(se=0.5, sp=0.5, m=40, labels="base")) == [Status.OK, Status.ILL_CONDITIONED]
    # unequal probabilities: labels are no plain sample of the responses and teach the judge's accuracy alone
    assert said(world(se=0.5, sp=0.5, m=40, unequal=True)) == [Status.ILL_CONDITIONED] * 2
    data = world()
    assert said(data.assign(oracle=data.oracle.where(data.oracle != 3, 2.5))) == [Status.NOT_BINARY] * 2
    # b fails nearly always, far more often than its bad responses should by a's labels; and few draws are draws
    contradicting = world(labels="base", sp=0.6).pipe(
        lambda d: d.assign(judge=d.judge.where((d.policy != "b") | (d.prompt.astype(int) < 4), 2.0))
    )
    assert said(contradicting) == said(contradicting, n_draws=40) == [Status.OK, Status.TRANSPORT_ASSUMED]
    few = bayes_rogan_gladen.estimate(world(m=12), rng=0)
    assert (few.status == Status.FEW_LABELS_POSTERIOR).all()
    assert few.interval.isnull().all() and few.draws.isnull().all() and few.estimate.notnull().all()
    for bad in ({"threshold": 11.0}, {"interval": "wald"}, {"accuracy_prior": (0.0, 1.0)}):
        with pytest.raises(ValueError):
            bayes_rogan_gladen.estimate(world(), **bad)


@pytest.mark.parametrize("labels", ["both", "base"])
def test_agrees_with_the_frequentist_where_labels_are_many(labels):
    data = world(n=8000, m=3000, labels=labels)
    bayes = bayes_rogan_gladen.estimate(data, rng=0, n_draws=4000)
    other = rogan_gladen.estimate(data, interval="wald")
    assert (abs(bayes.estimate - other.estimate) < 0.6 * other.std_error).all()
    borrowed = bayes.sel(policy="b").std_error / other.sel(policy="b").std_error
    if labels == "base":  # the same information
        assert float(borrowed) == pytest.approx(1, rel=0.1)
    else:  # own labels also count as a sample of the policy's responses, which the ratio estimator does not use
        assert float(borrowed) < 1.02
    np.testing.assert_allclose(bayes.sensitivity, other.sensitivity, atol=0.01)


def test_own_labels_identify_the_value_behind_a_useless_judge():
    """The interval is that of a share of as many labels, with a uniform prior."""
    out = bayes_rogan_gladen.estimate(world(n=2000, m=60, se=0.5, sp=0.5, seed=3), rng=0, n_draws=8000)
    good = (world(n=2000, m=60, se=0.5, sp=0.5, seed=3).oracle.isel(draw=0) == 3).sum("prompt").values
    for p in range(2):
        law = stats.beta(1 + good[p], 1 + 60 - good[p])
        np.testing.assert_allclose(out.interval[p], 1 + 2 * np.array(law.interval(0.95)), atol=0.04)


@pytest.mark.slow
@pytest.mark.parametrize("unequal", [False, True])
def test_coverage(unequal):
    """Between the 10th and the 390th of the draws, more of which would take more proposals."""
    replicates, truth = 610, 1 + 2 * np.array([0.6, 0.3])
    draws = [value_draws(seed, m=50, unequal=unequal) for seed in range(replicates)]
    low, high = np.quantile(draws, [0.025, 0.975], axis=-1, method="weibull")
    covered = ((low <= truth) & (truth <= high)).mean(axis=0)
    print("coverage", covered)
    slack = 5 * np.sqrt(0.95 * 0.05 / replicates)
    assert (np.abs(covered - 0.95) < slack).all() or (unequal and (covered > 0.95 - slack).all())


def test_an_interval_that_all_but_reaches_an_end_starts_there():
    draws = np.concatenate([stats.expon.ppf((np.arange(2000) + 0.5) / 2000) / 20])
    low, high = bayes_rogan_gladen._shortest(draws, (0.0, 1.0), 0.95)
    assert low == 0 and high == pytest.approx(-np.log(0.05) / 20, rel=0.02)
    turned = bayes_rogan_gladen._shortest(1 - draws, (0.0, 1.0), 0.95)
    np.testing.assert_allclose(turned, [1 - high, 1])
    middle = stats.norm.ppf((np.arange(2000) + 0.5) / 2000, 0.5, 0.1)
    np.testing.assert_allclose(
        bayes_rogan_gladen._shortest(middle, (0.0, 1.0), 0.95), [0.304, 0.696], atol=0.02
    )


@pytest.mark.slow
def test_coverage_near_an_end():
    """Value .02, J .4 borrowed from 40 labels: equal tails leave the end out where the density piles up there."""
    rng, reps, truth = np.random.default_rng(3), 300, 0.02
    hits = np.zeros(2)
    for _ in range(reps):
        good = rng.binomial(40, 0.5)
        passed, failed = rng.binomial(good, 0.7), rng.binomial(40 - good, 0.7)
        hit = rng.binomial(500, truth * 0.7 + (1 - truth) * 0.3)
        seen = Counts(float(hit), 500.0, float(passed), float(good), float(failed), 40.0 - good, 0.0, 0.0)
        draws = sample(seen, n_draws=500, rng=rng).value
        shortest = bayes_rogan_gladen._shortest(draws, (0.0, 1.0), 0.95)
        for k, (low, high) in enumerate((shortest, np.quantile(draws, [0.025, 0.975]))):
            hits[k] += low <= truth <= high
    least = stats.binom.ppf(ALPHA / 2, reps, 0.95)
    assert hits[0] >= least > hits[1]
