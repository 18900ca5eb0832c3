"""Simulation-based calibration of the samplers behind the Bayesian intervals, by likelihood, prior and engine.

A calibrator and its noise are drawn from the prior, labels given them, posterior draws given the labels. The rank of
the true quantity among L independent posterior draws is uniform on 0..L if the sampler draws from the posterior that it
claims (`cje_core.bayes.diagnostics.sbc`; Talts et al., 2018). The interval from the smallest to the largest of 39 draws
has exactly 95%. The page `bayes_vs_frequentist` says what the intervals of values do in worlds that no prior made.
"""

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

from cje_core.bayes import gibbs
from cje_core.bayes.diagnostics import sbc
from cje_core.bayes.diagnostics.predictive import prior_draws
from cje_core.bayes.gibbs import Draws
from cje_core.bayes.levels import Levels
from cje_core.bayes.prior import Prior
from cje_core.checks import IntArray
from cje_core.figures.style import OKABE_ITO
from cje_core.streams import Cell, Streams
from studies.engine.measures import summary_table
from studies.engine.outcome import NOT_RUN, Outcome
from studies.engine.sentences import ANSWER, highest, lowest, points, where
from studies.engine.study import Finding, Method, Profile, Protocol, Study

LEVEL = np.linspace(0.0, 1.0, 11)
COUNT = np.array(
    [1, 2, 0, 3, 5, 2, 4, 6, 20, 10, 7]
)  # labels at each level: most near the top, one level without
N_RANKS = 39  # draws ranked: the smallest and the largest hold the truth with probability 38 / 40
STEPS = 8  # of NUTS between two ranked draws
WARMUP = 300
FITS = {"nutpie": 200, "pymc": 100}  # data sets of a cell on which an engine of PyMC runs
ENOUGH = 100  # data sets below which ranks decide nothing
PROB = 0.95
CELL = ["likelihood", "concentration"]
NOISE = "noise"  # sigma, or the dispersion of the beta likelihood
QUANTITIES = tuple(NOISE if name == "sigma" else name for name in sbc.QUANTITIES)


def possible(cell: Cell) -> bool:
    """Whether a cell is run: the beta likelihood is compiled for each prior, so it has the default one alone."""
    return cell["likelihood"] != "beta" or cell["concentration"] == 1.0


def truth_and_labels(
    likelihood: str, prior: Prior, rng: np.random.Generator
) -> tuple[Draws, Levels, IntArray, Any]:
    """Draw parameters from the prior and labels given them; also the level and value of each label of ``beta``."""
    template = Levels(LEVEL, COUNT.astype(float), 0.0 * LEVEL, 0.0, likelihood == "bernoulli", 0.0, 1.0)
    true = prior_draws(template, n_draws=1, prior=prior, rng=rng)
    at = np.repeat(np.arange(len(LEVEL)), COUNT)
    if likelihood != "beta":
        return true, sbc.simulate(template, true, 0, rng), at, None
    from cje_core.bayes.models.likelihoods import DISPERSION, draw_bounded

    at_ends, dispersion = rng.beta(*DISPERSION, size=2)
    labels = draw_bounded(true.f[0, at], at_ends, dispersion, rng=rng)
    return true._replace(sigma=np.array([dispersion])), template, at, labels


def posterior(
    engine: str, levels: Levels, at: IntArray, labels: Any, prior: Prior, rng: np.random.Generator
) -> Draws:
    """Draw from the posterior by an engine, far enough apart for ranks; `labels` are those of the beta likelihood."""
    if engine == "gibbs":
        thin = sbc.THIN_BINARY if levels.binary else sbc.THIN
        return gibbs.sample(levels, n_draws=N_RANKS, thin=thin, prior=prior, rng=rng)
    from cje_core.bayes.models import nuts, slice

    options = nuts.NutsOptions(engine, n_draws=STEPS * N_RANKS, tune=WARMUP, chains=1)
    if labels is None:
        model = slice.calibration(levels, prior)
    else:
        model = slice.observations(levels, slice.Labelled(at, labels), prior, likelihood="beta")
    trace = nuts.run(model, options, rng=rng)
    draws = nuts.to_draws(trace, levels, options.n_draws)
    if labels is not None:
        draws = draws._replace(sigma=nuts.pooled(nuts.posterior(trace), "dispersion"))
    return draws.each(lambda _, one: one[STEPS - 1 :: STEPS])


