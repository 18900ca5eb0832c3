"""Logged responses in the columns of the schema, and teacher-forcing caches, as `cje_core.io.logged` takes them.

=============================== =========================================================================
field of logs                   meaning
=============================== =========================================================================
``x_id`` (or ``prompt_id``)     id of the prompt, one logged response each
``logp_pi0``                    log p under the logger: one per token, or their sum (nats)
``logp_pi0_sum`` (optional)     the server's own sum, compared with that of the tokens
``tokens``, ``n_tokens``        token ids (their number counts), or the number
``judge_S`` (``judge_score``)   the judge's score, or an object of sub-scores, of which one is chosen
``judge_cfg``, ``run_cfg``      JSON that pins judge and logger
``oracle_label``                label of the logged response
``fold_id``, ``cohort``         cross-fitting fold 0, 1, ...; slice of the traffic
``prompt``, ``continuation``    texts; only the words of ``continuation`` are counted
``error``                       why the row has no result (moderation, timeout): it is left out with it
=============================== =========================================================================

A cache has a row per prompt and policy: ``x_id, policy, logp_pi0, logp_pi_prime, logW, W_m1, n_tokens, judge_S``, what
of label, fold, cohort and covariates there is, and ``left_out``: the reason why a row has no weight.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from cje_core.checks import BoolArray, FloatArray
from cje_core.data.contract import NO_FOLD
from cje_core.data.errors import DataError, line
from cje_core.io.fields import FOLD, FOLDS, LENGTH, leave_out
from cje_core.io.schema.columns import ObjectArray, Ragged, Table, first_fields, read_table

X_ID = ("x_id", "prompt_id")
JUDGE = ("judge_S", "judge_score")
LOGGER = ("logp_pi0", "base_policy_logprob")
TOKENS = "a list of token ids is expected"
CACHE = ("policy", "logp_pi_prime", "logW")  # a table that has these is a cache


class Logs(NamedTuple):
    """Logged responses, one row each."""

    table: Table
    x_id: ObjectArray
    judge: FloatArray  # NaN where missing
    logp: FloatArray  # nats, summed over tokens
    tokens: Ragged | None  # log-likelihood of each token
    n_ids: FloatArray  # token ids counted, or the number given; NaN where unknown
    per_prompt: dict[str, ObjectArray]  # cohort and fold_id, where given; None where missing
    numbers: dict[str, FloatArray]  # oracle_label and covariates, where given
    error: ObjectArray

    @property
    def n_tokens(self) -> FloatArray:
        """Tokens of each response: ids counted, else log-likelihoods."""
        if self.tokens is None:
            return self.n_ids
        length = self.tokens.length.astype(float)
        return np.where(np.isnan(self.n_ids), np.where(length > 0, length, np.nan), self.n_ids)

    def rows(self, which: BoolArray) -> pd.DataFrame:
        """Places and ids of some rows, of no policy."""
        place = {
            "file": self.table.file,
            "row": self.table.row[which],
            "policy": "",
            "prompt_id": self.x_id[which],
        }
        return pd.DataFrame(place)


def is_schema(path: Path) -> bool:
    """Whether a file is in the schema's columns rather than in those of `cje_core.io.logged`."""
    fields = first_fields(path)
    return (
        "x_id" in fields
        or set(CACHE) <= fields
        or (path.suffix.lower() != ".jsonl" and "prompt_id" in fields)
    )


def is_cache(table: Table) -> bool:
    """Whether a table is a teacher-forcing cache."""
    return set(CACHE) <= set(table.columns)


def read_logs(path: str | Path, *, judge: str | None = None, covariates: Sequence[str] = ()) -> Logs:
    """Logged responses in the columns of this module.

    Parameters
    ----------
    path : path
        JSONL or Parquet.
    judge : str, optional
        Sub-score that is the judge's score, where ``judge_S`` is an object; the others become covariates.
    covariates : sequence of str
        Numeric fields to keep; ``response_length`` counts the words of ``continuation`` unless the rows bring it.

    Raises
    ------
    DataError
        With one line: file, row, field, what was found and how to mend it.
    """
    table = read_table(path)
    if is_cache(table):
        raise DataError(f"{path} is a teacher-forcing cache; give the logs that it was made from")
    x_id = ids_of(table)
    twice = pd.Series(x_id).duplicated().to_numpy()
    table.stop(twice, table.required(*X_ID), "already given: keep one logged response per prompt")
    judged, numbers = _judge(table, judge)
    for name in covariates:
        if name != LENGTH:
            table.required(name)
            numbers[name] = table.numbers(name)
    if "oracle_label" in table.columns:
        numbers["oracle_label"] = table.numbers("oracle_label")
    if LENGTH in covariates:
        numbers[LENGTH] = _lengths(table)
    logp, tokens = log_likelihoods(table, table.required(*LOGGER), "logp_pi0_sum")
    return Logs(
        table=table,
        x_id=x_id,
        judge=judged,
        logp=logp,
        tokens=tokens,
        n_ids=token_ids(table),
        per_prompt=_per_prompt(table),
        numbers=numbers,
        error=errors_of(table),
    )


