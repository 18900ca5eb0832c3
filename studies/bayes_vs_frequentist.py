"""Bayesian against frequentist intervals on the same data: coverage, width, interval score, P(best), engines, time.

The estimator is theta_aug of "Causal Judge Evaluation" (Direct) or its Bayesian counterpart, the one-step corrected
posterior, beside plug-ins and the label-free and label-only controls. Worlds are a factor: some where every policy has
labels of its own (among them a link that no monotone calibrator can follow), and some where only the base policy has,
so that the target borrows the calibrator: with transport (under an informative, a weak and an independent judge, and
binary labels), without, and without but with 50 probe labels. Estimands are values and differences of two policies.

P(best) is the probability that a policy has the highest value of base, target and rival, by
`cje_core.inference.ranks.probability_best`: from the draws of a posterior or a bootstrap, else from the printed limits
and the influence values. The posterior is sampled by Gibbs; NUTS samples the same one on a few data sets (`FITS`).
Whether the samplers draw from the posterior that they claim is the study `posterior_calibration`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

from cje_core.bayes.prior import Prior
from cje_core.estimators import bayes_corrected, bayes_direct
from cje_core.estimators.direct import Bootstrap
from cje_core.figures.style import looks
from cje_core.inference.ranks import probability_best
from cje_core.streams import Cell, Streams
from studies.engine.measures import (
    MC_LEVEL,
    by_estimand,
    clopper_pearson,
    paired_table,
    side_by_side,
    summary_table,
)
from studies.engine.measures.best import (
    NAMED,
    best_by_cell,
    best_by_kind,
    mean_and_error,
    of_values,
    reliability,
    with_error,
)
from studies.engine.measures.normalised import status_table
from studies.engine.outcome import NOT_RUN, Outcome
from studies.engine.panels import Row, by_world
from studies.engine.scenario import Facts, replicate_with_facts
from studies.engine.sentences import (
    ANSWER,
    N_MCSE,
    LeftOut,
    alike_within,
    below,
    every,
    highest,
    keeps_level,
    lowest,
    points,
    said,
    together,
    where,
)  # fmt: skip
from studies.engine.study import Finding, Method, Profile, Protocol, Setting, Study


class World(NamedTuple):
    """One level of the factor `world`: a scenario, its base, target and rival, and what differs from its defaults.

    ``borrowed``: only the base policy has calibration labels, and the target alone is summarised. ``fails`` says which
    assumption is violated by construction; sentences about coverage leave such a world out, by name.
    """

    title: str
    scenario: str
    policies: tuple[str, str, str]
    arguments: Mapping[str, Any] = MappingProxyType({})
    borrowed: bool = False
    fails: str = ""
    holds: str = ""  # by construction, for the page; the older worlds stand in the study's mechanism


OWN = ("base", "worse", "better")
SHIFTED = ("base", "lower", "same")
UNTRANSPORTED = "transport fails by construction"
WORLDS = {
    "smooth": World("smooth link", "well_specified", OWN),
    "discrete": World("few judge levels", "discrete_judge", OWN),
    "weak": World("weak judge", "weak_judge", OWN),
    "binary": World("binary oracle", "binary_oracle", OWN),
    "dip": World("link not monotone", "well_specified", OWN, {"link": "dip"}),
    "length": World("judge rewards length", "length_bias", ("base", "verbose", "concise")),
    "rare_drops": World(
        "labels that\nrarely drop far",
        "rare_drops",
        ("base", "safer", "same"),
        holds="3% of the labels of base and rival are .1, all others near .9; the judge sees half of the drops",
    ),
    "transport": World("calibration transports", "well_specified", OWN, {}, True),
    "weak_base": World("weak judge", "weak_judge", OWN, {}, True),
    "binary_base": World("binary oracle", "binary_oracle", OWN, {}, True),
    "few_levels": World(
        "judge of 3 levels",
        "few_levels",
        ("base", "better", "slightly_better"),
        {},
        True,
        holds="the calibration transports exactly; policies use the judge's three levels differently",
    ),
    "equal": World(
        "equal policies,\nindependent judge", "equal_policies", ("base", "disliked", "favoured"), {}, True
    ),
    "shift": World("target 0.1 lower", "transport_shift", SHIFTED, {}, True, UNTRANSPORTED),
    "shift_probes": World(
        "target 0.1 lower,\n50 probe labels",
        "transport_shift",
        SHIFTED,
        {"n_probes": 50},
        True,
        f"{UNTRANSPORTED}, and this method does not use the probes",
    ),
}
REFERENCE, BAYES = "direct_influence", "bayes_one_step"
PRECISE = 0.011  # MCSE of a coverage that a page needs
MEASURES = (
    "coverage", "refused", "failed", "miss_left", "miss_right", "width", "interval_score", "bias",
)  # fmt: skip
# The page's colours: those methods in this order; a probe correction is the hollow twin of one of them.
COLOURS = (
    "direct_influence",
    "bayes_one_step",
    "direct_bootstrap",
    "ppi_plus_plus",
    "labels_only",
    "bayes_plug_in",
    "projection",
    "direct_plug_in",
)
TWINS = {
    "direct_corrected": "direct_influence",
    "bayes_corrected": "bayes_one_step",
    "bayes_flat": "ppi_plus_plus",
}
IN_SHIFT = ("direct_influence", "direct_plug_in", "bayes_one_step", "bayes_plug_in", *TWINS)
PROBED = tuple(TWINS)
PRIORS = ("bayes_one_step", "bayes_sparse", "bayes_smooth", "bayes_tight_noise", "bayes_wide_noise")
OWN_ONLY = (*PRIORS[3:], "bayes_hdi", "direct_bootstrap")
ENGINES = ("bayes_nutpie", "bayes_pymc")  # of the same posterior
# Data sets of a cell on which a method beside the two arms runs. A fit by NUTS costs seconds; priors are compared on
# the same data, where 200 tell a difference of coverages to a point.
FITS = {
    "bayes_nutpie": 10,
    "bayes_pymc": 2,
    **dict.fromkeys(PRIORS[1:], 200),
    **dict.fromkeys(("direct_bootstrap", "direct_plug_in", "bayes_plug_in", "bayes_hdi", "projection"), 400),
}
ENGINE_WORLDS = ("smooth", "binary_base")  # the normal likelihood with own labels, the Bernoulli one borrowed
AGREE = 0.1  # posterior standard deviations, and share of one, within which engines agree
STATES_BEST = ("labels_only", "direct", "direct_corrected", "bayes_direct", "bayes_corrected")
BEST_DRAWS = 4000  # of printed limits, for P(best): a Monte Carlo error of at most .008
SCORE = 1.05  # ratio of interval scores that would matter
CELL = ["world", "estimand", "n", "labels"]
OWN_CAPTION = (
    "Every policy has labels of its own. Coverage of values and of the difference target - base among the runs that "
    "print an interval (dashed: nominal 95%) with exact 95% Monte Carlo bounds, mean width of the values' intervals "
    "with 95% Monte Carlo bounds, and the share of runs refused one; values are averages over the base and a distant "
    "policy, the bounds of their coverage "
    "take the two policies of a replicate as one trial."
)
SHIFT_CAPTION = (
    "Only the base policy has labels; target and rival borrow its calibrator. Coverage of the target's value and of "
    "the difference target - rival among the runs that print an interval (dashed: nominal 95%) with exact 95% Monte "
    "Carlo bounds, mean width of the value's interval, and the share of runs refused a number. Where the calibration "
    "does not transport, no method without labels of the target is safe, Bayesian or not; probe labels (hollow marks) "
    "restore coverage."
)
ESTIMANDS = ("value", "difference")
TABLES = {
    "Coverage of the 95% intervals printed, and share of runs refused or failed where any was": "coverage",
    "Mean width of 95% intervals": "width",
}
ROWS = (
    ("value", "coverage", "coverage of values"),
    ("difference", "coverage", "coverage of the difference"),
    ("value", "width", "mean width of the interval"),
    ("value", "refused", "values: share refused"),
    ("difference", "refused", "difference: share refused"),
)


def applies(method: str, world: World) -> bool:
    """Whether a method has something of its own to say in a world.

    The probe corrections need probes. Where the target borrows, the posterior stays as it comes and as a plug-in (the
    bootstrap of a borrowed plug-in is in the study interval_coverage); where it does not, Direct has nothing to borrow.
    """
    if method in ENGINES:
        return world in [WORLDS[name] for name in ENGINE_WORLDS]
    if method in PROBED:
        return bool(world.arguments.get("n_probes"))
    if method == "direct_plug_in":
        return world.borrowed
    return not (world.borrowed and method in OWN_ONLY)


def setting(study: Study, cell: Cell) -> Setting:
    """The cell's world, with `labels` labelled prompts of n, and the methods that apply."""
    world = WORLDS[str(cell["world"])]
    arguments = {
        "n": cell["n"],
        "oracle_fraction": int(cell["labels"]) / int(cell["n"]),
        "label_design": "base" if world.borrowed else "own",
        **world.arguments,
    }
    return Setting(world.scenario, world.policies, arguments, [m for m in study.methods if applies(m, world)])


