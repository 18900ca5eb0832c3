"""What ``cje-lab analyze --out`` writes, and how ``--out`` is written."""

import json
import tempfile
from pathlib import Path
from typing import Any

import xarray as xr

from cje_core.data import DataError
from cje_core.verdict.reporting import ledger
from cje_core.workflow.analysis import Analysis
from cje_core.workflow.posterior import to_tree
from studies.cli.analysis.as_json import to_json
from studies.engine.blocks import write_whole


def check_out(out: Path | None) -> None:
    """Stop before the work if `out` cannot become a directory."""
    there = [path for path in (out, *out.parents) if path.exists()] if out else []
    if there and not there[0].is_dir():
        raise DataError(f"--out {out}: {there[0]} is a file; name a directory")


def save(analysis: Analysis, out: Path, told: dict[str, Any] | None = None) -> list[str]:
    """Write estimates.json, ledger.nc, the figures, and with ``--bayes`` posterior.nc; each is whole or absent.

    ``told`` is the analysis by `to_json`, where the caller has it.
    """
    from studies.cli.analysis.forest import render
    from studies.cli.analysis.panels import render_panels

    text = json.dumps(told or to_json(analysis), indent=1, allow_nan=False) + "\n"
    files = {"estimates.json": text.encode("utf-8"), **render(analysis), **render_panels(analysis)}
    files["ledger.nc"] = _ledgers(analysis)
    if analysis.posterior is not None:
        files["posterior.nc"] = _netcdf(to_tree(analysis.posterior))
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


def _ledgers(analysis: Analysis) -> bytes:
    """Reporting ledger of every estimator, one netCDF group each."""
    of_primary: dict[str, Any] = {
        "sensitivity": analysis.if_biased,
        "contrasts": analysis.contrasts,
        "tipping": analysis.tipping,
    }
    groups = {
        name: ledger(
            analysis.calibrated,
            estimate=estimate,
            overlap=analysis.overlap,
            coverage=analysis.coverage,
            reliability=analysis.reliability,
            transport=analysis.transport,
            agreement=analysis.agreement,
            gates=analysis.gates,
            levels=analysis.levels,
            left_out=analysis.left_out,
            **(of_primary if name == analysis.primary else {}),
        )
        for name, estimate in analysis.estimates.items()
    }
    return _netcdf(xr.DataTree.from_dict(groups))


def _netcdf(tree: xr.DataTree) -> bytes:
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "tree.nc"
        tree.to_netcdf(path, engine="netcdf4")
        return path.read_bytes()
