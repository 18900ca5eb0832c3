"""The teacher-forcing cache: logs and one table of log-likelihoods per target, checked and joined.

For each prompt x and target policy the paper's cache holds ``logW = log p_target(A | x) - log p_logger(A | x)`` and

    ``W_m1 = exp(logW - logsumexp(logW) + log n)``,

with one denominator over all n rows of the target that are kept, so the weights have mean one. A row is kept if logger
and target pass every check of `cje_core.offpolicy.log_likelihoods` that can run; any other is left out with its reason.

=============================== =========================================================================
column of a target's table      meaning
=============================== =========================================================================
``x_id`` (or ``prompt_id``)     id of the prompt; several rows of one id are repeated calls
``logp`` (``logp_pi_prime``)    log p of the logged response: one per token, or their sum (nats)
``logp_sum`` (optional)         the server's own sum, compared with that of the tokens
``tokens`` or ``n_tokens``      token ids under the target's tokenizer, or their number
``logp_prompt, logp_joint``     log p(X) and log p(X + A)
``model, template, tokenizer``  names that pin them, a digest or a dated snapshot
``mask``, ``renormalized``      mask bits, and whether probabilities were renormalised after masking
``error``                       why the call has no result (timeout, moderation): it is left out with it
=============================== =========================================================================

Repeated calls that agree within 1e-7 nats count as one, with the smallest of their log-likelihoods.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from cje_core.checks import BoolArray, FloatArray, IntArray
from cje_core.data import DataError
from cje_core.disk.whole import whole
from cje_core.io.fields import FIELDS, check_covariates
from cje_core.io.schema.columns import ObjectArray, Ragged, Table, parse, read_table
from cje_core.io.schema.logs import Logs, errors_of, ids_of, log_likelihoods, read_logs, token_ids
from cje_core.io.schema.redacted import redact
from cje_core.offpolicy.log_likelihoods import CHECKS, REPEAT_TOLERANCE, Calls, verdicts
from cje_core.offpolicy.provenance import named
from cje_core.offpolicy.weights import mean_one

LOGP = ("logp", "logp_pi_prime", "logp_tokens")
NAMES = ("model", "template", "tokenizer")
CONFIGURED = (
    'write an object that names the model, such as {"model": ...}, or its name; null where it is unknown'
)
SEED = re.compile(r'"seed"\s*:\s*-?\d+')
# Checks for which logs have columns: the others are those of a teacher-forcing call.
OF_LOGS = ("finite", "token_sum", "token_count", "pinned", "snapshot")
SAID = {
    "missing": "its log-likelihood is missing",
    "judge": "its judge score is missing",
    "in_logs": "its x_id is not in the logs",
    "gap": "the target's table has no row of its x_id",
    "finite": "finite: its log-likelihood is infinite or positive",
    "repeatable": f"repeatable: identical calls differ by more than {REPEAT_TOLERANCE:g} nats",
    "token_sum": "token_sum: log-likelihoods of tokens do not sum to the total",
    "token_count": "token_count: not one log-likelihood per token id",
    "additive": "additive: log p(X + A) is not log p(X) + log p(A | X)",
    "pinned": "pinned: model, template or tokenizer may move",
    "snapshot": "snapshot: not the model, template or tokenizer of the other rows",
    "unmasked": "unmasked: probabilities renormalised after masking, or nothing says that they were not",
}
LOGGER = ""  # the name of the logs among the tables checked
KEPT = ("x_id", "policy", "logp_pi0", "logp_pi_prime", "logW", "W_m1", "n_tokens", "judge_S")
LEFT_OUT = ["file", "row", "policy", "prompt_id", "check", "reason"]


class TfCache(NamedTuple):
    """What `tf_cache` joins.

    ``rows`` has the columns `KEPT`, then what of ``oracle_label``, ``fold_id``, ``cohort`` and covariates there is, and
    ``left_out``: why a row has no weight, one text per check; None for a row that is kept.

    ``left_out`` lists each row of a file that is not used: ``file, row, policy`` (empty: of the logs, so for every
    policy), ``prompt_id, check, reason``. ``checks`` counts, over ``policy`` (empty: the logger) and ``check``, the
    ``rows`` that a check looked at and those that ``failed``; a check that could not run has no rows. ``snapshots`` has
    the names of what was run, over ``policy`` and ``field``, with the number of ``rows`` that give each.
    """

    rows: pd.DataFrame
    left_out: pd.DataFrame
    checks: pd.DataFrame
    snapshots: pd.DataFrame


class _Checked(NamedTuple):
    """One table after its checks."""

    reason: ObjectArray  # (n,) why a row is left out, None where it is not
    check: ObjectArray  # (n,) its first check
    counts: list[tuple[str, str, int, int]]  # policy, check, rows, failed
    snapshots: pd.DataFrame  # policy, field, name, rows


def tf_cache(
    logs: str | Path,
    targets: Mapping[str, str | Path],
    *,
    judge: str | None = None,
    covariates: Sequence[str] = (),
) -> TfCache:
    """Check and join logs and the targets' log-likelihoods of the logged responses.

    Parameters
    ----------
    logs : path
        JSONL or Parquet in the columns of `cje_core.io.schema.logs`.
    targets : mapping of policy to path
        JSONL or Parquet in the columns of this module.
    judge : str, optional
        Sub-score that is the judge's score, where ``judge_S`` holds several; the others become covariates.
    covariates : sequence of str
        Numeric fields of the logs to keep; ``response_length`` counts the words of ``continuation``.

    Raises
    ------
    DataError
        With one line: file, row, field, what was found and how to mend it.

    Examples
    --------
    >>> import tempfile
    >>> rows = {"x_id": ["p1", "p2"], "tokens": [[1, 2], [3]], "judge_S": [0.4, 0.9]}
    >>> rows["logp_pi0"] = [[-1.0, -2.0], [-1.5]]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     logs, target = Path(folder) / "logs.parquet", Path(folder) / "clone.parquet"
    ...     pd.DataFrame(rows).to_parquet(logs)
    ...     pd.DataFrame({"x_id": ["p1", "p2"], "logp": [[-1.0, -2.0], [-0.5]]}).to_parquet(target)
    ...     cache = tf_cache(logs, {"clone": target})
    >>> cache.rows["logW"].tolist()
    [0.0, 1.0]
    """
    if not targets:
        raise DataError("no target policy is given; name one and its table of log-likelihoods")
    check_covariates(covariates)
    log = read_logs(logs, judge=judge, covariates=covariates)
    for name in sorted(set(log.numbers) & {*KEPT, *FIELDS} - {"oracle_label"}):
        raise DataError(
            f"{logs}: sub-score or covariate {name!r} has the name of a field with a meaning of its own; rename it"
        )
    checked = _check_logs(log)
    sound = pd.isna(checked.reason)
    gone, parts, found = [_listed(log.table, log.x_id, LOGGER, checked, ~sound)], [], [checked]
    for policy in sorted(targets):
        if not policy:
            raise DataError(f"the target of {targets[policy]} has no name; name its policy")
        logp, told, missing, of_target = _target(policy, targets[policy], log, sound)
        found.append(of_target)
        gone += [told, missing]
        kept = sound & np.isfinite(logp)
        weight = np.full(len(logp), np.nan)
        ratio = np.where(kept, logp - log.logp, np.nan)
        order = np.argsort(log.x_id.astype(str), kind="stable")  # the sum of the weights runs in this order
        weight[order] = mean_one(ratio[order])
        part = _rows(log, policy).assign(logp_pi_prime=np.where(kept, logp, np.nan), logW=ratio, W_m1=weight)
        first = pd.concat([told, missing]).drop_duplicates("prompt_id").set_index("prompt_id")
        at = sound & ~kept
        by_check, reason = checked.check.copy(), checked.reason.copy()
        by_check[at], reason[at] = (first.loc[log.x_id[at].tolist(), name] for name in ("check", "reason"))
        # One text per check, so that what reads the cache can count by it; the numbers stand in `TfCache.left_out`.
        reason = np.array(
            [SAID.get(check, text) for check, text in zip(by_check, reason, strict=True)], dtype=object
        )
        part["left_out"] = reason
        part.loc[~sound, ["logp_pi0", "logp_pi_prime"]] = np.nan
        parts.append(part)
    rows = pd.concat(parts, ignore_index=True).sort_values(
        ["policy", "x_id"], kind="stable", ignore_index=True
    )
    columns = [*KEPT, *(name for name in rows.columns if name not in (*KEPT, "left_out")), "left_out"]
    left_out = pd.concat(gone, ignore_index=True)[LEFT_OUT]
    counts = [line for one in found for line in one.counts]
    return TfCache(
        rows=rows[columns],
        left_out=left_out.sort_values(["policy", "file", "row"], kind="stable", ignore_index=True),
        checks=pd.DataFrame(counts, columns=["policy", "check", "rows", "failed"]),
        snapshots=pd.concat([one.snapshots for one in found], ignore_index=True),
    )


def write(cache: TfCache, path: str | Path, salt: str | None = None) -> None:
    """Write the rows to Parquet or JSONL, with ids redacted where a salt is given.

    Rows stand in the order of the ids that are written, so that their order tells nothing of others.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     logs, target = Path(folder) / "logs.parquet", Path(folder) / "clone.parquet"
    ...     pd.DataFrame({"x_id": ["p1"], "n_tokens": [2], "logp_pi0": [-3.0], "judge_S": [0.4]}).to_parquet(logs)
    ...     pd.DataFrame({"x_id": ["p1"], "logp": [-2.0]}).to_parquet(target)
    ...     write(tf_cache(logs, {"clone": target}), Path(folder) / "cache.parquet", salt="at least sixteen characters")
    ...     pd.read_parquet(Path(folder) / "cache.parquet")["x_id"].item() == "p1"
    False
    """
    path = Path(path)
    rows = cache.rows
    if salt is not None:
        rows = rows.assign(x_id=np.array(redact(rows["x_id"].tolist(), salt), dtype=object))
        rows = rows.sort_values(["policy", "x_id"], kind="stable", ignore_index=True)
    kind = path.suffix.lower()
    if kind not in (".parquet", ".pq", ".jsonl", ".ndjson"):
        raise DataError(f"{path}: a cache is written as .parquet or .jsonl; name such a file")
    with whole(path) as temporary:
        if kind in (".parquet", ".pq"):
            rows.to_parquet(temporary, index=False)
        else:
            records = rows.astype(object).where(rows.notna(), None).to_dict("records")
            temporary.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")


def _rows(log: Logs, policy: str) -> pd.DataFrame:
    """Columns of the logs that the cache keeps."""
    fold = log.per_prompt.get("fold_id")
    frame = pd.DataFrame(
        {
            "x_id": log.x_id,
            "policy": policy,
            "logp_pi0": log.logp,
            "n_tokens": log.n_tokens,
            "judge_S": log.judge,
            **log.numbers,
        }
    )
    if fold is not None:
        frame["fold_id"] = pd.array([None if v is None else int(v) for v in fold], dtype="Int64")
    if "cohort" in log.per_prompt:
        frame["cohort"] = log.per_prompt["cohort"]
    return frame


def _check_logs(log: Logs) -> _Checked:
    names = {}
    for field in ("run_cfg", "judge_cfg"):
        if log.table.name(field) is not None:
            names[field] = _named(log.table, field)
    n = len(log.x_id)
    missing = {
        **_missing(log.error, log.logp, "logp_pi0 is missing"),
        "judge": (np.isnan(log.judge), "judge_S is missing"),
    }
    calls = Calls(
        logp=log.logp,
        call=np.arange(n),
        policy=np.zeros(n, dtype=np.intp),
        tokens=log.tokens,
        n_ids=None if np.isnan(log.n_ids).all() else log.n_ids,
        snapshot=names,
    )
    return _checked(LOGGER, calls, log.error, missing)


def _named(table: Table, field: str) -> ObjectArray:
    """What each row's configuration says of the model that ran."""
    known: dict[str, str | None] = {}
    out = np.empty(len(table), dtype=object)
    for k, value in enumerate(table.objects(field)):
        # Seeds differ from row to row and name no model, so few texts are left to parse.
        key = SEED.sub("", value) if isinstance(value, str) else repr(value)
        if key not in known:
            said = parse(value) if isinstance(value, str) else value
            broken = isinstance(said, str) and said.lstrip()[:1] in ("{", "[")  # JSON that does not parse
            if broken or not (said is None or isinstance(said, str | Mapping)):
                table.stop(np.arange(len(table)) == k, field, CONFIGURED)
            known[key] = named(said)
        out[k] = known[key]
    return out


