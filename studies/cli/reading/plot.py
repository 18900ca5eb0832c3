"""``cje-lab plot``: one plot of the results of a study."""

from pathlib import Path
from typing import Annotated

import typer

Levels = Annotated[
    list[str] | None,
    typer.Option("--at", metavar="FACTOR=V1,V2", help="Levels of a factor that are shown; repeatable."),
]


def plot(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="One study's directory in the --out of a run.")
    ],
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="The plot, by its name in cje-lab list."),
    ],
    out: Annotated[
        Path | None, typer.Option(help="File to write, .png, .svg or .pdf [default: NAME.png in DIR].")
    ] = None,
    at: Levels = None,
) -> None:
    """Draw one plot of finished results."""
    from cje_core.disk.whole import write_whole
    from cje_core.figures.style import STYLE, to_files
    from studies.engine.blocks import read_results
    from studies.engine.running.directory import find, of_directory
    from studies.engine.study import StudyError, parse_levels
    from studies.report.plots import draw

    places = find(directory)
    if len(places) > 1:
        names = ", ".join(path.name for path in places)
        raise StudyError(f"{directory} holds several studies ({names}); give the directory of one of them")
    place = places[0]
    if not (place / "results.nc").exists():
        raise StudyError(f"{place} has no merged results yet; finish the run (the same command resumes it)")
    path = out or place / f"{name}.png"
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise StudyError(f"--out {path}: write to a name that ends in .png, .svg or .pdf")
    ds = read_results(place / "results.nc")
    study = of_directory(place)
    for factor, levels in parse_levels([study], at or [], "--at").items():
        there = ds[factor].values.tolist()
        if not set(levels) <= set(there):
            raise StudyError(f"--at {factor}: these results have {', '.join(map(str, there))}")
        ds = ds.sel({factor: levels})
    import matplotlib as mpl

    with to_files(), mpl.rc_context(STYLE):
        figure = draw(name, ds)
        try:
            write_whole(path, lambda file: figure.savefig(file, format=path.suffix[1:], dpi=160))
        except OSError as error:
            raise StudyError(f"cannot write {path}: {error.strerror or error}") from None
    typer.echo(f"plot: {path}")
