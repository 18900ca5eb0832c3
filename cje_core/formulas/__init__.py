"""Statistical formulas, each written once on the arrays of one data set.

Rule of this package: plain arrays in and out; no labels, no names of policies, no checks of input.
"""
