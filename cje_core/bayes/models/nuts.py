"""Run a PyMC model by NUTS: nutpie, compiled once and given new data, or PyMC's own; convergence gates.

Compiling costs many seconds of CPU, so compiled models are kept by what they depend on
(`cje_core.bayes.models.specification.Specification.key`) and used again with other data, grids of levels and priors.
A trace is an InferenceData or a DataTree, as the installed ArviZ has it; `posterior` reads either.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from cje_core.bayes.gibbs import Draws, curve
from cje_core.bayes.levels import Levels
from cje_core.bayes.models.engines import (
    arrow,
    az,
    brief_shape_errors,
    by_numba,
    nutpie,
    pm,
    quiet,
    uncollected,
)
from cje_core.bayes.models.specification import Specification
from cje_core.bayes.models.watching import COMPILING, NUTPIE, SAMPLING, WARM_UP, is_watched, tell
from cje_core.checks import Rng
from cje_core.inference.estimate import Status

TARGET_ACCEPT = 0.95  # labels at 0 or 1 push f to the edge of what it can be: fewer divergences there
RHAT, BULK, TAIL, BFMI = 1.01, 400.0, 400.0, 0.3  # gates; ESS over all chains
ENGINES = ("nutpie", "pymc")
ARVIZ_GROUPS = (
    "posterior", "sample_stats", "posterior_predictive", "log_likelihood", "observed_data", "constant_data",
)  # fmt: skip
MAX_COMPILED = 16  # models kept, a few megabytes each; the one not used for longest goes first

_compiled: OrderedDict[Hashable, Any] = OrderedDict()


@dataclass(frozen=True)
class NutsOptions:
    """How NUTS is run."""

    engine: str = "nutpie"  # or "pymc"
    n_draws: int = 1000  # draws kept, split evenly over the chains
    tune: int = 500  # warm-up steps of each chain
    chains: int = 4  # one alone can be judged, see `diagnose`, but not against others
    cores: int = 1  # processes or threads

    def __post_init__(self) -> None:
        """Stop at options that no sampler takes."""
        if self.engine not in ENGINES:
            raise ValueError(f"engine={self.engine!r}: use 'nutpie' or 'pymc'")
        if min(self.n_draws, self.chains, self.cores) < 1 or self.tune < 0:
            raise ValueError(f"{self}: n_draws, chains and cores must be at least 1, tune at least 0")


DEFAULT = NutsOptions()


def run(model: Specification, options: NutsOptions = DEFAULT, *, rng: Rng = None) -> Any:
    """Sample a model and return its trace, an InferenceData or a DataTree; nutpie's compiled model is kept.

    An int as `rng` is NUTS' seed itself; a generator draws one. Every call samples: whoever needs a trace twice passes
    it on (`cje_core.families.posterior.CalibratorPosterior`).
    """
    seed = int(rng if isinstance(rng, int | np.integer) else np.random.default_rng(rng).integers(2**31))
    shared: dict[str, Any] = {
        "draws": -(-options.n_draws // options.chains),
        "tune": options.tune,
        "chains": options.chains,
        "cores": options.cores,
        "target_accept": TARGET_ACCEPT,
    }
    if options.engine == "nutpie":
        tell(COMPILING)
        ready = compiled(model).with_data(**model.shared)
        tell(NUTPIE)
        with quiet():
            run = nutpie.sample(ready, seed=seed, progress_bar=is_watched(), return_raw_trace=True, **shared)
        return from_nutpie(run, getattr(ready, "reparameterized_names", ()))
    tell(COMPILING)
    done = 0

    def drawn(trace: Any, draw: Any) -> None:
        nonlocal done
        done += 1
        tell(
            WARM_UP if draw.tuning else SAMPLING, done, shared["chains"] * (shared["tune"] + shared["draws"])
        )

    with by_numba(), brief_shape_errors(), model.build(), quiet():
        return pm.sample(
            callback=drawn if is_watched() else None,
            random_seed=seed,
            nuts_sampler="pymc",
            progressbar=False,
            compute_convergence_checks=False,  # `diagnose` does them, and its verdict becomes a status
            **shared,
        )


def from_nutpie(run: Any, transformed: Iterable[str] = ()) -> Any:
    """Trace of what nutpie returns as it is: Arrow tables of draws and of steps, one of either for each chain.

    Nutpie's own conversion labels every variable, twice for the warm-up that nobody asked for, and takes as long as a
    short chain. Left out are what it leaves out (vectors over all parameters, draws of the `transformed`), and what
    only some steps have.
    """
    draws, steps = run.get_arrow_trace()
    warm_up = [arrow(one.column("tuning")).true_count for one in steps]
    about = {
        "created_at": datetime.now(UTC).isoformat(),
        "inference_library": "nutpie",
        "inference_library_version": nutpie.__version__,
    }
    tables = {"posterior": draws, "sample_stats": steps}
    groups = {
        name: _stacked(chains, warm_up, transformed).assign_attrs(about) for name, chains in tables.items()
    }
    return to_arviz(groups)


def _stacked(chains: Sequence[Any], warm_up: Sequence[int], left_out: Iterable[str]) -> xr.Dataset:
    """Columns of the chains' tables after their warm-up, over ``chain, draw``; NaN or 0 where a chain was cut short."""
    found: dict[str, Any] = {}
    for field in chains[0].schema:
        told = {
            key.decode(): text.decode().split(",") for key, text in (field.metadata or {}).items() if text
        }
        if field.name in {"chain", "draw", *left_out} or told.get("dims") == ["unconstrained_parameter"]:
            continue
        shape = tuple(map(int, told.get("shape", ())))
        columns = [arrow(one.column(field.name)) for one in chains]
        if any(one.null_count for one in columns):
            continue
        each = [
            (one.flatten() if shape else one).to_numpy(zero_copy_only=False).reshape(-1, *shape)[first:]
            for one, first in zip(columns, warm_up, strict=True)
        ]
        values = np.zeros((len(each), max(map(len, each)), *shape), each[0].dtype)
        if values.dtype.kind == "f":
            values.fill(np.nan)
        for chain, one in zip(values, each, strict=True):
            chain[: len(one)] = one
        found[field.name] = (("chain", "draw", *told.get("dims", ())), values)
    data = xr.Dataset(found)
    return data.assign_coords({name: np.arange(size) for name, size in data.sizes.items()})


