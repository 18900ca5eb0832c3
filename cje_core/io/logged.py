"""Logged responses with their log-likelihoods: rows with an object of policies, or the logging schema's columns."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from cje_core.checks import FloatArray
from cje_core.data.contract import LOGP_ROUNDING, NO_FOLD
from cje_core.data.errors import DataError, line
from cje_core.io.fields import (
    LEFT_OUT,
    LENGTH,
    Scales,
    check_scale,
    count_words,
    ids,
    leave_out,
    numbers,
    place,
    require,
    stop,
)
from cje_core.io.schema.logs import Wide, is_schema, read_wide
from cje_core.io.schema.redacted import is_redacted, redact
from cje_core.io.tables import load_jsonl, misspelt, strange


def read_logged(
    path: Path,
    policies: list[str],
    prompts: list[str],
    scales: Scales,
    covariates: Sequence[str],
    left_out: list[pd.DataFrame],
    salt: str | None = None,
) -> tuple[dict[str, FloatArray], dict[str, npt.NDArray[Any]]]:
    """Logged responses in the order of policies and prompts: arrays over them, and cohort and fold of the prompts.

    `salt` finds the prompts of logs whose ids are redacted (`cje_core.io.schema.redacted`).
    """
    if path.is_dir():
        raise DataError(f"{path} is a directory; logged= takes one file")
    table, targets, gone = read_wide(path, covariates) if is_schema(path) else _objects(path, covariates)
    left_out += gone
    stop(
        table,
        table.duplicated("prompt_id"),
        "prompt_id",
        "already given: keep one logged response per prompt",
    )
    for field in ("oracle_label", "n_tokens", *covariates):
        if field not in table:
            table[field] = np.nan
    require(table, "judge_score", "judge the logged response")
    for field, scale in scales.items():
        check_scale(table, field, scale)
    _stop_positive(table, "base_policy_logprob")
    stop(table, table["n_tokens"] <= 0, "n_tokens", "a response has at least one token")

    with_covariates = table[list(covariates)].notna().any(axis=None)
    for field in covariates if with_covariates else ():
        require(table, field, "other covariates are given: fill it in every logged row or in none")

    position = pd.Index(_as_logged(prompts, table, salt)).get_indexer(pd.Index(table["prompt_id"]))
    unknown, no_logger = position < 0, table["base_policy_logprob"].isna().to_numpy()
    mend = "judge fresh responses of the policies to the logged prompts and add them there"
    leave_out(left_out, table[unknown], f"logged prompt_id without a response in DATA: {mend}")
    leave_out(left_out, table[~unknown & no_logger], "base_policy_logprob is missing")
    keep = ~unknown & ~no_logger
    target = np.full((len(policies), len(prompts)), np.nan)
    told = {(row.policy, row.prompt_id) for one in gone for row in one.itertuples()}
    if targets and not set(targets) & set(policies):
        said = f"{line(', '.join(sorted(targets)), 80)}; DATA has {line(', '.join(policies), 80)}"
        raise DataError(
            f"{path}: log-likelihoods of no policy of DATA, but of {said}: give both the same names"
        )
    for policy, logp in targets.items():
        field = f"target_policy_logprobs[{policy!r}]"
        column = table.assign(policy=policy, **{field: logp})
        _stop_positive(column, field)
        if policy not in policies:
            leave_out(
                left_out, column[~np.isnan(logp)], "target_policy_logprobs of a policy that is not in DATA"
            )
            continue
        silent = np.array([(policy, name) not in told for name in table["prompt_id"]], dtype=bool)
        leave_out(left_out, column[keep & np.isnan(logp) & silent], "target_policy_logprobs is missing")
        target[policies.index(policy), position[keep]] = logp[keep]

    def spread(field: str) -> FloatArray:
        out = np.full(len(prompts), np.nan)
        out[position[keep]] = table[field].to_numpy(dtype=float)[keep]
        return out

    variables = {
        "logp_target": target,
        "logp_logger": spread("base_policy_logprob"),
        "logged_judge": spread("judge_score"),
        "logged_oracle": spread("oracle_label"),
    }
    if table["n_tokens"].notna().any():
        variables["n_tokens"] = spread("n_tokens")
    if with_covariates:
        variables["logged_covariate"] = np.stack([spread(field) for field in covariates], axis=1)
    shared = {}
    for field, absent in (("cohort", ""), ("fold_id", str(NO_FOLD))):
        if field in table:
            known = ~unknown & table[field].notna().to_numpy()
            names = np.full(len(prompts), absent, dtype=object)
            names[position[known]] = table[field].to_numpy(dtype=object)[known]
            shared[field] = names
    if "fold_id" in shared:
        shared["fold_id"] = shared["fold_id"].astype(np.int64)
    return variables, shared


def _objects(path: Path, covariates: Sequence[str]) -> Wide:
    """JSONL with an object of policy: log-likelihood in each row."""
    fields = ["judge_score", "oracle_label", "n_tokens", "base_policy_logprob"]
    wanted = ["prompt_id", *fields, "target_policy_logprobs", "response", *covariates]
    seen: dict[str, None] = {}
    table = load_jsonl(path, list(dict.fromkeys(wanted)), seen).assign(policy="")
    if table.empty:
        raise DataError(f"{path} is empty: it has no rows; leave logged= out")
    said = misspelt(path, table, seen, wanted, strange(path, seen, wanted))
    table["prompt_id"] = ids(table, "prompt_id", required=True)
    mapping = [v is None or isinstance(v, dict) for v in table["target_policy_logprobs"]]
    stop(table, ~np.array(mapping), "target_policy_logprobs", "write an object of policy: log-likelihood")
    _stop_nan(table, "base_policy_logprob")
    if LENGTH in covariates and table[LENGTH].isna().all() and table["response"].notna().any():
        count_words(table)
    for field in (*fields, *covariates):
        table[field] = numbers(table, field)
    targets = {}
    by_policy = [v or {} for v in table["target_policy_logprobs"]]
    for policy in sorted({name for values in by_policy for name in values}):
        field = f"target_policy_logprobs[{policy!r}]"
        values = pd.Series([v.get(policy) for v in by_policy], dtype=object)
        column = table.assign(policy=policy, **{field: values})
        _stop_nan(column, field)
        targets[policy] = numbers(column, field)
    gone = [pd.DataFrame([[str(path), pd.NA, "", "", reason]], columns=LEFT_OUT) for _, reason in said]
    return Wide(table, targets, gone)


def _as_logged(prompts: list[str], table: pd.DataFrame, salt: str | None) -> list[str]:
    """Names of the prompts as the logs have them: redacted where those are."""
    logged = table["prompt_id"].tolist()
    if not is_redacted(logged) or is_redacted(prompts):
        return prompts
    if salt is None:
        raise DataError(
            f"{place(table.iloc[0])}: the ids are redacted; give the salt that they were redacted with"
        )
    names = [str(name) for name in redact(prompts, salt)]
    if not set(names) & set(logged):
        raise DataError(
            f"{place(table.iloc[0])}: no prompt of DATA has this id under this salt; give the one used there"
        )
    return names


def _stop_nan(table: pd.DataFrame, field: str) -> None:
    """Stop at a NaN, which is not the same as a null: it is the remains of a failed computation."""
    nan = [isinstance(v, float) and np.isnan(v) for v in table[field]]
    stop(table, nan, field, "write null where the log-likelihood is unknown")


def _stop_positive(table: pd.DataFrame, field: str) -> None:
    """Stop at a positive log-likelihood: token sequences have probabilities, not densities."""
    positive = table[field].to_numpy(dtype=float) > LOGP_ROUNDING
    stop(table, positive, field, "a log-likelihood of tokens is at most 0 (nats, summed over tokens)")
