"""``cje-lab tf-cache``: logs and tables of log-likelihoods, checked and joined."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from studies.cli import progress
from studies.cli.options import Json, Salt

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Group

    from cje_core.offpolicy.tf_cache import TfCache


def tf_cache(
    logs: Annotated[
        Path, typer.Option(help="Logs in the columns of the logging schema: .parquet or .jsonl.")
    ],
    target: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=TABLE",
            help="Target policy and its log-likelihoods of the logged responses, .parquet or .jsonl; repeatable.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(metavar="CACHE", help="The cache, .parquet or .jsonl: what --logged of analyze takes."),
    ],
    judge: Annotated[
        str | None,
        typer.Option(
            help="Sub-score that is the judge's, where judge_S holds several; the others become covariates."
        ),
    ] = None,
    covariate: Annotated[
        list[str] | None,
        typer.Option(help="Numeric field of the logs to keep; response_length counts words. Repeatable."),
    ] = None,
    salt: Salt = None,
    as_json: Json = False,
) -> None:
    """Check teacher-forced log-likelihoods and join them into one cache of weights.

    A row that breaks a check (determinism, additivity, token sums, log p <= 0, pinned snapshots, masking) is left out,
    counted and named; OUT.ledger.json lists them.
    """
    from cje_core.data import DataError
    from cje_core.disk.whole import put
    from cje_core.offpolicy.tf_cache import tf_cache as join
    from cje_core.offpolicy.tf_cache import write
    from studies.cli.redaction import hidden, salt_of

    targets: dict[str, Path] = {}
    for word in target:
        name, equals, path = word.partition("=")
        if not (name and equals and path):
            raise DataError(f"--target {word}: write NAME=TABLE")
        if name in targets:
            raise DataError(f"--target {word}: policy {name!r} is given twice; give it one table")
        targets[name] = Path(path)
    secret = salt_of(salt)
    ledger = out.with_name(f"{out.name}.ledger.json")
    for given in (logs, *targets.values()):
        if given.resolve() in (out.resolve(), ledger.resolve()):
            raise DataError(f"--out {out}: it would overwrite {given}, which is read; name another file")
    with progress.working("checking, joining"):
        cache = join(logs, targets, judge=judge, covariates=covariate or ())
    if cache.rows["left_out"].notna().all():
        why = cache.rows["left_out"].value_counts()
        said = f"; most often: {why.index[0]}" if len(why) else ""
        raise DataError(f"{logs}: no row passes the checks and joins a target, so there is no cache{said}")
    told = hidden(to_json(cache), secret)
    try:
        write(cache, out, secret)
        put(ledger, (json.dumps(told, indent=1, allow_nan=False) + "\n").encode())
    except OSError as error:
        raise DataError(f"--out {out}: {(error.strerror or str(error)).lower()}; name another file") from None
    typer.echo(f"written: {out}, {ledger}", err=True)
    if as_json:
        typer.echo(json.dumps(told, allow_nan=False))
    else:
        progress.show(summary(cache))


def to_json(cache: "TfCache") -> dict[str, Any]:
    """Return the object that ``--json`` prints: per policy the rows kept and their weights, checks, rows left out."""
    return {
        "policies": {str(row.pop("policy")): row for row in _by_policy(cache)},
        "checks": [
            {**row, "policy": row["policy"] or None, "state": _state(row)} for row in _records(cache.checks)
        ],
        "snapshots": [{**row, "policy": row["policy"] or None} for row in _records(cache.snapshots)],
        "left_out": [{**row, "policy": row["policy"] or None} for row in _records(cache.left_out)],
    }


def _records(table: "pd.DataFrame") -> list[dict[str, Any]]:
    return list(json.loads(table.to_json(orient="records")))


def summary(cache: "TfCache") -> "Group":
    """Return what stdout shows."""
    from rich.text import Text

    from studies.cli.wide import Wide, page

    kept = Wide()
    for header in ("policy", "rows\nkept", "left\nout", "ESS\n/ n", "largest\nweight", "tokens\na row"):
        kept.add_column(header, no_wrap=True)
    for row in _by_policy(cache):
        tokens = "-" if row["mean_tokens"] is None else f"{row['mean_tokens']:.0f}"
        ess, top = (
            f"{row[name]:.3g}" if row[name] is not None else "-" for name in ("ess_fraction", "max_weight")
        )
        kept.add_row(str(row["policy"]), str(row["kept"]), str(row["left_out"]), ess, top, tokens)
    checks = Wide()
    checks.add_column("check", no_wrap=True)
    owners = list(dict.fromkeys(cache.checks["policy"]))
    for owner in owners:
        checks.add_column(owner or "logger", overflow="fold", min_width=6)
    table = cache.checks.set_index(["check", "policy"])
    for name in dict.fromkeys(cache.checks["check"]):
        cells = []
        for owner in owners:
            found = table.loc[(name, owner)] if (name, owner) in table.index else None
            cells.append("" if found is None else _state(found.to_dict()) + _failed(int(found["failed"])))
        checks.add_row(name, *cells)
    lines = []
    for (file, policy, check), rows in cache.left_out.groupby(["file", "policy", "check"], sort=True):
        first = rows.iloc[0]
        more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
        whose, why = f" (policy {policy})" if policy else "", str(first["reason"]).removeprefix(f"{check}: ")
        lines.append(f"left out by {check}: {file}, row {first['row']}{more}: {why}{whose}")
    for owner in owners:
        unknown = [
            row["check"]
            for row in _records(cache.checks)
            if row["policy"] == owner and _state(row) == "unknown"
        ]
        if unknown:
            lines.append(
                f"unknown, so not passed, of {owner or 'the logger'}: {', '.join(unknown)} (no column tells)"
            )
    return page([kept, checks, *([Text("\n".join(lines))] if lines else [])])


def _by_policy(cache: "TfCache") -> list[dict[str, Any]]:
    from cje_core.offpolicy.weights import ess_fraction

    out = []
    for policy, rows in cache.rows.groupby("policy", sort=True):
        kept = rows[rows["left_out"].isna()]
        some, tokens = len(kept) > 0, kept["n_tokens"].mean()
        out.append(
            {
                "policy": policy,
                "rows": len(rows),
                "kept": len(kept),
                "left_out": len(rows) - len(kept),
                "mean_weight": float(kept["W_m1"].mean()) if some else None,
                "ess_fraction": ess_fraction(kept["W_m1"]) if some else None,
                "max_weight": float(kept["W_m1"].max()) if some else None,
                "mean_tokens": None if tokens != tokens else float(tokens),
            }
        )
    return out


def _state(row: Mapping[Any, Any]) -> str:
    """A check that looked at no row is unknown, not passed."""
    if row["failed"]:
        return "fail"
    return "pass" if row["rows"] else "unknown"


def _failed(n: int) -> str:
    return f" {n}" if n else ""