def replicate(study: Study, cell: Cell, streams: Streams) -> Outcome:
    """One replicate of the usual study, with P(best) beside the numbers; NUTS only on a cell's first data sets."""
    chosen = setting(study, cell)
    kept = [m for m in chosen.methods if m not in FITS or streams.replicate < FITS[m]]
    chosen = chosen._replace(methods=kept)
    facts = partial(
        estimate_facts,
        policies=chosen.policies,
        streams=streams,
        effective=any(m in ENGINES for m in kept),
    )
    return replicate_with_facts(replace(study, setting=lambda *_: chosen), cell, streams, of_estimate=facts)


def estimate_facts(
    estimate: xr.Dataset, *, policies: Sequence[str], streams: Streams, effective: bool
) -> Facts:
    """Return ``p_best`` of an estimator of `STATES_BEST` over some policies, NaN unless all have an interval.

    The same random numbers serve all methods. Where `effective`, also the ``effective_draws`` of a posterior.
    """
    if estimate.attrs["estimator"] not in STATES_BEST:
        return {}
    names = ("estimate", "interval", "df", "effective_count", "influence", "cluster", "draws")
    place = [estimate["policy"].values.tolist().index(policy) for policy in policies]
    part = estimate[[name for name in names if name in estimate]].isel(policy=place)
    best = probability_best(part, n_draws=BEST_DRAWS, rng=streams("best"))["probability"]
    facts = {"p_best": best.where(best.notnull().all())}
    if effective and "shape" in estimate:
        facts["effective_draws"] = xr.full_like(best, effective_draws(estimate))
    return facts


