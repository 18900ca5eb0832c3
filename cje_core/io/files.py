"""User files -> evaluation data, and every row left out with the reason.

`read` takes responses with judge scores (a directory of ``{policy}_responses.jsonl`` or ``{policy}.jsonl``,
one JSONL, CSV or Parquet file with a ``policy`` column, or a DataFrame), probe labels, and logged responses
with log-likelihoods, and gives the Dataset of `cje_core.data.contract`.

Three rules. A row that cannot be what it claims to be (a score off its declared scale, NaN, a duplicate, a
probe that was used to fit) stops the reading with one line that names file, row, field and mend: a number is
never guessed, dropped or rescaled in silence. A row that is legal but of no use (a missing log-likelihood) is
left out and listed with the reason. The order of rows and files never matters.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr

from cje_core.data.contract import NO_FOLD
from cje_core.data.errors import DataError
from cje_core.io.columnar import Columns, columns_of
from cje_core.io.fields import (
    DECLARED,
    KEY,
    LEFT_OUT,
    LENGTH,
    NUMBERS,
    SHARED,
    Foreign,
    Scales,
    Source,
    check_covariates,
    check_range,
    check_rows,
    check_scale,
    count_words,
    leave_out,
    name_of,
    require,
    show,
    stop,
)
from cje_core.io.frame import from_columns
from cje_core.io.intake.foreign import LABEL, UNGRADED, foreign
from cje_core.io.intake.labels import join_labels
from cje_core.io.intake.slips import RENUMBERED, alike_names, few_draws
from cje_core.io.logged import read_logged
from cje_core.io.tables import Part, Remarks, load

TEXTS = ("policy", "prompt_id", *SHARED, "probe", "response")


def read(
    path: Source,
    *,
    probes: Source | None = None,
    logged: str | Path | None = None,
    judge_range: tuple[float, float] = (0.0, 1.0),
    oracle_range: tuple[float, float] = (0.0, 1.0),
    covariates: Sequence[str] = (),
    calibration_policy: str | Sequence[str] | None = None,
    salt: str | None = None,
    labels: str | Path | None = None,
) -> tuple[xr.Dataset, pd.DataFrame]:
    """Evaluation data from files.

    Parameters
    ----------
    path : path, DataFrame or Foreign
        Responses with ``prompt_id`` and ``judge_score``, or another tool's file (`cje_core.io.readers`; where it has
        several scores, `cje_core.io.intake.foreign.foreign` names the judge's); optional ``oracle_label`` (absent,
        null or NaN: no label), ``draw_idx`` (default 0), ``label_prob``, ``surprisal``, ``log_ratio``, ``cluster``,
        ``stratum``, ``cohort``, ``fold_id`` (0, 1, ...), ``probe`` (true: the label only audits). In JSONL each
        field may also stand in ``metadata``.
    probes : path or DataFrame, optional
        Labels that only audit: a directory of ``{policy}_probe.jsonl`` or ``{policy}.jsonl``, or one table
        with a ``policy`` column. A probe of a response in `path` is joined to it; another, even of a prompt that
        `path` has not, becomes a row that does not enter its policy's mean.
    logged : path, optional
        JSONL with ``prompt_id``, ``judge_score``, ``base_policy_logprob``, ``target_policy_logprobs`` (an
        object of policy: log-likelihood, in nats), optional ``oracle_label``, ``n_tokens`` and the `covariates`
        (``response_length`` from ``response``); a covariate that no row brings is left out with the others. Or JSONL
        or Parquet in the columns of `cje_core.io.schema.logs`, or a teacher-forcing cache of such logs. Its prompts
        are those of `path`, which holds judged fresh responses to them.
    judge_range, oracle_range : pair of float
        Declared scales. Scores are checked against them and never rescaled.
    covariates : sequence of str
        Numeric fields that become covariates. ``response_length`` counts the words of ``response`` unless the
        rows bring a field of that name.
    calibration_policy : str or sequence of str, optional
        Policies whose labels teach the calibrator (default: all that have labels).
    salt : str, optional
        Secret with which the ids of `logged` were redacted (`cje_core.io.schema.redacted`).
    labels : path, optional
        Labels of `path` in a file of their own, see `cje_core.io.intake.labels.join_labels`.

    Returns
    -------
    data : xr.Dataset
        Checked evaluation data.
    left_out : DataFrame
        Rows left out: ``file, row, policy, prompt_id, reason``; no ``row`` where a whole file is meant.

    Raises
    ------
    DataError
        With one line: file, row, field, what was found and how to mend it.

    Examples
    --------
    >>> table = pd.DataFrame({"policy": "base", "prompt_id": [0, 1], "judge_score": [0.2, 0.9]})
    >>> data, left_out = read(table.assign(oracle_label=[0.0, None]))
    >>> int(data.labelled.sum()), len(left_out)
    (1, 0)
    """
    scales = {"judge_score": judge_range, "oracle_label": oracle_range}
    for field, scale in scales.items():
        check_range(DECLARED[field], scale)
    check_covariates(covariates)
    if isinstance(path, str | Path):
        path = foreign(path) or path
    left_out: list[pd.DataFrame] = []
    columns = records(path, scales, left_out, probes=probes, covariates=covariates, labels=labels)
    counted = None
    if len(columns.draws) > 1:
        counted = few_draws(columns.draws[columns.draw], columns.policy.codes, columns.prompt.codes)
    if counted is not None:
        columns = columns._replace(draw=counted, draws=np.arange(counted.max() + 1))
    policies, prompts = columns.policy.names.to_pylist(), columns.prompt.names
    teachers = [calibration_policy] if isinstance(calibration_policy, str) else calibration_policy
    check_known(teachers or (), policies, name_of(path))
    logs = None
    shared: dict[str, npt.NDArray[Any]] = {}
    if logged is not None:
        logs, shared = read_logged(
            Path(logged), policies, prompts.to_pylist(), scales, covariates, left_out, salt
        )
    data = from_columns(
        columns,
        covariates=covariates,
        judge_range=judge_range,
        oracle_range=oracle_range,
        calibration_policy=teachers,
        logged=logs,
    )
    for field, values in shared.items():
        data = _share(data, field, values, str(logged))
    if counted is not None:
        leave_out_files(left_out, [(Path(name_of(path)), RENUMBERED)])
    leave_out_files(left_out, alike_names(policies, prompts, Path(name_of(path))))
    if teachers and logged is None:
        check_teachers(data, teachers)
    return data, entries(left_out)


def entries(left_out: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Rows left out, in order."""
    found = pd.concat(left_out, ignore_index=True) if left_out else pd.DataFrame(columns=LEFT_OUT)
    return found.astype({"row": "Int64"}).sort_values(LEFT_OUT, kind="stable", ignore_index=True)


