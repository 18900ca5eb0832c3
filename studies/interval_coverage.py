"""Coverage of 95% intervals: raw judge, labels only, and Direct with and without calibration uncertainty.

The set-up of the table "Coverage by UQ Method" of "Causal Judge Evaluation" (n in {250, 500, 1000, 2500}, oracle
fraction 5% and 25%), in a world whose truth is known by quadrature and where calibration transports. Policies
with labels of their own (theta_aug) are told apart from policies that borrow the base policy's calibrator.
"""

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib import pyplot as plt
from matplotlib import ticker
from matplotlib.figure import Figure

from cje_core.figures.style import looks
from cje_sim import scenarios
from studies._measures import FloatArray, performance, summary_table
from studies._study import Method, Profile, Study

POLICIES = tuple(scenarios.load("well_specified").truth().policy.values.tolist())
GROUPS = {"own": "labels under every policy", "base": "calibration borrowed from the base policy"}
MEASURES = ("coverage", "width", "bias", "se_calibration", "interval_score", "n_failed")
CAPTION = (
    "Coverage (above) with exact 95% Monte Carlo bounds, which take the policies of a replicate as one trial, and mean "
    "width (below); averages over policies. Dashed: nominal. Without labels of its own a policy has no labels_only."
)
Y_TICKS = (0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 1)


def _stretch(coverage: FloatArray) -> FloatArray:
    """Axis scale: coverage spans 0 (raw judge) to 1, and the differences that matter lie near 0.95."""
    return np.asarray(np.sign(coverage) * np.abs(coverage) ** 2.5)


def _unstretch(height: FloatArray) -> FloatArray:
    return np.asarray(np.sign(height) * np.abs(height) ** 0.4)


STRETCH = (_stretch, _unstretch)


def _groups(ds: xr.Dataset) -> dict[str, xr.Dataset]:
    """One dataset per label design; under "base" only the policies without labels, whose calibrator is borrowed."""
    designs = [str(design) for design in ds["label_design"].values]
    policies = {design: list(POLICIES[design == "base" :]) for design in designs}
    return {design: ds.sel(label_design=design, policy=policies[design]) for design in designs}


def table(ds: xr.Dataset) -> dict[str, pd.DataFrame]:
    """Coverage side by side, then every measure; averages over policies.

    A method that never answers in a cell (labels_only without labels) has no coverage there.
    """
    frames = []
    for design, part in _groups(ds).items():
        frame = summary_table(part, MEASURES)
        frame.insert(0, "label_design", design)
        silent = frame["bias"].isna()
        frame.loc[silent, ["coverage", "coverage_mcse"]] = np.nan
        frames.append(frame.drop(columns="n_failed_mcse"))
    measures = pd.concat(frames, ignore_index=True)
    cell = ["label_design", "n", "oracle_fraction"]
    methods = [str(m) for m in ds["method"].values]
    wide = measures.pivot(index=cell, columns="method", values=["coverage", "coverage_mcse"])
    wide = wide.reindex(measures.set_index(cell).index.unique())
    coverage = pd.DataFrame(
        {f"{m}{end}": wide[f"coverage{end}", m] for m in methods for end in ("", "_mcse")}
    ).reset_index()
    return {"Coverage of 95% intervals, mean over policies": coverage, "All measures": measures}


