"""A plan tried out on the pilot's own prompts before anybody pays for it.

`simulate_plan` resamples the pilot to the planned size, computes on every resample the values that `analyze` prints by
default (own labels, else probes, else the balanced one-step; or the paper's plug-in), and sets the spread of the
estimates and the power of a shifted contrast against what `cje_core.planning.allocation` promised. It finds what the
1/n + 1/m law leaves out (few labels, uneven clusters, failures: a study that refuses a policy finds no difference
with it). It cannot show scores that the pilot does not hold, and in the resampled world the calibrator's noise is a
little smaller than in the pilot's: the truth there is the pilot's own isotonic fit. A borrowing policy's scores that no
label reached are drawn in to those that one did (`_within_reach`); what is promised is that of the pilot as it is.
Planned probes are drawn from those of the pilot, and where it has none, from labels that stand in for them
(`cje_core.planning.probes`). Gates and audits are not run on the resamples: what they refuse on the pilot has no plan
to be tried out.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy import stats

from cje_core.calibration.calibrated import Calibrated, calibrated
from cje_core.calibration.folds import MIN_LABELLED_CLUSTERS
from cje_core.checks import BoolArray, FloatArray, IntArray
from cje_core.data import DataError
from cje_core.data.construct import dataset
from cje_core.data.contract import LOGGED, teaching_policies
from cje_core.estimators import direct, direct_corrected, stacked_dr, weights_logs
from cje_core.inference.contrasts import others_and
from cje_core.inference.pairs import pair_errors
from cje_core.planning.forecast import effect_at, std_error_at
from cje_core.planning.probes import with_probes
from cje_core.verdict.headline import headline

CI_PROB = 0.95  # of the studies and of the planned test, whose errors a 5% slack is about
LEAST = 20  # simulated studies that a spread takes
SLACK = 0.05  # a standard error this much (relative) above the planned one is not held against a plan
POWER_SLACK = 0.04  # the power that is lost when the standard error is 5% larger


class _Pool(NamedTuple):
    """The pilot's clusters as sampling units: ``members[start[u] : start[u + 1]]`` are the prompts of unit u."""

    members: IntArray
    start: IntArray
    labelled: IntArray  # units with a label
    evaluated: IntArray  # evaluated prompts of each unit
    n_labels: IntArray  # labelled prompts of each unit
    probed: IntArray  # units with a probe
    n_probes: IntArray  # (policies, units) probes of each policy in each unit


def _pool(data: xr.Dataset, with_probes: bool) -> _Pool:
    response = ("policy", "draw")
    evaluated = data["evaluated"].any(response).values
    labelled = data["labelled"].any(response).values
    probed = data["probe"].any(response).values
    present = np.flatnonzero(evaluated | labelled | (probed & with_probes))
    names = data["cluster"].values if "cluster" in data else data["prompt"].values
    _, unit = np.unique(names[present].astype(str), return_inverse=True)
    order = np.argsort(unit, kind="stable")
    size = np.bincount(unit)
    n_labels = np.bincount(unit, weights=labelled[present]).astype(np.intp)
    probes = data["probe"].sum("draw").transpose("policy", "prompt").values[:, present] * with_probes
    n_probes = np.stack([np.bincount(unit, weights=row, minlength=len(size)) for row in probes])
    return _Pool(
        members=present[order],
        start=np.concatenate([[0], np.cumsum(size)]),
        labelled=np.flatnonzero(n_labels),
        evaluated=np.bincount(unit, weights=evaluated[present]).astype(np.intp),
        n_labels=n_labels,
        probed=np.flatnonzero(n_probes.any(axis=0)),
        n_probes=n_probes.astype(np.intp),
    )


def resample_pilot(
    data: xr.Dataset,
    n: int,
    m: int,
    rng: np.random.Generator | int | None = None,
    *,
    with_probes: bool = False,
) -> xr.Dataset:
    """Evaluation data of n prompts, m of them labelled, drawn from a pilot with replacement.

    Units are clusters (prompts where there are none). Units that keep their labels are drawn from the pilot's labelled
    ones, those with probes from its probed ones until each policy has as many as in the pilot, the rest from all of
    them with labels and probes taken off; every draw is a new unit with a new name. Logged responses and strata are
    left out.

    Parameters
    ----------
    data : xr.Dataset
        The pilot, labelled by simple random sampling.
    n, m : int
        Prompts; with clusters the sizes come out as nearly as whole clusters allow.
    with_probes : bool
        Keep as many probes of each policy as the pilot has; else probes are left out.

    Raises
    ------
    DataError
        For unequal label probabilities or fewer than 4 labelled clusters.

    Examples
    --------
    >>> import cje_sim
    >>> data = cje_sim.simulate("weak_judge", n=300, oracle_fraction=0.25, rng=1)
    >>> drawn = resample_pilot(data, n=500, m=50, rng=1)
    >>> drawn.sizes["prompt"], int(drawn["labelled"].sum("prompt").max())
    (500, 50)
    """
    rng = np.random.default_rng(rng)
    return _resample(data, check_pilot(data, with_probes=with_probes), n, m, rng, {})


