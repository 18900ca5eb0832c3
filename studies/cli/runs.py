"""``cje-lab run, status, merge, replay``: studies and what comes of them."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from studies.cli import progress
from studies.cli.options import Json, JudgeRange, OracleRange, Probes, Seed

if TYPE_CHECKING:
    from studies.engine.run import Shard, Summary
    from studies.engine.running.replay import Replay
    from studies.engine.study import Study

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The --out of a run.")]


def run(
    study: Annotated[
        list[str] | None,
        typer.Argument(
            help="Studies to run, by name or as a file ./my_study.py; all of ours if none is named."
        ),
    ] = None,
    profile: Annotated[str, typer.Option(help="Size of the run: smoke, quick or paper.")] = "quick",
    out: Annotated[
        Path | None, typer.Option(help="Directory of the results [default: results/PROFILE].")
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes [default: the number of cores].")] = None,
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="I/N", help="Run the I-th of N parts, as of an array job; cje-lab merge joins them."
        ),
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Run on the workers of this Dask scheduler, such as tcp://host:8786."
        ),
    ] = None,
    mcse: Annotated[
        float | None,
        typer.Option(
            metavar="X", help="Go on until every coverage has this Monte Carlo standard error, such as 0.005."
        ),
    ] = None,
    seed: Seed = 1,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FACTOR=V1,V2", help="Levels of a factor; repeatable."),
    ] = None,
    peers: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PYTHON",
            help="Interpreter of an environment that has peers; repeatable [default: CJE_LAB_PEERS, then this one].",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DATA",
            help="Your own files, as for cje-lab analyze: for studies that take them (real_data).",
        ),
    ] = None,
    probes: Probes = None,
    judge_range: JudgeRange = (0.0, 1.0),
    oracle_range: OracleRange = (0.0, 1.0),
    as_json: Json = False,
) -> None:
    """Run studies; the same command resumes a stopped run.

    What is there already is kept: more replicates or levels only add to it, and the result depends on neither
    the number of jobs, parts or workers nor the number of interruptions.
    """
    from joblib import cpu_count

    from studies.engine.run import Log, run_study
    from studies.engine.running import interpreters
    from studies.engine.running.inputs import Inputs, keep
    from studies.engine.study import StudyError, available, load, parse_levels
    from studies.report.page import told

    interpreters.name(peers or ())
    if dask is not None and jobs is not None:
        raise StudyError(
            "--jobs counts processes of this machine, --dask takes workers of a cluster; give one"
        )
    if probes is not None and data is None:
        raise StudyError("--probes go with --data: give the directory or file of the responses too")
    inputs = None if data is None else Inputs(data, probes, judge_range, oracle_range)

    def opened(place: Path) -> None:
        if inputs is not None:
            keep(place, inputs)

    chosen = [load(name) for name in dict.fromkeys(study or available())]
    if inputs is not None:
        chosen = [inputs.study(item) for item in chosen]
    levels = parse_levels(chosen, set_ or [])
    workers = dask or jobs or cpu_count()
    directory = out or Path("results") / profile
    if inputs is not None:
        inputs.apart(directory)
    more = [f"--set {setting}" for setting in set_ or []]
    more += [f"--shard {shard}"] if shard else []
    more += ["--data DATA"] if data is not None else []
    more += [f"--mcse {mcse:g}"] if mcse is not None else []
    summaries = []
    for item in chosen:
        for line in interpreters.lacking(
            method.package for method in item.methods.values() if method.package
        ):
            _saying(item.name)(line)
        where = "--dask ADDRESS" if dask else f"--jobs {workers}"
        words = f"cje-lab run {item.name} --profile {profile} --seed {seed} {where}"
        done = run_study(
            item,
            profile=profile,
            out=directory,
            seed=seed,
            jobs=workers,
            levels=levels,
            shard=_shard(shard) if shard else None,
            mcse=mcse,
            log=Log(" ".join([words, *more]), _saying(item.name), progress.blocks(item.name), opened),
        )
        summaries.append(done)
        if not as_json:
            shown = "" if done.results is None else f"\n{told(item, done.results)}\n\n"
            typer.echo(f"{shown}{_closing_line(done, directory)}")
    if as_json:
        typer.echo(json.dumps([_summary_json(item, s) for item, s in zip(chosen, summaries, strict=True)]))
    if any(s.crashes for s in summaries):
        raise typer.Exit(1)


def _saying(name: str) -> Any:
    return lambda line: typer.echo(f"{name}: {line}", err=True)


def _shard(text: str) -> "Shard":
    from studies.engine.run import Shard
    from studies.engine.study import StudyError

    number, slash, of = text.partition("/")
    if not (slash and number.isdigit() and of.isdigit()):
        raise StudyError(f"--shard {text}: write I/N, such as 1/3")
    return Shard(int(number), int(of))


def _closing_line(summary: "Summary", out: Path) -> str:
    line = f"{summary.study}: {summary.replicates_run} replicates run, {summary.replicates_found} found, "
    if summary.results is None:
        line += f"{summary.seconds:.1f} s; when all shards are there: cje-lab merge {out}"
    else:
        line += f"{summary.seconds:.1f} s; results in {summary.directory / 'results.nc'}"
    if summary.crashes:
        line += (
            f"\n{summary.study}: {summary.crashes} exceptions were kept as data, the first: "
            f"{summary.first_crash}; all in {summary.directory / 'failures.jsonl'}; to see one again: cje-lab replay "
            f"{summary.directory} {summary.first_place} (exit code 1)"
        )
    return line


def _summary_json(study: "Study", summary: "Summary") -> dict[str, Any]:
    from studies.report.page import records, tables

    found = {} if summary.results is None else tables(study, summary.results)
    return {
        **{
            name: getattr(summary, name)
            for name in ("study", "replicates_run", "replicates_found", "crashes")
        },
        "directory": str(summary.directory),
        "results": None if summary.results is None else str(summary.directory / "results.nc"),
        "seconds": round(summary.seconds, 2),
        "tables": {title: records(frame) for title, frame in found.items()},
    }


def status(directory: Directory, as_json: Json = False) -> None:
    """Say how far the runs in a directory have come."""
    from studies.engine.running.directory import find
    from studies.engine.running.directory import status as how_far

    rows = [how_far(path) for path in find(directory)]
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    for row in rows:
        state = f"finished {row['finished']}" if row["finished"] else "not finished: run it again to resume"
        if row["shards_finished"] and not row["finished"]:
            state = (
                f"shards finished: {', '.join(row['shards_finished'])}; cje-lab merge {directory} joins them"
            )
        typer.echo(
            f"{row['study']} ({row['profile']}, seed {row['seed']}): {row['replicates_done']} of "
            f"{row['replicates_asked']} replicates in {row['cells']} cells; "
            f"{row['estimates_failed']} of {row['estimates']} estimates failed, "
            f"{row['crashes']} exceptions, {row['blocks_broken']} broken blocks; {state}"
        )


def merge(
    directory: Annotated[
        list[Path],
        typer.Argument(metavar="DIR...", help="The --out of shards: one, or one for each machine."),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Directory of the results [default: the first of DIR].")
    ] = None,
    as_json: Json = False,
) -> None:
    """Join what the shards of runs have computed, as one run without shards would have left it."""
    from studies.engine.running.directory import find, of_directory
    from studies.engine.running.shards import merge as join
    from studies.report.page import told

    target = out or directory[0]
    sources: dict[str, list[Path]] = {}
    for place in directory:
        for path in find(place):
            sources.setdefault(of_directory(path).name, []).append(path)
    summaries = []
    for name, paths in sources.items():
        done = join(paths, paths[0] if out is None else target / name)
        item = of_directory(done.directory)
        summaries.append(_summary_json(item, done))
        if not as_json and done.results is not None:
            typer.echo(f"\n{told(item, done.results)}\n\n{_closing_line(done, target)}")
    if as_json:
        typer.echo(json.dumps(summaries))
    if any(one["crashes"] for one in summaries):
        raise typer.Exit(1)


def replay(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="One study's directory in the --out of a run.")
    ],
    cell: Annotated[
        str, typer.Option(metavar="CELL", help="FACTOR=V,FACTOR=V..., or the number of the cell, from 0.")
    ],
    replicate: Annotated[int, typer.Option(min=0, help="Number of the replicate, from 0.")],
    pdb: Annotated[
        bool, typer.Option("--pdb", help="Stop in the debugger where the replicate fails.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run one replicate again, beside what was stored; of one that failed, with its traceback.

    Exit code 1 if a number is not the stored one, bit for bit.
    """
    from studies.engine.running.directory import find
    from studies.engine.running.replay import replay as run_again
    from studies.engine.study import StudyError

    places = find(directory)
    if len(places) > 1:
        names = ", ".join(path.name for path in places)
        raise StudyError(f"{directory} holds several studies ({names}); give the directory of one of them")
    found = run_again(places[0], cell, replicate)
    if as_json:
        typer.echo(json.dumps(_replay_json(found), allow_nan=False))
    else:
        typer.echo(_replay_text(found))
    if pdb:
        _debug(found)
    if not found.reproduced:
        raise typer.Exit(1)


