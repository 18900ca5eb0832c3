"""Which method, and how many labels, for one's own data: a plasmode study of a user's files.

``cje-lab run real_data --data DIR`` takes the files that ``cje-lab analyze DIR`` takes. Their prompts are the
population: a replicate draws prompts with replacement, whole, so that scores, their ties and the dependence between
policies are the user's. Labels are drawn from laws fitted to the labels that are there, so the truth of every policy is
an average of known numbers (`cje_sim.plasmode`). The results carry the digest of the files and no path, which stands in
``inputs.json`` beside them alone; other files never join them. Without ``--data`` the study runs on the files of
``cje-lab demo``, which ship with the package, and says so.

What it cannot tell: a policy with fewer than 20 labels of its own has the laws of the calibration policies, so the
calibration transports to it by construction.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

from cje_core.data import DataError
from cje_core.figures.style import looks
from cje_core.io import files
from cje_core.streams import Cell, Streams
from cje_sim import plasmode
from studies.demo.arena import HELD, OPTIONS
from studies.engine.measures import by_estimand, performance, side_by_side, summary_table
from studies.engine.outcome import NOT_RUN, Outcome
from studies.engine.panels import by_world
from studies.engine.scenario import replicate_scenario
from studies.engine.sentences import kept, points, refusals, together
from studies.engine.study import Finding, Method, Profile, Protocol, Scenario, Setting, Study, StudyError

MIN_LABELS = 20  # fewer make no law worth asking
PROBES = 50
SILENT = 0.5  # share of runs without a number beyond which a method is no advice
HALF_WIDTH = 0.05  # of the oracle's scale: an interval that a user could decide with
DESIGNS = {
    "base": "labels of the base policy only",
    "probes": f"labels of the base policy and {PROBES} probes of every policy",
    "own": "as many labels of every policy",
}
BORROWING, PROBED = ("direct_plug_in",), ("direct_corrected",)
CELL = ["design", "estimand", "labels"]
SHIPPED = ("direct", "direct_corrected")  # what `analyze` prints
MEASURES = ("coverage", "refused", "failed", "width", "bias", "rmse", "interval_score")
WORST = ("coverage", "refused", "failed")  # of the policy that is covered least
CAPTION = (
    "Values: coverage of the intervals printed of the policy that is covered least (dashed: nominal 95%), share of its "
    "runs that are refused one, and mean width over policies, by number of labels (own: of every policy). Bars: 95% "
    "Monte Carlo bounds."
)


@dataclass(frozen=True)
class Source:
    """A user's files; the digest, which the manifest keeps, tells them apart, and no result has a path."""

    digest: str = ""  # of every file's name and bytes; empty: the demo's files
    judge_range: tuple[float, float] = (0.0, 1.0)
    oracle_range: tuple[float, float] = (0.0, 1.0)
    path: str = field(default="", repr=False)
    probes: str = field(default="", repr=False)


class Population(NamedTuple):
    """A fitted world, as the engine wants it, and what is known of it."""

    scenario: Scenario
    policies: tuple[str, ...]  # the base policy first
    n: int
    residual: tuple[float, ...]  # truth less what the calibration policies' laws would say
    oracle_width: float


def digest_of(paths: Sequence[Path]) -> str:
    """Digest of the names and bytes of all files in some places (or of a file itself), whatever their order on disk."""
    found = hashlib.sha256()
    for k, place in enumerate(paths):
        inside = [place] if place.is_file() else sorted(p for p in place.rglob("*") if p.is_file())
        for path in inside:
            found.update(f"{k}/{path.relative_to(place)}\0{path.stat().st_size}\0".encode())
            found.update(path.read_bytes())
    return found.hexdigest()[:16]


@lru_cache(maxsize=4)
def population(source: Source) -> Population:
    """The world that is fitted to the files, once per process; files that have changed since raise."""
    if source.digest:
        places = [Path(p) for p in (source.path, source.probes) if p]
        if digest_of(places) != source.digest:
            raise StudyError("the files of --data have changed since the run began: start it again")
    else:
        source = replace(source, path=str(HELD / "responses"), probes=str(HELD / "probes"))
    data, _ = files.read(
        source.path,
        probes=source.probes or None,
        judge_range=source.judge_range,
        oracle_range=source.oracle_range,
    )
    if int(np.isfinite(data["oracle"]).sum()) < MIN_LABELS:
        raise DataError(
            f"fewer than {MIN_LABELS} labels: too few to learn what labels of such responses are like"
        )
    world = plasmode.fit(data)
    n = int(world.population.sizes["prompt"])

    def simulate(*, labels: int, design: str, rng: np.random.Generator) -> xr.Dataset:
        return plasmode.simulate(
            world,
            oracle_fraction=labels / n,
            label_design="own" if design == "own" else "base",
            n_probes=PROBES if design == "probes" else 0,
            rng=rng,
        )

    low, high = data.attrs["oracle_range"]
    return Population(
        Scenario(simulate, partial(plasmode.truth, world)),
        tuple(str(p) for p in world.population["policy"].values),
        n,
        tuple(float(r) for r in plasmode.residual(world).values),
        float(high) - float(low),
    )


