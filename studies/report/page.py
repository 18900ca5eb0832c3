"""The report, one self-contained HTML file (tables, figures, ADEMP text, manifest), and tables as text."""

import io
import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from cje_core.figures.style import OKABE_ITO, STYLE
from studies.engine import blocks, measures
from studies.engine.manifest import read_manifest
from studies.engine.study import Study, StudyError, load

LONG_TABLE = 40  # rows beyond which a table is folded away


@dataclass(frozen=True)
class Item:
    """One study in a report."""

    study: Study
    results: xr.Dataset
    tables: Mapping[str, pd.DataFrame]
    manifest: Mapping[str, Any]
    failures: list[Mapping[str, Any]]


@dataclass(frozen=True)
class Page:
    """A written report."""

    path: Path
    items: list[Item]


def tables(study: Study, ds: xr.Dataset) -> dict[str, pd.DataFrame]:
    """Return the study's tables by title, the headline first."""
    made = study.table(ds)
    return {study.title: made} if isinstance(made, pd.DataFrame) else dict(made)


def records(frame: pd.DataFrame) -> Any:
    """Rows of a table as JSON values, NaN as null."""
    return json.loads(frame.to_json(orient="records", double_precision=15))


def with_mcse(value: float, mcse: float) -> str:
    """A number and its MCSE with two significant digits of the latter.

    Examples
    --------
    >>> with_mcse(0.9512, 0.0154), with_mcse(1.0, 0.0), with_mcse(float("nan"), 0.1)
    ('0.951 (0.015)', '1.000 (0)', '-')
    """
    if not math.isfinite(value):
        return "-"
    if not math.isfinite(mcse):
        return _number(value)
    digits = 3 if mcse < 1e-12 else min(max(1 - math.floor(math.log10(mcse)), 0), 8)
    return f"{value:.{digits}f} ({0 if mcse < 1e-12 else format(mcse, f'.{digits}f')})"


def _number(value: object) -> str:
    if isinstance(value, (float, np.floating)):
        return f"{value:.4g}" if math.isfinite(value) else "-"
    return str(value)


def render(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table as text, each pair of columns ``x`` and ``x_mcse`` as one "value (MCSE)"."""
    shown = {}
    for column in frame.columns:
        if f"{column}_mcse" in frame.columns:
            pairs = zip(frame[column], frame[f"{column}_mcse"], strict=True)
            shown[column] = [with_mcse(float(value), float(mcse)) for value, mcse in pairs]
        elif not (str(column).endswith("_mcse") and str(column)[: -len("_mcse")] in frame.columns):
            shown[column] = [_number(value) for value in frame[column]]
    return pd.DataFrame(shown, dtype=str)


def headline(study: Study, ds: xr.Dataset) -> str:
    """Title and headline table of a study, as plain text."""
    title, frame = next(iter(tables(study, ds).items()))
    note = ", value (MCSE)" if any(str(column).endswith("_mcse") for column in frame.columns) else ""
    return f"{study.name}: {title}{note}\n{render(frame).to_string(index=False)}"


def find(directory: Path) -> list[Path]:
    """Directories of studies: `directory` itself or those inside it."""
    manifests = [directory / "manifest.json", *sorted(directory.glob("*/manifest.json"))]
    found = [path.parent for path in manifests if path.exists()]
    if not found:
        raise StudyError(f"{directory} holds no study (no manifest.json); give the --out of a cje-lab run")
    return found


def read(directory: Path) -> Item:
    """Read one study's results and make its tables."""
    manifest = read_manifest(directory)
    if manifest is None or not (directory / "results.nc").exists():
        raise StudyError(
            f"{directory} has no merged results yet; finish the run (the same command resumes it)"
        )
    study = load(manifest["definition"]["study"]).at(manifest["runs"][-1]["profile"])
    ds = blocks.read_results(directory / "results.nc")
    path = directory / "failures.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return Item(study, ds, tables(study, ds), manifest, [json.loads(line) for line in lines])


def svg(figure: Any, prefix: str) -> str:
    """Inline SVG of a matplotlib figure; `prefix` keeps ids apart when a page holds several."""
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    stream = io.StringIO()
    with mpl.rc_context(STYLE):
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    return re.sub(r'(\bid="|url\(#|xlink:href="#)([^")]+)', rf"\1{prefix}-\2", text)


def figures(study: Study, ds: xr.Dataset) -> dict[str, str]:
    """Return the study's figures as inline SVG by caption."""
    import matplotlib as mpl
    from cycler import cycler

    mpl.use("Agg")
    with mpl.rc_context({**STYLE, "axes.prop_cycle": cycler(color=OKABE_ITO)}):
        made = study.figure(ds)
        named = made if isinstance(made, Mapping) else {study.title: made}
        return {caption: svg(f, f"{study.name}-{k}") for k, (caption, f) in enumerate(named.items())}


def _grouped(failures: list[Mapping[str, Any]]) -> list[tuple[str, str, int]]:
    counts = Counter((str(failure["stage"]), str(failure["error"])) for failure in failures)
    return sorted((*key, count) for key, count in counts.items())


def write(directory: Path) -> Page:
    """Write ``report.html`` and per study ``performance.csv`` (every measure with MCSE and bounds).

    `directory` is the ``--out`` of a run, or one study's in it.
    """
    import jinja2

    items = [read(path) for path in find(directory)]
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    sections = [
        {
            "study": item.study,
            "grid": {factor: item.results[factor].values.tolist() for factor in item.study.factors},
            "replicates": item.results.sizes["replicate"],
            "tables": {
                title: {
                    "html": render(frame).to_html(index=False, border=0, justify="left"),
                    "rows": len(frame),
                }
                for title, frame in item.tables.items()
            },
            "figures": figures(item.study, item.results),
            "failures": _grouped(item.failures),
            "manifest": item.manifest,
            "manifest_json": json.dumps(item.manifest, indent=1),
        }
        for item in items
    ]
    page = environment.get_template("report.html.j2").render(
        sections=sections, palette=OKABE_ITO, long_table=LONG_TABLE
    )
    path = directory / "report.html"
    try:
        blocks.write_whole(path, lambda handle: handle.write(page.encode()))
        for item, source in zip(items, find(directory), strict=True):
            text = measures.long_table(measures.performance(item.results)).to_csv(index=False)
            blocks.write_whole(source / "performance.csv", lambda handle, t=text: handle.write(t.encode()))  # type: ignore[misc]
    except OSError as error:
        raise StudyError(f"cannot write {path}: {error.strerror or error}") from None
    return Page(path, items)
