"""What ``cje-lab plan`` does: a pilot in files -> how many prompts to judge and to label, checked by simulation.

The table is in `studies.cli.planning.tables`.

What is forecast is the value that ``cje-lab analyze`` prints by default: own labels, else probes, else the balanced
one-step. A policy that it would refuse on the pilot gets no number: it needs labels of its own, and the plan says so.

The budget goes to the *median* policy: components are medians over the pilot's policies whose values rest on the labels
that are bought (probes are not), since one policy that lives off the labelled scores can have a hundred times the
variance of the others, and labels of this design hardly help it. What the plan means for each policy, and for each
difference to the reference, is shown and simulated apart.
"""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Unpack

import numpy as np
import pandas as pd
import xarray as xr

from cje_core.calibration.calibrated import Calibrated, Calibration, calibrated
from cje_core.data import DataError
from cje_core.inference.estimate import Status
from cje_core.planning.allocation import (
    Balance,
    Plan,
    allocate,
    extrapolation,
    spend_balance,
    std_error_at,
)
from cje_core.planning.components import FORECAST, variance_components
from cje_core.planning.own_labels import if_labelled, labels_to_match
from cje_core.planning.trial import check_pilot, simulate_plan
from cje_core.streams import generator
from cje_core.transport.audit import audit
from cje_core.transport.audit_size import probes_to_pass
from cje_core.transport.margin import harmless_margin
from cje_core.workflow.given import Given, Reading, oracle_scale, take
from cje_core.workflow.shown import Shown, Shows

REPLICATES = 200
MOST_RESPONSES = 20_000_000  # simulated over all replicates, where their number is not asked for
LARGEST_STUDY = 2_000_000  # responses of one simulated study; a larger plan is not tried out
FEWEST_REPLICATES = 50
REFUSED = (Status.UNINFORMATIVE_JUDGE, Status.LOW_SUPPORT)
Track = Callable[[Iterable[int]], Iterable[int]]


@dataclass(frozen=True, repr=False)
class Planned(Shows):
    """Everything the outputs show; policies stand in order of name."""

    calibrated: Calibrated  # the pilot, and what its labels teach
    left_out: pd.DataFrame
    components: xr.Dataset
    n_policies: int
    own: bool  # each policy of the plan gets labels of its own
    cost_per_prompt: float  # judging one prompt under all policies
    cost_per_label: float  # labelling one prompt
    budget: float
    plan: Plan
    forecast: xr.Dataset
    if_labelled: xr.Dataset  # per borrowing policy: std_error with the plan's labels its own, labels_to_match
    pilot_balance: Balance
    balance: Balance
    outside: list[str]
    check: xr.Dataset | None  # None where the plan is too large to try out
    probes: dict[str, float]  # per borrowed policy: probes that let an audit pass; NaN where unknown
    margin: float
    power: float
    borrowed: str  # what a policy without labels or probes of its own gets
    seed: int
    seconds: float

    @property
    def data(self) -> xr.Dataset:
        """The pilot."""
        return self.calibrated.data

    @property
    def policies(self) -> list[str]:
        """Names in order."""
        return [str(name) for name in self.data.policy.values]

    @property
    def achievable(self) -> bool | None:
        """Whether the simulation bears the plan out for every policy that has a number; None if it was not run."""
        if self.check is None:
            return None
        known = np.isfinite(self.check["planned_std_error"].values)
        tested = np.isfinite(self.check["planned_mde"].values)
        held, strong = self.check["held"].values[known], self.check["power_held"].values[tested]
        return bool(held.all() and strong.all())

    def status(self, policy: str) -> Status:
        """What the pilot says about one policy."""
        return Status(self.components["status"].sel(policy=policy).item())

    def route(self, policy: str) -> str:
        """How the value of one policy would come about."""
        return str(self.components["route"].sel(policy=policy).item())

    @property
    def refused(self) -> list[str]:
        """Policies that need labels of their own: borrowing for them would be refused."""
        return [policy for policy in self.policies if self.status(policy) in REFUSED]

    def shown(self) -> Shown:
        """Per policy the standard error that the plan gives, by what route, or what stands in its way."""
        rows = []
        for policy in self.policies:
            errors = [self.forecast["std_error"]]
            errors += [] if self.check is None else [self.check["simulated_std_error"]]
            numbers = [f"{float(error.sel(policy=policy)):.3g}".replace("nan", "-") for error in errors]
            way = self.route(policy) if numbers[0] != "-" else self.status(policy).message
            rows.append([policy, *numbers, way])
        heading = (
            f"judge {self.plan.n} prompts under {self.n_policies} policies, label {self.plan.m}: "
            f"{self.plan.cost:g} of {self.budget:g}"
        )
        simulated = [] if self.check is None else ["simulated SE"]
        return Shown(heading, ["policy", "planned SE", *simulated, "route, or why not"], rows)


