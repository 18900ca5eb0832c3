"""Estimators of policy values from cheap judge scores and few oracle labels.

A first session::

    data = cje_core.read("responses/")                 # files or a table -> one xr.Dataset
    result = cje_core.analyze("responses/")            # estimates, audit, gates, differences, advice
    cje_core.compare(data, ["direct", "bayes_direct"])   # intervals side by side, one xr.Dataset
    cje_core.calibration_model(data)                   # the Bayesian calibration as a PyMC model of your own to change
    cje_core.plan("pilot/", budget=5000, cost_judge=0.01, cost_oracle=16)
    cje_core.Calibration(["response_length"])          # in another way: direct.estimate(data, calibration=...)
    cje_core.figures.forest(...)

``from cje_core.estimators import direct`` gives one estimator, ``cje_core.estimators.available()`` their names; worlds
with a known truth are in ``cje_sim``. Themes::

    data          the contract of evaluation data, construction, rows as arrays, cohorts
    io            files and tables that become evaluation data, one reader for each format
    inference     the contract of an estimate, standard errors, intervals, contrasts, ranks, compare
    calibration   folds, isotonic and two-stage calibrators, the oracle slice, reliability
    offpolicy     importance weights, overlap, typicality (TTC), log-likelihood checks, the cache of them
    transport     audits on probe labels, drift, sensitivity to a shift
    bayes         calibration, values and shifts as posteriors
    verdict       gates, refusals, the value that stands first, advice, the reporting ledger
    families      what estimators are assembled from
    estimators    one file is one estimator; the listing is the registry
    figures       functions of a result that return Axes
    planning      power, variance components, allocation, a plan tried out
    workflow      analyze and plan, values by cohort

Rule of this package: it depends on arrays and labels only (numpy, scipy, xarray, statsmodels, numba) and knows neither
the simulator nor the studies. Imports point up this list, never down it, and `tests/test_architecture.py` holds them:
of offpolicy, transport and bayes, of verdict and families, and of estimators and figures none imports the other.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cje_core.bayes.models.slice import calibration_model
    from cje_core.calibration.calibrated import Calibration, calibrated
    from cje_core.data import from_arrays
    from cje_core.io import from_frame
    from cje_core.io.files import read
    from cje_core.workflow.analyze import analyze
    from cje_core.workflow.compare import compare
    from cje_core.workflow.plan import plan

# Where the calls of a first session are; each is imported when it is first asked for.
_CALLS = {
    "read": "io.files",
    "from_frame": "io",
    "from_arrays": "data",
    "analyze": "workflow.analyze",
    "compare": "workflow.compare",
    "Calibration": "calibration.calibrated",
    "calibrated": "calibration.calibrated",
    "calibration_model": "bayes.models.slice",
    "plan": "workflow.plan",
}
_THEMES = (
    "data", "io", "inference", "calibration", "offpolicy", "transport", "bayes", "verdict", "families", "estimators",
    "planning", "workflow", "figures",
)  # fmt: skip

__all__ = [
    "Calibration", "analyze", "calibrated", "calibration_model", "compare", "from_arrays", "from_frame", "plan", "read",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _CALLS:
        return getattr(importlib.import_module(f"{__name__}.{_CALLS[name]}"), name)
    if name in _THEMES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; see help({__name__})")


def __dir__() -> list[str]:
    return sorted((*_CALLS, *_THEMES))
