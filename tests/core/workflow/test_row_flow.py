"""The flow of rows: counts against loops, bounds against every worth of the ungraded at the ends."""

import itertools

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from cje_core.data import from_frame
from cje_core.workflow.reading.row_flow import row_flow

GONE = ["file", "row", "policy", "prompt_id", "reason"]


def valued(data: xr.Dataset, worth: dict[str, float]) -> xr.Dataset:
    interval = [[worth[p] - 0.1, worth[p] + 0.1] for p in data.policy.values]
    return xr.Dataset(
        {
            "estimate": ("policy", [worth[p] for p in data.policy.values]),
            "interval": (("policy", "ci_bound"), interval),
        },
        coords={"policy": data.policy.values, "ci_bound": ["lower", "upper"]},
    )


def test_counts_and_bounds_against_all_ways_in_which_the_ungraded_may_be_worth() -> None:
    """Mean of prompts' means, with every ungraded item at 0 or 1: the least and the largest are the bounds."""
    graded = {"a": {"q0": [0.2, 0.4], "q1": [0.6], "q2": [1.0]}, "b": {"q0": [0.5], "q1": [0.7]}}
    ungraded = {"a": {"q3": 2, "q4": 1}, "c": {"q0": 1}}
    rows = [
        {"policy": p, "prompt_id": q, "judge_score": score, "draw_idx": k, "oracle_label": score if k == 0 else np.nan}
        for p, prompts in graded.items() for q, scores in prompts.items() for k, score in enumerate(scores)
    ]  # fmt: skip
    gone = [
        ("f", 9, p, q, "ungraded: j gave no number")
        for p, qs in ungraded.items()
        for q, n in qs.items()
        for _ in range(n)
    ]
    left_out = pd.DataFrame(
        [*gone, ("f", pd.NA, "", "", "not read"), ("g", 3, "a", "q0", "a probe without oracle_label")],
        columns=GONE,
    )
    data = from_frame(pd.DataFrame(rows))
    worth = {p: float(np.mean([np.mean(s) for s in prompts.values()])) for p, prompts in graded.items()}
    flow = row_flow(data, left_out, valued(data, worth))
    assert flow.policy.values.tolist() == ["a", "b", "c"]
    assert flow.read.values.tolist() == [7, 2, 1] and flow.left_out.values.tolist() == [3, 0, 1]
    assert flow.judged.values.tolist() == [4, 2, 0] and flow.labelled.values.tolist() == [3, 2, 0]
    ends = []
    for fill in itertools.product([0.0, 1.0], repeat=3):
        means = [np.mean(s) for s in graded["a"].values()] + [np.mean(fill[:2]), fill[2]]
        ends.append(np.mean(means))
    assert float(flow.worst[0]) == pytest.approx(min(ends)) and float(flow.best[0]) == pytest.approx(
        max(ends)
    )
    assert float(flow.worst[1]) == float(flow.best[1]) == worth["b"]
    assert np.isnan(flow.worst[2]) and float(flow.ungraded_share[2]) == 1.0
    share = float(flow.ungraded_share[0])
    assert flow.bounds[0].values == pytest.approx(
        [(1 - share) * (worth["a"] - 0.1), (1 - share) * (worth["a"] + 0.1) + share]
    )


def test_a_prompt_of_which_some_draws_are_graded_counts_in_part() -> None:
    data = from_frame(
        pd.DataFrame({"policy": "a", "prompt_id": [0, 0, 1], "draw_idx": [0, 1, 0], "judge_score": 0.5})
    )
    left_out = pd.DataFrame([("f", 4, "a", "1", "unusable: an error")], columns=GONE)
    flow = row_flow(data, left_out, valued(data, {"a": 0.5}))
    assert float(flow.ungraded_share[0]) == 0.25  # half of one of two prompts