def effective_draws(estimate: xr.Dataset) -> float:
    """Return the bulk effective sample size of the worst parameter: of the whole run by NUTS, of the draws by Gibbs."""
    if "ess_bulk" in estimate:
        return float(estimate["ess_bulk"])
    from cje_core.bayes.models.engines import az

    names = [name for name in ("ends", "shape", "sigma") if name in estimate]
    columns = np.column_stack([estimate[name].transpose("replicate", ...).values for name in names])
    return float(min(az.ess(column[None], method="bulk") for column in columns.T))


def _part(ds: xr.Dataset, world: str, estimand: str) -> xr.Dataset:
    """One world: the policies whose values, or the pair whose difference, is summarised there.

    Where the calibrator is borrowed these are the target, and the two policies that borrow; elsewhere the base and the
    target.
    """
    borrowed = WORLDS[world].borrowed
    if estimand == "difference":
        policies = ["target - rival" if borrowed else "target - base"]
    else:
        policies = ["target"] if borrowed else ["base", "target"]
    return ds.sel(world=[world], policy=policies)


def table(ds: xr.Dataset) -> dict[str, pd.DataFrame]:
    """The comparison in short, coverage by cell, P(best), engines, priors, times, and all measures.

    Of values and of differences between policies (column ``estimand``).
    """
    methods = [str(m) for m in ds["method"].values]
    parts = _parts(ds)
    measures, pairs = _measures(parts), _pairs(parts)
    known = pairs[pairs["coverage"].notna()].reset_index(drop=True)
    columns = [
        c
        for name in ("coverage", "width_ratio", "interval_score", "interval_score_ratio")
        for c in (name, f"{name}_mcse")
    ]
    priors = _priors(parts, methods)
    best, engines = best_by_cell(ds, REFERENCE, ENGINES), engine_table(ds)
    coverage, width = (
        side_by_side(measures, CELL, name, methods, first=(REFERENCE, BAYES)) for name in TABLES.values()
    )
    titles = list(TABLES)
    return {
        f"In short: {BAYES} and {REFERENCE}, averages over worlds; ratios above 1 favour {REFERENCE}": in_short(
            measures, pairs
        ),
        titles[0]: coverage,
        f"P(best): how often a policy is named (above {NAMED:.0%}), how often rightly, and Brier scores": best_by_kind(
            best, kind_of
        ),
        "P(best) by bins: the probability stated, and how often the policy is best": reliability(
            ds, (REFERENCE, BAYES), kind_of
        ),
        **(
            {"Engines of the same posterior on the same data; times with new data each fit": engines}
            if len(engines)
            else {}
        ),
        titles[1]: width,
        f"Differences to {REFERENCE} on the same data, and ratios": known[
            [*CELL, "policy", "method", *columns]
        ],
        **(
            {
                f"Other priors against {PRIORS[0]} on the same data: differences, and the ratio of widths": priors
            }
            if len(priors)
            else {}
        ),
        "Statuses of both arms' values: share of runs, over n and labels": status_table(
            _part(ds, str(w), "value") for w in ds["world"].values
        ),
        "Milliseconds per fit": _times(ds),
        "P(best) by cell": best,
        "All measures": measures,
    }


def _parts(ds: xr.Dataset) -> list[tuple[str, xr.Dataset]]:
    return [(e, _part(ds, str(world), e)) for e in ESTIMANDS for world in ds["world"].values]


def _measures(parts: Sequence[tuple[str, xr.Dataset]]) -> pd.DataFrame:
    found = by_estimand(parts, lambda part: summary_table(part, MEASURES))
    return found[[*CELL, "policy", "method", *(f"{m}{end}" for m in MEASURES for end in ("", "_mcse"))]]


def _pairs(parts: Sequence[tuple[str, xr.Dataset]]) -> pd.DataFrame:
    """Return each method against `REFERENCE` on the same data."""
    return by_estimand(
        parts,
        lambda part: paired_table(
            part, REFERENCE, ("coverage", "refused", "interval_score"), ratios=("width", "interval_score")
        ),
    )


def _priors(parts: Sequence[tuple[str, xr.Dataset]], methods: Sequence[str]) -> pd.DataFrame:
    """Return the posterior with other priors against the default one on the same data."""
    tried = [m for m in methods if m in PRIORS]
    if len(tried) < 2:
        return pd.DataFrame()
    return by_estimand(
        [(e, part.sel({"method": tried})) for e, part in parts],
        lambda part: paired_table(part, PRIORS[0], ("bias", "coverage"), ratios=("width",)),
    )


def _times(ds: xr.Dataset) -> pd.DataFrame:
    """Median and 95th percentile over worlds and replicates, without laying out the data, which methods share.

    The median does not see a first call's compilation.
    """
    taken = (1000 * ds["seconds"]).to_series().groupby(["n", "labels", "method"], sort=False)
    shown = pd.DataFrame({"median": taken.median(), "95th percentile": taken.quantile(0.95)})
    return shown.dropna().reset_index()


def kind_of(world: str) -> str:
    """Return how a world's target gets its calibrator: the groups over which the page averages."""
    if WORLDS[world].fails:
        return "transport fails"
    return "borrowed" if WORLDS[world].borrowed else "own"


