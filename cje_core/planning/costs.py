"""What a budget is split by: the variance of the median policy, and what a prompt and a label cost.

A planned prompt is judged under every policy; labels are one for all policies or one for each, as in the pilot.
"""

from typing import NamedTuple

import numpy as np
import xarray as xr

from cje_core.data import DataError
from cje_core.inference.estimate import Status
from cje_core.planning.allocation import Balance, spend_balance


class Money(NamedTuple):
    """What the budget is split by: the components of the median policy, and what prompts and labels cost."""

    sigma2_eval: float
    sigma2_cal: float
    cost_per_prompt: float
    cost_per_label: float
    n_policies: int
    own: bool

    def balance(self, n: int, m: int) -> Balance:
        """Shares of variance and spend at n prompts and m labels."""
        return spend_balance(
            n, m, self.sigma2_eval, self.sigma2_cal, self.cost_per_prompt, self.cost_per_label
        )


def money_of(
    data: xr.Dataset,
    components: xr.Dataset,
    levels: xr.Dataset,
    *,
    cost_judge: float,
    cost_oracle: float,
    n_policies: int | None,
    stacked: bool,
) -> Money:
    """Components of a pilot's median policy, and costs of a planned prompt and label.

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

    Raises
    ------
    DataError
        Where no policy has components that labels move.
    """
    known = np.isfinite(components["std_error"].values) & (components["route"].values != "probe_tuned")
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
    return Money(sigma2_eval, sigma2_cal, cost_judge * judged, cost_oracle * labels, count, own)


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
