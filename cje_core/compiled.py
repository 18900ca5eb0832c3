"""Functions that numba compiles, from the moment one of them is called: loading numba takes .4 s.

Compiled code is kept beside the source (`cje_core.caches` where that cannot be written), so only the first call after a
change of the source compiles.
"""

import functools
import sys
from collections.abc import Callable
from typing import Any


class Kernel:
    """A function of a module's top level, compiled without Python objects when it is first called.

    Other kernels that it names are compiled with it; its module then holds them in their compiled form, which is what
    numba looks up.

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
        import numba

        known = self.function.__globals__
        for name in self.function.__code__.co_names:
            if isinstance(known.get(name), Kernel):
                known[name] = known[name].dispatcher
        return numba.njit(cache=True)(self.function)


def loaded() -> bool:
    """Whether this process has numba loaded, so that a compiled call costs nothing beside."""
    return "numba" in sys.modules
