"""What became of every row: read, left out and why, judged, labelled, probed; and what the ungraded may hide.

An item that the judge did not grade is left out of the means, so the value is that of the graded. What the others
are worth is unknown: between the ends of the oracle's scale. With a share w of a policy's prompts ungraded (of a prompt
with some of its draws graded, the share of the others), its value v and interval lie, whatever they are worth, within

    (1 - w) v + w low   and   (1 - w) v + w high.

Where the oracle labelled some of them, they are valued by those labels too: `cje_core.workflow.reading.ungraded`.
"""

import numpy as np
import pandas as pd
import xarray as xr

from cje_core.io.intake.foreign import UNGRADED, UNUSABLE
from cje_core.workflow.reading.ungraded import ungraded_worth

COUNTS = ("read", "left_out", "judged", "labelled", "probes")


def row_flow(data: xr.Dataset, left_out: pd.DataFrame, value: xr.Dataset) -> xr.Dataset:
    """Counts of rows by policy, and bounds of the values over what the ungraded may be worth.

    Parameters
    ----------
    data : xr.Dataset
        Evaluation data.
    left_out : DataFrame
        As of `cje_core.io.files.read`.
    value : xr.Dataset
        The value that stands first, ``value`` of `cje_core.workflow.analysis.Analysis`.

    Returns
    -------
    xr.Dataset
        Over ``policy``, those of which no row was usable too: ``read``, ``left_out`` (responses that could not be
        used), ``judged`` (responses in the means), ``labelled``, ``probes``, ``ungraded_share``; ``worst`` and
        ``best``, the value if the ungraded were all worth least, and most; ``bounds(policy, ci_bound)``, its interval
        then. ``calibrated``, ``calibrated_interval(policy, ci_bound)`` and ``ungraded_labels``: the value with the
        ungraded at the mean label of the labelled among them.

    Examples
    --------
    >>> from cje_core.data import from_arrays
    >>> data = from_arrays([[0.2, 0.8, 0.5]], policies=["a"])
    >>> gone = pd.DataFrame([["f", 4, "a", "q9", "ungraded: no number"]],
    ...                     columns=["file", "row", "policy", "prompt_id", "reason"])
    >>> value = xr.Dataset({"estimate": ("policy", [0.4]), "interval": (("policy", "ci_bound"), [[0.2, 0.6]])},
    ...                    coords={"policy": ["a"], "ci_bound": ["lower", "upper"]})
    >>> flow = row_flow(data, gone, value).sel(policy="a")
    >>> int(flow.read), int(flow.judged), round(float(flow.worst), 3), round(float(flow.best), 3)
    (4, 3, 0.3, 0.55)
    """
    gone = left_out[left_out["reason"].astype(str).str.startswith((UNGRADED, UNUSABLE))]
    gone = gone.assign(policy=gone["policy"].astype(str), prompt_id=gone["prompt_id"].astype(str))
    held = data["policy"].values.astype(str).tolist()
    policies = [*held, *sorted(set(gone["policy"]) - set(held))]
    number = data.get("stands_for", xr.ones_like(data["judge"]))
    sums = {name: (data[of] * number).sum(["prompt", "draw"]) for name, of in
            (("judged", "evaluated"), ("labelled", "labelled"), ("probes", "probe"))}  # fmt: skip
    counts = {
        name: [round(float(of.sel(policy=p))) if p in held else 0 for p in policies]
        for name, of in sums.items()
    }
    counts["left_out"] = [int((gone["policy"] == policy).sum()) for policy in policies]
    counts["read"] = [a + b for a, b in zip(counts["judged"], counts["left_out"], strict=True)]
    share = np.array([_share(data, gone, policy) for policy in policies])
    low, high = (float(end) for end in data.attrs["oracle_range"])
    worth = value["estimate"].reindex(policy=policies).values
    interval = value["interval"].reindex(policy=policies).transpose("policy", "ci_bound").values
    ends = np.array([low, high])
    valued = ungraded_worth(data, gone, value, dict(zip(policies, share.tolist(), strict=True)))
    return xr.Dataset(
        {
            **{name: ("policy", counts[name]) for name in COUNTS},
            "ungraded_share": ("policy", share),
            "worst": ("policy", (1 - share) * worth + share * low),
            "best": ("policy", (1 - share) * worth + share * high),
            "bounds": (("policy", "ci_bound"), (1 - share)[:, None] * interval + share[:, None] * ends),
        },
        coords={"policy": policies, "ci_bound": ["lower", "upper"]},
    ).merge(valued)


def _share(data: xr.Dataset, gone: pd.DataFrame, policy: str) -> float:
    """Share of a policy's prompts that is ungraded; 1 where nothing was graded, 0 where all was."""
    missing = gone.loc[gone["policy"] == policy, "prompt_id"].value_counts()
    if missing.empty:
        return 0.0
    if policy not in data["policy"].values.astype(str):
        return 1.0
    graded = data["evaluated"].sel(policy=policy).sum("draw")
    of_prompt = graded.to_series()
    of_prompt = of_prompt[of_prompt > 0]
    of_prompt.index = of_prompt.index.astype(str)
    there = of_prompt.reindex(missing.index).fillna(0.0)
    prompts = len(of_prompt.index.union(missing.index))
    return float((missing / (missing + there)).sum() / prompts)
