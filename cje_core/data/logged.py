"""Logged responses with their log-likelihoods, from one JSONL file."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from cje_core.checks import FloatArray
from cje_core.data.contract import LOGP_ROUNDING
from cje_core.data.errors import DataError
from cje_core.data.fields import (
    LENGTH,
    Scales,
    check_scale,
    count_words,
    ids,
    leave_out,
    numbers,
    require,
    stop,
)
from cje_core.data.tables import load_jsonl


def read_logged(
    path: Path,
    policies: list[str],
    prompts: list[str],
    scales: Scales,
    covariates: Sequence[str],
    left_out: list[pd.DataFrame],
) -> dict[str, FloatArray]:
    """Log-likelihoods, scores, labels and covariates of logged responses, in the order of policies and prompts."""
    if path.is_dir():
        raise DataError(f"{path} is a directory; logged= takes one JSONL file")
    fields = ["judge_score", "oracle_label", "n_tokens", "base_policy_logprob"]
    wanted = ["prompt_id", *fields, "target_policy_logprobs", "response", *covariates]
    table = load_jsonl(path, list(dict.fromkeys(wanted))).assign(policy="")
    if table.empty:
        raise DataError(f"{path} is empty: it has no rows; leave logged= out")
    table["prompt_id"] = ids(table, "prompt_id", required=True)
    mapping = [v is None or isinstance(v, dict) for v in table["target_policy_logprobs"]]
    stop(table, ~np.array(mapping), "target_policy_logprobs", "write an object of policy: log-likelihood")
    _stop_nan(table, "base_policy_logprob")
    if LENGTH in covariates and table[LENGTH].isna().all() and table["response"].notna().any():
        count_words(table)
    for field in (*fields, *covariates):
        table[field] = numbers(table, field)
    stop(
        table,
        table.duplicated("prompt_id"),
        "prompt_id",
        "already given: keep one logged response per prompt",
    )
    require(table, "judge_score", "judge the logged response or remove the row")
    for field, scale in scales.items():
        check_scale(table, field, scale)
    _stop_positive(table, "base_policy_logprob")
    stop(table, table["n_tokens"] <= 0, "n_tokens", "a response has at least one token")

    with_covariates = table[list(covariates)].notna().any(axis=None)
    for field in covariates if with_covariates else ():
        require(table, field, "other covariates are given: fill it in every logged row or in none")

    position = pd.Index(prompts).get_indexer(pd.Index(table["prompt_id"]))
    unknown, no_logger = position < 0, table["base_policy_logprob"].isna().to_numpy()
    mend = "judge fresh responses of the policies to the logged prompts and add them there"
    leave_out(left_out, table[unknown], f"logged prompt_id without a response in DATA: {mend}")
    leave_out(left_out, table[~unknown & no_logger], "base_policy_logprob is missing")
    keep = ~unknown & ~no_logger
    target = np.full((len(policies), len(prompts)), np.nan)
    by_policy = [v or {} for v in table["target_policy_logprobs"]]
    for policy in sorted({name for values in by_policy for name in values}):
        field = f"target_policy_logprobs[{policy!r}]"
        values = pd.Series([v.get(policy) for v in by_policy], dtype=object)
        column = table.assign(policy=policy, **{field: values})
        _stop_nan(column, field)
        logp = numbers(column, field)
        _stop_positive(column.assign(**{field: logp}), field)
        if policy not in policies:
            leave_out(
                left_out, column[~np.isnan(logp)], "target_policy_logprobs of a policy that is not in DATA"
            )
            continue
        leave_out(left_out, column[keep & np.isnan(logp)], "target_policy_logprobs is missing")
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
    return variables


def _stop_nan(table: pd.DataFrame, field: str) -> None:
    """Stop at a NaN, which is not the same as a null: it is the remains of a failed computation."""
    nan = [isinstance(v, float) and np.isnan(v) for v in table[field]]
    stop(table, nan, field, "write null where the log-likelihood is unknown")


def _stop_positive(table: pd.DataFrame, field: str) -> None:
    """Stop at a positive log-likelihood: token sequences have probabilities, not densities."""
    positive = table[field].to_numpy(dtype=float) > LOGP_ROUNDING
    stop(table, positive, field, "a log-likelihood of tokens is at most 0 (nats, summed over tokens)")
