"""Tables tab:uq-comparison and tab:uq-diagnostics beside the cells of study `interval_coverage` that they share.

Labels are under the base policy, as in the paper's set-up. Each printed figure has a sampling error of its own.
"""

import math
from collections.abc import Callable

from studies.claims.jackknife import PAPER_MEAN, PAPER_SD
from studies.claims.tables import explained, figures, tables_of
from studies.engine.published import COVERAGE, DESIGN, ERRORS, RUNS, Cell, agree, distance
from studies.ledger.claim import Claim, Evidence, Trial

STUDY = "interval_coverage"
ROW_RUNS = 600  # of a row of tab:uq-diagnostics
NEEDS = (
    f"results of the study: cje-lab run {STUDY} --profile paper --out DIR, then cje-lab claims --results DIR"
)


def cells_of(trial: Trial, method: str) -> tuple[list[tuple[Cell, float, float]], str]:
    """Cells that the study shares with the table: (prompts, share of labels), coverage, its error; and their source."""
    tables, where = tables_of(STUDY, trial.results)
    name = next((one for one in tables if one.startswith("Where a calibrator is borrowed, coverage")), "")
    found = []
    for row in tables.get(name, ()):
        cell = int(row["n"]), float(row["oracle_fraction"])
        at = figures(row[method])
        if (
            cell in COVERAGE["cluster-robust"]
            and at
            and (row["world"], row["estimand"], row["label_design"])
            == (
                "smooth",
                "value",
                "base",
            )
        ):
            found.append((cell, *at))
    return found, where


def undecided() -> Evidence:
    """No results at hand."""
    return Evidence(holds=None, measured="", expected="as the table", text="", needs=NEEDS)


def of_cells(method: str, name: str) -> Callable[[Trial], Evidence]:
    """Decide whether each shared cell has the printed coverage, by the rule of the study's page."""
    printed = COVERAGE[name]

    def decide(trial: Trial) -> Evidence:
        cells, where = cells_of(trial, method)
        if not cells:
            return undecided()
        said, far, shared = [], [], []
        for (n, share), value, error in cells:
            asked = printed[n, share] / (2 if trial.planted else 1)
            off = distance(value, error, asked, DESIGN[1])
            far.append(off)
            shared.append((value, error, asked))
            said.append(
                f"{100 * value:.1f}% ({100 * error:.1f}) against {100 * asked:.0f}% at {n} prompts and "
                f"{100 * share:.0f}% of labels, {off:+.1f} standard errors"
            )
        worst, holds = max(far, key=abs), agree(shared)
        return Evidence(
            holds=holds,
            measured=f"coverage {100 * min(c[1] for c in cells):.1f}% to {100 * max(c[1] for c in cells):.1f}%, "
            f"{worst:+.1f} standard errors off at worst",
            expected=f"each of {len(cells)} shared cells as printed, within {ERRORS:g} standard errors",
            text=explained(
                STUDY,
                where,
                f"{'; '.join(said)}. A standard error is ours and that of {RUNS} runs over a design effect of "
                f"{DESIGN[1]:g}; with {DESIGN[0]:g}, a row agrees only where it does so too. The table has "
                f"{len(printed) - len(cells)} cells besides.",
            ),
            needs=f"the design effect of the paper's runs, taken as {DESIGN[0]:g} to {DESIGN[1]:g}, on which it depends"
            if holds is None
            else "",
        )

    return decide


def decide_diagnostics(trial: Trial) -> Evidence:
    """Mean and SD of Z of the jackknife at 5% of labels, beside the printed ones."""
    tables, where = tables_of(STUDY, trial.results)
    name = next((one for one in tables if one.startswith("Coverage, mean and sd of Z")), "")
    key = {"oracle_fraction": "0.05", "method": "plug_in_jackknife", "label_design": "base"}
    row = next((one for one in tables.get(name, ()) if key.items() <= one.items()), None)
    mean, sd = (figures(row[column]) if row else None for column in ("mean_z", "sd_z"))
    if mean is None or sd is None:
        return undecided()
    asked = PAPER_MEAN, PAPER_SD * (2 if trial.planted else 1)
    errors = (
        PAPER_SD * math.sqrt(DESIGN[1] / ROW_RUNS),
        PAPER_SD * math.sqrt(DESIGN[1] / (2 * ROW_RUNS)),
    )  # of the printed mean and SD, normal Z
    off = [
        (ours[0] - paper) / math.hypot(ours[1], error)
        for ours, paper, error in zip((mean, sd), asked, errors, strict=True)
    ]
    return Evidence(
        holds=max(map(abs, off)) <= ERRORS,
        measured=f"SD(Z) {sd[0]:g} ({sd[1]:g}), mean {mean[0]:+g} ({mean[1]:g})",
        expected=f"SD(Z) {PAPER_SD:g}, mean {PAPER_MEAN:+g}, within {ERRORS:g} standard errors",
        mcse=sd[1],
        text=explained(
            STUDY,
            where,
            f"Z = (estimate - truth) / SE of the jackknife at 5% of labels has an SD of {sd[0]:g} ({sd[1]:g}) and "
            f"a mean of {mean[0]:+g} ({mean[1]:g}), {off[1]:+.1f} and {off[0]:+.1f} standard errors from the printed "
            f"{PAPER_SD:g} and {PAPER_MEAN:+g}; the table's own errors are those of {ROW_RUNS} runs over a design "
            f"effect of {DESIGN[1]:g}. With the sum divided by K, Z is sqrt(5) times as wide, an SD of "
            f"{sd[0] * math.sqrt(5):.2f} where calibration is all of the variance.",
        ),
    )


def claim(name: str, statement: str, decide: Callable[[Trial], Evidence], planted: str, source: str) -> Claim:
    """A claim about one of the two tables."""
    return Claim(
        name=name,
        source=source,
        statement=statement,
        rule=f"the tables of study {STUDY}; met within {ERRORS:g} standard errors, ours and the printed figure's",
        why="Simulated in a world of known truth; each figure in brackets is a Monte Carlo standard error.",
        decide=decide,
        planted=planted,
        kind="number",
        study=STUDY,
    )


CLAIMS: tuple[Claim, ...] = (
    claim(
        "tab-uq-comparison",
        "cluster-robust intervals cover as printed, 15 to 52%, cell by cell where the study has the table's cell (the "
        "bootstrap is bootstrap-borrowed's, the jackknife tab-uq-jackknife's)",
        of_cells("plug_in_cluster", "cluster-robust"),
        "half of each printed coverage",
        "tab:uq-comparison, cluster-robust, labels under the base policy as in the paper's set-up",
    ),
    claim(
        "tab-uq-jackknife",
        "the calibration-aware jackknife covers as printed, 70 to 89%, cell by cell where the study has the table's "
        "cell",
        of_cells("plug_in_jackknife", "calibration-aware jackknife"),
        "half of each printed coverage",
        "tab:uq-comparison, calibration-aware jackknife, labels under the base policy as in the paper's set-up",
    ),
    claim(
        "tab-uq-diagnostics",
        "the calibration-aware jackknife has the printed SD(Z) and mean Z at 5% of labels",
        decide_diagnostics,
        "twice the printed SD",
        "tab:uq-diagnostics, calibration-aware jackknife at 5% of labels",
    ),
)
