"""Probes in a plan: how many labels each borrowing policy gets of its own, beside those of the source policies.

A value with q probes of its own (`cje_core.estimators.direct_corrected`) has the variance ``e / n + s^2 / q``, s^2 that
of ``Y - lambda f`` over the policy's responses, and labels of other policies do not move it. A borrowed value has ``e /
n + c / m`` under exact transport, and an error that no label of another policy moves: the mean of ``Y - f`` over its
responses. With nothing known of it but that it is harmless, within the margin d of the transport audit, it is
taken as uniform in [-d, d], with mean square ``d^2 / 3``. A plan minimises the mean squared error over policies

    [sum_p e_p] / n  +  [sum over source and borrowed c_p] / m  +  sum over probed s_p^2 / q_p  +  [borrowed] d^2 / 3

within a budget ``c_n n + c_m m + c_q sum_p q_p``. For given routes each number is ``sqrt(coefficient / cost)`` up to
one factor, so that each purchase's share of the variance equals its share of the spend: the square-root law of
`cje_core.planning.allocation` with more than two terms. Routes are chosen one by one as long as the criterion falls.

A pilot without probes of a policy says nothing of s^2 for it. `stand_in_probes` gives each of its responses the label
of a labelled response with a like score, an assumption that forecast and simulation share and that the plan names.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from cje_core.calibration.calibrated import Calibrated, calibrated
from cje_core.calibration.calibrator import index
from cje_core.calibration.folds import MIN_LABELLED_CLUSTERS
from cje_core.checks import FloatArray, IntArray
from cje_core.planning.allocation import BALANCE_TOLERANCE, Plan, allocate
from cje_core.planning.components import variance_components
from cje_core.planning.own_labels import if_labelled

FEWEST_PROBES = 10  # from which the tuned probe value keeps its level (METHODS: "with 10 probes or more")
NEIGHBOURS = 5  # labelled responses that one response may take its stand-in label from


def probe_counts(data: xr.Dataset) -> dict[str, int]:
    """Return the number of probe labels of each policy that has any."""
    counts = data["probe"].sum(("prompt", "draw"))
    return {
        str(name): int(n) for name, n in zip(counts["policy"].values, counts.values, strict=True) if n > 0
    }


def stand_in_probes(given: Calibrated, policies: Iterable[str]) -> Calibrated:
    """Return the pilot with every response of these policies probed, by labels of responses with like scores.

    Each response takes the label of one of the five labelled source responses nearest on the calibrator's index (the
    score, or the first stage with covariates), or of more where a judge of few levels puts more at the same distance.
    They take turns in order of the index, so that nothing is random.
    Real labels stay real, so binary labels stay binary.
    """
    data, rows, fitted = given.parts
    if fitted.calibrator is None:
        return given
    data = data.sortby(["policy", "prompt", "draw"])  # the order of `rows`
    at = index(fitted.calibrator, rows.z)
    donors = np.flatnonzero(rows.teaches)
    donors = donors[np.argsort(at[donors], kind="stable")]
    label, probe = rows.label.copy(), rows.probe.copy()
    for policy in policies:
        own = (rows.policy == rows.policies.index(policy)) & rows.evaluated & ~rows.labelled
        mine = np.flatnonzero(own)
        mine = mine[np.argsort(at[mine], kind="stable")]
        label[mine] = rows.label[donors[_nearest(at[donors], at[mine])]]
        probe[mine] = True
    held = data["judge"].notnull() & (data["evaluated"] | data["labelled"] | data["probe"])
    values = {name: data[name].values.copy() for name in ("oracle", "probe")}
    values["oracle"][held.values], values["probe"][held.values] = label, probe
    dims = data["oracle"].dims
    return calibrated(data.assign({name: (dims, v) for name, v in values.items()}), given.calibration)


def _nearest(donor: FloatArray, target: FloatArray) -> IntArray:
    """Index of a donor for each target, both ascending: the nearest few in turns, with all that are as near."""
    few = min(NEIGHBOURS, len(donor))
    out = np.empty(len(target), dtype=np.intp)
    for k, value in enumerate(target):
        distance = np.abs(donor - value)
        near = np.flatnonzero(distance <= np.partition(distance, few - 1)[few - 1])
        out[k] = near[k % len(near)]
    return out


def with_probes(
    given: Calibrated,
    probes: Mapping[str, int],
    *,
    reference: str | None = None,
    borrowed: str = "balanced",
    estimator: str = "direct",
) -> tuple[Calibrated, xr.Dataset, xr.Dataset | None]:
    """Components of a plan with these numbers of probes per policy, and the pilot that they are read from.

    Parameters
    ----------
    given : Calibrated
        The pilot.
    probes : mapping
        Planned probes by policy; the others keep those of the pilot. Policies that borrow in the pilot get stand-ins,
        and their residual variance is at least the slice's held-out one (`cje_core.planning.own_labels.if_labelled`):
        that of stand-ins, whose labels also fit the calibrator, is mostly .85 to .95 of the true one.
    reference : str, optional
        Also give the components of differences to this policy.
    borrowed, estimator
        As in `cje_core.planning.components.variance_components`.

    Returns
    -------
    tuple
        The pilot with stand-ins, the components of levels, and those of differences or None; as from
        `variance_components`, with ``variance_probes``, its standard error and ``df_probes`` at the planned numbers.
    """
    options: dict[str, Any] = {"borrowed": borrowed, "estimator": estimator}
    levels = variance_components(given, **options)
    routes = dict(zip(levels["policy"].values.astype(str).tolist(), levels["route"].values, strict=True))
    borrowers = [name for name in probes if routes[name] == "balanced"]
    ratio = dict.fromkeys(routes, 1.0)
    if borrowers:
        held_out = if_labelled(given)["sigma2_cal"]
        given = stand_in_probes(given, borrowers)
        levels = variance_components(given, **options)
    counts = probe_counts(given.data)
    growth = {name: probes.get(name, counts.get(name, 1)) / counts.get(name, 1) for name in routes}
    for name in borrowers:
        one_probe = counts[name] * float(levels["variance_probes"].sel(policy=name))
        known = float(held_out.sel(policy=name))
        if one_probe > 0 and np.isfinite(known):
            ratio[name] = max(known / one_probe, 1.0)
    pairs = None
    if reference is not None:
        pairs = variance_components(given, reference=reference, **options)
        probed = set(levels["policy"].values.astype(str)[levels["route"].values == "probe_tuned"].tolist())
        ends = [{str(name), reference} & probed for name in pairs["first"].values]
        # probes of both ends are rare (no source policy has a number): then the smaller growth counts for both
        changes = [
            (
                min((growth[name] for name in end), default=1.0),
                max((ratio[name] for name in end), default=1.0),
            )
            for end in ends
        ]
        pairs = _grow(pairs, np.array(changes).reshape(-1, 2))
    return given, _grow(levels, np.array([(growth[name], ratio[name]) for name in routes])), pairs


def _grow(components: xr.Dataset, changes: FloatArray) -> xr.Dataset:
    """Components with growth times as many probes, of residuals whose variance is ratio times as large."""
    growth, ratio = changes.T
    changed = {name: components[name] * ratio / growth for name in ("variance_probes", "variance_probes_se")}
    # as in `forecast.std_error_at`: the slope keeps what it costs, every probe more is a degree of freedom more
    changed["df_probes"] = np.maximum(components["df_probes"] + components["probe_count"] * (growth - 1), 1.0)
    changed["probe_count"] = components["probe_count"] * growth
    return components.assign(changed)


class ProbeOption(NamedTuple):
    """Variance of one policy's value with probes of its own: ``sigma2_eval / n + sigma2_probe / q``."""

    sigma2_eval: float
    sigma2_probe: float