def check_pilot(data: xr.Dataset, *, with_probes: bool = False) -> _Pool:
    """Sampling units of a pilot; `DataError` where it cannot be resampled."""
    pool = _pool(data, with_probes)
    if len(pool.labelled) < MIN_LABELLED_CLUSTERS:
        raise DataError(
            f"the pilot has {len(pool.labelled)} labelled prompts or clusters; a plan needs a pilot with at least "
            f"{MIN_LABELLED_CLUSTERS}, and 50 to say much"
        )
    if "label_prob" in data:
        known = data["label_prob"].values[data["labelled"].values]
        if np.ptp(known) > 0:
            raise DataError(
                "label_prob differs between the pilot's labels; plans are for simple random labelling: label "
                "a random part of the prompts"
            )
    return pool


def _resample(
    data: xr.Dataset,
    pool: _Pool,
    n: int,
    m: int,
    rng: np.random.Generator,
    probes: Mapping[str, int],
    *,
    with_logs: bool = False,
) -> xr.Dataset:
    per_unit = pool.n_labels[pool.labelled].mean()
    n_kept = max(round(m / per_unit), 1)
    kept = rng.choice(pool.labelled, n_kept)
    numbers = [probes.get(str(name)) for name in data["policy"].values]
    probed, audited = _draw_probed(pool, numbers, rng)
    left = n - pool.evaluated[kept].sum() - pool.evaluated[probed].sum()
    n_bare = max(round(left / pool.evaluated.mean()), 0)
    unit = np.concatenate([kept, rng.integers(0, len(pool.evaluated), n_bare), probed])
    size = np.diff(pool.start)[unit]
    offset = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
    prompt = pool.members[np.repeat(pool.start[unit], size) + offset]
    bare = np.arange(len(prompt)) >= size[:n_kept].sum()
    labelled = data["labelled"].values[:, prompt] & ~bare[:, None]
    of_unit = np.concatenate([np.zeros((len(audited), len(unit) - len(probed)), dtype=bool), audited], axis=1)
    probe = data["probe"].values[:, prompt] & np.repeat(of_unit, size, axis=1)[..., None]
    response = ("policy", "prompt", "draw")
    variables: dict[str, Any] = {
        "judge": (response, data["judge"].values[:, prompt]),
        "oracle": (response, np.where(labelled | probe, data["oracle"].values[:, prompt], np.nan)),
        "labelled": (response, labelled),
        "probe": (response, probe),
        "evaluated": (response, data["evaluated"].values[:, prompt]),
        "cluster": ("prompt", np.repeat(np.arange(len(unit)), size).astype(str)),
    }
    kept_whole = ["policy", "draw", *(["feature"] if "covariate" in data else [])]
    coords: dict[str, Any] = {name: data[name].variable for name in kept_whole}
    coords["prompt"] = np.arange(len(prompt)).astype(str)
    if "covariate" in data:
        variables["covariate"] = ((*response, "feature"), data["covariate"].values[:, prompt])
    for name in (name for name in LOGGED if with_logs and name in data):
        dims = tuple(str(dim) for dim in data[name].dims)
        axis = dims.index("prompt")
        values = np.take(data[name].values, prompt, axis=axis)
        variables[name] = (dims, np.where(bare, np.nan, values) if name == "logged_oracle" else values)
    indexes = {str(name): index for name, index in data.xindexes.items() if name in kept_whole}
    return dataset(variables, coords, data.attrs, indexes=indexes)


def _draw_probed(
    pool: _Pool, numbers: Sequence[int | None], rng: np.random.Generator
) -> tuple[IntArray, BoolArray]:
    """Draw units with probes until each policy has its number, and mark whose probes each unit keeps.

    Units are drawn once for all policies, so that probes at one prompt stay together and cost one prompt.
    """
    at = pool.n_probes[:, pool.probed]
    has = at > 0
    per_unit = at.sum(axis=1) / np.maximum(has.sum(axis=1), 1)
    planned = np.array([at[p].sum() if k is None else k for p, k in enumerate(numbers)])
    wanted = np.where(per_unit > 0, np.rint(planned / np.maximum(per_unit, 1)), 0)
    drawn = np.empty(0, dtype=np.intp)
    while ((count := has[:, drawn].sum(axis=1)) < wanted).any():
        short = float(((wanted - count) / np.maximum(has.mean(axis=1), 1 / len(pool.probed))).max())
        drawn = np.concatenate([drawn, rng.integers(0, len(pool.probed), math.ceil(short))])
    keeps = has[:, drawn] & (np.cumsum(has[:, drawn], axis=1) <= wanted[:, None])
    used = keeps.any(axis=0)
    return pool.probed[drawn[used]], keeps[:, used]


