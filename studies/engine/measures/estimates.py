"""Measures of estimates and their standard errors."""

import numpy as np

from studies.engine.measures.replicates import Part, Replicates, mean, measure, root, spread

MORRIS = "Morris, White and Crowther (2019), Table 6"


@measure("mean e", MORRIS)
def bias(r: Replicates) -> Part:
    """How far the estimates lie from the truth on average."""
    return mean(r.error, r.ok)


@measure("mean (e / truth); none where a truth is 0", "White (2010), simsum")
def relative_bias(r: Replicates) -> Part:
    """Bias as a share of the truth, which may differ between replicates."""
    zero = (r.ok & (r.truth == 0)).any(axis=0)
    part = mean(r.error / np.where(r.truth == 0, np.nan, r.truth), r.ok)
    return Part(np.where(zero, np.nan, part.value), part.share, part.n)


@measure("sd of e (n - 1)", MORRIS)
def empirical_se(r: Replicates) -> Part:
    """Spread of the estimates. The MCSE keeps the fourth moment, which Morris et al. take from the Normal law."""
    return spread(r.error, r.ok)


@measure("mean e^2", MORRIS)
def mse(r: Replicates) -> Part:
    """Mean squared error."""
    return mean(r.error**2, r.ok)


@measure("sqrt(mean e^2)", f"root of the MSE of {MORRIS}")
def rmse(r: Replicates) -> Part:
    """Root of the mean squared error."""
    return root(mean(r.error**2, r.ok))


@measure("sqrt(mean SE^2)", MORRIS)
def model_se(r: Replicates) -> Part:
    """What the method says of its spread."""
    return root(mean(np.where(r.with_se, r.std_error, 0.0) ** 2, r.with_se))


@measure(
    "model_se / empirical_se, over the replicates with an SE; 1 is right, < 1 too confident",
    f"1 + model_se_error of {MORRIS}",
)
def se_calibration(r: Replicates) -> Part:
    """What the method says of its spread over what it is; the MCSE keeps the correlation of the two."""
    model, empirical = model_se(r), spread(r.error, r.with_se)
    size = np.where(empirical.value > 0, empirical.value, np.nan)
    scale = np.where(model.value > 0, model.value, np.nan)
    ratio = model.value / size
    return Part(ratio, ratio * (model.share / scale - empirical.share / size), model.n)


@measure("model_se / empirical_se - 1", MORRIS)
def model_se_error(r: Replicates) -> Part:
    """Relative error of the model SE; negative is too confident."""
    part = se_calibration(r)
    return part._replace(value=part.value - 1)
