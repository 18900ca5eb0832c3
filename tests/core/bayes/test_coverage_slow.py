"""Coverage and width of the value posterior over repeated samples: n = 1000 prompts, 50 and 250 labels.

Truth is the value of the superpopulation. Four worlds; in ``dip`` E[Y | S] falls where the model only rises.
"""

from functools import cache

import numpy as np
import pytest
from scipy.special import erf

from cje_core.bayes import gibbs
from cje_core.bayes.levels import grade
from cje_core.bayes.models import draws as fits
from cje_core.bayes.models.nuts import NutsOptions
from cje_core.bayes.value import values
from cje_core.calibration.oracle_slice import OracleSlice
from cje_core.data import from_arrays
from cje_core.data.arrays import Rows
from cje_core.estimators import bayes_corrected, bayes_direct, direct
from cje_core.inference.estimate import Status
from cje_sim.judges import draw_oracle, oracle_mean, score_quantile
from cje_sim.scenarios import binary_oracle, discrete_judge, transport_shift, well_specified

pytestmark = pytest.mark.slow

N = 1000
REPLICATES = 2000  # on arrays; the standard error of a coverage of 95% is 0.5 points
# Draws of each posterior. Where it is right, the truth is one draw more: it lies between the k-th and the
# (D + 1 - k)-th with probability 1 - 2 k / (D + 1), so quantiles at p (D + 1), NumPy's ``weibull``, cover what they
# should for any D. Fewer draws make ends noisy (.19 posterior sd for 200), not hits rarer.
N_DRAWS, QUANTILE = 200, "weibull"
PAIRED = 300  # through the estimators
AUDITED = ["same", "lower", "flatter", "compensating"]


def dip(score):
    """Low scores are better than they look, as a refusal that a judge marks down: .55 at 0, .34 at .25, .85 at 1."""
    return 0.15 + 0.7 * score + 0.4 * np.exp(-((score / 0.15) ** 2))


LAW = {
    "well_specified": (
        well_specified.SCORE_LAW["base"],
        lambda s: oracle_mean(s, "sigmoid", 0.05, 0.7),
        0.05,
    ),
    "binary_oracle": (well_specified.SCORE_LAW["base"], lambda s: oracle_mean(s, "sigmoid", 0.05, 0.95), 1.0),
    "dip": ((1.0, 1.0), dip, 0.05),
}
WORLDS = ("well_specified", "discrete_judge", "binary_oracle", "dip")
TRUTH = {
    "well_specified": float(well_specified.truth().sel(policy="base")),
    "discrete_judge": float(discrete_judge.truth().sel(policy="base")),
    "binary_oracle": float(binary_oracle.truth().sel(policy="base")),
    "dip": 0.15 + 0.7 / 2 + 0.4 * 0.15 * np.sqrt(np.pi) / 2 * erf(1 / 0.15),
}


def draw(world, rng):
    """Scores and labels of N prompts under one policy."""
    if world == "discrete_judge":
        k = rng.choice(len(discrete_judge.LEVELS), N, p=discrete_judge.SHARES["base"])
        score, mean = np.array(discrete_judge.LEVELS)[k], np.array(discrete_judge.MEANS)[k]
        atoms = 0.05
    else:
        (a, b), regression, atoms = LAW[world]
        score = score_quantile(rng.random(N), a, b)
        mean = regression(score)
    return score, draw_oracle(mean, rng.random(N), spread=0.9, atoms=atoms)


def as_rows(score, label, m):
    """`Rows` and slice of one policy whose first m prompts are labelled: what `unpack` would give, in microseconds."""
    first = np.arange(N) < m
    rows = Rows(
        policies=["a"],
        prompts=NAMES,
        cluster=np.arange(N),
        cluster_names=NAMES,
        policy=np.zeros(N, np.intp),
        prompt=np.arange(N),
        score=score,
        z=score[:, None],
        label=np.where(first, label, np.nan),
        labelled=first,
        probe=np.zeros(N, bool),
        evaluated=np.ones(N, bool),
        weight=np.ones(N),
        label_prob=np.ones(N),
        teaches=first,
    )
    fitted = OracleSlice(
        Status.OK,
        None,
        rows.z[:m],
        label[:m],
        np.ones(m),
        np.arange(m),
        np.zeros(N, np.intp),
        "monotone",
        True,
    )
    return rows, fitted


NAMES = np.array([f"{i:04d}" for i in range(N)])


def interval(rows, fitted, rng):
    graded = grade(rows, fitted, judge_range=(0, 1), oracle_range=(0, 1))
    draws = gibbs.sample(graded.levels, n_draws=N_DRAWS, n_warmup=200, thin=2, rng=rng)
    value = values(rows, graded, draws, corrected=np.array([True]), rng=rng)[0]
    return np.quantile(value, [0.025, 0.975], method=QUANTILE)


def coverage(bounds, truth, *, shrink=1.0):
    """Share of intervals that hold the truth; `shrink` plants a wrong spread."""
    middle, half = bounds.mean(axis=-1), shrink * np.diff(bounds, axis=-1)[..., 0] / 2
    return float((np.abs(middle - truth) <= half).mean())