def compiled(model: Specification) -> Any:
    """The model compiled for nutpie, seconds of CPU the first time; it stands for all of the same key."""
    key = model.key
    if key not in _compiled:
        with quiet(), uncollected(), brief_shape_errors():
            _compiled[key] = nutpie.compile_pymc_model(model.build(to_compile=True))
        if len(_compiled) > MAX_COMPILED:
            _compiled.popitem(last=False)
    _compiled.move_to_end(key)
    return _compiled[key]


def save_trace(trace: Any, path: str | Path) -> None:
    """Write a trace as netCDF, readable by `load_trace` and by ArviZ of either major version.

    Examples
    --------
    >>> import tempfile
    >>> draws = xr.Dataset({"value": (("chain", "draw"), np.zeros((4, 25)))})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_trace(to_arviz(xr.DataTree.from_dict({"posterior": draws})), Path(folder) / "trace.nc")
    ...     [path.name for path in Path(folder).iterdir()]
    ['trace.nc']
    """
    # both classes have it; h5netcdf, the default of one ArviZ, need not be there
    trace.to_netcdf(str(path), engine="netcdf4")


def load_trace(path: str | Path) -> Any:
    """Read a trace: an InferenceData or a DataTree, as the installed ArviZ has it.

    Examples
    --------
    >>> import tempfile
    >>> draws = xr.Dataset({"value": (("chain", "draw"), np.zeros((4, 25)))})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "trace.nc"
    ...     save_trace(to_arviz(xr.DataTree.from_dict({"posterior": draws})), path)
    ...     sorted(posterior(load_trace(path)))
    ['value']
    """
    if not Path(path).is_file():
        raise ValueError(f"no trace at {path}; write one with save_trace")
    return az.from_netcdf(str(path), engine="netcdf4")


def to_arviz(groups: xr.DataTree | Mapping[str, xr.Dataset]) -> Any:
    """Groups, in a tree or by name, as the installed ArviZ has them: an InferenceData before version 1, a tree after.

    Examples
    --------
    >>> draws = xr.Dataset({"value": (("chain", "draw"), np.zeros((4, 25)))})
    >>> dict(posterior(to_arviz(xr.DataTree.from_dict({"posterior": draws}))).sizes)
    {'chain': 4, 'draw': 25}
    """
    if (
        int(az.__version__.partition(".")[0]) >= 1
    ):  # which has the old name again, for the tree, with a warning
        return groups if isinstance(groups, xr.DataTree) else xr.DataTree.from_dict(groups)
    if isinstance(groups, xr.DataTree):
        groups = {name: node.to_dataset(inherit=False) for name, node in groups.children.items()}
    return az.InferenceData(**{name: ds for name, ds in groups.items() if name in ARVIZ_GROUPS})


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


def to_draws(trace: Any, levels: Levels, n_draws: int) -> Draws:
    """`n_draws` draws of f at the given levels from a trace with ``ends``, ``shape`` and perhaps ``sigma``."""
    found = posterior(trace)
    ends, shape = (pooled(found, name)[:n_draws] for name in ("ends", "shape"))
    sigma = pooled(found, "sigma")[:n_draws] if "sigma" in found else np.full(len(ends), np.nan)
    return Draws(curve(levels.level, ends, shape), ends, shape, sigma, diagnose(trace))


def diagnose(trace: Any) -> dict[str, float]:
    """Worst R-hat, worst bulk and tail ESS over the variables, divergences, smallest BFMI.

    Their names are ``rhat``, ``ess_bulk``, ``ess_tail``, ``divergences``, ``bfmi``. R-hat is the rank-normalised one of
    Vehtari, Gelman, Simpson, Carpenter and Buerkner (2021), which compares the halves of every chain. A chain alone is
    compared with itself, its halves taken for two chains: that shows drift and slow mixing, but no second mode that the
    chain never saw. (ArviZ asks for two chains and answers NaN for one.)
    """
    rhat, bulk, tail = [], [], []
    for variable in posterior(trace).data_vars.values():
        values = variable.transpose("chain", "draw", ...).values
        for column in values.reshape(*values.shape[:2], -1).transpose(2, 0, 1):
            half = column.shape[1] // 2
            chains = column if len(column) > 1 else np.stack([column[0, :half], column[0, -half:]])
            rhat.append(float(az.rhat(chains)))
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