def _target(
    policy: str, path: str | Path, log: Logs, sound: BoolArray
) -> tuple[FloatArray, pd.DataFrame, pd.DataFrame, _Checked]:
    """Log-likelihoods of one target per row of the logs; rows of its table left out, and of the logs without any."""
    table = read_table(path)
    x_id = ids_of(table)
    field = table.required(*LOGP)
    logp, tokens = log_likelihoods(table, field, "logp_sum" if field != "logp_tokens" else "logp")
    error = errors_of(table)
    position = pd.Index(log.x_id).get_indexer(pd.Index(x_id))
    renormalized = masked = None
    if table.name("renormalized") is not None or table.name("mask") is not None:
        renormalized, masked = _masking(table)
    calls = Calls(
        logp=logp,
        call=pd.factorize(x_id)[0],
        policy=np.zeros(len(x_id), dtype=np.intp),
        tokens=tokens,
        n_ids=token_ids(table) if table.name("tokens", "n_tokens") is not None else None,
        prompt=_total(table, "logp_prompt"),
        joint=_total(table, "logp_joint"),
        snapshot={name: table.texts(name) for name in NAMES if table.name(name) is not None},
        renormalized=renormalized,
        masked=masked,
    )
    missing = {
        **_missing(error, logp, f"{field} is missing"),
        "in_logs": (position < 0, "its x_id is not in the logs"),
    }
    found = _checked(policy, calls, error, missing)
    kept = pd.isna(found.reason)
    out = np.full(len(log.x_id), np.inf)
    np.minimum.at(out, position[kept], logp[kept])
    out[np.isinf(out)] = np.nan
    seen = np.zeros(len(out), dtype=bool)
    seen[position[position >= 0]] = True
    gap = sound & ~seen
    missing_rows = log.rows(gap).assign(
        policy=policy, check="gap", reason=f"no row of its x_id in the table of {policy}"
    )
    found.counts.append((policy, "gap", int(sound.sum()), int(gap.sum())))
    return out, _listed(table, x_id, policy, found, ~kept), missing_rows, found


