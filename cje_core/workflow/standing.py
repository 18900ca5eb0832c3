"""What stands of an analysis: which numbers a refused level takes with it, and which policies are compared.

A level is refused because no number holds. So none is shown of whatever estimator would rest on the same: the primary
one and the posteriors always; where what was to be borrowed is what is wrong (labels that contradict each other,
transport, the posterior's test of the judge), every estimator that borrows it, the off-policy ones too. What the judge
says by itself and the mean of own labels claim nothing of that kind, and stay.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import xarray as xr

from cje_core.inference.estimate import Status
from cje_core.inference.ranks import probability_best, rank_confidence_sets
from cje_core.inference.sources import borrows
from cje_core.transport.sensitivity import tipping_points
from cje_core.workflow.analysis import Analysis
from cje_core.workflow.posterior import BAYESIAN

ABOUT_BORROWING = {"agreement", "transport", "posterior"}


class Best(NamedTuple):
    """The policy with the largest value that stands."""

    policy: str
    decided: bool  # certainly ahead of all the others, by the decisions that the rank sets are made of
    flips_at: float  # error of transport that undoes it; infinite if nothing is borrowed, NaN if undecided
    compared: list[str]
    behind: list[str]  # of these, those that it is certainly ahead of, all decisions together
    left_out: Mapping[str, str]  # policy -> why it has no value


def withheld(analysis: Analysis, estimator: str, policy: str) -> bool:
    """Whether an estimate is not shown because the level of its policy is refused.

    One without an interval, as of equal labels, claims nothing: it stands with its named status. A posterior without
    one is its prior.
    """
    if analysis.level(policy) != "refused":
        return False
    what = "estimate" if estimator in BAYESIAN else "interval"
    if not analysis.estimates[estimator][what].sel(policy=policy).notnull().all():
        return False
    if estimator in (analysis.primary, *BAYESIAN):
        return True
    lent = bool(borrows(analysis.estimates[estimator]).sel(policy=policy))
    return lent and not ABOUT_BORROWING.isdisjoint(analysis.refused_by(policy))


def shown_estimates(analysis: Analysis) -> dict[str, xr.Dataset]:
    """The estimates, those withheld blank with status LEVEL_REFUSED."""
    found = {}
    for name, estimate in analysis.estimates.items():
        hidden = [policy for policy in analysis.policies if withheld(analysis, name, policy)]
        if not hidden:
            found[name] = estimate
            continue
        kept = ~estimate["policy"].isin(hidden)
        blank = {part: estimate[part].where(kept) for part in ("estimate", "std_error", "interval")}
        blank["status"] = (
            estimate["status"].where(kept, int(Status.LEVEL_REFUSED)).assign_attrs(estimate["status"].attrs)
        )
        found[name] = estimate.assign(blank)
    return found


def best(analysis: Analysis) -> Best | None:
    """Say which policy is best, of which, and how far that holds; None where fewer than two have a value."""
    known = np.isfinite(analysis.value["estimate"].values)
    if analysis.tipping is None or known.sum() < 2:
        return None
    compared = analysis.value["policy"].values[known].astype(str).tolist()
    leader, behind, flips_at = str(analysis.tipping["best"].item()), [], np.nan
    if analysis.ranks is not None:
        ahead = analysis.ranks["ahead"].sel(policy=leader)
        behind = [policy for policy in compared if policy in ahead["other"] and bool(ahead.sel(other=policy))]
    decided = len(behind) == len(compared) - 1
    if decided and analysis.ranks is not None:  # of the same intervals, so that it is above 0
        lent = analysis.value["borrowed"].values.astype(bool).tolist()
        at_once = tipping_points(analysis.value, borrowed=lent, ci_prob=analysis.ranks.attrs["pair_prob"])
        flips_at = float(at_once["best_tipping"])
    others = [policy for policy in analysis.policies if policy not in compared]
    left_out = {policy: analysis.of_level("reason", policy) for policy in others}
    return Best(leader, decided, flips_at, compared, behind, left_out)


def ranks(value: xr.Dataset, rng: np.random.Generator) -> xr.Dataset | None:
    """Ranks of the values that stand: sets that hold them all at once, and the probability to be best.

    A refused level has no rank, and takes none away; a value that is assumed is ranked as if what it assumes were true.

    Returns
    -------
    xr.Dataset or None
        Over the ``policy`` with a value: ``rank``, ``rank_interval``, ``best`` and ``ahead`` of
        `cje_core.inference.ranks.rank_confidence_sets`, ``p_best`` and ``p_best_mcse`` of
        `cje_core.inference.ranks.probability_best`. None for fewer than two, or without a joint distribution.
    """
    known = np.flatnonzero(np.isfinite(value["interval"].values).all(axis=1))
    if len(known) < 2 or not ("influence" in value or "draws" in value):
        return None
    kept = value.isel(policy=known)
    sets = rank_confidence_sets(kept, rng=rng)
    chance = probability_best(kept, rng=rng)
    return sets.assign(p_best=chance["probability"], p_best_mcse=chance["mcse"])


def compared_by_posterior(analysis: Analysis) -> tuple[list[str], dict[str, str]]:
    """The policies that P(best) is about, and of each other one why it has none; empty without a posterior."""
    if analysis.posterior is None:
        return [], {}
    decision = analysis.posterior.decision
    compared, left_out = [], {}
    for policy in analysis.policies:
        at = decision.sel(policy=policy)
        if np.isfinite(at["best"]):
            compared.append(policy)
        elif analysis.level(policy) == "refused":
            left_out[policy] = "level refused"
        else:
            left_out[policy] = analysis.status(str(at["source"].item()), policy).name.lower()
    return compared, left_out if compared else {}
