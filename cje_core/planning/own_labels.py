"""Labels of a policy's own instead of borrowed ones: what they would do, and how many do as well."""

import numpy as np
import xarray as xr

from cje_core.calibration.calibrated import Calibrated, calibrated
from cje_core.calibration.folds import MIN_LABELLED_CLUSTERS
from cje_core.families.direct.balance import balancing_weights
from cje_core.inference.estimate import clopper_pearson
from cje_core.inference.influence import kish_ess
from cje_core.inference.sums import sum_by
from cje_core.planning.components import design, read_pilot, split_policy

KEYS = ("sigma2_eval", "sigma2_cal", "sigma2_eval_se", "sigma2_cal_se", "sigma2_covariance")


def if_labelled(data: xr.Dataset | Calibrated) -> xr.Dataset:
    """Components of each policy that borrows, if the labels were its own: m labels of the policy, or as many probes.

    Estimand: the two-phase variance ``[Var Y - s2] / n + s2 / m`` of a mean prediction corrected by own labels, s2 the
    variance of ``Y - f(Z)``. Before the policy has a label, both variances are those of the labelled slice, weighted as
    the balanced one-step weights it (`cje_core.families.direct.balance`), which is right where E[Y | Z] and the noise
    about it are the slice's; residuals are held out, and s2 is at most Var Y, since tuning drops a prediction that
    does not help.

    For 100 probes among 2,000 prompts the mean forecast of 100 pilots (1,000 prompts, 100 or 250 labels of base) is
    .97-1.04 times the spread of 1,000 fresh studies in well_specified, weak_judge, binary_oracle and discrete_judge
    (Monte Carlo standard error .02-.03), and 1.12-1.17 for ``worse`` of discrete_judge, which lies beside most labels.

    Returns
    -------
    xr.Dataset
        As from `variance_components`, for `cje_core.planning.forecast.std_error_at` with m the labels on the policy
        itself, over the policies of the route ``balanced``; NaN for all others.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("discrete_judge", n=300, oracle_fraction=0.5, label_design="base", rng=1)
    >>> if_labelled(data).policy.values.tolist()
    ['base', 'clone', 'better', 'worse']
    """
    pilot = read_pilot(data, "balanced", True)
    data = calibrated(data).data
    rows, fitted = pilot.rows, pilot.fitted
    attrs = design(data, rows)
    names = data.policy.values.astype(str)
    found = {key: np.full(len(names), np.nan) for key in KEYS}
    for k, name in enumerate(names):
        p = rows.policies.index(name)
        if pilot.lender is None or split_policy(pilot, p).route != "balanced":
            continue
        index = np.flatnonzero((rows.policy == p) & rows.evaluated)
        weight = rows.weight[index]
        lesson = pilot.lender.lesson
        assert lesson is not None
        balance = balancing_weights(lesson, rows.z[index], weight / weight.sum())
        values = np.stack([fitted.label, lesson.residual])
        squared = (values - (balance * values).sum(axis=1, keepdims=True)) ** 2
        whole, left = (balance * squared).sum(axis=1)
        if whole <= 0 or left <= 0:  # weights below zero: the policy lies beside most labels
            continue
        if left > whole:
            squared[1], left = squared[0], whole
        moves = balance * (squared - np.array([[whole], [left]]))
        joint = np.stack([sum_by(rows.cluster[fitted.prompt], row, len(rows.cluster_names)) for row in moves])
        total, residual, both = (joint[0] ** 2).sum(), (joint[1] ** 2).sum(), (joint[0] * joint[1]).sum()
        spread = (total + residual - 2 * both, residual, both - residual)
        terms = (whole - left, left, np.sqrt(spread[0]), np.sqrt(spread[1]), spread[2])
        for key, value in zip(KEYS, terms, strict=True):
            found[key][k] = value
    zero = np.where(np.isfinite(found["sigma2_cal"]), 0.0, np.nan)
    found |= dict.fromkeys(("sigma2_cross", "variance_probes", "variance_probes_se", "probe_count"), zero)
    df = {"df_eval": attrs["n"] - 1, "df_cal": max(attrs["m"] - 1, 1), "df_probes": np.inf}
    found |= {name: zero + value for name, value in df.items()}
    return xr.Dataset({key: ("policy", value) for key, value in found.items()}, {"policy": names}, attrs)


def independent_prompts(data: xr.Dataset, m: int) -> float:
    """How many of m prompts are independent at least: m times Kish's count of the pilot's clusters per prompt."""
    names = data["cluster"].values if "cluster" in data else data["prompt"].values
    _, size = np.unique(names.astype(str), return_counts=True)
    return float(m * kish_ess(size.astype(float)) / size.sum())


def worst_std_error(data: xr.Dataset, m: int) -> float:
    """Largest standard error that a mean of m random own labels can have, whatever they turn out to be.

    No variance on a scale of width w exceeds ``w^2 / 4`` (Popoviciu), so the mean over m independent prompts has at
    most ``w / (2 sqrt(m))``, the pilot's clusters counted as in `independent_prompts`. It claims nothing of the policy,
    so it stands where nothing may be borrowed to forecast its labels with.
    """
    return float(np.ptp(data.attrs["oracle_range"]) / 2 / np.sqrt(independent_prompts(data, m)))


def if_equal_again(data: xr.Dataset, m: int, ci_prob: float) -> float:
    """How far from an end of the oracle scale m labels that all lie there leave a policy's value.

    The exact bound of Clopper and Pearson, which `analyze` prints of equal labels at an end of the scale.
    """
    bound = clopper_pearson(0.0, independent_prompts(data, m), ci_prob)[1]
    return float(np.ptp(data.attrs["oracle_range"]) * bound)


def labels_to_match(std_error: xr.DataArray, n: int, components: xr.Dataset) -> xr.DataArray:
    """Fewest labels among n prompts, at least 4, with which components (of `if_labelled`) reach a given standard error.

    For instance that of borrowing. NaN where labelling all n prompts does not do it.
    """
    left = std_error**2 - components["sigma2_eval"] / n
    ratio = components["sigma2_cal"] / left.where(left > 0)
    needed = ratio.copy(data=np.maximum(np.ceil(ratio.values - 1e-9), MIN_LABELLED_CLUSTERS))
    return needed.where(needed <= n)