def setting(study: Study, cell: Cell, source: Source = Source()) -> Setting:
    """The user's world, and the methods that apply to a design."""
    world = population(source)
    idle = {"base": PROBED, "probes": (), "own": (*PROBED, *BORROWING)}[str(cell["design"])]
    return Setting(world.scenario, world.policies, cell, [m for m in study.methods if m not in idle])


def replicate(study: Study, cell: Cell, streams: Streams, source: Source = Source()) -> Outcome:
    """One resample of the population; beside the estimates what the world is."""
    world = population(source)
    found = replicate_scenario(replace(study, setting=partial(setting, source=source)), cell, streams)
    residual = [*world.residual, *[np.nan] * len(study.contrasts)]
    facts: dict[str, Any] = {
        "residual": residual,
        "oracle_width": world.oracle_width,
        "simulated": float(not source.digest),
    }
    return replace(found, extra={**facts, "n_prompts": float(world.n)})


def fits(cell: Cell, n: int) -> bool:
    """Whether there are prompts enough for a cell's labels."""
    return int(cell["labels"]) + PROBES * (cell["design"] == "probes") <= n


def with_data(
    study: Study,
    path: Path,
    probes: Path | None = None,
    judge_range: tuple[float, float] = (0.0, 1.0),
    oracle_range: tuple[float, float] = (0.0, 1.0),
) -> Study:
    """The study of a user's files: their policies, the first of those that teach as the base; cells that they can fill.

    Parameters
    ----------
    path, probes : Path
        As in `cje_core.io.files.read`.
    judge_range, oracle_range : pair of float
    """
    places = [p.resolve() for p in (path, probes) if p is not None]
    for place in places:
        if not place.exists():
            raise StudyError(f"{place}: there is no such file or directory")
    words = [str(p) for p in places]
    source = Source(digest_of(places), judge_range, oracle_range, words[0], words[1] if probes else "")
    world = population(source)
    return replace(
        study,
        policies=world.policies,
        contrasts=tuple((p, world.policies[0]) for p in world.policies[1:]),
        replicate=partial(replicate, source=source),
        setting=partial(setting, source=source),
        keep=partial(fits, n=world.n),
    )


def _parts(ds: xr.Dataset) -> list[tuple[str, xr.Dataset]]:
    """Values and differences of every design; where labels are the base's alone its own value is left out."""
    names = [str(p) for p in ds["policy"].values]
    values, pairs = ([p for p in names if (" - " in p) == pair] for pair in (False, True))
    found = []
    for design in ds["design"].values:
        part = ds.sel(design=[design])
        kinds = {"value": values if design == "own" or len(values) == 1 else values[1:], "difference": pairs}
        found += [(name, part.sel(policy=chosen)) for name, chosen in kinds.items() if chosen]
    return found


def table(ds: xr.Dataset) -> dict[str, pd.DataFrame]:
    """Coverage of the least covered policy, width and interval score side by side; the population; all measures."""
    methods = [str(m) for m in ds["method"].values]
    parts = _parts(ds)
    worst = _worst(parts)
    measures = by_estimand(parts, lambda part: summary_table(part, MEASURES))
    measures = measures[measures["bias"].notna()]
    residual = ds["residual"].isel(labels=0, design=0, replicate=0)
    known = ds["truth"].stack(run=[d for d in ds["truth"].dims if d != "policy"]).max("run")
    people = pd.DataFrame({"policy": ds["policy"].values, "truth": known.values, "residual": residual.values})
    return {
        "Coverage of the policy covered least, of the intervals printed, with the policies and shares refused": worst[
            [*CELL, "method", "policy", *(f"{m}{end}" for m in WORST for end in ("", "_mcse"))]
        ],
        "Mean width of 95% intervals": side_by_side(measures, CELL, "width", methods, first=SHIPPED),
        "Mean interval score (smaller is better)": side_by_side(
            measures, CELL, "interval_score", methods, first=SHIPPED
        ),
        "The population: truth, and how far the calibration policies' laws miss it": people,
        "All measures": measures.reset_index(drop=True),
    }