def plan(
    path: Given,
    *,
    budget: float,
    cost_judge: float,
    cost_oracle: float,
    n_policies: int | None = None,
    calibration: Calibration | None = None,
    borrowed: str = "balanced",
    power: float = 0.8,
    replicates: int | None = None,
    margin: float | None = None,
    seed: int = 1,
    track: Track | None = None,
    **reading: Unpack[Reading],
) -> Planned:
    """Read a pilot, split its variance, spend the budget by the square-root law, and try the plan out.

    Parameters
    ----------
    path, calibration, **reading
        As in `cje_core.workflow.analyze.analyze`.
    borrowed : {"balanced", "plug_in"}
        As in `cje_core.planning.components.variance_components`.
    budget, cost_judge, cost_oracle : float
        Cost per judged response and per oracle label, and what may be spent, in one unit.
    n_policies : int, optional
        Policies of the planned study; default: the pilot's. Labels are shared as in the pilot: where every policy of
        a pilot with several has labels, each planned policy gets its own.
    power : float
        Of the minimum detectable effects.
    replicates : int, optional
        Simulated studies; default 200, fewer for large plans.
    margin : float, optional
        Harmless mean residual of the transport audit; default 5% of the oracle scale.
    seed : int
    track : callable, optional
        Wraps the iterator of replicates.

    Raises
    ------
    DataError
        With one line, for what the user can mend.
    """
    start = time.perf_counter()
    _check_options(budget, cost_judge, cost_oracle, n_policies, power, replicates)
    if borrowed not in FORECAST:
        raise DataError(f"borrowed={borrowed!r}: use one of {', '.join(FORECAST)}")
    harmless = harmless_margin(margin, oracle_scale(path, reading), DataError)
    calibration = calibration or Calibration()
    data, left_out = take(path, calibration.covariates, **reading)
    given = calibrated(data, calibration)
    check_pilot(data)
    components = variance_components(given, borrowed=borrowed)
    known = np.isfinite(components["std_error"].values) & (components["route"].values != "probe_tuned")
    if not known.any():
        worst = Status(components["status"].values[0])
        raise DataError(f"the pilot has no variance to plan with: {worst.message}")
    sigma2_eval, sigma2_cal = (
        max(float(np.median(components[name].values[known])), 0.0) for name in ("sigma2_eval", "sigma2_cal")
    )
    if sigma2_eval + sigma2_cal == 0:
        raise DataError("the pilot has no variance to plan with: judge scores and labels do not vary")
    in_pilot = data.sizes["policy"]
    count = n_policies or in_pilot
    own = in_pilot > 1 and bool(data["labelled"].any(("prompt", "draw")).all())
    cost_per_prompt = cost_judge * components.attrs["responses_per_prompt"] * count / in_pilot
    cost_per_label = cost_oracle * components.attrs["labels_per_prompt"] * (count / in_pilot if own else 1)
    try:
        chosen = allocate(budget, cost_per_prompt, cost_per_label, sigma2_eval, sigma2_cal)
    except ValueError as error:
        raise DataError(f"budget={budget:g}: {error}") from None
    pilot_n, pilot_m = components.attrs["n"], components.attrs["m"]
    responses = chosen.n * components.attrs["responses_per_prompt"]
    check = None
    if responses <= LARGEST_STUDY:
        fewer = int(np.clip(MOST_RESPONSES / responses, FEWEST_REPLICATES, REPLICATES))
        check = simulate_plan(
            given,
            chosen.n,
            chosen.m,
            replicates=replicates or fewer,
            rng=generator(seed, "plan"),
            power=power,
            borrowed=borrowed,
            track=track,
        )
    forecast = std_error_at(chosen.n, chosen.m, components)
    money = (sigma2_eval, sigma2_cal, cost_per_prompt, cost_per_label)
    return Planned(
        calibrated=given,
        left_out=left_out,
        components=components,
        n_policies=count,
        own=own,
        cost_per_prompt=cost_per_prompt,
        cost_per_label=cost_per_label,
        budget=budget,
        plan=chosen,
        forecast=forecast,
        if_labelled=_if_labelled(given, chosen, forecast),
        pilot_balance=spend_balance(pilot_n, min(pilot_m, pilot_n), *money),
        balance=spend_balance(chosen.n, chosen.m, *money),
        outside=extrapolation(chosen.n, chosen.m, components),
        check=check,
        probes=_probes(given, components, harmless),
        margin=harmless,
        power=power,
        borrowed=borrowed,
        seed=seed,
        seconds=time.perf_counter() - start,
    )


def _if_labelled(given: Calibrated, chosen: Plan, forecast: xr.Dataset) -> xr.Dataset:
    """Standard error of each borrowing policy if the plan's labels were its own, and how many of those would do."""
    own = if_labelled(given)
    return std_error_at(chosen.n, chosen.m, own)[["std_error"]].assign(
        labels_to_match=labels_to_match(forecast["std_error"], chosen.n, own)
    )


def _check_options(
    budget: float,
    cost_judge: float,
    cost_oracle: float,
    n_policies: int | None,
    power: float,
    replicates: int | None,
) -> None:
    for name, value in (("budget", budget), ("cost_judge", cost_judge), ("cost_oracle", cost_oracle)):
        if not (math.isfinite(value) and value > 0):
            raise DataError(f"{name}={value:g}: it must be a positive number")
    if n_policies is not None and n_policies < 1:
        raise DataError(f"n_policies={n_policies}: it must be at least 1")
    if not 0.05 < power < 1:
        raise DataError(f"power={power:g}: it must lie between 0.05, the size of the test, and 1")
    if replicates is not None and replicates < 20:
        raise DataError(f"replicates={replicates}: a spread needs at least 20")


def _probes(given: Calibrated, components: xr.Dataset, margin: float) -> dict[str, float]:
    """Probe labels per policy without labels with which an audit passes at power .8 if f is right on average.

    The spread of the residuals is that of the policy's own probes, if it has some, else that of the policies with
    labels. The audit decides given the calibrator, so the labels that teach do not enter.
    """
    corrected = components["route"].values == "theta_aug"
    per_label = components["sigma2_cal"].values[corrected]
    usual = math.sqrt(np.median(per_label)) if len(per_label) else math.nan
    seen = audit(given, margin=margin)["residual_sd"] if given.data["probe"].any() else None
    found = {}
    audited = np.isin(components["route"].values, ("plug_in", "balanced", "probe_tuned"))
    for policy in components["policy"].values[audited]:
        spread = usual if seen is None else float(seen.sel(policy=policy))
        found[str(policy)] = probes_to_pass(usual if math.isnan(spread) else spread, margin=margin)
    return found
