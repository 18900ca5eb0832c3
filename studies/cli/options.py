"""Options of the command line that more than one command has."""

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON value and nothing else on stdout.")]
Probes = Annotated[
    Path | None, typer.Option(help="Labels that only audit: {policy}_probe.jsonl, or one file.")
]
CalibrationPolicy = Annotated[
    list[str] | None,
    typer.Option(help="Policy whose labels teach the calibrator; repeatable [default: all with labels]."),
]
Covariates = Annotated[
    list[str] | None,
    typer.Option(
        help="Numeric field that joins the judge score in the calibrator; response_length counts words. Repeatable."
    ),
]
Calibrator = Annotated[
    str,
    typer.Option(
        help="default (two_stage with covariates, else monotone), monotone, two_stage, two_stage_monotone or auto."
    ),
]
Margin = Annotated[
    float | None,
    typer.Option(help="Harmless mean residual, in oracle units [default: 0.05 of the oracle range]."),
]
Direction = Annotated[
    str, typer.Option(help="increasing, or decreasing where a lower judge score means a better response.")
]
Seed = Annotated[int, typer.Option(min=0, help="Root seed of every random stream.")]
JudgeRange = Annotated[
    tuple[float, float], typer.Option(metavar="LOW HIGH", help="Declared scale of judge_score.")
]
OracleRange = Annotated[
    tuple[float, float], typer.Option(metavar="LOW HIGH", help="Declared scale of oracle_label.")
]
