"""The Bayesian arm: calibration, value and transport as posteriors, under the same estimate contract.

Modules that sample by numba alone (`gibbs`, `value`, `projection`, the cut sampler of `transport`) import no PyMC, so a
study that fits thousands of posteriors never pays for it; `models` and `sampling` do. Nothing here is imported by the
rest of the package at import time.
"""
