"""One file is one world: the directory listing is the registry.

Each module documents its mechanism and states its law and its ``truth(...) -> xr.DataArray`` over ``policy``. The
frame, ``cje_sim.world``, gives it ``simulate(*, n, ..., rng) -> xr.Dataset`` (evaluation data, see ``cje_core.data``),
with the same world parameters.

Rule of this package: it holds worlds and nothing else.
"""

import importlib
import pkgutil
from functools import cache
from types import ModuleType


def available() -> list[str]:
    """Names of all scenarios, sorted: the module names of this directory.

    Examples
    --------
    >>> "weak_judge" in available()
    True
    """
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))


@cache  # a look at the directory for every fit costs a study more than some fits
def load(name: str) -> ModuleType:
    """Import the scenario ``name``; an unknown name raises with the names there are.

    Examples
    --------
    >>> sorted(load("weak_judge").truth().policy.values.tolist())
    ['base', 'better', 'slightly_better', 'worse']
    """
    if name not in available():
        raise ValueError(f"no scenario named {name!r}; there are: {', '.join(available())}")
    return importlib.import_module(f"{__name__}.{name}")
