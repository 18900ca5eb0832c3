"""What logged responses say about a target: importance weights, overlap, typicality, log-likelihood checks.

Rule of this package: it imports `data`, `inference` and `calibration`.
"""
