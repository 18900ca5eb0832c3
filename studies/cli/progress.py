"""Progress on stderr: bars and spinners on a terminal, plain lines or nothing elsewhere; pages on stdout."""

import contextlib
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from studies.engine.blocks import Block

LOG_EVERY = 10.0  # seconds between lines where there is no terminal to draw a bar on


def blocks(name: str, what: str = "blocks") -> Any:
    """Bar on a terminal, plain lines elsewhere; both on stderr. Wraps the iterator of finished blocks, or of `what`."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = _console()

    def bar(done: "Iterator[Block]", total: int) -> "Iterator[Block]":
        columns = (TextColumn(name), BarColumn(), MofNCompleteColumn(), TextColumn(what))
        with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
            yield from progress.track(done, total=total)

    def lines(done: "Iterator[Block]", total: int) -> "Iterator[Block]":
        start = last = time.monotonic()
        for count, block in enumerate(done, start=1):
            now = time.monotonic()
            if now - last >= LOG_EVERY:
                left = (now - start) / count * (total - count)
                typer.echo(f"{name}: {count}/{total} {what}, about {left:.0f} s left", err=True)
                last = now
            yield block

    return bar if console.is_terminal else lines


def working(what: str) -> "contextlib.AbstractContextManager[Any]":
    """Return a spinner on a terminal, nothing elsewhere: a million rows take several seconds."""
    console = _console()
    return console.status(what) if console.is_terminal else contextlib.nullcontext()


@contextlib.contextmanager
def analysing(what: str, *, nuts: bool) -> Iterator[None]:
    """`working`, which with `nuts` says the stage of the sampler and how many draws are done."""
    with working(what) as spinner:
        if spinner is None or not nuts:
            yield
            return
        from cje_core.bayes.models.watching import NUTPIE, watched

        def show_stage(stage: str, done: int, total: int) -> None:
            if stage == NUTPIE:  # two bars at once would overwrite each other
                spinner.stop()
                typer.echo("NUTS by nutpie: chains, warm-up and draws", err=True)
                return
            spinner.start()
            spinner.update(f"NUTS: {stage}" + (f", draw {done:,} of {total:,}" if total else ""))

        with watched(show_stage):
            yield


def simulating(replicates: "Iterable[int]") -> "Iterable[int]":
    """Return a bar on a terminal, nothing elsewhere."""
    from rich.progress import track

    console = _console()
    label = "simulating the plan"
    return track(list(replicates), label, console=console) if console.is_terminal else replicates


def show(page: Any) -> None:
    """Print a page on stdout, in colour on a terminal only."""
    _console(stderr=False).print(page)


def _console(*, stderr: bool = True) -> Any:
    from rich.console import Console

    return Console(stderr=stderr, highlight=stderr)
