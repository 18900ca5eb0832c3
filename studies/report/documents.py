"""Pages of results for the documents: ``NAME.md`` made of ``NAME.json`` and nothing else, with its figures as PNG.

The JSON file is the page's manifest: the sentences, the tables as text, the study's definition, digests of each. A page
that is not what its manifest renders to, a digest that is not that of its part, or another picture are problems that
`problems` finds, so nothing on a page can be typed.
"""

import hashlib
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cje_core.disk.whole import put
from cje_core.figures.style import STYLE
from cje_core.streams import digest
from studies.engine.manifest import code_digests
from studies.engine.running.directory import find
from studies.engine.study import StudyError, available, load
from studies.report.methods import methods_text
from studies.report.needs import with_needs
from studies.report.page import VERDICTS, Item, drawn, read, render
from studies.report.tables import LONG_TABLE, fitting, markdown

SCHEMA = "cje-study-page/1"
PIXELS = 1500  # of the widest figure
SIZE = 8  # bytes of a digest


def write(directory: Path, out: Path) -> list[Path]:
    """Write the pages of all studies in a directory of results; returns the Markdown files."""
    written = []
    for source in find(directory):
        item = read(source)
        if item.broken:
            raise StudyError(
                f"{item.study.name}: {item.broken[0]}; no page is written of a part of the results"
            )
        pictures = dict(_pictures(item))
        document = _document(item, pictures)
        path = out / f"{item.study.name}.md"
        try:
            for name, content in pictures.items():
                put(out / name, content[1])
            put(path.with_suffix(".json"), (json.dumps(document, indent=1) + "\n").encode())
            put(path, page(document).encode())
        except OSError as error:
            raise StudyError(f"cannot write {path}: {error.strerror or error}") from None
        written.append(path)
    return written


def _pictures(item: Item) -> Iterator[tuple[str, tuple[str, bytes]]]:
    """Name, caption and PNG of each figure; the same results give the same bytes."""
    import matplotlib as mpl

    for k, (caption, figure) in enumerate(drawn(item.study, item.results).items(), start=1):
        stream = io.BytesIO()
        with mpl.rc_context(STYLE):
            dpi = min(PIXELS / figure.get_figwidth(), 140)
            figure.savefig(stream, format="png", dpi=dpi, metadata={"Software": None})
        yield f"{item.study.name}-{k}.png", (caption, stream.getvalue())


def _document(item: Item, pictures: Mapping[str, tuple[str, bytes]]) -> dict[str, Any]:
    """All that a page shows, as JSON values."""
    last, results = item.manifest["runs"][-1], item.results
    tables = []
    for k, (title, frame) in enumerate(item.tables.items()):
        text = render(frame)
        shown = fitting(text) if k == 0 or len(text) <= LONG_TABLE else text.iloc[:0, :1]
        whole = list(text.shape)
        tables.append(
            {"title": title, "whole": whole, "columns": [*shown.columns], "rows": shown.to_numpy().tolist()}
        )
    definition = item.manifest["definition"]
    return {
        "schema": SCHEMA,
        "study": item.study.name,
        "title": item.study.title,
        "profile": last["profile"],
        "command": _command(item.study.name, last, item.manifest["seed"]),
        "replicates": results.sizes["replicate"],
        "cells": last["cells"],
        "commit": item.manifest["git_commit"],
        "claims": list(item.study.claims),
        "findings": [
            {"verdict": VERDICTS[one.holds], "sentence": one.sentence, "rule": one.rule}
            for one in with_needs(item.study, results, item.findings)
        ],
        "tables": tables,
        "figures": [
            {"file": name, "caption": caption, "digest": _of_bytes(content)}
            for name, (caption, content) in pictures.items()
        ],
        "methods": methods_text(item.study, results, item.manifest),
        "definition": definition,
        "digests": _digests({"definition": definition, "tables": tables}),
    }


