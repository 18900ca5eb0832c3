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

data = cje_sim.simulate("discrete_judge", n=400, oracle_fraction=0.15, rng=3)
truth = cje_sim.truth("discrete_judge")

# %%
# One call runs the estimators on the same data. ``direct`` has the influence function, ``bayes_direct`` a posterior of
# the monotone calibrator, corrected by labels.

both = cje_core.compare(data, ["labels_only", "direct", "bayes_direct"])
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

# %%
# The same calibration as a PyMC model. It is generative: prior draws, prior predictive draws and the posterior need
# PyMC's own calls alone. Of 500 curves of the prior, a quarter falls: a judge may be worse than useless.

import pymc as pm

binary = cje_sim.simulate("binary_oracle", n=200, oracle_fraction=0.3, rng=1)
model = cje_core.calibration_model(binary)
before = pm.sample_prior_predictive(500, model=model, random_seed=1)
ends = before.prior["ends"].values[0]
float((ends[:, 1] < ends[:, 0]).mean())

# %%
# And its posterior, from a run that is short for this page (so its convergence is not checked).

with model:
    after = pm.sample(
        draws=250,
        tune=300,
        chains=2,
        cores=1,
        random_seed=1,
        progressbar=False,
        compute_convergence_checks=False,
    )
after.posterior["ends"].mean(("chain", "draw")).round(2).values

# %%
# A model of your own takes the calibrator and changes a line: here labels that a rater gets wrong at an unknown rate.

from cje_core.bayes.models.calibrator import calibrator, prior_data
from cje_core.bayes.prior import Prior
from cje_core.bayes.splines import isplines

score, label = (binary[name].values[binary["labelled"].values] for name in ("judge", "oracle"))
with pm.Model() as noisy:
    f = calibrator(prior_data(Prior()), Prior().n_splines).at(isplines(score, Prior().n_splines))
    wrong = pm.Beta("wrong", 1, 9)
    pm.Bernoulli("y", f * (1 - wrong) + (1 - f) * wrong, observed=label.astype(int))
    drawn = pm.sample_prior_predictive(200, random_seed=1)
drawn.prior_predictive["y"].shape
