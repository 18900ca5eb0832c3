"""The PyMC models and the engines that sample them.

Rule of this package: only `engines` imports PyMC, PyTensor, ArviZ and nutpie; what takes seconds to import is
imported inside functions elsewhere.
"""
