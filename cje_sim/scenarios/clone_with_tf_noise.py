"""A clone whose recorded log-probabilities are wrong: low effective sample size without any policy shift.

The world of `cje_sim.scenarios.zipf_tilt` with a target that *is* the logger and one that is slightly tilted.
Each target's recorded log-likelihood carries an error e of `cje_sim.teacher_forcing` per response, by default
``N(-s^2/2, s^2)``, so that the recorded weight is ``W exp(e)`` with ``E[exp(e)] = 1`` and the limit of ESS/n is
``exp(-s^2)`` times that of the true weights. The default sd gives the clone the 26% of the paper's, which cannot
tell teacher-forcing error from lack of coverage; here the two causes are apart: `cje_sim.scenarios.zipf_tilt`
with the same seed has the exact log-likelihoods of the same responses. A share of rows may suffer a tokenizer
mismatch on top, and a share has no log-likelihood at all (NaN).

>>> (overlap().log10_ess.round(3) + 0.0).values.tolist()  # log10(.26) = -.585; base, clone, tilt_0.1
[0.0, -0.585, -0.699]
"""

from collections.abc import Mapping

import numpy as np
import xarray as xr

from cje_sim.labelling import LabelDesign
from cje_sim.scenarios import zipf_tilt
from cje_sim.teacher_forcing import Law, Noise, clone_log_limit_ess, observe, sd_for_ess

ETA = {"base": 0.0, "clone": 0.0, "tilt_0.1": 0.1}
NOISE_SD = sd_for_ess(0.26)


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
    noise_law: Law = "normal",
    mismatch: float = 0.0,
    mismatch_sd: float = 3.0,
    mismatch_offset: float = -3.0,
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
    noise_law : {"normal", "laplace", "student_t"}
        Law of that error. ``E[exp(e)] = 1`` but for Student's t, where no shift can bring it about.
    mismatch, mismatch_sd, mismatch_offset : float
        Share of rows, in [0, 1], with a tokenizer mismatch: another error ``N(offset, sd^2)``, not centred.
    missing : float
        Share of rows, in [0, 1], without a log-likelihood under a target.

    Returns
    -------
    xr.Dataset
    """
    rng = np.random.default_rng(rng)
    noises = _noises(noise_sd, noise_law, mismatch, mismatch_sd, mismatch_offset)
    noises.append(Noise("no log-likelihood", "missing", share=missing))
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
    recorded = data["logp_target"].values.copy()
    recorded[1:] = observe(recorded[1:], noises, rng=rng).log_prob
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
    noise_law: Law = "normal",
    mismatch: float = 0.0,
    mismatch_sd: float = 3.0,
    mismatch_offset: float = -3.0,
) -> xr.Dataset:
    """``log10_ess`` of the recorded weights, with ``true_log10_ess``, ``ttc`` and ``kl`` of the true ones.

    The difference of the two is what teacher forcing takes, ``true_log10_ess`` what coverage takes. Both are over
    the rows that are not missing.
    """
    true = zipf_tilt.overlap(
        vocab=vocab, alpha=alpha, length=length, eta=eta, utility=utility, utility_seed=utility_seed
    )
    limit = clone_log_limit_ess(_noises(noise_sd, noise_law, mismatch, mismatch_sd, mismatch_offset))
    lost = ("policy", np.where(np.arange(len(eta)) > 0, limit / np.log(10), 0.0))
    return true.rename(log10_ess="true_log10_ess").assign(log10_ess=true["log10_ess"] + xr.Variable(*lost))


def _noises(sd: float, law: Law, mismatch: float, mismatch_sd: float, mismatch_offset: float) -> list[Noise]:
    return [
        Noise("teacher-forcing noise", law, sd, unit_mean=law != "student_t"),
        Noise("tokenizer mismatch", sd=mismatch_sd, offset=mismatch_offset, share=mismatch),
    ]
