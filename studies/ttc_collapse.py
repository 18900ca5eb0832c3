"""TTC collapse with sequence length: the paper's figure, with its exact curves.

"Causal Judge Evaluation", proposition on the exponential collapse of logger coverage and its simulation. Zipf
tokens (V = 1000, exponent 1.2), reward-tilted targets ``p ~ q exp(eta u)``, exact weights, and an outcome of
the first token, ``Y = u(a_1) + noise``, so that the outcome's spread does not depend on length. The paper
does not say how utilities attach to tokens; here that is a factor.

Two methods are the controls of this study: ``logged_mean``, the mean of the logged outcomes without any
weight, plays the part of `raw_judge` (biased: it estimates the logger's value), and ``direct``, the mean of
fresh draws from the target judged without error, that of `labels_only` (unbiased).

``n = 10,000`` per replicate: with outcomes of standard deviation near 1 it gives the Direct RMSE of about
0.01 that the paper reports (the paper does not state n).
"""

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import xarray as xr

from cje_core.result import wald
from cje_sim import exact, typicality
from cje_sim.policies import token_tilt, utilities
from cje_sim.tokens import FloatArray, TokenPolicy, iid_policy, sample_sums, zipf
from studies._measures import performance
from studies._streams import Cell, Streams, generator
from studies._study import Method, Outcome, Profile, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VOCAB, ZIPF_ALPHA, NOISE_SD, N, LEVEL = 1000, 1.2, 0.5, 10_000, 0.9
GATE = 0.70
UTILITIES = ("iid-1", "iid-2", "iid-3", "aligned", "anti_aligned", "hot")


@lru_cache(maxsize=64)
def utility_of(name: str) -> FloatArray:
    """Token utilities of a level: draws have named seeds of their own, so they are the same in every run.

    ``iid-k``: the k-th draw of standard normals; ``aligned`` / ``anti_aligned``: draw 1 sorted, best first /
    best last in frequency rank; ``hot``: the logger's surprisal, standardised, so that tilting raises the
    temperature.
    """
    kind, _, number = name.partition("-")
    if kind == "hot":
        law = zipf(VOCAB, ZIPF_ALPHA)
        m = exact.moments(law, -law)
        return np.asarray((-law - m.mean) / np.sqrt(m.variance))
    return utilities(kind, VOCAB, rng=generator(0, "ttc_collapse", "utilities", int(number or 1)))


def policies(cell: Cell) -> tuple[TokenPolicy, TokenPolicy]:
    """Target and logger of a cell."""
    logger = iid_policy(zipf(VOCAB, ZIPF_ALPHA), int(cell["length"]))
    return token_tilt(logger, utility_of(str(cell["utility"])), float(cell["eta"])), logger


def theory(cell: Cell) -> dict[str, float]:
    """Exact values of a cell: TTC one- and two-sided, limit ESS/n, standard errors, the CLE floor of IPS."""
    target, logger = policies(cell)
    p, q, length = target.log_prob[0, 0], logger.log_prob[0, 0], logger.length
    one, two = (typicality.coverage(p, q, length, level=LEVEL, two_sided=side) for side in (False, True))
    errors = exact.first_token_errors(p, q, utility_of(str(cell["utility"])), NOISE_SD, length, N)
    return {
        "ttc": one.ttc,
        "log_ttc": one.log_beta,
        "alpha": one.alpha,
        "ttc_two_sided": two.ttc,
        "kl_per_token": exact.kl(p, q),
        "collapse_margin": exact.collapse_margin(p, q),
        "log10_limit_ess": exact.log_limit_ess(p, q, length) / np.log(10),
        "value": errors.value,
        "log_se_ips": errors.log_se_ips,
        "log_se_snips": errors.log_se_snips,
        "log_se_direct": errors.log_se_direct,
        "log_cle_floor": one.log_cle_floor(NOISE_SD, N),
    }


