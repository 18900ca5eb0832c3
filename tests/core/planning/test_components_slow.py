"""Forecasts of pilots against the spread of fresh studies of twice the size: default values, labels of base only."""

import numpy as np
import pytest
from blocks import on_block

from cje_core.estimators import direct
from cje_core.planning.components import variance_components
from cje_core.planning.forecast import std_error_at
from cje_sim.scenarios import binary_oracle, well_specified

N_STUDIES, N_PILOTS = 400, 60
WORLDS = {"well_specified": well_specified, "binary_oracle": binary_oracle}
TWIN = "slightly_better"  # nearly the base policy: their difference is forecast too wide


def draw(world, size, seed):
    n, m = size
    return WORLDS[world].simulate(n=n, oracle_fraction=m / n, label_design="base", rng=seed)


@pytest.mark.slow
@pytest.mark.parametrize(("world", "pilot"), [("well_specified", (500, 100)), ("binary_oracle", (600, 200))])
def test_forecasts_are_the_spread_of_fresh_studies(world, pilot):
    """On average within a tenth and five Monte Carlo standard errors; planted: labels that do not grow."""
    plan = (2 * pilot[0], 2 * pilot[1])
    fresh = []
    for start in range(0, N_STUDIES, 50):
        rngs = [np.random.default_rng(start + r) for r in range(50)]
        block = WORLDS[world].simulate.block(
            rngs, n=plan[0], oracle_fraction=plan[1] / plan[0], label_design="base"
        )
        fresh.append(on_block(direct, block, ci_prob=0.95).estimate)
    names, levels = list(block.policies), np.concatenate(fresh)
    pilots = [draw(world, pilot, 10_000 + r) for r in range(N_PILOTS)]
    first = variance_components(pilots[0], reference="base")["first"].values.tolist()
    pairs = levels[:, [names.index(name) for name in first]] - levels[:, [names.index("base")]]

    def off(values, components, m):
        """Ratio of the mean forecast to the spread, and five of its Monte Carlo standard errors."""
        planned = np.array([std_error_at(plan[0], m, one)["std_error"].values for one in components])
        mean, true = np.nanmean(planned, axis=0), np.nanstd(values, axis=0, ddof=1)
        among = np.nanvar(planned, axis=0) / np.isfinite(planned).sum(axis=0) / mean**2
        return mean / true, 5 * mean / true * np.sqrt(1 / (2 * np.isfinite(values).sum(axis=0)) + among)

    of_levels = [variance_components(one) for one in pilots]
    ratio, noise = off(levels, of_levels, plan[1])
    assert (np.abs(ratio - 1) < 0.1 + noise).all()
    wrong, noise = off(levels, of_levels, pilot[1])
    assert (wrong - 1 > 0.1 + noise).any()
    ratio, noise = off(pairs, [variance_components(one, reference="base") for one in pilots], plan[1])
    twin = np.array(first) == TWIN
    assert (np.abs(ratio - 1) < 0.1 + noise)[~twin].all()
    assert (ratio > 1 - noise)[twin].all()
