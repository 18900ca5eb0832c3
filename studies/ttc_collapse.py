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
from scipy import special

from cje_core.figures.style import MARKERS, OKABE_ITO
from cje_core.offpolicy.weights import ess_fraction
from cje_core.streams import Cell, Streams, generator
from cje_sim.exact import divergences, typicality
from cje_sim.targets.tilts import token_tilt, utilities
from cje_sim.tokens.laws import FloatArray, TokenPolicy, iid_policy, log_normalise, sample_sums, zipf
from studies.engine.measures import cell_table, clopper_pearson
from studies.engine.outcome import Outcome
from studies.engine.panels import legend
from studies.engine.study import Finding, Method, Profile, Protocol, Study, outcome_of_means
from studies.report.page import with_mcse

VOCAB, ZIPF_ALPHA, NOISE_SD, N, LEVEL = 1000, 1.2, 0.5, 10_000, 0.9
GATE, ESS_GATE = 0.70, 0.30
DRAWS = 60
EXACT = {
    "ttc_exact": "ttc",
    "log_ttc_exact": "log_ttc",
    "ttc_two_sided_exact": "ttc_two_sided",
    **{name: name for name in ("kl_per_token", "collapse_margin", "rate", "rate_two_sided")},
    "log10_ess_exact": "log10_limit_ess",
    "log_draws_ips": "log_draws_ips",
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
        "log_draws_ips": divergences.log_draws_needed(p, q, length, 2),
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
        last = at.loc[long]
        row = {"utility": world, "eta": eta, f"exact TTC, L={short}": at.loc[short, "ttc_exact"]}
        row[f"exact TTC, L={long}"] = last["ttc_exact"]
        for name, column in (("TTC", "ttc"), ("IPS RMSE", "ips_rmse"), ("Direct RMSE", "direct_rmse")):
            row[f"{name}, L={long}"] = last[column]
            row[f"{name}, L={long}_mcse"] = last[f"{column}_mcse"]
        row[f"IPS RMSE, L={long}_unseen"] = last["ips_rmse_unseen"]
        row |= {"margin": last["collapse_margin"], "rate": last["rate"]}
        row[f"log10 ESS/n, L={long}"] = last["log10_ess_exact"]
        rows.append(row)
    healthy = {"TTC": cells["ttc_exact"] >= GATE, "ESS": cells["log10_ess_exact"] >= np.log10(ESS_GATE)}
    shown = ["utility", "eta", "length", "ttc_exact", "ttc_two_sided_exact", "log10_ess_exact", "value"]
    shown += [f"{name}_rmse{end}" for name in ("ips", "snips", "direct") for end in ("", "_mcse")]
    shown.append("ips_rmse_unseen")
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
    cells = cell_table(ds, [str(m) for m in ds["method"].values], "rmse", before, after)
    draws = np.log(N * ds["estimate"].sizes["replicate"])
    cells["ips_rmse_unseen"] = cells["se_ips_exact"].where(cells["log_draws_ips"] > draws)
    return cells


def findings(ds: xr.Dataset) -> list[Finding]:
    """Whether the paper's curves, the proposition and the errors of IPS are what they are said to be."""
    cells = _per_cell(ds)
    worlds = cells.sort_values("length", kind="stable").groupby(["utility", "eta"], sort=False)
    first, last = worlds.first(), worlds.last()
    found = [_of_the_proposition(first, last), _of_the_simulation(cells, ds.sizes["replicate"])]
    found.append(_of_the_errors(last, ds.sizes["replicate"]))
    paper = _of_the_paper(cells)
    return [*paper, *found, _of_the_gates(cells)]


def _of_the_paper(cells: pd.DataFrame) -> list[Finding]:
    """The paper's curves: eta = .1 above the gate, eta >= .3 from above .8 at L = 25 to below .01 at L = 400."""
    at = cells.pivot(index=["utility", "eta"], columns="length", values="ttc_exact")
    if not {25, 400} <= set(at.columns):
        return []
    eta = at.index.get_level_values("eta")
    as_stated = pd.Series(np.where(eta < 0.3, at[400] > GATE, (at[25] > 0.8) & (at[400] < 0.01)), at.index)
    whole = as_stated.groupby("utility").all()
    names = ", ".join(whole.index[whole]) or "none"
    return [
        Finding(
            f"The paper's curves of TTC hold for {whole.sum()} of {len(whole)} ways in which utilities attach to "
            f"tokens ({names}), and at {as_stated.sum()} of {len(as_stated)} tilts of them.",
            f"exact TTC: eta = .1 above {GATE:g} at L = 400, eta >= .3 above .8 at L = 25 and below .01 at L = 400",
            bool(whole.all()),
        )
    ]


def _of_the_proposition(first: pd.DataFrame, last: pd.DataFrame) -> Finding:
    falls = last["ttc_exact"] < first["ttc_exact"]
    exceptions = ", ".join(f"{utility} at eta = {eta:g}" for utility, eta in last.index[~falls])
    rises = (
        f"rises with length in {(~falls).sum()} ({exceptions})" if exceptions else "rises with length in none"
    )
    signs = (falls == (last["collapse_margin"] > 0)).sum()
    return Finding(
        f"KL is positive in all {len(last)} worlds, yet TTC {rises}; the sign of the collapse margin says which way it "
        f"goes in {signs} of {len(last)}."
        if exceptions
        else f"TTC falls with length in all {len(last)} worlds, as the sign of the collapse margin says in {signs}.",
        f"exact TTC at L = {first['length'].iloc[0]} and {last['length'].iloc[0]}; the proposition asks it to fall "
        "wherever KL > 0",
        not exceptions,
    )


def _of_the_simulation(cells: pd.DataFrame, replicates: int) -> Finding:
    """Simulated TTC against its exact value, all cells at once."""
    chance = 1 - 0.01 / 2 / len(cells)
    most = float(special.stdtrit(replicates - 1, chance))
    apart = cells["ttc"] - cells["ttc_exact"]
    beyond = (apart.abs() > most * cells["ttc_mcse"] + 1 / N).sum()
    worst = cells.iloc[int(apart.abs().to_numpy().argmax())]
    return Finding(
        f"Simulated TTC is its exact value in {len(cells) - beyond} of {len(cells)} cells; the largest difference is "
        f"{with_mcse(worst['ttc'] - worst['ttc_exact'], worst['ttc_mcse'])}, at {worst['utility']}, "
        f"eta = {worst['eta']:g}, L = {worst['length']}.",
        f"|difference| <= {most:.1f} MCSE + 1/n, the {1 - 0.01:.0%} bound of all cells together by Bonferroni "
        f"(t, {replicates - 1} degrees of freedom); 1/n is the grain of the quantile",
        not beyond,
    )


def _of_the_errors(last: pd.DataFrame, replicates: int) -> Finding:
    """Exact errors of IPS at the longest length beside what a simulation shows of them."""
    exact = last["se_ips_exact"] / last["se_direct_exact"]
    shown = (last["ips_rmse"] / last["direct_rmse"]).to_numpy()
    # independent halves of one replicate's data: the relative errors add
    error = np.asarray(
        np.hypot(last["ips_rmse_mcse"] / last["ips_rmse"], last["direct_rmse_mcse"] / last["direct_rmse"])
    )
    low, high = int(shown.argmin()), int(shown.argmax())
    unseen = int(last["ips_rmse_unseen"].notna().sum())
    return Finding(
        f"At L = {last['length'].iloc[0]} the exact standard error of IPS is {exact.min():.3g} to {exact.max():.3g} "
        f"times that of Direct. Simulated RMSE says {with_mcse(shown[low], shown[low] * error[low])} to "
        f"{with_mcse(shown[high], shown[high] * error[high])} times: in {unseen} of {len(last)} worlds "
        f"{N * replicates:,} responses cannot show it, and tables print the exact value.",
        "exact ratio within the 20 to 50 times that the paper simulated; unseen: the run has fewer responses than the "
        "second moment of the weights needs, exp(L KL(p^2/q || q))",
        bool(exact.between(20, 50).all()),
    )


def _of_the_gates(cells: pd.DataFrame) -> Finding:
    ttc, ess = cells["ttc_exact"] >= GATE, cells["log10_ess_exact"] >= np.log10(ESS_GATE)
    deepest = cells.loc[ttc & ~ess, "log10_ess_exact"].min()
    told = f", down to ESS/n = 1e{deepest:.0f}" if (ttc & ~ess).any() else ""
    return Finding(
        f"TTC passes and ESS/n refuses in {(ttc & ~ess).sum()} of {len(cells)} cells{told}; the other way round in "
        f"{(~ttc & ess).sum()}.",
        f"exact TTC >= {GATE:g} against the exact limit of ESS/n >= {ESS_GATE:g}: do the gates agree everywhere?",
        bool((ttc == ess).all()),
    )


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
    legend(fig, panels=[axes[1, 0]], loc="outside lower center", ncols=9, fontsize=8)


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
    legend(fig)
    ends = np.array([1e-5, 1.0])
    right.plot(ends, ends, color="0.4", lw=1)
    right.set(
        xscale="log", yscale="log", xlabel="Cramer's rate, nats per token", ylabel="-log(TTC) / L, exact"
    )


RUN_GROUPS = ("headlines", "pages")
STUDY = Study(
    name="ttc_collapse",
    title="TTC collapse with sequence length, with perfect propensities",
    aims="Does the logger's mass on target-typical responses fall with length as the paper says, for which "
    "targets, and do the errors of IPS and SNIPS follow it?",
    mechanism=f"Responses of L i.i.d. tokens, Zipf law on {VOCAB} tokens with exponent {ZIPF_ALPHA}; target "
    f"p(v) ~ q(v) exp(eta u(v)); Y = u(first token) + {NOISE_SD} N(0, 1); {N:,} logged and {N:,} target "
    "responses. Weights are exact.",
    estimands="V(pi') = E[u(first token)] under the target; TTC, the logger's mass on responses whose mean "
    "surprisal under the target is at most the target's own 0.9 quantile.",
    measures="RMSE, bias, coverage and empirical SE of each method beside the exact SE; TTC beside its exact "
    "value.",
    protocol=Protocol(
        origin="Vocabulary, Zipf exponent, tilts and lengths are those of the paper's figure. It states neither the "
        f"size of a sample nor how utilities attach to tokens: n = {N:,} gives Direct the RMSE that it "
        "reports, and the utilities are a factor. Written after the study's first runs.",
        replicates="A replicate estimates TTC from 10,000 draws, to .005 at worst: 40 replicates give it an MCSE of "
        ".0008, 1,000 one of .00016. The RMSE of IPS has no useful MCSE where overlap has collapsed, whatever "
        "their number; the exact standard error stands beside it.",
        failures="None is expected. A replicate that raises is kept as data: NaN, and a miss of its interval.",
        primary="TTC at the longest responses against the gate of .7, exact; simulation checks it. Then the RMSE of "
        "IPS against that of Direct.",
        relevant="TTC on the other side of the gate; an RMSE of IPS ten times that of Direct. A simulated TTC more "
        "than 4 MCSE from the exact one is an error in the code.",
    ),
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
    check=policies,
    table=table,
    figure=figure,
    findings=findings,
    legend={
        "utility": {
            **{f"iid-{k}": f"draw {k} of i.i.d. standard normals" for k in range(1, 11)},
            "aligned": "draw 1 sorted, the best first in frequency",
            "anti_aligned": "draw 1 sorted, the best last in frequency",
            "hot": "the logger's standardised surprisal: a hotter target",
        }
    },
    claims=("prop-ttc-collapse", "fig-ttc-collapse"),
)
