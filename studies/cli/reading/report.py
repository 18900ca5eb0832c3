"""``cje-lab report``: the page of a directory of results."""

import json

import typer

from studies.cli.options import Json
from studies.cli.runs import Directory


def report(directory: Directory, as_json: Json = False) -> None:
    """Write one self-contained report.html: what was found, by which rule, then tables and figures.

    It ends in a methods section to paste and the manifest. Each table goes to tables/ as CSV and LaTeX, every measure
    of every cell to performance.csv beside the results. Exit code 1 if a part could not be made; the rest is there.
    """
    from studies.report.page import VERDICTS, records, told_of, write

    page = write(directory)
    if as_json:
        tables = {
            item.study.name: {title: records(frame) for title, frame in item.tables.items()}
            for item in page.items
        }
        findings = {
            item.study.name: [one._asdict() | {"verdict": VERDICTS[one.holds]} for one in item.findings]
            for item in page.items
        }
        found = {"report": str(page.path), "findings": findings, "tables": tables, "broken": page.broken}
        typer.echo(json.dumps(found))
    else:
        for item in page.items:
            typer.echo(f"\n{told_of(item.study, item.findings, item.tables, item.broken)}")
        typer.echo(f"\nreport: {page.path}")
    if page.broken:
        raise typer.Exit(1)
