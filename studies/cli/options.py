"""Options of the command line that more than one command has, and how a message of the library names them."""

import ast
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON value and nothing else on stdout.")]
Probes = Annotated[
    Path | None, typer.Option(help="Labels that only audit: {policy}_probe.jsonl, or one file.")
]
Judge = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Score of the judge in another tool's file (cje-lab doctor lists them); a pattern with * averages.",
    ),
]
JudgeModel = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The judge's model: a policy of this name is warned of, since a model may prefer its own answers.",
    ),
]
Oracle = Annotated[
    str | None, typer.Option(metavar="NAME", help="Score of the oracle there, such as a human rating.")
]
OracleFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Labels in a file of their own: prompt_id, policy, draw_idx, oracle_label."
    ),
]
PolicyField = Annotated[
    str | None, typer.Option(metavar="FIELD", help="Field that names the policy in another tool's file.")
]
PromptField = Annotated[
    str | None, typer.Option(metavar="FIELD", help="Field that names the prompt in another tool's file.")
]
Scale = Annotated[
    str | None,
    typer.Option(
        metavar="WORD=NUMBER,...",
        help="Number of each grade that is a word, as in correct=1,incorrect=0; a word without a number is no grade.",
    ),
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
SharedPrompts = Annotated[
    bool,
    typer.Option(
        "--shared-prompts",
        help="Average over the prompts that all policies answered, so that differences are paired.",
    ),
]
Batch = Annotated[
    str | None,
    typer.Option(
        metavar="FIELD",
        help="Field of the probes' rows that says in which batch they came: drift over batches enters the judge gate.",
    ),
]
TargetMde = Annotated[
    float | None,
    typer.Option(
        help="Difference of two policies that the logs must let be found, in oracle units: sets the overlap gates "
        "[default: the paper's thresholds]."
    ),
]
Direction = Annotated[
    str, typer.Option(help="increasing, or decreasing where a lower judge score means a better response.")
]
Seed = Annotated[int, typer.Option(min=0, help="Root seed of every random stream.")]
KeepSteps = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Directory for the files of every step of the paper's run order; cje-lab step runs one again.",
    ),
]
JudgeRange = Annotated[
    tuple[float, float], typer.Option(metavar="LOW HIGH", help="Declared scale of judge_score.")
]
OracleRange = Annotated[
    tuple[float, float], typer.Option(metavar="LOW HIGH", help="Declared scale of oracle_label.")
]
Block = Annotated[
    str | None,
    typer.Option(
        metavar="LENGTH|auto",
        help="Standard errors in blocks of time too, of this mean length in prompts, or (auto) the length around which "
        "they vary least.",
    ),
]
Time = Annotated[
    str | None,
    typer.Option(metavar="FIELD", help="Field of the rows that puts prompts in time [default: their order]."),
]
Salt = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File with a secret of 16 characters or more that redacts the ids of prompts in all that is written "
        "[or the text of CJE_LAB_SALT; default: none are written but in ledger.nc].",
    ),
]
Large = Annotated[
    bool | None,
    typer.Option(
        "--large/--no-large",
        help="Read a Parquet file in bounded memory, to the same numbers [default: where half of it would not do].",
    ),
]

OnDask = Annotated[
    str | None,
    typer.Option(
        "--dask",
        metavar="ADDRESS",
        help="Read a Parquet file as --large does, on the workers of this Dask scheduler.",
    ),
]
Logged = Annotated[
    Path | None, typer.Option(help="Logged responses with log-likelihoods: .jsonl, or a cache by tf-cache.")
]
Bayes = Annotated[
    bool, typer.Option("--bayes", help="Add posteriors: values, shifts, P(best), P(|shift| < margin).")
]
BayesEngine = Annotated[
    str | None,
    typer.Option(help="Sampler of --bayes: gibbs (milliseconds), nutpie or pymc (NUTS) [default: gibbs]."),
]
Estimators = Annotated[
    list[str] | None,
    typer.Option(
        help="Estimator; repeatable [default: raw_judge, labels_only, direct, direct_corrected, and with --logged "
        "snips, calibrated_ips, calibrated_dr_cpo, stacked_dr]."
    ),
]
Borrowed = Annotated[
    str,
    typer.Option(
        help="What Direct does for a policy without labels of its own: spline, balanced, one_step, or "
        "the paper's plug_in."
    ),
]
Cohort = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="Only the prompts whose field NAME is VALUE; labels of others still teach the calibrator. Repeatable: all "
        "must hold.",
    ),
]
By = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Values, overlap and reliability in each cohort too: NAME is a field of which each prompt has one value, "
        "such as cohort, topic or language. Repeatable.",
    ),
]
Subgroup = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Shift the calibrator of direct in each group of this field of the prompts, shrunk to the pooled one.",
    ),
]


def named_values(pairs: Sequence[str], option: str) -> dict[str, str]:
    """What ``NAME=VALUE``, given once or more, says.

    Examples
    --------
    >>> named_values(["topic=code", "language=en"], "--cohort")
    {'topic': 'code', 'language': 'en'}
    """
    from cje_core.data import DataError

    found: dict[str, str] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not (name and separator):
            raise DataError(f"{option} {pair}: write NAME=VALUE, a field of the prompts and its value")
        if name in found:
            raise DataError(f"{option} {pair}: {name} is given twice; a prompt has one value of it")
        found[name] = value
    return found


# Parameter of a command behind an argument of the library that has another name.
RENAMED = {
    "covariates": "covariate",
    "chosen": "estimator",
    "bayes": "bayes_engine",
    "n_policies": "policies",
    "n_baseline": "baseline",
    "groups": "by",
    "labels": "oracle_file",
}
# What a message gives an argument: text in quotes, a pair in brackets, a number or a word; or nothing.
_VALUE = (
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\([^()]*\)|-?\d[\d.]*(?:e[-+]\d+)?(?!\w)|-?(?:nan|inf)|"""
    r"""True|False|[A-Z]+|"""
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
        value, option = found["value"], options[names[found["name"]]]
        if value in ("True", "False"):
            return option if value == "True" else option.replace("--", "--no-", 1)
        if value[:1] in ("'", '"'):
            value = ast.literal_eval(value)
        elif value[:1] == "(":
            value = value[1:-1].replace(", ", " ")
        return f"{option} {value}".rstrip()

    pattern = rf"(?<!\S)(?P<name>{'|'.join(names)})=(?P<value>{_VALUE})(?=[:;,\s]|$)"
    return re.sub(pattern, spelled, message)
