"""Results so small that a reader checks a measure of them by hand: the examples of this folder are made of them."""

import numpy as np
import xarray as xr


def four_replicates() -> xr.Dataset:
    """Results of one cell: four replicates of one method at one policy of value .5, intervals .15 to either side.

    Examples
    --------
    >>> results = four_replicates()
    >>> results["estimate"].values.ravel().tolist(), dict(results.sizes)["replicate"]
    ([0.4, 0.6, 0.5, 0.7], 4)
    """
    dims, estimate = (
        ("n", "replicate", "method", "policy"),
        np.array([0.4, 0.6, 0.5, 0.7]).reshape(1, 4, 1, 1),
    )
    return xr.Dataset(
        {
            "estimate": (dims, estimate),
            "std_error": (dims, np.full_like(estimate, 0.1)),
            "interval": ((*dims, "ci_bound"), np.stack([estimate - 0.15, estimate + 0.15], axis=-1)),
            "truth": (("n", "replicate", "policy"), np.full((1, 4, 1), 0.5)),
            "status": (dims, np.zeros((1, 4, 1, 1), int)),
        },
        {"n": [100], "method": ["direct"], "policy": ["a"], "replicate": np.arange(4)},
        {"ci_prob": 0.95},
    )
