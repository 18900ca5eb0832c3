"""Who is best in which cell: tables and sentences of a study with peers.

Two methods are compared on the same replicates. The ratio is that of mean interval scores (Gneiting and Raftery 2007,
eq. 43), ours over the other's: above 1 the other is better. Its Monte Carlo standard error is that of a paired
comparison (`studies.engine.measures.paired_table`).

Where the other has no interval it is scored as one who says nothing, with the whole scale: who falls silent where
labels are hard (all of them equal, say) would else be compared on the easy replicates. Replicates in which ours is
refused a number are left out, and their share is told beside.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy import stats

from studies.engine.measures import REFUSALS, clopper_pearson, paired_table, summary_table
from studies.engine.outcome import NOT_RUN
from studies.engine.sentences import ANSWER, LeftOut, points, refusals, together
from studies.engine.study import Finding

CELL = ["design", "world", "labels"]
MEASURES = ("coverage", "refused", "failed", "width", "interval_score", "bias", "empirical_se")
SCORE, COVERAGE = "score_ratio", "coverage"
ALLOWED = 1.02  # of our mean interval score over the best one's
Z = 1.96  # of the bounds that figures show; sentences take one that holds for all comparisons together
ENOUGH = (
    200  # replicates of a comparison that is judged: of fewer, the misses that make a score may all be unseen
)
ENOUGH_ANSWERS = 30  # of a cell whose coverage is told
SCALE = (0.0, 1.0)  # of the labels of all worlds


def _by_design(ds: xr.Dataset, make: Callable[[xr.Dataset], pd.DataFrame]) -> pd.DataFrame:
    """A table for each column of the results, which are the label designs: the column ``policy`` under that name."""
    frames = []
    for design in ds["policy"].values:
        frames.append(make(ds.sel(policy=[design])).drop(columns="policy", errors="ignore"))
        frames[-1].insert(0, "design", str(design))
    return pd.concat(frames, ignore_index=True)


def that_ran(ds: xr.Dataset) -> list[str]:
    """Methods that ran in some replicate, in the study's order."""
    ran = (ds["status"] != NOT_RUN).any([d for d in ds["status"].dims if d != "method"])
    return [str(name) for name in ds["method"].values[ran.values]]


def against(ds: xr.Dataset, ours: str) -> pd.DataFrame:
    """Ours over each other method: ratios of interval score and width, and difference of the score.

    Columns ``design, world, labels, method, compared`` (replicates), ``score_ratio, width_ratio, score_difference`` and
    their ``_mcse``.
    """
    frames = []
    for name in that_ran(ds):
        if name == ours:
            continue
        pair = ds.sel({"method": [ours, name]})
        says = pair["interval"].notnull().all("ci_bound")
        use = says.sel({"method": ours}, drop=True) & (pair["status"] != NOT_RUN).all("method")
        use &= says.sel({"method": name}, drop=True).any("replicate")  # one who never answers is no rival
        whole = xr.DataArray(np.array(SCALE), dims="ci_bound")
        pair = pair.assign(
            estimate=pair["estimate"].fillna(np.mean(SCALE)).where(use),
            interval=pair["interval"].where(says, whole),
            status=pair["status"].where(use, np.int8(NOT_RUN)),
        )
        if not use.any():
            continue

        def compare(part: xr.Dataset, other: str = name) -> pd.DataFrame:
            found = paired_table(part, other, ("interval_score",), ratios=("interval_score", "width"))
            count = (part["status"] != NOT_RUN).sum("replicate").isel(policy=0, method=0)
            counted = count.rename("compared").drop_vars(["policy", "method"]).to_dataframe().reset_index()
            return found.assign(method=other).merge(counted, on=CELL[1:])

        frames.append(_by_design(pair, compare))
    if not frames:
        return pd.DataFrame(columns=[*CELL, "method", "compared", SCORE, f"{SCORE}_mcse"])
    renamed = {
        f"{old}{end}": f"{new}{end}"
        for old, new in {
            "interval_score_ratio": SCORE,
            "interval_score": "score_difference",
        }.items()
        for end in ("", "_mcse")
    }
    return pd.concat(frames, ignore_index=True).rename(columns=renamed)


def measured(ds: xr.Dataset) -> pd.DataFrame:
    """Every measure of every method that ran, a row for each cell and design."""
    return _by_design(ds.sel({"method": that_ran(ds)}), lambda part: summary_table(part, MEASURES))


