"""Run the PyMC models: nutpie compiled once per process and given new data, or PyMC's own NUTS; convergence gates.

Compiling costs many seconds of CPU, so compiled calibration models are kept, by basis size and likelihood, and used
again with other data, grids of levels and priors.
A trace is an InferenceData or a DataTree, as the installed ArviZ has it; `posterior` reads either.
"""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from cje_core.bayes.gibbs import Draws, curve
from cje_core.bayes.levels import Levels
from cje_core.bayes.models import slice
from cje_core.bayes.models.engines import az, nutpie, pm, quiet
from cje_core.bayes.prior import Prior
from cje_core.inference.estimate import Status

TARGET_ACCEPT = 0.95  # labels at 0 or 1 push f to the edge of what it can be: fewer divergences there
RHAT, BULK, TAIL, BFMI = 1.01, 400.0, 400.0, 0.3  # gates; ESS over all chains
ENGINES = ("nutpie", "pymc")


def sample(
    levels: Levels,
    *,
    engine: str = "nutpie",
    n_draws: int = 1000,
    tune: int = 500,
    chains: int = 4,
    cores: int = 1,
    prior: Prior | None = None,
    seed: int = 0,
) -> Draws:
    """Draw from the posterior of the calibrator with NUTS.

    Parameters
    ----------
    levels : Levels
    engine : {"nutpie", "pymc"}
    n_draws : int
        Draws kept, split evenly over the chains.
    tune, chains, cores : int
        Warm-up steps and chains; processes or threads.
    prior : Prior, optional
    seed : int

    Returns
    -------
    Draws
        With the numbers of `diagnose`.
    """
    trace = run(
        levels, engine=engine, n_draws=n_draws, tune=tune, chains=chains, cores=cores, prior=prior, seed=seed
    )
    return to_draws(trace, levels, n_draws)


def run(
    levels: Levels,
    *,
    engine: str = "nutpie",
    n_draws: int = 1000,
    tune: int = 500,
    chains: int = 4,
    cores: int = 1,
    prior: Prior | None = None,
    seed: int = 0,
) -> Any:
    """Full trace of the calibration model; parameters as in `sample`."""
    prior = prior or Prior()
    settings = {"n_draws": n_draws, "tune": tune, "chains": chains, "cores": cores, "seed": seed}
    if engine == "nutpie":
        compiled = _compiled(levels.binary, prior.n_splines)
        return sample_compiled(compiled, slice.data_of(levels, prior), **settings)
    return fit(slice.calibration(levels, prior), engine=engine, **settings)


