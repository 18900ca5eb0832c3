"""Formulas of one data set, on plain arrays: each is written once and called for each data set of a block.

Rule of this package: arrays only; of the project it imports `checks` and `compiled` alone.
"""
