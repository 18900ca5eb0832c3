"""Target policies: what a logger becomes when it is pushed towards a reward.

Rule of this package: it imports `tokens` and `exact`.
"""
