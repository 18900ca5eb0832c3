"""The favourable case: one monotone link for all policies, and a judge on the wrong scale.

``S ~ Kumaraswamy(a_p, b_p)`` per policy, ``E[Y | S] = oracle_mean(S, link)`` for every policy, so a
calibrator that is learned under one policy is right for all of them (the transport condition of "Causal Judge
Evaluation" holds exactly). The judge is far from the oracle on average, so an interval around the raw judge
mean should never cover. Scores of one prompt are correlated across policies; given S, labels are independent.

With `grid` the judge rounds what it reports. The truth stays; E[Y | reported score] is then the mean of the
link over a cell, which differs a little between policies (`cje_sim.judges.cell_means`).
"""

from collections.abc import Mapping

import numpy as np
import xarray as xr

from cje_sim.judges import (
    GRIDS,
    LINKS,
    draw_oracle,
    expected_over_scores,
    oracle_mean,
    prompt_uniforms,
    report,
    score_quantile,
)
from cje_sim.labelling import LabelDesign, label

SCORE_LAW = {"base": (3.0, 2.0), "better": (4.0, 1.6), "slightly_better": (3.2, 1.9), "worse": (2.0, 3.0)}


def simulate(
    *,
    n: int = 1000,
    oracle_fraction: float = 0.25,
    label_design: LabelDesign = "own",
    label_scheme: str = "uniform",
    n_probes: int = 0,
    score_law: Mapping[str, tuple[float, float]] = SCORE_LAW,
    link: str = "sigmoid",
    low: float = 0.05,
    high: float = 0.7,
    spread: float = 0.9,
    atoms: float = 0.05,
    prompt_corr: float = 0.3,
    grid: str | None = None,
    rng: np.random.Generator | int | None = None,
) -> xr.Dataset:
    """Evaluation data on n prompts.

    Parameters
    ----------
    n : int
        Prompts; each policy answers each once.
    oracle_fraction : float
        Share of prompts with oracle labels.
    label_design : {"own", "base"}
        Labels under every policy, or under the base policy only.
    label_scheme, n_probes
        Which prompts are labelled, and the number of probe labels, see `cje_sim.labelling`.
    score_law : mapping of policy to (a, b)
        Kumaraswamy law of its judge scores; the first is the base policy.
    link, low, high
        Shape of ``E[Y | S]``, see `cje_sim.judges.oracle_mean`.
    spread, atoms
        Noise of the labels, see `cje_sim.judges.draw_oracle`.
    prompt_corr : float
        Correlation, on the normal scale, between the judge scores of one prompt under two policies.
    grid : str, optional
        Reporting scale of the judge, one of `cje_sim.judges.GRIDS`.
    rng : Generator, int or None
        Source of randomness.

    Returns
    -------
    xr.Dataset
    """
    rng = np.random.default_rng(rng)
    a, b = np.array(list(score_law.values())).T[:, :, None]
    judge = score_quantile(prompt_uniforms((len(score_law), n), rng, prompt_corr), a, b)
    mean = oracle_mean(judge, link, low, high)
    oracle = draw_oracle(mean, rng.random(judge.shape), spread=spread, atoms=atoms)
    return label(
        report(judge, grid) if grid else judge,
        oracle,
        list(score_law),
        fraction=oracle_fraction,
        design=label_design,
        scheme=label_scheme,
        n_probes=n_probes,
        judge_range=GRIDS[grid][:2] if grid else (0.0, 1.0),
        true_reward=None if grid else mean,  # rounding mixes scores, and with them E[Y | S], policy by policy
        rng=rng,
    )


def truth(
    *,
    score_law: Mapping[str, tuple[float, float]] = SCORE_LAW,
    link: str = "sigmoid",
    low: float = 0.05,
    high: float = 0.7,
) -> xr.DataArray:
    """``V(policy) = E[oracle_mean(S)]``, by quadrature.

    Examples
    --------
    >>> truth().round(3).values.tolist()
    [0.507, 0.586, 0.527, 0.336]
    """
    kinks = LINKS[link][1] if link in LINKS else ()
    values = [
        expected_over_scores(lambda s: oracle_mean(s, link, low, high), a, b, kinks)
        for a, b in score_law.values()
    ]
    return xr.DataArray(values, coords={"policy": list(score_law)}, name="truth")