def in_short(measures: pd.DataFrame, pairs: pd.DataFrame) -> pd.DataFrame:
    """Average coverage of both arms, and the ratios of width and interval score, over cells: by labels and estimand.

    Cells have data of their own, so the MCSE of an average of k cells is the root of the sum of squares over k.
    Cells in which one of the two prints no interval are left out.
    """
    both = pairs[(pairs["method"] == BAYES) & pairs["coverage_mcse"].notna()].set_index(CELL)
    arms = {
        m: measures[measures["method"] == m].set_index(CELL).reindex(both.index) for m in (REFERENCE, BAYES)
    }
    columns = {f"{m}_coverage": (rows["coverage"], rows["coverage_mcse"]) for m, rows in arms.items()}
    columns |= {name: (both[name], both[f"{name}_mcse"]) for name in ("width_ratio", "interval_score_ratio")}
    rows = []
    groups = [kind_of(str(world)) for world in both.index.get_level_values("world")]
    for kind in ("own", "borrowed", "transport fails"):
        for estimand in ESTIMANDS:
            here = (np.array(groups) == kind) & (both.index.get_level_values("estimand") == estimand)
            if here.any():
                row: dict[str, Any] = {
                    "labels of target": kind,
                    "estimand": estimand,
                    "cells": int(here.sum()),
                }
                for name, (value, mcse) in columns.items():
                    error = np.sqrt((mcse[here].to_numpy(float) ** 2).sum()) / here.sum()
                    row |= {name: float(value[here].mean()), f"{name}_mcse": float(error)}
                rows.append(row)
    return pd.DataFrame(rows)


# --- engines ----------------------------------------------------------------------------------------------------------


def engine_table(ds: xr.Dataset) -> pd.DataFrame:
    """Return each engine beside Gibbs on the data sets that both sampled, over all cells.

    ``apart``: mean over fits and policies of the difference of posterior means in posterior standard deviations;
    ``sd_ratio``: mean ratio of these. The fit is the unit of their MCSE; effective draws are of the worst parameter.
    """
    rows, values = [], of_values(ds)
    for name in (m for m in ENGINES if m in ds["method"].values):
        engine, gibbs = (
            values.sel({"method": m}).stack(fit=("world", "n", "labels", "replicate")).transpose("fit", ...)
            for m in (name, BAYES)
        )
        both = (engine["std_error"] + gibbs["std_error"]).notnull().all("policy").values
        if not both.any():
            continue
        engine, gibbs = engine.isel(fit=both), gibbs.isel(fit=both)
        sd = gibbs["std_error"]
        row: dict[str, Any] = {"method": name, "fits": int(both.sum())}
        for words, part in (("", engine), ("Gibbs ", gibbs)):
            seconds, effective = part["seconds"], part["effective_draws"].isel(policy=0)
            row |= {
                f"{words}milliseconds": 1000 * float(seconds.median()),
                f"{words}effective draws per second": float((effective / seconds).median()),
            }
        apart = ((engine["estimate"] - gibbs["estimate"]) / sd).mean("policy").values
        row |= with_error("apart", *mean_and_error(apart))
        row |= with_error("sd_ratio", *mean_and_error((engine["std_error"] / sd).mean("policy").values))
        rows.append(row)
    return pd.DataFrame(rows)


# --- sentences --------------------------------------------------------------------------------------------------------


def findings(ds: xr.Dataset) -> list[Finding]:
    """The five questions of the page in five sentences; then arm by arm, refusals and precision."""
    parts = _parts(ds)
    measures, pairs = _measures(parts), _pairs(parts)
    ran = (ds["status"] != NOT_RUN).any(["method", "policy"]).sum("replicate")  # not the same in all worlds
    cells = zip(*(measures[name] for name in ("world", "n", "labels")), strict=True)
    asked = np.array([int(ran.sel(world=w, n=n, labels=m)) for w, n, m in cells])
    measures["coverage_trials"] = asked * (1 - measures["refused"] - measures["failed"])
    cell = [name for name in CELL if name in ("world", "estimand") or ds.sizes[name] > 1]
    by_arm = _by_arm(measures, cell, int(asked.min()))
    short, mine = in_short(measures, pairs), pairs[pairs["method"] == BAYES]
    return [
        *_level(measures, short, by_arm, cell),
        *_shorter(short, mine, cell),
        *_score(short, mine, measures, cell),
        *_best(best_by_cell(ds, REFERENCE, ENGINES)),
        *_cost(ds, _priors(parts, [str(m) for m in ds["method"].values]), cell),
        *by_arm.values(),
        *_alike(mine, cell),
        *_precise(mine, measures),
    ]


def _sound(rows: pd.DataFrame, kind: str | None = None) -> pd.DataFrame:
    """Return the rows of worlds whose assumptions hold, all or of one kind."""
    kinds = np.array([kind_of(str(world)) for world in rows["world"]])
    found: pd.DataFrame = rows[kinds == kind if kind else kinds != "transport fails"]
    return found


