"""The coverage-limited efficiency (CLE) floor against exact and simulated standard errors.

"Causal Judge Evaluation", eq. cle-bound: ``SE(IPS) >= sigma_T alpha / sqrt(beta n) sqrt(1 + chi2_T)`` for every region
T with target mass alpha and logger mass beta, where sigma_T is the smallest outcome noise in T. Its corollary states
``SE >= sigma_T / sqrt(ESS_T)``; with ``ESS_T = n (E0[W 1_T])^2 / E0[W^2 1_T] = n beta / (1 + chi2_T)`` that is the
floor divided by alpha. All of it is exact here (`cje_sim.exact.typicality.coverage`, `cje_sim.exact.divergences`).

The controls of this study: ``logged_mean`` (biased, the part of `raw_judge`), ``direct`` (unbiased, mean of fresh
target draws, the part of `labels_only`). ``ips_calibrated`` is IPS on the noise-free reward ``R = E[Y | a]``, to
which the bound's proof does not apply.
"""

from functools import lru_cache

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure
from scipy import special

from cje_core.figures.style import MARKERS, OKABE_ITO
from cje_core.streams import Cell, Streams, generator
from cje_sim.exact import divergences
from cje_sim.exact.typicality import Coverage, coverage
from cje_sim.targets.tilts import temperature, token_tilt, utilities
from cje_sim.tokens.laws import FloatArray, TokenPolicy, iid_policy, sample_sums, zipf
from studies.engine.measures import cell_table
from studies.engine.outcome import Outcome
from studies.engine.panels import legend
from studies.engine.study import Finding, Method, Profile, Protocol, Study, outcome_of_means
from studies.report.page import with_mcse

VOCAB, ZIPF_ALPHA, N = 1000, 1.2, 1000
MASSES = {"50": 0.5, "90": 0.9, "99": 0.99}  # target mass of the region T, percent
SHIFTS = ("clone", "tilt-0.1", "tilt-0.3", "cold-0.8", "hot-1.25")
NOISES = {"0.2": (0.2, 0.2), "1.0": (1.0, 1.0), "mixed": (0.2, 1.0)}
# what the figure draws, and how it calls it
SHOWN = {"ips": "IPS", "snips": "SNIPS", "ips_calibrated": "IPS of the noise-free reward"}
TITLES = {"centred": "mean 0", "first_token": "mean by first token"}
UTILITY = utilities("iid", VOCAB, rng=generator(0, "cle_bound", "utilities"))


def world(cell: Cell) -> tuple[TokenPolicy, TokenPolicy, FloatArray, FloatArray]:
    """Target, logger, mean outcome and outcome noise (both by first token) of a cell."""
    logger = iid_policy(zipf(VOCAB, ZIPF_ALPHA), int(cell["length"]))
    kind, _, number = str(cell["shift"]).partition("-")
    if kind == "tilt":
        target = token_tilt(logger, UTILITY, float(number))
    else:
        target = logger if kind == "clone" else temperature(logger, float(number))
    mean = UTILITY if cell["reward"] == "first_token" else np.zeros(VOCAB)
    low, high = NOISES[str(cell["noise"])]
    return target, logger, mean, np.where(np.arange(VOCAB) % 2 == 0, low, high)


@lru_cache(maxsize=256)
def _region(shift: str, length: int, mass: float) -> Coverage:
    """Coverage of a region; it depends neither on the reward nor on the noise."""
    target, logger, _, _ = world({"shift": shift, "length": length, "reward": "centred", "noise": "1.0"})
    return coverage(target.log_prob[0, 0], logger.log_prob[0, 0], length, level=mass)


def theory(cell: Cell) -> dict[str, float]:
    """Exact log standard errors, and log floors with their parts for each region."""
    target, logger, mean, noise = world(cell)
    p, q, length = target.log_prob[0, 0], logger.log_prob[0, 0], logger.length
    errors = divergences.first_token_errors(p, q, mean, noise, length, N)
    clean = divergences.first_token_errors(p, q, mean, 0.0, length, N)
    second = length * divergences.log1p_chi2(p, q)
    sigma = float(noise.min())  # every region holds tokens of both kinds
    whole = float(np.log(sigma) + (second - np.log(N)) / 2)  # T = everything: alpha = beta = 1
    out = {
        "log_se_ips": errors.log_se_ips,
        "log_se_snips": errors.log_se_snips,
        "log_se_ips_calibrated": max(clean.log_se_ips, -1e3),  # 0 where the reward is constant
        "log_se_direct": errors.log_se_direct,
        "log_draws_variance": divergences.log_draws_needed(p, q, length, 2),
        "log_draws_mcse": divergences.log_draws_needed(p, q, length, 4),
        "log_floor_all": whole,
        "log_coverage_part_all": 0.0,
        "log_shape_part_all": second / 2,
        "log_ess_form_all": whole,
    }
    for name, mass in MASSES.items():
        region = _region(str(cell["shift"]), length, mass)
        out[f"log_floor_{name}"] = region.log_cle_floor(sigma, N)
        out[f"log_coverage_part_{name}"] = region.log_alpha - region.log_beta / 2
        out[f"log_shape_part_{name}"] = region.log1p_chi2 / 2
        out[f"log_ess_form_{name}"] = out[f"log_floor_{name}"] - region.log_alpha
    return out


