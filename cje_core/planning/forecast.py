"""What a design of n judged and m labelled prompts will show: standard errors, and the smallest difference it detects.

From the components of one pilot (`cje_core.planning.components.variance_components`), by the law of
`cje_core.planning.allocation`.

How good the forecasts are: the mean standard error that 200 pilots forecast for twice and four times their size, over
the spread of 1,000 fresh studies; pilots of 1,000 prompts with 100 or 250 labels of base, default values, four worlds
(well_specified, weak_judge, binary_oracle, discrete_judge); Monte Carlo standard errors .02-.04, up to .08 where pilots
refuse. Levels: .96-1.07 with 250 labels, 1.00-1.11 with 100 (.95-1.16 for ``worse``, farthest from the labels).
Differences to base: .97-1.07 with 250, .90-1.14 with 100, with two exceptions, both cautious. To a policy almost equal
to base, 1.01-1.12 and 1.08-1.34: their spread is small, and the fit's noise that falls faster than 1 / m is much of it.
In weak_judge 1.04-1.35, and 1.41-1.67 for the almost equal policy; of its pilots 18% (100) and 44% find the judge
informative, the others forecast nothing borrowed.

Failure modes: the law leaves out what falls faster than 1 / m, so it flatters few labels; a pilot says nothing about
scores it never saw. `extrapolation` says when a plan leaves the pilot's range, `cje_core.planning.trial.simulate_plan`
checks it.
"""

import numpy as np
import numpy.typing as npt
import xarray as xr

from cje_core.calibration.folds import MIN_LABELLED_CLUSTERS
from cje_core.checks import FloatArray
from cje_core.inference.influence import pooled_df
from cje_core.planning.power import detectable

BEYOND = 1.1  # times the pilot's size from which a plan counts as outside
PARTS = (
    "sigma2_eval", "sigma2_cal", "variance_probes", "sigma2_eval_se", "sigma2_cal_se", "variance_probes_se",
    "sigma2_covariance", "sigma2_cross", "df_eval", "df_cal", "df_probes", "probe_count",
)  # fmt: skip
FORECAST = ("std_error", "std_error_se", "df", "calibration_share")
FEW = 0.25  # share of the pilot's labels under which the 1/m law is an extrapolation too


def std_error_at(
    n: xr.DataArray | float, m: xr.DataArray | float, components: xr.Dataset, *, probe_growth: float = 1.0
) -> xr.Dataset:
    """Forecast for n evaluated and m labelled prompts, the rest of the pilot's design kept.

    Parameters
    ----------
    n, m : numbers or DataArrays
        NaN results where m > n or fewer than 4 prompts are labelled.
    components : xr.Dataset
        From `cje_core.planning.components.variance_components` or `cje_core.planning.own_labels.if_labelled`.
    probe_growth : float
        Probes of the plan over those of the pilot.

    Returns
    -------
    xr.Dataset
        ``std_error``; ``std_error_se``, its own standard error as far as it comes from the pilot's noise; ``df`` of the
        interval (`cje_core.inference.influence.pooled_df`, the parts' df growing with n and m); ``calibration_share``.
    """
    n, m = xr.DataArray(n).astype(float), xr.DataArray(m).astype(float)
    pilot = components.attrs["n"], max(components.attrs["m"], 1)

    def numbers(*parts: FloatArray) -> tuple[FloatArray, ...]:
        with np.errstate(divide="ignore", invalid="ignore"):  # a plan without labels: NaN below
            return _forecast(*np.broadcast_arrays(*parts), pilot=pilot, probe_growth=probe_growth)

    given = [components[name] for name in PARTS]  # lined up once
    found = xr.apply_ufunc(numbers, *given, n, m, output_core_dims=[()] * len(FORECAST), join="inner")
    out = xr.Dataset(dict(zip(FORECAST, found, strict=True)))
    return out.drop_vars([name for name in ("status", "route") if name in out.coords])


def _forecast(
    sigma2_eval: FloatArray,
    sigma2_cal: FloatArray,
    variance_probes: FloatArray,
    sigma2_eval_se: FloatArray,
    sigma2_cal_se: FloatArray,
    variance_probes_se: FloatArray,
    sigma2_covariance: FloatArray,
    sigma2_cross: FloatArray,
    df_eval: FloatArray,
    df_cal: FloatArray,
    df_probes: FloatArray,
    probe_count: FloatArray,
    n: FloatArray,
    m: FloatArray,
    *,
    pilot: tuple[int, int],
    probe_growth: float,
) -> tuple[FloatArray, ...]:
    """`FORECAST` of `std_error_at` from `PARTS`, n and m, all of one shape; ``pilot`` is its n and m."""
    from_eval, from_cal, from_probes = sigma2_eval / n, sigma2_cal / m, variance_probes / probe_growth
    variance = from_eval + from_cal + from_probes
    spread = (
        (sigma2_eval_se / n) ** 2
        + (sigma2_cal_se / m) ** 2
        + 2 * sigma2_covariance / (n * m)
        + (variance_probes_se / probe_growth) ** 2
    )
    possible = (m <= n) & (m >= MIN_LABELLED_CLUSTERS) & (variance > 0)
    variance = np.where(possible, variance, np.nan)
    alone = (sigma2_eval - sigma2_cross) / n  # the parts' own variances, as `combine` weighs them
    # m effective clusters give m - 1 degrees of freedom, and their number grows with the sample
    freedom = (
        np.maximum((df_eval + 1) * n / pilot[0] - 1, 1.0),
        np.maximum((df_cal + 1) * m / pilot[1] - 1, 1.0),
        np.maximum(df_probes + probe_count * (probe_growth - 1), 1.0),
    )
    df = pooled_df(np.stack([alone, from_cal, from_probes], axis=-1), np.stack(freedom, axis=-1))
    return (
        np.sqrt(variance),
        np.sqrt(np.maximum(spread, 0.0)) / (2 * np.sqrt(variance)),
        np.where(possible, df, np.nan),
        from_cal / variance,
    )


