"""Options of the command line that more than one command has, and how a message of the library names them."""

import ast
import re
from collections.abc import Mapping
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

# Parameter of a command behind an argument of the library that has another name.
RENAMED = {
    "covariates": "covariate",
    "chosen": "estimator",
    "bayes": "bayes_engine",
    "n_policies": "policies",
}
# What a message gives an argument: text in quotes, a pair in brackets, a number or a word; or nothing.
_VALUE = (
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\([^()]*\)|-?\d[\d.]*(?:e[-+]\d+)?(?!\w)|-?(?:nan|inf)|[A-Z]+|"""
)


def in_options(message: str, options: Mapping[str, str]) -> str:
    """Say ``--option value`` where a message of the library, one line, says ``argument=value``.

    An argument is told from a user's own words by standing alone, its value unadorned. `options` has the option of each
    parameter of the commands.

    Examples
    --------
    >>> in_options("judge_range=(1, 0): LOW below HIGH", {"judge_range": "--judge-range"})
    '--judge-range 1 0: LOW below HIGH'
    """
    names = {name: name for name in options} | {
        name: parameter for name, parameter in RENAMED.items() if parameter in options
    }

    def spelled(found: re.Match[str]) -> str:
        value = found["value"]
        if value[:1] in ("'", '"'):
            value = ast.literal_eval(value)
        elif value[:1] == "(":
            value = value[1:-1].replace(", ", " ")
        return f"{options[names[found['name']]]} {value}".rstrip()

    pattern = rf"(?<!\S)(?P<name>{'|'.join(names)})=(?P<value>{_VALUE})(?=[:;,\s]|$)"
    return re.sub(pattern, spelled, message)
