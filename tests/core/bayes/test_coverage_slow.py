"""Coverage and width of the value posterior over repeated samples: n = 1000 prompts, 50 and 250 labels.

Truth is the value of the superpopulation. The four worlds are those of `repeated_world`.
"""

from copy import deepcopy
from functools import cache

import numpy as np
import pytest
from bare_arrays import drawn, rows_of
from repeated_world import TRUTH, WORLDS, N, as_rows, draw

from cje_core.bayes import flat, gibbs
from cje_core.bayes.levels import grade
from cje_core.bayes.prior import DEFAULT
from cje_core.bayes.shifts import probe_corrected
from cje_core.bayes.value import values
from cje_core.calibration.oracle_slice import fit_slice
from cje_core.data import from_arrays
from cje_core.estimators import bayes_corrected, bayes_direct, direct
from cje_core.families.direct.bootstrap import bootstrap_direct
from cje_core.families.direct.bootstrap_intervals import bootstrap_rows
from cje_core.families.direct.fit import Options, fit_policy
from cje_sim.scenarios import transport_shift

pytestmark = pytest.mark.slow

# Draws of each posterior. Where it is right, the truth is one draw more: it lies between the k-th and the
# (D + 1 - k)-th with probability 1 - 2 k / (D + 1), so quantiles at p (D + 1), NumPy's ``weibull``, cover what they
# should for any D: of 79 draws the ends are the 2nd and the 78th, of 199 the 5th and the 195th. Fewer draws make ends
# noisy, not hits rarer, and a wrong posterior shows a little less: with 79 by .983 (a spread of .8) and .955 (a centre
# off by .3 sd) of the standard errors that 200 give, which 2,200 replicates for 2,000 make good.
N_DRAWS, QUANTILE = 79, "weibull"
REPLICATES = 2200  # the standard error of a coverage of 95% is 0.46 points
# of what the estimators compute, see `test_the_numbers_are_those_of_the_estimators`; the same count against 300 of
# 1,000 draws: .990 and .976
PAIRED, PAIRED_DRAWS = 320, 199
AUDITED = ["same", "lower", "flatter", "compensating"]


def ends(draws):
    """Ends of the 95% interval from draws along the last axis."""
    return np.stack(np.quantile(draws, [0.025, 0.975], axis=-1, method=QUANTILE), axis=-1)


def value_draws(rows, fitted, rng):
    graded = grade(rows, fitted, judge_range=(0, 1), oracle_range=(0, 1))
    draws = gibbs.sample(graded.levels, n_draws=N_DRAWS, n_warmup=100, thin=2, rng=rng)
    return values(rows, graded, draws, corrected=np.array([True]), rng=rng)[0]


def coverage(bounds, truth, *, shrink=1.0):
    """Share of intervals that hold the truth; `shrink` plants a wrong spread."""
    middle, half = bounds.mean(axis=-1), shrink * np.diff(bounds, axis=-1)[..., 0] / 2
    return float((np.abs(middle - truth) <= half).mean())


@pytest.mark.parametrize("m", [50, 250])
@pytest.mark.parametrize("world", WORLDS)
def test_coverage_of_the_corrected_posterior(world, m):
    rng = np.random.default_rng([m, WORLDS.index(world)])
    bounds = ends([value_draws(*as_rows(*draw(world, rng), m), rng) for _ in range(REPLICATES)])
    print(f"{world} m={m}: coverage {coverage(bounds, TRUTH[world]):.4f}")
    assert 0.93 <= coverage(bounds, TRUTH[world]) <= 0.97
    assert coverage(bounds, TRUTH[world], shrink=0.8) < 0.93  # the band is narrow enough to see a fifth


def first_labelled(world, rng, m=50):
    """Scores and visible labels of one policy, (1, N) each."""
    score, label = draw(world, rng)
    return score[None], np.where(np.arange(N) < m, label, np.nan)[None]


def calibrator(rows, fitted, rng):
    """Judge levels and draws of f, which may be flat, as `bayes_direct` and `bayes_corrected` have them."""
    graded = grade(rows, fitted, judge_range=(0.0, 1.0), oracle_range=(0.0, 1.0))
    draws = gibbs.sample(graded.levels, n_draws=PAIRED_DRAWS, rng=rng)
    return graded, flat.mix(rows, graded, draws, prior=DEFAULT, rng=rng)


