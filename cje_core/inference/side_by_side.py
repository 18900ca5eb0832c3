"""Estimates side by side: frequentist and Bayesian intervals of the same policies in one object."""

from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr

from cje_core.checks import FloatArray, one_of
from cje_core.inference.estimate import CI_BOUND


def compare(
    estimates: Mapping[str, xr.Dataset] | Sequence[xr.Dataset],
    *,
    truth: xr.DataArray | None = None,
    reference: str | None = None,
) -> xr.Dataset:
    """Put estimates of the same policies on one dimension ``method`` and say how far their intervals agree.

    Two intervals I and J overlap by ``|I & J| / |I | J|`` (Jaccard): 1 where they are the same, 0 where they are apart;
    two points overlap fully where they are equal. With the truth, ``covers`` and the interval score of Gneiting and
    Raftery (2007), ``width + 2 / alpha * distance by which the truth is missed``, follow.

    Parameters
    ----------
    estimates : mapping of name to estimate, or sequence of estimates
        In a sequence each goes by its own ``estimator``. All of the same policies, in any order, of one ``ci_prob``
        and of one ``estimand``; else, or of one name, they are a `ValueError`.
    truth : DataArray over policy, optional
        Values to hold the intervals against.
    reference : str, optional
        Method whose width is 1 in ``width_ratio``; default: the first one but those of source ``judge``, whose interval
        leaves out how wrong the judge is.

    Returns
    -------
    xr.Dataset
        ``estimate``, ``std_error``, ``status``, ``route``, ``width`` and ``width_ratio`` (to the reference's) over
        ``method, policy``; ``interval`` with ``ci_bound`` besides; ``overlap(method, other_method, policy)``; with
        `truth` also ``truth(policy)``, ``covers`` and ``interval_score``. Coordinate ``ci_kind(method)``. NaN where a
        method has no interval: it covers nothing, and its score is unknown. `cje_core.figures.forest` draws it.

    Examples
    --------
    >>> from cje_core.data import from_arrays
    >>> from cje_core.estimators import bayes_direct, direct
    >>> rng = np.random.default_rng(0)
    >>> judge = rng.random((1, 200))
    >>> oracle = judge + 0.1 * rng.standard_normal((1, 200))
    >>> data = from_arrays(judge, policies=["a"], oracle=oracle, oracle_range=(-1, 2))
    >>> found = compare([direct.estimate(data), bayes_direct.estimate(data, rng=1)])
    >>> pair = {"method": "direct", "other_method": "bayes_direct"}  # a dict: xarray's sel has a `method` of its own
    >>> bool(found.overlap.sel(pair).item() > 0.8)
    True
    """
    named = _named(estimates)
    names = list(named)
    first = named[names[0]]
    policies = first["policy"].values
    for name, other in named.items():
        ours, theirs = sorted(map(str, policies)), sorted(map(str, other["policy"].values))
        if ours != theirs:
            raise ValueError(
                f"{name} is of the policies {', '.join(theirs)}, {names[0]} of {', '.join(ours)}; choose "
                "those that both have with .sel(policy=[...])"
            )
        if other.attrs["ci_prob"] != first.attrs["ci_prob"]:
            raise ValueError(
                f"{name} has intervals of {other.attrs['ci_prob']:g}, {names[0]} of {first.attrs['ci_prob']:g}; "
                "estimate both with one ci_prob"
            )
        if other.attrs["estimand"] != first.attrs["estimand"]:
            raise ValueError(
                f"{name} estimates {other.attrs['estimand']}; {names[0]} {first.attrs['estimand']}: they cannot be "
                "compared, leave one of them out"
            )
    shared = ("estimate", "std_error", "interval", "status", "route")
    parts = [found[list(shared)].sel(policy=policies) for found in named.values()]
    bare = [part.drop_attrs() for part in parts]
    out = xr.concat(bare, dim="method", coords="minimal", compat="override", join="exact")
    kinds = [str(found.attrs["ci_kind"]) for found in named.values()]
    out = out.assign_coords(method=names, ci_kind=("method", kinds))
    out["status"].attrs |= dict(first["status"].attrs)
    low, high = (out["interval"].sel(ci_bound=bound, drop=True) for bound in CI_BOUND)
    out["width"] = high - low
    reference = reference or next((name for name in names if not _at_its_word(named[name])), names[0])
    one_of(reference, "reference", names)
    out["width_ratio"] = out["width"] / out["width"].isel(method=names.index(reference), drop=True)
    out["overlap"] = (("method", "other_method", "policy"), _overlap(low.values, high.values))
    out = out.assign_coords(other_method=names)
    out.attrs = {name: first.attrs[name] for name in ("ci_prob", "estimand")} | {"reference": reference}
    if truth is not None:
        goal = truth.sel(policy=policies)
        out["truth"] = goal
        out["covers"] = (low <= goal) & (goal <= high)
        missed = (low - goal).clip(min=0) + (goal - high).clip(min=0)
        out["interval_score"] = out["width"] + 2 / (1 - first.attrs["ci_prob"]) * missed
    return out


def _at_its_word(estimate: xr.Dataset) -> bool:
    """Whether all values are the judge's scores at their word."""
    return "source" in estimate and bool(estimate["source"].isin(["judge", "none"]).all())


def _named(estimates: Mapping[str, xr.Dataset] | Sequence[xr.Dataset]) -> dict[str, xr.Dataset]:
    """Check that there is something to compare, under names that differ."""
    if isinstance(estimates, xr.Dataset):
        raise ValueError(
            "one estimate alone is nothing to compare; give a list of them: compare([first, second])"
        )
    if isinstance(estimates, Mapping):
        named = {str(name): found for name, found in estimates.items()}
    else:
        names = [str(found.attrs["estimator"]) for found in estimates]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(
                f"several estimates are called {', '.join(twice)}; give them names: compare({{name: estimate, ...}})"
            )
        named = dict(zip(names, estimates, strict=True))
    if not named:
        raise ValueError("nothing to compare; give at least one estimate")
    return named


def _overlap(low: FloatArray, high: FloatArray) -> FloatArray:
    """Shared over joint length of every two rows' intervals: (methods, policies) to (methods, methods, policies)."""
    shared = np.minimum(high[:, None], high) - np.maximum(low[:, None], low)
    joint = np.maximum(high[:, None], high) - np.minimum(low[:, None], low)
    share = np.clip(shared, 0.0, None) / np.where(joint == 0, np.nan, joint)
    return np.asarray(np.where(joint == 0, 1.0, share))  # two points at one place are one
