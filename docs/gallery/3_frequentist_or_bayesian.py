"""
Frequentist or Bayesian?
========================

A bootstrap distribution and a posterior are the same object here, draws over policies, so their intervals stand side by
side and are compared by the same code.
"""

# %%
# A judge with a few levels, and labels of 60 of 400 responses of every policy.

import cje_core
import cje_sim
from cje_core.estimators import bayes_direct, direct, labels_only

data = cje_sim.simulate("discrete_judge", n=400, oracle_fraction=0.15, rng=3)
truth = cje_sim.truth("discrete_judge")

# %%
# ``direct`` has the influence function, ``bayes_direct`` a posterior of the monotone calibrator, corrected by labels.

estimates = [labels_only.estimate(data), direct.estimate(data), bayes_direct.estimate(data, rng=1)]
both = cje_core.compare(estimates)
axes = cje_core.figures.forest(both, truth=truth)

# %%
# Ratios of widths to those of the first, policy by policy.

both["width_ratio"].round(2).to_pandas()

# %%
# The posterior of the calibrator itself: mean, pointwise band and the mean label at each level of the judge.

from cje_core.bayes import gibbs
from cje_core.bayes.diagnostics.predictive import curves
from cje_core.bayes.levels import grade
from cje_core.calibration.calibrated import calibrated

_, rows, fitted = calibrated(data).parts
levels = grade(rows, fitted, judge_range=(0.0, 1.0), oracle_range=(0.0, 1.0)).levels
axes = cje_core.figures.calibration_posterior(curves(levels, gibbs.sample(levels, rng=1)))