def _command(name: str, run: Mapping[str, Any], seed: int) -> str:
    """What makes the results again, with the levels that were set by hand."""
    planned = run.get("protocol", run)["factors"]
    apart = [factor for factor, levels in run["factors"].items() if levels != planned[factor]]
    words = [f"--set {factor}={','.join(map(str, run['factors'][factor]))}" for factor in apart]
    return " ".join([f"cje-lab run {name} --profile {run['profile']} --seed {seed}", *words])


def _of_bytes(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=SIZE).hexdigest()


def _digests(document: Mapping[str, Any]) -> dict[str, str]:
    """What tells these results and this study from others."""
    headline = document["tables"][0] if document["tables"] else {}
    return {"definition": digest(document["definition"], SIZE), "headline": digest(headline, SIZE)}


def page(document: Mapping[str, Any]) -> str:
    """The page, in Markdown."""
    import pandas as pd

    name, digests = document["study"], document["digests"]
    parts = [f"# {document['title']}"]
    parts.append(
        "\n".join(
            f"- **{one['verdict']}**: {_plain(one['sentence'])}<br>*Rule: {_plain(one['rule'])}*"
            for one in document["findings"]
        )
    )
    for k, table in enumerate(document["tables"]):
        figures = document["figures"] if k == 0 else []
        parts += [f"## {_plain(table['title'])}"]
        rows, columns = table["whole"]
        frame = pd.DataFrame(table["rows"], columns=table["columns"], dtype=str)
        parts += [markdown(frame)] if len(frame) else []
        if (rows, columns) != frame.shape:
            here = f", of which {len(frame)} and {frame.shape[1]} are here" if len(frame) else ""
            parts.append(
                f"{rows} rows and {columns} columns{here}: `cje-lab report` writes them as CSV and LaTeX."
            )
        for one in figures:
            parts += [f"![{_plain(one['caption'])}]({one['file']})", _plain(one["caption"])]
    parts += ["## Methods", *map(_plain, document["methods"])]
    parts.append(
        f"Profile {document['profile']}: {document['cells']} cells, up to {document['replicates']:,} replicates of "
        f"each. Numbers are value (Monte Carlo standard error). To repeat: `{document['command']}`, then "
        f"`cje-lab docs RESULTS`. Made by the latter of [{name}.json]({name}.json): study `{digests['definition']}`, "
        f"headline table `{digests['headline']}`."
    )
    return "\n\n".join(part for part in parts if part) + "\n"


def _plain(text: str) -> str:
    """Text in which Markdown finds no mark-up."""
    return text.replace("\\", "\\\\").replace("*", "\\*").replace("<", "&lt;").replace("|", "\\|")


def problems(directory: Path) -> list[str]:
    """What is wrong with the pages of a directory, one line each."""
    manifests = {path.stem: path for path in sorted(directory.glob("*.json"))}
    found = [
        f"{path}: there is no {path.stem}.json"
        for path in directory.glob("*.md")
        if path.stem not in manifests
    ]
    for path in manifests.values():
        document = json.loads(path.read_text(encoding="utf-8"))
        if document.get("schema") != SCHEMA:
            found.append(f"{path}: not of schema {SCHEMA}")
            continue
        text = path.with_suffix(".md")
        if not text.exists() or text.read_text(encoding="utf-8") != page(document):
            found.append(f"{text}: not what {path.name} renders to; make it again with cje-lab docs")
        if document["digests"] != _digests(document):
            found.append(f"{path}: its digests are not those of its definition and headline table")
        for one in document["figures"]:
            picture = directory / one["file"]
            if not picture.exists() or _of_bytes(picture.read_bytes()) != one["digest"]:
                found.append(f"{picture}: not the figure of {path.name}")
        if document["study"] not in available():
            found.append(f"{path}: there is no study {document['study']!r} any more")
    return found


def changed(directory: Path) -> dict[str, list[str]]:
    """Files of code that changed since each page of a directory was made; the results may be the same all the same."""
    found: dict[str, list[str]] = {}
    for path in sorted(directory.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        study = load(document["study"]).at(document["profile"])  # a profile may leave methods out
        then, now = document["definition"]["code"], code_digests(study)
        files = [name for name in sorted({*then, *now}) if then.get(name) != now.get(name)]
        found |= {document["study"]: files} if files else {}
    return found
