"""The rows of the main table of "Causal Judge Evaluation", as estimators of this package with their options.

`paper_mode` runs them on data as the paper does: folds ``hash(id) mod 5`` and, for its algorithm Bootstrap-Direct, 30
labels in every resample. Both are options, since both have defects that this package's defaults mend: plain hashing
leaves folds unequal or without labels, and with a dozen labels no resample is ever valid.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import xarray as xr

from cje_core.calibration.calibrated import Calibration
from cje_core.checks import one_of
from cje_core.data import DataError
from cje_core.estimators import load
from cje_core.families.direct.bootstrap import N_MIN, Bootstrap
from cje_core.io.fields import LENGTH
from cje_core.streams import generator

_COVARIATES = {"calibration": Calibration(("response_length",))}
_PLUG_IN = {"correction": "none", "inference": "jackknife", "interval": "normal"}
_LOGGED = {"inference": "jackknife", "interval": "wald"}
_STACK = _LOGGED | {"columns": "sampling", "members": ("dr_cpo", "tmle", "mrdr")}

# The 13 rows of the table "Accuracy & Uncertainty Metrics" of "Causal Judge Evaluation", in its order and by its names:
# module and the options that give the paper's mode. Rows "+cov" use the two-stage calibrator with response length.
# These are the paper's intervals, kept for comparison, and not this package's: on resampled real labels the nominal 95%
# of "direct" (delete-one-fold jackknife, normal quantile) cover 89%, where `direct`'s default covers 95.1 +- .4%.
PAPER: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "naive-direct": ("raw_judge", {"interval": "wald"}),
    "direct": ("direct", _PLUG_IN),
    "direct+cov": ("direct", _PLUG_IN | _COVARIATES),
    "SNIPS": ("snips", {**_LOGGED, "clip": 100.0}),
    "SNIPS+cov": ("snips", {**_LOGGED, "clip": 100.0} | _COVARIATES),
    "calibrated-ips": ("calibrated_ips", _LOGGED),
    "calibrated-ips+cov": ("calibrated_ips", _LOGGED | _COVARIATES),
    "dr-cpo": ("dr_cpo", _LOGGED),
    "dr-cpo+cov": ("dr_cpo", _LOGGED | _COVARIATES),
    "calibrated-dr-cpo": ("calibrated_dr_cpo", _LOGGED),
    "calibrated-dr-cpo+cov": ("calibrated_dr_cpo", _LOGGED | _COVARIATES),
    "stacked-dr": ("stacked_dr", _STACK),
    "stacked-dr+cov": ("stacked_dr", _STACK | _COVARIATES),
}


# The paper's algorithm Bootstrap-Direct with its corrected estimator, of which the table has no row.
ALGORITHMS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "bootstrap-direct": (
        "direct",
        {
            "correction": "theta_aug",
            "power_tuned": False,
            "borrowed": "plug_in",
            "inference": Bootstrap(n_min=N_MIN),
        },
    ),
}


def paper_estimator(
    name: str, *, folds: str = "dealt", n_min: int | None = N_MIN
) -> tuple[ModuleType, dict[str, Any]]:
    """Module and options of one row of the paper's table of 13 estimators, by the paper's name (`PAPER`).

    ``module.estimate(data, **options)`` is that row. `ALGORITHMS` count too.

    Parameters
    ----------
    folds : {"dealt", "hash"}
        Cross-fitting folds: this package's, balanced over the labels, or the paper's ``hash(id) mod 5``.
    n_min : int, optional
        Fewest labels in a resample of ``bootstrap-direct``; None: as `cje_core.families.direct.bootstrap.Bootstrap`.

    Examples
    --------
    >>> module, options = paper_estimator("SNIPS")
    >>> module.__name__.split(".")[-1], options["clip"]
    ('snips', 100.0)
    """
    rows = {**PAPER, **ALGORITHMS}
    if name not in rows:
        raise ValueError(f"the paper has no estimator named {name!r}; it has: {', '.join(rows)}")
    module, given = rows[name]
    options = dict(given)
    if folds != "dealt" and name != "naive-direct":
        options["calibration"] = replace(options.get("calibration", Calibration()), folds=folds)
    if isinstance(options.get("inference"), Bootstrap):
        options["inference"] = replace(options["inference"], n_min=n_min)
    return load(module), options


def paper_mode(
    data: xr.Dataset,
    chosen: Sequence[str] = (),
    *,
    folds: str = "hash",
    n_min: int | None = N_MIN,
    seed: int = 1,
) -> dict[str, xr.Dataset]:
    """Estimates of the paper's rows, in the paper's mode.

    Parameters
    ----------
    data : xr.Dataset
        Evaluation data.
    chosen : sequence of str
        Rows of `PAPER` and `ALGORITHMS`. Default: all that the data can fill; rows "+cov" take a covariate
        ``response_length``.
    folds, n_min
        As in `paper_estimator`.
    seed : int
        Root of the rows' named streams.

    Returns
    -------
    dict of xr.Dataset
        The estimates by row, in the paper's order.
    """
    rows = [*PAPER, *ALGORITHMS]
    for name in chosen:
        one_of(name, "row", rows, DataError)
    one_of(folds, "folds", ("dealt", "hash"), DataError)
    if n_min is not None and n_min < 1:
        raise DataError(f"n_min={n_min}: a resample needs at least one label")
    features = data["feature"].values.astype(str).tolist() if "feature" in data.coords else []
    found = {}
    for name in rows:
        module, options = paper_estimator(name, folds=folds, n_min=n_min)
        lacking = sorted(set(module.NEEDS) - set(data))
        lacking += [LENGTH] if name.endswith("+cov") and LENGTH not in features else []
        if lacking and name in chosen:
            raise DataError(
                f"row={name!r}: it needs {lacking[0]}, which the data have not; add it or leave the row out"
            )
        if not lacking and (not chosen or name in chosen):
            found[name] = module.estimate(data, rng=generator(seed, "paper", name), **options)
    return found
