"""What the monitors of `cje_core.transport.monitor` find, by simulating them: shifts, and labels until a verdict."""

import numpy as np
import numpy.typing as npt
import xarray as xr

from cje_core.checks import Rng
from cje_core.transport.audit_size import sequential_audit
from cje_core.transport.drift import residual_drift

POWER_ORDERS = 199  # orders behind the p-value of each simulated horizon
POWER_GRID = 801  # candidate means: a step widens an interval by 1 / 400 of the scale's width at most


def batch_audit_power(
    shift: npt.ArrayLike,
    size: npt.ArrayLike,
    *,
    n_early: int,
    false_alarm: float = 0.05,
    replicates: int = 200,
    rng: Rng = None,
) -> xr.Dataset:
    """Probability that either chart of one policy alarms after a lasting shift, by simulation with normal residuals.

    Parameters
    ----------
    shift : float or array
        Of the mean residual from the first batch after the baseline on, in standard deviations of a residual; at 0 the
        power is `false_alarm`.
    size : array, shape (batches,)
        Residuals in each batch after the baseline.
    n_early : int
        Residuals in the baseline, at least 4.
    false_alarm : float
        As in `cje_core.transport.monitor.batch_audit`.
    replicates : int
        Horizons simulated for each shift.

    Returns
    -------
    xr.Dataset
        Over ``shift``: ``probability`` with its Monte Carlo standard error ``mcse``.

    Examples
    --------
    >>> batch_audit_power([1.0], [25] * 4, n_early=50, rng=1).probability.values
    array([1.])
    """
    rng = np.random.default_rng(rng)
    shifts, batches = np.atleast_1d(np.asarray(shift, float)), np.atleast_1d(np.asarray(size, dtype=int))
    batch = np.repeat(np.arange(len(batches) + 1), [n_early, *batches])
    power = np.zeros(len(shifts))
    for k, one in enumerate(shifts):
        for _ in range(replicates):
            drawn = rng.standard_normal(len(batch)) + np.where(batch > 0, one, 0.0)
            found = residual_drift(drawn, batch, false_alarm=false_alarm, n_simulated=POWER_ORDERS, rng=rng)
            power[k] += (found["p_joint"].values <= false_alarm).mean()
    power /= replicates
    return xr.Dataset(
        {
            "probability": ("shift", power),
            "mcse": ("shift", np.sqrt(power * (1 - power) / replicates)),
        },
        coords={"shift": shifts},
        attrs={"false_alarm": false_alarm, "n_early": n_early, "replicates": replicates},
    )


def label_audit_power(
    true_residual: npt.ArrayLike,
    *,
    residual_sd: float,
    margin: float,
    alpha: float = 0.05,
    width: float = 1.0,
    n_most: int = 1000,
    replicates: int = 100,
    rng: Rng = None,
) -> xr.Dataset:
    """How many labels the sequential audit of `label_audit` takes, by simulation.

    Residuals are drawn from the beta law on ``[-width, width]`` with the mean and the standard deviation given.

    Parameters
    ----------
    true_residual : float or array
        Mean residual.
    residual_sd : float
        Standard deviation of a residual.
    margin, alpha
        As in `label_audit`.
    width : float
        Of the oracle scale.
    n_most : int
        Labels after which a sequence that has not decided is given up.
    replicates : int
        Sequences simulated for each mean.

    Returns
    -------
    xr.Dataset
        Over ``true_residual``: ``decided`` (share of sequences with any verdict) and its ``mcse``, ``wrong`` (share
        with the wrong verdict), and ``median`` and ``ninetieth`` percentile of the labels at the verdict (infinite
        where fewer decide).

    Examples
    --------
    >>> found = label_audit_power([0.0, 0.2], residual_sd=0.1, margin=0.1, n_most=200, replicates=20, rng=1)
    >>> list(found)
    ['decided', 'mcse', 'wrong', 'median', 'ninetieth']
    """
    rng = np.random.default_rng(rng)
    means = np.atleast_1d(np.asarray(true_residual, float))
    columns = np.full((5, len(means)), np.nan)
    for k, mean in enumerate(means):
        p, v = (mean + width) / (2 * width), (residual_sd / (2 * width)) ** 2
        count = p * (1 - p) / v - 1 if 0 < p < 1 else 0.0
        if count <= 0:
            raise ValueError(
                f"residual_sd={residual_sd:g}: no residuals on a scale {width:g} wide have it with mean {mean:g}"
            )
        stop, right = np.full(replicates, np.inf), "PASS" if abs(mean) <= margin else "FAIL"
        wrong = 0
        for r in range(replicates):
            drawn = width * (2 * rng.beta(p * count, (1 - p) * count, n_most) - 1)
            one = sequential_audit(
                drawn, margin=margin, alpha=alpha, bounds=(-width, width), n_grid=POWER_GRID
            )
            if one["stop"] > 0:
                stop[r] = float(one["stop"])
                wrong += one["final"].item() != right
        decided = float(np.isfinite(stop).mean())
        at = [float(np.quantile(stop, q, method="higher")) for q in (0.5, 0.9)]
        columns[:, k] = decided, np.sqrt(decided * (1 - decided) / replicates), wrong / replicates, *at
    names = ("decided", "mcse", "wrong", "median", "ninetieth")
    return xr.Dataset(
        {name: ("true_residual", column) for name, column in zip(names, columns, strict=True)},
        coords={"true_residual": means},
        attrs={
            "margin": margin,
            "alpha": alpha,
            "residual_sd": residual_sd,
            "n_most": n_most,
            "replicates": replicates,
        },
    )
