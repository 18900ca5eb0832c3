"""Worlds whose truth is known exactly.

Rule of this package: of ``cje_core`` it may import ``cje_core.data`` only, so that no truth can depend on an
estimator. Truth comes from enumeration, convolution or closed form; Monte Carlo only where nothing else exists,
and then with its error.
"""
