"""Labels in a file of their own, joined to responses by policy, prompt and draw."""

import re
from pathlib import Path

import numpy as np
import pandas as pd

from cje_core.data.errors import DataError
from cje_core.io.fields import KEY, LEFT_OUT, check_columns, check_scale, ids, leave_out, numbers, show, stop
from cje_core.io.intake.names import CAUTION
from cje_core.io.intake.recognize import File
from cje_core.io.tables import load_file

# Columns that say which response a label is of, and are none of those that are joined by; those of who labelled it.
KEYS = re.compile(
    r"(^|_)(id|ids|idx|index|epoch|draw|sample|repeat|repetition|trial|attempt|turn|run|seed|model|key)$"
)
WHO = re.compile(r"annotator|rater|labell?er|author|user|worker|reviewer|batch|session|project|task")
FIELDS = ("policy", "prompt_id", "draw_idx", "oracle_label", "label_prob")


def join_labels(
    table: pd.DataFrame, path: str | Path, left_out: list[pd.DataFrame], scale: tuple[float, float]
) -> pd.DataFrame:
    """Responses with the labels of a file.

    Parameters
    ----------
    table : DataFrame
        Responses, checked: ``policy, prompt_id, draw_idx, oracle_label, label_prob``.
    path : path
        JSONL, CSV or Parquet of ``prompt_id``, ``oracle_label``, optional ``draw_idx`` (needed where a prompt has
        several draws), ``label_prob``, and
        ``policy``, which may be left out where there is one.
    left_out : list
        Gets the labels of no response.
    scale : pair of float
        Declared scale of the labels: one that is off it is an error of this file, not of the responses'.

    Raises
    ------
    DataError
        With file and row, for a label that contradicts one at hand, a second one, and where none finds its response.
    """
    labels, _ = load_file(Path(path), FIELDS, ("policy", "prompt_id"), ("prompt_id",))
    if labels.empty:
        raise DataError(f"{path} is empty: it has no labels; leave labels= out")
    check_columns(labels.columns, str(path), ("oracle_label",))
    _check_keys(Path(path))
    labels = labels.assign(**{field: None for field in FIELDS if field not in labels})
    policies = table["policy"].unique()
    if labels["policy"].isna().all() and len(policies) == 1:
        labels["policy"] = policies[0]
    for field in ("policy", "prompt_id"):
        labels[field] = ids(labels, field, required=True)
    for field in ("draw_idx", "oracle_label", "label_prob"):
        labels[field] = numbers(labels, field)
    labels = labels[labels["oracle_label"].notna()].reset_index(drop=True)
    n_draws = table.groupby(["policy", "prompt_id"], observed=True)["draw_idx"].size()
    of_label = n_draws.reindex(pd.MultiIndex.from_frame(labels[["policy", "prompt_id"]])).fillna(1).to_numpy()
    stop(
        labels,
        labels["draw_idx"].isna().to_numpy() & (of_label > 1),
        "draw_idx",
        lambda row: (
            f"prompt_id {show(row.prompt_id)} has several draws: say which of them the label is of, counted from 0"
        ),
    )
    only = table.drop_duplicates(["policy", "prompt_id"]).set_index(["policy", "prompt_id"])["draw_idx"]
    of_only = (
        only.reindex(pd.MultiIndex.from_frame(labels[["policy", "prompt_id"]]))
        .fillna(0)
        .to_numpy(dtype=float)
    )
    labels["draw_idx"] = np.where(labels["draw_idx"].isna(), of_only, labels["draw_idx"])
    stop(
        labels, labels.duplicated(KEY), "oracle_label", "the same response is labelled above; keep one label"
    )
    at = pd.MultiIndex.from_frame(table[KEY].astype({"draw_idx": float})).get_indexer(
        pd.MultiIndex.from_frame(labels[KEY].astype({"draw_idx": float}))
    )
    known = at >= 0
    if not known.any():
        first = labels.iloc[0] if len(labels) else None
        said = (
            "it has no number"
            if first is None
            else f"as of policy {show(first.policy)}, {show(first.prompt_id)}"
        )
        raise DataError(
            f"{path}: no label finds its response ({said}); correct its policy, prompt_id or draw_idx"
        )
    check_scale(labels, "oracle_label", scale)
    leave_out(left_out, labels[~known], "a label of no response in the data")
    if not known.all():
        words = f"{CAUTION}{int(known.sum())} of {len(known)} labels found their response"
        left_out.append(pd.DataFrame([[str(path), pd.NA, "", "", words]], columns=LEFT_OUT))
    joined, twin = labels[known], table.iloc[at[known]]
    held = twin["oracle_label"].to_numpy(dtype=float)
    new = joined["oracle_label"].to_numpy(dtype=float)
    stop(
        joined,
        (held == held) & (held != new),
        "oracle_label",
        "the responses have another one; keep one of the two",
    )
    table = table.copy()
    table.loc[twin.index, "oracle_label"] = new
    prob = joined["label_prob"].to_numpy(dtype=float)
    table.loc[twin.index[prob == prob], "label_prob"] = prob[prob == prob]
    return table


def _check_keys(path: Path) -> None:
    """Stop at a column that looks like a part of the key and is none: the labels would go to other responses."""
    for name in sorted(File(path).names):
        plain = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
        if name not in FIELDS and KEYS.search(plain) and not WHO.search(plain):
            of_draw = "draw_idx, counted from 0" if "epoch" in plain else "policy, prompt_id or draw_idx"
            raise DataError(
                f"{path}: column {name!r} looks like a part of the key, and labels are joined by policy, prompt_id and "
                f"draw_idx: rename it to {of_draw}, or drop it"
            )
