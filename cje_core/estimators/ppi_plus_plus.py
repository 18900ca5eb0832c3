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

import xarray as xr

from cje_core.calibration.calibrated import Calibrated, calibrated
from cje_core.checks import Rng
from cje_core.families.assemble import assemble
from cje_core.families.finish import Found, IntervalRule
from cje_core.families.prediction_powered import powered_means

NEEDS = {"judge", "oracle"}
TUNING = ("tuned", "cross_fitted")


def estimate(
    data: xr.Dataset | Calibrated,
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
    given = calibrated(data)
    found = find(given, ci_prob=ci_prob, rng=rng, quantile=quantile, lam=lam, interval=interval)
    return assemble(given.data, found, estimator="ppi_plus_plus", ci_prob=ci_prob)


def find(
    given: Calibrated,
    *,
    ci_prob: float,
    rng: Rng,
    quantile: str = "t",
    lam: str | float = "tuned",
    interval: str = "auto",
) -> Found:
    """The same on rows, before intervals."""
    del ci_prob, rng
    if (lam not in TUNING) if isinstance(lam, str) else not 0 <= lam <= 1:
        raise ValueError(f"lam={lam!r}: use one of {', '.join(TUNING)} or a number in [0, 1]")
    rows, (results, used) = given.rows, powered_means(given, lam, quantile=quantile)
    options = {"quantile": quantile, "lam": lam, "interval": interval}
    rule = IntervalRule(interval, rows.labelled & rows.evaluated)
    return Found(rows, results, options, rule, extra={"lam": ("policy", used)})
