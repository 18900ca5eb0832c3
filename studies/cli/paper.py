"""``cje-lab paper``: the rows of the paper's main table on a user's files, in the paper's mode."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from studies.cli import progress
from studies.cli.options import CalibrationPolicy, Json, JudgeRange, Logged, OracleRange, Probes, Salt, Seed

if TYPE_CHECKING:
    from collections.abc import Mapping

    import xarray as xr


def paper(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Responses, as for analyze.")],
    probes: Probes = None,
    logged: Logged = None,
    row: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Row by the paper's name, such as direct, stacked-dr+cov or bootstrap-direct; repeatable [default: "
            "all that the data can fill, without response_length].",
        ),
    ] = None,
    folds: Annotated[
        str,
        typer.Option(help="hash (the paper's hash of the id modulo 5), or dealt (balanced over the labels)."),
    ] = "hash",
    n_min: Annotated[
        int | None,
        typer.Option(
            min=1, help="Fewest labels in a resample of bootstrap-direct [default: the paper's 30]."
        ),
    ] = None,
    calibration_policy: CalibrationPolicy = None,
    seed: Seed = 1,
    judge_range: JudgeRange = (0.0, 1.0),
    oracle_range: OracleRange = (0.0, 1.0),
    salt: Salt = None,
    as_json: Json = False,
) -> None:
    """Estimate by the rows of the paper's main table, with its intervals, folds and resamples.

    To reproduce and to compare, not to report: these intervals ignore what analyze counts, nothing is audited and no
    level is refused.
    """
    from cje_core.data import DataError
    from cje_core.families.direct.bootstrap import N_MIN
    from cje_core.io.fields import LENGTH
    from cje_core.io.files import read
    from cje_core.workflow.paper import paper_mode
    from studies.cli.analysis.lines.notes import left_out_lines
    from studies.cli.redaction import salt_of

    if n_min is not None and row and "bootstrap-direct" not in row:
        raise DataError(
            f"--n-min {n_min}: it is of the row bootstrap-direct, which was not asked for; add --row bootstrap-direct"
        )
    n_min = N_MIN if n_min is None else n_min
    lengths = [LENGTH] if any(name.endswith("+cov") for name in row or ()) else []
    with progress.working("reading, estimating"):
        found, left_out = read(
            data, probes=probes, logged=logged, covariates=lengths, calibration_policy=calibration_policy,
            judge_range=judge_range, oracle_range=oracle_range, salt=salt_of(salt),
        )  # fmt: skip
        rows = paper_mode(found, row or (), folds=folds, n_min=n_min, seed=seed)
    if as_json:
        told = {
            "folds": folds,
            "n_min": n_min,
            "seed": seed,
            "left_out": len(left_out),
            "rows": to_json(rows),
        }
        typer.echo(json.dumps(told, allow_nan=False))
    else:
        progress.show(table(rows, oracle_range))
        for line in left_out_lines(left_out):
            typer.echo(line)


def to_json(rows: "Mapping[str, xr.Dataset]") -> dict[str, Any]:
    """Estimates by row and policy; null where there is none."""
    from cje_core.inference.estimate import Status
    from studies.cli.analysis.numbers import ends, numbers

    return {
        name: {
            str(policy): {
                **numbers(estimate.sel(policy=policy), "estimate", "std_error"),
                "interval": ends(estimate["interval"].sel(policy=policy)),
                "status": Status(int(estimate["status"].sel(policy=policy))).name.lower(),
            }
            for policy in estimate["policy"].values
        }
        for name, estimate in rows.items()
    }


def table(rows: "Mapping[str, xr.Dataset]", scale: tuple[float, float]) -> Any:
    """One line per row of the paper's table, one column per policy."""
    from rich.text import Text

    from cje_core.inference.estimate import Status
    from cje_core.workflow.shown import number
    from studies.cli.wide import Wide, page

    shown = Wide()
    shown.add_column("row", overflow="fold", min_width=8)
    policies = [str(name) for name in next(iter(rows.values()))["policy"].values]
    for policy in policies:
        shown.add_column(policy, no_wrap=True)
    for name, estimate in rows.items():
        cells = []
        for policy in policies:
            at = estimate.sel(policy=policy)
            low, high = (number(float(end), scale) for end in at["interval"].values)
            status = Status(int(at["status"]))
            known = f"{number(float(at['estimate']), scale)} [{low}, {high}]"
            cells.append(status.name.lower() if status.failed else known)
        shown.add_row(Text(name), *[Text(cell) for cell in cells])
    return page(
        [
            shown,
            Text("the paper's mode, to reproduce and to compare: what may be reported says cje-lab analyze"),
        ]
    )
