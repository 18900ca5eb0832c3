"""Compile ahead what analyses call, so that nobody's first one waits for it: ``python -m cje_core.workflow.warm_up``.

Numba keeps what it compiles for the types it has seen, so the way to compile an analysis is to run one: made-up data
with a covariate, labels, probes and logs, once with graded and once with binary labels, with and without a posterior.
Installation does this (``make install``); without it the first call of each kind takes seconds longer, and no number
differs.
"""

import numpy as np
import xarray as xr

from cje_core.calibration.calibrated import Calibration
from cje_core.data.build import from_arrays
from cje_core.estimators.direct import Bootstrap, estimate
from cje_core.workflow.analyze import analyze

N = 1200  # prompts of two policies: more distinct scores than are pooled without compiled code


def made_up(binary: bool) -> xr.Dataset:
    """Evaluation data of two policies that hold all that an analysis can take."""
    rng = np.random.default_rng(1)
    judge, length = rng.random((2, N)), rng.random((2, N))
    worth = np.clip(0.6 * judge + 0.2 * length + 0.1 * rng.standard_normal((2, N)), 0.0, 1.0)
    label = (rng.random((2, N)) < worth).astype(float) if binary else worth
    seen, probe = np.zeros((2, N), dtype=bool), np.zeros((2, N), dtype=bool)
    seen[0, :300], probe[1, 300:360] = True, True
    logp = -rng.random((2, N)) - 20.0
    return from_arrays(
        judge,
        policies=["base", "target"],
        oracle=np.where(seen | probe, label, np.nan),
        probe=probe,
        covariate=length[..., None],
        features=["length"],
        logged={
            "logp_target": logp,
            "logp_logger": logp[0],
            "n_tokens": np.full(N, 20.0),
            "logged_judge": judge[0],
            "logged_covariate": length[0][:, None],
        },
    )


def main() -> None:
    """Run the analyses."""
    for binary in (False, True):
        data = made_up(binary)
        analyze(data, bayes="gibbs")
        analyze(data, calibration=Calibration(["length"]), bayes="gibbs")
        estimate(data, inference=Bootstrap(n=20), power_tuned=False)


if __name__ == "__main__":
    main()
