"""What ``cje-lab plan`` does: a pilot in files -> how many prompts to judge and to label, checked by simulation.

The table is in `studies.cli.planning.tables`.

What is forecast is the value that ``cje-lab analyze`` prints: own labels, else probes, else what may be borrowed. The
pilot is analysed first, and a policy whose level `analyze` refuses, for whatever reason, gets no number here either,
nor does a difference with it: it needs labels of its own, and the plan says how far these would lead at worst.

The budget buys prompts, labels of the source policies, and probes of the others (`cje_core.planning.probes`). Values
that rest on labels count with the *median* of their components: one policy that lives off the labelled scores can have
a hundred times the variance of the others, and labels of this design hardly help it. Probes are bought for policies
that the pilot probed, for those refused, and for those that borrow where probes leave a smaller error than borrowing
with a bias within the margin. What the plan means for each policy and difference is shown and simulated.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
import pandas as pd
import xarray as xr

from cje_core import estimators
from cje_core.calibration.calibrated import Calibrated, Calibration
from cje_core.checks import one_of
from cje_core.data import DataError
from cje_core.data.contract import teaching_policies
from cje_core.inference.estimate import Status
from cje_core.planning.allocation import MOST, Plan
from cje_core.planning.binary_judge import binary_split
from cje_core.planning.components import FORECAST, PLANNED, variance_components
from cje_core.planning.costs import Money, money_of, probed_share, spreadless
from cje_core.planning.forecast import extrapolation, std_error_at
from cje_core.planning.own_labels import if_equal_again, if_labelled, labels_to_match, worst_std_error
from cje_core.planning.probes import ProbeOption, Shares, Spending, choose_probes, probe_counts, with_probes
from cje_core.planning.trial import check_pilot, simulate_plan
from cje_core.streams import generator
from cje_core.transport.audit_size import probes_to_pass
from cje_core.transport.margin import harmless_margin
from cje_core.workflow.analysis import Analysis
from cje_core.workflow.analyze import analyze
from cje_core.workflow.reading.given import Given, Reading, has_logs, oracle_scale, take
from cje_core.workflow.shown import OfData, Shown, number

REPLICATES = 200
MOST_RESPONSES = 20_000_000  # simulated over all replicates, where their number is not asked for
LARGEST_STUDY = 2_000_000  # responses of one simulated study; a larger plan is not tried out
FEWEST_REPLICATES = 50
Track = Callable[[Iterable[int]], Iterable[int]]


@dataclass(frozen=True, repr=False)
class Planned(OfData):
    """Everything the outputs show; policies stand in order of name."""

    calibrated: Calibrated  # the pilot, and what its labels teach
    left_out: pd.DataFrame
    levels: xr.Dataset  # of the pilot, as `analyze` has them: what each value rests on, or why it is refused
    value: xr.Dataset  # of the pilot, as `analyze` prints it
    transport: xr.Dataset  # its audit of the pilot
    components: xr.Dataset
    planned_components: xr.Dataset  # with the plan's probes
    n_policies: int
    own: bool  # each policy of the plan gets labels of its own
    cost_per_prompt: float  # judging one prompt under all policies
    cost_per_label: float  # labelling one prompt
    cost_per_probe: float
    budget: float
    plan: Plan
    probe_labels: dict[str, int]  # probes that the plan buys, by policy
    forecast: xr.Dataset
    if_labelled: xr.Dataset  # per borrowing policy: std_error with the plan's labels its own, labels_to_match
    pilot_balance: Shares
    balance: Shares
    outside: list[str]
    check: xr.Dataset | None  # None where the plan is too large to try out
    probes: dict[
        str, float
    ]  # probes that let an audit pass, per policy that borrows or is probed; NaN where unknown
    margin: float
    power: float
    borrowed: str  # what a policy without labels or probes of its own gets
    estimator: str  # whose values are planned
    seed: int
    seconds: float
    binary: xr.Dataset | None = None  # how to split the labels of a binary judge, see `planning.binary_judge`

    @property
    def achievable(self) -> bool | None:
        """Whether the simulation bears the plan out for every policy that has a number; None if it was not run."""
        if self.check is None:
            return None
        known = np.isfinite(self.check["planned_std_error"].values)
        tested = np.isfinite(self.check["planned_mde"].values)
        return bool(self.check["held"].values[known].all() and self.check["power_held"].values[tested].all())

    def status(self, policy: str) -> Status:
        """What the pilot says about one policy."""
        return Status(self.components["status"].sel(policy=policy).item())

    def route(self, policy: str) -> str:
        """How the value of one policy would come about."""
        return str(self.components["route"].sel(policy=policy).item())

    @property
    def stand_ins(self) -> list[str]:
        """Policies whose planned probes are forecast and simulated by labels of like responses of other policies."""
        return [policy for policy in self.probe_labels if self.route(policy) == "balanced"]

    @property
    def borrowing(self) -> list[str]:
        """Policies whose planned values borrow."""
        routes = ("balanced", "plug_in")
        return [p for p in self.policies if self.route(p) in routes and p not in self.probe_labels]

    @property
    def unmoved(self) -> list[str]:
        """Policies whose values rest on probes that the plan does not buy, so that their errors stay as they are."""
        return [p for p in self.policies if self.route(p) == "probe_tuned" and p not in self.probe_labels]

    def worst_own(self, policy: str) -> float:
        """Return the standard error that the plan's probes of a policy, or as many as its labels, cannot exceed."""
        return worst_std_error(self.data, self.probe_labels.get(policy, self.plan.m))

    @property
    def refused(self) -> list[str]:
        """Policies whose level `analyze` refuses on the pilot: they need labels of their own."""
        return _refused(self.levels)

    def silent(self, policy: str) -> str:
        """Why there is no forecast for a policy; empty where there is one."""
        if policy in self.refused:
            return self.of_level("reason", policy)
        if math.isfinite(float(self.forecast["std_error"].sel(policy=policy))):
            return ""
        at = self.value.sel(policy=policy)
        if math.isnan(float(at["std_error"])) and math.isfinite(float(at["interval"].sum())):
            return self._equal(at)
        return spreadless(self.status(policy))

    def _equal(self, at: xr.Dataset) -> str:
        """What stands of labels that are all equal, and what more of them would do."""
        scale = self.data.attrs["oracle_range"]
        low, high = (number(float(bound), scale) for bound in at["interval"].values)
        m = self.probe_labels.get(str(at["policy"].item()), self.plan.m)
        ci_prob = self.value.attrs["ci_prob"]
        within = number(if_equal_again(self.data, m, ci_prob), scale)
        return (
            f"all its labels are equal, at an end of the scale: [{low}, {high}] by their number alone, no spread to "
            f"forecast with; {m} of them, equal too, leave it within {within} of that end"
        )

    @property
    def labelled_entirely(self) -> list[str]:
        """Policies whose every response has a label, so that their values in the pilot are mean labels."""
        bare = (self.data["evaluated"] & ~self.data["labelled"]).any(("prompt", "draw"))
        return [p for p in self.policies if not bool(bare.sel(policy=p)) and self.route(p) == "theta_aug"]

    def shown(self) -> Shown:
        """Per policy the standard error that the plan gives, by what route, or what stands in its way."""
        errors = {"planned SE": self.forecast["std_error"]}
        if self.check is not None:
            errors["simulated SE"] = self.check["simulated_std_error"]
        rows = []
        for policy in self.policies:
            found = (float(error.sel(policy=policy)) for error in errors.values())
            numbers = ["-" if math.isnan(error) else f"{error:.3g}" for error in found]
            rows.append([policy, *numbers, self.silent(policy) or self.route(policy)])
        heading = (
            f"judge {self.plan.n} prompts under {self.n_policies} policies, label {self.plan.m}"
            + (f", probe {sum(self.probe_labels.values())}" if self.probe_labels else "")
            + f": {self.plan.cost:g} of {self.budget:g}"
        )
        return Shown(heading, ["policy", *errors, "route, or why not"], rows)


