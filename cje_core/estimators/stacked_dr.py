"""Stacked DR: the convex combination of doubly robust estimators with the least estimated variance.

Estimand: V(policy) = E[Y]. Formula (the paper's algorithm Influence-Function Stacking): with Phi the centred influence
columns of the members on the same folds,

    alpha = argmin over the simplex of alpha' (Phi' Phi / n + lambda I) alpha
    V = sum_e alpha_e V_e,   phi = sum_e alpha_e phi_e

lambda is relative to the mean variance of the columns, so that the answer does not depend on the oracle's unit;
members with identical influence get equal weights. Columns are summed by cluster. ``columns="total"`` takes the whole
influence, calibration included; ``"sampling"`` the paper's, with R^OOF and the calibrator as if known. ``outer_split``
learns alpha on one half of the clusters and applies it to the other, which removes the optimism of choosing and
weighing on the same rows.

All members are linear in the same sources, so the standard error is that of one estimator: no second rule.
``stack_support`` counts the members in use and ``stack_rank`` is the rank r of Phi: by Caratheodory's theorem some
optimal stack uses at most r + 1 members.

Failure modes: variance is all the stack sees. A member with a small variance and a large bias (capped_ips under poor
overlap) takes the weight, so biased members are not in the default library; the standard error of a stack chosen
on the same rows is slightly too small.

Examples
--------
>>> import cje_sim
>>> data = cje_sim.simulate("clone_with_tf_noise", n=300, rng=1)
>>> found = estimate(data)
>>> found["estimate"].to_series().round(3).to_dict()
{'base': 0.527, 'clone': 0.55, 'tilt_0.1': 0.563}
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial

import numpy as np

from cje_core.calibration.folds import assign_folds
from cje_core.checks import FloatArray, one_of
from cje_core.estimators import Role, available, calibrated_dr_cpo, load, mrdr, tmle
from cje_core.families.off_policy import value as off_policy
from cje_core.families.off_policy.estimate import Method, estimator, prepared, refusal
from cje_core.families.off_policy.labels import label_error
from cje_core.inference.estimate import Status
from cje_core.inference.sums import cluster_sums
from cje_core.offpolicy.weights import simplex_qp

NEEDS = off_policy.NEEDS
ROLE = Role(offered="logs", place=7)
LIBRARY = tuple(module.__name__.rpartition(".")[2] for module in (calibrated_dr_cpo, tmle, mrdr))
RIDGE = 1e-4  # lambda, relative to the mean variance of the columns
COLUMNS = ("total", "sampling")


def stack_weights(columns: FloatArray, ridge: float = RIDGE) -> FloatArray:
    """Simplex weights of least variance of influence columns (members, clusters).

    Examples
    --------
    >>> phi = np.array([[1.0, -1.0, 1.0, -1.0], [1.0, 1.0, -1.0, -1.0], [1.0, 1.0, -1.0, -1.0]])
    >>> stack_weights(phi).round(3).tolist()  # two members are the same estimator
    [0.5, 0.25, 0.25]
    """
    centred = columns - columns.mean(axis=1, keepdims=True)
    sigma = centred @ centred.T / centred.shape[1]
    return simplex_qp(sigma + ridge * np.trace(sigma) / len(sigma) * np.eye(len(sigma)))


def column_rank(columns: FloatArray) -> int:
    """Rank of centred influence columns (members, clusters), by the singular values of their triangular factor."""
    triangle = np.linalg.qr(
        columns.T, mode="r"
    )  # a decomposition of clusters x members would cost fifty times as much
    return int(np.linalg.matrix_rank(triangle, tol=1e-8 * np.abs(columns).max() * np.sqrt(columns.size)))


Sources = tuple[off_policy.Source, off_policy.Source]  # direct and ips


def mix(
    values: Sequence[off_policy.Value], sources: Sequence[Sources], alpha: FloatArray
) -> off_policy.Value:
    """Convex combination of values, whose sources are given; alpha (members,) or one column per prompt (members, n).

    Where alpha changes between prompts each half contributes its own one-step estimate, value plus mean influence.
    """
    n = len(sources[0][0].influence)
    per_prompt = np.broadcast_to(alpha.reshape(len(values), -1), (len(values), n))
    mean = per_prompt.mean(axis=1)

    def added(columns: Sequence[FloatArray]) -> FloatArray:
        return np.asarray(np.sum([a * column for a, column in zip(per_prompt, columns, strict=True)], axis=0))

    def blend(each: Sequence[off_policy.Source]) -> off_policy.Source:
        influence = added([s.influence for s in each])
        value = sum(a * s.value for a, s in zip(mean, each, strict=True)) + influence.mean()
        return off_policy.Source(
            float(value), influence - influence.mean(), added([s.leverage for s in each])
        )

    def orthogonality() -> off_policy.Source | None:
        known = [s for s in (v.orthogonality() for v in values) if s is not None]
        return blend(known) if len(known) == len(values) else None

    direct, ips = (blend([pair[k] for pair in sources]) for k in (0, 1))
    return off_policy.Value(
        direct.value,
        ips.value,
        lambda: (direct, ips),
        lambda: added([v.held_out_influence() for v in values]),
        lambda: [
            term._replace(weight=a * term.weight)
            for a, v in zip(mean, values, strict=True)
            if a > 0
            for term in v.terms()
        ],
        orthogonality,
    )


def member(logs: off_policy.Logs, p: int, name: str) -> off_policy.Value | Status:
    """Value of policy p by a member of the stack, or the status that says why it has none."""
    known = logs.members[name][p] if name in logs.members else None
    if known is not None:
        return known
    value: off_policy.Value | Status = load(name).policy_value(logs, p)
    return value


def with_members(logs: off_policy.Logs, members: Sequence[str] = LIBRARY) -> off_policy.Logs:
    """Logs with the values of members; None for a policy to which no doubly robust estimator gives one."""
    some = [not isinstance(refusal(logs, p, fresh=True), Status) for p in range(len(logs.policies))]
    logs = prepared(logs, estimate.method(members=members))
    made = {
        name: tuple(member(logs, p, name) if ok else None for p, ok in enumerate(some)) for name in members
    }
    return replace(logs, members={**logs.members, **made})


def stages(logs: off_policy.Logs, members: Sequence[str], columns: str) -> off_policy.Logs:
    """Logs with the stages that these members read, and those of their columns."""
    for name in members:
        logs = load(name).estimate.method().stages(logs)
    logs = off_policy.with_outcome(logs)
    return logs if columns == "sampling" else off_policy.with_refit(logs)


def policy_value(
    logs: off_policy.Logs,
    p: int,
    *,
    members: Sequence[str],
    columns: str = "total",
    outer_split: bool = False,
    borrowed: str = "balanced",
) -> off_policy.Value | Status:
    """Stack of the members that policy p allows; the first member's status if it allows none."""
    found = {name: member(logs, p, name) for name in members}
    values = {name: v for name, v in found.items() if isinstance(v, off_policy.Value)}
    if not values:
        return next(v for v in found.values() if isinstance(v, Status))
    rows, library = logs.rows, list(values.values())
    sources = [v.sources() for v in library]
    if columns == "sampling":
        phi = [
            direct.influence + v.held_out_influence() for v, (direct, _) in zip(library, sources, strict=True)
        ]
    else:
        phi = [
            direct.influence + ips.influence + label_error(logs, p, v.terms(), borrowed).part.influence
            for v, (direct, ips) in zip(library, sources, strict=True)
        ]
    summed = cluster_sums(np.stack(phi), rows.cluster)
    if outer_split:
        half = assign_folds(rows.cluster_names, np.ones(len(rows.cluster_names), dtype=bool), n_folds=2)
        by_half = np.stack([stack_weights(summed[:, half != h]) for h in (0, 1)], axis=1)
        alpha = by_half[:, half[rows.cluster]]
        mean = alpha.mean(axis=1)
    else:
        alpha = mean = stack_weights(summed)
    stack = mix(library, sources, alpha)
    if logs.left_out is not None:  # nobody asks for the facts of a rerun
        return stack
    weight = np.zeros(len(members))
    weight[[list(members).index(name) for name in values]] = mean
    facts: dict[str, off_policy.Fact] = {
        "stack_weight": off_policy.Along("member", members, weight),
        "stack_support": int((weight > 0).sum()),
        "stack_rank": column_rank(summed - summed.mean(axis=1, keepdims=True)),
    }
    return replace(stack, facts=facts)


