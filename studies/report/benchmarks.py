"""The page of benchmarks: Markdown made of what `studies.engine.benchmark.run_all` measured, and of nothing else."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cje_core.data import DataError
from studies.engine.benchmark import ENOUGH, SCHEMA

SECONDS = {"second": 1, "minute": 60}
PREFIXES = {1e9: "G", 1e6: "M", 1e3: "k", 1.0: "", 1e-3: "m", 1e-6: "µ", 1e-9: "n"}
HEADER = ("case", "by", "CPU a call", "{unit} a {per}", "times {first}", "first call", "peak MB", "laps")
HOW_TO_READ = """\
Made by `cje-lab bench --profile {profile} --json`, and this page from its output by `cje-lab bench --page`; nothing
is typed. Contenders take turns, a lap each in every round; numbers are medians over rounds with the lowest and the
highest in brackets. CPU seconds count every thread and every process that a call starts. *Times* is the CPU time of a
lap divided by that of the first contender in the same round: above 1, the first one is faster. *First call*: with
everything that is compiled or imported then. *Peak MB*: of a process that holds libraries and data, in parentheses
what the calls added. *Laps*: rounds, times calls in each; a contender that used {enough:.0f} CPU seconds stops. A
*limit* is what no implementation could do without; its rate is that of this machine's memory or generator.
"""


def read(path: Path) -> dict[str, Any]:
    """Load what ``cje-lab bench --json`` printed."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no JSON"
        raise DataError(f"{path}: {reason}; give a file that cje-lab bench --json made") from error
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise DataError(f"{path}: not of schema {SCHEMA}; give a file that cje-lab bench --json made")
    return found


def earlier(found: Mapping[str, Any]) -> dict[str, Any]:
    """What a later run keeps of this one: its commit, and seconds a call of the first contender of each case."""
    seconds = {
        name: {case["case"]: case["contenders"][0]["seconds"] for case in one["cases"] if case["contenders"]}
        for name, one in found["benchmarks"].items()
    }
    return {"commit": found["machine"]["git_commit"], "seconds": seconds}


def updated(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Replace benchmarks of an earlier run by those of a new one, each with the machine and load that it was run on.

    Their comparison with a version before the earlier run goes: it was of other measurements.
    """
    if old["profile"] != new["profile"]:
        raise DataError(
            f"the earlier run is of the profile {old['profile']}, the new one of {new['profile']}"
        )
    again = {name: {**one, "machine": new["machine"]} for name, one in new["benchmarks"].items()}
    found = {**old, "benchmarks": dict(sorted({**old["benchmarks"], **again}.items()))}
    if "before" in old:
        seconds = {name: one for name, one in old["before"]["seconds"].items() if name not in again}
        found["before"] = {**old["before"], "seconds": seconds}
    return found


def render(found: Mapping[str, Any]) -> str:
    """The page, in Markdown; with the times of an earlier version where it has them (``before``)."""
    parts = [
        "# Benchmarks",
        HOW_TO_READ.format(profile=found["profile"], enough=ENOUGH).strip(),
        _where(found["machine"]),
    ]
    for name, one in found["benchmarks"].items():
        parts += [f"## {one['title']} (`{name}`)", one["about"]]
        if "machine" in one:
            parts.append(f"Run apart from the others: {_where(one['machine'])}")
        if one["cases"]:
            parts.append(_table(one))
        if "before" in found:
            parts += _before(one, found["before"]["seconds"].get(name, {}), found["before"]["commit"])
        lines = [f"- {note}" for note in one["notes"]] + [f"- {line}" for line in _extrapolated(one)]
        if lines:
            parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _where(built: Mapping[str, Any]) -> str:
    """Versions, machine, and the load before and after."""
    versions, (before, after) = built["versions"], built["load"]
    return (
        f"Commit {(built['git_commit'] or 'unknown')[:12]}, Python {versions['python']}, NumPy {versions['numpy']}, "
        f"numba {versions['numba']}; {built['machine']['system']} {built['machine']['architecture']}, "
        f"{built['machine']['cores']} cores, load {before:.2f} before and {after:.2f} after."
    )


def _table(one: Mapping[str, Any]) -> str:
    """All contenders of all cases."""
    first = one["cases"][0]["contenders"][0]["name"]
    rows = [[cell.format(unit=one["unit"], per=one["per"], first=first) for cell in HEADER]]
    rows += [
        [case["case"] if k == 0 else "", *_row(row, one["per"], first)]
        for case in one["cases"]
        for k, row in enumerate(case["contenders"])
    ]
    width = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, width, strict=True)) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "|".join("-" * (w + 2) for w in width) + "|", *lines[1:]])


def _row(row: Mapping[str, Any], per: str, first: str) -> list[str]:
    memory = f"{row['peak_mb']:.0f} (+{row['added_mb']:.0f})" if row["peak_mb"] is not None else "-"
    return [
        f"{row['name']} {row['version']}".strip(),
        f"{_scaled(row['seconds'], 's')}",
        _count(row["rate"] * SECONDS[per]),
        _scaled(row["multiple"], None) if row["name"] != first else "1",
        _si(row["first_seconds"], "s"),
        memory,
        f"{row['rounds']} x {row['calls']}",
    ]


def _before(one: Mapping[str, Any], seconds: Mapping[str, Any], commit: str | None) -> Sequence[str]:
    """Times of the cases that an earlier version was measured in, on whatever machine and under whatever load."""
    rows = [
        f"- {case['case']}: {_scaled(was, 's')}, now {_scaled(now, 's')}, "
        f"{_digits(now['median'] / was['median'])} of it"
        for case in one["cases"]
        if case["contenders"] and (was := seconds.get(case["case"])) is not None
        for now in [case["contenders"][0]["seconds"]]
    ]
    return [f"Before, at commit {(commit or 'unknown')[:12]}:", "\n".join(rows)] if rows else []


def _extrapolated(one: Mapping[str, Any]) -> Sequence[str]:
    """What the whole of a case would take at the measured rate."""
    return [
        f"{row['name']}: {case['whole'][1]} would take {case['whole'][0] / row['rate'] / 60:.2g} CPU minutes"
        for case in one["cases"]
        if case["whole"]
        for row in case["contenders"]
        if row["role"] != "limit"
    ]


def _scaled(spread: Mapping[str, float], unit: str | None) -> str:
    """Median with the lowest and the highest, all in the median's unit (None: plain numbers)."""
    scale = _scale(spread["median"]) if unit is not None else 1.0
    median, low, high = (_digits(spread[key] / scale) for key in ("median", "low", "high"))
    return f"{median}{f' {PREFIXES[scale]}{unit}' if unit is not None else ''} [{low}, {high}]"


def _si(value: float, unit: str) -> str:
    return f"{_digits(value / _scale(value))} {PREFIXES[_scale(value)]}{unit}".strip()


def _count(value: float) -> str:
    return _si(value, "") if value >= 1 else _digits(value)


def _scale(value: float) -> float:
    return next((size for size in PREFIXES if abs(value) >= size), min(PREFIXES))


def _digits(value: float) -> str:
    """Three significant digits, never in powers of ten where there is another way."""
    return f"{value:.3g}" if value < 999.5 else f"{value:,.0f}"