def replicate(study: Study, cell: Cell, streams: Streams) -> Outcome:
    """One draw from the prior, its labels, and the ranks of the truth among each engine's draws."""
    likelihood, prior = str(cell["likelihood"]), Prior(float(cell["concentration"]))
    true, levels, at, labels = truth_and_labels(likelihood, prior, streams("data"))
    share = COUNT / COUNT.sum()
    truth = sbc.quantities(true, share)[0]
    shape = len(study.methods), len(QUANTITIES)
    estimate, spread, rank = (np.full(shape, np.nan) for _ in range(3))
    interval, status, seconds = (
        np.full((*shape, 2), np.nan),
        np.full(shape, NOT_RUN),
        np.full(shape[0], np.nan),
    )
    for m, engine in enumerate(study.methods):
        if streams.replicate >= FITS.get(engine, np.inf) or (engine == "gibbs" and likelihood == "beta"):
            continue
        draws = sbc.quantities(posterior(engine, levels, at, labels, prior, streams(engine)), share)
        estimate[m], spread[m] = draws.mean(axis=0), draws.std(axis=0, ddof=1)
        interval[m] = np.sort(draws, axis=0)[[0, -1]].T
        rank[m] = np.where(np.isfinite(truth), (draws < truth).sum(axis=0), np.nan)
        status[m] = np.where(np.isfinite(truth), 0, NOT_RUN)
    return Outcome(estimate, truth, spread, interval, status, seconds, {"rank": rank})


def ranks_of(ds: xr.Dataset, method: str) -> xr.Dataset | None:
    """Return the ranks of one method in one cell as `cje_core.bayes.diagnostics.sbc.verdict` takes them."""
    one = ds["rank"].sel({"method": method}, drop=True).transpose("replicate", "policy")
    one = one.isel(policy=one.notnull().any("replicate").values).dropna("replicate")
    if not one.size:
        return None
    found = one.rename(replicate="sim", policy="quantity").astype(int).reset_coords(drop=True)
    return xr.Dataset({"rank": found}, attrs={"n_ranks": N_RANKS})


def _cells(ds: xr.Dataset) -> list[tuple[dict[str, Any], str, xr.Dataset]]:
    """Return each cell with the methods that ran in it and their ranks."""
    found = []
    for likelihood in ds["likelihood"].values.astype(str):
        for concentration in ds["concentration"].values:
            cell = {"likelihood": likelihood, "concentration": float(concentration)}
            for method in ds["method"].values.astype(str):
                ranks = ranks_of(ds.sel(cell), method)
                if ranks is not None:
                    found.append((cell, method, ranks))
    return found


def rank_table(ds: xr.Dataset) -> pd.DataFrame:
    """Return, by cell, method and quantity, whether the ranks stay inside their band, their mean and their spread.

    ``mean``: of the ranks scaled to (0, 1), .5 of a correct sampler; ``spread``: their variance over that of uniform
    ranks. Bands hold for all quantities of all cells and methods at once with probability `PROB`.
    """
    rows, found = [], _cells(ds)
    for cell, method, ranks in found:
        verdict = sbc.verdict(ranks, prob=1 - (1 - PROB) / len(found))
        for q, name in enumerate(ranks["quantity"].values):
            u = (ranks["rank"].values[:, q] + 0.5) / (N_RANKS + 1)
            n, square = len(u), 12 * (u - 0.5) ** 2 / (1 - (N_RANKS + 1) ** -2.0)
            mcse = [one.std(ddof=1) / np.sqrt(n) if n > 1 else np.nan for one in (u, square)]
            rows.append(
                {
                    **cell,
                    "method": method,
                    "quantity": str(name),
                    "data sets": n,
                    "inside": "yes" if bool(verdict["passed"].values[q]) else "no",
                    "mean": float(u.mean()),
                    "mean_mcse": float(mcse[0]),
                    "spread": float(square.mean()),
                    "spread_mcse": float(mcse[1]),
                }
            )
    return pd.DataFrame(rows)


def table(ds: xr.Dataset) -> dict[str, pd.DataFrame]:
    """Ranks by quantity, and what the intervals of 39 draws cover."""
    return {
        "Ranks of the truth among posterior draws: inside the band of a correct sampler, mean (.5) and spread (1)": (
            rank_table(ds)
        ),
        "All measures": summary_table(ds, ("coverage", "bias", "width"), pool=False),
    }


def findings(ds: xr.Dataset) -> list[Finding]:
    """Whether each engine draws from the posterior of each likelihood, over the priors."""
    ranks, measures = rank_table(ds), summary_table(ds, ("coverage",), pool=False)
    said = []
    for (likelihood, method), rows in ranks.groupby(["likelihood", "method"], sort=False):
        here = measures[(measures["likelihood"] == likelihood) & (measures["method"] == method)]
        here = here[here["coverage"].notna()].rename(columns={"policy": "quantity"})
        n, out = int(rows["data sets"].min()), rows[rows["inside"] == "no"]
        holds = None if n < ENOUGH else not len(out)
        ends = [here.loc[at] for at in (lowest(here["coverage"]), highest(here["coverage"]))]
        least, most = (points(float(r["coverage"]), float(r["coverage_mcse"]), "%") for r in ends)
        named = "; ".join(where(row, ["quantity", "concentration"]) for _, row in out.iterrows())
        said.append(
            Finding(
                f"Does {method} draw from the posterior with the {likelihood} likelihood? {ANSWER[holds]}: over "
                f"{n} data sets drawn from each prior, the ranks of {len(rows) - len(out)} of {len(rows)} quantities "
                f"are "
                f"uniform{f' (not {named})' if named else ''}; 95% intervals cover {least} to {most}, least at "
                f"{where(ends[0], ['quantity', 'concentration'])}.",
                f"yes: the ECDF of the ranks stays inside a band that all quantities of all rows keep with {PROB:.0%} "
                f"if "
                f"every sampler is right; open below {ENOUGH} data sets",
                holds,
            )
        )
    return said


