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

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

from cje_core.figures.style import MARKERS, OKABE_ITO
from cje_core.offpolicy.weights import ess_fraction
from cje_core.streams import Cell, Streams, generator
from cje_sim.exact import divergences, typicality
from cje_sim.targets.tilts import token_tilt, utilities
from cje_sim.tokens.laws import FloatArray, TokenPolicy, iid_policy, log_normalise, sample_sums, zipf
from studies.engine.measures import cell_table, clopper_pearson
from studies.engine.outcome import Outcome
from studies.engine.study import Method, Profile, Study, outcome_of_means

VOCAB, ZIPF_ALPHA, NOISE_SD, N, LEVEL = 1000, 1.2, 0.5, 10_000, 0.9
GATE, ESS_GATE = 0.70, 0.30
DRAWS = 60
EXACT = {
    "ttc_exact": "ttc",
    "log_ttc_exact": "log_ttc",
    "ttc_two_sided_exact": "ttc_two_sided",
    **{name: name for name in ("kl_per_token", "collapse_margin", "rate", "rate_two_sided")},
    "log10_ess_exact": "log10_limit_ess",
    "value": "value",
}
UTILITIES = ("iid-1", "iid-2", "iid-3", "aligned", "anti_aligned", "hot")


@lru_cache(maxsize=128)
def utility_of(name: str) -> FloatArray:
    """Token utilities of a level: draws have named seeds of their own, so they are the same in every run.

    ``iid-k``: the k-th draw of standard normals; ``aligned`` / ``anti_aligned``: draw 1 sorted, best first / best last
    in frequency rank; ``hot``: the logger's surprisal, standardised, so that tilting raises the temperature.
    """
    kind, _, number = name.partition("-")
    if kind == "hot":
        law = zipf(VOCAB, ZIPF_ALPHA)
        return np.asarray((-law - divergences.entropy(law)) / np.sqrt(divergences.variance(law, -law)))
    return utilities(kind, VOCAB, rng=generator(0, "ttc_collapse", "utilities", int(number or 1)))


def policies(cell: Cell) -> tuple[TokenPolicy, TokenPolicy]:
    """Target and logger of a cell."""
    logger = iid_policy(zipf(VOCAB, ZIPF_ALPHA), int(cell["length"]))
    return token_tilt(logger, utility_of(str(cell["utility"])), float(cell["eta"])), logger


def theory(cell: Cell) -> dict[str, float]:
    """Exact values of a cell: TTC one- and two-sided and its rates, limit ESS/n, standard errors, CLE floor."""
    target, logger = policies(cell)
    p, q, length = target.log_prob[0, 0], logger.log_prob[0, 0], logger.length
    one, two = (typicality.coverage(p, q, length, level=LEVEL, two_sided=side) for side in (False, True))
    errors = divergences.first_token_errors(p, q, utility_of(str(cell["utility"])), NOISE_SD, length, N)
    return {
        "ttc": one.ttc,
        "log_ttc": one.log_beta,
        "alpha": one.alpha,
        "ttc_two_sided": two.ttc,
        "kl_per_token": divergences.kl(p, q),
        "collapse_margin": divergences.collapse_margin(p, q),
        "rate": typicality.collapse_rate(p, q),
        "rate_two_sided": typicality.collapse_rate(p, q, two_sided=True),
        "log10_limit_ess": divergences.log_limit_ess(p, q, length) / np.log(10),
        **{name: value for name, value in errors._asdict().items() if name != "snips_bias"},
        "log_cle_floor": one.log_cle_floor(NOISE_SD, N),
    }


def replicate(study: Study, cell: Cell, streams: Streams) -> Outcome:
    """Draw n logged and n target responses; estimate V(pi'), TTC (threshold from the target's own draws), ESS."""
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
    rows = {
        "logged_mean": y0,
        "ips": weight * y0,
        "snips": snips + weight * (y0 - snips) * (N / total),
        "direct": y1,
    }
    surprisal, own = logged.sums[:, 0], fresh.sums[:, 0]
    edge = np.quantile(own, LEVEL, method="inverted_cdf")
    centre = logger.length * divergences.entropy(target.log_prob[0, 0])
    distance = np.quantile(np.abs(own - centre), LEVEL, method="inverted_cdf")
    return outcome_of_means(
        study,
        rows,
        divergences.expectation(target.log_prob[0, 0], utility),
        ttc=np.mean(surprisal <= edge),
        ttc_two_sided=np.mean(np.abs(surprisal - centre) <= distance),
        ess_fraction=ess_fraction(weight),
        max_share=weight.max() / total,
    )