def replicate(study: Study, cell: Cell, streams: Streams) -> Outcome:
    """Draw n logged and n target responses and estimate V(pi') by every method."""
    target, logger, mean, noise = world(cell)
    rng = streams("data")
    logged = sample_sums(logger, (target.log_prob - logger.log_prob)[..., None], N, rng=rng)
    fresh = sample_sums(target, np.zeros((*target.log_prob.shape, 1)), N, rng=rng)
    y0, y1 = (
        mean[part.first_token] + noise[part.first_token] * rng.standard_normal(N) for part in (logged, fresh)
    )
    w = np.exp(logged.sums[:, 0])
    snips = w @ y0 / w.sum()
    reward = mean[logged.first_token]
    scores = {
        "logged_mean": y0,
        "ips": w * y0,
        "snips": snips + w * (y0 - snips) * (N / w.sum()),
        "ips_calibrated": w * reward,
        "direct": y1,
    }
    return outcome_of_means(study, scores, divergences.expectation(target.log_prob[0, 0], mean))


def table(ds: xr.Dataset) -> dict[str, pd.DataFrame]:
    """Violations first (none are expected of the bound), then every cell."""
    cells = _per_cell(ds)
    rows = []
    for name in (*MASSES, "all"):
        floor, ess_form, error = cells[f"floor_{name}"], cells[f"ess_form_{name}"], cells["se_ips"]
        rows.append(
            {
                "region T": "everything" if name == "all" else f"mass {name}%",
                "cells": len(cells),
                "floor > SE(IPS)": _count(floor, error),
                "floor > SE(SNIPS)": _count(floor, cells["se_snips"]),
                "floor > SE(IPS, calibrated)": _count(floor, cells["se_ips_calibrated"]),
                "ESS form > SE(IPS)": _count(ess_form, error),
                "median floor / SE(IPS)": float((floor / error).median()),
                "largest floor / SE(IPS)": float((floor / error).max()),
                "largest coverage part": float(cells[f"coverage_part_{name}"].max()),
                "largest shape part": float(cells[f"shape_part_{name}"].max()),
            }
        )
    worst = []
    for name in (*MASSES, "all"):
        for bound in ("floor", "ess_form"):
            key = cells[["shift", "length", "reward", "noise"]].assign(**{"region T": name, "bound": bound})
            excess = key.assign(**{"bound / SE(IPS)": cells[f"{bound}_{name}"] / cells["se_ips"]})
            worst.append(excess[excess["bound / SE(IPS)"] > 1 + 1e-9])
    return {
        "Cells in which a bound exceeds the exact standard error": pd.DataFrame(rows),
        "Violations, one by one (floor: the proposition; ess_form: its corollary)": pd.concat(
            worst, ignore_index=True
        ),
        "Every cell": cells,
    }


def _count(bound: "pd.Series[float]", error: "pd.Series[float]") -> int:
    return int((bound > error * (1 + 1e-9)).sum())


def _per_cell(ds: xr.Dataset) -> pd.DataFrame:
    theory = [str(name) for name in ds.data_vars if str(name).startswith("theory_log_")]
    exact = {name.removeprefix("theory_log_"): xr.apply_ufunc(np.exp, ds[name]) for name in theory}
    cells = cell_table(ds, ("ips", "snips", "ips_calibrated", "direct"), "empirical_se", after=exact)
    draws = N * ds.sizes["replicate"]
    for name in ("ips", "ips_calibrated"):  # the standard error of SNIPS is exact to first order only
        cells[f"{name}_empirical_se_unseen"] = cells[f"se_{name}"].where(cells["draws_variance"] > draws)
    return cells