def _worst(parts: Sequence[tuple[str, xr.Dataset]]) -> pd.DataFrame:
    """Rows of the policy that is covered least, by cell and method."""
    rows = by_estimand(parts, lambda part: summary_table(part, WORST, pool=False))
    rows = rows[rows["coverage"].notna()].reset_index(drop=True)
    return rows.loc[rows.groupby([*CELL, "method"], sort=False)["coverage"].idxmin()].reset_index(drop=True)


def findings(ds: xr.Dataset) -> list[Finding]:
    """Whose data these are, which method to take in each design, and how many labels it takes."""
    simulated = bool(ds["simulated"].max() > 0)
    n = int(ds["n_prompts"].max())
    whose = "the demo, a draw of arena_like (no --data was given)" if simulated else "the files given"
    said = [
        Finding(
            f"The population is {n} prompts of {whose}.",
            "whether --data was given",
            None if simulated else True,
        ),
        *_transport(ds),
    ]
    parts = [(estimand, part) for estimand, part in _parts(ds) if estimand == "value"]
    worst = _worst(parts)
    measures = by_estimand(parts, lambda part: summary_table(part, MEASURES))
    width = float(ds["oracle_width"].max())
    for design in ds["design"].values:
        mine = measures[measures["design"] == design]
        least = worst[worst["design"] == design]
        said.append(_choice(str(design), mine, least, int(ds.sizes["replicate"]), width))
    return said


def _transport(ds: xr.Dataset) -> list[Finding]:
    residual = ds["residual"].isel(labels=0, design=0, replicate=0).to_series().dropna().abs()
    margin = HALF_WIDTH * float(ds["oracle_width"].max())
    beyond = residual[residual > margin]
    named = ", ".join(f"{policy} ({size:.3g})" for policy, size in beyond.items())
    sentence = f"The base policy's calibration is off by more than {margin:g} for {named or 'no policy'}."
    return [Finding(sentence, "exact residual of the fitted label laws", not named)]


def _choice(
    design: str, measures: pd.DataFrame, worst: pd.DataFrame, replicates: int, width: float
) -> Finding:
    """The method of smallest interval score among those that no policy shows to under-cover, and its labels."""
    rule = (
        "smallest mean interval score at the most labels among methods whose least covered policy is not shown to be "
        f"below 90% at any number of labels; labels: fewest with a mean half-width of {HALF_WIDTH:g} of the scale"
    )
    fair = [m for m, rows in worst.groupby("method") if kept(rows, ["labels"], replicates).holds is not False]
    most = measures["labels"].max()
    last = measures[  # a mean over policies, one of which never has an interval, has no score
        (measures["labels"] == most) & measures["method"].isin(fair) & (measures["refused"] <= SILENT)
    ].dropna(subset=["interval_score"])
    if not len(last):
        return Finding(
            f"With {DESIGNS[design]} no method that answers keeps 95% within 5 points for every policy.",
            rule,
            False,
        )
    best = str(last.loc[last["interval_score"].idxmin(), "method"])
    mine = measures[measures["method"] == best]
    held = worst[worst["method"] == best].sort_values("coverage").iloc[0]
    enough = mine.loc[mine["width"] <= 2 * HALF_WIDTH * width, "labels"]
    needs = f"{enough.min()} labels give" if len(enough) else f"more than {most} labels are needed for"
    shown = points(float(held["coverage"]), float(held["coverage_mcse"]), "%")
    unfair = [m for m in dict.fromkeys(worst["method"]) if m not in fair]
    quiet = measures[(measures["labels"] == most) & (measures["refused"] > SILENT)]["method"].tolist()
    return Finding(
        together(
            f"Which method with {DESIGNS[design]}? {best}: the least covered policy ({held['policy']}, "
            f"{held['labels']} labels) is covered in {shown} of the intervals printed. {needs.capitalize()} a mean "
            f"half-width of {HALF_WIDTH * width:g}.",
            refusals(mine, ["labels"]),
            f"Left out, since some policy is covered less than 90%: {', '.join(unfair)}." if unfair else "",
            f"Left out, since most runs at {most} labels are refused: {', '.join(quiet)}." if quiet else "",
        ),
        rule,
        bool(len(enough)),
    )


