"""Direct: the fit of one policy, borrowed labels, power tuning, and the bootstrap with its kernels.

Rule of this package: as for `cje_core.families`.
"""
