"""The PyMC models of several policies: partial pooling of the calibrator, shifts with feedback, binary judges.

Notation as in `cje_core.bayes.models.slice`, p a policy. Each model takes counts; no shape of a parameter depends on
the number of labels.
"""

import warnings
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cje_core.bayes.levels import Graded, Levels
from cje_core.bayes.models.engines import pm, pt
from cje_core.bayes.models.slice import EDGE, calibrator, data_of, prior_data, teaching_log_likelihood
from cje_core.bayes.prior import Prior
from cje_core.bayes.splines import isplines
from cje_core.data.arrays import Rows
from cje_core.inference.estimate import sum_by

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


class PolicyLevels(NamedTuple):
    """Labels of every policy on the same judge levels, [0, 1] scale."""

    level: FloatArray  # (K,)
    n: FloatArray  # (P, K)
    total: FloatArray  # (P, K)
    squares: FloatArray  # (P,)
    binary: bool


def by_policy(rows: Rows, graded: Graded, which: BoolArray) -> PolicyLevels:
    """Sufficient statistics of the labels of each policy, in the order of ``rows.policies``.

    A label counts ``graded.share``, as in `cje_core.bayes.levels.Levels`.

    Parameters
    ----------
    rows, graded : Rows, Graded
    which : boolean array, shape (r,)
        Rows whose labels count, for instance ``rows.labelled`` or ``rows.probe``.

    Returns
    -------
    PolicyLevels
    """
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


def hierarchical_data(labels: PolicyLevels, prior: Prior, deviation: float) -> dict[str, npt.NDArray[Any]]:
    """What `hierarchical` takes as data, by name."""
    data = prior_data(prior) | {
        "basis": isplines(labels.level, prior.n_splines),
        "n": labels.n,
        "total": labels.total,
        "deviation": np.asarray(float(deviation)),
    }
    if labels.binary:
        return data
    return data | {"squares": np.asarray(labels.squares.sum()), "scale": np.asarray(prior.scale)}


def hierarchical(labels: PolicyLevels, prior: Prior | None = None, *, deviation: float = 0.5) -> pm.Model:
    """Partial pooling of the calibrator itself, for several policies with labels.

    ::

        a, b ~ p(a, b),  u ~ mixture of Dirichlet           of the population (`cje_core.bayes.prior`)
        tau ~ HalfNormal(deviation)                         how much policies differ; 0 pools them
        z_pj ~ Normal(0, 1)
        logit a_p = logit a + tau z_p0,  logit b_p = logit b + tau z_p1
        u_pj = u_j exp(tau z_p(j+1)) / sum_l u_l exp(tau z_p(l+1))
        f_p(s) = a_p + (b_p - a_p) sum_j u_pj I_j(s)        monotone and in [0, 1] for every policy
        Y_i ~ Normal(f_p(i)(S_i), sigma), sigma ~ HalfNormal(scale);  Bernoulli for binary labels

    Deviations of the parameters, and not of f, because they keep every f_p monotone. A policy without labels has
    draws from the population of calibrators: wider than the pooled f by what the others differ.

    Parameters
    ----------
    labels : PolicyLevels
    prior : Prior, optional
    deviation : float
        Prior scale of tau, in log odds and log weight.

    Returns
    -------
    pm.Model
        With ``ends``, ``shape``, ``tau``, ``deviations`` z (P, J + 2), and each policy's ``own_ends`` (P, 2) and
        ``own_shape`` (P, J).
    """
    prior = prior or Prior()
    values = hierarchical_data(labels, prior, deviation)
    size = (len(labels.n), prior.n_splines + 2)
    with pm.Model() as model:
        held = {name: pm.Data(name, value) for name, value in values.items()}
        shared = calibrator(held, prior.n_splines)
        tau = pm.HalfNormal("tau", held["deviation"])
        z = pm.Normal("deviations", shape=size)
        center = pt.clip(pt.stack([shared.a, shared.b]), EDGE, 1.0 - EDGE)
        logit = pt.log(center) - pt.log1p(-center)
        ends = pm.Deterministic("own_ends", pt.sigmoid(logit[None, :] + tau * z[:, :2]))
        raw = shared.u[None, :] * pt.exp(tau * z[:, 2:])
        shape = pm.Deterministic("own_shape", raw / raw.sum(axis=1, keepdims=True))
        low = ends[:, :1]
        f = low + (ends[:, 1:] - low) * pt.dot(shape, held["basis"].T)
        n, total = held["n"], held["total"]
        if labels.binary:
            inside = pt.clip(f, EDGE, 1.0 - EDGE)
            pm.Potential("likelihood", (total * pt.log(inside) + (n - total) * pt.log1p(-inside)).sum())
        else:
            sigma = pm.HalfNormal("sigma", held["scale"])
            seen = _normal_log_likelihood(f.ravel(), sigma, n.ravel(), total.ravel(), held["squares"])
            pm.Potential("likelihood", seen)
    return model


