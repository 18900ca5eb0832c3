"""Estimators of policy values from cheap judge scores and few oracle labels.

Rule of this package: it depends on arrays and labels only (numpy, scipy, xarray, statsmodels, numba) and
knows neither the simulator nor the studies. ``data.py`` is the evaluation-data contract, ``result.py`` the
estimate contract; one file in ``estimators/`` is one estimator, and the directory is the registry.
"""

from cje_core import caches

caches.redirect()  # before anything imports numba, matplotlib, PyTensor or ArviZ
