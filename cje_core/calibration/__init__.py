"""From judge scores to oracle units: folds, isotonic regression, the oracle slice, and what its labels show.

Rule of this package: it imports `data` and `inference`.
"""
