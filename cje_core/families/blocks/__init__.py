"""Estimators on many data sets of one shape at once (`cje_core.data.block`), compiled, for simulation studies.

The formulas are those of the estimators; every number equals theirs up to rounding, data set by data set
(``tests/core/families/test_blocks.py``). Rule of this package: as for `cje_core.families`.
"""