def champions(
    ds: xr.Dataset, ours: str, controls: Sequence[str], pairs: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Of each cell: who has the lowest interval score, with ours over it, and the same among those that cover.

    A method covers in a cell where the exact 95% Monte Carlo bounds of its coverage reach the nominal level. Biased
    controls take no part. The lowest of several noisy means is a little too low: the ratio errs against ours. `pairs`
    are the comparisons that count, of `against`; all by default.
    """
    level, all_of = float(ds.attrs["ci_prob"]), measured(ds)
    pairs = against(ds, ours) if pairs is None else pairs
    pairs = pairs[~pairs["method"].isin(controls)]
    answered = _by_design(ds, _answers)
    all_of = all_of.merge(answered, on=[*CELL, "method"])
    upper = clopper_pearson(all_of[COVERAGE] * all_of["answers"], all_of["answers"])[:, 1]
    all_of["covers"] = upper >= level
    # of all cells and methods together: the best one of a cell is likely one that was lucky there
    every = clopper_pearson(
        all_of[COVERAGE] * all_of["answers"], all_of["answers"], 1 - 0.05 / max(len(all_of), 1)
    )
    all_of["short"] = every[:, 1] < level
    shown = [f"{m}{end}" for m in (COVERAGE, *REFUSALS) for end in ("", "_mcse")]
    columns = [*CELL, "method", *shown, "covers", "short"]
    rows = []
    for key, own in all_of[all_of["method"] == ours][columns].groupby(CELL, sort=False):
        here = pairs[(pairs[CELL] == list(key)).all(axis=1)].merge(all_of[columns], on=[*CELL, "method"])
        row = dict(zip(CELL, key, strict=True)) | {
            **{f"{m}{end}": own[f"{m}{end}"].item() for m in (COVERAGE, *REFUSALS) for end in ("", "_mcse")},
            "short": bool(own["short"].item()),
        }
        rows.append(row | _best(here, "best", ours) | _best(here[here["covers"]], "covering", ours))
    return pd.DataFrame(rows)


def _answers(part: xr.Dataset) -> pd.DataFrame:
    """Return how many replicates of a cell printed an interval, by method."""
    there = part["estimate"].notnull() & part["interval"].notnull().all("ci_bound")
    count = there.sum("replicate").isel(policy=0, drop=True)
    frame: pd.DataFrame = count.rename("answers").to_dataframe().reset_index()
    return frame[["world", "labels", "method", "answers"]]


def _best(here: pd.DataFrame, title: str, ours: str) -> dict[str, object]:
    """Name, ratio and coverage of the method over which ours has the largest ratio; ours itself if all are below 1."""
    there = here[here[SCORE].notna()]
    if not len(there) or there[SCORE].max() <= 1:
        best = {"": ours, "_ratio": 1.0, "_ratio_mcse": 0.0, "_coverage": np.nan, "_coverage_mcse": np.nan}
        best["_compared"] = int(there["compared"].max()) if len(there) else 0
        return {f"{title}{end}": value for end, value in best.items()}
    top = there.sort_values(SCORE).iloc[-1]
    return {
        title: top["method"],
        f"{title}_compared": int(top["compared"]),
        f"{title}_width_ratio": top["width_ratio"],
        f"{title}_short": bool(top["short"]),
        f"{title}_ratio": top[SCORE],
        f"{title}_ratio_mcse": top[f"{SCORE}_mcse"],
        f"{title}_coverage": top[COVERAGE],
        f"{title}_coverage_mcse": top[f"{COVERAGE}_mcse"],
    }


def findings(
    ds: xr.Dataset,
    ours: str,
    controls: Sequence[str],
    holds: Callable[[str, str], bool],
    fewest: int,
) -> list[Finding]:
    """The acceptance rule by design, a sentence for each world in which another method is better, coverage, absences.

    Parameters
    ----------
    ds : xr.Dataset
    ours : str
        Our default.
    controls : sequence of str
        Methods that are no rivals.
    holds : function (design, world) -> bool
        Whether our default's assumptions hold there.
    fewest : int
        Labels from which the rule is asked for.
    """
    pairs = against(ds, ours)
    few = pairs["compared"] < ENOUGH if len(pairs) else np.zeros(0, bool)
    table = champions(ds, ours, controls, pairs[~few])
    wanted = [holds(d, w) and m >= fewest for d, w, m in table[CELL].itertuples(index=False)]
    asked = table[np.array(wanted, bool)]
    skipped = _skipped(table, holds, fewest)
    z = float(stats.norm.ppf(1 - 0.025 / max(int((~few).sum()), 1)))
    found = []
    for design, part in asked.groupby("design", sort=False):
        judged = part[part["best_compared"] >= ENOUGH]
        if len(judged) < len(part):
            silent = part[part["best_compared"] < ENOUGH]
            sentence = (
                f"{design} labels: {len(silent)} of {len(part)} cells are not judged, since {ours} answers in fewer "
                f"than {ENOUGH} replicates there, or no rival runs in as many: {_named(silent)}."
            )
            rule = f"{ENOUGH} replicates of both: of fewer, the misses that make a score may all be unseen"
            found.append(Finding(sentence, rule, None))
        if len(judged):
            out = skipped.get(str(design), "")
            found.append(_accepted(str(design), judged, ours, ("best", "the best method"), z, out))
            found.append(_accepted(str(design), judged, ours, ("covering", "the best that covers"), z, out))
            found += _above(str(design), judged, ours, z)
            found += _where_others_win(str(design), judged, ours, z)
    return [*found, *_coverage(ds, ours, controls, holds), *_absent(ds)]


def _named(rows: pd.DataFrame) -> str:
    """Return the cells in words, those of one world together: "weak (15, 30 labels)"."""
    worlds = rows.groupby("world", sort=False)["labels"]
    return ", ".join(f"{world} ({', '.join(map(str, sorted(labels)))} labels)" for world, labels in worlds)


def _skipped(table: pd.DataFrame, holds: Callable[[str, str], bool], fewest: int) -> dict[str, str]:
    """Return by design the sentences on the cells that the rule is not asked of, with our coverage there."""
    out: dict[str, str] = {}
    for design, part in table.groupby("design", sort=False):
        violated = part[np.array([not holds(str(design), str(w)) for w in part["world"]], bool)]
        few = part[(part["labels"] < fewest) & ~part.index.isin(violated.index)]
        worlds = ", ".join(dict.fromkeys(violated["world"]))
        parts = [
            LeftOut(f"cells of fewer than {fewest} labels", "the rule is not asked for", few).said(),
            LeftOut(f"world {worlds}", "the assumptions fail by construction", violated).said(),
        ]
        out[str(design)] = together(*parts)
    return out


def _accepted(
    design: str, part: pd.DataFrame, ours: str, whom: tuple[str, str], z: float, left_out: str
) -> Finding:
    """Whether ours is within the allowance of the best one in every cell."""
    title, words = whom
    ratio, error = part[f"{title}_ratio"], part[f"{title}_ratio_mcse"]
    within, beyond = int((ratio <= ALLOWED).sum()), int((ratio - z * error > ALLOWED).sum())
    worst = part.sort_values(f"{title}_ratio").iloc[-1].to_dict()
    holds = within == len(part) or (False if beyond else None)
    sentence = (
        f"With {design} labels, is {ours} within {ALLOWED - 1:.0%} of {words} by interval score? {ANSWER[holds]}: it "
        f"is in {within} of {len(part)} cells, and clearly above in {beyond}."
    )
    if worst[title] != ours:
        sentence += f" Largest at {worst['world']}, {worst['labels']} labels: {_against(worst, title, ours)}."
    sentence = together(
        sentence, refusals(part, ["world", "labels"], what=f"Runs refused by {ours} are not compared")
    )
    rule = (
        f"ratio of paired mean interval scores <= {ALLOWED} in every cell; clearly above: ratio - {z:.2f} MCSE, which "
        "holds for all comparisons together"
    )
    return Finding(together(sentence, left_out), rule, holds)


def _against(row: Mapping[Any, Any], title: str, ours: str) -> str:
    """The ratio in a cell, both coverages, and how often ours is refused there."""
    told = (
        f"{row[f'{title}_ratio']:.3f} ({row[f'{title}_ratio_mcse']:.3f}) times {row[title]}'s, which covers "
        f"{points(row[f'{title}_coverage'], row[f'{title}_coverage_mcse'], '%')}, {ours} "
        f"{points(row['coverage'], row['coverage_mcse'], '%')}"
    )
    if row["refused"] > 0:
        told += f" and is refused in {points(row['refused'], row['refused_mcse'], '%')}"
    return told


def _above(design: str, part: pd.DataFrame, ours: str, z: float) -> list[Finding]:
    """Every cell above the allowance, and why: chance can tell no more, the best does not cover, or ours is worse.

    An interval score is the width and what the misses add, so the ratio of widths tells which of the two it is.
    """
    above = part[part["best_ratio"] > ALLOWED].sort_values("best_ratio", ascending=False)
    if not len(above):
        return []
    told, clear = [], 0
    for row in above.to_dict("records"):
        if row["best_ratio"] - z * row["best_ratio_mcse"] <= ALLOWED:
            why = "too near to tell"
        elif row["best_short"] and not row["short"]:
            why = f"{row['best']} does not cover"
        else:
            why, clear = f"{row['best']} is better", clear + 1
        told.append(
            f"{row['world']}, {row['labels']} labels: {_against(row, 'best', ours)}, at "
            f"{row['best_width_ratio']:.3f} times the width: {why}"
        )
    sentence = f"{design} labels, cells above {ALLOWED}, {len(above)}: {'; '.join(told)}."
    rule = (
        f"ratio > {ALLOWED}; too near to tell: ratio - {z:.2f} MCSE is not above it; does not cover: the exact Monte "
        f"Carlo bounds of the other's coverage, at 95% for all cells together, lie below the nominal level, and "
        f"those of {ours}'s do not"
    )
    return [Finding(sentence, rule, False if clear else None)]


def _where_others_win(design: str, part: pd.DataFrame, ours: str, z: float) -> list[Finding]:
    """For each world: the cell in which another method is clearly better than ours, by most."""
    found = []
    clear = part[part["best_ratio"] - z * part["best_ratio_mcse"] > 1]
    for world, rows in clear.groupby("world", sort=False):
        top = rows.sort_values("best_ratio").iloc[-1].to_dict()
        sentence = (
            f"{design} labels, {world}: {top['best']} is better than {ours} by interval score in {len(rows)} cells, "
            f"most at {top['labels']} labels: {ours}'s is {_against(top, 'best', ours)}."
        )
        rule = f"ratio of paired mean interval scores - {z:.2f} MCSE above 1, for all comparisons together"
        found.append(Finding(sentence, rule, False))
    return found


def _coverage(
    ds: xr.Dataset, ours: str, controls: Sequence[str], holds: Callable[[str, str], bool]
) -> list[Finding]:
    """Worst coverage of each method over the cells where ours should hold, those with most first."""
    level, table = (
        float(ds.attrs["ci_prob"]),
        measured(ds).merge(_by_design(ds, _answers), on=[*CELL, "method"]),
    )
    table = table[~table["method"].isin(controls)]
    table["meant"] = [holds(d, w) for d, w in zip(table["design"], table["world"], strict=True)]
    found = []
    for design, whole in table.groupby("design", sort=False):
        part = whole[whole["meant"]]
        few = part[part["answers"] < ENOUGH_ANSWERS]
        violated = whole[(whole["method"] == ours) & ~whole["meant"]]
        part = part[part["answers"] >= ENOUGH_ANSWERS]
        if not len(part):
            continue
        worst = part.loc[part.groupby("method")[COVERAGE].idxmin()].sort_values(COVERAGE, ascending=False)
        words = [
            f"{row['method']} {points(row[COVERAGE], row[f'{COVERAGE}_mcse'], '%')} ({row['world']}, {row['labels']}, "
            f"refused {points(row['refused'], row['refused_mcse'], '%')})"
            for row in worst.to_dict("records")
        ]
        own = part[part["method"] == ours]
        upper = clopper_pearson(own[COVERAGE] * own["answers"], own["answers"], 1 - 0.05 / max(len(own), 1))
        keeps = bool((upper[:, 1] >= level).all()) if len(own) else None
        rule = f"no cell's exact Monte Carlo bounds for {ours}, at 95% for all cells together, lie below {level:.0%}"
        silent = few.groupby("method", sort=False).size()
        sentence = together(
            f"With {design} labels, does {ours} cover {level:.0%} everywhere? "
            f"{'No cell can tell' if keeps is None else ANSWER[keeps]}. Worst coverage of the intervals printed: "
            f"{'; '.join(words)}.",
            f"Left out: cells of fewer than {ENOUGH_ANSWERS} intervals, "
            f"{', '.join(f'{count} of {name}' for name, count in silent.items())}."
            if len(silent)
            else "",
            LeftOut(
                f"world {', '.join(dict.fromkeys(violated['world']))}",
                "the assumptions fail by construction",
                violated,
            ).said(),
        )
        found.append(Finding(sentence, rule, keeps))
    return found


def _absent(ds: xr.Dataset) -> list[Finding]:
    silent = [str(name) for name in ds["method"].values if str(name) not in that_ran(ds)]
    if not silent:
        return []
    return [
        Finding(
            f"Not run, so these sentences do not speak of them: {', '.join(silent)}.",
            "rows without any replicate: the peer was not installed, or its interpreter not named",
            None,
        )
    ]
