"""How an analysis is put out: files, and one JSON object or the page."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from studies.cli import progress

if TYPE_CHECKING:
    import xarray as xr

    from cje_core.workflow.analysis import Analysis


def tell(
    result: "Analysis",
    out: Path | None,
    salt: str | None,
    *,
    as_json: bool,
    traces: "Mapping[str, xr.Dataset] | None" = None,
) -> None:
    """Write what ``--out`` asks for, then print; ids are redacted with `salt`, see `studies.cli.redaction`."""
    from studies.cli.analysis.as_json import to_json
    from studies.cli.analysis.save import save
    from studies.cli.analysis.tables import summary
    from studies.cli.redaction import hidden

    told = hidden(to_json(result), salt) if as_json else None
    if out is not None:
        with progress.working("drawing"):
            written = save(result, out, told, salt, traces=traces)
        typer.echo(f"written to {out}: {', '.join(written)}", err=True)
    if told is not None:
        typer.echo(json.dumps(told, allow_nan=False))
    else:
        progress.show(summary(result))
