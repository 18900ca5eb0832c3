"""
A study of your own
===================

A study is a frozen value with aims, mechanism, estimands, methods and measures (ADEMP). It runs in blocks that are
written once, so it may be stopped, resumed, split over machines or extended, and ends with the same bits.
"""

# %%
# How small may the labelled share be before the interval of Direct fails? Two controls stand in every study: an
# unbiased one and a biased one.

import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

from studies.engine.measures import summary_table
from studies.engine.study import Method, Profile, Study


def table(ds: xr.Dataset) -> pd.DataFrame:
    """Bias, coverage and refusals with their Monte Carlo standard errors, averages over the policies named."""
    return summary_table(ds, ["bias", "coverage"])


def figure(ds: xr.Dataset) -> Figure:
    """Coverage against the labelled share."""
    shown = Figure(layout="constrained")
    axes = shown.subplots()
    for method, rows in table(ds).groupby("method"):
        axes.errorbar(rows["oracle_fraction"], rows["coverage"], 1.96 * rows["coverage_mcse"], label=method)
    axes.set(xlabel="share labelled", ylabel="coverage")
    axes.legend()
    return shown


STUDY = Study(
    name="few_labels",
    title="Direct with few labels",
    aims="How small may the labelled share be before the interval of Direct fails?",
    mechanism="The world well_specified: 400 prompts under each policy, a share of them labelled at random.",
    estimands="V(policy) of each policy.",
    measures="Bias and coverage of the intervals printed, averages over policies, with Monte Carlo standard errors.",
    scenario="well_specified",
    factors={"n": (400,), "oracle_fraction": (0.03, 0.1, 0.3)},
    policies=("base", "better"),
    methods={
        "labels_only": Method("mean of own labels (unbiased control)"),
        "raw_judge": Method("mean judge score (biased control)"),
        "direct": Method("calibrated judge scores"),
    },
    profiles={"smoke": Profile(40), "quick": Profile(200), "paper": Profile(2000)},
    table=table,
    figure=figure,
)

# %%
# ``cje-lab run ./few_labels.py --profile smoke`` does the same from a file. Every random number comes from a stream
# named after study, cell, replicate and method.

import tempfile
from pathlib import Path

from studies.engine.blocks import read_results
from studies.engine.run import run_study

with tempfile.TemporaryDirectory() as folder:
    done = run_study(STUDY, profile="smoke", out=Path(folder))
    (path,) = Path(folder).rglob("results.nc")
    results = read_results(path)
table(results).round(3)

# %%
# Results are labelled arrays; a table or a figure is a function of them. Forty replicates leave a Monte Carlo error of
# three points: the bars say so.

from matplotlib import pyplot as plt

shown, axes = plt.subplots(layout="constrained")
for method, rows in table(results).groupby("method"):
    axes.errorbar(
        rows["oracle_fraction"], rows["coverage"], 1.96 * rows["coverage_mcse"], label=method, capsize=3
    )
axes.axhline(0.95, color="grey", linewidth=0.8)
axes.set(xlabel="share labelled", ylabel="coverage", xscale="log", ylim=(-0.05, 1.05))
axes.legend()
shown.show()