def _total(table: Table, field: str) -> FloatArray | None:
    """Log-likelihoods in a column that need not be there, summed over tokens."""
    return None if table.name(field) is None else log_likelihoods(table, field, f"{field}_sum")[0]


def _masking(table: Table) -> tuple[BoolArray, BoolArray]:
    """Rows renormalised after masking, and rows that a mask touched without saying whether."""
    n = len(table)
    renormalized, known = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
    if table.name("renormalized") is not None:
        renormalized, known = table.flags("renormalized")
    touched = np.zeros(n, dtype=bool)
    if table.name("mask") is not None:
        single, bits = table.lists("mask", "a list of mask bits is expected: 0, or 1 where the mask acted")
        touched = single > 0
        if bits is not None:
            touched = bits.counts(bits.values > 0) > 0
    return renormalized, touched & ~known


def _missing(error: ObjectArray, logp: FloatArray, reason: str) -> dict[str, tuple[BoolArray, str]]:
    """Rows without a result: those that say why, and those that do not."""
    said = np.array([text is not None for text in error], dtype=bool)
    return {"error": (said, ""), "missing": (np.isnan(logp) & ~said, reason)}


def _checked(
    policy: str, calls: Calls, error: ObjectArray, missing: Mapping[str, tuple[BoolArray, str]]
) -> _Checked:
    """First what is missing, then the checks on the rows that are there: a row's first failure is its reason."""
    n = len(calls.logp)
    reason, check = np.full(n, None, dtype=object), np.full(n, None, dtype=object)
    counts = []
    for name, (rows, words) in missing.items():
        counts.append((policy, name, n, int(rows.sum())))
        new = rows & pd.isna(check)
        reason[new] = error[new] if name == "error" else words
        check[new] = name
    there = np.flatnonzero((check != "error") & (check != "missing"))
    ran = {verdict.check: verdict for verdict in verdicts(_some(calls, there))}
    for name in CHECKS:
        if name not in ran:
            if policy != LOGGER or name in OF_LOGS:
                counts.append((policy, name, 0, 0))
            continue
        failed = np.flatnonzero(~ran[name].passed)
        counts.append((policy, name, len(there), len(failed)))
        for k in failed.tolist():
            at = there[k]
            if check[at] is None:
                reason[at], check[at] = f"{name}: {ran[name].reason(k)}", name
    return _Checked(reason, check, counts, _snapshots(policy, calls))


