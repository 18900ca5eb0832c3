"""The command line: ``cje-lab``, the same as ``python -m studies``.

Heavy libraries are imported inside the commands, so that ``--help`` and ``list`` are quick.
"""

import ast
import importlib.util
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from studies.cli import progress
from studies.cli.bench import bench
from studies.cli.options import (
    CalibrationPolicy,
    Calibrator,
    Covariates,
    Direction,
    Json,
    JudgeRange,
    Margin,
    OracleRange,
    Probes,
    Seed,
    in_options,
)

if TYPE_CHECKING:
    from studies.engine.run import Summary
    from studies.engine.study import Study

app = typer.Typer(
    name="cje-lab",
    help="A laboratory for Causal Judge Evaluation: simulate, estimate, audit, and put the theory on trial.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
REGISTRIES = {
    "studies": "studies", "scenarios": "cje_sim.scenarios", "estimators": "cje_core.estimators",
    "benchmarks": "studies.benchmarks",
}  # fmt: skip


def _options() -> dict[str, str]:
    """Option of each parameter, as the commands declare them."""
    commands = vars(typer.main.get_command(app))["commands"].values()
    declared = [parameter for command in commands for parameter in command.params]
    return {p.name: p.opts[0] for p in declared if p.opts[0].startswith("--")}


def _summaries(package: str) -> list[dict[str, str]]:
    """Name and first docstring sentence of each public module, read without importing any."""
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.submodule_search_locations
    entries = []
    for path in sorted(Path(spec.submodule_search_locations[0]).glob("[!_]*.py")):
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        sentence = " ".join(text.split("\n\n")[0].split()).split(". ")[0].rstrip(".:")
        entries.append({"name": path.stem, "summary": sentence})
    return entries


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List studies, scenarios, estimators and benchmarks, one line each."""
    found = {kind: _summaries(package) for kind, package in REGISTRIES.items()}
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    width = max((len(entry["name"]) for entries in found.values() for entry in entries), default=0)
    for kind, entries in found.items():
        typer.echo(f"{kind}:")
        for entry in entries:
            typer.echo(f"  {entry['name']:<{width}}  {entry['summary']}")


@app.command()
def run(
    study: Annotated[
        list[str] | None, typer.Argument(help="Studies to run; all of them if none is named.")
    ] = None,
    profile: Annotated[str, typer.Option(help="Size of the run: smoke, quick or paper.")] = "quick",
    out: Annotated[
        Path | None, typer.Option(help="Directory of the results [default: results/PROFILE].")
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes [default: the number of cores].")] = None,
    seed: Seed = 1,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FACTOR=V1,V2", help="Levels of a factor; repeatable."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run studies; the same command resumes a stopped run.

    What is there already is kept: more replicates or levels only add to it, and the result depends on neither
    the number of jobs nor the number of interruptions.
    """
    from joblib import cpu_count

    from studies.engine.run import run_study
    from studies.engine.study import available, load, parse_levels
    from studies.report.page import headline

    chosen = [load(name) for name in dict.fromkeys(study or available())]
    levels = parse_levels(chosen, set_ or [])
    workers = jobs or cpu_count()
    directory = out or Path("results") / profile
    summaries = []
    for item in chosen:
        words = f"cje-lab run {item.name} --profile {profile} --seed {seed} --jobs {workers}"
        done = run_study(
            item,
            profile=profile,
            out=directory,
            seed=seed,
            jobs=workers,
            levels=levels,
            command=" ".join([words, *(f"--set {setting}" for setting in set_ or [])]),
            say=lambda line, name=item.name: typer.echo(f"{name}: {line}", err=True),  # type: ignore[misc]
            track=progress.blocks(item.name),
        )
        summaries.append(done)
        if not as_json:
            typer.echo(f"\n{headline(item, done.results)}\n\n{_closing_line(done)}")
    if as_json:
        typer.echo(json.dumps([_summary_json(item, s) for item, s in zip(chosen, summaries, strict=True)]))
    if any(s.crashes for s in summaries):
        raise typer.Exit(1)


def _closing_line(summary: "Summary") -> str:
    line = (
        f"{summary.study}: {summary.replicates_run} replicates run, {summary.replicates_found} found, "
        f"{summary.seconds:.1f} s; results in {summary.directory / 'results.nc'}"
    )
    if summary.crashes:
        line += (
            f"\n{summary.study}: {summary.crashes} exceptions were kept as data, the first: "
            f"{summary.first_crash}; all in {summary.directory / 'failures.jsonl'} (exit code 1)"
        )
    return line


def _summary_json(study: "Study", summary: "Summary") -> dict[str, Any]:
    from studies.report.page import records, tables

    return {
        **{
            name: getattr(summary, name)
            for name in ("study", "replicates_run", "replicates_found", "crashes")
        },
        "directory": str(summary.directory),
        "results": str(summary.directory / "results.nc"),
        "seconds": round(summary.seconds, 2),
        "tables": {title: records(frame) for title, frame in tables(study, summary.results).items()},
    }


@app.command()
def status(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The --out of a run.")],
    as_json: Json = False,
) -> None:
    """Say how far the runs in a directory have come."""
    from studies.engine.run import status as how_far
    from studies.report.page import find

    rows = [how_far(path) for path in find(directory)]
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    for row in rows:
        state = f"finished {row['finished']}" if row["finished"] else "not finished: run it again to resume"
        typer.echo(
            f"{row['study']} ({row['profile']}, seed {row['seed']}): {row['replicates_done']} of "
            f"{row['replicates_asked']} replicates in {row['cells']} cells; "
            f"{row['estimates_failed']} of {row['estimates']} estimates failed, "
            f"{row['crashes']} exceptions, {row['blocks_broken']} broken blocks; {state}"
        )


@app.command()
def report(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The --out of a run.")],
    as_json: Json = False,
) -> None:
    """Write one self-contained report.html.

    It holds the tables with Monte Carlo standard errors, the figures, the design and the manifest; every measure
    of every cell goes to performance.csv beside the results.
    """
    from studies.report.page import headline, records, write

    page = write(directory)
    if as_json:
        tables = {
            item.study.name: {title: records(frame) for title, frame in item.tables.items()}
            for item in page.items
        }
        typer.echo(json.dumps({"report": str(page.path), "tables": tables}))
        return
    for item in page.items:
        typer.echo(f"\n{headline(item.study, item.results)}")
    typer.echo(f"\nreport: {page.path}")


@app.command()
def analyze(
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA",
            help="Directory of {policy}_responses.jsonl or {policy}.jsonl, or one .jsonl, .csv or .parquet file.",
        ),
    ],
    probes: Probes = None,
    logged: Annotated[
        Path | None, typer.Option(help="JSONL of logged responses with log-likelihoods.")
    ] = None,
    calibration_policy: CalibrationPolicy = None,
    covariate: Covariates = None,
    calibrator: Calibrator = "default",
    estimator: Annotated[
        list[str] | None,
        typer.Option(
            help="Estimator; repeatable [default: raw_judge, labels_only, direct, direct_corrected, and with --logged "
            "snips, calibrated_ips, calibrated_dr_cpo, stacked_dr]."
        ),
    ] = None,
    margin: Margin = None,
    direction: Direction = "increasing",
    borrowed: Annotated[
        str,
        typer.Option(
            help="What Direct does for a policy without labels of its own: balanced, one_step, or the paper's plug_in."
        ),
    ] = "balanced",
    bayes: Annotated[
        bool, typer.Option("--bayes", help="Add posteriors: values, shifts, P(best), P(|shift| < margin).")
    ] = False,
    bayes_engine: Annotated[
        str | None,
        typer.Option(
            help="Sampler of --bayes: gibbs (milliseconds), nutpie or pymc (NUTS) [default: gibbs]."
        ),
    ] = None,
    seed: Seed = 1,
    judge_range: JudgeRange = (0.0, 1.0),
    oracle_range: OracleRange = (0.0, 1.0),
    out: Annotated[
        Path | None,
        typer.Option(
            help="Directory for estimates.json, ledger.nc, the figures, and posterior.nc (--bayes)."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Estimate policy values from judge scores and oracle labels in files, audit the calibration, advise."""
    from cje_core.calibration.calibrated import Calibration
    from cje_core.data import DataError
    from cje_core.workflow.analyze import analyze as analyze_files
    from studies.cli.analysis.as_json import to_json
    from studies.cli.analysis.save import check_out, save
    from studies.cli.analysis.tables import summary

    if bayes_engine is not None and not bayes:
        raise DataError(f"--bayes-engine {bayes_engine}: it samples the posteriors of --bayes; add --bayes")
    check_out(out)
    with progress.working("reading, estimating, auditing"):
        result = analyze_files(
            data,
            probes=probes,
            logged=logged,
            calibration_policy=calibration_policy,
            calibration=Calibration(covariate or (), calibrator, direction),
            chosen=estimator or (),
            margin=margin,
            borrowed=borrowed,
            bayes=(bayes_engine or "gibbs") if bayes else None,
            seed=seed,
            judge_range=judge_range,
            oracle_range=oracle_range,
        )
    told = to_json(result) if as_json else None
    if out is not None:
        with progress.working("drawing"):
            written = save(result, out, told)
        typer.echo(f"written to {out}: {', '.join(written)}", err=True)
    if told is not None:
        typer.echo(json.dumps(told, allow_nan=False))
    else:
        progress.show(summary(result))


@app.command()
def plan(
    data: Annotated[
        Path,
        typer.Argument(metavar="DATA", help="The pilot: files as for analyze, some responses with labels."),
    ],
    budget: Annotated[float, typer.Option(help="What may be spent, in the unit of the costs.")],
    cost_judge: Annotated[float, typer.Option(help="Cost of one judge score.")],
    cost_oracle: Annotated[float, typer.Option(help="Cost of one oracle label.")],
    policies: Annotated[
        int | None, typer.Option(help="Policies of the planned study [default: the pilot's].")
    ] = None,
    probes: Probes = None,
    calibration_policy: CalibrationPolicy = None,
    covariate: Covariates = None,
    calibrator: Calibrator = "default",
    borrowed: Annotated[
        str,
        typer.Option(
            help="What policies without labels or probes get: balanced (as analyze) or plug_in (the paper's)."
        ),
    ] = "balanced",
    power: Annotated[float, typer.Option(help="Power of the smallest detectable differences.")] = 0.8,
    replicates: Annotated[
        int | None, typer.Option(help="Simulated studies that check the plan [default: 200, fewer if large].")
    ] = None,
    margin: Margin = None,
    direction: Direction = "increasing",
    seed: Seed = 1,
    judge_range: JudgeRange = (0.0, 1.0),
    oracle_range: OracleRange = (0.0, 1.0),
    out: Annotated[Path | None, typer.Option(help="Directory for plan.json and mde.png.")] = None,
    as_json: Json = False,
) -> None:
    """Spend a budget on judge scores and oracle labels, from a pilot; the plan is checked by simulation."""
    from cje_core.calibration.calibrated import Calibration
    from cje_core.workflow.plan import plan as plan_files
    from studies.cli.analysis.save import check_out
    from studies.cli.planning.as_json import to_json
    from studies.cli.planning.save import save
    from studies.cli.planning.tables import summary

    check_out(out)
    planned = plan_files(
        data,
        budget=budget,
        cost_judge=cost_judge,
        cost_oracle=cost_oracle,
        n_policies=policies,
        probes=probes,
        calibration_policy=calibration_policy,
        calibration=Calibration(covariate or (), calibrator, direction),
        borrowed=borrowed,
        power=power,
        replicates=replicates,
        margin=margin,
        seed=seed,
        judge_range=judge_range,
        oracle_range=oracle_range,
        track=progress.simulating,
    )
    if out is not None:
        save(planned, out)
        typer.echo(f"written to {out}: plan.json, mde.png", err=True)
    if as_json:
        typer.echo(json.dumps(to_json(planned), allow_nan=False))
    else:
        progress.show(summary(planned))


app.command()(bench)


def main() -> None:
    """Run the command line; what a user can mend is one line on stderr and exit code 2."""
    try:
        code = app(standalone_mode=False, prog_name="cje-lab")
    except KeyboardInterrupt:
        typer.echo("cje-lab: interrupted", err=True)
        code = 130
    except Exception as error:
        said, code = _one_line(error)
        typer.echo(f"cje-lab: {said}", err=True)
    sys.exit(code)


def _one_line(error: Exception) -> tuple[str, int]:
    """What to say of an error that a user can mend, and the exit code; any other is a bug: its traceback is wanted."""
    from cje_core.data import DataError
    from studies.engine.run import InterruptedRunError
    from studies.engine.study import StudyError

    if isinstance(error, DataError):
        return in_options(str(error), _options()), 2
    if isinstance(error, StudyError | InterruptedRunError):
        return str(error), 130 if isinstance(error, InterruptedRunError) else 2
    message = getattr(error, "format_message", None)
    if message is None:
        raise error
    return f"{message().rstrip('.')}; see cje-lab --help", 2
