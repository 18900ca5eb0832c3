"""
Plan a study
============

A pilot is at hand, and 1,500 units of money. How many prompts to judge, how many responses to label, and what
difference can the study find?
"""

# %%
# The variance of a pilot has a part that more prompts remove and one that more labels remove. The budget is spent by
# the square-root law, and the plan is tried out by simulating it from the pilot before it is printed.

import cje_core
import cje_sim
from cje_core.planning.components import variance_components
from cje_core.planning.forecast import mde_surface

pilot = cje_sim.simulate("weak_judge", n=300, oracle_fraction=0.3, rng=1)
planned = cje_core.plan(pilot, budget=1500, cost_judge=0.05, cost_oracle=2.0, replicates=200)
planned

# %%
# What could be had for other money: contours of the smallest difference that is found with probability .8 between two
# independent estimates (solid) and of the cost (dashed), over prompts and the share of them that is labelled.

components = variance_components(pilot).sel(policy="better")
surface = mde_surface(
    components,
    [100, 200, 400, 800, 1600, 3200],
    [0.02, 0.05, 0.1, 0.2, 0.4, 0.8],
    cost_judge=0.05,
    cost_oracle=2.0,
)
axes = cje_core.figures.mde_contours(surface, optimum=(planned.plan.n, planned.plan.m / planned.plan.n))

# %%
# Would labels alone do? Below some correlation with the oracle no judge can pay, whatever it costs.

from cje_core.planning.judge_worth import least_correlation

{labels: round(least_correlation(labels), 2) for labels in (25, 50, 100, 400)}
