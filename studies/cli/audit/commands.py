"""The commands of ``cje-lab audit``.

Exit codes: 0 where nothing is found against what is audited (undecided or not checkable is nothing found, and is said),
1 where something is, 2 for input that cannot be read.
"""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from studies.cli import progress
from studies.cli.audit import help as ends
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
    Salt,
    Seed,
)

if TYPE_CHECKING:
    from cje_core.calibration.calibrated import Calibrated
    from studies.cli.audit.told import Told

audit = typer.Typer(
    name="audit",
    help="Tests of a calibration, a judge and a server. Exit code 1 where something is found, 0 where not, 2 for bad "
    "input.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Data = Annotated[Path, typer.Argument(metavar="DATA", help="Responses, as for analyze.")]
Out = Annotated[Path | None, typer.Option(help="Directory for the JSON and the figure.")]


class How(NamedTuple):
    """How responses and probes are read and calibrated: the options that the audits of DATA share."""

    probes: Probes = None
    calibration_policy: CalibrationPolicy = None
    covariate: Covariates = None
    calibrator: Calibrator = "default"
    direction: Direction = "increasing"
    judge_range: JudgeRange = (0.0, 1.0)
    oracle_range: OracleRange = (0.0, 1.0)

    def read(self, data: Path) -> "Calibrated":
        """Return the data, and what their labels teach; a line for each kind of row left out."""
        from cje_core.calibration.calibrated import Calibration, calibrated
        from cje_core.io.files import read
        from studies.cli.analysis.lines.notes import left_out_lines

        asked = Calibration(self.covariate or (), self.calibrator, self.direction)
        with progress.working("reading"):
            found, left_out = read(
                data,
                probes=self.probes,
                covariates=asked.covariates,
                calibration_policy=self.calibration_policy,
                judge_range=self.judge_range,
                oracle_range=self.oracle_range,
            )
        for line in left_out_lines(left_out):
            typer.echo(line, err=True)
        return calibrated(found, asked)


def reads(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `How`, after DATA; it gets them as its argument ``how``."""
    shared = list(inspect.signature(How).parameters.values())
    own = [p for p in inspect.signature(command).parameters.values() if p.name != "how"]

    def asked(**words: Any) -> None:
        command(**{p.name: words[p.name] for p in own}, how=How(**{p.name: words[p.name] for p in shared}))

    together = [p.replace(kind=p.KEYWORD_ONLY) for p in (own[0], *shared, *own[1:])]
    asked.__name__, asked.__doc__ = command.__name__, command.__doc__
    asked.__signature__ = inspect.Signature(together)  # type: ignore[attr-defined]
    asked.__annotations__ = {p.name: p.annotation for p in together}
    return asked


def _tell(told: "Told", out: Path | None, as_json: bool, salt: Path | None = None) -> None:
    """Print, write, and leave with the exit code."""
    import json

    from studies.cli.analysis.out import write_files
    from studies.cli.redaction import hidden, salt_of

    shown = hidden(told.json, salt_of(salt))
    if as_json:
        typer.echo(json.dumps(shown, allow_nan=False))
    else:
        progress.show(told.page)
    if out is not None:
        files = {f"{told.name}.json": (json.dumps(shown, indent=1, allow_nan=False) + "\n").encode("utf-8")}
        if told.draw is not None:
            with progress.working("drawing"):
                files[f"{told.name}.png"] = told.figure()
        write_files(out, files, by=f"audit {told.name}")
        typer.echo(f"written to {out}: {', '.join(files)}", err=True)
    if told.found:
        raise typer.Exit(1)


@audit.command()
@reads
def binned(
    data: Data,
    bins: Annotated[int, typer.Option(min=2, help="Most bins of the judge's scale.")] = 10,
    level: Annotated[float, typer.Option(help="Size of the joint tests, all policies together.")] = 0.05,
    out: Out = None,
    as_json: Json = False,
    *,
    how: How,
) -> None:
    """Does the calibration hold all over the judge's scale? One joint test per policy over bins of its probes' scores.

    Errors that cancel on average pass the audit of `analyze` and fail here. Policies are put under one false discovery
    rate.
    """
    from cje_core.transport.local_audits import binned_audit
    from studies.cli.analysis.out import check_out
    from studies.cli.audit.over_scores import of_bins
    from studies.cli.audit.told import in_unit

    check_out(out)
    in_unit(level, "level")
    given = how.read(data)
    _tell(of_bins(binned_audit(given, n_bins=bins), level), out, as_json)


@audit.command()
@reads
def coarsening(
    data: Data,
    levels: Annotated[
        list[int] | None, typer.Option(help="Number of judge levels; repeatable [default: 2, 3, 5, 10].")
    ] = None,
    estimator: Annotated[str, typer.Option(help="Estimator of cje-lab list.")] = "direct",
    seed: Seed = 1,
    out: Out = None,
    as_json: Json = False,
    *,
    how: How,
) -> None:
    """What would a judge of fewer levels cost? The values again with its scores coarsened, to 2, 3, 5 and 10 levels.

    Finds nothing against the judge: the exit code is 0.
    """
    from cje_core.data import DataError
    from cje_core.planning.coarsening import LEVELS, coarsening_ablation
    from studies.cli.analysis.out import check_out
    from studies.cli.audit.over_scores import of_levels

    check_out(out)
    if any(n < 2 for n in levels or ()):
        raise DataError("--levels: a judge of fewer than 2 levels tells nothing; give 2 or more")
    given = how.read(data)
    found = coarsening_ablation(
        given.data, levels or LEVELS, estimator=estimator, calibration=given.calibration, rng=seed
    )
    _tell(of_levels(found), out, as_json)


@audit.command()
@reads
def subgroup(
    data: Data,
    group: Annotated[
        str, typer.Option(metavar="FIELD", help="Field of the rows that names a prompt's group.")
    ],
    fdr: Annotated[float, typer.Option(help="False discovery rate over all policies and groups.")] = 0.05,
    out: Out = None,
    as_json: Json = False,
    *,
    how: How,
) -> None:
    """Does the calibration hold in every group of prompts? The mean residual of each policy's probes in each group.

    FIELD stands in the rows of DATA or of the probes, text or numbers; all rows of a prompt agree, and every probed
    prompt has one.
    """
    from cje_core.transport.local_audits import subgroup_audit
    from studies.cli.analysis.out import check_out
    from studies.cli.audit.over_scores import of_groups
    from studies.cli.audit.rows import groups
    from studies.cli.audit.told import in_unit

    check_out(out)
    in_unit(fdr, "fdr")
    given = how.read(data)
    _tell(
        of_groups(subgroup_audit(given, group=groups(given, data, how.probes, group), fdr=fdr), group),
        out,
        as_json,
    )


@audit.command(cls=ends.ending_in(ends.drift))
@reads
def drift(
    data: Annotated[Path | None, typer.Argument(metavar="[DATA]", help="Responses, as for analyze.")] = None,
    batch: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD",
            help="Field of the probes' rows that names their batch: numbers, or text that sorts.",
        ),
    ] = None,
    baseline: Annotated[int, typer.Option(min=1, help="How many first batches make the baseline.")] = 1,
    anchors: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="JSONL of anchor responses scored twice: id, then, now; stream (optional) names sets of them.",
        ),
    ] = None,
    min_tau: Annotated[
        float, typer.Option(help="Smallest harmless Kendall tau: what the judge reaches against itself.")
    ] = 0.8,
    false_alarm: Annotated[
        float, typer.Option(help="Probability of any alarm of --batch, and of --anchors, if nothing changes.")
    ] = 0.05,
    seed: Seed = 1,
    out: Out = None,
    as_json: Json = False,
    *,
    how: How,
) -> None:
    """Has the judge drifted? Residuals of probes that came in batches (DATA --batch), or anchors scored then and now.

    Batches: a CUSUM and an EWMA chart per policy of what the residuals do after the baseline; limits come from the same
    residuals in other orders, so the false alarms over the whole horizon are as many as stated. Anchors: Kendall's tau
    of the two scorings with its interval, and a sign-flip test of their mean change.
    """
    from cje_core.data import DataError
    from cje_core.streams import generator
    from cje_core.transport.monitor import anchor_audit, batch_audit
    from studies.cli.analysis.out import check_out
    from studies.cli.audit.over_time import of_drift
    from studies.cli.audit.rows import moments, read_anchors

    check_out(out)
    if (data is None) != (batch is None):
        raise DataError(
            "--batch: DATA and the field of its batches go together; give both, or --anchors alone"
        )
    if data is None and anchors is None:
        raise DataError("audit drift: give DATA with --batch FIELD, or --anchors FILE")
    charts = compared = None
    if data is not None and batch is not None:
        given = how.read(data)
        when = moments(given, data, how.probes, batch, "batch")
        charts = batch_audit(
            given, when, n_baseline=baseline, false_alarm=false_alarm, rng=generator(seed, "audit", "drift")
        )
    if anchors is not None:
        names, then, now = read_anchors(anchors)
        compared = anchor_audit(
            then, now, min_tau=min_tau, false_alarm=false_alarm, rng=generator(seed, "audit", "anchors")
        ).assign_coords(stream=names)
    _tell(of_drift(charts, compared), out, as_json)


@audit.command(cls=ends.ending_in(ends.sequential))
@reads
def sequential(
    data: Data,
    time: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD",
            help="Field of the probes' rows that puts them in order [default: the order of the rows].",
        ),
    ] = None,
    margin: Margin = None,
    alpha: Annotated[
        float, typer.Option(help="Probability of a wrong verdict over a policy's whole sequence.")
    ] = 0.05,
    out: Out = None,
    as_json: Json = False,
    *,
    how: How,
) -> None:
    """Audit transport label by label: run it again whenever probes were added, and stop at a verdict.

    The interval is valid at every number of labels at once, so looking often costs nothing. Probes must be drawn at
    random and kept in the order in which they came; those audited once must stay.
    """
    from cje_core.transport.monitor import label_audit
    from studies.cli.analysis.out import check_out
    from studies.cli.audit.over_time import of_labels
    from studies.cli.audit.rows import moments

    check_out(out)
    given = how.read(data)
    when = moments(given, data, how.probes, time, "time")
    _tell(of_labels(label_audit(given, when, margin=margin, alpha=alpha)), out, as_json)


@audit.command(cls=ends.ending_in(ends.power))
def power(
    residual_sd: Annotated[
        float, typer.Option(help="Standard deviation of Y - f(Z), as a pilot's audit reports it.")
    ],
    margin: Annotated[float, typer.Option(help="Harmless mean residual, in oracle units.")] = 0.05,
    labels: Annotated[
        list[int] | None, typer.Option(min=4, help="Number of probes; repeatable [default: 25 to 800].")
    ] = None,
    true_residual: Annotated[
        list[float] | None,
        typer.Option(help="True mean residual; repeatable [default: 0 and 2 and 4 margins]."),
    ] = None,
    aim: Annotated[float, typer.Option(help="Probability of the right verdict to be reached.")] = 0.8,
    policies: Annotated[int, typer.Option(min=1, help="Policies audited together.")] = 1,
    seed: Seed = 1,
    oracle_range: OracleRange = (0.0, 1.0),
    out: Out = None,
    as_json: Json = False,
) -> None:
    """How many probes an audit takes: its verdicts by number of probes, the number needed, and labels one by one."""
    from cje_core.io.fields import check_range
    from studies.cli.analysis.out import check_out
    from studies.cli.audit.of_power import of_power

    check_out(out)
    check_range("oracle_range", oracle_range)
    told = of_power(
        residual_sd, margin, labels, true_residual, aim=aim, n_policies=policies, seed=seed,
        width=oracle_range[1] - oracle_range[0],
    )  # fmt: skip
    _tell(told, out, as_json)


@audit.command()
def likelihoods(
    calls: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="JSONL of calls (policy, prompt_id, logp in nats; optional response_id, logp_tokens, logp_prompt, "
            "logp_joint, n_ids, snapshot, renormalized or masked), or logged responses as for analyze --logged.",
        ),
    ],
    clone: Annotated[
        list[str] | None,
        typer.Option(help="Policy that is the logger itself (logged responses); repeatable."),
    ] = None,
    out: Out = None,
    salt: Salt = None,
    as_json: Json = False,
) -> None:
    """Are log-likelihoods what they claim to be? Identities that teacher forcing keeps, row by row, and their ratios.

    Of logged responses: whether each is finite and at most 0, what the ratios of a policy say that is declared to be
    the logger (all should be 1), and whether any policy's mean ratio is larger than a likelihood ratio's can be.
    """
    from studies.cli.analysis.out import check_out
    from studies.cli.audit.of_likelihoods import of_likelihoods
    from studies.cli.audit.rows import read_calls

    check_out(out)
    _tell(of_likelihoods(*read_calls(calls), clones=clone or []), out, as_json, salt)