def _by_arm(measures: pd.DataFrame, cell: Sequence[str], replicates: int) -> dict[str, Finding]:
    """Whether each arm keeps its level, with own labels, a borrowed calibrator, and probes."""
    violated = [str(w) for w in dict.fromkeys(measures["world"]) if WORLDS[str(w)].fails]
    found = {}
    for kind, words in (("own", "labels of its own"), ("borrowed", "a borrowed calibrator")):
        for arm in (REFERENCE, BAYES):
            rows = measures[measures["method"] == arm]
            mine, out = _sound(rows, kind), _violated(rows, violated if kind == "borrowed" else [])
            if len(mine):
                found[f"{arm} {kind}"] = keeps_level(
                    f"{arm} with {words}", mine, cell, replicates, left_out=out
                )
    for arm in PROBED[:2]:
        rows = measures[(measures["method"] == arm) & (measures["world"] == "shift_probes")]
        if len(rows):
            found[f"{arm} probes"] = keeps_level(
                f"{arm} with 50 probes in a shifted world", rows, cell, replicates
            )
    return found


def _level(
    measures: pd.DataFrame, short: pd.DataFrame, by_arm: Mapping[str, Finding], cell: Sequence[str]
) -> list[Finding]:
    """Do both keep 95%: average coverage by labels and estimand, and each arm's worst cell."""
    kinds = [kind for kind in ("own", "borrowed") if f"{REFERENCE} {kind}" in by_arm]
    holds = every(one.holds for name, one in by_arm.items() if name.split()[1] in kinds)
    told = []
    for kind in kinds:
        rows = short[short["labels of target"] == kind]
        shares = [
            f"{_arm(m)} "
            + " and ".join(
                f"{_percent(row, f'{m}_coverage')} of {row['estimand']}s" for _, row in rows.iterrows()
            )
            for m in (REFERENCE, BAYES)
        ]
        told += [f"With {_labels(kind)} {'; '.join(shares)}."] if len(rows) else []
    for m in (REFERENCE, BAYES):
        rows = _sound(measures[(measures["method"] == m) & measures["coverage"].notna()])
        if len(rows):
            worst = rows.loc[lowest(rows["coverage"])]
            told.append(f"Least by {_arm(m)}: {_percent(worst, 'coverage')} ({where(worst, cell)}).")
    question = "Do the 95% intervals of both cover the truth 95% of the time, within 5 points?"
    rule = "the answers of both arms below, with own labels and borrowed calibrators, worlds that violate them left out"
    return [Finding(together(f"{question} {ANSWER[holds]}.", *told), rule, holds)]


def _shorter(short: pd.DataFrame, pairs: pd.DataFrame, cell: Sequence[str]) -> list[Finding]:
    """Which is shorter, and by how much."""
    short = short[short["labels of target"] != "transport fails"] if len(short) else short
    if not len(short):
        return []
    holds = below(short["width_ratio"], short["width_ratio_mcse"], 1.0)
    told = [
        f"{row['estimand']}s with {_labels(row['labels of target'])} {_number(row, 'width_ratio')}"
        for _, row in short.iterrows()
    ]
    known = _sound(pairs)
    ends = [known.loc[at] for at in (lowest(known["width_ratio"]), highest(known["width_ratio"]))]
    extremes = " to ".join(f"{_number(r, 'width_ratio')} ({where(r, cell)})" for r in ends)
    answer = ANSWER[holds]
    return [
        Finding(
            f"Are Bayesian intervals shorter than frequentist ones? {answer}: mean width over that of {REFERENCE} is, "
            f"for {', '.join(told)}; by cell from {extremes}.",
            f"every average ratio below 1 by {N_MCSE:g} MCSE; no: one above by as many",
            holds,
        )
    ]


def _score(
    short: pd.DataFrame, pairs: pd.DataFrame, measures: pd.DataFrame, cell: Sequence[str]
) -> list[Finding]:
    """Which has the better interval score; bias beside it."""
    known = _sound(pairs)
    known = known[known["interval_score_ratio_mcse"].notna()]
    if not len(known):
        return []
    ratio, error = "interval_score_ratio", "interval_score_ratio_mcse"
    holds = below(known[ratio], known[error], SCORE)
    worst, best = (known.loc[at] for at in (highest(known[ratio]), lowest(known[ratio])))
    told = [
        f"{row['estimand']}s with {_labels(row['labels of target'])} {_number(row, ratio)}"
        for _, row in short.iterrows()
        if row["labels of target"] != "transport fails"
    ]
    biases = []
    for m in (REFERENCE, BAYES):
        rows = _sound(measures[(measures["method"] == m) & measures["bias"].notna()])
        most = rows.loc[highest(rows["bias"].abs())]
        biases.append(f"{_arm(m)} {_number(most, 'bias')} ({where(most, cell)})")
    return [
        Finding(
            f"Is the Bayesian interval score, width plus the penalty of misses, at most {SCORE - 1:.0%} above the "
            f"frequentist one? {ANSWER[holds]}: its ratio is, for {', '.join(told)}; at worst "
            f"{_number(worst, ratio)} ({where(worst, cell)}), at best {_number(best, ratio)} "
            f"({where(best, cell)}). Largest bias: {'; '.join(biases)}.",
            f"every cell's ratio at most {SCORE:g} by {N_MCSE:g} MCSE; no: one above by as many",
            holds,
        )
    ]


