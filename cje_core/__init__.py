"""Estimators of policy values from cheap judge scores and few oracle labels.

Rule of this package: it depends on arrays and labels only (numpy, scipy, xarray, statsmodels, numba) and knows neither
the simulator nor the studies. Its folders are themes, and imports point from the right to the left::

    streams <- data <- inference <- calibration <- offpolicy, transport, bayes <- verdict, families <- estimators
            <- planning <- workflow                                            (figures read results only)

``data`` holds the evaluation-data contract, ``inference.estimate`` the estimate contract; one file in ``estimators`` is
one estimator, and the directory is the registry.
"""

from cje_core import caches

caches.redirect()  # before anything imports numba, matplotlib, PyTensor or ArviZ
