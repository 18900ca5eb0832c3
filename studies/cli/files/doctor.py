"""``cje-lab doctor``: what a file or directory is, what it holds, and the command that analyzes it."""

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from studies.cli.options import Json, PolicyField, PromptField, Scale, in_options

if TYPE_CHECKING:
    from cje_core.workflow.reading.doctor import Examined

NAMED = ("judge", "oracle", "policy_field", "prompt_field", "judge_range", "oracle_range", "logged", "scale")
OPTIONS = {name: f"--{name.replace('_', '-')}" for name in NAMED}
MOST = 12  # policies or scores that are listed


def doctor(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="File or directory.")],
    policy_field: PolicyField = None,
    prompt_field: PromptField = None,
    scale: Scale = None,
    as_json: Json = False,
) -> None:
    """Say what a file or directory is, which scores it holds, how many rows are usable, and which command to run.

    Of a directory that is not one table, what lies in it. Exit code 2 where nothing in it can be read as it is.
    """
    from cje_core.io.intake.foreign import Asked
    from cje_core.io.intake.grades import parsed_scale
    from cje_core.workflow.reading.doctor import examine
    from cje_core.workflow.reading.inside import look_inside

    asked = Asked(policy=policy_field, prompt=prompt_field, scale=parsed_scale(scale) if scale else {})
    found = examine(path, asked)
    found = found._replace(problem=in_options(found.problem, OPTIONS))
    fields = ["--policy-field", policy_field] if policy_field else []
    fields += ["--prompt-field", prompt_field] if prompt_field else []
    fields += ["--scale", scale] if scale else []
    parts = look_inside(path, asked) if found.problem and path.is_dir() else []
    if as_json:
        record = _record(path, found, fields)
        typer.echo(
            json.dumps(record | {"parts": [_record(*part, fields) for part in parts]}, allow_nan=False)
        )
    else:
        for line in _lines(path, found, fields):
            typer.echo(line)
        for part in parts[:MOST]:
            typer.echo("\nin it:")
            for line in _lines(*part, fields):
                typer.echo(line)
        if len(parts) > MOST:
            typer.echo(f"\nand {_some([str(part[0]) for part in parts[MOST:]])}")
    if found.problem and not parts:
        raise typer.Exit(2)


def _command(path: Path, found: "Examined", fields: list[str]) -> str:
    """Return the command that analyzes it."""
    return f"cje-lab analyze {shlex.join([*_arguments(path, found), *fields])}"


def _arguments(path: Path, found: "Examined") -> list[str]:
    """What to give ``cje-lab analyze``."""
    given = [f"./{path}" if str(path).startswith("-") else str(path)]
    for option, beside in found.beside.items():
        given += [f"--{option}", str(beside)]
    for option, name in (("--judge", found.judge), ("--oracle", found.oracle)):
        given += [] if name is None else [option, name]
    for option, name in (("judge", found.judge or "judge_score"), ("oracle", found.oracle or "oracle_label")):
        scale = found.scale(name)
        if scale not in (None, (0.0, 1.0)):
            given += [f"--{option}-range", *(f"{end:g}" for end in scale or ())]
    return given


def _lines(path: Path, found: "Examined", fields: list[str]) -> list[str]:
    from cje_core.io.fields import show
    from studies.cli.analysis.lines.notes import left_out_lines

    policies = [f"{show(name)} {n}" for name, n in found.policies.items()]
    lines = [f"{path}: {found.what}"]
    lines += [f"{role + ':':<10} {said}" for role, said in found.roles.items()]
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
    command = _command(path, found, fields)
    if "-range" in command:
        lines.append("scale:     guessed from the numbers; correct the range if a score may lie beyond it")
    return [*lines, f"run:       {command}"]


def _some(names: list[str]) -> str:
    return ", ".join(names[:MOST]) + (f" and {len(names) - MOST} more" if len(names) > MOST else "")


def _record(path: Path, found: "Examined", fields: list[str]) -> dict[str, Any]:
    return {
        "path": str(path),
        "what": found.what,
        "policies": dict(found.policies),
        "prompts": found.prompts,
        "roles": dict(found.roles),
        "scores": {
            name: {"n": s.n, "low": s.low if s.n else None, "high": s.high if s.n else None}
            for name, s in found.scores.items()
        },
        "read": found.n_read,
        "usable": found.n_usable,
        "left_out": json.loads(found.left_out.to_json(orient="records")),
        "problem": found.problem or None,
        "command": None if found.problem else _command(path, found, fields),
    }
