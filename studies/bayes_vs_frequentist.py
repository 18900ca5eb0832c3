"""Bayesian against frequentist intervals on the same data: coverage, width, interval score, misses by side, time.

The estimator is theta_aug of "Causal Judge Evaluation" (Direct) or its Bayesian counterpart, the one-step corrected
posterior, beside plug-ins and the label-free and label-only controls. Worlds are a factor: some where every policy has
labels of its own (among them a link that no monotone calibrator can follow), and some where only the base policy has,
so that the target borrows the calibrator: with transport (under an informative, a weak and an independent judge, and
binary labels), without, and without but with 50 probe labels. Estimands are values and differences of two policies.
"""

from collections.abc import Mapping, Sequence
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
from cje_core.streams import Cell
from studies.engine.measures import by_estimand, paired_table, side_by_side, summary_table
from studies.engine.measures.normalised import status_table
from studies.engine.outcome import NOT_RUN
from studies.engine.panels import Row, by_world
from studies.engine.sentences import ANSWER, LeftOut, alike_within, keeps_level
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
PRECISE = 0.011  # MCSE of a coverage of 95% from 400 replicates, rounded up
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
OWN_ONLY = (*PRIORS[1:], "bayes_hdi", "direct_bootstrap")
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
    """Coverage and refusals side by side, differences to the reference on the same data, the prior's part, times, all.

    Of values and of differences between policies (column ``estimand``).
    """
    methods = [str(m) for m in ds["method"].values]
    parts = [(e, _part(ds, str(world), e)) for e in ESTIMANDS for world in ds["world"].values]
    measures = by_estimand(parts, lambda part: summary_table(part, MEASURES))
    pairs = by_estimand(
        parts, lambda part: paired_table(part, REFERENCE, ("coverage", "interval_score"), ratios=("width",))
    )
    pairs = pairs[pairs["coverage"].notna()].reset_index(drop=True)
    columns = [c for name in ("coverage", "width_ratio", "interval_score") for c in (name, f"{name}_mcse")]
    tried = [m for m in methods if m in PRIORS]
    priors = {}
    if len(tried) > 1:
        of_prior = [(e, part.sel({"method": tried})) for e, part in parts]
        title = f"Other priors against {PRIORS[0]} on the same data: differences, and the ratio of widths"
        priors[title] = by_estimand(
            of_prior, lambda part: paired_table(part, PRIORS[0], ("bias", "coverage"), ratios=("width",))
        )
    measures = measures[
        [*CELL, "policy", "method", *(f"{m}{end}" for m in MEASURES for end in ("", "_mcse"))]
    ]
    return {
        **{
            title: side_by_side(measures, CELL, name, methods, first=(REFERENCE, BAYES))
            for title, name in TABLES.items()
        },
        f"Differences to {REFERENCE} on the same data (width: ratio)": pairs[
            [*CELL, "policy", "method", *columns]
        ],
        **priors,
        "Statuses of both arms' values: share of runs, over n and labels": status_table(
            _part(ds, str(w), "value") for w in ds["world"].values
        ),
        "Milliseconds per fit": _times(ds),
        "All measures": measures,
    }


def _times(ds: xr.Dataset) -> pd.DataFrame:
    """Median and 95th percentile over worlds and replicates, without laying out the data, which methods share.

    The median does not see a first call's compilation.
    """
    taken = (1000 * ds["seconds"]).to_series().groupby(["n", "labels", "method"], sort=False)
    shown = pd.DataFrame({"median": taken.median(), "95th percentile": taken.quantile(0.95)})
    return shown.dropna().reset_index()