def replicate(study: Study, cell: Cell, streams: Streams) -> Outcome:
    """Draw n logged and n target responses; estimate V(pi'), TTC (threshold from the target's own draws),
    ESS.
    """
    target, logger = policies(cell)
    utility = utility_of(str(cell["utility"]))
    rng = streams("data")
    scores = np.stack([-target.log_prob, target.log_prob - logger.log_prob], axis=-1)
    logged = sample_sums(logger, scores, N, rng=rng)
    fresh = sample_sums(target, scores, N, rng=rng)
    y0 = utility[logged.first_token] + NOISE_SD * rng.standard_normal(N)
    y1 = utility[fresh.first_token] + NOISE_SD * rng.standard_normal(N)
    weight = np.exp(logged.sums[:, 1])
    total = weight.sum()
    snips = weight @ y0 / total
    influence = {
        "logged_mean": y0 - y0.mean(),
        "ips": weight * y0 - np.mean(weight * y0),
        "snips": weight * (y0 - snips) * (N / total),
        "direct": y1 - y1.mean(),
    }
    estimate = {"logged_mean": y0.mean(), "ips": np.mean(weight * y0), "snips": snips, "direct": y1.mean()}
    values = np.array([[estimate[m]] for m in study.methods])
    errors = np.array([[np.sqrt(np.mean(influence[m] ** 2) / (N - 1))] for m in study.methods])
    surprisal, own = logged.sums[:, 0], fresh.sums[:, 0]
    edge = np.quantile(own, LEVEL, method="inverted_cdf")
    centre = logger.length * exact.entropy(target.log_prob[0, 0])
    distance = np.quantile(np.abs(own - centre), LEVEL, method="inverted_cdf")
    return Outcome(
        values,
        truth=[exact.expectation(target.log_prob[0, 0], utility)],
        std_error=errors,
        interval=wald(values, errors, np.inf, study.ci_prob),
        extra={
            "ttc": np.mean(surprisal <= edge),
            "ttc_two_sided": np.mean(np.abs(surprisal - centre) <= distance),
            "ess_fraction": total**2 / (N * (weight @ weight)),
            "max_share": weight.max() / total,
        },
    )


def table(ds: xr.Dataset) -> dict[str, pd.DataFrame]:
    """Headline: the shortest and the longest responses of each world; then every cell."""
    cells = _per_cell(ds)
    lengths = cells["length"].unique()
    shown = ["ttc", "ttc_mcse", "ttc_exact", "ips_rmse", "ips_rmse_mcse", "snips_rmse", "snips_rmse_mcse"]
    shown += ["direct_rmse", "direct_rmse_mcse", "log10_ess_exact"]
    ends = cells[cells["length"].isin([lengths.min(), lengths.max()])]
    return {
        "TTC and RMSE at the shortest and longest responses": ends[["utility", "eta", "length", *shown]],
        "Every cell": cells,
    }


def _per_cell(ds: xr.Dataset) -> pd.DataFrame:
    measured = performance(ds, pool=True)
    rmse = measured.sel(measure="rmse", drop=True)
    runs = ds["ttc"].count("replicate")
    columns = {
        "ttc": ds["ttc"].mean("replicate"),
        "ttc_mcse": ds["ttc"].std("replicate", ddof=1) / np.sqrt(runs),
        "ttc_exact": ds["theory_ttc"],
        "ttc_two_sided_exact": ds["theory_ttc_two_sided"],
        "kl_per_token": ds["theory_kl_per_token"],
        "collapse_margin": ds["theory_collapse_margin"],
        "log10_ess_exact": ds["theory_log10_limit_ess"],
        "value": ds["theory_value"],
    }
    for method in ds["method"].values:
        columns[f"{method}_rmse"] = rmse["value"].sel({"method": method}, drop=True)
        columns[f"{method}_rmse_mcse"] = rmse["mcse"].sel({"method": method}, drop=True)
    # An SE beyond 1e300 (deep overlap failure) is shown as 1e300, not as an overflow.
    for name in ("se_ips", "se_snips", "se_direct", "cle_floor"):
        columns[f"{name}_exact"] = xr.apply_ufunc(np.exp, ds[f"theory_log_{name}"].clip(max=690.0))
    frame = xr.Dataset(columns).to_dataframe(dim_order=["utility", "eta", "length"]).reset_index()
    return frame.dropna(subset=["ttc"]).reset_index(drop=True)