@cache  # as `load`
def _can_be_member(name: str) -> bool:
    """Whether an estimator of the directory, and not this one, values one policy of `off_policy.Logs`."""
    return f"{__package__}.{name}" != __name__ and name in available() and hasattr(load(name), "policy_value")


@estimator(fresh=True)
def estimate(
    *, members: Sequence[str] = LIBRARY, columns: str = "total", outer_split: bool = False
) -> Method:
    """Estimate each policy's value by the stack; see the module and its package.

    Parameters
    ----------
    members : sequence of str
        Other estimators that have a `policy_value`. One that fails for a policy has weight 0 there.
    columns : {"total", "sampling"}
        Influence columns that the weights are learned on.
    outer_split : bool

    Returns
    -------
    And ``stack_weight(policy, member)``, ``stack_support`` and ``stack_rank``.
    """
    if not members or len(set(members)) < len(members) or not all(map(_can_be_member, members)):
        known = ", ".join(filter(_can_be_member, available()))
        raise ValueError(f"members are {tuple(members)}; use some of {known}, each once")
    one_of(columns, "columns", COLUMNS)
    options = {"members": tuple(members), "columns": columns, "ridge": RIDGE, "outer_split": outer_split}
    value = partial(policy_value, members=members, columns=columns, outer_split=outer_split)
    return Method(value, options, partial(stages, members=members, columns=columns), knows_borrowed=True)