def findings(ds: xr.Dataset) -> list[Finding]:
    """Whether both arms keep their level, cover and refuse alike, and whether the comparison is precise enough."""
    parts = [(e, _part(ds, str(world), e)) for e in ESTIMANDS for world in ds["world"].values]
    measures = by_estimand(parts, lambda p: summary_table(p, MEASURES))
    ran = (ds["status"] != NOT_RUN).any(["method", "policy"]).sum("replicate")  # not the same in all worlds
    cells = zip(*(measures[name] for name in ("world", "n", "labels")), strict=True)
    asked = np.array([int(ran.sel(world=w, n=n, labels=m)) for w, n, m in cells])
    measures["coverage_trials"] = asked * (1 - measures["refused"] - measures["failed"])
    replicates = int(asked.min())
    pairs = by_estimand(
        parts, lambda p: paired_table(p, REFERENCE, ("coverage", "refused"), ratios=("width",))
    )
    pairs = pairs[pairs["method"] == BAYES]
    groups: dict[str, list[str]] = {"labels of its own": [], "a borrowed calibrator": []}
    violated: list[str] = []
    for name in (str(name) for name in ds["world"].values):
        world = WORLDS[name]
        kind = groups["a borrowed calibrator" if world.borrowed else "labels of its own"]
        (violated if world.fails else kind).append(name)
    arms = [(arm, words, worlds) for words, worlds in groups.items() for arm in (REFERENCE, BAYES) if worlds]
    if "shift_probes" in ds["world"].values:
        arms += [(arm, "50 probes in a shifted world", ["shift_probes"]) for arm in PROBED[:2]]
    said = []
    cell = [name for name in CELL if name in ("world", "estimand") or ds.sizes[name] > 1]
    for arm, words, worlds in arms:
        rows = measures[measures["method"] == arm]
        who = f"{arm} with {words}"
        out = _violated(rows, violated if words == "a borrowed calibrator" else [])
        said.append(keeps_level(who, rows[rows["world"].isin(worlds)], cell, replicates, left_out=out))
    alike = pairs[pairs["world"].isin([name for worlds in groups.values() for name in worlds])]
    for name, words in (("coverage", "cover"), ("refused", "refuse")):
        out = _violated(pairs, violated)
        said += alike_within(f"Does {BAYES} {words} as often as {REFERENCE}", alike, cell, name, out)
    known = pairs["coverage_mcse"].dropna()
    if len(known):
        precise = bool(known.max() <= PRECISE)
        said.append(
            Finding(
                f"Is the comparison of {BAYES} and {REFERENCE} precise? {ANSWER[precise]}: the MCSE of a paired "
                f"difference of coverages is at most {100 * known.max():.2f} points in {len(known)} of {len(pairs)} "
                "cells; in the others one of the two prints no interval. Where the assumptions hold the ratio of mean "
                f"widths lies between {alike['width_ratio'].min():.2f} and {alike['width_ratio'].max():.2f}.",
                f"largest MCSE of a paired difference of coverages at most {100 * PRECISE:.1f} points",
                precise,
            )
        )
    return said


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


BAYESIAN = (BAYES, "bayes_hdi", "bayes_plug_in", *PRIORS[1:], "projection", "bayes_corrected", "bayes_flat")


def _fewer(n_draws: int, n_boot: int) -> dict[str, dict[str, Any]]:
    """Method options of a profile that must be quick."""
    return {
        **{name: {"n_draws": n_draws} for name in BAYESIAN},
        "direct_bootstrap": {"inference": Bootstrap(n=n_boot)},
    }


STUDY = Study(
    name="bayes_vs_frequentist",
    title="Do Bayesian intervals cover as often as frequentist ones, and are they shorter?",
    aims="Compare the corrected posterior, its plug-in, the projection posterior and a Bayesian probe correction with "
    "the influence-function, bootstrap and prediction-powered intervals on the same data: which keep 95%, at what "
    "width, on which side they miss, what the prior does to them, what a fit costs; and what policy shift does to all.",
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
    measures="Coverage of the intervals printed with exact bounds, beside the shares of runs that a rule refused one "
    "and that failed, misses by side (shares of all runs), width, interval score, bias, averaged over the policies "
    "that "
    "a row names, with Monte Carlo standard errors; differences to direct_influence with the standard error of a "
    "paired comparison; time per fit. "
    "The estimate of a posterior is its mean.",
    protocol=Protocol(
        origin="Worlds are scenarios of this project with their default laws, chosen so that each assumption of a "
        "method holds in some and fails in others; 1,000 prompts with 5% and 25% labels are a size of the "
        "paper's table of coverage. No world is fitted to data. Written after the study's first runs.",
        replicates="400 for an MCSE of 1.1 points of a coverage of 95%, 2,000 for .5. Differences to the reference on "
        "the same data are known better, but for three cells of few labels where the two arms part more often: of the "
        "quick profile these have as many more as a first run of 400 told that 1.1 points take.",
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
            _fewer(100, 50),
        ),
        "quick": Profile(
            400,  # coverage to a point; other priors, and the highest density, are left to the paper's profile
            {"world": tuple(name for name in WORLDS if name not in ("weak", "length"))},
            _fewer(400, 300),
            (*PRIORS[1:], "bayes_hdi"),
            # where the two arms part most often: the comparison is to be as precise there
            [
                ({"world": "shift", "labels": 50}, 780),
                ({"world": "shift_probes", "labels": 50}, 600),
                ({"world": "binary_base", "labels": 50}, 540),
            ],
        ),
        "paper": Profile(2000, {"n": (500, 1000)}),
    },
    setting=setting,
    worlds=sorted({world.scenario for world in WORLDS.values()}),
    legend={"world": {name: world.holds for name, world in WORLDS.items() if world.holds}},
    table=table,
    figure=figure,
    findings=findings,
)