def _best(cells: pd.DataFrame) -> list[Finding]:
    """Is P(best) calibrated: how often a policy named with more than `NAMED` is best, and Brier scores."""
    if not len(cells):
        return []
    pooled = best_by_kind(cells, kind_of)
    mine = pooled[pooled["method"].isin((REFERENCE, BAYES)) & (pooled["names"] > 0)]
    sound = mine[mine["labels of target"] != "transport fails"]
    if not len(sound):
        return []
    level = 1 - 2 * (1 - MC_LEVEL) / len(sound)
    low, high = clopper_pearson(sound["right"] * sound["names"], sound["names"], prob=level).T
    holds = False if (high < NAMED).any() else True if (low >= NAMED).all() else None
    told = []
    for kind in dict.fromkeys(sound["labels of target"]):
        rows = sound[sound["labels of target"] == kind]
        shares = [
            f"{_arm(str(row['method']))} names one in {_percent(row, 'named')} of the runs, rightly in "
            f"{_percent(row, 'right')}, Brier score {_number(row, 'brier')}"
            for _, row in rows.iterrows()
        ]
        apart = rows[rows["method"] == BAYES]
        shares += [
            f"difference on the same data {_number(row, 'brier_apart')}" for _, row in apart.iterrows()
        ]
        told.append(f"With {_labels(kind)} {'; '.join(shares)}.")
    worst = _sound(cells[cells["method"].isin((REFERENCE, BAYES)) & (cells["names"] > 0)])
    least = worst.loc[lowest(worst["right"])]
    at = where(least, ["world", "n", "labels"])
    told.append(
        f"Least right: {_arm(str(least['method']))}, {_percent(least, 'right')} of {least['names']} ({at})."
    )
    wrong = mine[mine["labels of target"] == "transport fails"]
    told += [
        f"Left out: worlds where transport fails, in which {_arm(str(row['method']))} names rightly in "
        f"{_percent(row, 'right')}."
        for _, row in wrong.iterrows()
    ]
    return [
        Finding(
            together(
                f"Is P(best) calibrated: is a policy named best with more than {NAMED:.0%} truly the best in at least "
                f"{NAMED:.0%} of such runs? {ANSWER[holds]}.",
                *told,
            ),
            f"exact 95% bounds (Bonferroni) of each arm and kind of labels: all from {NAMED:.0%}, or one below",
            holds,
        )
    ]


def _cost(ds: xr.Dataset, priors: pd.DataFrame, cell: Sequence[str]) -> list[Finding]:
    """What a fit costs, whether engines agree, whether the prior matters."""
    times = (1000 * ds["seconds"]).to_series().groupby("method").median()
    if BAYES not in times or REFERENCE not in times:
        return []
    told = [
        f"A fit takes {times[REFERENCE]:.2g} ms by {REFERENCE} and {times[BAYES]:.2g} ms by Gibbs (medians)."
    ]
    engines, parts = engine_table(ds), list[bool | None]()
    for _, row in engines.iterrows():
        per_second = row["effective draws per second"], row["Gibbs effective draws per second"]
        told.append(
            f"{row['method']} takes {row['milliseconds'] / 1000:.2g} s: {per_second[0]:,.0f} effective draws a second "
            f"of the worst parameter, Gibbs {per_second[1]:,.0f}. Over {row['fits']} data sets its means are "
            f"{_number(row, 'apart')} posterior standard deviations from those of Gibbs, and its standard deviations "
            f"{_number(row, 'sd_ratio')} times as large."
        )
        parts.append(below(abs(row["apart"]), row["apart_mcse"], AGREE))
        parts.append(below(abs(row["sd_ratio"] - 1), row["sd_ratio_mcse"], AGREE))
    rows = _sound(priors) if len(priors) else priors
    rows = rows[rows["coverage_mcse"].notna()] if len(rows) else rows
    if len(rows):
        most = rows.loc[highest(rows["coverage"].abs())]
        wide = rows.loc[highest(np.log(rows["width_ratio"]).abs())]
        told.append(
            f"Another prior moves coverage by at most {_percent(most, 'coverage', ' points')} ({most['method']}, "
            f"{where(most, cell)}) and width by a factor of {_number(wide, 'width_ratio')} at most ({wide['method']}, "
            f"{where(wide, cell)})."
        )
        parts.append(below(rows["coverage"].abs(), rows["coverage_mcse"], 0.05))
    holds = every(parts)
    question = "What does a fit cost, do the engines agree, and is the prior of no matter?"
    told.append("Whether each engine draws from its posterior: study posterior_calibration.")
    return [
        Finding(
            together(f"{question} {ANSWER[holds]}.", *told),
            f"engines: means and standard deviations within {AGREE:g} posterior standard deviations; priors: coverage "
            f"within 5 points, by {N_MCSE:g} MCSE",
            holds,
        )
    ]


def _arm(method: str) -> str:
    return {REFERENCE: "direct", BAYES: "the posterior"}.get(method, method)


def _labels(kind: str) -> str:
    return {"own": "own labels", "borrowed": "a borrowed calibrator"}.get(kind, kind)


def _number(row: "pd.Series[Any]", name: str) -> str:
    return said(float(row[name]), float(row[f"{name}_mcse"]))


def _percent(row: "pd.Series[Any]", name: str, unit: str = "%") -> str:
    return points(float(row[name]), float(row[f"{name}_mcse"]), unit)


def _alike(pairs: pd.DataFrame, cell: Sequence[str]) -> list[Finding]:
    """Whether both arms cover, and refuse, equally often."""
    violated = [str(w) for w in dict.fromkeys(pairs["world"]) if WORLDS[str(w)].fails]
    return [
        one
        for name, words in (("coverage", "cover"), ("refused", "refuse"))
        for one in alike_within(
            f"Does {BAYES} {words} as often as {REFERENCE}",
            _sound(pairs),
            cell,
            name,
            _violated(pairs, violated),
        )
    ]