def bayes_and_bootstrap(rows, seed):
    """Draws by `bayes_direct` and by the theta_aug bootstrap, (2, draws), of one policy with labels."""
    fitted, rng = fit_slice(rows), np.random.default_rng(seed)
    bayes = values(rows, *calibrator(rows, fitted, rng), corrected=np.array([True]), rng=rng)
    options = Options(inference="bootstrap", power_tuned=False, borrowed="plug_in", scale=(0.0, 1.0))
    resampled = bootstrap_rows(rows, fitted, [fit_policy(rows, fitted, 0, options)], [0], options)
    boot = bootstrap_direct(resampled, PAIRED_DRAWS, np.random.default_rng(seed)).draws
    return np.concatenate([bayes, boot])


def borrowed_and_corrected(rows, seed):
    """Draws by `bayes_direct` and by `bayes_corrected` by default, (2, policies, draws): of the same f."""
    fitted, rng = fit_slice(rows), np.random.default_rng(seed)
    graded, f = calibrator(rows, fitted, rng)
    own = np.array([name == "base" for name in rows.policies])
    borrowed = values(rows, graded, f, corrected=own, rng=deepcopy(rng))
    return np.stack([borrowed, probe_corrected(rows, graded, f, rng=rng)[0]])


SHIFTED = {"n": N, "oracle_fraction": 0.25, "n_probes": 50}


def shifted_rows(seed):
    """A data set of `transport_shift`, whose labels are those of the base."""
    found = drawn(transport_shift, seed, label_design="base", **SHIFTED)
    return rows_of(found.score, **found.fields)


def test_the_numbers_are_those_of_the_estimators():
    """What is counted below, of one data set."""
    for world in WORLDS:
        score, label = first_labelled(world, np.random.default_rng(4))
        data = from_arrays(score, policies=["a"], oracle=label)
        resampled = direct.Bootstrap(n=PAIRED_DRAWS)
        wanted = [
            bayes_direct.estimate(data, rng=2, n_draws=PAIRED_DRAWS),
            direct.estimate(data, rng=2, power_tuned=False, inference=resampled),
        ]
        found = bayes_and_bootstrap(rows_of(score, label, ["a"]), 2)
        np.testing.assert_array_equal(found, [one["draws"].values[0] for one in wanted])
    data, rows = transport_shift.simulate(rng=3, **SHIFTED), shifted_rows(3)
    wanted = [
        bayes_direct.estimate(data, rng=3, n_draws=PAIRED_DRAWS),
        bayes_corrected.estimate(data, rng=3, n_draws=PAIRED_DRAWS),
    ]
    for draws, one in zip(borrowed_and_corrected(rows, 3), wanted, strict=True):
        at = [rows.policies.index(name) for name in AUDITED]
        np.testing.assert_array_equal(draws[at], one["draws"].sel(policy=AUDITED).values)


@cache
def paired(world):
    """Hits and widths of `bayes_direct` and of the theta_aug bootstrap on the same data, shape (PAIRED, 2)."""
    rng = np.random.default_rng([7, 50, WORLDS.index(world)])
    bounds = ends(
        [bayes_and_bootstrap(rows_of(*first_labelled(world, rng), ["a"]), seed) for seed in range(PAIRED)]
    )
    return (bounds[..., 0] <= TRUTH[world]) & (TRUTH[world] <= bounds[..., 1]), np.diff(bounds)[..., 0]


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
    goal = transport_shift.truth().sel(policy=AUDITED).values
    at = [sorted(transport_shift.POLICIES).index(name) for name in AUDITED]
    bounds = ends([borrowed_and_corrected(shifted_rows(seed), seed)[:, at] for seed in range(PAIRED)])
    plug_in, corrected, shrunk = (
        [coverage(bounds[:, route, p], goal[p], shrink=shrink) for p in range(len(AUDITED))]
        for route, shrink in ((0, 1.0), (1, 1.0), (1, 0.7))
    )
    print("policies", AUDITED, "plug-in", plug_in, "corrected", corrected, "planted", shrunk)
    slack = 3 * np.sqrt(0.95 * 0.05 / PAIRED)
    assert min(plug_in) < 0.5
    assert np.abs(np.array(corrected) - 0.95).max() < slack
    assert (np.array(shrunk) < 0.95 - slack).all()  # an interval three tenths too short would show
