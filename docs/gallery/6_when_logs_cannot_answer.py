"""
When logs cannot answer
=======================

Importance weighting asks what a target policy would have done from what a logger did. Where the logger rarely says what
the target would say, no weighting can answer, however many responses were logged.
"""

# %%
# Token sequences by Zipf's law, and targets tilted towards tokens that pay: how much of what a target typically says
# the logger says too (TTC), and the limit of ESS/n. Both are exact, for any length.

from matplotlib import pyplot as plt

from cje_sim.scenarios import zipf_tilt

lengths = [10, 25, 50, 100, 200, 400]
exact = [zipf_tilt.overlap(length=length, utility="aligned") for length in lengths]
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
for name in ("tilt_0.1", "tilt_0.3", "tilt_0.5"):
    at = [found.sel(policy=name) for found in exact]
    left.plot(lengths, [found["ttc"] for found in at], marker="o", label=name)
    right.plot(lengths, [10 ** found["log10_ess"] for found in at], marker="o", label=name)
left.axhline(0.7, color="grey", linewidth=0.8, linestyle="--")
left.set(xlabel="tokens per response", ylabel="TTC, exact (dashed: gate)", xscale="log")
right.set(xlabel="tokens per response", ylabel="ESS/n, exact limit", xscale="log", yscale="log")
left.legend()
figure.show()

# %%
# The same from data, 200 tokens a response. SNIPS has nothing but the logs, and its standard error knows only the few
# responses that carry weight. ``direct`` has fresh responses of every target and calibrates their scores; what
# ``stacked_dr`` adds to those from the logs is next to nothing.

import cje_core
import cje_sim
from cje_core.estimators import direct, snips, stacked_dr

world = {"length": 200, "utility": "aligned"}
data = cje_sim.simulate("zipf_tilt", n=500, rng=1, **world)
shown = {
    "snips": snips.estimate(data),
    "stacked_dr": stacked_dr.estimate(data),
    "direct": direct.estimate(data),
}
axes = cje_core.figures.forest(shown, truth=cje_sim.truth("zipf_tilt", **world))

# %%
# The gates speak before a number is believed: raw ESS/n below its gate, weights whose tail has no variance. Stabilised
# weights look healthy whatever the overlap is, so the raw ones decide.

from cje_core.offpolicy.overlap import overlap

panels = cje_core.figures.ess_tails(overlap(data))
