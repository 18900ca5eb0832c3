"""How an analysis is put out: one JSON object or the tables on the screen, and files."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from studies.cli import progress
from studies.cli.brief import load_figures

if TYPE_CHECKING:
    import xarray as xr

    from cje_core.workflow.analysis import Analysis

ALWAYS = ("index.html", "estimates.json", "ledger.nc")  # files of every analysis


def tell(
    result: "Analysis",
    out: Path | None,
    salt: str | None,
    *,
    as_json: bool,
    traces: "Mapping[str, xr.Dataset] | None" = None,
) -> None:
    """Print, then write what ``--out`` asks for; ids are redacted with `salt`, see `studies.cli.redaction`.

    What was found is shown first: a full disk does not take it away.
    """
    from studies.cli.analysis.as_json import to_json
    from studies.cli.analysis.save import save
    from studies.cli.analysis.tables import summary
    from studies.cli.redaction import hidden

    told = hidden(to_json(result), salt) if as_json else None
    if told is not None:
        typer.echo(json.dumps(told, allow_nan=False))
    else:
        progress.show(summary(result))
    if out is None:
        return
    broken: list[str] = []
    with progress.working("drawing"):
        load_figures()
        written = save(result, out, told, salt, traces=traces, broken=broken)
    for line in broken:
        typer.echo(f"warning: {line}", err=True)
    typer.echo(f"written to {out}: {', '.join(written)}", err=True)