def _lengths(table: Table) -> FloatArray:
    """Words of each response, by the formula of fresh ones."""
    if table.name(LENGTH) is not None:
        return table.numbers(LENGTH)
    text = table.required("continuation", "response")
    words = table.objects(text)
    table.stop([not isinstance(v, str) for v in words], text, f"covariates={LENGTH!r} needs its text")
    return np.array([float(len(v.split())) for v in words])


def ids_of(table: Table) -> ObjectArray:
    """Ids of the prompts, none missing."""
    return table.texts(table.required(*X_ID), required=True)


def log_likelihoods(table: Table, field: str, total: str) -> tuple[FloatArray, Ragged | None]:
    """Sums (the server's own where given), and those of tokens where lists stand; NaN where missing."""
    sums, tokens = table.lists(field)
    if tokens is not None:
        sums = tokens.sums()
        if total in table.columns:
            given = table.singles(total)
            sums = np.where(np.isnan(given), sums, given)
    return sums, tokens


def token_ids(table: Table) -> FloatArray:
    """Token ids of each response, or ``n_tokens``; NaN where neither is known."""
    out = np.full(len(table), np.nan)
    if (field := table.name("tokens")) is not None:
        _, lists = table.lists(field, TOKENS, scalars=False)
        if lists is not None:
            out = np.where(lists.length > 0, lists.length, np.nan)
    if (field := table.name("n_tokens")) is not None:
        counts = table.numbers(field)
        table.stop(
            (counts <= 0) | (counts != np.floor(counts)) & ~np.isnan(counts), field, "a whole number above 0"
        )
        table.stop(
            (out != counts) & ~np.isnan(out) & ~np.isnan(counts), field, "tokens holds another number of ids"
        )
        out = np.where(np.isnan(out), counts, out)
    return out


def errors_of(table: Table) -> ObjectArray:
    """Why a row has no result; None where it has."""
    return table.texts("error") if "error" in table.columns else np.full(len(table), None, dtype=object)


def _judge(table: Table, judge: str | None) -> tuple[FloatArray, dict[str, FloatArray]]:
    """The judge's score, and the sub-scores beside it."""
    field = table.required(*JUDGE)
    if not _objects(table, field):
        if judge is not None:
            raise DataError(
                f"judge={judge!r}: {field} of {table.file} is one number, not sub-scores; leave judge out"
            )
        return table.numbers(field), {}
    parsed = table.parsed(field)
    mend = "give a number in every row, or an object of sub-scores in every row"
    table.stop([v is not None and not isinstance(v, dict) for v in parsed], field, mend)
    names = sorted({str(name) for value in parsed if value is not None for name in value})
    chosen = judge if judge is not None or len(names) != 1 else names[0]
    if chosen not in names:
        held = line(", ".join(names), 80)
        named = (
            "name the one that is the score"
            if judge is None
            else f"judge={judge!r} is none of them: name one"
        )
        raise DataError(f"{table.file}: {field} holds the sub-scores {held}; {named}")
    scores = {}
    for name in names:
        part = f"{field}.{name}"
        values = [None if value is None else value.get(name) for value in parsed]
        scores[name] = table.part(part, values).numbers(part)
    return scores.pop(str(chosen)), scores


def _objects(table: Table, field: str) -> bool:
    """Whether a column holds objects, or texts, rather than numbers."""
    first = next((v for v in table.objects(field) if v is not None), None)
    return isinstance(first, dict) or (isinstance(first, str) and first.lstrip().startswith("{"))


def _per_prompt(table: Table) -> dict[str, ObjectArray]:
    """Cohort and fold of each row, where any is given."""
    found = {name: table.texts(name) for name in ("cohort", "fold_id") if table.name(name) is not None}
    if "fold_id" in found:
        odd = [
            name is not None and name != str(NO_FOLD) and not FOLD.fullmatch(name)
            for name in found["fold_id"]
        ]
        table.stop(odd, "fold_id", FOLDS)
        silent = [name is None for name in found["fold_id"]]
        table.stop(silent, "fold_id", "other rows have one, so each needs one; or leave fold_id out")
    return found


# --- as logged responses of evaluation data ---


class Wide(NamedTuple):
    """Logged responses, one row each, with the log-likelihoods under the targets beside them."""

    table: (
        pd.DataFrame
    )  # file, row, policy "", prompt_id, judge_score, base_policy_logprob and what else is known
    targets: dict[str, FloatArray]  # of each policy, per row of `table`; NaN where unknown
    left_out: list[pd.DataFrame]


