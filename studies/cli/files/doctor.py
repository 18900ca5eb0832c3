"""``cje-lab doctor``: what a file or directory is, what it holds, and the command that analyzes it."""

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from studies.cli.options import Json, PolicyField, PromptField, in_options

if TYPE_CHECKING:
    from cje_core.workflow.reading.doctor import Examined

NAMED = ("judge", "oracle", "policy_field", "prompt_field", "judge_range", "oracle_range")
OPTIONS = {name: f"--{name.replace('_', '-')}" for name in NAMED}
MOST = 12  # policies or scores that are listed


def doctor(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="File or directory.")],
    policy_field: PolicyField = None,
    prompt_field: PromptField = None,
    as_json: Json = False,
) -> None:
    """Say what a file or directory is, which scores it holds, how many rows are usable, and which command to run.

    Exit code 2 where nothing in it can be read as it is.
    """
    from cje_core.data.intake.foreign import Asked
    from cje_core.workflow.reading.doctor import examine

    found = examine(path, Asked(policy=policy_field, prompt=prompt_field))
    found = found._replace(problem=in_options(found.problem, OPTIONS))
    more = ["--policy-field", policy_field] if policy_field else []
    more += ["--prompt-field", prompt_field] if prompt_field else []
    command = f"cje-lab analyze {shlex.join([*_arguments(path, found), *more])}"
    if as_json:
        typer.echo(json.dumps(_record(found, None if found.problem else command), allow_nan=False))
    else:
        for line in _lines(path, found, command):
            typer.echo(line)
    if found.problem:
        raise typer.Exit(2)


def _arguments(path: Path, found: "Examined") -> list[str]:
    """What to give ``cje-lab analyze``."""
    given = [str(path)]
    for option, name in (("--judge", found.judge), ("--oracle", found.oracle)):
        given += [] if name is None else [option, name]
    for option, name in (("judge", found.judge or "judge_score"), ("oracle", found.oracle or "oracle_label")):
        scale = found.scale(name)
        if scale not in (None, (0.0, 1.0)):
            given += [f"--{option}-range", *(f"{end:g}" for end in scale or ())]
    return given


def _lines(path: Path, found: "Examined", command: str) -> list[str]:
    from cje_core.data.fields import show
    from studies.cli.analysis.lines.notes import left_out_lines

    policies = [f"{show(name)} {n}" for name, n in found.policies.items()]
    lines = [f"{path}: {found.what}"]
    if found.n_read:
        lines.append(f"responses: {found.n_read} of {len(policies)} policies to {found.prompts} prompts")
        lines.append(f"usable:    {found.n_usable} ({_some(policies)})")
    for name, scored in list(found.scores.items())[:MOST]:
        held = f"{scored.n} numbers from {scored.low:g} to {scored.high:g}" if scored.n else "no number"
        lines.append(f"score:     {name}: {held}")
    if len(found.scores) > MOST:
        lines.append(f"score:     {len(found.scores) - MOST} more: {_some(list(found.scores)[MOST:])}")
    lines += left_out_lines(found.left_out)
    if found.problem:
        return [*lines, f"cannot be read as it is: {found.problem}"]
    label = found.scores.get(found.oracle or "oracle_label")
    if found.oracle is None and (label is None or not label.n):
        lines.append("no labels of an oracle: add them with --oracle NAME, or --oracle-file FILE")
    return [*lines, f"run:       {command}"]


def _some(names: list[str]) -> str:
    return ", ".join(names[:MOST]) + (f" and {len(names) - MOST} more" if len(names) > MOST else "")


def _record(found: "Examined", command: str | None) -> dict[str, Any]:
    return {
        "what": found.what,
        "policies": dict(found.policies),
        "prompts": found.prompts,
        "scores": {
            name: {"n": s.n, "low": s.low if s.n else None, "high": s.high if s.n else None}
            for name, s in found.scores.items()
        },
        "read": found.n_read,
        "usable": found.n_usable,
        "left_out": json.loads(found.left_out.to_json(orient="records")),
        "problem": found.problem or None,
        "command": command,
    }