def simulate_plan(
    data: xr.Dataset | Calibrated,
    n: int,
    m: int,
    *,
    replicates: int | Iterable[int] = 200,
    rng: np.random.Generator | int | None = None,
    reference: str | None = None,
    power: float = 0.8,
    borrowed: str = "balanced",
    estimator: str = "direct",
    probes: Mapping[str, int] | None = None,
) -> xr.Dataset:
    """Run the planned study many times on resampled pilots and compare with the plan.

    Parameters
    ----------
    data : xr.Dataset or Calibrated
        The pilot.
    n, m : int
        Planned evaluated and labelled prompts.
    replicates : int or iterable of int
        Studies simulated, at least 20; or their numbers 0, 1, ..., for instance behind a progress bar.
    reference : str, optional
        Policy that the others are compared with; default: the first that teaches the calibrator.
    power : float
        Of the planned test, by the t interval.
    borrowed, estimator
        As in `cje_core.planning.components.variance_components`; stacked DR keeps the logged responses of the prompts
        drawn.
    probes : mapping, optional
        Planned probes of policies; by default those of the pilot. Where the pilot has none of a policy that borrows,
        labels of like responses stand in for them (`cje_core.planning.probes.stand_in_probes`).

    Returns
    -------
    xr.Dataset
        Over ``policy``: ``planned_std_error``, ``simulated_std_error`` (the spread of the estimates) with its Monte
        Carlo standard error ``simulated_mcse``, ``reported_std_error`` (root mean square of those the studies
        report), ``n_failed``, ``held``. Over ``pair`` (every other policy against the reference; for a single policy
        two independent studies of it): ``planned_mde`` (NaN and ``beyond_scale`` where it is wider than the oracle
        scale: the plan then detects nothing), ``simulated_power`` (of that effect, put in by shifting the
        centred contrast) with ``power_mcse``, ``power_held``. ``held`` is false where the simulation is worse than
        planned by more than the slack (5% of a standard error, .04 of power) and two Monte Carlo standard errors.
    """
    if isinstance(replicates, int) and replicates < LEAST:
        raise ValueError(f"replicates={replicates}: a spread needs at least {LEAST}")
    if not MIN_LABELLED_CLUSTERS <= m <= n:
        raise ValueError(f"n is {n} and m is {m}; {MIN_LABELLED_CLUSTERS} <= m <= n is needed")
    rng = np.random.default_rng(rng)
    given = calibrated(data)
    data, calibration = given.data, given.calibration
    names = data["policy"].values.astype(str)
    reference = reference or sorted(teaching_policies(data))[0]
    alone = len(names) == 1
    stacked = weights_logs(estimator)
    planned_probes = dict(probes or {})
    given, levels, pairs = with_probes(
        given, planned_probes, reference=None if alone else reference, borrowed=borrowed, estimator=estimator
    )
    data, shape = given.data, levels if pairs is None else pairs
    probed = levels["route"].values == "probe_tuned"
    pool, sources = check_pilot(data, with_probes=bool(probed.any())), _sources(levels)
    # From here on the data are what is resampled. The promises above are of the pilot itself: the plan that is printed
    # is on trial, and drawn-in scores, which extrapolate no more, would promise less error than the plan counts on.
    data = _within_reach(data, levels["policy"].values[levels["route"].values == "balanced"])
    levels_seen: list[FloatArray] = []  # per replicate: values and their errors
    pairs_seen: list[FloatArray] = []  # differences, their errors and degrees of freedom
    first = names
    for _ in range(replicates) if isinstance(replicates, int) else replicates:
        resampled = _resample(data, pool, n, m, rng, planned_probes, with_logs=stacked)
        drawn = calibrated(resampled, calibration)
        study = (
            stacked_dr.estimate(drawn, ci_prob=CI_PROB)
            if stacked
            else direct.estimate(drawn, ci_prob=CI_PROB, borrowed=borrowed)
        )
        if probed.any():
            corrected = direct_corrected.estimate(drawn, ci_prob=CI_PROB)
            study = headline(study, sources, corrected)
        levels_seen.append(np.stack([study["estimate"].values, study["std_error"].values]))
        if alone:
            pairs_seen.append(np.stack([*levels_seen[-1], study["df"].values]))
        else:
            numbers = others_and(study, reference)
            errors_of = pair_errors(study, *numbers, CI_PROB, tested=False)
            pairs_seen.append(np.stack([errors_of.difference, errors_of.std_error, errors_of.df]))
            first = names[numbers[0]]
    count = len(levels_seen)
    if count < LEAST:
        raise ValueError(f"replicates={count}: a spread needs at least {LEAST}")
    values, errors = np.stack(levels_seen, axis=1)
    effects, spreads, df = np.stack(pairs_seen, axis=1)
    if alone:  # two independent studies of the policy
        half = count // 2
        effects = effects[:half] - effects[half : 2 * half]
        spreads = np.hypot(spreads[:half], spreads[half : 2 * half])
        df = np.minimum(df[:half], df[half : 2 * half])
    planned = std_error_at(n, m, levels)["std_error"].values
    failed = np.isnan(errors).sum(axis=0)
    # what the pilot refuses is no number, though a resample may happen not to
    values, errors = (np.where(np.isfinite(planned), drawn, np.nan) for drawn in (values, errors))
    simulated, mcse = _spread(values)
    if not alone:
        shape = shape.isel(pair=[shape["first"].values.tolist().index(name) for name in first])
    planned_mde = effect_at(n, m, shape, power=power, ci_prob=CI_PROB).values
    known = np.isfinite(std_error_at(n, m, shape)["std_error"].values)
    reached, power_mcse = _power(effects, spreads, df, planned_mde, CI_PROB)
    return xr.Dataset(
        {
            "planned_std_error": ("policy", planned),
            "simulated_std_error": ("policy", simulated),
            "simulated_mcse": ("policy", mcse),
            "reported_std_error": ("policy", np.sqrt(_mean(errors**2))),
            "n_failed": ("policy", failed),
            "held": ("policy", simulated - 2 * mcse <= (1 + SLACK) * planned),
            "planned_mde": ("pair", planned_mde),
            "beyond_scale": ("pair", known & np.isnan(planned_mde)),
            "simulated_power": ("pair", reached),
            "power_mcse": ("pair", power_mcse),
            "power_held": ("pair", reached + 2 * power_mcse >= power - POWER_SLACK),
        },
        coords={"policy": names, "first": ("pair", first), "second": ("pair", [reference] * len(first))},
        attrs={"n": n, "m": m, "replicates": count, "power": power, "ci_prob": CI_PROB},
    )


