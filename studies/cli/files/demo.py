"""``cje-lab demo``: the data that ship with the package, and an analysis of them beside the truth."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from studies.cli import progress

if TYPE_CHECKING:
    from cje_core.workflow.analysis import Analysis


def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Directory for the data and the analysis.")] = Path(
        "cje-lab-demo"
    ),
) -> None:
    """Write a small data set of a simulated arena and analyze it: five policies whose true values are known.

    DIR gets responses/, probes/, logged.jsonl, truth.json, and in analysis/ what analyze --out writes.
    """
    import json

    from cje_core.data import DataError
    from cje_core.workflow.analyze import analyze
    from studies.cli.analysis.out import check_out, write_files
    from studies.cli.analysis.output import tell
    from studies.demo.arena import held

    check_out(out)
    files = held()
    for name, text in files.items():
        there = out / name
        if there.exists() and (not there.is_file() or there.read_bytes() != text.encode()):
            raise DataError(f"--out {out}: {out / name} is another file; name another directory")
    write_files(out, {name: text.encode() for name, text in files.items()})
    with progress.working("reading, estimating, auditing"):
        result = analyze(out / "responses", probes=out / "probes")
    tell(result, out / "analysis", None, as_json=False)
    about = json.loads(files["truth.json"])
    typer.echo(f"\nthe truth, since the data are simulated ({about['world']}, seed {about['seed']}):")
    for line in _against(result, about["truth"]):
        typer.echo(line)
    typer.echo(f"\ndata in {out}; the page to open: {out / 'analysis' / 'index.html'}")
    command = ["cje-lab", "analyze", str(out / "responses"), "--probes", str(out / "probes")]
    typer.echo(f"the same again:   {shlex.join(command)}")
    typer.echo(f"with the logs:    {shlex.join([*command, '--logged', str(out / 'logged.jsonl')])}")
    typer.echo("your own files:   cje-lab doctor PATH says what they hold and which command reads them")


def _against(result: "Analysis", truth: dict[str, float]) -> list[str]:
    """A line for each policy: truth, value, and whether the interval covers."""
    width = max(map(len, truth))
    lines = []
    for policy, value in truth.items():
        if result.standing(policy) is None:
            lines.append(f"  {policy:<{width}}  {value:.3f}  no value")
            continue
        at = result.value.sel(policy=policy)
        low, high = (float(end) for end in at["interval"])
        said = "covers" if low <= value <= high else "misses"
        lines.append(
            f"  {policy:<{width}}  {value:.3f}  estimated {float(at['estimate']):.3f}, interval {said} it"
        )
    return lines
