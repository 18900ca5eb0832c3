"""
The ledger
==========

What the paper states and a computer can check is on trial. A statement about every world of a family is put to worlds
that are drawn at random and then to an optimiser that tries to break it; what breaks must break by a second method too.
"""

# %%
# The group of statements about coverage and its limits, in the profile that takes seconds; ``cje-lab claims`` decides
# all.

import pandas as pd

from studies.claims import load
from studies.ledger.trial import as_json, decide

entries = list(decide({"coverage": load("coverage")}, "smoke"))
pd.DataFrame([as_json(entry) for entry in entries])[["id", "verdict", "measured"]]

# %%
# The ESS form of the bound on coverage-limited efficiency, as printed and as repaired: how far either is broken in the
# worlds that were drawn, the most broken at the right. Below zero it holds.

from matplotlib import pyplot as plt

figure, axes = plt.subplots(layout="constrained")
for entry in entries:
    if entry.claim.name in ("cor-cle-ess", "cor-cle-ess-repaired"):
        for points in entry.evidence.curve.values():
            axes.plot(*zip(*points, strict=True), marker=".", label=f"{entry.claim.name}: {entry.verdict}")
        axes.set(xlabel=entry.evidence.axes[0], ylabel=entry.evidence.axes[1])
axes.axhline(0, color="grey", linewidth=0.8)
axes.legend()
figure.show()

# %%
# A world that breaks the printed form is small, and kept with the command that computes both sides in it again.

(printed,) = (entry for entry in entries if entry.claim.name == "cor-cle-ess")
print(printed.evidence.condition)
print(printed.rerun)
