"""``cje-lab step``: one step of the paper's run order again, from the files that the steps before it kept."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from studies.cli import progress
from studies.cli.options import Json, Salt

if TYPE_CHECKING:
    from cje_core.workflow.analysis import Analysis


def step(
    name: Annotated[
        str, typer.Argument(help="calibrate, stabilise, estimate, stack, jackknife or report, in this order.")
    ],
    directory: Annotated[Path, typer.Option("--in", metavar="DIR", help="What analyze --keep-steps wrote.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Directory for the report: estimates.json, ledger.nc, the figures."),
    ] = None,
    salt: Salt = None,
    as_json: Json = False,
) -> None:
    """Run one step again from what the steps before it kept; report prints what analyze does.

    A step fits what is its own (calibrate every calibrator, stabilise the weights, estimate the nuisances of single
    estimators) and reads the rest; run those after it again too, or they speak of what was there before.
    """
    from cje_core.checks import one_of
    from cje_core.data import DataError
    from cje_core.workflow.steps.order import STEPS, run_step
    from cje_core.workflow.steps.report import report, traces
    from studies.cli.analysis.out import check_out
    from studies.cli.analysis.output import tell
    from studies.cli.redaction import salt_of

    one_of(name, "step", (*STEPS, "report"), DataError)
    check_out(out)
    secret = salt_of(salt)
    if name != "report":
        if out is not None:
            raise DataError(
                f"--out {out}: only the step report writes there; the others write into {directory}"
            )
        with progress.working(name):
            written = run_step(name, directory)
        typer.echo(json.dumps(written) if as_json else _closing_line(directory, written))
        return
    with progress.working("auditing"):
        result = report(directory)
    tell(result, out, secret, as_json=as_json, traces=traces(directory))


def _closing_line(directory: Path, written: list[str]) -> str:
    if not written:
        return "nothing to do: the analysis has no logged responses, or no stack"
    return f"written to {directory}: {', '.join(written)}"


@contextmanager
def keeping(directory: Path | None) -> "Iterator[Callable[..., Analysis]]":
    """`cje_core.workflow.analyze.analyze`, in steps whose files go to a directory where there is one; a line says so.

    Where what follows the analysis is refused, its files are taken away again: nothing is written then.
    """
    from cje_core.data import DataError
    from cje_core.workflow.analyze import analyze
    from cje_core.workflow.steps.files import clear, room
    from cje_core.workflow.steps.order import analyze_in_steps
    from studies.cli.analysis.out import check_out

    if directory is None:
        yield analyze
        return
    check_out(directory, "--keep-steps")
    kept = False

    def analyze_here(data: Path, **asked: object) -> "Analysis":
        nonlocal kept
        found = analyze_in_steps(data, directory, **asked)
        kept = True
        return found

    with room(directory):
        try:
            yield analyze_here
        except DataError:
            if kept:
                clear(directory)
            raise
    typer.echo(f"steps kept in {directory}", err=True)