def plan(
    path: Given,
    *,
    budget: float,
    cost_judge: float,
    cost_oracle: float,
    n_policies: int | None = None,
    calibration: Calibration | None = None,
    borrowed: str = "balanced",
    estimator: str = "direct",
    power: float = 0.8,
    replicates: int | None = None,
    margin: float | None = None,
    seed: int = 1,
    track: Track | None = None,
    **reading: Unpack[Reading],
) -> Planned:
    """Read a pilot, split its variance, spend the budget on prompts, labels and probes, and try the plan out.

    Parameters
    ----------
    path, calibration, **reading
        As in `cje_core.workflow.analyze.analyze`, but without `groups`, `cohort` and `shared_prompts`.
    borrowed : {"balanced", "plug_in"}
        As in `cje_core.planning.components.variance_components`.
    estimator : {"direct", "stacked_dr"}
        Whose values are planned; stacked DR needs logged responses, and a planned prompt costs one more judge score for
        its own.
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
        Harmless mean residual of the transport audit; default 5% of the oracle scale. A borrowed value counts as off by
        an unknown amount within it, which labels of other policies do not reduce and probes do.
    seed : int
    track : callable, optional
        Wraps the iterator of replicates.

    Raises
    ------
    DataError
        With one line, for what the user can mend.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("weak_judge", n=300, oracle_fraction=0.25, rng=1)
    >>> planned = plan(data, budget=500, cost_judge=0.01, cost_oracle=1.0, replicates=20)
    >>> type(planned).__name__
    'Planned'
    """
    start = time.perf_counter()
    costs = {"budget": budget, "cost_judge": cost_judge, "cost_oracle": cost_oracle}
    _check_options(costs, n_policies, power, replicates)
    one_of(borrowed, "borrowed", FORECAST, DataError)
    one_of(estimator, "estimator", PLANNED, DataError)
    _check_reading(path, reading, estimator)
    harmless = harmless_margin(margin, oracle_scale(path, reading), DataError)
    calibration = calibration or Calibration()
    data, left_out = take(path, calibration.features, **reading)
    check_pilot(data)
    pilot = analyze(
        data, calibration=calibration, chosen=(estimator,), margin=harmless, borrowed=borrowed, seed=seed
    )
    given = pilot.calibrated
    refused = _refused(pilot.levels)
    components = _as_refused(
        variance_components(given, borrowed=borrowed, estimator=estimator), pilot.value, refused
    )
    count = n_policies or data.sizes["policy"]
    options = {} if estimators.weights_logs(estimator) else _probe_options(given, components, count)
    costs = {"cost_judge": cost_judge, "cost_oracle": cost_oracle}

    def money_for(probed: Iterable[str]) -> Money:
        some = {name: options[name] for name in sorted(probed)}
        stacked = estimators.weights_logs(estimator)
        return money_of(
            data, components, pilot.levels, n_policies=n_policies, stacked=stacked, probed=some, **costs
        )

    counts = probe_counts(data)
    probed = [name for name in options if components["route"].sel(policy=name) == "probe_tuned"]
    pilot_money = money_for(name for name in probed if counts.get(name))
    share = probed_share(data, count)

    def spending(some: tuple[str, ...]) -> tuple[Spending, float]:
        best = money_for(some).spend(budget)
        return best, _mean_square(data, components, options, best, share=share, margin=harmless)

    try:
        (chosen, probe_labels), some = choose_probes(options, probed, spending)
    except ValueError as error:
        raise DataError(f"budget={budget:g}: {error}") from None
    money = money_for(some)
    check = _tried(
        pilot, chosen, components, seed=seed, replicates=replicates, track=track, power=power, borrowed=borrowed,
        estimator=estimator, probes=probe_labels,
    )  # fmt: skip
    planned = with_probes(given, probe_labels, borrowed=borrowed, estimator=estimator)[1]
    planned = _as_refused(planned, pilot.value, refused)
    forecast = std_error_at(chosen.n, chosen.m, planned)
    borrowing = std_error_at(chosen.n, chosen.m, components)
    pilot_n, pilot_m = components.attrs["n"], components.attrs["m"]
    return Planned(
        calibrated=given,
        left_out=left_out,
        levels=pilot.levels,
        value=pilot.value,
        transport=pilot.transport,
        components=components,
        planned_components=planned,
        n_policies=money.n_policies,
        own=money.own,
        cost_per_prompt=money.cost_per_prompt,
        cost_per_label=money.cost_per_label,
        cost_per_probe=money.cost_per_probe,
        budget=budget,
        plan=chosen,
        probe_labels=probe_labels,
        forecast=forecast,
        if_labelled=_without(_if_labelled(given, chosen, borrowing), refused),
        pilot_balance=pilot_money.balance(pilot_n, min(pilot_m, pilot_n), counts),
        balance=money.balance(chosen.n, chosen.m, probe_labels),
        outside=extrapolation(chosen.n, chosen.m, components),
        check=check,
        probes=_probes(data, components, pilot.transport),
        margin=harmless,
        power=power,
        borrowed=borrowed,
        estimator=estimator,
        seed=seed,
        seconds=time.perf_counter() - start,
        binary=binary_split(data, chosen.n, chosen.m),
    )