def _normal_log_likelihood(f: Any, sigma: Any, n: Any, total: Any, squares: Any) -> Any:
    """Log likelihood of normal labels with means f, from counts, sums and the sum of squares; no constant."""
    rest = squares - 2.0 * pt.dot(total, f) + pt.dot(n, f**2)
    return -n.sum() * pt.log(sigma) - rest / (2.0 * sigma**2)


def joint_transport_data(levels: Levels, probes: PolicyLevels, prior: Prior) -> dict[str, npt.NDArray[Any]]:
    """What `joint_transport` takes as data, by name."""
    data = data_of(levels._replace(binary=False), prior) | {"basis": isplines(levels.level, prior.n_splines)}
    return data | {"probe_n": probes.n, "probe_total": probes.total, "probe_squares": probes.squares}


def warn_of_feedback(*, stacklevel: int = 2) -> None:
    """Say what a joint posterior of calibration and shifts does."""
    warnings.warn(
        "the joint posterior lets probe labels bend f, which hides part of the shift they should show; "
        "use cje_core.bayes.shifts.shifts for the cut posterior",
        UserWarning,
        stacklevel=stacklevel + 1,
    )


def joint_transport(
    levels: Levels,
    probes: PolicyLevels,
    prior: Prior | None = None,
    *,
    scale: float = 0.05,
    warn: bool = True,
) -> pm.Model:
    """Calibration and shifts in one posterior: probe labels inform f as well.

    ::

        a, b ~ p(a, b),  u ~ mixture of Dirichlet       f_k = a + (b - a) sum_j u_j I_j(level_k)
        Y_i ~ Normal(f_k(i), sigma)                     teaching labels
        Y_pj ~ Normal(f_k(pj) + delta_p, sigma_p)       probes of policy p
        delta_p ~ t_3(0, tau),  tau ~ HalfCauchy(scale),  sigma, sigma_p ~ HalfNormal(prior.scale)

    Feedback: where a policy's probes do not fit the calibration, this posterior bends f towards them and hides part of
    their shift. `cje_core.bayes.shifts` cuts the feedback; this model shows how much it matters. A `UserWarning`
    says so. Probes count as independent rows.

    Parameters
    ----------
    levels : Levels
        Of the teaching labels.
    probes : PolicyLevels
        Of the probed policies, on the same levels.
    prior : Prior, optional
    scale : float
        Of tau, on the [0, 1] oracle scale.

    Returns
    -------
    pm.Model
        With ``ends``, ``shape``, ``sigma``, ``delta`` (P,), ``sigma_probe`` (P,) and ``tau``; a policy
        without probes has draws of its prior.
    """
    if warn:
        warn_of_feedback()
    prior = prior or Prior()
    if not np.array_equal(levels.level, probes.level):
        raise ValueError(
            "teaching labels and probes must share their judge levels; take both from one Graded"
        )
    values = joint_transport_data(levels, probes, prior)
    size = len(probes.n)
    with pm.Model() as model:
        held = {name: pm.Data(name, value) for name, value in values.items()}
        curve = calibrator(held, prior.n_splines)
        sigma = pm.HalfNormal("sigma", held["scale"])
        f = curve.at(held["basis"])
        pm.Potential("likelihood", teaching_log_likelihood(curve, sigma, held))
        tau = pm.HalfCauchy("tau", scale)
        standard = pm.StudentT("standard_delta", nu=3, mu=0.0, sigma=1.0, shape=size)
        delta = pm.Deterministic("delta", tau * standard)
        spread = pm.HalfNormal("sigma_probe", held["scale"], shape=size)
        mean = f[None, :] + delta[:, None]
        n = held["probe_n"]
        cross, own = (held["probe_total"] * mean).sum(axis=1), (n * mean**2).sum(axis=1)
        rest = held["probe_squares"] - 2.0 * cross + own
        seen = -n.sum(axis=1) * pt.log(spread) - rest / (2.0 * spread**2)
        pm.Potential("probe_likelihood", seen.sum())
    return model