class Spending(NamedTuple):
    """A design that a budget pays for, with the probes of each policy that gets any."""

    plan: Plan  # its cost and standard error count the probes
    probes: dict[str, int]


def spend(
    budget: float,
    cost_per_prompt: float,
    cost_per_label: float,
    cost_per_probe: float,
    sigma2_eval: float,
    sigma2_cal: float,
    sigma2_probes: Mapping[str, float],
) -> Spending:
    """Minimise ``sigma2_eval / n + sigma2_cal / m + sum_p sigma2_p / q_p`` within a budget, m and q_p at most n.

    The continuous optimum gives the probes, rounded down and at least `FEWEST_PROBES`; what they leave goes to n and m
    by the exact optimum of `cje_core.planning.allocation.allocate`.

    Raises
    ------
    ValueError
        Where the budget does not pay for the fewest labels and probes.

    Examples
    --------
    >>> found = spend(400, 0.05, 1.0, 1.0, 0.01, 0.05, {"a": 0.05, "b": 0.05})
    >>> found.plan.n, found.plan.m, found.probes
    (260, 129, {'a': 129, 'b': 129})
    """
    if not sigma2_probes:
        return Spending(allocate(budget, cost_per_prompt, cost_per_label, sigma2_eval, sigma2_cal), {})
    names, terms = list(sigma2_probes), np.maximum(np.array(list(sigma2_probes.values())), 0.0)
    costs = np.array([cost_per_label] + [cost_per_probe] * len(names))
    least = (
        FEWEST_PROBES * (cost_per_prompt + cost_per_probe * len(names))
        + MIN_LABELLED_CLUSTERS * cost_per_label
    )
    if not least * (1 + 1e-9) <= budget:
        raise ValueError(
            f"a budget of {budget:g} does not pay for {MIN_LABELLED_CLUSTERS} labels and {FEWEST_PROBES} probes "
            f"of each of {len(names)} policies; it takes at least {least:g}"
        )
    lower = np.array([float(MIN_LABELLED_CLUSTERS)] + [float(FEWEST_PROBES)] * len(names))
    law = _law(budget, cost_per_prompt, costs, sigma2_eval, np.array([sigma2_cal, *terms]), lower)
    designs = []
    # Labels may be few and cost much, so both whole numbers beside the law's are tried; probes follow the law given m.
    for m in np.floor(law[0]) + np.array([0.0, 1.0]):
        lower[0] = m
        numbers = _law(budget, cost_per_prompt, costs, sigma2_eval, np.array([0.0, *terms]), lower)
        probes = np.maximum(np.floor(numbers[1:] * (1 + 1e-12)), FEWEST_PROBES).astype(int)
        left = budget - cost_per_probe * float(probes.sum())
        if left >= max(int(probes.max()), m) * cost_per_prompt + m * cost_per_label:
            plan = allocate(
                left, cost_per_prompt, cost_per_label, sigma2_eval, sigma2_cal, m_min=int(m), n_min=int(probes.max())
            )  # fmt: skip
            designs.append((plan, probes, plan.std_error**2 + float((terms / probes).sum())))
    plan, probes, variance = min(designs, key=lambda design: design[2])
    cost = plan.cost + cost_per_probe * float(probes.sum())
    return Spending(
        plan._replace(
            cost=float(round(cost, 12)),
            std_error=float(np.sqrt(variance)),
            calibration_share=float(plan.calibration_share * plan.std_error**2 / variance),
            spend_share=float(plan.spend_share * plan.cost / cost),
        ),
        dict(zip(names, probes.tolist(), strict=True)),
    )