def _probe_options(given: Calibrated, components: xr.Dataset, n_policies: int) -> dict[str, ProbeOption]:
    """Variances that probes would leave, for the policies without labels that a plan may buy them for.

    Of a policy that the pilot probed they are its own, of one that borrows those of stand-ins. Of one without a number
    (refused, or with equal labels only) the labels at hand give the spread; it sets its share of the money, and no
    forecast is made of it.
    """
    data = given.data
    labelled = data["labelled"].any(("prompt", "draw")).sel(policy=components["policy"]).values
    if labelled.all() or not probed_share(data, n_policies):
        return {}
    routes = dict(
        zip(components["policy"].values.astype(str).tolist(), components["route"].values, strict=True)
    )
    names = [name for name, own in zip(routes, labelled, strict=True) if not own]
    counts = probe_counts(data)
    responses = data["evaluated"].sum(("prompt", "draw"))
    borrowers = {name: int(responses.sel(policy=name)) for name in names if routes[name] == "balanced"}
    planned = with_probes(given, borrowers)[1] if borrowers else components
    spread = float(data["oracle"].where(data["labelled"] | data["probe"]).var())
    out = {}
    for name in names:
        at = (planned if name in borrowers else components).sel(policy=name)
        known = bool(np.isfinite(at["std_error"]))
        if known and str(at["route"].item()) == "probe_tuned":
            n_probes = borrowers.get(name) or counts[name]
            out[name] = ProbeOption(float(at["sigma2_eval"]), n_probes * float(at["variance_probes"]))
        elif not known and spread > 0:
            out[name] = ProbeOption(0.0, spread)
    return out


