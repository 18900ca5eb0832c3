"""Coverage and width of the value posterior over repeated samples: n = 1000 prompts, 50 and 250 labels.

Truth is the value of the superpopulation. The four worlds are those of `repeated_world`.
"""

from functools import cache

import numpy as np
import pytest
from repeated_world import TRUTH, WORLDS, N, as_rows, draw

from cje_core.bayes import gibbs
from cje_core.bayes.levels import grade
from cje_core.bayes.value import values
from cje_core.data import from_arrays
from cje_core.estimators import bayes_corrected, bayes_direct, direct
from cje_sim.scenarios import transport_shift

pytestmark = pytest.mark.slow

# Draws of each posterior. Where it is right, the truth is one draw more: it lies between the k-th and the
# (D + 1 - k)-th with probability 1 - 2 k / (D + 1), so quantiles at p (D + 1), NumPy's ``weibull``, cover what they
# should for any D: of 79 draws the ends are the 2nd and the 78th, of 199 the 5th and the 195th. Fewer draws make ends
# noisy, not hits rarer, and a wrong posterior shows a little less: with 79 by .983 (a spread of .8) and .955 (a centre
# off by .3 sd) of the standard errors that 200 give, which 2,200 replicates for 2,000 make good.
N_DRAWS, QUANTILE = 79, "weibull"
REPLICATES = 2200  # on arrays; the standard error of a coverage of 95% is 0.46 points
# through the estimators; the same count against 300 of 1,000 draws: .990 and .976
PAIRED, PAIRED_DRAWS = 320, 199
AUDITED = ["same", "lower", "flatter", "compensating"]


def ends(draws):
    """Ends of the 95% interval from draws along the last axis."""
    return np.stack(np.quantile(draws, [0.025, 0.975], axis=-1, method=QUANTILE), axis=-1)


def interval(rows, fitted, rng):
    graded = grade(rows, fitted, judge_range=(0, 1), oracle_range=(0, 1))
    draws = gibbs.sample(graded.levels, n_draws=N_DRAWS, n_warmup=100, thin=2, rng=rng)
    return ends(values(rows, graded, draws, corrected=np.array([True]), rng=rng)[0])


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


@cache
def paired(world, m=50):
    """Hits and widths of `bayes_direct` and of the theta_aug bootstrap on the same data, shape (PAIRED, 2)."""
    rng = np.random.default_rng([7, m, WORLDS.index(world)])
    hits, widths = [], []
    for seed in range(PAIRED):
        score, label = draw(world, rng)
        data = from_arrays([score], policies=["a"], oracle=[np.where(np.arange(N) < m, label, np.nan)])
        resampled = direct.Bootstrap(n=PAIRED_DRAWS)
        found = [
            bayes_direct.estimate(data, rng=seed, n_draws=PAIRED_DRAWS),
            direct.estimate(data, rng=seed, power_tuned=False, inference=resampled),
        ]
        bounds = np.array([ends(one["draws"].values[0]) for one in found])
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
            ("plug_in", bayes_direct, {}),
            ("corrected", bayes_corrected, {"model": bayes_corrected.Model("flat")}),
        ):
            out = module.estimate(data, rng=seed, n_draws=PAIRED_DRAWS, **options)
            bounds[name].append(ends(out["draws"].sel(policy=AUDITED).values))
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
