"""What ``cje-lab analyze --out`` writes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from cje_core.disk.groups import packed
from cje_core.io.schema.redacted import redact
from cje_core.workflow.analysis import Analysis
from cje_core.workflow.posterior import to_tree
from cje_core.workflow.steps.report import ledgers
from studies.cli.analysis.as_json import to_json
from studies.cli.analysis.out import write_files
from studies.cli.redaction import hidden, hidden_prompts
from studies.report.parts import attempt


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
    Files of an earlier analysis in `out` that this one has not are taken away; those of others are left, and where
    one stands in the way nothing is written.
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
    files["ledger.nc"] = packed(kept)
    if analysis.posterior is not None:
        tree = to_tree(analysis.posterior, analysis.calibrated, analysis.seed)
        files["posterior.nc"] = packed(_without_prompts(tree, salt))
    html = page(analysis, shown, files, lines)
    files = {"index.html": html, **files}
    write_files(out, files, by="analyze")
    return list(files)


def _without_prompts(tree: xr.DataTree, salt: str | None) -> dict[str, xr.Dataset]:
    """Groups of the posterior, ids of prompts redacted, or as they are without a salt, as the ledger has them."""
    groups = {name: node.to_dataset(inherit=False) for name, node in tree.children.items()}
    constant = groups.get("constant_data", xr.Dataset())
    if salt is None or "label_prompt" not in constant:
        return groups
    names = np.array(redact(constant["label_prompt"].values.astype(str).tolist(), salt), dtype=str)
    groups["constant_data"] = constant.assign(label_prompt=("label", names))
    order = np.argsort(names, kind="stable")  # the old order would tell which id is which
    return {name: one.isel(label=order) if "label" in one.dims else one for name, one in groups.items()}
