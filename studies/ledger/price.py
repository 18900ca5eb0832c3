"""What it takes to decide an open sentence of a study: how many more replicates, at a stated probability of success."""

import math
import re
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

POWER = 0.8  # probability with which the named number of replicates settles a sentence


class Gap(NamedTuple):
    """Where a sentence has a value with its Monte Carlo standard error, and what its rule holds it against.

    `errors` is how many standard errors the rule asks for; `coverage` says whether the value is one: ``--mcse`` is its
    standard error, and else that of an interval which covers 95%.
    """

    pattern: str
    cuts: tuple[float, ...]
    errors: float = 1.96
    worst_of: int = 1
    coverage: bool = False


def times(value: str, error: str, gap: Gap) -> tuple[float, float]:
    """How many times the replicates settle an open sentence with a probability of `POWER`: least and most.

    The figures are rounded; the two ends are those of all figures that round to them.

    Examples
    --------
    >>> low, high = times("1.220", ".150", Gap("", (0.85, 1.15), 3.0))
    >>> low < ((3 + 0.8416) * 0.15 / 0.07) ** 2 < high
    True
    """
    half = [10.0 ** -len(text.partition(".")[2]) / 2 for text in (value, error)]
    apart = min(abs(float(value) - cut) for cut in gap.cuts)
    asked = gap.errors + NormalDist().inv_cdf(POWER)
    near, far = max(apart - half[0], 0.0), apart + half[0]
    most = math.inf if near == 0 else (asked * (float(error) + half[1]) / near) ** 2
    return max((asked * max(float(error) - half[1], 0.0) / far) ** 2, 1.0), max(most, 1.0)


def more(
    replicates: int, profile: str, study: str, undecided: list[tuple[str, str]], gaps: Sequence[Gap]
) -> str:
    """What it takes to answer the open sentences: how many replicates, each as far as it is from its cut.

    Parameters
    ----------
    undecided : list of (sentence, rule)
    gaps : tuple of Gap
        Those whose pattern is in a sentence; the sentence that is farthest from its answer counts.
    """
    now = f"the {replicates} replicates of a cell of profile {profile}"
    told, wanted = [], []
    for sentence, _ in undecided:
        found = [(gap, match) for gap in gaps for match in re.finditer(gap.pattern, sentence)]
        if not found:
            continue
        gap, match = max(found, key=lambda one: times(one[1][1], one[1][2], one[0]))
        low, high = times(match[1], match[2], gap)
        shown = f"{low:.1f} times" if f"{low:.1f}" == f"{high:.1f}" else f"{low:.1f} to {high:.1f} times"
        if math.isinf(high):
            shown = f"{low:.1f} times or more"
        told.append(
            f"about {shown} {now} settle it with a probability of {100 * POWER:.0f}%, if {match[1]} is the true value "
            f"(as rounded, held against {' and '.join(f'{cut:g}' for cut in gap.cuts)} by {gap.errors:g} standard "
            "errors"
            + (f"; it is the worst of {gap.worst_of}, so likely nearer 1)" if gap.worst_of > 1 else ")")
        )
        size = low if math.isinf(high) else high
        nominal = 0.95 * 0.05 / replicates  # else: of an interval that covers what it should
        wanted.append((float(match[2]) if gap.coverage else math.sqrt(nominal)) / math.sqrt(size))
    left = len(undecided) - len(told)
    if left:
        rules = "; ".join(dict.fromkeys(rule for _, rule in undecided))
        told.append(f"more than {now} ({left} open, by the rule: {rules})")
    until = f" --mcse {min(wanted):.2g}" if wanted else ""
    return (
        "; ".join(told)
        + f": cje-lab run {study} --profile paper{until} --out DIR, then cje-lab claims --results DIR"
    )