def findings(ds: xr.Dataset) -> list[Finding]:
    """Whether the floor holds, whom it binds, whether its ESS form holds, and what carries it."""
    cells = _per_cell(ds)
    regions = (*MASSES, "all")
    n, total = len(cells), len(cells) * len(regions)
    error = cells["se_ips"]
    ratio = pd.concat([cells[f"floor_{name}"] / error for name in regions])
    over = {
        name: sum(_count(cells[f"floor_{region}"], cells[f"se_{name}"]) for region in regions)
        for name in ("ips", "snips", "ips_calibrated")
    }
    form = pd.concat([cells[f"ess_form_{name}"] / error for name in MASSES])
    worst = int((form > 1 + 1e-9).sum())
    parts = {
        part: pd.concat([cells[f"{part}_part_{name}"] for name in regions]) for part in ("coverage", "shape")
    }
    exact = "exact values, no simulation"
    return [
        Finding(
            f"The CLE floor exceeds the standard error of IPS in {over['ips']} of {total} pairs of a world and a "
            f"region; the floor over the standard error is {ratio.median():.2g} in the median and at most "
            f"{ratio.max():.4g}.",
            f"{exact}: floor <= SE(IPS) (1 + 1e-9) in all pairs",
            not over["ips"],
        ),
        Finding(
            f"Its ESS form, sigma_T / sqrt(ESS_T), exceeds it in {worst} of {n * len(MASSES)} pairs, by up to "
            f"{max(form.max() - 1, 0):.0%}: the corollary has lost the factor alpha.",
            f"{exact}, regions of target mass {', '.join(MASSES)}%: sigma_T / sqrt(ESS_T) <= SE(IPS) (1 + 1e-9)",
            not worst,
        ),
        Finding(
            f"The floor exceeds the standard error of SNIPS in {over['snips']} pairs and that of IPS on the noise-free "
            f"reward in {over['ips_calibrated']}, of {total}.",
            f"{exact} (of SNIPS to first order): does the floor bind them too?",
            not over["snips"] and not over["ips_calibrated"],
        ),
        Finding(
            f"The coverage part alpha / sqrt(beta) is {parts['coverage'].max():.3g} at most, the shape part "
            f"sqrt(1 + chi2_T) {parts['shape'].max():.3g}: the shape carries the floor in "
            f"{int((parts['shape'] > parts['coverage']).sum())} of {total} pairs.",
            f"{exact}: is the coverage part the larger one in any pair?",
            bool((parts["coverage"] > parts["shape"] * (1 + 1e-9)).any()),
        ),
        _of_the_simulation(cells, ds.sizes["replicate"]),
    ]


def _of_the_simulation(cells: pd.DataFrame, replicates: int) -> Finding:
    """Simulated standard errors of IPS against exact ones, where the run is long enough for their MCSE."""
    draws = N * replicates
    seen = cells[cells["draws_mcse"] <= draws]
    unseen = int(cells["ips_empirical_se_unseen"].notna().sum())
    tail = f"{unseen} of {len(cells)} cells need more than the {draws:,} responses drawn, and show the exact value"
    rule = "cells whose fourth moment of the weights the run can show, exp(L KL(p^4/q^3 || q)) responses; "
    if seen.empty:
        return Finding(f"No simulated standard error of IPS can be trusted; {tail}.", rule, None)
    most = float(special.stdtrit(replicates - 1, 1 - 0.01 / 2 / len(seen)))
    apart = (seen["ips_empirical_se"] - seen["se_ips"]) / seen["ips_empirical_se_mcse"]
    worst = seen.iloc[int(apart.abs().to_numpy().argmax())]
    beyond = int((apart.abs() > most).sum())
    return Finding(
        f"Simulated standard errors of IPS are the exact ones in {len(seen) - beyond} of the {len(seen)} cells "
        "that can show them; furthest apart: "
        f"{with_mcse(worst['ips_empirical_se'], worst['ips_empirical_se_mcse'])}, exact {worst['se_ips']:.4g}. {tail}.",
        f"{rule}|difference| <= {most:.1f} MCSE, the 99% bound of all of them together by Bonferroni (t, "
        f"{replicates - 1} degrees of freedom)",
        not beyond,
    )


