"""The Bayesian arm: calibration, value and transport as posteriors, under the same estimate contract.

Rule of this package: it imports `data`, `inference` and `calibration`. Modules that sample by numba alone (here) and
those that only compute (`diagnostics`) import no PyMC: estimators import them at the top, and a study that fits
thousands of posteriors never pays for it. The modules of `models` do, and are imported inside the functions that need
them.
"""