def fit(
    model: pm.Model,
    *,
    engine: str = "nutpie",
    n_draws: int = 1000,
    tune: int = 500,
    chains: int = 4,
    cores: int = 1,
    seed: int = 0,
) -> Any:
    """Compile and sample any model of `cje_core.bayes.models.slice` or `cje_core.bayes.models.policies`.

    Parameters
    ----------
    model : pm.Model
    engine, n_draws, tune, chains, cores, seed
        As in `sample`.

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
    """
    if engine not in ENGINES:
        raise ValueError(f"engine is {engine!r}; use 'nutpie' or 'pymc'")
    if engine == "nutpie":
        compiled = compile_model(model)
        return sample_compiled(compiled, n_draws=n_draws, tune=tune, chains=chains, cores=cores, seed=seed)
    with model, quiet():
        return pm.sample(
            draws=-(-n_draws // chains),
            tune=tune,
            chains=chains,
            cores=cores,
            random_seed=seed,
            target_accept=TARGET_ACCEPT,
            nuts_sampler="pymc",
            progressbar=False,
            compute_convergence_checks=False,  # `diagnose` does them, and its verdict becomes a status
        )


def compile_model(model: pm.Model) -> Any:
    """Compile a model for nutpie: seconds, once; `sample_compiled` takes it with any data of the same rank."""
    with quiet():
        return nutpie.compile_pymc_model(model)


def sample_compiled(
    compiled: Any,
    data: Mapping[str, Any] | None = None,
    *,
    n_draws: int = 1000,
    tune: int = 500,
    chains: int = 4,
    cores: int = 1,
    seed: int = 0,
) -> Any:
    """Sample a compiled model with nutpie.

    Parameters
    ----------
    compiled
        From `compile_model`.
    data : mapping of name to array, optional
        New values of the model's data, as the function of `cje_core.bayes.models.slice` beside the model gives them.
        Sizes may change where no parameter depends on them.
    n_draws, tune, chains, cores, seed
        As in `sample`.

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
    """
    if data is not None:
        compiled = compiled.with_data(**data)
    with quiet():
        return nutpie.sample(
            compiled,
            draws=-(-n_draws // chains),
            tune=tune,
            chains=chains,
            cores=cores,
            seed=seed,
            target_accept=TARGET_ACCEPT,
            progress_bar=False,
            save_warmup=False,
        )


@lru_cache(maxsize=8)
def _compiled(binary: bool, n_splines: int) -> Any:
    """Compiled model of one likelihood and basis size; its data are placeholders."""
    size = 2
    levels = Levels(np.linspace(0.2, 0.8, size), np.full(size, 2.0), np.ones(size), 2.0, binary, 0.0, 1.0)
    return compile_model(slice.calibration(levels, Prior(n_splines=n_splines)))


def save_trace(trace: Any, path: str | Path) -> None:
    """Write a trace as netCDF, readable by `load_trace` and by ArviZ of either major version."""
    # both classes have it; h5netcdf, the default of one ArviZ, need not be there
    trace.to_netcdf(str(path), engine="netcdf4")


def load_trace(path: str | Path) -> Any:
    """Read a trace: an InferenceData or a DataTree, as the installed ArviZ has it."""
    if not Path(path).is_file():
        raise ValueError(f"no trace at {path}; write one with save_trace")
    return az.from_netcdf(str(path), engine="netcdf4")


def group(trace: Any, name: str) -> xr.Dataset:
    """One group of a trace of either ArviZ, as a Dataset."""
    found = trace[name]
    out = found.to_dataset() if isinstance(found, xr.DataTree) else found
    assert isinstance(out, xr.Dataset)
    return out


def posterior(trace: Any) -> xr.Dataset:
    """Posterior draws of a trace of either ArviZ, over ``chain, draw``."""
    return group(trace, "posterior")


def pooled(found: xr.Dataset, name: str) -> Any:
    """Draws of one variable, shape (draws, ...): the chains of each step side by side."""
    values = found[name].transpose("draw", "chain", ...).values
    return values.reshape(-1, *values.shape[2:])


def to_draws(trace: Any, levels: Levels, n_draws: int, *, policy: int | None = None) -> Draws:
    """`n_draws` draws of f at the given levels from a trace with ``ends``, ``shape`` and perhaps ``sigma``.

    With `policy`, its own f of a trace of `cje_core.bayes.models.policies.hierarchical`.
    """
    found = posterior(trace)
    prefix = "" if policy is None else "own_"
    ends, shape = (pooled(found, prefix + name)[:n_draws] for name in ("ends", "shape"))
    if policy is not None:
        ends, shape = ends[:, policy], shape[:, policy]
    sigma = pooled(found, "sigma")[:n_draws] if "sigma" in found else np.full(len(ends), np.nan)
    return Draws(curve(levels.level, ends, shape), ends, shape, sigma, diagnose(trace))


def diagnose(trace: Any) -> dict[str, float]:
    """Worst R-hat, worst bulk and tail ESS over the variables, divergences, smallest BFMI.

    Parameters
    ----------
    trace : arviz.InferenceData or xarray.DataTree

    Returns
    -------
    dict
        ``rhat``, ``ess_bulk``, ``ess_tail``, ``divergences``, ``bfmi``.
    """
    rhat, bulk, tail = [], [], []
    for variable in posterior(trace).data_vars.values():
        values = variable.transpose("chain", "draw", ...).values
        for column in values.reshape(*values.shape[:2], -1).transpose(2, 0, 1):
            rhat.append(float(az.rhat(column)))
            bulk.append(float(az.ess(column, method="bulk")))
            tail.append(float(az.ess(column, method="tail", prob=(0.05, 0.95))))
    stats = group(trace, "sample_stats")
    energy = stats["energy"].transpose("chain", "draw").values
    around = ((energy - energy.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    return {
        "rhat": max(rhat),
        "ess_bulk": min(bulk),
        "ess_tail": min(tail),
        "divergences": float(stats["diverging"].values.sum()),
        "bfmi": float(((np.diff(energy, axis=1) ** 2).sum(axis=1) / around).min()),
    }


def gates(found: dict[str, float]) -> Status:
    """Verdict on the numbers of `diagnose`; none (Gibbs draws) pass, and NaN fails.

    Gates: R-hat at most 1.01, bulk and tail ESS at least 400, no divergence, BFMI at least 0.3.

    Examples
    --------
    >>> good = {"rhat": 1.0, "ess_bulk": 900.0, "ess_tail": 700.0, "divergences": 0.0, "bfmi": 0.9}
    >>> gates(good).name, gates(good | {"rhat": 1.02}).name
    ('OK', 'NOT_CONVERGED')
    """
    if not found:
        return Status.OK
    good = (
        found["rhat"] <= RHAT
        and found["ess_bulk"] >= BULK
        and found["ess_tail"] >= TAIL
        and found["divergences"] == 0
        and found["bfmi"] >= BFMI
    )
    return Status.OK if good else Status.NOT_CONVERGED