def figure(ds: xr.Dataset) -> dict[str, Figure]:
    """Floors, exact standard errors and simulated ones against length, in each world."""
    cells = _per_cell(ds)
    cells = cells[cells["noise"] == ("1.0" if (cells["noise"] == "1.0").any() else cells["noise"].iloc[0])]
    shifts, rewards = list(dict.fromkeys(cells["shift"])), list(dict.fromkeys(cells["reward"]))
    fig = Figure(figsize=(2.7 * len(shifts) + 0.6, 2.8 * len(rewards) + 0.9), layout="constrained")
    axes = fig.subplots(len(rewards), len(shifts), sharex=True, sharey=True, squeeze=False)
    lengths = sorted(cells["length"].unique())
    floors = {"floor_50": "T: 50%", "floor_90": "T: 90%", "floor_all": "T: everything"}
    for i, reward in enumerate(rewards):
        for j, shift in enumerate(shifts):
            axis = axes[i, j]
            rows = cells[(cells["reward"] == reward) & (cells["shift"] == shift)]
            x = rows["length"]
            for k, (name, label) in enumerate(floors.items()):
                axis.plot(x, rows[name], color=OKABE_ITO[k], ls="--", lw=1.2, label=f"CLE floor, {label}")
            axis.plot(x, rows["ess_form_90"], color=OKABE_ITO[3], ls=":", lw=1.2, label="ESS form, T: 90%")
            for k, (method, told) in enumerate(SHOWN.items()):
                colour = OKABE_ITO[4 + k]
                if (rows[f"se_{method}"] > 1e-6).all():
                    axis.plot(x, rows[f"se_{method}"], color=colour, lw=4, alpha=0.25)
                    y, error = rows[f"{method}_empirical_se"], 1.96 * rows[f"{method}_empirical_se_mcse"]
                    label = f"{told} (band: exact)"
                    axis.errorbar(
                        x, y, error, fmt=MARKERS[k], ms=4, color=colour, capsize=2, lw=1, label=label
                    )
            axis.set(title=f"{shift}, {TITLES[reward]}", xscale="log", yscale="log", ylim=(3e-3, 30))
            axis.set_xticks(lengths, [str(v) for v in lengths])
            axis.minorticks_off()
        axes[i, 0].set_ylabel(f"standard error, n = {N:,}")
    for axis in axes[-1]:
        axis.set_xlabel("tokens per response, L")
    legend(fig, fontsize=7, ncols=4)
    return {
        "Floors (dashed), exact standard errors (bands) and empirical ones (points, 95% Monte Carlo).": fig
    }


RUN_GROUPS = ("headlines", "pages")
STUDY = Study(
    name="cle_bound",
    title="The CLE floor against the truth",
    aims="Is the CLE floor below the standard error of IPS in every world and for every region, how tight is it, which "
    "of its parts carries it, whom does it bind, and does its ESS form hold?",
    mechanism=f"Responses of L i.i.d. tokens, Zipf law on {VOCAB} tokens with exponent {ZIPF_ALPHA}. "
    "Y = mean(a_1) + noise(a_1) N(0, 1), the mean 0 or the utility, "
    f"the noise constant or alternating between two levels by token. {N:,} logged and {N:,} target "
    "responses, exact weights. T = {mean surprisal under the target <= its quantile at level 0.5, 0.9, 0.99}, and "
    "everything.",
    estimands="V(pi') = E[mean(a_1)] under the target.",
    measures="Exact standard errors, the floor with its coverage part alpha/sqrt(beta) and its shape part sqrt(1 + "
    "chi2_T), its ESS form, and empirical standard errors with their Monte Carlo error.",
    protocol=Protocol(
        origin="Token law and tilts are those of the study ttc_collapse; temperatures, outcome noise and regions are "
        "chosen by hand so that the overlap goes from perfect to none. Written after the study's first runs.",
        replicates="Floors and standard errors are exact. The empirical standard error that checks them has a relative "
        "MCSE of 1 / sqrt(2 (R - 1)) for Normal estimates: 5% with 200, 1.6% with 2,000; more where weights "
        "are heavy.",
        failures="None is expected. A replicate that raises is kept as data (NaN).",
        primary="The exact floor over the exact standard error of IPS, the largest over all cells and regions.",
        relevant="A floor above the standard error in any cell: the bound is then false there, by however little.",
    ),
    factors={
        "shift": SHIFTS,
        "length": (5, 25, 100),
        "reward": ("centred", "first_token"),
        "noise": tuple(NOISES),
    },
    policies=("target",),
    methods={
        "logged_mean": Method("mean logged outcome, no weights (biased control)"),
        "ips": Method("mean of W Y, exact weights"),
        "snips": Method("self-normalised IPS, exact weights"),
        "ips_calibrated": Method("mean of W R with the noise-free reward R = E[Y | a]"),
        "direct": Method("mean outcome of fresh target draws (unbiased control)"),
    },
    profiles={
        "smoke": Profile(10, {"shift": ("tilt-0.1", "hot-1.25"), "length": (5, 25)}),
        "quick": Profile(200),
        "paper": Profile(2000, {"length": (1, 5, 25, 50, 100, 200, 400)}),
    },
    replicate=replicate,
    theory=theory,
    check=world,
    table=table,
    figure=figure,
    findings=findings,
    legend={
        "shift": {
            "clone": "the target is the logger",
            "tilt-0.1": "p ~ q exp(.1 u), i.i.d. normal utilities u",
            "tilt-0.3": "p ~ q exp(.3 u), the same utilities",
            "cold-0.8": "the logger at temperature 0.8",
            "hot-1.25": "the logger at temperature 1.25",
        }
    },
    claims=("lem-weight-identity", "prop-cle", "cor-cle-ess", "cle-decomposition", "cle-binds-whom"),
    block=50,
)