def figure(ds: xr.Dataset) -> dict[str, Figure]:
    """Coverage with exact bounds over mean width, one column per label design."""
    groups = _groups(ds)
    size = (4.8 * len(groups), 5.6)
    fig, axes = plt.subplots(2, len(groups), figsize=size, sharex="col", sharey="row", squeeze=False)
    style = looks([str(m) for m in ds["method"].values])
    for column, (design, part) in enumerate(groups.items()):
        measured = performance(part, pool=True).stack(cell=("n", "oracle_fraction"))
        labels = [f"n = {n}\n{fraction:.0%} labelled" for n, fraction in measured["cell"].values]
        top, bottom = axes[:, column]
        for k, (method, look) in enumerate(style.items()):
            one = measured.sel({"method": method})  # as a keyword, `method` is an option of sel
            answers = np.isfinite(one["value"].sel(measure="bias").values)
            at = np.arange(len(labels))[answers] + 0.12 * (k - (len(style) - 1) / 2)
            for ax, name in ((top, "coverage"), (bottom, "width")):
                value = one["value"].sel(measure=name).values[answers]
                bound = one["bound"].sel(measure=name).transpose("ci_bound", "cell").values[:, answers]
                error = np.abs(bound - value)
                ax.errorbar(at, value, error, **look, ls="none", ms=4, lw=1, label=method)
        top.axhline(part.attrs["ci_prob"], color="0.4", linestyle="--", linewidth=1, zorder=0)
        top.set_yscale("function", functions=STRETCH)
        top.set(ylim=(-0.25, 1.01), yticks=Y_TICKS, title=GROUPS[design])
        bottom.set(yscale="log", xticks=np.arange(len(labels)), xticklabels=labels)
        bottom.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        bottom.yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
        bottom.yaxis.set_minor_formatter(ticker.NullFormatter())
    axes[0, 0].set_ylabel("coverage (stretched scale)")
    axes[1, 0].set_ylabel("mean width of the interval")
    handles, names = axes[0, 0].get_legend_handles_labels()
    fig.legend(handles, names, loc="outside upper center", ncols=len(names), frameon=False)
    return {CAPTION: fig}


STUDY = Study(
    name="interval_coverage",
    title="Which 95% intervals cover the policy value?",
    aims="Find out which uncertainty method keeps its nominal coverage when few responses carry oracle labels, and "
    "what the interval's width pays for it; reproduce the paper's ordering (raw judge near 0%, intervals that "
    "ignore calibration error too short, bootstrap with theta_aug near 95%).",
    mechanism="Scenario well_specified: judge scores of four policies from Kumaraswamy laws, correlated within a "
    "prompt; one monotone link E[Y | S] for all policies; a simple random sample of the prompts is labelled, under "
    "every policy (own) or under the base policy only (base).",
    estimands="V(policy) = E[Y], known by quadrature. Under label_design=base only the policies without labels of "
    "their own are summarised.",
    measures="Coverage (a failure is a miss) with exact bounds, mean width, bias, SE calibration (model SE / empirical "
    "SE), interval score and failures, each averaged over policies with its Monte Carlo standard error. A method "
    "that never gives an estimate in a cell has no coverage there: labels_only cannot value a policy without labels.",
    scenario="well_specified",
    factors={"n": (250, 1000), "oracle_fraction": (0.05, 0.25), "label_design": ("own", "base")},
    policies=POLICIES,
    methods={
        "raw_judge": Method("control, biased: mean judge score"),
        "labels_only": Method("control, unbiased: mean oracle label"),
        "plug_in_cluster": Method(
            "calibrated plug-in, calibrator taken as known",
            "direct",
            {"correction": "none", "inference": "cluster"},
        ),
        "direct_bootstrap": Method(
            "Direct (theta_aug where labelled), cluster bootstrap that refits the calibrator, percentile interval",
            "direct",
            {"inference": "bootstrap", "n_boot": 2000, "power_tuned": False},
        ),
        "direct_influence": Method(
            "Direct as it comes: tuned prediction, joint influence function with the calibrator's term, t interval",
            "direct",
            {"inference": "influence"},
        ),
    },
    profiles={
        # fewer bootstrap replicates than the paper's 2000 keep the quick profile near 90 s on two cores
        "smoke": Profile(4, {"n": (250,)}, {"direct_bootstrap": {"n_boot": 50}}),
        "quick": Profile(300, {}, {"direct_bootstrap": {"n_boot": 400}}),
        "paper": Profile(1000, {"n": (250, 500, 1000, 2500)}),
    },
    table=table,
    figure=figure,
    claims=("naive-zero-coverage", "tab-uq-comparison"),
)
