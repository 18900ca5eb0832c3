"""
A world of your own
===================

A world states its law, which draws complete responses, and its truth. The frame adds the rest: how many prompts, which
responses an oracle labels and how noisily, how alike responses to one prompt are.
"""

# %%
# A judge that adds a constant to every score on the logit scale: a raw mean is too high, and calibration mends it.
# The truth is a quadrature, so no estimator can be wrong in the same way as it is.

from cje_sim.judges import inflate, oracle_mean
from cje_sim.world import Prompts, Responses, link_truth, world

SCORE_LAW = {"base": (3.0, 2.0), "better": (3.6, 1.8)}


def law(prompts: Prompts, *, leniency: float = 0.8) -> Responses:
    """Quality, judged too well."""
    quality = prompts.scores(SCORE_LAW)
    return Responses(policies=SCORE_LAW, judge=inflate(quality, leniency), mean=oracle_mean(quality))


simulate = world(law)
truth = link_truth(SCORE_LAW)
truth.to_series().round(3)

# %%
# Forty data sets of 300 prompts. Every estimator sees the same data.

from cje_core.estimators import direct, labels_only, raw_judge

METHODS = {"raw_judge": raw_judge, "labels_only": labels_only, "direct": direct}
runs = []
for seed in range(40):
    data = simulate(n=300, oracle_fraction=0.2, rng=seed)
    runs.append({name: method.estimate(data).sel(policy="better") for name, method in METHODS.items()})

# %%
# The intervals of one policy, those that miss its value in red. Forty data sets say little about the last two: at 95%
# the number of hits has a standard deviation of 1.4.

import numpy as np
from matplotlib import pyplot as plt

value = truth.sel(policy="better").item()
figure, panels = plt.subplots(1, 3, figsize=(9, 4.5), sharex=True, sharey=True, layout="constrained")
for panel, name in zip(panels, METHODS, strict=True):
    interval = np.array([run[name]["interval"].values for run in runs])
    missed = (interval[:, 0] > value) | (interval[:, 1] < value)
    for k, (low, high) in enumerate(interval):
        panel.plot([low, high], [k, k], color="tab:red" if missed[k] else "tab:blue")
    panel.axvline(value, color="black", linewidth=0.8)
    panel.set(title=f"{name}: {len(runs) - missed.sum()} of {len(runs)} hold it")
    panel.set_xlabel("value of better")
panels[0].set_ylabel("data set")
figure.show()
