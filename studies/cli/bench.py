"""``cje-lab bench``: ours beside the peers and the physical limit."""

import json
from pathlib import Path
from typing import Annotated

import typer

from studies.cli import progress
from studies.cli.options import Json


def bench(
    name: Annotated[
        list[str] | None, typer.Argument(help="Benchmarks to run; all of them if none is named.")
    ] = None,
    profile: Annotated[str, typer.Option(help="Size of the run: smoke, small or full.")] = "small",
    peers: Annotated[
        str | None,
        typer.Option(
            metavar="PYTHON",
            envvar="CJE_LAB_PEERS",
            help="Interpreter of an environment that has peers, where their versions clash with ours.",
        ),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Run nothing: print the page of a file made by --json."),
    ] = None,
    before: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="File that --json made of an earlier version: its times stand beside."
        ),
    ] = None,
    update: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="File that --json made: the benchmarks run now replace theirs in it."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Time cje-lab beside its peers, in turns, and beside what no implementation could do without.

    CPU seconds with their range over rounds, multiples of ours, and memory, as a page in Markdown.
    """
    from studies import benchmarks
    from studies.engine.benchmark import run_all
    from studies.report.benchmarks import earlier, read, render, updated

    beside = None if before is None else earlier(read(before))
    rest = None if update is None else read(update)
    if page is not None:
        found = read(page)
    else:
        chosen = {one: benchmarks.load(one) for one in dict.fromkeys(name or benchmarks.available())}
        found = run_all(chosen, profile, peers=peers, track=lambda one: progress.blocks(one, "steps"))
    if rest is not None:
        found = updated(rest, found)
    if beside is not None:
        found["before"] = beside
    typer.echo(json.dumps(found, indent=1) if as_json else render(found).rstrip())
