"""``cje-lab docs``: pages of results for the documents."""

from pathlib import Path
from typing import Annotated

import typer


def docs(
    directory: Annotated[
        Path | None, typer.Argument(metavar="RESULTS", help="The --out of a run, or one study's in it.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Directory of the pages.")] = Path("docs/studies"),
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing: say which pages do not match their manifests.")
    ] = False,
) -> None:
    """Write NAME.md with its figures and manifest, NAME.json, for each study of some results.

    With --check, exit code 1 if a page is not what its manifest renders to; code that changed since is named.
    """
    from studies.engine.study import StudyError
    from studies.report.documents import changed, problems, write

    if (directory is None) != check:
        raise StudyError(
            "give RESULTS to write pages, or --check to hold the pages of --out against their manifests"
        )
    if directory is not None:
        for path in write(directory, out):
            typer.echo(f"page: {path}")
        return
    found = problems(out)
    for line in found:
        typer.echo(line)
    if found:
        raise typer.Exit(1)
    for name, files in changed(out).items():
        more = f" and {len(files) - 3} more" if len(files) > 3 else ""
        typer.echo(f"{name}: made before {', '.join(files[:3])}{more} changed")
    typer.echo(f"{out}: every page is what its manifest renders to")