def figure(ds: xr.Dataset) -> "Figure":
    """TTC (top) and RMSE (bottom) against length, one column per way in which utilities attach to tokens."""
    from matplotlib.figure import Figure

    cells = _per_cell(ds)
    worlds = list(dict.fromkeys(cells["utility"]))
    fig = Figure(figsize=(3.1 * len(worlds) + 0.6, 6.4), layout="constrained")
    axes = fig.subplots(2, len(worlds), sharex=True, sharey="row", squeeze=False)
    colours = dict(zip(sorted(cells["eta"].unique()), ("C0", "C1", "C3", "C4", "C5"), strict=False))
    for column, world in enumerate(worlds):
        top, bottom = axes[:, column]
        for eta, rows in cells[cells["utility"] == world].groupby("eta"):
            x, colour = rows["length"], colours[eta]
            top.plot(x, rows["ttc_exact"], color=colour, label=f"η = {eta:g}, exact")
            top.plot(x, rows["ttc_two_sided_exact"], color=colour, ls=":", lw=1)
            top.errorbar(x, rows["ttc"], 1.96 * rows["ttc_mcse"], fmt="o", ms=4, color=colour, capsize=2)
            for method, style in (("ips", "o-"), ("snips", "s:"), ("direct", "^--")):
                bottom.errorbar(
                    x,
                    rows[f"{method}_rmse"],
                    1.96 * rows[f"{method}_rmse_mcse"],
                    fmt=style,
                    ms=3.5,
                    lw=1,
                    color=colour,
                    capsize=2,
                    label=f"{method.upper() if method != 'direct' else 'Direct'}, η = {eta:g}",
                )
            bottom.plot(x, rows["se_ips_exact"], color=colour, lw=4, alpha=0.25)
        top.axhline(GATE, color="0.4", lw=1, ls="--")
        top.set_title(world)
        bottom.set(xscale="log", yscale="log", ylim=(3e-3, 20), xlabel="tokens per response, L")
        bottom.set_xticks(
            sorted(cells["length"].unique()), [str(v) for v in sorted(cells["length"].unique())]
        )
        bottom.minorticks_off()
    axes[0, 0].set(ylabel="TTC (dotted: two-sided, exact)", ylim=(-0.03, 1.03))
    axes[1, 0].set_ylabel(f"RMSE, n = {N:,} (bands: exact SE of IPS)")
    axes[0, -1].legend(fontsize=7, loc="lower left")
    axes[1, -1].legend(fontsize=6, ncols=2, loc="upper left")
    return fig


STUDY = Study(
    name="ttc_collapse",
    title="TTC collapse with sequence length, with perfect propensities",
    aims="Does the logger's mass on target-typical responses fall with length as the paper says, for which "
    "targets, and do the errors of IPS and SNIPS follow it?",
    mechanism=f"Responses of L i.i.d. tokens, Zipf law on {VOCAB} tokens with exponent {ZIPF_ALPHA}; target "
    f"p(v) ~ q(v) exp(eta u(v)); Y = u(first token) + {NOISE_SD} N(0, 1); {N:,} logged and {N:,} target "
    "responses. Utilities: three i.i.d. normal draws, one of them sorted with and against frequency, and the "
    "standardised surprisal (a hotter target). Weights are exact.",
    estimands="V(pi') = E[u(first token)] under the target; TTC, the logger's mass on responses whose mean "
    "surprisal under the target is at most the target's own 0.9 quantile.",
    measures="RMSE, bias, coverage and empirical SE of each method beside the exact SE; TTC beside its exact "
    "value.",
    factors={"utility": UTILITIES, "eta": (0.1, 0.3, 0.5), "length": (25, 50, 100, 200, 400)},
    policies=("tilted",),
    methods={
        "logged_mean": Method("mean logged outcome, no weights (biased control)"),
        "ips": Method("mean of W Y, exact weights"),
        "snips": Method("self-normalised IPS, exact weights"),
        "direct": Method("mean outcome of fresh target draws (unbiased control)"),
    },
    profiles={
        "smoke": Profile(4, {"utility": ("iid-1", "aligned"), "length": (25, 100)}),
        "quick": Profile(40),  # about half a minute on two cores; TTC is then known to 0.001
        "paper": Profile(1000, {"utility": (*(f"iid-{k}" for k in range(1, 11)), *UTILITIES[3:])}),
    },
    replicate=replicate,
    theory=theory,
    table=table,
    figure=figure,
    claims=("prop-ttc-collapse", "fig-ttc-collapse"),
)
