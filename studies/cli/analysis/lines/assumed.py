"""The assumptions ledger as ``cje-lab analyze`` shows it: one row for each assumption that something here rests on."""

import math
from typing import Any

import numpy as np
from rich.text import Text

from cje_core.workflow.analysis import Analysis
from studies.cli.analysis.numbers import known, some
from studies.cli.wide import Wide

WORST_FIRST = ("FAIL", "INCONCLUSIVE", "NOT_CHECKED", "PASS")


def assumption_table(analysis: Analysis) -> list[Wide]:
    """Verdicts, the worst number and who relies on it; nothing where no estimate rests on anything."""
    rows = [row for row in _rows(analysis) if row["estimators"]]
    if not rows:
        return []
    shown = Wide()
    shown.add_column("assumption\n(rests on it)", overflow="fold", min_width=20)
    shown.add_column("worst measured (threshold)", no_wrap=True)
    shown.add_column("verdict", overflow="fold", min_width=20)
    for row in rows:
        name = Text(row["assumption"].replace("_", " "))
        name.append(f"\n({some(row['estimators'], 2)})", style="dim")
        shown.add_row(name, _number(row), _verdicts(row))
    return [shown]


def assumption_lines(analysis: Analysis) -> list[str]:
    """What to do about each assumption that a printed value rests on and that fails, and about unshared prompts."""
    lines = []
    for row in _rows(analysis):
        paired = row["assumption"] == "shared_prompts"
        said: dict[str, list[str]] = {}
        for at in row["policies"]:
            tells = at["verdict"] == "FAIL" or (paired and at["verdict"] != "PASS")
            if tells and analysis.standing(at["policy"]) in at["relied_on_by"]:
                words = f"{at['action']} ({at['said']})" if paired else at["action"]
                said.setdefault(f"{at['verdict']}: {{}}: {words}", []).append(at["policy"])
        name = row["assumption"].replace("_", " ")
        lines += [f"{name} {words.format(', '.join(who))}" for words, who in said.items()]
    return lines


def assumption_records(analysis: Analysis) -> list[dict[str, Any]]:
    """The ledger for a machine: every assumption, also those that nothing here rests on."""
    return _rows(analysis, every=True)


def _rows(analysis: Analysis, *, every: bool = False) -> list[dict[str, Any]]:
    """One record per assumption; of policies only those whose value rests on it, unless `every`."""
    table, rows = analysis.assumptions, []
    of = {  # arrays: a page asks for every cell of them, some three times
        str(name): column.transpose(
            "assumption", "policy", "estimator", "ci_bound", missing_dims="ignore"
        ).values
        for name, column in table.variables.items()
    }
    estimators = of["estimator"].astype(str)
    for a, relies in enumerate(of["relies"]):
        kept = np.ones(len(relies), dtype=bool) if every else relies.any(axis=1)
        cells = []
        for p in np.flatnonzero(kept):
            cells.append(
                {
                    "policy": str(of["policy"][p]),
                    "relied_on_by": estimators[relies[p]].tolist(),
                    "verdict": str(of["verdict"][a, p]),
                    "value": known(of["value"][a, p]),
                    "interval": [known(end) for end in of["interval"][a, p]],
                    "threshold": known(of["threshold"][a, p]),
                    **{name: str(of[name][a, p]) for name in ("said", "action")},
                }
            )
        rows.append(
            {
                "assumption": str(of["assumption"][a]),
                "measure": str(of["measure"][a]),
                "estimators": estimators[relies.any(axis=0)].tolist(),
                "policies": cells,
            }
        )
    return rows


def _verdicts(row: dict[str, Any]) -> str:
    """Each verdict with the policies it is about; without them where it is the only one."""
    by = {v: [at["policy"] for at in row["policies"] if at["verdict"] == v] for v in WORST_FIRST}
    seen = [verdict for verdict in WORST_FIRST if by[verdict]]
    return seen[0] if len(seen) == 1 else "\n".join(f"{verdict} {some(by[verdict], 3)}" for verdict in seen)


def _number(row: dict[str, Any]) -> str:
    """The number behind the worst verdict that has one."""
    for verdict in WORST_FIRST:
        measured = [at for at in row["policies"] if at["verdict"] == verdict and at["value"] is not None]
        if not measured:
            continue
        low_is_bad = row["assumption"] == "overlap"
        at = min(measured, key=lambda m: m["value"] if low_is_bad else -abs(m["value"]))
        low, high = at["interval"]
        between = "" if low is None else f" [{_short(low)}, {_short(high)}]"
        return f"{_short(at['value'])}{between} ({_short(at['threshold'])})"
    return "-"


def _short(value: float) -> str:
    """Three decimals, or two digits of what is smaller."""
    return f"{value:.3f}" if math.fabs(value) >= 0.0095 else f"{value:.2g}"
