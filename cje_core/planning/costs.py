"""What a budget is split by: variance components of the planned values, and the costs of a prompt, a label and a probe.

A planned prompt is judged under every policy; labels are one for all policies or one for each, as in the pilot. A
probe is a label of one policy. Policies whose values rest on labels count with their median, probed ones each.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import xarray as xr

from cje_core.data import DataError
from cje_core.inference.estimate import Status
from cje_core.planning.probes import ProbeOption, Shares, Spending, purchase_shares, spend


class Money(NamedTuple):
    """Components of the mean variance over policies, and what prompts, labels and probes cost."""

    sigma2_eval: float
    sigma2_cal: float
    sigma2_probes: dict[str, float]
    cost_per_prompt: float
    cost_per_label: float
    cost_per_probe: float
    n_policies: int
    own: bool

    def spend(self, budget: float) -> Spending:
        """Return the best design within a budget."""
        costs = self.cost_per_prompt, self.cost_per_label, self.cost_per_probe
        return spend(budget, *costs, self.sigma2_eval, self.sigma2_cal, self.sigma2_probes)

    def balance(self, n: int, m: int, probes: Mapping[str, int]) -> Shares:
        """Return the shares of variance and spend at n prompts, m labels and these probes."""
        from_probes = sum(term / probes[name] for name, term in self.sigma2_probes.items())
        n_probes = sum(probes[name] for name in self.sigma2_probes)
        costs = self.cost_per_prompt, self.cost_per_label, self.cost_per_probe
        # in units of the largest cost, so that no sum overflows
        judging, labels, probing = (cost / max(costs) for cost in costs)
        paid = judging * n, labels * m, probing * n_probes
        return purchase_shares(n, m, (self.sigma2_eval / n, self.sigma2_cal / m, from_probes), paid)


def money_of(
    data: xr.Dataset,
    components: xr.Dataset,
    levels: xr.Dataset,
    *,
    cost_judge: float,
    cost_oracle: float,
    n_policies: int | None,
    stacked: bool,
    probed: Mapping[str, ProbeOption] | None = None,
) -> Money:
    """Components of the mean variance over a pilot's policies, and costs of a planned prompt, label and probe.

    Parameters
    ----------
    data : xr.Dataset
        The pilot.
    components : xr.Dataset
        From `cje_core.planning.components.variance_components`, without those of refused policies.
    levels : xr.Dataset
        What `cje_core.verdict.refusal.level` says of the pilot's values.
    cost_judge, cost_oracle : float
        Of one score and one label.
    n_policies : int, optional
        Policies of the planned study; default: the pilot's.
    stacked : bool
        Whether logged responses are judged too.
    probed : mapping, optional
        Policies that get probes.

    Raises
    ------
    DataError
        Where no policy has components that labels move.
    """
    probed = probed or {}
    names = components["policy"].values.astype(str)
    known = np.isfinite(components["std_error"].values) & (components["route"].values != "probe_tuned")
    known &= ~np.isin(names, list(probed))
    if not known.any():
        raise DataError(f"the pilot has no variance to plan with: {_nothing_known(components, levels)}")
    sigma2_eval, sigma2_cal = (
        max(float(np.median(components[name].values[known])), 0.0) for name in ("sigma2_eval", "sigma2_cal")
    )
    if sigma2_eval + sigma2_cal == 0:
        raise DataError("the pilot has no variance to plan with: judge scores and labels do not vary")
    in_pilot = data.sizes["policy"]
    count = n_policies or in_pilot
    own = in_pilot > 1 and bool(data["labelled"].any(("prompt", "draw")).all())
    logged = float(data["logged_judge"].notnull().sum()) / components.attrs["n"] if stacked else 0.0
    judged = components.attrs["responses_per_prompt"] * count / in_pilot + logged
    labels = components.attrs["labels_per_prompt"] * (count / in_pilot if own else 1)
    share = probed_share(data, count)
    labelled = data["labelled"].any(("prompt", "draw")).sel(policy=names[known]).values
    total = np.where(labelled, 1.0, share or 1.0).sum() + share * len(probed)
    weight, each = 1 - share * len(probed) / total, share / total
    return Money(
        weight * sigma2_eval + each * sum(max(option.sigma2_eval, 0.0) for option in probed.values()),
        weight * sigma2_cal,
        {name: each * option.sigma2_probe for name, option in probed.items()},
        cost_judge * judged,
        cost_oracle * labels,
        cost_oracle * share,
        count,
        own,
    )


def probed_share(data: xr.Dataset, n_policies: int) -> float:
    """Return planned policies without labels per such policy of the pilot; 0 where a plan has none of them."""
    labelled = int(data["labelled"].any(("prompt", "draw")).sum())
    without = data.sizes["policy"] - labelled
    return max(n_policies - labelled, 0) / without if without else 0.0


def spreadless(status: Status) -> str:
    """Why a value that stands has no forecast."""
    if status in (Status.OK, Status.TRANSPORT_ASSUMED):
        return "its responses and labels show no spread in the pilot, so none can be forecast"
    return status.message


def _nothing_known(components: xr.Dataset, levels: xr.Dataset) -> str:
    """Why no policy of a pilot has components that labels move."""
    for policy in components["policy"].values[np.isnan(components["std_error"].values)]:
        reason = str(levels["reason"].sel(policy=policy).item())
        return reason or spreadless(Status(components["status"].sel(policy=policy).item()))
    return "every value rests on probes of its own, and only more of these shorten its interval"