def table(ds: xr.Dataset) -> dict[str, pd.DataFrame]:
    """Headline by world and tilt; worlds where TTC and ESS disagree; spread over utility draws; every cell."""
    cells = _per_cell(ds)
    short, long = (cells["length"].min(), cells["length"].max())
    rows = []
    for (world, eta), part in cells.groupby(["utility", "eta"], sort=False):
        at = part.set_index("length")
        first = at.iloc[0]
        row = {"utility": world, "eta": eta, "margin": first["collapse_margin"], "rate": first["rate"]}
        for name, column in (("TTC", "ttc"), ("IPS RMSE", "ips_rmse")):
            for length in (short, long):
                row[f"{name}, L={length}"] = at.loc[length, column]
                row[f"{name}, L={length}_mcse"] = at.loc[length, f"{column}_mcse"]
        row[f"exact TTC, L={long}"] = at.loc[long, "ttc_exact"]
        row[f"log10 ESS/n, L={long}"] = at.loc[long, "log10_ess_exact"]
        row[f"Direct RMSE, L={long}"] = at.loc[long, "direct_rmse"]
        row[f"Direct RMSE, L={long}_mcse"] = at.loc[long, "direct_rmse_mcse"]
        rows.append(row)
    healthy = {"TTC": cells["ttc_exact"] >= GATE, "ESS": cells["log10_ess_exact"] >= np.log10(ESS_GATE)}
    shown = ["utility", "eta", "length", "ttc_exact", "ttc_two_sided_exact", "log10_ess_exact", "value"]
    shown += ["ips_rmse", "ips_rmse_mcse", "snips_rmse", "snips_rmse_mcse", "direct_rmse", "direct_rmse_mcse"]
    return {
        "TTC and RMSE, the shortest and the longest responses": pd.DataFrame(rows),
        f"Worlds where TTC (gate {GATE:g}) and ESS/n (gate {ESS_GATE:g}) disagree": cells.loc[
            healthy["TTC"] != healthy["ESS"], shown
        ].reset_index(drop=True),
        f"Exact TTC over {DRAWS} draws of i.i.d. normal utilities": spread_over_draws(),
        "Every cell": cells,
    }


@lru_cache(maxsize=1)
def spread_over_draws() -> pd.DataFrame:
    """Quantiles of the exact TTC over utility draws, at the paper's tilts and its shortest and longest lengths.

    Each TTC is exact; the draws are a sample of worlds, so shares of them carry exact binomial bounds.
    """
    law, rows = zipf(VOCAB, ZIPF_ALPHA), []
    quantiles = {"min": 0.0, "q10": 0.1, "median": 0.5, "q90": 0.9, "max": 1.0}
    for eta in (0.1, 0.3, 0.5):
        targets = [log_normalise(law + eta * utility_of(f"iid-{k}")) for k in range(1, DRAWS + 1)]
        short, long = (
            np.array([typicality.coverage(p, law, length, level=LEVEL, points=2**13).ttc for p in targets])
            for length in (25, 400)
        )
        # The paper: eta = 0.1 stays above the gate; for eta >= 0.3 TTC goes from above 0.8 to below 0.01.
        as_stated = long > GATE if eta < 0.3 else (short > 0.8) & (long < 0.01)
        for length, ttc in ((25, short), (400, long)):
            row = {name: np.quantile(ttc, level) for name, level in quantiles.items()}
            for name, hits in (("below the gate", ttc < GATE), ("as the paper states", as_stated)):
                row[f"share {name}"] = np.mean(hits)
                row[f"95% bounds, {name}"] = "[{:.2f}, {:.2f}]".format(*clopper_pearson(hits.sum(), DRAWS))
            rows.append({"eta": eta, "length": length, **row})
    return pd.DataFrame(rows)


def _per_cell(ds: xr.Dataset) -> pd.DataFrame:
    before = {
        "ttc": ds["ttc"].mean("replicate"),
        "ttc_mcse": ds["ttc"].std("replicate", ddof=1) / np.sqrt(ds["ttc"].count("replicate")),
        **{column: ds[f"theory_{name}"] for column, name in EXACT.items()},
    }
    # An SE beyond 1e300 (deep overlap failure) is shown as 1e300, not as an overflow.
    after = {
        f"{name}_exact": xr.apply_ufunc(np.exp, ds[f"theory_log_{name}"].clip(max=690.0))
        for name in ("se_ips", "se_snips", "se_direct", "cle_floor")
    }
    return cell_table(ds, [str(m) for m in ds["method"].values], "rmse", before, after)


