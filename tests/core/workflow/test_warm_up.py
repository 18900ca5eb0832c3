"""Nothing is left to compile for the first analysis after the installation's."""

import subprocess
import sys

import pytest

# in a process of its own: what other tests have called is compiled there already
FIRST_ANALYSIS = """
import gc, sys
from cje_core.calibration.calibrated import Calibration
from cje_core.workflow import posterior, warm_up
from cje_core.workflow.analyze import analyze
from cje_sim.scenarios import arena_like

def compiled():
    from numba.core.registry import CPUDispatcher
    return sum(len(one.signatures) for one in gc.get_objects() if isinstance(one, CPUDispatcher))

posterior.N_DRAWS = 20  # what is compiled is a matter of types
if "warm" in sys.argv:
    warm_up.main()
ready = compiled()
data = arena_like.simulate(n=1500, oracle_fraction=0.2, label_design="base", rng=1)
analyze(data, calibration=Calibration(["response_length"]), bayes="gibbs")
analyze(data, bayes="gibbs")
print(compiled() - ready)
"""


@pytest.mark.slow
def test_a_first_analysis_finds_all_compiled():
    """Planted: without the warm-up dozens of functions are left."""
    left = {}
    for how in ("warm", "cold"):
        run = subprocess.run(
            [sys.executable, "-c", FIRST_ANALYSIS, how], capture_output=True, text=True, check=True
        )
        left[how] = int(run.stdout)
    assert left["warm"] == 0 and left["cold"] > 12
