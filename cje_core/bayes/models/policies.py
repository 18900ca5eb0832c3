"""The PyMC models of several policies: partial pooling of the calibrator, and shifts with feedback.

Notation as in `cje_core.bayes.models.slice`, p a policy. Each model takes counts; no shape of a parameter depends on
the number of labels.
"""

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from cje_core.bayes.flat import EDGE
from cje_core.bayes.levels import Graded, Levels
from cje_core.bayes.models.calibrator import calibrator, prior_data, weighed
from cje_core.bayes.models.engines import pm, pt
from cje_core.bayes.models.slice import bernoulli_log_likelihood, normal_data, teaching_log_likelihood
from cje_core.bayes.models.specification import Specification
from cje_core.bayes.prior import DEFAULT, Prior
from cje_core.bayes.splines import isplines
from cje_core.checks import BoolArray, FloatArray
from cje_core.data.arrays import Rows
from cje_core.inference.sums import sum_by


class PolicyLevels(NamedTuple):
    """Labels of every policy on the same judge levels, [0, 1] scale."""

    level: FloatArray  # (K,)
    n: FloatArray  # (P, K)
    total: FloatArray  # (P, K)
    squares: FloatArray  # (P,)
    binary: bool


def by_policy(rows: Rows, graded: Graded, which: BoolArray) -> PolicyLevels:
    """Sufficient statistics of the labels of the rows `which`, policy by policy; one counts ``graded.share``."""
    n_policies, n_levels = len(rows.policies), len(graded.levels.level)
    at = rows.policy[which] * n_levels + graded.at[which]
    label = graded.label[which]
    size = n_policies * n_levels
    return PolicyLevels(
        level=graded.levels.level,
        n=graded.share * sum_by(at, np.ones(len(at)), size).reshape(n_policies, n_levels),
        total=graded.share * sum_by(at, label, size).reshape(n_policies, n_levels),
        squares=graded.share * sum_by(rows.policy[which], label**2, n_policies),
        binary=bool(np.isin(label, (0.0, 1.0)).all()) if len(label) else False,
    )


def hierarchical(labels: PolicyLevels, prior: Prior = DEFAULT, *, deviation: float = 0.5) -> Specification:
    """Partial pooling of the calibrator itself, for several policies with labels.

    ::

        a, b ~ p(a, b),  u ~ mixture of Dirichlet           of the population (`cje_core.bayes.prior`)
        tau ~ HalfNormal(deviation)                         how much policies differ; 0 pools them
        e_p0, e_p1, z_pj ~ Normal(0, 1)
        logit a_p = logit a + tau e_p0,  logit b_p = logit b + tau e_p1
        u_pj = u_j exp(tau z_pj) / sum_l u_l exp(tau z_pl)
        f_p(s) = a_p + (b_p - a_p) sum_j u_pj I_j(s)        monotone and in [0, 1] for every policy
        Y_i ~ Normal(f_p(i)(S_i), sigma), sigma ~ HalfNormal(scale);  Bernoulli for binary labels

    Deviations of the parameters, and not of f, because they keep every f_p monotone. A policy without labels has
    draws from the population of calibrators: wider than the pooled f by what the others differ.

    Variables are ``ends``, ``shape``, ``tau``, the deviations ``end_deviations`` e (P, 2) and ``shape_deviations`` z
    (P, J), and each policy's ``own_ends`` (P, 2) and ``own_shape`` (P, J).
    """
    start = {"deviation": float(deviation)}
    data = prior_data(prior) | {
        "basis": isplines(labels.level, prior.n_splines),
        "n": labels.n.T,
        "total": labels.total.T,
        "deviation": np.asarray(float(deviation)),
    }
    if not labels.binary:
        data |= {"squares": np.asarray(labels.squares.sum()), "scale": np.asarray(prior.scale)}
        start["scale"] = prior.scale
    static = (labels.binary, prior.n_splines, len(labels.n))
    return Specification(_hierarchical, static, data, start, loose=("basis", "n", "total"))


