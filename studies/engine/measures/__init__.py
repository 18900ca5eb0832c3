"""Performance measures of a simulation study, each with its Monte Carlo standard error (MCSE).

Measures are those of Morris, White and Crowther (2019), Table 6, the interval score of Gneiting and Raftery (2007), the
errors of sign and magnitude of Gelman and Carlin (2014), and what is needed to tell refusals from misses. A measure is
one function with the decorator `measure` in one of the modules here, and `REGISTRY` holds its name, formula and source:
there is no second place to enter it. Each is a smooth function of means over replicates, so each has an influence value
per replicate, see `studies.engine.measures.replicates`. That equals Morris et al.'s MCSE for bias, MSE, model SE and
width, and theirs with n - 1 for n for coverage. For the empirical SE and the SE calibration it keeps the fourth moment
and the correlation that their formulas take from the Normal distribution.

A cell is (factors, method, policy), a policy being a value or a difference; `performance` computes every number that a
report, plot, table or sentence shows of it. An average over policies names them, and values and differences are never
averaged together.

The replicate is the unit: averaging a measure over policies averages influence values, so the correlation between the
policies of one replicate is kept; where the replicate is not the unit, `performance` takes the unit and jackknifes. A
method without any interval has NaN for the interval measures. Coverage is that of the intervals printed; beside it
stand the shares of runs that were refused one by rule and that failed.

Rule of this package: results go in, numbers come out; no measure knows a study, a method or a file by name.
"""

from studies.engine.measures import estimates, intervals, rejections, responses  # noqa: F401 (they fill REGISTRY)
from studies.engine.measures.bounds import MC_LEVEL, clopper_pearson, flat_error, share_error
from studies.engine.measures.paired import paired_table
from studies.engine.measures.performance import compute, estimand_kind, performance, pooled_parts
from studies.engine.measures.replicates import REGISTRY, Measure
from studies.engine.measures.tables import (
    REFUSALS,
    by_estimand,
    cell_table,
    long_table,
    side_by_side,
    summary_table,
)

MEASURES = tuple(REGISTRY)
PROPORTIONS = tuple(name for name, one in REGISTRY.items() if one.kind == "proportion")

__all__ = [
    "MC_LEVEL",
    "MEASURES",
    "PROPORTIONS",
    "REFUSALS",
    "REGISTRY",
    "Measure",
    "by_estimand",
    "cell_table",
    "clopper_pearson",
    "compute",
    "estimand_kind",
    "flat_error",
    "long_table",
    "paired_table",
    "performance",
    "pooled_parts",
    "share_error",
    "side_by_side",
    "summary_table",
]
