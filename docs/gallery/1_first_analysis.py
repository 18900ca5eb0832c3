"""
First analysis
==============

Five policies, a judge that scored every response, and an oracle that labelled a quarter of one policy's. How good are
the policies, and which numbers may be reported?
"""

# %%
# Data of a world whose truth is known. ``base`` has labels; the others have 50 probes each, labels that audit the
# calibration and never teach it. Files are read in the same way: ``cje_core.analyze("responses/", probes="probes/")``.

import cje_core
import cje_sim

data = cje_sim.simulate("arena_like", n=1000, oracle_fraction=0.25, n_probes=50, rng=1)
truth = cje_sim.truth("arena_like")

# %%
# One call reads, estimates, audits, gates and compares. Each value says what it rests on.

result = cje_core.analyze(data)
result

# %%
# Beside the truth: the judge alone, the calibration of ``base`` taken over without a correction (``plug_in``), and the
# value that stands. The judge flatters ``unhelpful``: there the calibration does not transport, which its probes see.

from cje_core.estimators import direct, raw_judge

shown = {
    "raw_judge": raw_judge.estimate(data),
    "plug_in": direct.estimate(data, borrowed="plug_in"),
    "value": result.value,
}
axes = cje_core.figures.forest(shown, truth=truth)

# %%
# The audit that found it: the mean residual of each policy's probes, with the margin of the equivalence test.

axes = cje_core.figures.transport_residuals(result.transport)

# %%
# What every number rests on, what was measured of it, and whether that passes, is in the assumptions ledger.

result.assumptions["verdict"].to_pandas().T