def _law(
    budget: float, prompt: float, costs: FloatArray, sigma2_eval: float, terms: FloatArray, lower: FloatArray
) -> FloatArray:
    """Continuous optimum of the labels and probes (one entry each), which lie between `lower` and n.

    Entries that would fall below their least number stay there, and those that would exceed n are bought with each
    prompt; the rest follow the law of what is left. Each pass settles at least one entry.
    """
    fixed, tied = np.zeros(len(costs), dtype=bool), np.zeros(len(costs), dtype=bool)
    for _ in range(2 * len(costs) + 1):
        free = ~fixed & ~tied
        left = budget - float((costs * lower)[fixed].sum())
        with_prompt = max(sigma2_eval, 0.0) + float(terms[tied].sum()), prompt + float(costs[tied].sum())
        roots = np.sqrt(with_prompt[0] * with_prompt[1]) + float(np.sqrt(terms * costs)[free].sum())
        scale = left / roots if roots > 0 else 0.0
        n = max(scale * np.sqrt(with_prompt[0] / with_prompt[1]), float(lower.max()))
        numbers = np.where(tied, n, np.where(fixed, lower, scale * np.sqrt(terms / costs)))
        few, many = free & (numbers < lower), free & (numbers > n)
        if not (few.any() or many.any()):
            break
        fixed |= few
        if not few.any():  # the largest alone: bought with each prompt, it raises n for the others
            tied[np.argmax(np.where(many, numbers, 0.0))] = True
    # at a small budget the least n above takes money that the law had given away
    room = budget - prompt * n - float((costs * lower).sum())
    extra = np.minimum(numbers, n) - lower
    over = float((costs * extra).sum())
    return np.asarray(lower + extra * (min(1.0, max(room, 0.0) / over) if over > 0 else 0.0))


