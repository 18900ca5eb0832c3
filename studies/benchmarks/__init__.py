"""One file is one comparison: the directory listing is the registry.

Each module says in its docstring what is compared and defines ``BENCHMARK = Benchmark(...)``, see
`studies.engine.benchmark`: contenders (ours first, peers, the physical limit) and the cases of a profile. Of the
project a module imports at its top only that, since the interpreter of a peer reads it too.

Rule of this package: it holds benchmarks and nothing else.
"""

import importlib
import pkgutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from studies.engine.benchmark import Benchmark


def available() -> list[str]:
    """Names of all benchmarks, sorted: the module names of this directory.

    Examples
    --------
    >>> "one_mean" in available()
    True
    """
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))


def load(name: str) -> "Benchmark":
    """Import the benchmark ``name``; an unknown name raises with the names there are.

    Examples
    --------
    >>> load("one_mean").contenders[0].name
    'cje-lab'
    """
    from studies.engine.study import StudyError

    if name not in available():
        raise StudyError(f"no benchmark named {name!r}; there are: {', '.join(available())}")
    benchmark: Benchmark = importlib.import_module(f"{__name__}.{name}").BENCHMARK
    return benchmark
