"""What ``cje-lab analyze --out`` writes, and how ``--out`` is written."""

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from cje_core.data import DataError
from cje_core.data.schema.redacted import redact
from cje_core.workflow.analysis import Analysis
from cje_core.workflow.posterior import to_tree
from cje_core.workflow.steps.report import ledgers
from studies.cli.analysis.as_json import to_json
from studies.cli.redaction import hidden, hidden_prompts
from studies.report.parts import attempt

LISTING = ".cje-lab-files"  # what the last analysis wrote, so that the next one leaves nothing stale


def check_out(out: Path | None, option: str = "--out", *, apart: Sequence[Path | None] = ()) -> None:
    """Stop before the work if `out` cannot become a directory, or is one of those `apart`, which are read."""
    if out is None:
        return
    for place in apart:
        if place is not None and place.is_dir() and out.resolve() == place.resolve():
            raise DataError(
                f"{option} {out}: the next run would read what is written there as data; name another"
            )
    for path in (out, *out.parents):
        try:
            there = path.exists()
        except OSError:  # a name that is too long: said when it is written, after what was found is printed
            return
        if there:
            if not path.is_dir():
                raise DataError(f"{option} {out}: {path} is a file; name a directory")
            return


def save(
    analysis: Analysis,
    out: Path,
    told: dict[str, Any] | None = None,
    salt: str | None = None,
    *,
    traces: Mapping[str, xr.Dataset] | None = None,
    broken: list[str] | None = None,
) -> list[str]:
    """Write index.html, estimates.json, ledger.nc, the figures, and with ``--bayes`` posterior.nc; all or none.

    ``told`` is the analysis by `to_json`, ids hidden, and ``traces`` the jackknife's, where the caller has them.
    ``salt`` redacts the ids of prompts. A figure that cannot be drawn is left out, and a line in ``broken`` says why.
    Files of an earlier analysis in `out` that this one has not are taken away.
    """
    from studies.cli.analysis.forest import render
    from studies.cli.analysis.page import page
    from studies.cli.analysis.panels import render_panels

    lines = [] if broken is None else broken
    shown = told or hidden(to_json(analysis), salt)
    nothing: dict[str, bytes] = {}
    figures = attempt("the forest plot", lambda: render(analysis), nothing, lines)
    figures |= render_panels(analysis, lines)
    text = json.dumps(shown, indent=1, allow_nan=False) + "\n"
    files = {"estimates.json": text.encode("utf-8"), **figures}
    kept = {name: hidden_prompts(one, salt) for name, one in ledgers(analysis, traces).items()}
    files["ledger.nc"] = _netcdf(xr.DataTree.from_dict(kept))
    if analysis.posterior is not None:
        tree = to_tree(analysis.posterior, analysis.calibrated, analysis.seed)
        files["posterior.nc"] = _netcdf(_without_prompts(tree, salt))
    html = page(analysis, shown, files, lines)
    files = {"index.html": html, **files}
    write_files(out, {**files, LISTING: json.dumps(sorted(files)).encode()}, earlier=LISTING)
    return list(files)


def _without_prompts(tree: xr.DataTree, salt: str | None) -> xr.DataTree:
    """The posterior with ids of prompts redacted, or as they are without a salt, as the ledger has them."""
    if salt is None or "constant_data" not in tree or "label_prompt" not in tree["constant_data"]:
        return tree
    groups = {name: node.to_dataset(inherit=False) for name, node in tree.children.items()}
    constant = groups["constant_data"]
    names = np.array(redact(constant["label_prompt"].values.astype(str).tolist(), salt), dtype=str)
    groups["constant_data"] = constant.assign(label_prompt=("label", names))
    order = np.argsort(names, kind="stable")  # the old order would tell which id is which
    return xr.DataTree.from_dict(
        {name: one.isel(label=order) if "label" in one.dims else one for name, one in groups.items()}
    )


def write_files(out: Path, files: dict[str, bytes], *, earlier: str | None = None) -> None:
    """Write `files` into `out`, all of them or none: to a folder beside them first, from which they are moved.

    ``earlier`` names the file that lists what an earlier call wrote there: what is in it and not in `files` goes.
    """
    made = [path for path in (out, *out.parents) if not _there(path)]
    scratch = None
    try:
        out.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".cje-lab-", dir=out))
        for name, content in files.items():
            (scratch / name).parent.mkdir(parents=True, exist_ok=True)
            (scratch / name).write_bytes(content)
        with (scratch / next(iter(files))).open("rb") as handle:
            os.fsync(handle.fileno())
        old = _listed(out / earlier) - set(files) if earlier else set()
        for name in files:
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (scratch / name).replace(out / name)
        for name in old:
            (out / name).unlink(missing_ok=True)
    except OSError as error:
        mend = "name another directory"
        raise DataError(f"--out {out}: {(error.strerror or str(error)).lower()}; {mend}") from None
    finally:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)
        for path in made:  # empty ones alone: nothing was written
            with contextlib.suppress(OSError):
                path.rmdir()


def _there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def _listed(path: Path) -> set[str]:
    """Names that an earlier run wrote into its folder; nothing where the list cannot be read."""
    try:
        names = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return set()
    if not isinstance(names, list):
        return set()
    return {str(name) for name in names if Path(str(name)).name == str(name)}


def _netcdf(tree: xr.DataTree) -> bytes:
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "tree.nc"
        tree.to_netcdf(path, engine="netcdf4")
        return path.read_bytes()
