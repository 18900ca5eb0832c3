"""What ``cje-lab analyze`` says of levels refused for want of labels: their reach, their order, where to label next."""

from typing import Any

import xarray as xr

from cje_core.workflow.analysis import Analysis
from studies.cli.analysis.numbers import ends, known, numbers, plain

SIDES = {"low": "below", "high": "above"}


def support_lines(analysis: Analysis) -> list[str]:
    """Share out of range and boundary, order, and labels to buy, of each policy refused for want of them."""
    wanting = _wanting(analysis)
    return [
        line for policy in wanting for line in (*_reach(analysis, policy), *_to_label(analysis, policy))
    ] + _order(analysis, wanting)


def support(analysis: Analysis, policy: str) -> dict[str, Any] | None:
    """How much of a policy lies beyond the labelled range, and how flat the calibrator is there."""
    if analysis.coverage is None:
        return None
    at = analysis.coverage.sel(policy=policy)
    sides = {
        word: {
            "share": known(at[f"out_{side}"]),
            "beyond": known(at[f"score_{side}"]),
            "slope": known(at[f"slope_{side}"]),
            "flat": bool(at[f"flat_{side}"]),
        }
        for side, word in SIDES.items()
    }
    return {"out_of_range": known(at["out_of_range"]), **sides}


def label_next(analysis: Analysis, policy: str) -> dict[str, Any] | None:
    """Regions of the judge's scale, and how many responses to label in each; None where support is not wanting."""
    if analysis.next_labels is None or policy not in _wanting(analysis):
        return None
    at = analysis.next_labels.sel(policy=policy)
    return {
        "half_width": known(at["half_width"]),
        "margin": float(at.attrs["margin"]),
        "regions": [_region(at.isel(region=k)) for k in range(at.sizes["region"]) if at["kind"].values[k]],
    }


def order_records(analysis: Analysis) -> list[dict[str, Any]]:
    """Order of the pairs in which a level is refused, with conservative intervals of the differences."""
    if analysis.order is None:
        return []
    pairs = analysis.order.isel(pair=analysis.order["refused"].values)
    return [
        {
            "first": str(at["first"].item()),
            "second": str(at["second"].item()),
            "order": str(at["order"].item()),
            "interval": ends(at["interval"]),
            "takes_monotone": bool(at["monotone"]),
        }
        for at in (pairs.isel(pair=k) for k in range(pairs.sizes["pair"]))
    ]


def _wanting(analysis: Analysis) -> list[str]:
    return [policy for policy in analysis.policies if analysis.bounds_hold(policy)]


def _region(at: xr.Dataset) -> dict[str, Any]:
    return {
        "where": str(at["kind"].item()),
        **numbers(at, "low", "high", "share"),
        **{name: int(at[name]) for name in ("n_responses", "n_labels", "labels")},
        **numbers(at, "label_prob"),
    }


def _reach(analysis: Analysis, policy: str) -> list[str]:
    found = support(analysis, policy)
    if found is None:
        return []
    words = [
        f"{found[word]['share']:.0%} of its scores lie {word} {found[word]['beyond']:.3g}, the "
        f"{'highest' if word == 'above' else 'lowest'} with a label, where the calibrator is "
        f"{'flat' if found[word]['flat'] else 'not flat'} (slope {found[word]['slope']:.2f})"
        for word in SIDES.values()
        if found[word]["share"] > 0
    ]
    return [f"support of {policy}: {'; '.join(words)}"] if words else []


def _to_label(analysis: Analysis, policy: str) -> list[str]:
    found = label_next(analysis, policy)
    if found is None:
        return []
    parts = []
    for at in found["regions"]:
        where = f"that score {at['low']:.3g} to {at['high']:.3g}"
        if at["where"] == "covered":
            where = "where labels are" if len(found["regions"]) > 1 else "that it has"
        parts.append(f"{at['labels']} of the {at['n_responses']} {where} (label_prob {at['label_prob']:.3g})")
    return [
        f"label next: {policy}: {', '.join(parts)}, each at random: its level is then known to "
        f"about {plain(analysis, found['half_width'])}, with nothing borrowed"
    ]


def _order(analysis: Analysis, wanting: list[str]) -> list[str]:
    """Rank-only statements: each pair that is ordered, and the policies that stand in none."""
    lines, placed = [], set()
    for record in order_records(analysis):
        pair = (record["first"], record["second"])
        if record["order"] == "not ordered" or not set(pair) & set(wanting):
            continue
        placed |= set(pair)
        low, high = record["interval"]
        if record["order"] == "lower":
            pair, low, high = pair[::-1], -high, -low
        also = " and no higher score is worse" if record["takes_monotone"] else ""
        if also and analysis.calibrated.calibration.direction == "decreasing":
            also = " and no higher score is better"
        lines.append(
            f"order: {pair[0]} is above {pair[1]}, by {plain(analysis, low)} to {plain(analysis, high)}, if the judge "
            f"means the same where labels are{also}"
        )
    left = [policy for policy in wanting if policy not in placed]
    if left and len(analysis.policies) > 1:
        lines.append(f"order: not decided for {', '.join(left)}: bounds overlap those of every other policy")
    return lines
