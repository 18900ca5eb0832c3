"""A judge that reports only a coarse cell of what it saw: nested information, one truth.

A fine score ``S ~ Kumaraswamy(a_p, b_p)`` carries ``E[Y | S] = oracle_mean(S)``; the judge reports
``garble(S, bits)``, one of 2^bits cells. Fewer bits are a coarser sigma-field inside the finer one (the
paper's corollary on Blackwell ordering: variance bounds can only grow). Within a cell policies differ in
where their scores lie, so E[Y | report] differs between policies: garbling costs transport too. See
`cje_sim.judges.cell_means`.
"""

from collections.abc import Mapping

import numpy as np
import xarray as xr

from cje_sim.judges import (
    draw_oracle,
    expected_over_scores,
    garble,
    oracle_mean,
    prompt_uniforms,
    score_quantile,
)
from cje_sim.labelling import LabelDesign, label

SCORE_LAW = {"base": (3.0, 2.0), "better": (3.6, 1.8), "worse": (2.4, 2.4)}


def simulate(
    *,
    n: int = 1000,
    oracle_fraction: float = 0.25,
    label_design: LabelDesign = "own",
    label_scheme: str = "uniform",
    n_probes: int = 0,
    score_law: Mapping[str, tuple[float, float]] = SCORE_LAW,
    bits: int = 2,
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
    bits : int
        The judge reports one of ``2^bits`` cells; the same seed gives the same fine scores and labels at any
        `bits`.

    Returns
    -------
    xr.Dataset
    """
    rng = np.random.default_rng(rng)
    a, b = np.array(list(score_law.values())).T[:, :, None]
    fine = score_quantile(prompt_uniforms((len(score_law), n), rng, prompt_corr), a, b)
    oracle = draw_oracle(oracle_mean(fine), rng.random(fine.shape), spread=spread, atoms=atoms)
    return label(
        garble(fine, bits),
        oracle,
        list(score_law),
        fraction=oracle_fraction,
        design=label_design,
        scheme=label_scheme,
        n_probes=n_probes,
        rng=rng,
    )


def truth(*, score_law: Mapping[str, tuple[float, float]] = SCORE_LAW) -> xr.DataArray:
    """``V(policy) = E[oracle_mean(S)]``, by quadrature; what the judge reports does not enter.

    Examples
    --------
    >>> truth().round(3).values.tolist()
    [0.697, 0.763, 0.59]
    """
    values = [expected_over_scores(oracle_mean, a, b) for a, b in score_law.values()]
    return xr.DataArray(values, coords={"policy": list(score_law)}, name="truth")
