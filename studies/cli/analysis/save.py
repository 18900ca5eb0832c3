"""What ``cje-lab analyze --out`` writes, and how ``--out`` is written."""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xarray as xr

from cje_core.data import DataError
from cje_core.workflow.analysis import Analysis
from cje_core.workflow.posterior import to_tree
from cje_core.workflow.steps.report import ledgers
from studies.cli.analysis.as_json import to_json
from studies.cli.redaction import hidden, hidden_prompts
from studies.engine.blocks import write_whole


def check_out(out: Path | None, option: str = "--out") -> None:
    """Stop before the work if `out` cannot become a directory."""
    there = [path for path in (out, *out.parents) if path.exists()] if out else []
    if there and not there[0].is_dir():
        raise DataError(f"{option} {out}: {there[0]} is a file; name a directory")


def save(
    analysis: Analysis,
    out: Path,
    told: dict[str, Any] | None = None,
    salt: str | None = None,
    *,
    traces: Mapping[str, xr.Dataset] | None = None,
) -> list[str]:
    """Write estimates.json, ledger.nc, the figures, and with ``--bayes`` posterior.nc; each is whole or absent.

    ``told`` is the analysis by `to_json`, ids hidden, and ``traces`` the jackknife's, where the caller has them.
    ``salt`` redacts the ids of prompts.
    """
    from studies.cli.analysis.forest import render
    from studies.cli.analysis.panels import render_panels

    text = json.dumps(told or hidden(to_json(analysis), salt), indent=1, allow_nan=False) + "\n"
    files = {"estimates.json": text.encode("utf-8"), **render(analysis), **render_panels(analysis)}
    kept = {name: hidden_prompts(one, salt) for name, one in ledgers(analysis, traces).items()}
    files["ledger.nc"] = _netcdf(xr.DataTree.from_dict(kept))
    if analysis.posterior is not None:
        files["posterior.nc"] = _netcdf(to_tree(analysis.posterior, analysis.calibrated, analysis.seed))
    write_files(out, files)
    return list(files)


def write_files(out: Path, files: dict[str, bytes]) -> None:
    """Write `files` into `out`; each is whole or absent."""
    try:
        for name, content in files.items():
            write_whole(out / name, lambda handle, content=content: handle.write(content))  # type: ignore[misc]
    except OSError as error:
        raise DataError(
            f"--out {out}: {(error.strerror or str(error)).lower()}; name another directory"
        ) from None


def _netcdf(tree: xr.DataTree) -> bytes:
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "tree.nc"
        tree.to_netcdf(path, engine="netcdf4")
        return path.read_bytes()
