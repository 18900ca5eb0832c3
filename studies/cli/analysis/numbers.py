"""How ``cje-lab analyze`` writes its numbers and names: decimals by the scale, a dash for what is not there."""

import math
from collections.abc import Iterable, Sequence

import xarray as xr

from cje_core.workflow.analysis import Analysis
from cje_core.workflow.shown import decimals
from cje_core.workflow.standing import withheld


def cell(analysis: Analysis, estimator: str, policy: str, *, interval: bool = False) -> str:
    """Estimate, with its interval on demand, the named status of a failure, or that the level is refused."""
    if withheld(analysis, estimator, policy):
        return "level refused"
    status = analysis.status(estimator, policy)
    at = analysis.estimates[estimator].sel(policy=policy)
    value = float(at["estimate"])
    if status.failed or math.isnan(value):
        return status.name.lower()
    if interval:
        return interval_text(analysis, value, at["interval"].values.tolist())
    return plain(analysis, value)


def interval_text(
    analysis: Analysis, value: float | None, bounds: Sequence[float | None], *, sign: bool = False
) -> str:
    """Write a value with its interval in brackets; a dash for what there is not."""
    if value is None:
        return "-"
    shown = ", ".join("-" if b is None or math.isnan(b) else plain(analysis, b, sign=sign) for b in bounds)
    return f"{plain(analysis, value, sign=sign)} [{shown}]"


def plain(analysis: Analysis, value: float, *, sign: bool = False) -> str:
    """Format with three decimals on a [0, 1] scale, fewer on a wider one."""
    return f"{value:{'+' if sign else ''}.{decimals(analysis.data.attrs['oracle_range'])}f}"


def p_value(p: float) -> str:
    """Three decimals; below .001 no more than that."""
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def percent(analysis: Analysis) -> str:
    """Coverage of the intervals, as a percentage."""
    return f"{100 * float(analysis.estimates[analysis.primary].attrs['ci_prob']):g}%"


def known(value: object) -> float | None:
    """Read a number; None for NaN and for the infinite."""
    number = float(value)  # type: ignore[arg-type]
    return number if math.isfinite(number) else None


def ends(interval: xr.DataArray) -> list[float | None]:
    """Read both ends of an interval."""
    return [known(end) for end in interval.values]


def numbers(found: xr.Dataset, *names: str) -> dict[str, float | None]:
    """Read variables that hold one number each."""
    return {name: known(found[name]) for name in names}


def probability(p: float | None) -> str:
    """Three decimals; a share of draws that is 0 or 1 says no more than that."""
    if p is None:
        return "-"
    return "<0.001" if p < 0.001 else ">0.999" if p > 0.999 else f"{p:.3f}"


def some(names: Sequence[object], most: int = 5) -> str:
    """The first few of some names, and that there are more."""
    return ", ".join([*map(str, names[:most]), *["..."] * (len(names) > most)])


def together(said: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Words, and the policies that they are said of, from pairs (policy, words)."""
    policies: dict[str, list[str]] = {}
    for policy, words in said:
        policies.setdefault(words, []).append(policy)
    return {words: ", ".join(names) for words, names in policies.items()}