class JudgeCounts(NamedTuple):
    """A binary judge against binary labels, and its verdicts on unlabelled responses."""

    good: int  # labelled responses that are good
    good_passed: int  # of these, passed by the judge
    bad: int
    bad_passed: int
    n: npt.NDArray[np.int64]  # (P,) unlabelled responses of each policy
    passed: npt.NDArray[np.int64]  # (P,) of these, passed
    own_good: npt.NDArray[np.int64]  # (P,) good labels among the policy's own random sample
    own: npt.NDArray[np.int64]  # (P,) size of that sample; 0 for a policy that borrows the judge's accuracy


def judge_counts(rows: Rows, threshold: float, oracle_range: tuple[float, float]) -> JudgeCounts:
    """Count verdicts and labels.

    Parameters
    ----------
    rows : Rows
        With binary labels.
    threshold : float
        A score at or above it passes.
    oracle_range : pair of float
        Label of a bad and of a good response.

    Returns
    -------
    JudgeCounts
        Accuracy from the teaching labels; prevalence from each policy's own evaluated labels.
    """
    passes, good, taught = rows.score >= threshold, rows.label == oracle_range[1], rows.teaches
    if not np.isin(rows.label[taught | (rows.evaluated & rows.labelled)], oracle_range).all():
        raise ValueError("oracle labels are not binary: misclassification correction is not defined")

    def count(which: BoolArray) -> npt.NDArray[np.int64]:
        return np.bincount(rows.policy[which], minlength=len(rows.policies))

    free, own = rows.evaluated & ~rows.labelled, rows.evaluated & rows.labelled
    return JudgeCounts(
        good=int((taught & good).sum()),
        good_passed=int((taught & good & passes).sum()),
        bad=int((taught & ~good).sum()),
        bad_passed=int((taught & ~good & passes).sum()),
        n=count(free),
        passed=count(free & passes),
        own_good=count(own & good),
        own=count(own),
    )


def rogan_gladen_data(counts: JudgeCounts) -> dict[str, npt.NDArray[np.int64]]:
    """What `rogan_gladen` takes as data, by name."""
    return {name: np.asarray(value, dtype=np.int64) for name, value in counts._asdict().items()}


def rogan_gladen(
    counts: JudgeCounts,
    *,
    accuracy_prior: tuple[float, float] = (1.0, 1.0),
    prevalence_prior: tuple[float, float] = (1.0, 1.0),
) -> pm.Model:
    """Bayesian Rogan-Gladen: shares of good responses behind a binary judge.

    ::

        Se, Sp ~ Beta(accuracy_prior)                 sensitivity, specificity; shared by the policies
        theta_p ~ Beta(prevalence_prior)              share of good responses, V_p on the [0, 1] oracle scale
        good_passed ~ Binomial(good, Se)              bad_passed ~ Binomial(bad, 1 - Sp)
        own_good_p ~ Binomial(own_p, theta_p)         the policy's own labelled random sample
        passed_p ~ Binomial(n_p, theta_p Se + (1 - theta_p)(1 - Sp))    unlabelled responses

    Nothing is clipped: where Se + Sp is near 1 the posterior of theta_p is as wide as its prior.

    Parameters
    ----------
    counts : JudgeCounts
    accuracy_prior, prevalence_prior : pair of float
        Parameters of the Beta priors.

    Returns
    -------
    pm.Model
        With ``sensitivity``, ``specificity`` and ``value`` (P,).
    """
    with pm.Model() as model:
        seen = {name: pm.Data(name, value) for name, value in rogan_gladen_data(counts).items()}
        sensitivity = pm.Beta("sensitivity", *accuracy_prior)
        specificity = pm.Beta("specificity", *accuracy_prior)
        value = pm.Beta("value", *prevalence_prior, shape=len(counts.n))
        share = value * sensitivity + (1.0 - value) * (1.0 - specificity)
        pm.Binomial("judge_on_good", seen["good"], sensitivity, observed=seen["good_passed"])
        pm.Binomial("judge_on_bad", seen["bad"], 1.0 - specificity, observed=seen["bad_passed"])
        pm.Binomial("own_labels", seen["own"], value, observed=seen["own_good"])
        pm.Binomial("verdicts", seen["n"], share, observed=seen["passed"])
    return model
