"""What is asked of an analysis, checked, and the data that it starts from."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Unpack

import pandas as pd
import xarray as xr

from cje_core import estimators
from cje_core.calibration.calibrated import Calibrated, Calibration, calibrated
from cje_core.checks import one_of
from cje_core.data import DataError
from cje_core.families.direct.fit import BORROWED
from cje_core.transport.margin import harmless_margin
from cje_core.workflow.reading.given import Given, Reading, has_logs, oracle_scale, taken

# What a missing ingredient is called where the user can add it.
INGREDIENTS = {
    **dict.fromkeys(("logp_target", "logp_logger", "logged_judge"), "logged=FILE"),
    "covariate": "covariates=NAME",
}
WORDS = dict.fromkeys(
    ("logp_target", "logp_logger", "logged_judge"), "logged responses"
)  # for who never saw them


class Asked(NamedTuple):
    """What an analysis was asked for, checked."""

    names: Sequence[str]  # estimators, in the order of the output
    margin: float  # oracle units
    target_mde: float | None
    borrowed: str
    bayes: str | None
    seed: int
    groups: Sequence[str]  # variables over prompts


class Ready(NamedTuple):
    """What an analysis starts from."""

    given: Calibrated
    left_out: pd.DataFrame
    asked: Asked
    joined: Callable[[Mapping[str, xr.Dataset]], dict[str, xr.Dataset]] = (
        dict  # see `cje_core.workflow.reading.given.Taken`
    )


@contextmanager
def prepare(
    path: Given,
    *,
    calibration: Calibration | None = None,
    chosen: Sequence[str] = (),
    margin: float | None = None,
    target_mde: float | None = None,
    borrowed: str = "spline",
    bayes: str | bool | None = None,
    seed: int = 1,
    judge_model: str | None = None,
    **reading: Unpack[Reading],
) -> Iterator[Ready]:
    """Read, and check what is asked for; arguments and errors of `analyze`.

    What the estimates of pooled data lack (`cje_core.workflow.reading.given.taken`) can be had inside the context only.
    """
    logs, scale = has_logs(path, reading), oracle_scale(path, reading)
    calibration = calibration or Calibration()
    names = list(dict.fromkeys(chosen or estimators.offered("always", *["logs"] * logs)))
    modules = {}
    for name in names:
        if name not in estimators.available():
            raise DataError(
                f"chosen={name!r}: no such estimator; there are {', '.join(estimators.available())}"
            )
        modules[name] = estimators.load(name)
    one_of(borrowed, "borrowed", BORROWED, DataError)
    if isinstance(bayes, bool):
        bayes = "gibbs" if bayes else None
    if bayes is not None:
        from cje_core.families.posterior import ENGINES  # samplers and what they need of SciPy: .15 s

        one_of(bayes, "bayes", ENGINES, DataError)
    balances = borrowed in (
        "spline",
        "balanced",
    )  # with covariates or groups the first gives way to the second
    if calibration.covariates and calibration.mode == "monotone" and not balances and bayes is None:
        raise DataError(
            f"calibrator={calibration.mode!r}: it sees the judge's score alone, and borrowed={borrowed!r} balances "
            "nothing, so the covariates would not be used; leave them out, or take another calibrator"
        )
    if calibration.groups is not None and not balances:
        raise DataError(
            f"subgroup={calibration.groups!r}: a calibrator with groups goes with balanced borrowing; leave "
            f"borrowed={borrowed!r} or the groups out"
        )
    harmless = harmless_margin(margin, scale, DataError)
    groups = list(dict.fromkeys(reading.get("groups", ())))
    if calibration.groups is not None:
        reading["groups"] = [*groups, calibration.groups]
    if target_mde is not None and not (math.isfinite(target_mde) and target_mde > 0):
        raise DataError(f"target_mde={target_mde:g}: it must be positive and finite")
    needs = _needs_rows(calibration, names, bayes)
    with taken(path, calibration.features, needs, **reading) as source:
        data = source.data if judge_model is None else source.data.assign_attrs(judge_model=judge_model)
        if data["probe"].any():  # they are a policy's own labels, and make its value
            also = filter(None, map(estimators.corrector, names))
            modules |= {name: estimators.load(name) for name in also}
        for name, module in modules.items():
            for need in sorted(set(module.NEEDS) - set(data)):
                raise DataError(
                    f"chosen={name!r}: it needs {WORDS.get(need, need)}; "
                    f"give {INGREDIENTS.get(need, 'data that has it')}"
                )
        asked = Asked(list(modules), harmless, target_mde, borrowed, bayes, seed, groups)
        yield Ready(calibrated(data, calibration), source.left_out, asked, source.joined)


def _needs_rows(calibration: Calibration, names: Sequence[str], bayes: str | None) -> str | None:
    """What, of what is asked for, needs every row in memory; None if nothing does."""
    if calibration.covariates:
        return f"covariates={calibration.covariates[0]!r}"
    if calibration.first_stage is not None:
        return "first_stage"
    if calibration.groups is not None:
        return f"subgroup={calibration.groups!r}"
    if calibration.mode not in ("default", "monotone"):
        return f"calibrator={calibration.mode!r}"
    if bayes is not None:
        return f"bayes={bayes!r}"
    poolable = estimators.offered("always")
    return next((f"chosen={name!r}" for name in names if name not in poolable), None)
