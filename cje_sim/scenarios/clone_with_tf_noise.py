"""A clone whose recorded log-probabilities are wrong: low effective sample size without any policy shift.

The world of `cje_sim.scenarios.zipf_tilt` with a target that *is* the logger and one that is slightly tilted.
Each target's recorded log-likelihood carries an error ``e ~ N(-s^2/2, s^2)`` per response, so that the
recorded weight is ``W exp(e)`` with ``E[exp(e)] = 1`` and the limit of ESS/n is ``exp(-s^2)`` times that of
the true weights. The default sd gives the clone the 26% of the paper's, which cannot tell teacher-forcing
error from lack of coverage; here the two causes are apart. A share of rows has no log-likelihood at all
(NaN).

>>> (overlap().log10_ess.round(3) + 0.0).values.tolist()  # log10(.26) = -.585; base, clone, tilt_0.1
[0.0, -0.585, -0.699]
"""

from collections.abc import Mapping

import numpy as np
import xarray as xr

from cje_sim.labelling import LabelDesign
from cje_sim.scenarios import zipf_tilt

ETA = {"base": 0.0, "clone": 0.0, "tilt_0.1": 0.1}
NOISE_SD = 1.1607  # exp(-NOISE_SD^2) = .26


def simulate(
    *,
    n: int = 1000,
    oracle_fraction: float = 0.25,
    label_design: LabelDesign = "own",
    label_scheme: str = "uniform",
    n_probes: int = 0,
    vocab: int = 1000,
    alpha: float = 1.2,
    length: int = 50,
    eta: Mapping[str, float] = ETA,
    utility: str = "iid",
    utility_seed: int = 0,
    noise_sd: float = NOISE_SD,
    missing: float = 0.01,
    spread: float = 0.9,
    atoms: float = 0.05,
    rng: np.random.Generator | int | None = None,
) -> xr.Dataset:
    """Evaluation data on n prompts, with logged data and surprisal.

    Parameters
    ----------
    n, oracle_fraction, label_design, label_scheme, n_probes, spread, atoms, rng
        As in `cje_sim.scenarios.well_specified.simulate`.
    vocab, alpha, length, eta, utility, utility_seed
        As in `cje_sim.scenarios.zipf_tilt.simulate`.
    noise_sd : float
        s, sd of the error of a target's log-likelihood, nats per response; the logger's is exact.
    missing : float
        Share of rows, in [0, 1], without a log-likelihood under a target.

    Returns
    -------
    xr.Dataset
    """
    rng = np.random.default_rng(rng)
    if not noise_sd >= 0:
        raise ValueError(f"noise_sd={noise_sd}; it must be >= 0")
    if not 0 <= missing <= 1:
        raise ValueError(f"missing={missing}; a share lies in [0, 1]")
    data = zipf_tilt.simulate(
        n=n,
        oracle_fraction=oracle_fraction,
        label_design=label_design,
        label_scheme=label_scheme,
        n_probes=n_probes,
        vocab=vocab,
        alpha=alpha,
        length=length,
        eta=eta,
        utility=utility,
        utility_seed=utility_seed,
        spread=spread,
        atoms=atoms,
        rng=rng,
    )
    recorded = data["logp_target"].values + rng.normal(-(noise_sd**2) / 2, noise_sd, (len(eta), n))
    recorded[rng.random(recorded.shape) < missing] = np.nan
    recorded[0] = data["logp_logger"].values
    return data.assign(logp_target=(("policy", "prompt"), recorded))


def truth(
    *,
    vocab: int = 1000,
    alpha: float = 1.2,
    length: int = 50,
    eta: Mapping[str, float] = ETA,
    utility: str = "iid",
    utility_seed: int = 0,
) -> xr.DataArray:
    """``V(policy)``, a sum over the vocabulary: recorded log-probabilities do not enter."""
    return zipf_tilt.truth(
        vocab=vocab, alpha=alpha, length=length, eta=eta, utility=utility, utility_seed=utility_seed
    )


def overlap(
    *,
    vocab: int = 1000,
    alpha: float = 1.2,
    length: int = 50,
    eta: Mapping[str, float] = ETA,
    utility: str = "iid",
    utility_seed: int = 0,
    noise_sd: float = NOISE_SD,
) -> xr.Dataset:
    """``log10_ess`` of the recorded weights, with ``true_log10_ess``, ``ttc`` and ``kl`` of the true ones."""
    true = zipf_tilt.overlap(
        vocab=vocab, alpha=alpha, length=length, eta=eta, utility=utility, utility_seed=utility_seed
    )
    noisy = np.arange(len(eta)) > 0
    loss = ("policy", np.where(noisy, noise_sd**2 / np.log(10), 0.0))
    return true.rename(log10_ess="true_log10_ess").assign(log10_ess=true["log10_ess"] - xr.Variable(*loss))
