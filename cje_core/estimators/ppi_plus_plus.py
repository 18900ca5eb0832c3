"""Power-tuned prediction-powered mean (PPI++): as much of the judge as it is worth.

Estimand: V(policy) = E[Y]. Formula: ``mean_L (Y - lambda S) + lambda mean_U S``, sets and scale as in
`cje_core.estimators.ppi`, with the lambda in [0, 1] of least variance, ``Cov_L(Y, S) / (Var(S) (1 + n / N))`` for n
labelled and N unlabelled responses: 0 returns the label mean, 1 is PPI.

``lam="tuned"`` fits lambda on the labels it is applied to (ppi-python's way; the same numbers with ``quantile="z"`` and
``interval="wald"``); its t interval spends one more degree of freedom on it. ``"cross_fitted"`` takes lambda from the
other folds, which removes the bias of order 1 / n. A number fixes it. Binary labels are counted (`_intervals`).

Failure modes: as `ppi`, but no wider than the labels alone beyond the noise of lambda; an inverted judge gets lambda 0
(it is ignored, not turned round).

Examples
--------
>>> import cje_sim
>>> data = cje_sim.simulate("weak_judge", n=300, oracle_fraction=0.25, rng=1)
>>> found = estimate(data)
>>> found["estimate"].to_series().round(3).to_dict()
{'base': 0.535, 'better': 0.588, 'slightly_better': 0.567, 'worse': 0.468}
>>> found["interval"].sel(policy="better").values.round(3).tolist()
[0.505, 0.667]
"""

from collections.abc import Iterable

import numpy as np
import xarray as xr

from cje_core.checks import Rng, one_of
from cje_core.data.arrays import unpack
from cje_core.data.block import Block
from cje_core.families.assemble import IntervalRule, assemble
from cje_core.families.blocks.estimates import BlockEstimate
from cje_core.families.blocks.prediction_powered import powered_block
from cje_core.families.prediction_powered import QUANTILES, oracle_units, powered_mean

NEEDS = {"judge", "oracle"}
TUNING = ("tuned", "cross_fitted")


def estimate(
    data: xr.Dataset,
    *,
    ci_prob: float = 0.95,
    rng: Rng = None,
    quantile: str = "t",
    lam: str | float = "tuned",
    interval: str = "auto",
) -> xr.Dataset:
    """Estimate each labelled policy's value by its power-tuned prediction-powered mean; see the module and its package.

    Parameters
    ----------
    quantile : {"t", "z"}
        Reference distribution of the interval.
    lam : {"tuned", "cross_fitted"} or float in [0, 1]
        How much of the judge enters.

    Returns
    -------
    And ``lam(policy)``, the (mean) lambda used.
    """
    del rng
    one_of(quantile, "quantile", QUANTILES)
    if (lam not in TUNING) if isinstance(lam, str) else not 0 <= lam <= 1:
        raise ValueError(f"lam={lam!r}: use one of {', '.join(TUNING)} or a number in [0, 1]")
    rows = unpack(data)
    score = oracle_units(data, rows.score)
    pairs = [powered_mean(rows, p, score, lam, quantile=quantile) for p in range(len(rows.policies))]
    results, used = zip(*pairs, strict=True)
    return assemble(
        data,
        rows,
        results,
        estimator="ppi_plus_plus",
        options={"quantile": quantile, "lam": lam, "interval": interval},
        ci_prob=ci_prob,
        rule=IntervalRule(interval, rows.labelled & rows.evaluated),
        extra={"lam": ("policy", used)},
    )


def estimate_block(
    block: Block,
    *,
    ci_prob: float,
    rngs: Iterable[np.random.Generator] = (),
    quantile: str = "t",
    lam: str | float = "tuned",
    interval: str = "auto",
) -> BlockEstimate | None:
    """The same for many data sets at once; None for a choice that has no compiled form."""
    del rngs
    if quantile != "t" or (isinstance(lam, str) and lam != "tuned"):
        return None
    fixed = None if isinstance(lam, str) else float(lam)
    return powered_block(block, lam=fixed, ci_prob=ci_prob, interval=interval)
