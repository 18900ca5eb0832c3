"""What the audits read beside evaluation data: batches, groups and times of rows, anchors, and calls."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from cje_core.calibration.calibrated import Calibrated
from cje_core.checks import FloatArray
from cje_core.data import DataError
from cje_core.io.fields import flags, ids, numbers, of_prompts, require, stop
from cje_core.io.schema.logs import is_schema, read_wide
from cje_core.io.tables import beside, load_jsonl
from cje_core.transport.audit import residuals
from cje_core.transport.monitor import PROBE_FILES, field_of_probes

CALL_FIELDS = (
    "policy", "prompt_id", "response_id", "logp", "logp_tokens", "logp_prompt", "logp_joint", "snapshot",
    "renormalized", "n_ids", "masked", "base_policy_logprob", "target_policy_logprobs",
)  # fmt: skip


def moments(
    given: Calibrated, data: Path, probes: Path | None, field: str | None, option: str
) -> npt.NDArray[Any]:
    """Batch or time of each probed response, by the field of an option or, without one, by the place of the row."""
    if field is not None:
        return field_of_probes(given, data, probes, field, option)
    found = residuals(given)
    source, suffixes = (data, ("_responses",)) if probes is None else (probes, PROBE_FILES)
    table = beside(source, "prompt_id", suffixes=suffixes)
    place = {
        key: at
        for at, key in reversed(list(enumerate(zip(table["policy"], table["prompt_id"], strict=True))))
    }
    keys = zip(found["policy"].values.tolist(), found["prompt"].values.tolist(), strict=True)
    return np.array([place[key] for key in keys])


def groups(given: Calibrated, data: Path, probes: Path | None, field: str) -> npt.NDArray[np.str_]:
    """Group of each prompt, in the order of the data; a prompt without a probe may have none."""
    sources = [(data, ("_responses",))] + ([] if probes is None else [(probes, PROBE_FILES)])
    tables, nothing = [], ""
    for source, suffixes in sources:
        try:
            tables.append(beside(source, field, suffixes=suffixes, required=False))
        except DataError as error:
            if f"no row has the field {field!r}" not in str(error):
                raise
            nothing = nothing or str(error)
    if not tables:
        raise DataError(nothing)
    known = of_prompts(pd.concat(tables, ignore_index=True), field).to_dict()
    prompts = given.data["prompt"].values.astype(str).tolist()
    probed = given.data["probe"].any(["policy", "draw"]).values
    for prompt, has_probe in zip(prompts, probed, strict=True):
        if has_probe and prompt not in known:
            raise DataError(f"the probed prompt {prompt!r} has no {field} in any row; add it")
    return np.array([_name(known.get(prompt, "")) for prompt in prompts])


def _name(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def read_anchors(path: Path) -> tuple[list[str], FloatArray, FloatArray]:
    """Names of the streams, and scores then and now, shape (streams, anchors); NaN where a stream has fewer."""
    raw = load_jsonl(path, ["id", "then", "now", "stream"])
    if raw.empty:
        raise DataError(f"{path} is empty: it has no rows; give one per anchor: id, then, now")
    raw["id"] = ids(raw, "id", required=True)
    raw["stream"] = ids(raw, "stream", required=bool(raw["stream"].notna().any()))
    raw["stream"] = raw["stream"].map(lambda name: "anchors" if name is None else name)
    for field in ("then", "now"):
        raw[field] = numbers(raw, field)
        require(raw, field, "score the anchor both times, or leave it out")
    stop(raw, raw.duplicated(["stream", "id"]), "id", "already given: keep one row per anchor")
    names = sorted(raw["stream"].unique())
    longest = int(raw["stream"].value_counts().max())
    then, now = np.full((2, len(names), longest), np.nan)
    for s, name in enumerate(names):
        mine = raw[raw["stream"] == name]
        then[s, : len(mine)], now[s, : len(mine)] = mine["then"], mine["now"]
        if len(mine) < 4:
            raise DataError(
                f"{path}: stream {name!r} has {len(mine)} anchors; a rank correlation takes 4, and 30 to say much"
            )
    return names, then, now


def read_calls(path: Path) -> tuple[pd.DataFrame, dict[str, FloatArray]]:
    """Calls of teacher forcing, and each target's log ratios where the file is one of logged responses."""
    if is_schema(path):  # a cache, or logs with their targets
        wide = read_wide(path)
        return _with_ratios(wide.table, wide.table["base_policy_logprob"].to_numpy(dtype=float), wide.targets)
    raw = load_jsonl(path, list(CALL_FIELDS))
    if raw.empty:
        raise DataError(f"{path} is empty: it has no rows; give one per call")
    raw["prompt_id"] = ids(raw, "prompt_id", required=True)
    if raw["target_policy_logprobs"].notna().any():
        return _logged_calls(raw)
    if raw["logp"].isna().all():
        raise DataError(
            f"{path}: no row has the field 'logp'; give calls (policy, prompt_id, logp) or logged responses "
            "(prompt_id, base_policy_logprob, target_policy_logprobs)"
        )
    raw["policy"] = ids(raw, "policy", required=True)
    raw["logp"] = _logp(raw, "logp")
    kept = ["policy", "prompt_id", "logp", "file", "row"]
    for field in ("logp_prompt", "logp_joint", "n_ids"):
        if raw[field].notna().any():
            raw[field] = numbers(raw, field)
            kept.append(field)
    if raw["logp_tokens"].notna().any():
        lists = [
            isinstance(v, list) and all(isinstance(x, int | float) for x in v) for v in raw["logp_tokens"]
        ]
        stop(raw, ~np.array(lists), "logp_tokens", "write a list of numbers, one per token")
        kept.append("logp_tokens")
    for field in ("response_id", "snapshot", "renormalized", "masked"):
        if raw[field].notna().any():
            stop(raw, raw[field].isna(), field, "other rows have one, so each needs one")
            told = field in ("renormalized", "masked")
            raw[field] = flags(raw, field) if told else ids(raw, field, required=True)
            kept.append(field)
    return raw[kept], {}


