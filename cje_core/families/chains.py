"""Posteriors chain by chain, in the groups that ArviZ reads: what a sampler did, and how well labels fit it.

An estimate keeps what a value needs, draws over ``replicate``. To judge a sampler one wants its chains: `sample` draws
the calibration posterior of `cje_core.estimators.bayes_direct` again in several and keeps them, with the values made
of them::

    posterior             value(policy), calibrator(level), ends, shape, sigma, covariate_effect   over chain, draw
    sample_stats          what NUTS says of each step; of Gibbs the log likelihood of all labels, ``lp_labels``
    observed_data         y(label): the labels that teach, in oracle units
    posterior_predictive  y(chain, draw, label)
    log_likelihood        y(chain, draw, label): of single labels, for leave-one-out scores
    constant_data         judge(label), policy and prompt of each label

Chains of Gibbs start from streams of their own and share nothing. NUTS runs four in one go. Labels of clusters count
as single labels here, as they do in `cje_core.bayes.models.slice.observations`. `independent` is for posteriors that
are drawn directly (`bayes_rogan_gladen`, `projection_posterior`): such draws may be dealt to any number of chains.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from cje_core.bayes import flat
from cje_core.bayes.gibbs import Draws, curve
from cje_core.bayes.prior import Prior
from cje_core.bayes.shifts import probe_corrected
from cje_core.bayes.value import values
from cje_core.calibration.calibrated import Calibrated, Calibration, calibrated
from cje_core.checks import BoolArray, FloatArray, Rng
from cje_core.data.schema.meanings import ESTIMATE, JUDGE, NAME, ONE, ORACLE, described
from cje_core.families import posterior
from cje_core.families.posterior import Setting
from cje_core.inference.estimate import Status

N_CHAINS = 4
# of NUTS' own numbers those that every version of the two samplers gives over chain and draw
STATS = (
    "diverging",
    "energy",
    "lp",
    "logp",
    "tree_depth",
    "depth",
    "n_steps",
    "step_size",
    "acceptance_rate",
)
MEANING = ESTIMATE | {
    "value": ("value of the policy", ORACLE),
    "corrected_value": ("value corrected by the policy's probes", ORACLE),
    "y": ("oracle label Y", ORACLE),
    "judge": ("judge score of the label", JUDGE),
    "label": ("label that teaches", ONE),
    "label_policy": ("policy of the label", NAME),
    "label_prompt": ("prompt of the label", NAME),
    "probed": ("policy with probes", NAME),
    "lp_labels": ("log likelihood of all labels", ONE),
    "draw": ("draw of the chain", ONE),
}
TINY = 1e-12


class Chain(NamedTuple):
    """One chain: draws of the calibrator, and what was made of them (P, draws)."""

    draws: Draws
    value: FloatArray
    corrected: FloatArray | None = None
    shift: FloatArray | None = None


def sample(
    data: xr.Dataset | Calibrated,
    *,
    engine: str = "gibbs",
    calibration: Calibration | None = None,
    n_draws: int = 500,
    n_chains: int = N_CHAINS,
    with_shifts: bool = False,
    trace: Any = None,
    rng: Rng = None,
) -> xr.DataTree:
    """Chains of the posterior that `cje_core.estimators.bayes_direct` takes its values from; see the module.

    Parameters
    ----------
    data : xr.Dataset or Calibrated
        Evaluation data.
    engine : {"gibbs", "nutpie", "pymc"}
        As in `cje_core.estimators.bayes_direct.estimate`.
    calibration : Calibration, optional
        Covariates and direction.
    n_draws : int
        Draws of each chain.
    n_chains : int
        Chains of Gibbs; NUTS has four.
    with_shifts : bool
        Add ``shift`` and ``corrected_value`` over the policies that have probes (``probed``), with the flat prior.
    trace : InferenceData or DataTree, optional
        Of NUTS, where the calibrator has been sampled (`cje_core.families.posterior.calibrate`).
    rng : Generator, int or None
        Stream of the first chain; those of the others are spawned from it.

    Returns
    -------
    xr.DataTree
        Groups as in the module. Policies whose value is refused, or has no posterior, are left out. No group where too
        few labels teach.

    Examples
    --------
    >>> from cje_core.data import from_arrays
    >>> rng = np.random.default_rng(0)
    >>> judge = rng.random((1, 60)).round(1)
    >>> data = from_arrays(judge, policies=["a"], oracle=judge + 0.1 * rng.standard_normal((1, 60)),
    ...                    oracle_range=(-1, 2))
    >>> tree = sample(data, n_draws=50, rng=1)
    >>> dict(tree["posterior"]["value"].sizes)
    {'chain': 4, 'draw': 50, 'policy': 1}
    """
    given = calibrated(data, calibration)
    posterior.choose_engine(engine, extended=False)
    setting = posterior.prepare(given)
    if setting.fitted.status.failed:
        return xr.DataTree()
    root = np.random.default_rng(rng)
    prior = Prior()
    stats: xr.Dataset | None = None
    if engine == "gibbs":
        streams = [root, *root.spawn(n_chains - 1)]
        runs = [
            posterior.calibrate(setting, engine=engine, n_draws=n_draws, prior=prior, rng=one)[0]
            for one in streams
        ]
    else:
        runs, stats = _by_nuts(setting, engine, n_draws, prior, root, trace)
        streams = [root, *root.spawn(len(runs) - 1)]
    made = [_of(setting, run, with_shifts, one) for run, one in zip(runs, streams, strict=True)]
    return _tree(given.data, setting, made, stats)


def _of(setting: Setting, draws: Draws, with_shifts: bool, rng: np.random.Generator) -> Chain:
    """Values of one chain, and its shifts."""
    rows, graded = setting.rows, setting.graded
    corrected = posterior.enough(rows, rows.evaluated & rows.labelled)
    value = values(rows, graded, draws, corrected=corrected, one_step=True, rng=rng)
    if not with_shifts:
        return Chain(draws, value)
    return Chain(draws, value, *probe_corrected(rows, graded, draws, rng=rng))


def _by_nuts(
    setting: Setting, engine: str, n_draws: int, prior: Prior, rng: np.random.Generator, trace: Any
) -> tuple[list[Draws], xr.Dataset]:
    """Return every chain of NUTS, thinned evenly to `n_draws`, and statistics of its steps; sample without a trace."""
    from cje_core.bayes.models import draws as fits
    from cje_core.bayes.models import nuts

    rows, graded = setting.rows, setting.graded
    if trace is None:
        options = nuts.NutsOptions(engine, n_draws=max(2 * n_draws, posterior.MIN_RUN))
        trace = fits.trace(rows, graded, options, prior=prior, rng=rng)
    found, told = nuts.posterior(trace), nuts.group(trace, "sample_stats")
    kept = posterior.spaced(found.sizes["draw"], min(n_draws, found.sizes["draw"]))
    thinned = found.isel(draw=kept)
    runs = []
    for k in range(thinned.sizes["chain"]):
        at = {
            name: one.transpose("draw", ...).values for name, one in thinned.isel(chain=k).data_vars.items()
        }
        sigma = at.get("sigma", np.full(len(kept), np.nan))
        f = curve(graded.levels.level, at["ends"], at["shape"])
        run = Draws(f, at["ends"], at["shape"], sigma, {}, at.get("beta"))
        if setting.pooling == "complete":  # as in `posterior.calibrate`, for every engine
            run = flat.mix(rows, graded, run, prior=prior, rng=rng)
        runs.append(run)
    usable = [name for name in STATS if name in told and told[name].dims == ("chain", "draw")]
    return runs, told[usable].isel(draw=kept).reset_coords(drop=True)


def _tree(
    data: xr.Dataset, setting: Setting, chains: Sequence[Chain], stats: xr.Dataset | None
) -> xr.DataTree:
    rows, levels = setting.rows, setting.graded.levels
    taught = np.flatnonzero(rows.teaches)
    draws = [one.draws for one in chains]
    coords = {"chain": np.arange(len(chains)), "draw": np.arange(len(draws[0].f))}
    mean = np.stack([_mean(setting, one, taught) for one in draws])  # (chain, draw, label), [0, 1]
    y, told = setting.graded.label[taught], _likelihood(setting, draws, mean, taught)
    groups = {
        "posterior": _posterior(data, setting, chains),
        "observed_data": xr.Dataset({"y": ("label", levels.low + levels.width * y)}),
        "posterior_predictive": xr.Dataset(
            {"y": (("chain", "draw", "label"), _replicated(setting, draws, mean).astype(np.float32))},
            coords=coords,
        ),
        "log_likelihood": xr.Dataset(
            {"y": (("chain", "draw", "label"), told.astype(np.float32))}, coords=coords
        ),
        "sample_stats": xr.Dataset({"lp_labels": (("chain", "draw"), told.sum(axis=2))}, coords=coords)
        if stats is None
        else stats.assign_coords(coords),
        "constant_data": xr.Dataset(
            {
                "judge": ("label", rows.score[taught]),
                "label_policy": ("label", np.array(rows.policies)[rows.policy[taught]]),
                "label_prompt": ("label", np.asarray(rows.prompts)[rows.prompt[taught]]),
            }
        ),
    }
    return xr.DataTree.from_dict({name: described(ds, MEANING) for name, ds in groups.items()})


def _posterior(data: xr.Dataset, setting: Setting, chains: Sequence[Chain]) -> xr.Dataset:
    """Parameters and values over (chain, draw)."""
    rows, levels = setting.rows, setting.graded.levels
    low, width = levels.low, levels.width
    bottom, top = data.attrs["judge_range"]
    at = levels.level if setting.fitted.increasing else 1.0 - levels.level

    def stacked(name: str) -> FloatArray:
        return np.stack([getattr(one.draws, name) for one in chains])

    value = np.stack([one.value.T for one in chains])  # (chain, draw, policy)
    known = np.isfinite(value).all(axis=(0, 1)) & _speaks(setting)
    variables: dict[str, Any] = {
        "value": (("chain", "draw", "policy"), value[..., known]),
        "calibrator": (("chain", "draw", "level"), low + width * stacked("f")),
        "ends": (("chain", "draw", "end"), low + width * stacked("ends")),
        "shape": (("chain", "draw", "spline"), stacked("shape")),
    }
    coords: dict[str, Any] = {
        "chain": np.arange(len(chains)),
        "draw": np.arange(value.shape[1]),
        "policy": np.array(rows.policies)[known],
        "level": bottom + (top - bottom) * at,
    }
    if not levels.binary:
        variables["sigma"] = (("chain", "draw"), width * stacked("sigma"))
    if chains[0].draws.beta is not None:
        variables["covariate_effect"] = (("chain", "draw", "effect"), stacked("beta"))
    if chains[0].shift is not None:
        shift = width * np.stack([one.shift.T for one in chains if one.shift is not None])
        probed = np.isfinite(shift).all(axis=(0, 1))
        if probed.any():
            corrected = np.stack([one.corrected.T for one in chains if one.corrected is not None])
            variables["shift"] = (("chain", "draw", "probed"), shift[..., probed])
            variables["corrected_value"] = (("chain", "draw", "probed"), corrected[..., probed])
            coords["probed"] = np.array(rows.policies)[probed]
    return xr.Dataset(variables, coords=coords)


def _speaks(setting: Setting) -> BoolArray:
    """Policies whose value is a posterior, and not refused, as in `cje_core.estimators.bayes_direct`."""
    rows = setting.rows
    own = rows.evaluated & rows.labelled
    corrected, taught = posterior.enough(rows, own), posterior.enough(rows, rows.teaches)
    status = [
        posterior.policy_status(setting, p, correcting=own if corrected[p] else None, convergence=Status.OK)
        for p in range(len(rows.policies))
    ]
    told = posterior.refuse(setting, status, ~corrected & ~taught)
    return np.array([not (said.failed or said in posterior.SILENT) for said in told], dtype=bool)


def _mean(setting: Setting, draws: Draws, which: Any) -> FloatArray:
    """E[Y] of some rows in every draw, on [0, 1], shape (draws, rows)."""
    graded = setting.graded
    f = draws.f[:, graded.at[which]]
    if draws.beta is None:
        return np.asarray(f)
    assert graded.columns is not None
    odds = np.exp(draws.beta @ graded.columns[which].T)
    return np.asarray(f * odds / (1.0 - f + f * odds))


def _likelihood(setting: Setting, draws: Sequence[Draws], mean: FloatArray, which: Any) -> FloatArray:
    """Log density of each label, in oracle units, shape (chain, draw, label)."""
    y, levels = setting.graded.label[which], setting.graded.levels
    if levels.binary:
        inside = np.clip(mean, TINY, 1.0 - TINY)
        return np.asarray(np.where(y > 0.5, np.log(inside), np.log1p(-inside)))
    sigma = np.stack([one.sigma for one in draws])[..., None]
    density = -0.5 * ((y - mean) / sigma) ** 2 - np.log(sigma * levels.width * np.sqrt(2.0 * np.pi))
    return np.asarray(density)


def _replicated(setting: Setting, draws: Sequence[Draws], mean: FloatArray) -> FloatArray:
    """Labels drawn again, oracle units, from a stream of their own: the same posterior, the same replicates."""
    levels, rng = setting.graded.levels, np.random.default_rng(mean.shape[2])
    if levels.binary:
        y = (rng.random(mean.shape) < mean).astype(float)
    else:
        y = mean + np.stack([one.sigma for one in draws])[..., None] * rng.standard_normal(mean.shape)
    return np.asarray(levels.low + levels.width * y)


def independent(estimate: xr.Dataset, *, n_chains: int = N_CHAINS) -> xr.DataTree:
    """Independent draws of an estimate, dealt to chains, in the group ``posterior``.

    For posteriors that are drawn directly and for bootstraps: there any cut into chains is as good as another.

    Parameters
    ----------
    estimate : xr.Dataset
        With ``draws(policy, replicate)``.
    n_chains : int

    Raises
    ------
    ValueError
        Where the estimate has no draws, or those of a sampler's chain, which depend on each other.

    Examples
    --------
    >>> draws = np.random.default_rng(0).random((1, 100))
    >>> one = xr.Dataset({"draws": (("policy", "replicate"), draws)}, {"policy": ["a"]}, {"estimator": "mine"})
    >>> dict(independent(one)["posterior"]["value"].sizes)
    {'chain': 4, 'draw': 25, 'policy': 1}
    """
    if "draws" not in estimate:
        raise ValueError("this estimate has no draws; use a posterior, or inference='bootstrap'")
    if "calibrator" in estimate:
        raise ValueError(
            "these draws are of a sampler's chain; cje_core.families.chains.sample(data) keeps them apart"
        )
    drawn = estimate["draws"].transpose("replicate", "policy").values
    known: BoolArray = np.isfinite(drawn).all(axis=0)
    size = len(drawn) // n_chains
    dealt = drawn[: size * n_chains, known].reshape(n_chains, size, -1)
    ds = xr.Dataset(
        {"value": (("chain", "draw", "policy"), dealt)},
        {"chain": np.arange(n_chains), "draw": np.arange(size), "policy": estimate["policy"].values[known]},
        {"estimator": estimate.attrs["estimator"]},
    )
    return xr.DataTree.from_dict({"posterior": described(ds, MEANING)})
