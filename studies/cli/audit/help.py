"""What the audits find, computed when help is asked for: no figure in it is typed."""

from collections.abc import Callable
from typing import Any

import typer.core

EXAMPLE_SD, EXAMPLE_MARGIN = 0.2, 0.05  # of a graded oracle, and the default margin on a scale of width one
PER_BATCH, BATCHES = 25, 8
REPLICATES = 100  # simulated horizons: help is waited for


def ending_in(lines: Callable[[], list[str]]) -> type[typer.core.TyperCommand]:
    """Class of a command whose help ends in what `lines` computes when it is asked for."""

    class Ending(typer.core.TyperCommand):
        def format_epilog(self, ctx: Any, formatter: Any) -> None:
            formatter.write_paragraph()
            with formatter.indentation():
                for line in lines():
                    formatter.write_text(line)

    return Ending


def power() -> list[str]:
    """Probabilities of the right verdict, and the number of probes for 80% of it."""
    from cje_core.transport.audit_size import audit_power, probes_to_pass

    shown = (50, 100, 200)
    found = audit_power(
        shown, residual_sd=EXAMPLE_SD, true_residual=[0.0, 2 * EXAMPLE_MARGIN], margin=EXAMPLE_MARGIN
    ).probability
    told = "; ".join(
        f"{n} probes PASS with probability {float(found.sel(n_probes=n, true_residual=0.0, verdict='PASS')):.2f} "
        "where "
        f"the residual is 0 and FAIL with "
        f"{float(found.sel(n_probes=n, true_residual=2 * EXAMPLE_MARGIN, verdict='FAIL')):.2f} where it is "
        f"{2 * EXAMPLE_MARGIN:g}"
        for n in shown
    )
    needed = probes_to_pass(EXAMPLE_SD, margin=EXAMPLE_MARGIN)
    return [
        f"Residuals of standard deviation {EXAMPLE_SD:g}, margin {EXAMPLE_MARGIN:g}: {told}. An 80% chance to "
        "PASS takes "
        f"{needed:.0f} probes."
    ]


def sequential() -> list[str]:
    """Median labels to a verdict beside the fixed size."""
    from cje_core.transport.audit_size import probes_to_pass
    from cje_core.transport.monitor_power import label_audit_power

    shifts = [0.0, 2 * EXAMPLE_MARGIN, 4 * EXAMPLE_MARGIN]
    found = label_audit_power(shifts, residual_sd=EXAMPLE_SD, margin=EXAMPLE_MARGIN, rng=1)
    told = ", ".join(
        f"{float(found['median'].sel(true_residual=s)):.0f} labels at a residual of {s:g}" for s in shifts
    )
    fixed = probes_to_pass(EXAMPLE_SD, margin=EXAMPLE_MARGIN)
    return [
        f"Residuals of standard deviation {EXAMPLE_SD:g}, margin {EXAMPLE_MARGIN:g}: half of "
        f"{found.attrs['replicates']} simulated sequences have their verdict after {told}; an audit of fixed size, "
        f"looked at once, takes {fixed:.0f} for an 80% chance to PASS."
    ]


def drift() -> list[str]:
    """Probability of an alarm by the size of the shift."""
    from cje_core.transport.monitor_power import batch_audit_power

    shifts = [0.25, 0.5, 1.0]
    found = batch_audit_power(
        shifts, [PER_BATCH] * BATCHES, n_early=2 * PER_BATCH, replicates=REPLICATES, rng=1
    )
    told = ", ".join(
        f"{one:g} with probability {float(found['probability'].sel(shift=one)):.2f} "
        f"({float(found['mcse'].sel(shift=one)):.2f})"
        for one in shifts
    )
    return [
        f"After a baseline of {2 * PER_BATCH} residuals, {BATCHES} batches of {PER_BATCH} alarm at a lasting "
        "shift, in "
        f"standard deviations of a residual, of {told}; simulated, Monte Carlo standard errors in brackets."
    ]