def _snapshots(policy: str, calls: Calls) -> pd.DataFrame:
    """How many rows give each name of model, template and tokenizer."""
    lines = []
    for field, names in calls.snapshot.items():
        counts = pd.Series(names, dtype=object).value_counts()
        lines += [(policy, field, str(name), int(counts[name])) for name in sorted(counts.index)]
    return pd.DataFrame(lines, columns=["policy", "field", "name", "rows"])


def _some(calls: Calls, rows: IntArray) -> Calls:
    """Some of the calls."""

    def of(values: FloatArray | None) -> FloatArray | None:
        return None if values is None else values[rows]

    def flags(values: BoolArray | None) -> BoolArray | None:
        return None if values is None else values[rows]

    tokens: Ragged | None = None if calls.tokens is None else calls.tokens.take(rows)
    return Calls(
        logp=calls.logp[rows],
        call=np.unique(calls.call[rows], return_inverse=True)[1],
        policy=calls.policy[rows],
        tokens=tokens,
        n_ids=of(calls.n_ids),
        prompt=of(calls.prompt),
        joint=of(calls.joint),
        snapshot={name: values[rows] for name, values in calls.snapshot.items()},
        renormalized=flags(calls.renormalized),
        masked=flags(calls.masked),
    )


def _listed(table: Table, x_id: ObjectArray, policy: str, found: _Checked, which: BoolArray) -> pd.DataFrame:
    """Rows of a table that are left out."""
    return pd.DataFrame(
        {
            "file": table.file,
            "row": table.row[which],
            "policy": policy,
            "prompt_id": x_id[which],
            "check": found.check[which],
            "reason": found.reason[which],
        }
    )
