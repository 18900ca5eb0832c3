"""Page of the checks of log-likelihoods."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from rich.text import Text

from cje_core.checks import FloatArray
from cje_core.data import DataError
from cje_core.offpolicy.log_likelihoods import check, ratio_summary, refuted, summarise
from studies.cli.analysis.lines.cautions import REFUTED
from studies.cli.audit.told import Told, number, records, table
from studies.cli.wide import page

MOST_ROWS = 20  # violations that are shown one by one


def of_likelihoods(calls: pd.DataFrame, ratios: Mapping[str, FloatArray], *, clones: Sequence[str]) -> Told:
    """Page of the checks of log-likelihoods."""
    for name in clones:
        if name not in ratios:
            held = ", ".join(ratios) or "none: the file has no target_policy_logprobs"
            raise DataError(f"clone={name!r}: no log ratios of such a policy; there are {held}")
    violations, shares = check(calls), summarise(calls)
    ran = [
        name
        for name in shares["check"].values.tolist()
        if shares["check_pass_share"].sel(check=name).notnull().any()
    ]
    shown = table("policy", "rows", "pass all", *ran)
    for policy in shares["policy"].values.tolist():
        at = shares.sel(policy=policy)
        cells = [number(at["check_pass_share"].sel(check=name), ".3%") for name in ran]
        shown.add_row(Text(policy), str(int(at["n_rows"])), number(at["pass_share"], ".3%"), *cells)
    parts: list[Any] = [shown]
    places = calls.loc[violations.index, ["file", "row"]]
    lines = [
        f"{file}, row {row}: policy {policy}: {name}: {reason}"
        for (policy, name, reason), (file, row) in zip(
            violations[["policy", "check", "reason"]].itertuples(index=False),
            places.itertuples(index=False),
            strict=True,
        )
    ]
    silent = [name for name in shares["check"].values.tolist() if name not in ran]
    shown_lines = [
        *lines[:MOST_ROWS],
        *[f"... and {len(lines) - MOST_ROWS} more (see the JSON)"] * (len(lines) > MOST_ROWS),
    ]
    if lines:
        shown_lines.append(
            "next: leave these rows out and ask the server why: a slip of 0.7 nats is a factor two in a weight"
        )
    if silent:
        shown_lines.append(f"not checked, for want of their fields: {', '.join(silent)}")
    parts.append(Text("\n".join(shown_lines)))
    found, of_ratios = bool(lines), None
    if ratios:
        summary = ratio_summary(ratios)
        too_large = refuted(summary["mean_ratio"].values, REFUTED)
        spread = table(
            "log ratios to\nthe logger", "rows", "mean", "sd", "exactly 1", "ESS/n", "mean ratio", "verdict"
        )
        for policy, large in zip(summary["policy"].values.tolist(), too_large, strict=True):
            at = summary.sel(policy=policy)
            unlike = policy in clones and float(at["equal_share"]) < 1
            words = ["not a likelihood ratio"] * bool(large) + ["differs from the logger"] * unlike
            found |= bool(words)
            spread.add_row(
                Text(policy), str(int(at["n_usable"])), number(at["mean"], "+.3g"), number(at["sd"], ".3g"),
                number(at["equal_share"], ".1%"), number(at["ess_fraction"], ".3g"), number(at["mean_ratio"], ".3g"),
                "; ".join(words) or "nothing found",
            )  # fmt: skip
        parts += [
            spread,
            Text(
                f"not a likelihood ratio: its mean is {1 / REFUTED:g} or more, which happens to one with probability "
                "at most "
                f"{REFUTED:g}. differs from the logger: a policy declared to be the logger has ratios other than 1, "
                "all of "
                "them errors of teacher forcing"
            ),
        ]
        of_ratios = [
            record | {"refuted": bool(large), "clone": record["policy"] in clones}
            for record, large in zip(records(summary, "policy"), too_large, strict=True)
        ]
    json = {
        "found": found,
        "policies": records(shares, "policy", "check"),
        "violations": [
            record | {"file": file, "row": int(row)}
            for record, (file, row) in zip(
                violations.to_dict("records"), places.itertuples(index=False), strict=True
            )
        ],
        "ratios": of_ratios,
    }
    return Told("likelihoods", page(parts), json, found)
