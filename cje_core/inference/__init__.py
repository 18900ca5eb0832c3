"""The estimate and what is inferred from it: standard errors, intervals, contrasts, ranks.

Rule of this package: arrays and estimates only; of the project it imports `data`, `formulas` and `checks` alone.
"""
