"""Kernels: compiled when first called, and not at all by an analysis that needs none."""

import subprocess
import sys

import numba
import numpy as np
import pytest

from cje_core.calibration.isotonic import pava_into, pool_into
from cje_core.compiled import Kernel

ANALYSIS = """
import sys
import numpy as np, pandas as pd
from cje_core.workflow.analyze import analyze
rng = np.random.default_rng(0)
frame = pd.DataFrame({"policy": np.repeat(["a", "b"], 80), "prompt_id": np.tile(np.arange(80), 2)})
frame["judge_score"] = rng.integers(0, 12, 160) / 11
label = np.clip(frame["judge_score"] + 0.3 * rng.normal(size=160), 0, 1)
frame["oracle_label"] = np.where(np.arange(160) % 3 == 0, label, np.nan)
analyze(frame)
print([name for name in ("matplotlib", "pymc", "scipy.interpolate", "scipy.optimize") if name in sys.modules])
"""


@pytest.mark.slow
def test_an_analysis_loads_no_sampler_and_nothing_to_draw():
    """Planted once: with the samplers' options imported at the top, SciPy's splines are there."""
    found = subprocess.run([sys.executable, "-c", ANALYSIS], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_interpreted_and_compiled_pooling_give_the_same_bits():
    rng = np.random.default_rng(1)
    for n in (1, 2, 7, 60, 500):
        mean, weight = rng.normal(np.linspace(0, 1, n), 0.4), rng.uniform(0.1, 5, n)
        few, last = [0.0] * n, [0] * n
        blocks = pool_into.function(mean.tolist(), weight.tolist(), n, few, [0.0] * n, last)
        value, ends = np.empty(n), np.empty(n, dtype=np.int64)
        assert pool_into(mean, weight, n, value, np.empty(n), ends) == blocks
        assert value[:blocks].tolist() == few[:blocks]
        assert ends[:blocks].tolist() == last[:blocks]


def test_a_kernel_keeps_its_name_and_documentation():
    assert isinstance(pava_into, Kernel)
    assert pava_into.__name__ == "pava_into"
    assert "isotonic" in (pava_into.__doc__ or "")


def plus(x, y=1.0):
    return x + y


added = Kernel(plus)


@Kernel
def thrice(x, k):
    return added(x) + added(x, 2) + added(x, k)


def test_a_kernel_keeps_its_defaults_and_is_compiled_once_for_constants_and_variables():
    assert added(2.0) == 3.0 and thrice(3.0, 3) == 15.0
    thrice.part.compile(
        (numba.float64, numba.int64)
    )  # in memory: what is kept on disk compiles no part again
    assert len(added.part.signatures) == 2  # without y, and once for the constant and the variable


def test_a_figure_that_is_settled_is_drawn_once(monkeypatch, tmp_path):
    """Planted once: without `settle` each file costs two drawings."""
    figure_module = pytest.importorskip("matplotlib.figure")
    from cje_core.figures import style

    drawn = []
    draw = figure_module.Figure.draw
    monkeypatch.setattr(
        figure_module.Figure, "draw", lambda self, renderer: (drawn.append(1), draw(self, renderer))[1]
    )
    with style.to_files():
        left, _ = style.policy_panels(None, ["one", "two"], 1.0)
    figure = left.get_figure(root=True)
    style.settle(figure)
    for kind in ("png", "svg"):
        figure.savefig(tmp_path / f"figure.{kind}")
    assert len(drawn) == 2


INNER = """
from typing import NamedTuple
from cje_core.compiled import Kernel

class {name}(NamedTuple):
    x: float

Pair = {name}

@Kernel
def inner(pair):
    return pair.x + {more}
"""
OUTER = """
from kernels_apart.inner import Pair, inner
from cje_core.compiled import Kernel

@Kernel
def outer(pair):
    return inner(pair) * 2
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "change", [{"name": "One", "more": 5.0}, {"name": "Two", "more": 1.0}], ids=["code", "type"]
)
def test_a_kernel_is_compiled_anew_when_what_it_calls_changes(tmp_path, change):
    """Planted once: with numba's own stamp the first gives 4, the second an AttributeError."""
    package = tmp_path / "kernels_apart"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "outer.py").write_text(OUTER)

    def run(**fields):
        (package / "inner.py").write_text(INNER.format(**fields))
        script = "from kernels_apart.outer import Pair, outer; print(outer(Pair(1.0)))"
        # no bytecode: Python takes that of a file of the same size and second for its own
        words = [sys.executable, "-B", "-c", script]
        done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=tmp_path)
        return float(done.stdout)

    assert run(name="One", more=1.0) == 4.0
    assert run(**change) == 2 * (1 + change["more"])
