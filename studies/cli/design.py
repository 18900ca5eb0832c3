"""``cje-lab protocol``: what a study fixes before it runs, as a document with a digest."""

import json
from pathlib import Path
from typing import Annotated

import typer

from studies.cli.options import Json, Seed


def protocol(
    study: Annotated[str, typer.Argument(help="Study, by name or as a file ./my_study.py.")],
    profile: Annotated[str, typer.Option(help="Size of the run: smoke, quick or paper.")] = "quick",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File to write [default: print it].")
    ] = None,
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Write a study's protocol as Markdown, before anything runs.

    A run records its digest in manifest.json, and the report lists where it departed from it. A file that holds another
    protocol is never overwritten.
    """
    from cje_core.disk.whole import put
    from studies.engine.protocol import protocol as written
    from studies.engine.study import StudyError, load

    item = load(study)
    text, digest = written(item, profile, seed)
    if out is not None:
        try:
            if out.exists() and out.read_bytes() != text.encode():
                raise StudyError(f"{out} holds another text; give another --out, or delete it")
            put(out, text.encode())
        except OSError as error:
            raise StudyError(f"cannot write {out}: {error.strerror or error}") from None
    if as_json:
        found = {"study": item.name, "profile": profile, "seed": seed, "digest": digest, "markdown": text}
        typer.echo(json.dumps(found | {"written": None if out is None else str(out)}))
    elif out is None:
        typer.echo(text, nl=False)
    else:
        typer.echo(f"{item.name}: protocol of profile {profile}, digest {digest}, written to {out}")