def figure(ds: xr.Dataset) -> Figure:
    """Draw the ECDF of the ranks less that of uniform ones, default prior; each engine's band in grey."""
    made = _cells(ds)
    first = max(cell["concentration"] for cell, _, _ in made)  # the default prior, which every likelihood has
    found = [one for one in made if one[0]["concentration"] == first]
    rows = list(dict.fromkeys(cell["likelihood"] for cell, _, _ in found))
    fig = Figure(figsize=(11.0, 0.8 + 1.9 * len(rows)), layout="constrained")
    axes = fig.subplots(len(rows), len(QUANTITIES), sharex=True, sharey=True, squeeze=False)
    names = [str(m) for m in ds["method"].values]
    for cell, method, ranks in found:
        verdict = sbc.verdict(ranks, prob=1 - (1 - PROB) / len(made))
        point = verdict["point"].values
        for q, name in enumerate(verdict["quantity"].values):
            ax = axes[rows.index(cell["likelihood"]), QUANTITIES.index(str(name))]
            low, high = (verdict[end].values - point for end in ("lower", "upper"))
            ax.fill_between(point, low, high, step="mid", color="0.5", alpha=0.15, lw=0)
            seen = verdict["ecdf"].values[q] - point
            ax.step(point, seen, where="mid", color=OKABE_ITO[names.index(method)], lw=1.2, label=method)
    for k, ax in enumerate(axes.ravel()):
        row, column = divmod(k, len(QUANTITIES))
        ax.axhline(0.0, color="0.5", lw=0.7, ls="--")
        ax.set(title=QUANTITIES[column] if row == 0 else "", xlim=(0, 1))
        if column == 0:
            ax.set(ylabel=f"{rows[row]}\nECDF less uniform")
    handles = {
        line.get_label(): line for ax in axes.ravel() for line in ax.lines if line.get_label() in names
    }
    fig.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=len(names), frameon=False)
    return fig


RUN_GROUPS = ("pages",)
STUDY = Study(
    name="posterior_calibration",
    title="Do the samplers draw from the posterior that they claim?",
    aims="Simulation-based calibration of the samplers behind the Bayesian intervals: Gibbs, nutpie and PyMC's NUTS, "
    "with the normal, the Bernoulli and the beta likelihood, and two priors of the calibrator's shape.",
    mechanism="The calibrator and its noise are drawn from the prior; 60 labels are drawn at 11 judge levels, most "
    "near "
    "the top and none at one. The beta likelihood has the default prior alone, and no Gibbs sampler.",
    estimands="The calibrator at judge scores .3, .85 and 1, its rise b - a, the noise (sigma, or the dispersion of "
    "the "
    "beta likelihood), and V, the mean of the calibrator over the labels' levels.",
    measures="Ranks of the truth among 39 posterior draws, against an exact simultaneous band; coverage of the "
    "interval "
    "from the smallest to the largest of them, exactly 95% of a correct sampler.",
    protocol=Protocol(
        origin="The estimators' default prior, and one with half of its concentration: more like steps.",
        replicates="1,000 by Gibbs: a standard error of .7 points of a coverage of 95%. NUTS runs on the first 200, "
        "which see a misfit of location of a quarter of a standard deviation.",
        failures="A run that fails is an error of the study.",
        primary="Whether the ECDF of the ranks stays inside its band.",
        relevant="A coverage of 95% intervals off by 3 points.",
    ),
    factors={"likelihood": ("normal", "bernoulli", "beta"), "concentration": (1.0, 0.5)},
    policies=QUANTITIES,
    methods={
        "gibbs": Method("the Gibbs sampler, ranked draws 75 sweeps apart (binary labels: 40)"),
        "nutpie": Method(
            f"NUTS by nutpie, ranked draws {STEPS} steps apart, on the first {FITS['nutpie']} data sets"
        ),
        "pymc": Method(
            f"PyMC's own NUTS on the first {FITS['pymc']} data sets, in the paper's profile alone"
        ),
    },
    profiles={
        "smoke": Profile(6, {"likelihood": ("normal", "bernoulli")}, without=("nutpie", "pymc")),
        "quick": Profile(1000, without=("pymc",)),
        "paper": Profile(4000),
    },
    replicate=replicate,
    keep=possible,
    legend={
        "concentration": {1.0: "the default prior of the calibrator's shape", 0.5: "a prior of steeper steps"}
    },
    table=table,
    figure=figure,
    findings=findings,
)
