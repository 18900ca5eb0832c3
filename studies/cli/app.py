"""The command line: ``cje-lab``, the same as ``python -m studies``.

Heavy libraries are imported inside the commands, so that ``--help`` and ``list`` are quick.
"""

import ast
import importlib.util
import json
import sys
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer

from studies.cli import progress
from studies.cli.audit.commands import audit
from studies.cli.bench import bench
from studies.cli.design import protocol
from studies.cli.files.demo import demo
from studies.cli.files.doctor import doctor
from studies.cli.files.source import source_of
from studies.cli.files.tf_cache import tf_cache
from studies.cli.ledger.commands import claims
from studies.cli.options import (
    Batch,
    Bayes,
    BayesEngine,
    Block,
    Borrowed,
    By,
    CalibrationPolicy,
    Calibrator,
    Cohort,
    Covariates,
    Direction,
    Estimators,
    Json,
    Judge,
    JudgeModel,
    JudgeRange,
    KeepSteps,
    Large,
    Logged,
    Margin,
    OnDask,
    Oracle,
    OracleFile,
    OracleRange,
    PolicyField,
    Probes,
    PromptField,
    Salt,
    Scale,
    Seed,
    SharedPrompts,
    Subgroup,
    TargetMde,
    Time,
    in_options,
    named_values,
)
from studies.cli.paper import paper
from studies.cli.reading.docs import docs
from studies.cli.reading.plot import plot
from studies.cli.reading.report import report
from studies.cli.runs import merge, replay, run, status
from studies.cli.solve import solve
from studies.cli.step import keeping, step

app = typer.Typer(
    name="cje-lab",
    help="A laboratory for Causal Judge Evaluation: simulate, estimate, audit, and put the theory on trial.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
INTERRUPTED = 130
REGISTRIES = {
    "studies": "studies", "scenarios": "cje_sim.scenarios", "estimators": "cje_core.estimators",
    "claims": "studies.claims", "benchmarks": "studies.benchmarks", "plots": "studies.report.plots",
}  # fmt: skip


def _version(asked: bool) -> None:
    """Say the version and leave."""
    if asked:
        from importlib import metadata

        typer.echo(f"cje-lab {metadata.version('cje-lab')}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Say the version and leave."),
    ] = False,
) -> None:
    """A laboratory for Causal Judge Evaluation: simulate, estimate, audit, and put the theory on trial."""


@cache
def _command() -> Any:
    """All commands with their options, built once: a process of tests calls the command line hundreds of times."""
    return typer.main.get_command(app)


def _options() -> dict[str, str]:
    """Option of each parameter, as the commands declare them."""
    commands = vars(_command())["commands"].values()
    every = [one for command in commands for one in (command, *getattr(command, "commands", {}).values())]
    declared = [parameter for command in every for parameter in command.params]
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


