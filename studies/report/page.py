"""The report: what was found and by which rule, then tables, figures, methods to paste, manifest; and tables as text.

One self-contained HTML file; beside it each table as CSV and LaTeX. A part that a study cannot make is named where it
would stand, and the rest is there.
"""

import io
import json
import math
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from cje_core.disk.whole import put
from cje_core.figures.style import OKABE_ITO, STYLE
from studies.engine import blocks, measures, protocol
from studies.engine.manifest import read_manifest
from studies.engine.running.directory import find, of_directory
from studies.engine.study import Finding, Study, StudyError
from studies.report.methods import mechanism, methods_text
from studies.report.parts import attempt, inline, rendered
from studies.report.tables import LONG_TABLE, WIDTH, file_names, fitting, header, latex, plain

VERDICTS = {True: "yes", False: "no", None: "open"}  # whether what a finding asks is so
MOST_MEASURES = 6  # sentences for a study that has none of its own


@dataclass(frozen=True)
class Item:
    """One study in a report."""

    study: Study
    results: xr.Dataset
    tables: Mapping[str, pd.DataFrame]
    manifest: Mapping[str, Any]
    failures: list[Mapping[str, Any]]
    findings: Sequence[Finding] = ()
    broken: list[str] = field(default_factory=list)  # parts that could not be made, and why


@dataclass(frozen=True)
class Page:
    """A written report."""

    path: Path
    items: list[Item]

    @property
    def broken(self) -> list[str]:
        """Parts that could not be made, and why, of all studies."""
        return [f"{item.study.name}: {line}" for item in self.items for line in item.broken]


def tables(study: Study, ds: xr.Dataset) -> dict[str, pd.DataFrame]:
    """Return the study's tables by title, the headline first."""
    made = study.table(ds)
    return {study.title: made} if isinstance(made, pd.DataFrame) else dict(made)


def records(frame: pd.DataFrame) -> Any:
    """Rows of a table as JSON values, NaN as null."""
    return json.loads(frame.to_json(orient="records", double_precision=15))


def with_mcse(value: float, mcse: float) -> str:
    """A number and its MCSE with two significant digits of the latter.

    What did not vary between replicates is printed alone: an error of 0 would claim that it is known exactly. Of a
    proportion at 0 or 1 the tables know better (`studies.engine.measures.flat_error`), so it comes here with an error.

    Examples
    --------
    >>> with_mcse(0.9512, 0.0154), with_mcse(1.0, 0.0589), with_mcse(1.0, 0.0), with_mcse(float("nan"), 0.1)
    ('0.951 (0.015)', '1.000 (0.059)', '1.000', '-')
    """
    if not math.isfinite(value):
        return "-"
    if not math.isfinite(mcse):
        return _number(value)
    if mcse < 1e-12:
        return f"{value:.3f}"
    digits = min(max(1 - math.floor(math.log10(mcse)), 0), 8)
    return f"{value:.{digits}f} ({mcse:.{digits}f})"


def _number(value: object) -> str:
    if isinstance(value, (float, np.floating)):
        return f"{value:.4g}" if math.isfinite(value) else "-"
    return str(value)