def _precise(pairs: pd.DataFrame, measures: pd.DataFrame) -> list[Finding]:
    """Whether coverages and their differences are known to `PRECISE`."""
    rows = _sound(measures[measures["method"].isin((REFERENCE, BAYES)) & measures["coverage"].notna()])
    probes = measures[measures["method"].isin(PROBED[:2]) & measures["coverage"].notna()]
    rows = pd.concat([rows, probes])
    known = pairs["coverage_mcse"].dropna()
    if not len(known) or not len(rows):
        return []
    most = max(float(known.max()), float(rows["coverage_mcse"].max()))
    precise = bool(most <= PRECISE)
    return [
        Finding(
            f"Is the comparison of {BAYES} and {REFERENCE} precise? {ANSWER[precise]}: the MCSE of a coverage is at "
            f"most {100 * rows['coverage_mcse'].max():.2f} points in {len(rows)} cells where the assumptions hold, and "
            f"that of a paired difference at most {100 * known.max():.2f} points in {len(known)} of {len(pairs)} "
            "cells; in the others one of the two prints no interval.",
            f"both at most {100 * PRECISE:.1f} points",
            precise,
        )
    ]


def _violated(rows: pd.DataFrame, worlds: Sequence[str]) -> list[LeftOut]:
    """Return the worlds whose assumptions are violated by construction, each with its rows."""
    return [LeftOut(f"world {name}", WORLDS[name].fails, rows[rows["world"] == name]) for name in worlds]


def figure(ds: xr.Dataset) -> dict[str, Figure]:
    """Coverage of values and differences by world, at the largest n: first own labels, then borrowed calibrators."""
    at_n = ds.sel(n=ds["n"].values.max())
    made = {}
    for caption, borrowed, shown in ((OWN_CAPTION, False, COLOURS[:-1]), (SHIFT_CAPTION, True, IN_SHIFT)):
        names = [str(name) for name in ds["world"].values if WORLDS[str(name)].borrowed == borrowed]
        if names:
            made[caption] = _panels(at_n, names, shown, ROWS)
    return made


def _panels(ds: xr.Dataset, names: Sequence[str], shown: Sequence[str], rows: Sequence[Row]) -> Figure:
    style = looks(COLOURS)
    faces = {method: {"mfc": "white"} if method in TWINS else {} for method in shown}
    labels = [str(m) for m in ds["labels"].values]
    fig, axes = by_world(
        [(WORLDS[w].title, {e: _part(ds, w, e).isel(world=0) for e in ESTIMANDS}, labels) for w in names],
        rows,
        {method: {**style[TWINS.get(method, method)], **faces[method]} for method in shown},
        along="labels",
        step=0.11,
        size=(max(2.0 * len(names) + 0.8, 6.6), 0.8 + 2.1 * len(rows)),
    )
    for ax, (_, name, _) in zip(axes[:, 0], rows, strict=True):
        if name.startswith("coverage"):
            ax.set(ylim=(None, 1.03))
    for ax in axes[-1]:
        ax.set(xlabel="labels")
    return fig


def _posterior(description: str, **options: Any) -> Method:
    return Method(description, "bayes_direct", options)


BAYESIAN = (
    BAYES, "bayes_hdi", "bayes_plug_in", *PRIORS[1:], *ENGINES, "projection", "bayes_corrected", "bayes_flat",
)  # fmt: skip


def _fewer(n_draws: int, n_boot: int) -> dict[str, dict[str, Any]]:
    """Method options of a profile that must be quick."""
    return {
        **{name: {"n_draws": n_draws} for name in BAYESIAN},
        "direct_bootstrap": {"inference": Bootstrap(n=n_boot)},
    }