def read_wide(path: Path, covariates: Sequence[str] = ()) -> Wide:
    """Logs of the schema with their ``target_policy_logprobs``, or a teacher-forcing cache."""
    table = read_table(path)
    return _from_cache(table, covariates) if is_cache(table) else _from_logs(path, covariates)


def _from_logs(path: Path, covariates: Sequence[str]) -> Wide:
    logs = read_logs(path, covariates=covariates)
    field = "target_policy_logprobs"
    if logs.table.name(field) is None:
        raise DataError(
            f"{path}: no log-likelihoods of target policies; join the logs with each target's table (cje-lab tf-cache)"
        )
    values = logs.table.parsed(field)
    logs.table.stop(
        [v is not None and not isinstance(v, dict) for v in values], field, "write an object of numbers"
    )
    targets = {}
    for policy in sorted({str(name) for value in values if value for name in value}):
        part = f"{field}[{policy!r}]"
        column = [None if value is None else value.get(policy) for value in values]
        targets[policy] = log_likelihoods(logs.table.part(part, column), part, "")[0]
    left_out: list[pd.DataFrame] = []
    failed = np.array([reason is not None for reason in logs.error], dtype=bool)
    for reason in sorted({str(reason) for reason in logs.error[failed]}):
        leave_out(left_out, logs.rows(logs.error == reason), reason)
    unjudged = np.isnan(logs.judge) & ~failed
    leave_out(left_out, logs.rows(unjudged), f"{JUDGE[0]} is missing")
    wide = logs.rows(np.ones(len(logs.x_id), dtype=bool)).assign(
        judge_score=logs.judge,
        base_policy_logprob=logs.logp,
        n_tokens=logs.n_tokens,
        **logs.numbers,
        **logs.per_prompt,
    )
    keep = ~failed & ~unjudged
    return Wide(
        wide[keep].reset_index(drop=True), {name: row[keep] for name, row in targets.items()}, left_out
    )


def _from_cache(table: Table, covariates: Sequence[str]) -> Wide:
    x_id, policy = ids_of(table), table.texts("policy", required=True)
    reason = (
        table.texts("left_out") if "left_out" in table.columns else np.full(len(table), None, dtype=object)
    )
    left = np.array([text is not None for text in reason], dtype=bool)
    frame = pd.DataFrame({"file": table.file, "row": table.row, "policy": policy, "prompt_id": x_id})
    numbers = {
        "judge_score": table.required(*JUDGE),
        "base_policy_logprob": table.required(*LOGGER),
        **{name: name for name in ("oracle_label", "n_tokens", *covariates) if name in table.columns},
    }
    for name, field in numbers.items():
        frame[name] = table.numbers(field)
    for name, texts in _per_prompt(table).items():
        frame[name] = texts
    logp = table.lists("logp_pi_prime")[0]
    table.stop(~left & ~np.isfinite(logp), "logp_pi_prime", "a row without a weight says in left_out why")
    for name in ("judge_score", "base_policy_logprob"):
        unknown = ~left & ~np.isfinite(frame[name].to_numpy())
        table.stop(unknown, numbers[name], "judge and logger are known where a weight is")
    left_out: list[pd.DataFrame] = []
    for text in sorted({str(one) for one in reason[left]}):
        leave_out(left_out, frame[reason == text], text)
    kept = frame[~left]
    twice = kept.duplicated(["policy", "prompt_id"]).to_numpy()
    at = np.flatnonzero(~left)
    table.stop(
        np.isin(np.arange(len(table)), at[twice]), table.required(*X_ID), "already given for this policy"
    )
    # The logger's columns are those of any row of a prompt: all rows say the same.
    known = frame[np.isfinite(frame["base_policy_logprob"]) & np.isfinite(frame["judge_score"])]
    wide = known.drop_duplicates("prompt_id").reset_index(drop=True)
    same = known.merge(wide, on="prompt_id", suffixes=("", "_first"))
    for name in ("judge_score", "base_policy_logprob"):
        other = (same[name] != same[f"{name}_first"]).to_numpy()
        if other.any():
            row = same.iloc[int(np.argmax(other))]
            raise DataError(
                f"{table.file}, row {row['row']}: {numbers[name]} differs from row {row['row_first']} of the same "
                "prompt; a cache is made from one log"
            )
    place = pd.Index(wide["prompt_id"])
    targets = {}
    for name in sorted(set(policy[~left].tolist())):
        of = (policy == name) & ~left
        targets[str(name)] = np.full(len(wide), np.nan)
        targets[str(name)][place.get_indexer(pd.Index(x_id[of]))] = logp[of]
    return Wide(wide.assign(policy=""), targets, left_out)
