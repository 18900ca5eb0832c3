"""The Bayesian arm: calibration, value and transport as posteriors, under the same estimate contract.

Modules that sample by numba alone (`splines`, `levels`, `gibbs`, `value`, `projection`, `transport`, `rogan_gladen`)
and those that only compute (`checks`, `decide`, `sbc`, `sensitivity`) import no PyMC: estimators import them at the
top, and a study that fits thousands of posteriors never pays for it. `models`, `policy_models`, `sampling` and `fits`
do import it, and are imported inside the functions that need them.
"""
