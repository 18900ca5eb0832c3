"""Page of what audits can find, and of how many labels they take."""

import math
from collections.abc import Sequence
from typing import Any

from rich.text import Text

from cje_core import figures
from cje_core.data import DataError
from cje_core.streams import generator
from cje_core.transport.audit_size import audit_power, audit_size
from cje_core.transport.monitor_power import label_audit_power
from studies.cli.audit.told import Told, in_unit, number, records, table
from studies.cli.wide import page


def of_power(
    residual_sd: float,
    margin: float,
    labels: Sequence[int] | None,
    true_residual: Sequence[float] | None,
    *,
    aim: float,
    n_policies: int,
    seed: int,
    width: float,
) -> Told:
    """Page of the planner of audits."""
    in_unit(aim, "aim")
    for name, value in (("residual_sd", residual_sd), ("margin", margin)):
        if not 0 < value < width:
            raise DataError(
                f"{name}={value:g}: it must lie between 0 and the oracle scale's width, {width:g}"
            )
    shifts = sorted(set(true_residual or (0.0, 2 * margin, 4 * margin)))
    for shift in shifts:
        if not abs(shift) < width:
            raise DataError(
                f"true_residual={shift:g}: it must be smaller than the oracle scale's width, {width:g}"
            )
    sizes = sorted(set(labels or (25, 50, 100, 200, 400, 800)))
    reach = (width / 2, width / 2)  # a mean label in the middle of the scale
    design: dict[str, Any] = {
        "residual_sd": residual_sd, "true_residual": shifts, "margin": margin, "reach": reach
    }  # fmt: skip
    verdicts = audit_power(sizes, **design)
    needed = audit_size(aim, n_policies=n_policies, **design)
    rows = table("probes", *[f"{_right(s, margin)} if the\nresidual is {s:g}" for s in shifts])
    for n in sizes:
        at = verdicts["probability"].sel(n_probes=n)
        cells = [f"{float(at.sel(true_residual=s, verdict=_right(s, margin))):.3f}" for s in shifts]
        rows.add_row(str(n), *cells)
    counts = table(
        "true residual",
        f"probes per policy\nfor {aim:g}",
        "for all policies",
        "one by one: median\n(90%) to a verdict",
    )
    possible = residual_sd**2 < width**2 - max(abs(s) for s in shifts) ** 2
    steps = (
        label_audit_power(
            shifts, residual_sd=residual_sd, margin=margin, width=width, rng=generator(seed, "audit", "power")
        )
        if possible
        else None
    )
    for s in shifts:
        enough = needed.sel(true_residual=s)
        last = "-"
        if steps is not None:
            one = steps.sel(true_residual=s)
            last = " ".join(
                _or_more(float(one[name]), int(steps.attrs["n_most"])) for name in ("median", "ninetieth")
            )
            first, _, second = last.partition(" ")
            last = f"{first} ({second})"
        counts.add_row(f"{s:g}", number(enough["n_probes"], ".0f"), number(enough["n_labels"], ".0f"), last)
    note = Text(
        f"residual of standard deviation {residual_sd:g}, margin {margin:g}; probes at which all {n_policies} "
        "policies reach "
        f"their verdict together. One by one: {'not simulated' if steps is None else steps.attrs['replicates']} "
        "simulated "
        "sequences that may be looked at after every label"
    )
    json = {
        "residual_sd": residual_sd,
        "margin": margin,
        "power": records(verdicts, "n_probes", "true_residual"),
        "verdicts": list(verdicts["verdict"].values),
        "needed": records(needed, "true_residual"),
        "sequential": None if steps is None else {**steps.attrs, "labels": records(steps, "true_residual")},
    }
    return Told("power", page([rows, counts, note]), json, False, lambda: figures.audit_power(verdicts))


def _right(shift: float, margin: float) -> str:
    return "PASS" if abs(shift) <= margin else "FAIL"


def _or_more(count: float, most: int) -> str:
    return f"{count:.0f}" if math.isfinite(count) else f">{most}"
