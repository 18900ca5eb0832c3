"""A judge that knows nothing: S and Y are independent under every policy.

``S ~ Kumaraswamy(a_p, b_p)``, ``E[Y | S] = v_p``. By default the judge even orders the policies the wrong way
round, so the raw mean and a calibrator borrowed from the base are both wrong, while an estimator that uses
each policy's own labels should be as good as those labels alone, no better and no worse.
"""

from collections.abc import Mapping

import numpy as np
import xarray as xr

from cje_sim.judges import draw_oracle, prompt_uniforms, score_quantile
from cje_sim.labelling import LabelDesign, label

POLICIES = {"base": (3.0, 2.0, 0.55), "better": (2.5, 2.2, 0.65), "worse": (3.5, 1.8, 0.45)}


def simulate(
    *,
    n: int = 1000,
    oracle_fraction: float = 0.25,
    label_design: LabelDesign = "own",
    label_scheme: str = "uniform",
    n_probes: int = 0,
    policies: Mapping[str, tuple[float, float, float]] = POLICIES,
    spread: float = 0.9,
    atoms: float = 0.3,
    prompt_corr: float = 0.3,
    rng: np.random.Generator | int | None = None,
) -> xr.Dataset:
    """Evaluation data on n prompts.

    Parameters
    ----------
    n, oracle_fraction, label_design, label_scheme, n_probes, spread, atoms, prompt_corr, rng
        As in `cje_sim.scenarios.well_specified.simulate`.
    policies : mapping of policy to (a, b, v)
        Score law and value; the first is the base policy.

    Returns
    -------
    xr.Dataset
    """
    rng = np.random.default_rng(rng)
    a, b, value = np.array(list(policies.values())).T[:, :, None]
    judge = score_quantile(prompt_uniforms((len(policies), n), rng, prompt_corr), a, b)
    oracle = draw_oracle(value, rng.random(judge.shape), spread=spread, atoms=atoms)
    return label(
        judge,
        oracle,
        list(policies),
        fraction=oracle_fraction,
        design=label_design,
        scheme=label_scheme,
        n_probes=n_probes,
        true_reward=np.broadcast_to(value, judge.shape),
        rng=rng,
    )


def truth(*, policies: Mapping[str, tuple[float, float, float]] = POLICIES) -> xr.DataArray:
    """``V(policy) = v_p``, a parameter.

    Examples
    --------
    >>> truth().values.tolist()
    [0.55, 0.65, 0.45]
    """
    return xr.DataArray([v for _, _, v in policies.values()], coords={"policy": list(policies)}, name="truth")