def figure(ds: xr.Dataset) -> dict[str, Figure]:
    """The paper's figure in each world; then where TTC and ESS disagree, and the decay against its exact rate."""
    cells = _per_cell(ds)
    first = Figure(figsize=(3.0 * cells["utility"].nunique() + 0.6, 6.6), layout="constrained")
    second = Figure(figsize=(11, 4.2), layout="constrained")
    _draw_worlds(first, cells)
    _draw_disagreement(second, cells)
    return {
        "TTC (top; solid: exact, points: Monte Carlo, dotted: two-sided) and RMSE (bottom; wide bands: exact SE of "
        f"IPS) against length, n = {N:,}. Each column is one way in which utilities attach to tokens.": first,
        "TTC against the limit of ESS/n, every cell (left); -log TTC per token against Cramer's rate (right).": second,
    }


def _draw_worlds(fig: Figure, cells: pd.DataFrame) -> None:
    worlds = list(dict.fromkeys(cells["utility"]))
    axes = fig.subplots(2, len(worlds), sharex=True, sharey="row", squeeze=False)
    lengths = sorted(cells["length"].unique())
    colours = dict(zip(sorted(cells["eta"].unique()), OKABE_ITO, strict=False))
    for column, world in enumerate(worlds):
        top, bottom = axes[:, column]
        for eta, rows in cells[cells["utility"] == world].groupby("eta"):
            x, colour = rows["length"], colours[eta]
            top.plot(x, rows["ttc_exact"], color=colour, label=f"η = {eta:g}")
            top.plot(x, rows["ttc_two_sided_exact"], color=colour, ls=":", lw=1)
            top.errorbar(x, rows["ttc"], 1.96 * rows["ttc_mcse"], fmt="o", ms=4, color=colour, capsize=2)
            for method, style in (("ips", "o-"), ("snips", "s:"), ("direct", "^--")):
                y, error = rows[f"{method}_rmse"], 1.96 * rows[f"{method}_rmse_mcse"]
                label = f"{'Direct' if method == 'direct' else method.upper()}, η = {eta:g}"
                look = {"fmt": style, "ms": 3.5, "lw": 1, "capsize": 2, "color": colour}
                bottom.errorbar(x, y, error, label=label, **look)
            bottom.plot(x, rows["se_ips_exact"], color=colour, lw=5, alpha=0.2)
        top.axhline(GATE, color="0.4", lw=1, ls="--")
        top.set_title(world)
        bottom.set(xscale="log", yscale="log", ylim=(3e-3, 20), xlabel="tokens per response, L")
        bottom.set_xticks(lengths, [str(v) for v in lengths])
        bottom.minorticks_off()
    axes[0, 0].set(ylabel="TTC", ylim=(-0.03, 1.03))
    axes[1, 0].set_ylabel("RMSE")
    axes[0, 0].legend(fontsize=7, loc="lower left", frameon=False)
    handles, names = axes[1, 0].get_legend_handles_labels()
    fig.legend(handles, names, loc="outside lower center", ncols=9, fontsize=7, frameon=False)


def _draw_disagreement(fig: Figure, cells: pd.DataFrame) -> None:
    left, right = fig.subplots(1, 2)
    for k, (world, rows) in enumerate(cells.groupby("utility", sort=False)):
        look = {"color": OKABE_ITO[k % 8], "marker": MARKERS[k % 8], "ls": "", "ms": 4}
        left.plot(10.0 ** rows["log10_ess_exact"].clip(lower=-12), rows["ttc_exact"], label=world, **look)
        down = rows[rows["rate"] > 0]
        right.plot(down["rate"], -down["log_ttc_exact"] / down["length"], **look)
    left.axhline(GATE, color="0.4", lw=1, ls="--")
    left.axvline(ESS_GATE, color="0.4", lw=1, ls="--")
    left.set(xscale="log", xlabel="limit of ESS/n (1e-12: or below)", ylabel="TTC, exact")
    left.legend(fontsize=7, frameon=False)
    ends = np.array([1e-5, 1.0])
    right.plot(ends, ends, color="0.4", lw=1)
    right.set(
        xscale="log", yscale="log", xlabel="Cramer's rate, nats per token", ylabel="-log(TTC) / L, exact"
    )


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
