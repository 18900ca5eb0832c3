"""The one door to the samplers: what another process does to it while it opens."""

import contextlib
import gc
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numba
import numpy as np
import pytest

from cje_core.bayes.models import engines

RACE = """
import sys
from importlib.machinery import ModuleSpec

class Gone:
    '''Another process has renamed ArviZ's temporary file, `times` times; what loads for seconds is empty here.'''
    times = {times}

    def find_spec(self, name, path=None, target=None):
        if name == "arviz" and Gone.times:
            Gone.times -= 1
            raise FileNotFoundError(2, "No such file or directory", "daily_warning.tmp")
        if name.partition(".")[0] in ("arviz", "nutpie", "pymc", "pytensor", "pyarrow"):
            return ModuleSpec(name, None, is_package=True)

sys.meta_path.insert(0, Gone())
from cje_core.bayes.models.engines import az
print(az.__name__, Gone.times)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("times", "code"), [(1, 0), (2, 1)])
def test_a_race_for_the_note_of_the_day_is_lost_once(times, code):
    """Lost once, the import is tried again; what is missing twice is no race."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(RACE.format(times=times))],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert done.stdout.strip() == "arviz 0" if code == 0 else "daily_warning.tmp" in done.stderr


@pytest.mark.parametrize("on", [True, False])
def test_the_collector_is_as_it_was_after_a_pause_and_after_an_error(on):
    before = gc.isenabled()
    try:
        (gc.enable if on else gc.disable)()
        with engines.uncollected():
            assert not gc.isenabled()
        assert gc.isenabled() is on
        with pytest.raises(ValueError), engines.uncollected():
            raise ValueError
        assert gc.isenabled() is on
    finally:
        (gc.enable if before else gc.disable)()


@pytest.mark.slow
def test_numba_does_not_compile_the_shapes_into_errors_of_our_models_and_does_so_again_after():
    """Where numba names them: what is compiled inside must not, and the same code compiled later must."""
    shapes = {}
    for brief in (True, False):

        @numba.njit
        def assign(target, source):
            target[...] = source

        with engines.brief_shape_errors() if brief else contextlib.nullcontext():
            with pytest.raises(ValueError, match="cannot assign slice") as error:
                assign(np.zeros(2), np.zeros(3))
            shapes[brief] = "(3,)" in str(error.value)
    named = hasattr(engines.arrayobj, "raise_with_shape_context")
    assert shapes == {True: False, False: named}