@pytest.mark.parametrize("m", [50, 250])
@pytest.mark.parametrize("world", WORLDS)
def test_coverage_of_the_corrected_posterior(world, m):
    rng = np.random.default_rng([m, WORLDS.index(world)])
    bounds = np.array([interval(*as_rows(*draw(world, rng), m), rng) for _ in range(REPLICATES)])
    print(f"{world} m={m}: coverage {coverage(bounds, TRUTH[world]):.4f}")
    assert 0.93 <= coverage(bounds, TRUTH[world]) <= 0.97
    assert coverage(bounds, TRUTH[world], shrink=0.8) < 0.93  # the band is narrow enough to see a fifth


def test_coverage_by_nuts():
    """Nutpie on the data of the Gibbs test, 75 samples of each world with 50 labels: its intervals are those of Gibbs.

    300 coverages have a standard error of 1.3 points; ends of paired intervals are compared far more sharply.
    """
    one, inside, gap = np.array([True]), [], []
    options = NutsOptions(tune=300, chains=1)
    for world in WORLDS:
        rng = np.random.default_rng([50, WORLDS.index(world)])
        for seed in range(75):
            rows, fitted = as_rows(*draw(world, rng), 50)
            graded = grade(rows, fitted, judge_range=(0, 1), oracle_range=(0, 1))
            both = [
                fits.calibration(graded.levels, options, rng=seed),
                gibbs.sample(graded.levels, n_draws=1000, rng=seed),
            ]
            bounds = np.array(
                [
                    np.quantile(values(rows, graded, d, corrected=one, rng=seed)[0], [0.025, 0.975])
                    for d in both
                ]
            )
            inside.append((bounds[:, 0] <= TRUTH[world]) & (TRUTH[world] <= bounds[:, 1]))
            gap.append((bounds[0] - bounds[1]) / np.diff(bounds[1]))
    covered = np.mean(inside, axis=0)
    error = np.std(gap, axis=0, ddof=1) / np.sqrt(len(gap))
    print(
        "coverage of nutpie and Gibbs",
        covered,
        "difference of the ends in widths",
        np.mean(gap, axis=0),
        error,
    )
    assert np.abs(covered - 0.95).max() < 3 * np.sqrt(0.95 * 0.05 / len(inside))
    assert (np.abs(np.mean(gap, axis=0)) < 5 * error).all() and error.max() < 0.005


@cache
def paired(world, m=50):
    """Hits and widths of `bayes_direct` and of the theta_aug bootstrap on the same data, shape (PAIRED, 2)."""
    rng = np.random.default_rng([7, m, WORLDS.index(world)])
    hits, widths = [], []
    for seed in range(PAIRED):
        score, label = draw(world, rng)
        data = from_arrays([score], policies=["a"], oracle=[np.where(np.arange(N) < m, label, np.nan)])
        bounds = np.array(
            [
                bayes_direct.estimate(data, rng=seed)["interval"].values[0],
                direct.estimate(data, rng=seed, power_tuned=False, inference=direct.Bootstrap(n=400))[
                    "interval"
                ].values[0],
            ]
        )
        hits.append((bounds[:, 0] <= TRUTH[world]) & (TRUTH[world] <= bounds[:, 1]))
        widths.append(np.diff(bounds, axis=1)[:, 0])
    return np.array(hits), np.array(widths)


@pytest.mark.parametrize("world", WORLDS)
def test_narrower_than_the_bootstrap_at_50_labels(world):
    """Ratio of mean widths, with its Monte Carlo standard error by the delta method on pairs."""
    hits, widths = paired(world)
    bayes, boot = widths.T
    ratio = bayes.mean() / boot.mean()
    mcse = (bayes - ratio * boot).std(ddof=1) / boot.mean() / np.sqrt(PAIRED)
    print(f"{world}: ratio {ratio:.3f} ({mcse:.3f}), coverage {hits.mean(axis=0)}")
    assert ratio <= 0.95
    assert abs(hits[:, 0].mean() - 0.95) < 3 * np.sqrt(0.95 * 0.05 / PAIRED)


def test_no_label_free_method_is_safe_under_shift():
    """Labels of the base policy only: the plug-in misses a policy that does not transport; audit labels mend it."""
    truth = transport_shift.truth()
    bounds = {"plug_in": [], "corrected": []}
    for seed in range(PAIRED):
        data = transport_shift.simulate(n=N, oracle_fraction=0.25, n_probes=50, rng=seed)
        for name, module, options in (
            ("plug_in", bayes_direct, {"n_draws": 500}),
            ("corrected", bayes_corrected, {"n_draws": 500, "model": bayes_corrected.Model("flat")}),
        ):
            out = module.estimate(data, rng=seed, **options)
            bounds[name].append(out["interval"].sel(policy=AUDITED).values)
    goal = truth.sel(policy=AUDITED).values
    plug_in, corrected = (
        [coverage(np.array(bounds[name])[:, p], goal[p]) for p in range(len(AUDITED))] for name in bounds
    )
    shrunk = [coverage(np.array(bounds["corrected"])[:, p], goal[p], shrink=0.7) for p in range(len(AUDITED))]
    print("policies", AUDITED, "plug-in", plug_in, "corrected", corrected, "planted", shrunk)
    slack = 3 * np.sqrt(0.95 * 0.05 / PAIRED)
    assert min(plug_in) < 0.5
    assert np.abs(np.array(corrected) - 0.95).max() < slack
    assert (np.array(shrunk) < 0.95 - slack).all()  # an interval three tenths too short would show
