"""PyMC, PyTensor, ArviZ, nutpie and its Arrow: imported here and nowhere else, so that what they say is answered once.

A user who runs with warnings as errors must be able to import and fit, and a user at the screen should see no remark
about code that is not theirs. Each filter is as narrow as its remark.
"""

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cje_core import caches

caches.redirect_before("arviz")
with warnings.catch_warnings():
    # ArviZ 0.23 (with PyMC 5.28, on Python 3.11) announces version 1 at its first import of the day; we run on both
    warnings.filterwarnings(
        "ignore", message=r"\s*ArviZ is undergoing a major refactor", category=FutureWarning
    )
    try:
        import arviz as az
    except FileNotFoundError:
        # its first import of the day writes a note of that into the cache folder of the user, by a temporary file whose
        # name all processes share: where two import at once, one renames it and the other finds it gone. The note is
        # there by now, so that the second attempt writes none.
        import arviz as az
    import nutpie
    import pymc as pm
    import pytensor.tensor as pt
    from numba.extending import overload
    from numba.np import arrayobj
    from pyarrow import array as arrow
    from pytensor import config

__all__ = ["arrow", "az", "brief_shape_errors", "by_numba", "nutpie", "pm", "pt", "quiet", "uncollected"]


@contextmanager
def quiet() -> Iterator[None]:
    """Hold back what dependencies say of our models.

    PyTensor 3.3 (Python 3.12) misses a BLAS, which is for large matrices; ours are 21 by 10.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="PyTensor could not link to a BLAS", category=UserWarning)
        # potentials hold the prior of our calibrators; replicated labels are drawn given parameters of a trace
        warnings.filterwarnings(
            "ignore", message="The effect of Potentials on other parameters", category=UserWarning
        )
        yield


@contextmanager
def uncollected() -> Iterator[None]:
    """Without Python's garbage collector: compilation makes millions of objects, most of which stay.

    Its searches through them take a tenth of the time.
    """
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


@contextmanager
def brief_shape_errors() -> Iterator[None]:
    """Have numba compile slice assignments whose error for unequal shapes does not name the shapes.

    Since version 0.65 numba compiles the text of that error into every assignment of arrays. Nutpie's function of the
    gradient has one, whose error nobody sees; its text took 1.7 of the 5.8 s of CPU that a cached model needs to
    compile, and 4 of 23 s without a cache.
    """
    if not hasattr(arrayobj, "raise_with_shape_context"):  # before 0.65
        yield
        return
    verbose = arrayobj.raise_with_shape_context
    arrayobj.raise_with_shape_context = _raise_briefly
    try:
        yield
    finally:
        arrayobj.raise_with_shape_context = verbose


def _raise_briefly(source: Any, target: Any) -> None:
    """Stand for the compiled error below, under a name that Python knows and never calls."""


@overload(_raise_briefly)
def _compile_brief_error(source: Any, target: Any) -> Any:
    def compiled(source: Any, target: Any) -> None:
        raise ValueError("cannot assign slice from input of different size")

    return compiled


def by_numba() -> Any:
    """Context in which PyTensor compiles by numba, as nutpie has it do: what one engine compiled the other finds.

    PyTensor 3 does so anyway. The C of PyTensor 2 takes half as long again, to compile our models and for each step.
    """
    return config.change_flags(mode="NUMBA")