def render(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table as text, each pair of columns ``x`` and ``x_mcse`` as one "value (MCSE)".

    A column ``x_unseen`` has exact values where a simulation of this size cannot show them, NaN elsewhere; they stand
    in the place of what was simulated.
    """
    shown = {}
    parts = {f"{column}{end}" for column in frame.columns for end in ("_mcse", "_unseen")}
    for column in frame.columns:
        if f"{column}_mcse" in frame.columns:
            pairs = zip(frame[column], frame[f"{column}_mcse"], strict=True)
            shown[column] = [with_mcse(float(value), float(mcse)) for value, mcse in pairs]
        elif column not in parts:
            shown[column] = [_number(value) for value in frame[column]]
        if f"{column}_unseen" in frame.columns:
            exact = zip(shown[column], frame[f"{column}_unseen"], strict=True)
            shown[column] = [f"{value:.3g} exact" if math.isfinite(value) else text for text, value in exact]
    return pd.DataFrame(shown, dtype=str)


def findings(study: Study, ds: xr.Dataset, frame: pd.DataFrame) -> Sequence[Finding]:
    """The study's sentences; of a study that has none, the range of each measure of its headline table."""
    return list(study.findings(ds)) if study.findings is not None else list(_ranges(frame))


def _ranges(frame: pd.DataFrame) -> Iterator[Finding]:
    names = list(frame.columns)
    measured = [column for column in names if f"{column}_mcse" in names]
    keys = names[: names.index(measured[0])] if measured else []
    for column in measured[:MOST_MEASURES]:
        known = frame[np.isfinite(frame[column].astype(float))]
        if known.empty:
            continue
        values = known[column].to_numpy(float)
        low, high = (
            with_mcse(float(row[column]), float(row[f"{column}_mcse"]))
            + (f" ({', '.join(f'{key} {row[key]}' for key in keys)})" if keys else "")
            for row in (known.iloc[int(values.argmin())], known.iloc[int(values.argmax())])
        )
        same = bool(known[column].min() == known[column].max())
        told = f"{column} is {low.partition(' (')[0]} in every row." if same else ""
        rule = (
            f"smallest and largest of the {len(known)} rows of the headline table; nothing is asked of them"
        )
        yield Finding(told or f"{column} is between {low} and {high}.", rule, None)


def told(study: Study, ds: xr.Dataset) -> str:
    """What the terminal prints of a study: its sentences with their rules, and the headline table."""
    broken: list[str] = []
    made: dict[str, pd.DataFrame] = attempt("the tables", lambda: tables(study, ds), {}, broken)
    title, frame = next(iter(made.items()), (study.title, pd.DataFrame()))
    found: Sequence[Finding] = attempt("the sentences", lambda: findings(study, ds, frame), [], broken)
    return told_of(study, found, {title: frame}, broken)


def told_of(
    study: Study, found: Sequence[Finding], made: Mapping[str, pd.DataFrame], broken: Sequence[str]
) -> str:
    """The same of parts that are made already."""
    lines = [f"{study.name}: {study.title}", ""]
    for one in found:
        lines += textwrap.wrap(
            one.sentence, WIDTH, initial_indent=f"{VERDICTS[one.holds]:<6}", subsequent_indent=" " * 6
        )
        lines += textwrap.wrap(f"Rule: {one.rule}", WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)
    lines += [f"warning: {line}" for line in broken]
    for title, frame in list(made.items())[:1]:
        if frame.shape[1]:
            note = ", value (MCSE)" if any(str(column).endswith("_mcse") for column in frame.columns) else ""
            lines += ["", *textwrap.wrap(f"{title}{note}", WIDTH), plain(render(frame))]
    return "\n".join(lines)


def read(directory: Path) -> Item:
    """Read one study's results and make its tables."""
    manifest = read_manifest(directory)
    if manifest is None or not (directory / "results.nc").exists():
        raise StudyError(
            f"{directory} has no merged results yet; finish the run (the same command resumes it)"
        )
    study = of_directory(directory).at(manifest["runs"][-1]["profile"])
    ds = blocks.read_results(directory / "results.nc")
    path = directory / "failures.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    broken: list[str] = []
    made: dict[str, pd.DataFrame] = attempt("the tables", lambda: tables(study, ds), {}, broken)
    headline = next(iter(made.values()), pd.DataFrame())
    found: Sequence[Finding] = attempt("the sentences", lambda: findings(study, ds, headline), [], broken)
    return Item(study, ds, made, manifest, [json.loads(line) for line in lines], found, broken)


def svg(figure: Any, prefix: str) -> str:
    """Inline SVG of a matplotlib figure; `prefix` keeps ids apart when a page holds several."""
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    stream = io.StringIO()
    with mpl.rc_context(STYLE):
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)
    return inline(stream.getvalue(), prefix)


def drawn(study: Study, ds: xr.Dataset) -> dict[str, Any]:
    """Return the study's figures by caption."""
    import matplotlib as mpl
    from cycler import cycler

    mpl.use("Agg")
    with mpl.rc_context({**STYLE, "axes.prop_cycle": cycler(color=OKABE_ITO)}):
        made = study.figure(ds)
        return dict(made) if isinstance(made, Mapping) else {study.title: made}


def figures(study: Study, ds: xr.Dataset) -> dict[str, str]:
    """Return the study's figures as inline SVG by caption."""
    made = drawn(study, ds)
    return {caption: svg(f, f"{study.name}-{k}") for k, (caption, f) in enumerate(made.items())}