def choose_probes(
    options: Mapping[str, ProbeOption],
    probed: Iterable[str],
    spending: Callable[[tuple[str, ...]], tuple[Spending, float]],
) -> tuple[Spending, tuple[str, ...]]:
    """Choose the policies that get probes, one by one as long as the criterion falls.

    Parameters
    ----------
    options : mapping
        Policies that could get probes.
    probed : iterable of str
        Those of them that get probes in any case: the pilot has some.
    spending : callable
        Best design for a choice of policies, and its criterion; `ValueError` where the budget does not pay for it.
    """
    chosen = tuple(probed)
    best, criterion = spending(chosen)
    while True:
        trials = []
        for name in sorted(set(options) - set(chosen)):
            try:
                trials.append((*spending((*chosen, name)), name))
            except ValueError:  # too little money for one policy more
                continue
        if not trials:
            return best, chosen
        found, value, name = min(trials, key=lambda trial: trial[1])
        if not value < criterion:
            return best, chosen
        best, criterion, chosen = found, value, (*chosen, name)


class Shares(NamedTuple):
    """Shares of variance and of spend that labels and probes have at one design."""

    calibration_share: float  # omega, of the labels that calibrate
    spend_share: float
    probe_share: float
    probe_spend_share: float
    advice: str  # "balanced", "more labels", "more probes", "more prompts" or "all labelled"


def purchase_shares(
    n: float, m: float, variances: tuple[float, float, float], costs: tuple[float, float, float]
) -> Shares:
    """Compare what prompts, labels and probes contribute to the variance with what they cost.

    Parameters
    ----------
    n, m : float
        Prompts and labelled prompts.
    variances, costs : three floats
        What falls with prompts, labels and probes, and what is spent on each.

    Examples
    --------
    >>> purchase_shares(100, 50, (0.001, 0.001, 0.008), (10.0, 80.0, 10.0)).advice
    'more probes'
    """
    share, paid = (np.array(values) / sum(values) for values in (variances, costs))
    lack = share - paid
    worst = int(np.argmax(lack))
    advice = ("more prompts", "all labelled" if m == n else "more labels", "more probes")[worst]
    if np.abs(lack).max() <= BALANCE_TOLERANCE:
        advice = "balanced"
    return Shares(float(share[1]), float(paid[1]), float(share[2]), float(paid[2]), advice)
