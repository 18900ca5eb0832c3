"""What ``cje_core.analyze`` returns: data, estimates, verdicts and levels, and what is asked of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import pandas as pd
import xarray as xr

from cje_core import estimators
from cje_core.calibration.calibrated import Calibrated
from cje_core.data.contract import teaching_policies
from cje_core.inference.estimate import Status
from cje_core.verdict.refusal import wants_support
from cje_core.verdict.self_preference import own_judge
from cje_core.workflow.posterior import Posterior
from cje_core.workflow.reading.row_flow import row_flow
from cje_core.workflow.shown import OfData, Shown, number, of_policy


@dataclass(frozen=True, repr=False)
class Analysis(OfData):
    """Everything the outputs show.

    `primary` names the estimator behind the values; `value` is what stands first for each policy
    (`cje_core.verdict.headline`), in which probes take the place of what `primary` would borrow. Policies stand in
    order of name.
    """

    calibrated: Calibrated  # the data, and what their labels teach
    left_out: pd.DataFrame
    estimates: Mapping[str, xr.Dataset]
    primary: str
    transport: xr.Dataset
    coverage: xr.Dataset | None  # None where there is no calibrator
    reliability: xr.Dataset | None
    overlap: xr.Dataset | None
    gates: xr.Dataset
    assumptions: xr.Dataset  # what each number rests on, and what was measured of it
    levels: xr.Dataset
    value: xr.Dataset
    verdicts: Mapping[str, str]  # of the audit, or of the posterior where that is stricter
    bounds: xr.Dataset
    balance: xr.Dataset  # whether labels and probes look drawn at random
    agreement: xr.Dataset  # whether the labelled policies agree about what a score is worth
    order: xr.Dataset | None  # who is ahead of whom, where a level is refused for want of support
    next_labels: xr.Dataset | None  # and where labels would mend that, how many
    guide: xr.Dataset
    contrasts: xr.Dataset | None
    if_biased: xr.Dataset  # intervals of the levels if transport is off by up to the margin
    tipping: xr.Dataset | None  # how far off it may be before a difference, or the best policy, is undecided
    posterior: Posterior | None  # with --bayes
    seed: int
    seconds: float
    cohorts: Mapping[str, xr.Dataset]  # by each variable over prompts that was asked for
    ranks: xr.Dataset | None = None  # of the values that stand; None where there are fewer than two
    log_ratios: xr.Dataset | None = None  # what they say of the log-likelihoods, with logged responses
    ratio_calibration: xr.Dataset | None = (
        None  # whether log ratios are wrong or coverage is lacking, likewise
    )
    serial: xr.Dataset | None = None  # errors where prompts depend on their neighbours in time, on demand
    drift: xr.Dataset | None = None  # with_drift: charts of probes that came in batches

    @property
    def off_policy(self) -> list[str]:
        """The estimators that weight logged responses."""
        return [name for name in self.estimates if estimators.weights_logs(name)]

    @property
    def corrector(self) -> str:
        """The estimator that ran and makes values of probes; empty if none did."""
        return next((name for name in self.estimates if estimators.role(name).corrects), "")

    @property
    def own_judge(self) -> list[str]:
        """Policies that are the judge's own model, by name; see `cje_core.verdict.self_preference.own_judge`."""
        return own_judge(self.data.attrs.get("judge_model"), self.policies)

    @cached_property
    def row_flow(self) -> xr.Dataset:
        """Rows read, left out, judged, labelled and probed, see `cje_core.workflow.reading.row_flow.row_flow`."""
        return row_flow(self.data, self.left_out, self.value)

    def level(self, policy: str) -> str:
        """``reported``, ``assumed`` or ``refused``, see `cje_core.verdict.refusal.level`."""
        return self.of_level("level", policy)

    def source(self, policy: str) -> str:
        """What the value rests on: ``own`` labels, ``probes``, ``borrowed`` or ``none``."""
        return self.of_level("source", policy)

    def borrows(self, policy: str) -> bool:
        """Whether the value borrows, or would have, see `cje_core.inference.sources.borrows`."""
        return bool(of_policy(self.value, "borrowed", policy))

    def standing(self, policy: str) -> str | None:
        """Name the estimator whose number stands first for a policy; None where its level is refused."""
        return str(of_policy(self.value, "taken_from", policy)) or None

    def bounds_hold(self, policy: str) -> bool:
        """Whether bounds say something of a level refused for want of labels where its scores lie, and of nothing else.

        They take the calibration to hold inside the labelled range, so they answer no other refusal.
        """
        wanting = wants_support(
            self.levels.sel(policy=policy), self.estimates[self.primary].sel(policy=policy)
        )
        return wanting and bool(self.bounds["interval"].sel(policy=policy).notnull().all())

    def rests_on(self, policy: str) -> str:
        """Say whose labels the value is made of; empty where there is no value."""
        if self.standing(policy) is None:
            return ""
        teachers = teaching_policies(self.data)
        words = {
            "own": "own labels",
            "probes": "its probes",
            "borrowed": f"labels of {teachers[0] if len(teachers) == 1 else 'others'}",
            "judge": "the judge",
            "logs": "weighted logs",
            "none": "",
        }
        return words[self.source(policy)]

    def probes_elsewhere(self, policy: str) -> list[str]:
        """Prompts of a policy's probes to which no policy has an evaluated response: other prompts, or slips."""
        known = self.data["evaluated"].any(["policy", "draw"])
        probed = self.data["probe"].sel(policy=policy).any("draw")
        return [str(name) for name in self.data["prompt"].values[(probed & ~known).values]]

    def verdict(self, policy: str) -> str:
        """Verdict on transport: the audit's, or the posterior's where that is stricter."""
        return self.verdicts[policy]

    def status(self, estimator: str, policy: str) -> Status:
        """What happened to one estimate."""
        return Status(of_policy(self.estimates[estimator], "status", policy))

    def shown(self) -> Shown:
        """Per policy the value that stands first, its level and what it rests on, or why it is refused."""
        rows, scale = [], self.data.attrs["oracle_range"]
        for policy in self.policies:
            at = self.value.sel(policy=policy)
            bounds = ", ".join(number(float(bound), scale) for bound in at["interval"].values)
            by = self.standing(policy)
            rests_on = f"{self.rests_on(policy)} ({by})" if by else self.of_level("reason", policy)
            value = number(float(at["estimate"]), scale)
            rows.append([policy, value, f"[{bounds}]" if by else "-", self.level(policy), rests_on])
        n_prompts = self.data.attrs.get("n_prompts", self.data.sizes["prompt"])  # pooled data have fewer
        heading = f"{len(rows)} policies, {n_prompts} prompts"
        if "cohort" in self.data.attrs:
            taken = int(self.data["evaluated"].any(["policy", "draw"]).sum())
            heading = f"{len(rows)} policies, {taken} prompts of {self.data.attrs['cohort']}"
        interval = f"{100 * self.value.attrs['ci_prob']:g}% interval"
        return Shown(heading, ["policy", "value", interval, "level", "rests on (by), or why not"], rows)