def leave_out_files(left_out: list[pd.DataFrame], remarks: Remarks) -> None:
    """Add what is said of whole files to the rows left out."""
    rows = [[str(file), pd.NA, "", "", reason] for file, reason in remarks]
    if rows:
        left_out.append(pd.DataFrame(rows, columns=LEFT_OUT))


def _share(data: xr.Dataset, field: str, values: npt.NDArray[Any], source: str) -> xr.Dataset:
    """Cohort or fold of logged prompts beside that of the responses; the two may not differ."""
    name, absent = ("fold", NO_FOLD) if field == "fold_id" else (field, "")
    values = values if name == "fold" else values.astype(str)
    if name in data:
        held = data[name].values
        other = (held != absent) & (values != absent) & (held != values)
        if other.any():
            at = int(np.argmax(other))
            raise DataError(
                f"{source}: {field} of prompt {show(str(data.prompt.values[at]))} is {show(values[at])}, but "
                f"{show(held[at])} in its responses; correct one of them"
            )
        values = np.where(values != absent, values, held)
    return data.assign({name: ("prompt", values)})


def records(
    path: Source | Part,
    scales: Scales,
    left_out: list[pd.DataFrame],
    *,
    probes: Source | None = None,
    covariates: Sequence[str] = (),
    labels: str | Path | None = None,
) -> Columns:
    """Responses and probes, checked by columns.

    Rows that are left out are added to `left_out`.
    """
    table = _responses(path, ("_responses",), covariates, left_out, fingerprint=probes is not None)
    source = name_of(path.path if isinstance(path, Part) else path)
    if labels is not None or probes is not None:  # rows of another file are joined to them
        table = table.astype({"policy": object, "file": object})
    if labels is not None:
        columns_of(table)  # a response that is there twice could get the other one's label
        table = join_labels(table, labels, left_out, scales["oracle_label"])
    ungraded = table["judge_score"].isna().to_numpy()
    if ungraded.all() and not (isinstance(path, Part) and "judge_score" in path.table.column_names):
        raise DataError(f"{source}: no row has judge_score; give the judge's scores that name")
    audit = table.iloc[:0]
    if probes is not None:
        audit = _responses(probes, ("_probe", "_responses"), covariates, left_out, fingerprint=True)
        columns_of(audit)
    for field, scale in scales.items():
        check_scale(pd.concat([table, audit], ignore_index=True) if len(audit) else table, field, scale)
    for gone in left_out:
        if LABEL in gone:
            check_scale(gone, LABEL, scales[LABEL])
    if (
        ungraded.any()
    ):  # a judge fails more often on some responses than on others: they are counted, with their labels
        columns_of(table)
        if not isinstance(path, Part):  # of a policy without any grade nothing could be said
            graded = table.loc[~ungraded, "policy"].unique()
            mend = "no response of its policy has one: judge them, or leave the policy out"
            stop(table, ungraded & ~table["policy"].isin(graded).to_numpy(dtype=bool), "judge_score", mend)
        leave_out(left_out, table[ungraded], f"{UNGRADED}judge_score gave no number", LABEL)
        table = table[~ungraded].reset_index(drop=True)
    no_label = table["probe"].to_numpy() & table["oracle_label"].isna().to_numpy()
    leave_out(
        left_out, table[no_label], "a probe without oracle_label audits nothing (it still enters the mean)"
    )
    table["probe"] &= ~no_label
    table["evaluated"] = True
    if probes is not None:
        table = _join_probes(table, audit, source, left_out)
    if table["label_prob"].notna().any():
        teaches = table["oracle_label"].notna() & ~table["probe"]
        mend = "other rows have one, so every labelled row needs one"
        stop(table, teaches & table["label_prob"].isna(), "label_prob", mend)
    for field in covariates:
        require(table, field, f"fill it or leave covariates={field!r} out")
    return columns_of(table, covariates)


