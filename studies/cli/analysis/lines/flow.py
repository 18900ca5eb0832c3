"""The table of rows that ``cje-lab analyze`` prints: read, left out, judged, labelled, probed."""

import math

from rich.text import Text

from cje_core.workflow.analysis import Analysis
from cje_core.workflow.reading.row_flow import COUNTS
from studies.cli.analysis.numbers import interval_text, plain
from studies.cli.wide import Wide


def flow_table(analysis: Analysis) -> list[Wide]:
    """Rows of each policy where some were left out, with the values that the ungraded ones may make of it."""
    flow = analysis.row_flow
    if not int(flow["left_out"].sum()):
        return []
    shown = Wide()
    shown.add_column("rows", overflow="fold", min_width=8)
    for name in COUNTS:
        shown.add_column(name.replace("_", " "), no_wrap=True, justify="right")
    shown.add_column("value if the ungraded\nare worth least, most", no_wrap=True, justify="right")
    valued = bool(flow["calibrated"].notnull().any())
    if valued:
        shown.add_column("as labelled ones are\n[interval]", no_wrap=True, justify="right")
    for policy in flow["policy"].values.astype(str).tolist():
        at = flow.sel(policy=policy)
        ends = [float(at["worst"]), float(at["best"])]
        bounds = "-" if any(map(math.isnan, ends)) else ", ".join(plain(analysis, end) for end in ends)
        told = float(at["calibrated"])
        interval = [float(end) for end in at["calibrated_interval"].values]
        by_labels = "-" if math.isnan(told) else interval_text(analysis, told, interval)
        more = [by_labels] * valued
        shown.add_row(Text(policy), *(str(int(at[name])) for name in COUNTS), bounds, *more)
    return [shown]


def flow_lines(analysis: Analysis) -> list[str]:
    """The same in a line, where every row was used."""
    flow = analysis.row_flow
    if int(flow["left_out"].sum()):
        return []
    total = {name: int(flow[name].sum()) for name in COUNTS}
    return [f"rows: {total['read']} read, all judged, {total['labelled']} labelled, {total['probes']} probes"]