def _replay_json(found: "Replay") -> dict[str, Any]:
    from studies.engine.running.workers import arrays_of

    now = arrays_of(found.study, found.outcome)
    return {
        "study": found.study.name,
        "cell": dict(found.cell),
        "replicate": found.number,
        "same": found.same,
        "changed": found.changed,
        "methods": list(found.study.methods),
        "policies": found.study.columns,
        "now": {name: _plain(array) for name, array in now.items()},
        "stored": {name: _plain(array) for name, array in found.stored.items()},
        "traceback": found.traceback(),
    }


def _plain(array: Any) -> Any:
    """Return an array as JSON has it: no number is null."""
    import numpy as np

    plain = array.astype(object)
    plain[~np.isfinite(array)] = None
    return plain.tolist()


def _replay_text(found: "Replay") -> str:
    import numpy as np
    import pandas as pd

    from studies.report.page import render

    levels = ",".join(f"{name}={level}" for name, level in found.cell.items())
    now = np.asarray(found.outcome.estimate, float)
    then = found.stored.get("estimate", np.full(now.shape, np.nan))
    rows = [
        {"method": method, "policy": policy, "estimate": now[m, p], "stored": then[m, p]}
        for m, method in enumerate(found.study.methods)
        for p, policy in enumerate(found.study.columns)
    ]
    lines = [
        f"{found.study.name}: {levels}, replicate {found.number}",
        render(pd.DataFrame(rows)).to_string(index=False),
    ]
    if not found.stored:
        lines.append("no block of the run holds this replicate: there is nothing to compare with")
    elif found.same:
        lines.append("every number is the stored one, bit for bit")
    else:
        because = f" (changed since: {', '.join(found.changed)})" if found.changed else ""
        apart = "; ".join(
            f"{one.name} by {one.size:.2g}" + (f" ({', '.join(one.methods)})" if one.methods else "")
            for one in found.different
        )
        said = (
            "every number is the stored one but for the last bits"
            if found.reproduced
            else "numbers differ from the stored ones"
        )
        lines.append(f"{said}: {apart}{because}")
    trace = found.traceback()
    return "\n".join([*lines, trace] if trace else lines)


def _debug(found: "Replay") -> None:
    import pdb

    try:
        found.again()
    except Exception:  # whatever the replicate raised is what the debugger is asked to show
        pdb.post_mortem(sys.exc_info()[2])
