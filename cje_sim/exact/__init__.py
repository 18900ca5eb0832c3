"""Exact theory of token policies: sums, paths, Markov chains, divergences, typicality, rare events.

Rule of this package: it imports `tokens`.
"""
