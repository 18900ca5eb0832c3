"""Statistical formulas, each written once on the arrays of one data set, and called for each data set of a block.

Rule of this package: plain arrays in and out; no labels, no names of policies, no checks of input. Of the project it
imports `checks` and `compiled` alone.
"""
