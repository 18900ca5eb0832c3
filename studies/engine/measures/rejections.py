"""Measures of the test that an interval is: it rejects the null that lies outside.

The null is 0 unless `performance` is told another, which suits differences between policies. Where the null is the
truth, `power` is the size of the test, and the errors of sign and magnitude have no meaning.
"""

import numpy as np

from studies.engine.measures.replicates import Part, Replicates, mean, measure

GELMAN = "Gelman and Carlin (2014)"


@measure(
    "share of all replicates run whose interval leaves out the null: a failure rejects nothing",
    "Morris, White and Crowther (2019), Table 6",
    "proportion",
)
def power(r: Replicates) -> Part:
    """Rejections of the null."""
    return mean(r.rejects, r.judged)


@measure(
    "among the replicates that reject: share whose estimate lies on the wrong side of the null",
    GELMAN,
    "proportion",
)
def type_s(r: Replicates) -> Part:
    """Error of sign."""
    wrong = np.sign(np.nan_to_num(r.estimate - r.null)) == -np.sign(r.truth - r.null)
    return mean(wrong, r.rejects & (r.truth != r.null))


@measure("among the replicates that reject: mean of |estimate - null| / |truth - null|", GELMAN)
def type_m(r: Replicates) -> Part:
    """Error of magnitude, the exaggeration ratio: how much larger than the truth is what gets noticed."""
    effect = np.where(r.truth == r.null, np.nan, r.truth - r.null)
    return mean(np.abs((r.estimate - r.null) / effect), r.rejects & (r.truth != r.null))
