"""``cje-lab solve``: how large n must be, how many labels suffice."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from studies.cli import progress
from studies.cli.options import Json, Seed

if TYPE_CHECKING:
    from studies.engine.running.solve import Answer


def solve(
    study: Annotated[str, typer.Argument(help="Study, by name or as a file ./my_study.py.")],
    factor: Annotated[
        str, typer.Option(help="Factor whose level is sought, a number: n, oracle_fraction, ...")
    ],
    between: Annotated[
        tuple[float, float], typer.Option(metavar="LOW HIGH", help="Levels between which it is sought.")
    ],
    method: Annotated[str, typer.Option(help="Method of the study.")],
    target: Annotated[float, typer.Option(help="What the measure must reach.")],
    measure: Annotated[
        str, typer.Option(help="coverage, rmse, width, ...; mde: what a difference must be to be found.")
    ] = "coverage",
    estimand: Annotated[
        str | None, typer.Option(help="Policy, or difference of two [default: the first policy].")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FACTOR=V", help="Level of another factor; repeatable."),
    ] = None,
    most: Annotated[int, typer.Option(min=256, help="Replicates that one level may get.")] = 6400,
    out: Annotated[Path, typer.Option(help="Directory of the replicates, solve.json and solve.png.")] = Path(
        "results/solve"
    ),
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes [default: the number of cores].")] = None,
    seed: Seed = 1,
    as_json: Json = False,
) -> None:
    """Find the smallest level of a factor at which a measure of a study reaches a target.

    No curve is assumed, only that the measure rises or falls with the factor; the answer is an interval.
    """
    from functools import partial

    from joblib import cpu_count

    from cje_core.disk.whole import put, write_whole
    from studies.engine.run import Log
    from studies.engine.running.solve import Question, one_cell
    from studies.engine.running.solve import solve as find
    from studies.engine.study import StudyError, load, parse_levels
    from studies.report.solved import draw, sentence

    item = load(study)
    levels = parse_levels([item], set_ or [])
    for name, values in levels.items():
        if len(values) > 1:
            raise StudyError(f"--set {name}: one level, the answer depends on it")
    fixed = {name: levels[0] for name, levels in item.factors.items() if len(levels) == 1 and name != factor}
    fixed |= {name: values[0] for name, values in levels.items()}
    question = Question(factor, method, estimand or item.columns[0], measure, target)
    log = Log(f"cje-lab solve {item.name}", lambda line: None, progress.blocks(item.name))
    run = partial(one_cell, out=out, seed=seed, jobs=jobs or cpu_count(), log=log)
    answer = find(item, question, between, out=out, fixed=fixed, most=most, run=run)
    told = asdict(answer)
    told["looks"] = [{k: v if math.isfinite(v) else None for k, v in look.items()} for look in told["looks"]]
    try:
        put(out / "solve.json", json.dumps(told, indent=1, allow_nan=False).encode())
        write_whole(out / "solve.png", partial(draw, answer))
    except OSError as error:
        raise StudyError(f"--out {out}: {error.strerror or error}; name another directory") from None
    if as_json:
        typer.echo(json.dumps(told, allow_nan=False))
        return
    typer.echo(f"{_table(answer)}\n\n{sentence(answer)}\nwritten to {out}: solve.json, solve.png")


def _table(answer: "Answer") -> str:
    import pandas as pd

    from studies.report.page import with_mcse

    where = {-1: "below", 0: "open", 1: "above"}
    rows = [
        {
            answer.question.factor: f"{look.level:g}",
            "replicates": look.replicates,
            answer.question.measure: with_mcse(look.value, look.mcse),
            "interval": f"[{look.lower:.4g}, {look.upper:.4g}]",
            "target": where[look.side],
        }
        for look in answer.looks
    ]
    return pd.DataFrame(rows).to_string(index=False)