def _figures(item: Item) -> dict[str, str]:
    """The figures that can be drawn, as inline SVG by caption."""
    made: dict[str, Any] = attempt("the figures", lambda: drawn(item.study, item.results), {}, item.broken)
    shown: dict[str, str] = {}
    for k, (caption, one) in enumerate(made.items()):
        prefix = f"{item.study.name}-{k}"
        text = attempt(f"the figure {caption!r}", partial(svg, one, prefix), "", item.broken)
        shown |= {caption: text} if text else {}
    return shown


def _grouped(failures: list[Mapping[str, Any]]) -> list[tuple[str, str, int]]:
    counts = Counter((str(failure["stage"]), str(failure["error"])) for failure in failures)
    return sorted((*key, count) for key, count in counts.items())


def _html(frame: pd.DataFrame) -> str:
    """A table of text as HTML whose names break as those of the terminal."""
    sizes = [max((len(cell) for cell in frame[column]), default=0) for column in frame.columns]
    names = ["\n".join(header(str(c), size)) for c, size in zip(frame.columns, sizes, strict=True)]
    return frame.set_axis(names, axis="columns").to_html(index=False, border=0, justify="left")


def _tables(item: Item, files: str) -> list[dict[str, Any]]:
    """Each table as the page shows it: what fits its width, the whole where that is more, and its files."""
    made = []
    for (title, frame), name in zip(item.tables.items(), file_names(list(item.tables)), strict=True):
        text = render(frame)
        shown = fitting(text)
        made.append(
            {
                "title": title,
                "html": _html(shown),
                "whole": "" if shown.shape == text.shape else _html(text),
                "rows": len(text),
                "columns": text.shape[1],
                "csv": f"{files}tables/{name}.csv",
                "tex": f"{files}tables/{name}.tex",
            }
        )
    return made


def _section(item: Item, files: str) -> dict[str, Any]:
    """What the template shows of one study; `files` is where its own directory is, as seen from the page."""
    figures = _figures(item)
    return {
        "study": item.study,
        "findings": [(VERDICTS[one.holds], one) for one in item.findings],
        "grid": {factor: item.results[factor].values.tolist() for factor in item.study.factors},
        "mechanism": mechanism(item.study, item.results),
        "replicates": item.results.sizes["replicate"],
        "tables": _tables(item, files),
        "figures": figures,
        "broken": item.broken,
        "failures": _grouped(item.failures),
        "methods": methods_text(item.study, item.results, item.manifest),
        "performance": f"{files}performance.csv",
        "manifest": item.manifest,
        "manifest_json": json.dumps(item.manifest, indent=1),
    }


def _put_files(item: Item, source: Path) -> None:
    """Every measure with MCSE and bounds, and each table as CSV and LaTeX."""
    text = measures.long_table(measures.performance(item.results)).to_csv(index=False)
    put(source / "performance.csv", text.encode())
    for (title, frame), name in zip(item.tables.items(), file_names(list(item.tables)), strict=True):
        put(source / "tables" / f"{name}.csv", frame.to_csv(index=False).encode())
        put(source / "tables" / f"{name}.tex", latex(title, render(frame)).encode())


def write(directory: Path) -> Page:
    """Write ``report.html``, and per study ``performance.csv`` (every measure) and ``tables/*.csv`` and ``*.tex``.

    `directory` is the ``--out`` of a run, or one study's in it.
    """
    sources = find(directory)
    items = [read(path) for path in sources]
    apart = {i.study.name: protocol.deviations(p) for i, p in zip(items, find(directory), strict=True)}
    places = [
        "" if source == directory else f"{source.relative_to(directory).as_posix()}/" for source in sources
    ]
    sections = [_section(item, place) for item, place in zip(items, places, strict=True)]
    page = rendered("report.html.j2", sections=sections, long_table=LONG_TABLE, deviations=apart)
    path = directory / "report.html"
    try:
        put(path, page.encode())
        for item, source in zip(items, sources, strict=True):
            _put_files(item, source)
    except OSError as error:
        raise StudyError(f"cannot write {path}: {error.strerror or error}") from None
    return Page(path, items)
