"""Several estimators on the same data, or estimates that are there already, side by side in one Dataset."""

from collections.abc import Mapping, Sequence

import xarray as xr

from cje_core import estimators
from cje_core.calibration.calibrated import Calibrated, Calibration, calibrated
from cje_core.inference import side_by_side
from cje_core.inference.estimate import Status
from cje_core.streams import generator


def compare(
    source: xr.Dataset | Calibrated | Mapping[str, xr.Dataset] | Sequence[xr.Dataset],
    methods: Sequence[str] | None = None,
    *,
    truth: xr.DataArray | None = None,
    reference: str | None = None,
    calibration: Calibration | None = None,
    ci_prob: float = 0.95,
    seed: int = 1,
) -> xr.Dataset:
    """Put frequentist and Bayesian intervals of the same policies side by side.

    Parameters
    ----------
    source : evaluation data, or estimates
        Evaluation data come with `methods`; estimates as a mapping by name or a sequence.
    methods : sequence of str, optional
        Estimators to run on the data. One that needs what the data lack, or has no value for any policy, is left out.
    truth : DataArray over policy, optional
        True values, to hold the intervals against.
    reference : str, optional
        Method whose width is 1 in ``width_ratio``; default: the first one but ``raw_judge``, which ignores the labels.
    calibration, ci_prob
        Passed to the estimators, with `methods` only.
    seed : int
        Root of the estimators' named random streams, with `methods` only.

    Returns
    -------
    xr.Dataset
        As from `cje_core.inference.side_by_side.compare`; the attribute ``left_out`` lists the methods that do not
        apply, each with the reason. `cje_core.figures.forest` draws it.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("discrete_judge", n=200, oracle_fraction=0.2, rng=1)
    >>> both = compare(data, ["direct", "bayes_direct", "rogan_gladen"])
    >>> both["method"].values.tolist(), both.attrs["reference"]
    (['direct', 'bayes_direct'], 'direct')
    >>> both.attrs["left_out"]
    ['rogan_gladen: oracle labels are not binary: misclassification correction is not defined']
    """
    if methods is None:
        if isinstance(source, Calibrated) or (isinstance(source, xr.Dataset) and "judge" in source):
            raise ValueError("name the estimators to run: compare(data, ['direct', 'bayes_direct'])")
        return side_by_side.compare(source, truth=truth, reference=reference)  # type: ignore[arg-type]
    given, applicable, left_out = calibrated(source, calibration), dict[str, xr.Dataset](), []  # type: ignore[arg-type]
    for name in methods:
        module = estimators.load(name)
        if missing := sorted(set(module.NEEDS) - set(given.data)):
            left_out.append(f"{name}: the data have no {', '.join(missing)}")
            continue
        estimate = module.estimate(given, ci_prob=ci_prob, rng=generator(seed, "compare", name))
        status = [Status(int(code)) for code in estimate["status"].values]
        if all(one.failed for one in status):
            left_out.append(f"{name}: {status[0].message}")
        else:
            applicable[name] = estimate
    if not applicable:
        raise ValueError(f"no method applies: {'; '.join(left_out)}")
    return side_by_side.compare(applicable, truth=truth, reference=reference).assign_attrs(left_out=left_out)