def _hierarchical(held: Mapping[str, Any], binary: bool, n_splines: int, n_policies: int) -> None:
    shared = calibrator(held, n_splines)
    tau = pm.HalfNormal("tau", held["deviation"])
    # a variable for ends and one for shapes: parts of one would be cut out, which takes numba seconds more
    move, reshaped = (
        tau * pm.Normal(f"{name}_deviations", shape=(n_policies, size))
        for name, size in (("end", 2), ("shape", n_splines))
    )
    center = pt.clip(shared.ends, EDGE, 1.0 - EDGE)
    logit = pt.log(center) - pt.log1p(-center)
    ends = pm.Deterministic("own_ends", pt.sigmoid(logit + move))
    # No softmax of several rows: numba takes two seconds for it. A shape that deviates by more than exp(709) is lost.
    x = shared.u * pt.exp(reshaped)
    shape = pm.Deterministic("own_shape", x / x.sum(axis=1, keepdims=True))
    # level by policy
    f = weighed(ends, (1.0, 0.0)) + weighed(ends, (-1.0, 1.0)) * weighed(held["basis"][:, None, :], shape)
    n, total = held["n"], held["total"]
    if binary:
        seen = bernoulli_log_likelihood(f, n, total)
    else:
        sigma = pm.HalfNormal("sigma", held["scale"])
        rest = held["squares"] + (n * f**2 - 2.0 * total * f).sum()
        seen = -n.sum() * pt.log(sigma) - rest / (2.0 * sigma**2)
    pm.Potential("likelihood", seen)


def joint_transport(
    levels: Levels,
    probes: PolicyLevels,
    prior: Prior = DEFAULT,
    *,
    scale: float = 0.05,
    stacklevel: int = 2,
) -> Specification:
    """Calibration and shifts in one posterior: probe labels inform f as well.

    ::

        a, b ~ p(a, b),  u ~ mixture of Dirichlet       f_k = a + (b - a) sum_j u_j I_j(level_k)
        Y_i ~ Normal(f_k(i), sigma)                     teaching labels
        Y_pj ~ Normal(f_k(pj) + delta_p, sigma_p)       probes of policy p
        delta_p ~ t_3(0, tau),  tau ~ HalfCauchy(scale),  sigma, sigma_p ~ HalfNormal(prior.scale)

    Feedback: where a policy's probes do not fit the calibration, this posterior bends f towards them and hides part of
    their shift. `cje_core.bayes.shifts` cuts the feedback; this model shows how much it matters. A `UserWarning`
    says so. Probes count as independent rows, and stand on the levels of the teaching labels.

    Variables are ``ends``, ``shape``, ``sigma``, ``delta`` (P,), ``sigma_probe`` (P,) and ``tau``; a policy without
    probes has draws of its prior.
    """
    warnings.warn(
        "the joint posterior lets probe labels bend f, which hides part of the shift they should show; "
        "use cje_core.bayes.shifts.shifts for the cut posterior",
        UserWarning,
        stacklevel=stacklevel,
    )
    if not np.array_equal(levels.level, probes.level):
        raise ValueError(
            "teaching labels and probes must share their judge levels; take both from one Graded"
        )
    data = prior_data(prior) | normal_data(levels, prior)
    data |= {
        "basis": isplines(levels.level, prior.n_splines),
        "probe_n": probes.n.T,
        "probe_total": probes.total.T,
        "probe_squares": probes.squares,
    }
    static, loose = (prior.n_splines, len(probes.n), scale), ("basis", "probe_n", "probe_total")
    return Specification(_joint_transport, static, data, {"scale": prior.scale}, loose)


def _joint_transport(held: Mapping[str, Any], n_splines: int, n_probed: int, scale: float) -> None:
    curve = calibrator(held, n_splines)
    sigma = pm.HalfNormal("sigma", held["scale"])
    f = curve.at(held["basis"])
    pm.Potential("likelihood", teaching_log_likelihood(curve, sigma, held))
    tau = pm.HalfCauchy("tau", scale)
    standard = pm.StudentT("standard_delta", nu=3, mu=0.0, sigma=1.0, shape=n_probed)
    delta = pm.Deterministic("delta", tau * standard)
    spread = pm.HalfNormal("sigma_probe", held["scale"], shape=n_probed)
    n, mean = held["probe_n"], f[:, None] + delta
    rest = held["probe_squares"] + (n * mean**2 - 2.0 * held["probe_total"] * mean).sum(axis=0)
    seen = -n.sum(axis=0) * pt.log(spread) - rest / (2.0 * spread**2)
    pm.Potential("probe_likelihood", seen.sum())
