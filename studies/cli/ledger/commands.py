"""``cje-lab claims``: every computable statement of the paper with a verdict, and one of them at given parameters."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from studies.cli import progress
from studies.cli.options import Json

if TYPE_CHECKING:
    from studies.ledger.claim import Claim
    from studies.ledger.trial import Entry

Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NAME]...", help="Claims or groups of claims; all of them if none is named."),
]


def claims(
    name: Names = None,
    profile: Annotated[str, typer.Option(help="Effort of the searches: smoke, quick or paper.")] = "quick",
    at: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="Compute one claim's sides at these parameters, by both methods."),
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Results of studies, for claims about the paper's tables."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Directory for claims.json, claims.md and claims.html.")
    ] = None,
    document: Annotated[
        Path | None,
        typer.Option(metavar="FILE.md", help="Write the ledger as a document, and FILE.json beside it."),
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes [default: the number of cores].")] = None,
    brief: Annotated[bool, typer.Option("--brief", help="Print the summary line alone.")] = False,
    as_json: Json = False,
) -> None:
    """Put the paper's theory on trial: each statement holds, holds if, is refuted, not reproduced or undecided.

    Exit code 1 only if a claim could not be decided because of an error.
    """
    from joblib import cpu_count

    from studies.claims import find, load
    from studies.engine.running.workers import one_thread
    from studies.ledger.claim import PROFILES, ClaimError
    from studies.ledger.trial import decide, decide_in_processes, in_order

    if profile not in PROFILES:
        raise ClaimError(f"--profile {profile}: there are {', '.join(PROFILES)}")
    for option, place in (("--results", results),):
        if place is not None and not place.is_dir():
            raise ClaimError(f"{option} {place}: no such directory")
    if document is not None and document.suffix != ".md":
        raise ClaimError(f"--document {document}: it is Markdown, with JSON beside it; name a file FILE.md")
    groups = find(name or ())
    if at is not None:
        return rerun(groups, at, as_json)
    n_claims = sum(len(found) for found in groups.values())
    workers = min(jobs or cpu_count(), n_claims)
    track = progress.blocks("claims", "claims")
    if workers == 1:
        with one_thread():  # worlds are small: several threads would wait for each other
            entries = list(track(decide(groups, profile, results), n_claims))
    else:
        decided = track(decide_in_processes(groups, load, profile, results, workers), n_claims)
        entries = in_order(decided, groups)
    show(entries, as_json, brief)  # first: a place that cannot be written does not take it away
    written = save(entries, profile, out, document)
    for path in written:
        typer.echo(str(path), err=as_json)
    if any(entry.error for entry in entries):
        raise typer.Exit(1)
    return None


def rerun(groups: "Mapping[str, Sequence[Claim]]", at: str, as_json: bool) -> None:
    """Print both sides of the one named claim at parameters."""
    from studies.ledger.claim import ClaimError
    from studies.ledger.shown import untexed
    from studies.ledger.trial import again

    named = [claim for found in groups.values() for claim in found]
    if len(named) != 1:
        raise ClaimError(f"--at: name one claim, not {len(named)}")
    found = again(named[0], at)
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    typer.echo(untexed(found["statement"]))
    for method in ("first", "second"):
        if method in found:
            sides = found[method]
            error = f", standard error of the difference {sides['mcse']:.2g}" if sides["mcse"] else ""
            word = "broken" if sides["broken"] else "kept"
            typer.echo(
                f"{method} method: left {sides['left']:.6g}, right {sides['right']:.6g}{error}: "
                f"left {found['relation']} right is {word}"
            )


def show(entries: "Sequence[Entry]", as_json: bool, brief: bool) -> None:
    """Print the ledger."""
    from studies.ledger.shown import table
    from studies.ledger.trial import as_json as to_json
    from studies.ledger.trial import summary

    found: list[dict[str, Any]] = [to_json(entry) for entry in entries]
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    if not brief:
        progress.show(table(found))
    typer.echo(f"claims ledger: {summary(entries)}")


def save(entries: "Sequence[Entry]", profile: str, out: Path | None, document: Path | None) -> list[Path]:
    """Write the ledger's files, each whole or not at all; returns the paths of those to read."""
    from cje_core.disk.whole import put
    from studies.ledger import page, shown
    from studies.ledger.claim import ClaimError
    from studies.ledger.trial import ledger

    if out is None and document is None:
        return []
    found = ledger(entries, profile)
    files: dict[Path, str] = {}
    text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
    if out is not None:
        files |= {
            out / "claims.json": text,
            out / "claims.md": shown.document(found),
            out / "claims.html": page.render(found),
        }
    if document is not None:
        files |= {document.with_suffix(".json"): text, document: shown.document(found)}
    try:
        for path, content in files.items():
            put(path, content.encode())
    except OSError as error:
        raise ClaimError(f"cannot write {error.filename or out}: {error.strerror or error}") from None
    return [path for path in files if path.suffix in (".html", ".md")]