def figure(ds: xr.Dataset) -> dict[str, Figure]:
    """Coverage of the least covered policy over mean width, one column per design."""
    methods = [str(m) for m in ds["method"].values]
    columns = []
    for estimand, part in _parts(ds):
        here = part.isel(design=0)
        if estimand == "value" and (here["status"] != NOT_RUN).any():
            title = str(part["design"].item())
            columns.append(
                (title, {"worst": _least_covered(here), "mean": here}, [str(x) for x in ds["labels"].values])
            )
    rows = (
        ("worst", "coverage", "coverage of the policy\ncovered least"),
        ("worst", "refused", "share of its runs\nrefused"),
        ("mean", "width", "mean width"),
    )
    fig, axes = by_world(
        columns,
        rows,
        {m: look for m, look in looks(methods).items() if m != "raw_judge"},
        along="labels",
        step=0.1,
        size=(2.8 * len(columns) + 1.0, 7.2),
    )
    for ax in axes[-1]:
        ax.set(xlabel="labels")
    return {CAPTION: fig}


def _least_covered(ds: xr.Dataset) -> xr.Dataset:
    """Results of each cell and method's least covered policy, under one name."""
    value = performance(ds, measures=["coverage"])["value"].sel(measure="coverage").fillna(2.0)
    place = value.argmin("policy")
    variables = ("estimate", "std_error", "interval", "status", "truth")
    chosen = {v: ds[v].broadcast_like(ds["status"]).isel(policy=place) for v in variables if v != "interval"}
    chosen["interval"] = ds["interval"].isel(policy=place)
    return xr.Dataset(
        {v: x.drop_vars("policy", errors="ignore").expand_dims(policy=["least"]) for v, x in chosen.items()},
        attrs=ds.attrs,
    )


RUN_GROUPS = ("pages",)
STUDY = Study(
    name="real_data",
    title="Which method, and how many labels, for data like these?",
    aims="Find out, for the prompts, judge and policies of a user's own files, which method keeps its nominal coverage "
    "for every policy, at what width, how many labels that takes, and whether labels of the base policy, probes of all "
    "policies or labels of all policies are the better spending.",
    mechanism="The user's prompts (without --data: the 250 of cje-lab demo, drawn from the scenario arena_like) are "
    "resampled with replacement, "
    "whole. A response's label is drawn from a law fitted to the labels near its judge score: its policy's own where "
    f"there are {MIN_LABELS}, else the calibration policies', where the calibration then transports by construction.",
    estimands="V(policy), the mean over the population of the means of the label laws, and differences to the base; "
    "where only the base policy teaches its own value is left out.",
    measures="Coverage of the policy that is covered least, mean width, interval score, RMSE, bias and refusals, with "
    "Monte Carlo standard errors.",
    factors={"design": tuple(DESIGNS), "labels": (25, 50, 100, 200, 400)},
    policies=("base", "clone", "parallel_universe_prompt", "premium", "unhelpful"),
    contrasts=tuple((p, "base") for p in ("clone", "parallel_universe_prompt", "premium", "unhelpful")),
    methods={
        "raw_judge": Method("control, biased: mean judge score"),
        "labels_only": Method("control, unbiased: mean oracle label"),
        "ppi_plus_plus": Method("prediction-powered mean of a policy's own labels, tuned"),
        "direct_plug_in": Method(
            "calibrated plug-in, as the paper has it", "direct", {"borrowed": "plug_in"}
        ),
        "direct": Method("Direct as it comes"),
        "direct_corrected": Method("Direct corrected by probes"),
    },
    profiles={
        "smoke": Profile(4, {"labels": (50,)}),
        "quick": Profile(400, {"labels": (25, 100, 200)}),
        "paper": Profile(2000),
    },
    replicate=replicate,
    setting=setting,
    keep=partial(fits, n=OPTIONS["n"]),
    with_data=with_data,
    table=table,
    figure=figure,
    findings=findings,
    protocol=Protocol(
        origin="The user's files: prompts, scores and labels as they are; the smoothing of the label laws is a quarter "
        "of a standard deviation of the judge score.",
        replicates="2,000: the standard error of a coverage of 95% is then half a point for each policy.",
        failures="A run without an interval is shown as refused or failed and has no part in the coverage.",
        primary="Coverage of the least covered policy, and the mean width of its intervals.",
        relevant="Five points of coverage; a half-width of a twentieth of the oracle's scale.",
    ),
)
