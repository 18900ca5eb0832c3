"""The paper's coverages of its tables on uncertainty, and the rule by which ours agree with them.

The page of study `interval_coverage` and the claims ledger both ask here, so that they cannot differ. A printed
coverage comes from 150 runs of a cell: 50 seeds times 3 policies. The three share prompts and calibrator, so that the
runs are worth 150 over a design effect, taken as 1.1 to 1.6.
"""

import math
from collections.abc import Iterable, Mapping

import pandas as pd

from studies.engine.sentences import ANSWER, points, refusals, together
from studies.engine.study import Finding

RUNS = 150  # of a cell of the table
DESIGN = (1.1, 1.6)  # least and largest design effect of these runs
ERRORS = 3.0  # standard errors within which a cell agrees
Cell = tuple[int, float]
# Table tab:uq-comparison: prompts and share of labels; the bootstrap with 500 resamples.
CELLS: tuple[Cell, ...] = tuple((n, share) for n in (250, 500, 1000, 2500) for share in (0.05, 0.25))
COVERAGE: Mapping[str, Mapping[Cell, float]] = {
    "cluster-robust": dict(zip(CELLS, (0.21, 0.43, 0.28, 0.40, 0.21, 0.35, 0.15, 0.52), strict=True)),
    "calibration-aware jackknife": dict(
        zip(CELLS, (0.85, 0.86, 0.89, 0.84, 0.75, 0.83, 0.70, 0.85), strict=True)
    ),
    "bootstrap": dict(zip(CELLS, (0.94, 0.95, 0.96, 0.98, 0.95, 0.95, 0.97, 0.98), strict=True)),
}


def distance(value: float, error: float, printed: float, design: float) -> float:
    """Difference of a simulated coverage from a printed one, in standard errors of both.

    Examples
    --------
    >>> round(distance(0.5, 0.0, 0.35, 1.0), 2), round(distance(0.5, 0.0, 0.35, 1.6), 2)
    (3.85, 3.04)
    """
    return (value - printed) / math.hypot(error, math.sqrt(design * printed * (1 - printed) / RUNS))


def agree(cells: Iterable[tuple[float, float, float]]) -> bool | None:
    """Return whether every cell (value, its error, printed) agrees: None where it depends on the design effect.

    Examples
    --------
    >>> agree([(0.5, 0.0, 0.5)]), agree([(0.5, 0.0, 0.35)]), agree([(0.48, 0.0, 0.35)])
    (True, False, None)
    """
    known = list(cells)
    within = [all(abs(distance(*one, design)) <= ERRORS for one in known) for design in DESIGN]
    return None if within[0] != within[1] else within[0]


def meets_published(name: str, who: str, rows: pd.DataFrame, z: pd.DataFrame) -> Finding:
    """Return the sentence on whether simulated coverages agree with a row of the table, cell by cell.

    Parameters
    ----------
    name : str
        Method of the table, a key of `COVERAGE`.
    who : str
        The formula and the label design that were run.
    rows : pd.DataFrame
        ``n``, ``oracle_fraction``, ``coverage`` and its MCSE, a row per cell.
    z : pd.DataFrame
        Of `studies.engine.measures.normalised.normalised_errors`; its first row is quoted.
    """
    printed = COVERAGE[name]
    cells = [
        (value, error, printed[int(n), float(share)])
        for n, share, value, error in zip(
            rows["n"], rows["oracle_fraction"], rows["coverage"], rows["coverage_mcse"], strict=True
        )
        if (int(n), float(share)) in printed
    ]
    holds, few = agree(cells), z.iloc[0]
    least, most = (f"{100 * end(printed.values()):.0f}" for end in (min, max))
    ends = rows.sort_values("coverage", kind="stable").iloc[[0, -1]]
    low, high = (points(float(r["coverage"]), float(r["coverage_mcse"])) for _, r in ends.iterrows())
    worst = max((distance(*one, DESIGN[1]) for one in cells), key=abs)
    answer = (
        "Not settled (it depends on the design effect of the printed runs)"
        if holds is None
        else ANSWER[holds]
    )
    sentence = together(
        f"Does the {name} ({who}) cover as published, {least}-{most}%? {answer}: it covers {low} to {high}% over "
        f"{len(rows)} cells, at worst {worst:+.1f} standard errors from its cell of the table.",
        f"At {few.iloc[0]:.0%} labelled Z has mean {few['mean_z']:.2f} ({few['mean_z_mcse']:.2f}) and sd "
        f"{few['sd_z']:.2f} ({few['sd_z_mcse']:.2f}).",
        refusals(rows, ["n", "oracle_fraction"]),
    )
    return Finding(
        sentence,
        f"yes: every cell within {ERRORS:g} standard errors, ours and the printed one's with {RUNS} runs over a design "
        f"effect of {DESIGN[0]:g}; no: not with one of {DESIGN[1]:g} either",
        holds,
    )
