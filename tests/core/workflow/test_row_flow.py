"""The flow of rows: counts against loops, bounds against every worth of the ungraded at the ends."""

import itertools

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from cje_core.io import from_frame
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


def labelled_gone(told: dict[str, dict[str, float]]) -> pd.DataFrame:
    """Ungraded items by policy and prompt, with their labels."""
    rows = [
        ("f", 9, p, q, "ungraded: j gave no number", y)
        for p, labels in told.items()
        for q, y in labels.items()
    ]
    return pd.DataFrame(rows, columns=[*GONE, "oracle_label"])


def test_the_ungraded_are_valued_by_the_labels_of_the_labelled_among_them() -> None:
    """A policy's own where four prompts have one, else those of all that teach, else nothing."""
    own = {f"u{k}": y for k, y in enumerate([0.1, 0.2, 0.3, 0.6])}
    gone = labelled_gone({"a": own, "b": {"u0": 0.0, "u9": np.nan}, "c": {}})
    table = pd.DataFrame(
        {"policy": p, "prompt_id": f"q{k}", "judge_score": 0.5, "oracle_label": 0.5 if p == "a" else np.nan}
        for p in "abc" for k in range(6)
    )  # fmt: skip
    flow = row_flow(from_frame(table), gone, valued(from_frame(table), {"a": 0.9, "b": 0.5, "c": 0.4}))
    assert flow.calibrated.values[:2] == pytest.approx([0.6 * 0.9 + 0.4 * 0.3, 0.75 * 0.5 + 0.25 * 0.3])
    assert flow.ungraded_labels.values.tolist() == [4, 4, 0] and np.isnan(flow.calibrated[2])
    few = row_flow(from_frame(table), gone[:3], valued(from_frame(table), {"a": 0.9, "b": 0.5, "c": 0.4}))
    assert few.calibrated.isnull().all()


def test_the_interval_of_the_ungraded_stays_on_the_scale() -> None:
    """What chance of being graded adds would else go beyond its end."""
    told = {f"u{k}": y for k, y in enumerate([1.0, 0.8, 0.9, 1.0, 0.8, 0.9])}
    table = pd.DataFrame(
        {"policy": "a", "prompt_id": f"q{k}", "judge_score": 0.5, "oracle_label": 1.0} for k in range(6)
    )
    value = valued(from_frame(table), {"a": 1.0})
    value["interval"] = (("policy", "ci_bound"), [[0.9, 1.0]])
    flow = row_flow(from_frame(table), labelled_gone({"a": told}), value)
    low, high = flow.calibrated_interval[0].values
    assert low < flow.calibrated[0] < high == 1.0


@pytest.mark.slow
def test_the_interval_of_the_ungraded_covers_what_all_responses_are_worth() -> None:
    """300 data sets in which the ungraded are worth .6 less: at least 95% less five Monte Carlo standard errors.

    Each stands as a policy, whose own labels are all that its number takes.
    """
    rng, reps = np.random.default_rng(4), 300
    n, share, m = 150, 0.3, 12
    tables, told, worth, half = [], {}, {}, []
    for policy in (f"{r:03d}" for r in range(reps)):
        lost = rng.random(n) < share
        y = np.where(lost, 0.2, 0.8) + rng.uniform(-0.2, 0.2, n)
        graded, worth[policy] = np.flatnonzero(~lost), float(y[~lost].mean())
        half.append(1.96 * float(y[~lost].std(ddof=1)) / np.sqrt(len(graded)))
        tables.append(
            pd.DataFrame(
                {
                    "policy": policy,
                    "prompt_id": graded.astype(str),
                    "judge_score": 0.5,
                    "oracle_label": y[graded],
                }
            )
        )
        told[policy] = {str(k): float(y[k]) if i < m else np.nan for i, k in enumerate(np.flatnonzero(lost))}
    data = from_frame(pd.concat(tables, ignore_index=True))
    value = valued(data, worth)
    value["interval"] = (("policy", "ci_bound"), value["estimate"].values[:, None] + np.outer(half, [-1, 1]))
    flow = row_flow(data, labelled_gone(told), value)
    assert (flow.ungraded_labels == m).all()
    low, high = flow.calibrated_interval.values.T
    truth = (1 - share) * 0.8 + share * 0.2
    hits = (low <= truth) & (truth <= high)
    assert hits.mean() >= 0.95 - 5 * np.sqrt(0.95 * 0.05 / reps)