def _mean_square(
    data: xr.Dataset,
    components: xr.Dataset,
    options: Mapping[str, ProbeOption],
    spending: Spending,
    *,
    share: float,
    margin: float,
) -> float:
    """Return the mean squared error of a design over planned policies, the criterion of `cje_core.planning.probes`."""
    n, m, probes = spending.plan.n, spending.plan.m, spending.probes
    labelled = data["labelled"].any(("prompt", "draw"))
    # a policy without a number lies anywhere on the scale, at most half its width from the middle
    unknown = components.attrs["scale_width"] ** 2 / 4
    total = 0.0
    for name in components["policy"].values.astype(str):
        at = components.sel(policy=name)
        if name in probes:
            error = options[name].sigma2_eval / n + options[name].sigma2_probe / probes[name]
        elif not np.isfinite(float(at["std_error"])):
            error = unknown
        else:
            error = float(at["sigma2_eval"] / n + at["sigma2_cal"] / m + at["variance_probes"])
            error += margin**2 / 3 * (str(at["route"].item()) in ("balanced", "plug_in"))
        total += error * (1.0 if bool(labelled.sel(policy=name)) else share)
    return total


def _tried(
    pilot: Analysis,
    chosen: Plan,
    components: xr.Dataset,
    *,
    seed: int,
    replicates: int | None,
    track: Track | None,
    **how: Any,
) -> xr.Dataset | None:
    """Simulated studies of the plan, without those of refused policies; None where it is too large to try out."""
    responses = chosen.n * components.attrs["responses_per_prompt"]
    if responses > LARGEST_STUDY:
        return None
    fewer = int(np.clip(MOST_RESPONSES / responses, FEWEST_REPLICATES, REPLICATES))
    check = simulate_plan(
        pilot.calibrated,
        chosen.n,
        chosen.m,
        replicates=(track or iter)(range(replicates or fewer)),
        rng=generator(seed, "plan"),
        reference=_reference(pilot.data, components),
        **how,
    )
    return _without(check, _refused(pilot.levels))


def _check_reading(path: Given, reading: Reading, estimator: str) -> None:
    """Stop at what a pilot cannot be read with."""
    if estimators.weights_logs(estimator) and not has_logs(path, reading):
        raise DataError(f"estimator={estimator!r}: it weights logged responses; give logged=FILE")
    if reading.get("groups"):
        raise DataError("groups= tells values by cohort, and a plan forecasts none; leave it out")
    for name in ("cohort", "shared_prompts"):
        if reading.get(name):
            raise DataError(
                f"{name}= lets labels of some prompts teach the values of others, and a plan judges and labels among "
                "one kind of prompts; leave it out, and give a pilot of these prompts alone"
            )


