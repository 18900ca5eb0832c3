"""Functions that numba compiles, from the moment one of them is called: loading numba takes .4 s.

Compiled code is kept beside the source (`cje_core.caches` where that cannot be written), so only the first call after a
change of the source, or of one that it imports from, compiles.
"""

import functools
import os
import re
import sys
import types
from collections.abc import Callable
from typing import Any

from cje_core import caches


class Kernel:
    """A function of a module's top level, compiled without Python objects when it is first called.

    Other kernels that it names are compiled as parts of it, in a form that Python cannot call and that is not kept by
    itself but in the whole: a sixth of compiling less.

    Examples
    --------
    >>> Kernel(lambda x: x + 1).function(2)
    3
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function  # what is compiled: the same numbers, interpreted
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any) -> Any:
        """Call the compiled function."""
        return self.dispatcher(*args)

    @functools.cached_property
    def dispatcher(self) -> Any:
        """The function in numba's form."""
        return njit(self._linked())

    @functools.cached_property
    def part(self) -> Any:
        """The function in the form that other kernels call."""
        return _numba_form(self._linked(), no_cpython_wrapper=True)

    def _linked(self) -> Callable[..., Any]:
        """The function with the kernels that it names as parts, which is where numba looks them up."""
        function, known = self.function, self.function.__globals__
        named = {
            name: known[name] for name in function.__code__.co_names if isinstance(known.get(name), Kernel)
        }
        linked = types.FunctionType(
            function.__code__,
            known | {name: kernel.part for name, kernel in named.items()},
            function.__name__,
            function.__defaults__,
            function.__closure__,
        )
        linked.__kwdefaults__ = function.__kwdefaults__
        return functools.update_wrapper(linked, function)


def njit(function: Callable[..., Any]) -> Any:
    """Return the function in numba's form, for modules that cannot do without numba; compiled when first called."""
    compiled = _numba_form(function, cache=True)
    _keep(compiled, sources(function.__module__))
    return compiled


def _numba_form(function: Callable[..., Any], **options: bool) -> Any:
    """A function that numba compiles once for a type of argument, and not again for each constant that is passed."""
    caches.redirect_before("numba")
    import numba

    # no C calls it: a twentieth of compiling
    compiled = numba.njit(no_cfunc_wrapper=True, **options)(function)
    typed, unliteral = compiled.get_call_template, numba.types.unliteral
    compiled.get_call_template = lambda args, kws: typed(
        tuple(map(unliteral, args)), {name: unliteral(kind) for name, kind in kws.items()}
    )
    return compiled


def sources(module: str) -> list[str]:
    """Files of a module and of all modules of this project that it takes names from, and these from others."""
    project, found, queue = module.partition(".")[0], dict[str, str](), [module]
    while queue:
        name = queue.pop()
        file = getattr(sys.modules.get(name), "__file__", None)
        if name in found or file is None:
            continue
        found[name] = file
        of = {getattr(value, "__module__", None) for value in vars(sys.modules[name]).values()}
        of |= imported(file)  # a constant does not say where it is from, and is compiled in
        queue += [other for other in of if isinstance(other, str) and other.partition(".")[0] == project]
    return sorted(found.values())


@functools.cache
def imported(file: str) -> frozenset[str]:
    """Dotted names that a file imports at its top level; some are names inside a module."""
    with open(file, encoding="utf-8") as handle:  # noqa: PTH123 -- pathlib takes longer to load than to read
        text = handle.read()
    names = set(re.findall(r"^import ([\w.]+)", text, re.MULTILINE))
    for module, what in re.findall(r"^from ([\w.]+) import (\([^)]*\)|[^\n]*)", text, re.MULTILINE):
        names |= {module, *(f"{module}.{name}" for name in re.findall(r"\w+", what))}
    return frozenset(names)


def _keep(compiled: Any, files: list[str]) -> None:
    """Let compiled code be kept as long as none of these files changes.

    Numba looks at the file of the function alone: it would go on with the old code of a kernel that this one calls,
    and fail at an index that names a type which has moved.
    """
    kept = getattr(compiled._cache, "_cache_file", None)
    if kept is None:  # numba found no place to keep it
        return
    kept._source_stamp = [(os.path.getsize(file), os.path.getmtime(file)) for file in files]  # noqa: PTH202, PTH204
    load = kept._load_index

    def load_index() -> Any:
        try:
            return load()
        except (AttributeError, ImportError):
            return {}

    kept._load_index = load_index