def _grouped(group: str) -> list[str]:
    """Names of the studies whose ``RUN_GROUPS`` hold one, read without importing any."""
    groups: dict[str, list[str]] = {}
    for path in sorted(Path(__file__).parents[1].glob("[!_]*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "RUN_GROUPS":
                for one in ast.literal_eval(node.value):
                    groups.setdefault(one, []).append(path.stem)
    if group not in groups:
        raise typer.BadParameter(f"--group {group}: no study states it; there are: {', '.join(groups)}")
    return groups[group]


@app.command("list")
def list_(
    group: Annotated[
        str | None,
        typer.Option(
            help="Names of the studies that state this group, such as headlines, pages or compiling."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List studies, scenarios, estimators, groups of claims and benchmarks, one line each."""
    if group is not None:
        typer.echo("\n".join(_grouped(group)))
        return
    found = {kind: _summaries(package) for kind, package in REGISTRIES.items()}
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    width = max((len(entry["name"]) for entries in found.values() for entry in entries), default=0)
    for kind, entries in found.items():
        typer.echo(f"{kind}:")
        for entry in entries:
            typer.echo(f"  {entry['name']:<{width}}  {entry['summary']}")


for command in (
    run,
    status,
    merge,
    replay,
    solve,
    report,
    plot,
    docs,
    bench,
    paper,
    tf_cache,
    step,
    demo,
    doctor,
):
    app.command()(command)
app.add_typer(audit)
app.command()(protocol)
app.command()(claims)


@app.command()
def analyze(
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA",
            help="Directory of {policy}_responses.jsonl or {policy}.jsonl, or one .jsonl, .csv or .parquet file; or "
            "what another tool wrote (cje-lab doctor knows).",
        ),
    ],
    judge: Judge = None,
    judge_model: JudgeModel = None,
    oracle: Oracle = None,
    oracle_file: OracleFile = None,
    policy_field: PolicyField = None,
    prompt_field: PromptField = None,
    scale: Scale = None,
    probes: Probes = None,
    logged: Logged = None,
    calibration_policy: CalibrationPolicy = None,
    covariate: Covariates = None,
    calibrator: Calibrator = "default",
    estimator: Estimators = None,
    margin: Margin = None,
    target_mde: TargetMde = None,
    shared_prompts: SharedPrompts = False,
    direction: Direction = "increasing",
    borrowed: Borrowed = "spline",
    bayes: Bayes = False,
    bayes_engine: BayesEngine = None,
    cohort: Cohort = None,
    by: By = None,
    subgroup: Subgroup = None,
    seed: Seed = 1,
    judge_range: JudgeRange = (0.0, 1.0),
    oracle_range: OracleRange = (0.0, 1.0),
    batch: Batch = None,
    block: Block = None,
    time: Time = None,
    large: Large = None,
    dask: OnDask = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Directory for index.html, estimates.json, ledger.nc, the figures, and posterior.nc (--bayes)."
        ),
    ] = None,
    keep_steps: KeepSteps = None,
    salt: Salt = None,
    as_json: Json = False,
) -> None:
    """Estimate policy values from judge scores and oracle labels in files, audit the calibration, advise."""
    from cje_core.calibration.calibrated import Calibration
    from cje_core.data import DataError
    from cje_core.verdict.self_preference import model_of_score
    from cje_core.workflow.drifting import with_drift
    from cje_core.workflow.serial import with_serial_errors
    from studies.cli.analysis.out import check_out
    from studies.cli.analysis.output import ALWAYS, tell
    from studies.cli.redaction import salt_of

    secret = salt_of(salt)
    for clash, said in (
        (
            bayes_engine and not bayes,
            f"--bayes-engine {bayes_engine}: it samples the posteriors of --bayes; add --bayes",
        ),
        (time and not block, f"--time {time}: it puts prompts in order for --block; add --block auto"),
        (
            (large or dask) and (block or batch),
            f"{'--large' if large else '--dask'}: --block and --batch need every row in memory; leave one of them out",
        ),
        (
            keep_steps and secret is not None,
            "--keep-steps: it keeps the ids of prompts, which a salt hides; leave one out",
        ),
    ):
        if clash:
            raise DataError(said)
    check_out(out, apart=(data, probes), files=ALWAYS)
    nuts = bayes_engine not in (None, "gibbs")
    with keeping(keep_steps) as analyze_files, progress.analysing("reading, estimating, auditing", nuts=nuts):
        read_from = source_of(data, judge, oracle, policy_field, prompt_field, scale, covariate or ())
        result = analyze_files(
            read_from,
            labels=oracle_file,
            judge_model=judge_model or model_of_score(judge),
            probes=probes,
            logged=logged,
            calibration_policy=calibration_policy,
            calibration=Calibration(covariate or (), calibrator, direction, subgroup),
            chosen=estimator or (),
            margin=margin,
            target_mde=target_mde,
            borrowed=borrowed,
            bayes=(bayes_engine or "gibbs") if bayes else None,
            seed=seed,
            large=large if block is None and batch is None else False,
            dask=dask,
            shared_prompts=shared_prompts,
            judge_range=judge_range,
            oracle_range=oracle_range,
            salt=secret,
            cohort=named_values(cohort or (), "--cohort"),
            groups=by or (),
        )
        if batch is not None:
            result = with_drift(result, read_from, batch=batch, probes=probes)
        if block is not None:
            result = with_serial_errors(result, read_from, field=time, block=block, probes=probes)
    tell(result, out, secret, as_json=as_json)


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
    judge: Judge = None,
    oracle: Oracle = None,
    oracle_file: OracleFile = None,
    policy_field: PolicyField = None,
    prompt_field: PromptField = None,
    scale: Scale = None,
    probes: Probes = None,
    calibration_policy: CalibrationPolicy = None,
    covariate: Covariates = None,
    calibrator: Calibrator = "default",
    borrowed: Annotated[
        str,
        typer.Option(
            help="What policies without labels or probes get: balanced (the stand-in for what analyze prints) or "
            "plug_in (the paper's)."
        ),
    ] = "balanced",
    logged: Logged = None,
    estimator: Annotated[
        str, typer.Option(help="Whose values are planned: direct, or stacked_dr (with --logged).")
    ] = "direct",
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
    salt: Salt = None,
    as_json: Json = False,
) -> None:
    """Spend a budget on judge scores, oracle labels and probes, from a pilot; the plan is checked by simulation."""
    from cje_core.calibration.calibrated import Calibration
    from cje_core.workflow.plan import plan as plan_files
    from studies.cli.analysis.out import check_out
    from studies.cli.planning.as_json import to_json
    from studies.cli.planning.save import FILES, save
    from studies.cli.planning.tables import summary
    from studies.cli.redaction import hidden, salt_of

    check_out(out, apart=(data, probes), files=FILES)
    secret = salt_of(salt)
    planned = plan_files(
        source_of(data, judge, oracle, policy_field, prompt_field, scale, covariate or ()),
        labels=oracle_file,
        budget=budget,
        cost_judge=cost_judge,
        cost_oracle=cost_oracle,
        n_policies=policies,
        probes=probes,
        calibration_policy=calibration_policy,
        calibration=Calibration(covariate or (), calibrator, direction),
        borrowed=borrowed,
        logged=logged,
        estimator=estimator,
        power=power,
        replicates=replicates,
        margin=margin,
        seed=seed,
        judge_range=judge_range,
        oracle_range=oracle_range,
        salt=secret,
        track=progress.simulating,
    )
    if as_json:
        typer.echo(json.dumps(hidden(to_json(planned), secret), allow_nan=False))
    else:
        progress.show(summary(planned))
    if out is not None:
        with progress.working("drawing"):
            save(planned, out, secret)
        typer.echo(f"written to {out}: {', '.join(FILES)}", err=True)


def main() -> None:
    """Run the command line; what a user can mend is one line on stderr and exit code 2."""
    try:
        code = _command()(standalone_mode=False, prog_name="cje-lab")
        if code == INTERRUPTED:  # typer answers Ctrl-C itself, and says nothing
            typer.echo("cje-lab: interrupted", err=True)
    except (KeyboardInterrupt, typer.Abort):
        typer.echo("cje-lab: interrupted", err=True)
        code = INTERRUPTED
    except Exception as error:
        said, code = _one_line(error)
        typer.echo(f"cje-lab: {_printable(said)}", err=True)
    sys.exit(code)


def _printable(text: str) -> str:
    """Text without what would steer a terminal: a path or a name may hold escape sequences."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def _one_line(error: Exception) -> tuple[str, int]:
    """What to say of an error that a user can mend, and the exit code; any other is a bug: its traceback is wanted."""
    from cje_core.data import DataError
    from studies.engine.run import InterruptedRunError
    from studies.engine.study import StudyError
    from studies.ledger.claim import ClaimError

    if isinstance(error, DataError):
        return in_options(str(error), _options()), 2
    if isinstance(error, ClaimError | StudyError | InterruptedRunError):
        return str(error), 130 if isinstance(error, InterruptedRunError) else 2
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {(error.strerror or str(error)).lower()}; check the path", 2
    message = getattr(error, "format_message", None)
    if message is None:
        raise error
    return f"{message().rstrip('.')}; see cje-lab --help", 2