def _refused(levels: xr.Dataset) -> list[str]:
    return [str(name) for name in levels["policy"].values[levels["level"].values == "refused"]]


def _without(found: xr.Dataset, refused: Sequence[str]) -> xr.Dataset:
    """What is known of policies, or of pairs of them, with the numbers of those refused taken out."""
    if "pair" in found.dims:
        clear = ~(found["first"].isin(refused) | found["second"].isin(refused))
        found = found.assign({k: _where(v, clear) for k, v in found.items() if v.dims == ("pair",)})
    clear = ~found["policy"].isin(refused)
    return found.assign({k: _where(v, clear) for k, v in found.items() if v.dims == ("policy",)})


def _where(values: xr.DataArray, clear: xr.DataArray) -> xr.DataArray:
    """Values where it is clear; elsewhere NaN, and nothing holds."""
    if values.dtype == bool:
        return values & clear
    return values.where(clear) if values.dtype.kind == "f" else values


def _as_refused(components: xr.Dataset, value: xr.Dataset, refused: Sequence[str]) -> xr.Dataset:
    """Components without those of refused policies, whose status is that of the value that is not printed."""
    clear = ~components["policy"].isin(refused)
    status = components["status"].where(clear, value["status"].sel(policy=components["policy"]))
    return _without(components, refused).assign(
        status=status.astype(np.int8), route=components["route"].where(clear, "none")
    )


def _reference(data: xr.Dataset, components: xr.Dataset) -> str:
    """Policy that the others are compared with: one that teaches, if any has a number."""
    names = [str(name) for name in components["policy"].values[np.isfinite(components["std_error"].values)]]
    return min({str(name) for name in teaching_policies(data)} & set(names) or names)


def _if_labelled(given: Calibrated, chosen: Plan, forecast: xr.Dataset) -> xr.Dataset:
    """Standard error of each borrowing policy if the plan's labels were its own, and how many of those would do."""
    own = if_labelled(given)
    return std_error_at(chosen.n, chosen.m, own)[["std_error"]].assign(
        labels_to_match=labels_to_match(forecast["std_error"], chosen.n, own)
    )


def _check_options(
    costs: Mapping[str, float], n_policies: int | None, power: float, replicates: int | None
) -> None:
    for name, value in costs.items():
        if not (math.isfinite(value) and value > 0):
            raise DataError(f"{name}={value:g}: it must be a positive number")
    if n_policies is not None and not 1 <= n_policies <= MOST:
        raise DataError(f"n_policies={n_policies}: it must lie between 1 and {MOST:g}")
    if not 0.05 < power < 1:
        raise DataError(f"power={power:g}: it must lie between 0.05, the size of the test, and 1")
    if replicates is not None and replicates < 20:
        raise DataError(f"replicates={replicates}: a spread needs at least 20")


def _probes(data: xr.Dataset, components: xr.Dataset, transport: xr.Dataset) -> dict[str, float]:
    """Probe labels per policy without labels with which an audit passes at power .8 if f is right on average.

    The spread of the residuals is that of the policy's own probes, if it has some, else that of the policies with
    labels. The audit decides given the calibrator, so the labels that teach do not enter.
    """
    corrected = components["route"].values == "theta_aug"
    per_label = components["sigma2_cal"].values[corrected]
    usual = math.sqrt(np.median(per_label)) if len(per_label) else math.nan
    seen = transport if data["probe"].any() else None
    low, high = data.attrs["oracle_range"]
    found = {}
    audited = np.isin(components["route"].values, ("plug_in", "balanced", "probe_tuned"))
    for policy in components["policy"].values[audited]:
        spread = mean = math.nan
        if seen is not None:
            spread, mean = (float(seen[name].sel(policy=policy)) for name in ("residual_sd", "mean_label"))
        if math.isnan(spread):
            spread, mean = usual, (low + high) / 2  # where no probe says: the middle of the scale
        reach = (mean - low, high - mean)
        found[str(policy)] = probes_to_pass(spread, margin=transport.attrs["margin"], reach=reach)
    return found