def _within_reach(data: xr.Dataset, policies: npt.NDArray[Any]) -> xr.Dataset:
    """The pilot with scores and covariates of borrowing policies drawn in to those of the labels that teach.

    Where the pilot has no label no resample has one, so that with more labels than the pilot's every study would be
    refused for want of support, which the larger study itself would not be.
    """
    teaches = data["labelled"] & data["policy"].isin(teaching_policies(data))
    moved = data["policy"].isin(policies)
    found = {}
    for name in ("judge", "covariate"):
        if name in data:
            taught = data[name].where(teaches)
            ends = [end(("policy", "prompt", "draw")) for end in (taught.min, taught.max)]
            found[name] = data[name].where(~moved, data[name].clip(*ends)).transpose(*data[name].dims)
    return data.assign(found)


def _sources(levels: xr.Dataset) -> xr.Dataset:
    """What stands for each policy, in the words of `cje_core.verdict.headline`."""
    source = np.where(levels["route"].values == "probe_tuned", "probes", "borrowed")
    return xr.Dataset(
        {"source": ("policy", source), "level": ("policy", np.full(len(source), "reported"))},
        coords={"policy": levels["policy"].values},
    )


def _mean(values: FloatArray) -> FloatArray:
    """Mean over replicates of what did not fail; NaN where nothing is left."""
    seen = np.isfinite(values)
    mean = np.where(seen, values, 0).sum(axis=0) / np.maximum(seen.sum(axis=0), 1)
    return np.where(seen.any(axis=0), mean, np.nan)


def _spread(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Standard deviation over replicates and its Monte Carlo standard error, from the fourth moment."""
    count = np.isfinite(values).sum(axis=0)
    squared = (values - _mean(values)) ** 2
    second, fourth = _mean(squared), _mean(squared**2)
    variance = second * count / np.maximum(count - 1, 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sqrt(variance), np.sqrt((fourth - second**2) / count) / (2 * np.sqrt(second))


def _power(
    effects: FloatArray, spreads: FloatArray, df: FloatArray, shift: FloatArray, ci_prob: float
) -> tuple[FloatArray, FloatArray]:
    """Share of simulated tests that find a difference of `shift`, put in upwards and downwards; failures find none."""
    centred = effects - _mean(effects)
    critical = stats.t.isf((1 - ci_prob) / 2, df) * spreads
    found = ((np.abs(centred + shift) > critical).astype(float) + (np.abs(centred - shift) > critical)) / 2
    known = np.where(np.isfinite(shift), 1.0, np.nan)
    return known * found.mean(axis=0), known * found.std(axis=0, ddof=1) / np.sqrt(len(found))
