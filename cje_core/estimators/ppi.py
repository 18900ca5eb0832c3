"""Prediction-powered mean: the judge's mean over unlabelled responses, rectified by the labelled ones.

Estimand: V(policy) = E[Y]. Formula: ``mean_U S + mean_L (Y - S)`` (Angelopoulos et al. 2023, a baseline of "Causal
Judge Evaluation"), S the judge score mapped affinely from ``judge_range`` to ``oracle_range``, L the policy's own
labels and U its unlabelled responses. With unequal ``label_prob`` the labelled mean is of Hajek form and U is all
responses (route ``all_rows``); so it is where fewer than 4 prompts are unlabelled.

``quantile="z"`` with ``interval="wald"`` is the interval of ppi-python. ``"t"`` (default) divides by n - 1 and takes
degrees of freedom that follow the labelled clusters, since with two dozen labels the normal interval falls short of its
level; ``interval="auto"`` (default) counts labels that are binary (`cje_core.families.intervals`).

Failure modes: a judge on the wrong scale, or a useless one, makes it wider than the labels alone (PPI++ repairs this);
it uses S as it is, so a nonlinear but informative judge is not exploited; no labels, no number.

Examples
--------
>>> import cje_sim
>>> data = cje_sim.simulate("weak_judge", n=300, oracle_fraction=0.25, rng=1)
>>> found = estimate(data)
>>> found["estimate"].to_series().round(3).to_dict()
{'base': 0.519, 'better': 0.589, 'slightly_better': 0.563, 'worse': 0.46}
>>> found["interval"].sel(policy="better").values.round(3).tolist()
[0.501, 0.674]
"""

import xarray as xr

from cje_core.calibration.calibrated import Calibrated, calibrated
from cje_core.checks import Rng
from cje_core.families.assemble import assemble
from cje_core.families.finish import Found, IntervalRule
from cje_core.families.prediction_powered import powered_means

NEEDS = {"judge", "oracle"}


def estimate(
    data: xr.Dataset | Calibrated,
    *,
    ci_prob: float = 0.95,
    rng: Rng = None,
    quantile: str = "t",
    interval: str = "auto",
) -> xr.Dataset:
    """Estimate each labelled policy's value by its prediction-powered mean; see the module and its package.

    Parameters
    ----------
    quantile : {"t", "z"}
        Reference distribution of the interval.
    """
    given = calibrated(data)
    found = find(given, ci_prob=ci_prob, rng=rng, quantile=quantile, interval=interval)
    return assemble(given.data, found, estimator="ppi", ci_prob=ci_prob)


def find(
    given: Calibrated, *, ci_prob: float, rng: Rng, quantile: str = "t", interval: str = "auto"
) -> Found:
    """The same on rows, before intervals."""
    del ci_prob, rng
    results, _ = powered_means(given, 1.0, quantile=quantile)
    rows = given.rows
    rule = IntervalRule(interval, rows.labelled & rows.evaluated)
    return Found(rows, results, {"quantile": quantile, "interval": interval}, rule)
