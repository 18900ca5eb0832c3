"""Correlations and roots of covariance matrices that may be singular, or NaN where an error is unknown."""

import numpy as np

from cje_core.checks import FloatArray


def correlations(covariance: FloatArray) -> FloatArray:
    """Compute the correlations (..., k, k) of errors: 0 with one that has no known spread, 1 with itself.

    Examples
    --------
    >>> correlations(np.array([[4.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])).tolist()
    [[1.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    scale = np.sqrt(np.einsum("...ii->...i", covariance))
    product = scale[..., :, None] * scale[..., None, :]
    out = np.divide(covariance, product, out=np.zeros_like(covariance), where=product > 0)
    return np.where(np.eye(covariance.shape[-1], dtype=bool), 1.0, out)


def covariance_root(covariance: FloatArray) -> FloatArray:
    """Compute a root B with ``B B' = covariance``, (k, k); row i belongs to variable i, so rows may be left out.

    Examples
    --------
    >>> root = covariance_root(np.array([[1.0, 1.0], [1.0, 1.0]]))
    >>> (root @ root.T).round(12).tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    size, axis = np.linalg.eigh(covariance)
    return np.asarray(axis * np.sqrt(np.maximum(size, 0.0)))