def extrapolation(n: float, m: float, components: xr.Dataset) -> list[str]:
    """What of a plan lies outside the pilot's range, one phrase each; empty if nothing does.

    Inside are n up to the pilot's prompts and m between a quarter of its labelled prompts and all of them (a subset
    of the pilot could have been that study), and a tenth more.
    """
    pilot_n, pilot_m = components.attrs["n"], components.attrs["m"]
    found = []
    if n > BEYOND * pilot_n:
        found.append(f"n = {n:.0f} is {n / pilot_n:.1f} times the pilot's {pilot_n} prompts")
    if m > BEYOND * pilot_m:
        found.append(f"m = {m:.0f} is {m / pilot_m:.1f} times the pilot's {pilot_m} labelled prompts")
    if m < FEW * pilot_m:
        found.append(
            f"m = {m:.0f} is under a quarter of the pilot's {pilot_m} labelled prompts, and the 1/m law flatters "
            "few labels"
        )
    return found


def effect_at(
    n: xr.DataArray | float,
    m: xr.DataArray | float,
    components: xr.Dataset,
    *,
    power: float = 0.8,
    ci_prob: float = 0.95,
) -> xr.DataArray:
    """Minimum detectable effect of a design.

    That of the difference for components of contrasts, with the standard error that its test takes (``*_tested``, which
    promise less than the spread would); for levels, between two independent estimates as precise. NaN where it is wider
    than the oracle scale (attribute ``scale_width`` of the components): no two means lie that far apart, so the design
    detects nothing at this power.
    """
    if "sigma2_cal_tested" in components:
        tested = {name: components[f"{name}_tested"] for name in ("sigma2_eval", "sigma2_cal")}
        components = components.assign(tested)
    forecast = std_error_at(n, m, components)
    scale = 1.0 if "first" in components.coords else np.sqrt(2.0)
    error = scale * forecast["std_error"].values
    found = detectable(error, forecast["df"].values, power=power, ci_prob=ci_prob)
    within = found <= components.attrs.get("scale_width", np.inf)
    return forecast["std_error"].copy(data=np.where(within, found, np.nan))


def mde_surface(
    components: xr.Dataset,
    n_grid: npt.ArrayLike,
    fraction_grid: npt.ArrayLike,
    *,
    cost_judge: float,
    cost_oracle: float,
    n_policies: int = 1,
    power: float = 0.8,
    ci_prob: float = 0.95,
) -> xr.Dataset:
    """Standard error, minimum detectable effect and cost over sample size and labelled share, for contours.

    Parameters
    ----------
    components : xr.Dataset
        From `cje_core.planning.components.variance_components`; levels give the effect between two independent
        estimates.
    n_grid, fraction_grid : arrays
        Evaluated prompts and m / n.
    cost_judge, cost_oracle, n_policies
        As in `cje_core.planning.allocation.allocate`.

    Returns
    -------
    xr.Dataset
        Over ``n``, ``fraction`` (and the dimension of the components): ``std_error``, ``mde``, ``df``, ``m``,
        ``cost`` and ``extrapolates``. NaN where fewer than 4 prompts would be labelled; ``mde`` also where nothing on
        the oracle scale can be detected.
    """
    n = xr.DataArray(np.asarray(n_grid, float), dims="n", coords={"n": np.asarray(n_grid)})
    share = np.asarray(fraction_grid, float)
    if not ((share > 0) & (share <= 1)).all():
        raise ValueError("fraction_grid must lie in (0, 1]: it is the labelled share m / n")
    fraction = xr.DataArray(share, dims="fraction", coords={"fraction": share})
    m = (n * fraction).round()
    pilot_n, pilot_m = components.attrs["n"], components.attrs["m"]
    return (
        std_error_at(n, m, components)[["std_error", "df"]]
        .assign(
            mde=effect_at(n, m, components, power=power, ci_prob=ci_prob),
            m=m,
            cost=cost_judge * n_policies * n + cost_oracle * m,
            extrapolates=(n > BEYOND * pilot_n) | (m > BEYOND * pilot_m) | (m < FEW * pilot_m),
        )
        .assign_attrs(power=power, ci_prob=ci_prob, pilot_n=pilot_n, pilot_m=pilot_m)
    )


def labels_needed(
    target_mde: float, n: int, components: xr.Dataset, *, power: float = 0.8, ci_prob: float = 0.95
) -> xr.DataArray:
    """Fewest labelled prompts among n that detect a difference of `target_mde`; NaN where all n do not.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("weak_judge", n=300, oracle_fraction=0.25, rng=1)
    >>> from cje_core.planning.components import variance_components
    >>> components = variance_components(data).sel(policy=["better", "worse"])
    >>> few, many = (labels_needed(mde, 2000, components) for mde in (0.15, 0.1))
    >>> bool((many > few).all())
    True
    """
    if not target_mde > 0:
        raise ValueError(f"target_mde={target_mde:g}: it must be positive")

    def reached(m: xr.DataArray) -> xr.DataArray:
        return effect_at(float(n), m, components, power=power, ci_prob=ci_prob) <= target_mde

    low = xr.full_like(components["sigma2_cal"], MIN_LABELLED_CLUSTERS - 1)  # never enough
    high = xr.full_like(low, float(n))
    possible = reached(high)
    while bool((high - low > 1).any()):
        middle = (low + high) // 2
        enough = reached(middle)
        low, high = low.where(enough, middle), high.where(~enough, middle)
    return high.where(possible)