RUN_GROUPS = ("headlines", "pages", "compiling")
STUDY = Study(
    name="bayes_vs_frequentist",
    title="Do Bayesian intervals cover as often as frequentist ones, and are they shorter?",
    aims="Compare the corrected posterior, its plug-in, the projection posterior and a Bayesian probe correction with "
    "the influence-function, bootstrap and prediction-powered intervals on the same data: which keep 95%, at what "
    "width, on which side they miss, whether P(best) is calibrated, what the prior and the sampler do to them, what a "
    "fit costs; and what policy shift does to all.",
    mechanism="Worlds of cje_sim.scenarios with n prompts, of which a simple random sample is labelled. Own labels, "
    "under every policy: smooth (well_specified), discrete (discrete_judge), weak (weak_judge), binary "
    "(binary_oracle), dip (a link that falls in between: a monotone calibrator is misspecified), length (E[Y | S] "
    "differs between policies). Labels of the base policy only: transport (well_specified), weak_base (weak_judge), "
    "binary_base (binary_oracle), equal (equal_policies: every value the same, the judge independent of the label), "
    "shift (transport_shift, the target's residual mean is -0.1), shift_probes (the same with 50 probe labels under "
    "every policy).",
    estimands="V(policy) = E[Y] of the base and of one distant policy, known by quadrature, and the difference "
    "target - base; where the calibrator is borrowed, the value of the target alone and the difference target - rival, "
    "two policies that borrow.",
    measures="P(best), the probability stated that a policy has the highest value, against which has: how often a "
    "policy "
    "above 95% is the best, and Brier scores. Coverage of the intervals printed with exact bounds, beside the shares "
    "of runs that a rule refused one "
    "and that failed, misses by side (shares of all runs), width, interval score, bias, averaged over the policies "
    "that "
    "a row names, with Monte Carlo standard errors; differences to direct_influence with the standard error of a "
    "paired comparison; time per fit and effective draws. "
    "The estimate of a posterior is its mean.",
    protocol=Protocol(
        origin="Worlds are scenarios of this project with their default laws, chosen so that each assumption of a "
        "method holds in some and fails in others; 1,000 prompts with 5% and 25% labels are a size of the "
        "paper's table of coverage. No world is fitted to data. Written after the study's first runs.",
        replicates="600 for an MCSE of at most 1.1 points of a coverage of 92% or more, 2,000 for .6. Methods beside "
        "the "
        "two arms run on the first 400 data sets of a cell, other priors on 200 and NUTS on 10 or 2, since they are "
        "compared on the same data. One cell of few labels, where the two arms part most often, has 780.",
        failures="Coverage is that of the intervals printed; the shares refused one and failed stand beside it, for "
        "both kinds of method alike. Width and interval score are over the intervals there are. A sampler whose "
        "draws fail their checks prints no interval, which is a failure.",
        primary="Coverage of the 95% interval of values, and the paired difference of the interval score to "
        "direct_influence.",
        relevant="A coverage below 93%, or an interval score 5% above the reference's on the same data.",
    ),
    factors={"world": tuple(WORLDS), "n": (1000,), "labels": (50, 250)},
    policies=("base", "target", "rival"),
    contrasts=(("target", "base"), ("target", "rival")),
    methods={
        "raw_judge": Method("control, biased: mean judge score"),
        "labels_only": Method(
            "control, unbiased: mean oracle label, interval as it comes (t, or by the binomial law for binary labels)"
        ),
        "ppi_plus_plus": Method("prediction-powered mean, tuned, interval as it comes"),
        "direct_influence": Method(
            "Direct as it comes: tuned, influence function with the calibrator's term, interval as it comes",
            "direct",
        ),
        "direct_bootstrap": Method(
            "theta_aug, cluster bootstrap that refits the calibrator, percentile interval",
            "direct",
            {"inference": Bootstrap(n=2000), "power_tuned": False, "borrowed": "plug_in"},
        ),
        "direct_plug_in": Method(
            "Direct with the borrowed calibrator's mean, as the paper has it",
            "direct",
            {"borrowed": "plug_in"},
        ),
        "bayes_one_step": _posterior(
            "posterior as it comes (corrected where the target has labels), equal-tailed"
        ),
        "bayes_hdi": _posterior("the same, interval of highest density", interval="hdi"),
        "bayes_plug_in": _posterior("posterior plug-in, never corrected by own labels", route="plug_in"),
        "bayes_sparse": _posterior(
            "corrected posterior, Dirichlet concentration 0.5", model=bayes_direct.Model(Prior(0.5))
        ),
        "bayes_smooth": _posterior(
            "corrected posterior, Dirichlet concentration 2", model=bayes_direct.Model(Prior(2.0))
        ),
        "bayes_tight_noise": _posterior(
            "corrected posterior, scale of sigma 0.1", model=bayes_direct.Model(Prior(scale=0.1))
        ),
        "bayes_wide_noise": _posterior(
            "corrected posterior, scale of sigma 1", model=bayes_direct.Model(Prior(scale=1.0))
        ),
        "bayes_nutpie": _posterior(
            f"the posterior as it comes by NUTS (nutpie), on the first {FITS['bayes_nutpie']} data sets of a cell",
            engine="nutpie",
        ),
        "bayes_pymc": _posterior(
            f"the same by PyMC's own NUTS, on the first {FITS['bayes_pymc']} data sets of a cell",
            engine="pymc",
        ),
        "projection": Method(
            "projection posterior: isotonic plug-in, no prior on shape", "projection_posterior"
        ),
        "direct_corrected": Method("probe-corrected Direct, interval as it comes"),
        "bayes_corrected": Method(
            "probe-corrected posterior, Student-t(3) shifts",
            options={"model": bayes_corrected.Model("student"), "n_draws": 1000},
        ),
        "bayes_flat": Method(
            "probe-corrected posterior, each policy by itself", "bayes_corrected", {"n_draws": 1000}
        ),
    },
    profiles={
        "smoke": Profile(
            3,
            {"world": ("smooth", "binary", "equal", "shift_probes"), "n": (250,), "labels": (50,)},
            {name: more for name, more in _fewer(100, 50).items() if name not in ENGINES},
            ENGINES,  # which compile for half a minute
        ),
        "quick": Profile(
            600,  # for an MCSE of 1.1 points of a coverage of 92% or more
            {"world": tuple(name for name in WORLDS if name not in ("weak", "length"))},
            _fewer(400, 300),
            (*PRIORS[3:], "bayes_hdi"),
            [({"world": "shift", "labels": 50}, 780)],  # where the two arms part most often
        ),
        "paper": Profile(2000, {"n": (500, 1000)}),
    },
    setting=setting,
    replicate=replicate,
    worlds=sorted({world.scenario for world in WORLDS.values()}),
    legend={"world": {name: world.holds for name, world in WORLDS.items() if world.holds}},
    table=table,
    figure=figure,
    findings=findings,
)