def check_known(teachers: Sequence[str], policies: Sequence[str], source: str) -> None:
    """Stop at a calibration policy that is no policy of the source."""
    for teacher in teachers:
        if teacher not in policies:
            held = ", ".join(policies)
            raise DataError(f"calibration_policy={teacher!r}: {source} has no such policy; it has {held}")


def check_teachers(data: xr.Dataset, teachers: Sequence[str]) -> None:
    """Stop where labels are at hand, and none of them under a policy that shall teach."""
    labelled = data["labelled"].any(["prompt", "draw"])
    if bool(labelled.any()) and not bool(labelled.sel(policy=list(teachers)).any()):
        held = ", ".join(labelled["policy"].values[labelled.values].astype(str))
        raise DataError(
            f"calibration_policy={teachers[0]!r}: it has no labelled response to teach with; labels are under {held}"
        )


def _responses(
    source: Source | Part,
    suffixes: Sequence[str],
    covariates: Sequence[str],
    left_out: list[pd.DataFrame],
    *,
    fingerprint: bool,
) -> pd.DataFrame:
    """Responses (or probes) with checked types: ids as text, numbers as finite float or NaN, no duplicate."""
    text = ["response"] if fingerprint or LENGTH in covariates else []
    fields = ["policy", "prompt_id", *SHARED, "probe", *text, *NUMBERS, *covariates]
    numbers = (*NUMBERS, *covariates)
    table, remarks = load(source, fields, suffixes=suffixes, texts=TEXTS, numbers=numbers)
    leave_out_files(left_out, remarks)
    if isinstance(source, Foreign):
        left_out.append(source.left_out)
    if LENGTH in covariates and table[LENGTH].isna().all():
        count_words(table)
    check_rows(table, covariates)
    if text:  # a fingerprint tells responses apart as well as their text, in 8 bytes
        table["response"] = [hash(r) if isinstance(r, str) else None for r in table["response"]]
    return table


def _join_probes(
    table: pd.DataFrame, audit: pd.DataFrame, source: str, left_out: list[pd.DataFrame]
) -> pd.DataFrame:
    """Mark the responses that are probes; add probes of other responses as rows that are not evaluated."""
    stranger = ~audit["policy"].isin(table["policy"].unique())
    stop(
        audit,
        stranger,
        "policy",
        f"a policy without any row in {source}: add its responses or drop its probes",
    )
    no_label = audit["oracle_label"].isna()
    leave_out(left_out, audit[no_label], "a probe without oracle_label audits nothing")
    audit = audit[~no_label]
    near = table[table["prompt_id"].isin(audit["prompt_id"].unique())]
    position = pd.MultiIndex.from_frame(near[KEY]).get_indexer(pd.MultiIndex.from_frame(audit[KEY]))
    known = position >= 0
    probe, twin = audit[known], near.iloc[position[known]]
    probe = probe.assign(twin=[f"{f}, row {r}" for f, r in zip(twin["file"], twin["row"], strict=True)])

    stop(
        probe,
        twin["oracle_label"].notna().to_numpy(),
        "oracle_label",
        lambda row: (
            f"but {row.twin} labels the same response, so it was used to fit; remove one: probes only audit"
        ),
    )
    a, b = probe["response"].to_numpy(), twin["response"].to_numpy()
    other = pd.notna(a) & pd.notna(b) & (a != b)
    stop(
        probe.assign(response="another text"),
        other,
        "response",
        lambda row: f"compare {row.twin}; give a different response its own draw_idx",
    )
    score = probe["judge_score"].to_numpy(dtype=float)
    stop(
        probe,
        np.isfinite(score) & (score != twin["judge_score"].to_numpy(dtype=float)),
        "judge_score",
        lambda row: f"but {row.twin} scores the same response differently; give both the same score",
    )
    table = table.copy()
    table.loc[twin.index, "oracle_label"] = probe["oracle_label"].to_numpy()
    table.loc[twin.index, "probe"] = True
    extra = audit[~known].assign(probe=True, evaluated=False)
    require(extra, "judge_score", f"its response is not in {source}, so the probe must bring the score")
    return pd.concat([table, extra], ignore_index=True) if len(extra) else table
