"""Exact theory of token policies: sums, paths, Markov chains, divergences, typicality.

Rule of this package: it imports `tokens`.
"""