def _logp(table: pd.DataFrame, field: str) -> FloatArray:
    """Log-likelihoods as they are: one that is missing or infinite is what the check is about."""
    values = [np.nan if v is None else v for v in table[field]]
    number = [isinstance(v, int | float) and not isinstance(v, bool) for v in values]
    stop(table, ~np.array(number), field, "a number is expected, without quotes")
    return np.array(values, dtype=float)


def _logged_calls(raw: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, FloatArray]]:
    mapping = [v is None or isinstance(v, dict) for v in raw["target_policy_logprobs"]]
    stop(raw, ~np.array(mapping), "target_policy_logprobs", "write an object of policy: log-likelihood")
    logger = _logp(raw, "base_policy_logprob")
    by_row = [v or {} for v in raw["target_policy_logprobs"]]
    targets = {}
    for policy in sorted({name for values in by_row for name in values}):
        field = f"target_policy_logprobs[{policy!r}]"
        values = pd.Series([v.get(policy) for v in by_row], dtype=object)
        targets[policy] = _logp(raw.assign(**{field: values}), field)
    return _with_ratios(raw, logger, targets)


def _with_ratios(
    raw: pd.DataFrame, logger: FloatArray, targets: Mapping[str, FloatArray]
) -> tuple[pd.DataFrame, dict[str, FloatArray]]:
    """Calls under the logger and each target that have a log-likelihood, and the targets' log ratios."""
    calls = [raw.assign(policy="the logger", logp=logger)]
    calls += [raw.assign(policy=policy, logp=logp) for policy, logp in targets.items()]
    ratios = {policy: logp - logger for policy, logp in targets.items()}
    table = pd.concat(calls, ignore_index=True)[["policy", "prompt_id", "logp", "file", "row"]]
    return table[table["logp"].notna()], ratios
