"""Whether a posterior may be believed: simulation-based calibration, predictive checks, prior sensitivity.

Rule of this package: it imports the samplers of `cje_core.bayes`, and no PyMC.
"""
