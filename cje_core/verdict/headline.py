"""The value that stands first for each policy: one estimate made of own labels, probes and what may be borrowed.

`cje_core.verdict.refusal.level` says what each policy's value rests on; here the numbers themselves are put into one
estimate, so that differences, ranks and decisions are made of the same values that are printed. A refused level is no
number: its estimate is NaN, and so is every difference with it.
"""

import json
from collections.abc import Sequence

import numpy as np
import xarray as xr

from cje_core.inference.borrowed_limits import taken_from
from cje_core.inference.estimate import Row, Status, label_estimate
from cje_core.inference.sources import rests_on_others

NUMBERS = (
    *("estimate", "std_error", "interval", "df", "effective_count"),
    *("unseen_by", "unseen_weight", "skewness", "unseen_bound"),
)
ORDER = ("reported", "assumed", "refused")  # from the strongest word to the weakest


def headline(
    estimate: xr.Dataset, levels: xr.Dataset, probed: xr.Dataset | None = None, *, route: str = "none"
) -> xr.Dataset:
    """Put the values that stand first into one estimate.

    Parameters
    ----------
    estimate, probed : xr.Dataset
        The estimates behind sources ``own`` and ``borrowed``, and behind ``probes``.
    levels : xr.Dataset
        From `cje_core.verdict.refusal.level`.
    route : str
        What to call the route of a refused level.

    Returns
    -------
    xr.Dataset
        Estimate contract over the policies of `estimate`, with ``influence`` (or ``draws``) where all parts have it,
        ``df``, and over ``policy`` the ``level`` and ``source`` of `levels`, ``taken_from`` (estimator, or empty) and
        ``borrowed`` (`cje_core.inference.sources.borrows`). Refused: NaN, with the estimate's own status where that is
        a failure and LEVEL_REFUSED elsewhere.
    """
    parts = {"own": estimate, "borrowed": estimate, "probes": estimate if probed is None else probed}
    names = [str(name) for name in estimate["policy"].values]
    source, level = (_of(levels, names, name).astype(str) for name in ("source", "level"))
    refused = level == "refused"
    rows = [Row.of(parts.get(where, estimate), name) for where, name in zip(source, names, strict=True)]
    status = [
        int(row.take("status"))
        if not no or Status(int(row.take("status"))).failed
        else int(Status.LEVEL_REFUSED)
        for row, no in zip(rows, refused, strict=True)
    ]

    def column(name: str) -> np.ndarray:
        values = np.array([row.take(name) if name in row.data else np.nan for row in rows], dtype=float)
        values[refused] = np.nan
        return values

    def shared(name: str) -> np.ndarray | None:
        return column(name) if all(name in row.data for row in rows) else None

    influence = shared("influence")
    ranges = ("oracle_range",) if "oracle_range" in estimate.attrs else ()
    behind = {"n_clusters": estimate.attrs["n_clusters"]} if "n_clusters" in estimate.attrs else {}
    prompts = () if influence is None else ("prompt", "cluster")
    kept = list(zip(rows, refused, strict=True))
    spline = taken_from(estimate, ~refused & np.array([row.data is estimate for row in rows]))
    return label_estimate(
        names,
        {
            **{name: column(name) for name in NUMBERS},
            "status": status,
            "route": [route if no else str(row.take("route")) for row, no in kept],
            "influence": influence,
            "balance": None if influence is None else _balance(rows, refused, influence.shape[1]),
            "draws": None if influence is not None else shared("draws"),
            "interval_kind": [
                "none" if no or "interval_kind" not in row.data else str(row.take("interval_kind"))
                for row, no in kept
            ],
            "level": level,
            "source": source,
            "borrowed": rests_on_others(np.array(status), source),
            **{name: held for name, held in spline.items() if isinstance(held, tuple)},
            "taken_from": ["" if no else row.data.attrs["estimator"] for row, no in kept],
        },
        estimator=str(estimate.attrs["estimator"]),
        options=json.loads(estimate.attrs["options"]),
        ci_kind=str(estimate.attrs["ci_kind"]),
        ci_prob=float(estimate.attrs["ci_prob"]),
        coords={name: ("prompt", estimate[name].values) for name in prompts},
        attrs={name: [float(end) for end in estimate.attrs[name]] for name in ranges}
        | behind
        | {name: held for name, held in spline.items() if not isinstance(held, tuple)},
    )


def _of(levels: xr.Dataset, names: Sequence[str], variable: str) -> np.ndarray:
    return np.array([Row.of(levels, name).take(variable) for name in names])


def _balance(rows: Sequence[Row], refused: np.ndarray, n: int) -> np.ndarray | None:
    """What borrowed values take from the labels of others, (P, n); None where nothing is borrowed."""
    blank = np.full(n, np.nan)
    kept = ["balance" in row.data and not no for row, no in zip(rows, refused, strict=True)]
    if not any(kept):
        return None
    return np.stack([row.take("balance") if has else blank for row, has in zip(rows, kept, strict=True)])


def weaker(*levels: str) -> str:
    """Return the weakest of some levels: a difference is no better founded than the worse of its two values.

    Examples
    --------
    >>> weaker("reported", "assumed"), weaker("refused", "reported")
    ('assumed', 'refused')
    """
    return max(levels, key=ORDER.index)
