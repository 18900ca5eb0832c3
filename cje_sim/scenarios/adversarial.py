"""A policy that games the judge: a share of its responses scores high and is worth little.

Ordinary responses have ``S ~ Kumaraswamy(a_p, b_p)`` and ``E[Y | S] = oracle_mean(S)``. A response of the
policy `attacker` is a hack with probability `share`; then ``S ~ Kumaraswamy(hack_law)``, near 1, and ``E[Y |
S]`` is `hack_mean` whatever S. So the attacker's E[Y | S] falls where scores are highest, and the base
calibrator overrates it by ``share * (E[f(S) | hack] - hack_mean)``.
"""

from collections.abc import Mapping

import numpy as np
import xarray as xr

from cje_sim.judges import draw_oracle, expected_over_scores, oracle_mean, prompt_uniforms, score_quantile
from cje_sim.labelling import LabelDesign, label

SCORE_LAW = {"base": (3.0, 2.0), "honest": (3.4, 1.8), "adversarial": (3.0, 2.0)}
HACK_LAW = (12.0, 1.5)


def simulate(
    *,
    n: int = 1000,
    oracle_fraction: float = 0.25,
    label_design: LabelDesign = "base",
    label_scheme: str = "uniform",
    n_probes: int = 0,
    score_law: Mapping[str, tuple[float, float]] = SCORE_LAW,
    attacker: str = "adversarial",
    share: float = 0.5,
    hack_law: tuple[float, float] = HACK_LAW,
    hack_mean: float = 0.15,
    spread: float = 0.9,
    atoms: float = 0.05,
    prompt_corr: float = 0.3,
    rng: np.random.Generator | int | None = None,
) -> xr.Dataset:
    """Evaluation data on n prompts.

    Parameters
    ----------
    n, oracle_fraction, label_design, label_scheme, n_probes, score_law, spread, atoms, prompt_corr, rng
        As in `cje_sim.scenarios.well_specified.simulate`.
    attacker : str
        The policy that games the judge.
    share : float
        Share of its responses that are hacks, in [0, 1].
    hack_law : pair of float
        Score law of hacks.
    hack_mean : float
        Mean oracle value of a hack, in [0, 1].

    Returns
    -------
    xr.Dataset
    """
    rng = np.random.default_rng(rng)
    if attacker not in score_law:
        raise ValueError(f"attacker={attacker!r} is no policy; there are: {', '.join(score_law)}")
    a, b = np.array(list(score_law.values())).T[:, :, None]
    u = prompt_uniforms((len(score_law), n), rng, prompt_corr)
    suspects = np.array([[policy == attacker] for policy in score_law])
    hack = suspects & (rng.random(u.shape) < share)
    judge = np.where(hack, score_quantile(u, *hack_law), score_quantile(u, a, b))
    mean = np.where(hack, hack_mean, oracle_mean(judge))
    oracle = draw_oracle(mean, rng.random(u.shape), spread=spread, atoms=atoms)
    return label(
        judge,
        oracle,
        list(score_law),
        fraction=oracle_fraction,
        design=label_design,
        scheme=label_scheme,
        n_probes=n_probes,
        rng=rng,
    )


def truth(
    *,
    score_law: Mapping[str, tuple[float, float]] = SCORE_LAW,
    attacker: str = "adversarial",
    share: float = 0.5,
    hack_mean: float = 0.15,
) -> xr.DataArray:
    """``V = E[oracle_mean(S)]``, for the attacker mixed with `share` of `hack_mean`.

    Examples
    --------
    >>> truth().round(3).values.tolist()
    [0.697, 0.748, 0.424]
    """
    honest = {policy: expected_over_scores(oracle_mean, a, b) for policy, (a, b) in score_law.items()}
    values = [
        (1 - share) * v + share * hack_mean if policy == attacker else v for policy, v in honest.items()
    ]
    return xr.DataArray(values, coords={"policy": list(score_law)}, name="truth")
