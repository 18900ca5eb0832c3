"""The small-sample benchmark: three worlds, three sizes, and what cje-eval 0.9.3 reaches in them by default.

Run by an interpreter that has cje-eval (and nothing of this project), it writes `small_samples.json` beside itself:

    python tests/reference/small_samples.py

The default-interval tests draw the very same data sets from here.
"""

import json
import logging
import warnings
from pathlib import Path

import numpy as np
from scipy import integrate, stats

CELLS = [
    (world, *size) for world in ("smooth", "binary", "weak") for size in ((500, 25), (1000, 50), (1000, 250))
]
N_PEER = 300  # replicates of the peer in each cell
SCORE_LAW = {"smooth": (4.0, 1.5), "binary": (4.0, 1.5), "weak": (5.0, 1.2)}
STEP = {"smooth": None, "binary": 0.05, "weak": 0.1}  # of the grid that the judge reports on
NOISE = {"smooth": 0.15, "weak": 0.2}


def simulate(world, n, replicate):
    """Scores and labels of n responses, both shape (n,); any m of them are a random sample."""
    rng = np.random.default_rng([list(STEP).index(world), n, replicate])
    score = rng.beta(*SCORE_LAW[world], n)
    if STEP[world]:
        score = np.round(score / STEP[world]) * STEP[world]
    if world == "binary":
        return score, (rng.random(n) < mean_label(world, score)).astype(float)
    return score, np.clip(mean_label(world, score) + rng.normal(0, NOISE[world], n), 0, 1)


def mean_label(world, score):
    """Mean of the label before it is clipped to [0, 1]."""
    return {"smooth": 0.2 + 0.6 * score**2, "binary": 0.05 + 0.8 * score**2, "weak": 0.6 + 0.15 * score}[
        world
    ]


def truth(world):
    """E[Y], by quadrature over the score or summed over its grid."""
    law = stats.beta(*SCORE_LAW[world])
    if STEP[world] is None:
        return integrate.quad(lambda s: law.pdf(s) * float(clipped_mean(world, s)), 0, 1, epsabs=1e-12)[0]
    grid = np.arange(round(1 / STEP[world]) + 1) * STEP[world]
    share = np.diff(law.cdf(np.concatenate([[0], grid[:-1] + STEP[world] / 2, [1]])))
    return float(share @ clipped_mean(world, grid))


def clipped_mean(world, score):
    """E[Y | S]: the mean of a normal clipped to [0, 1], or the probability itself."""
    mean = mean_label(world, np.asarray(score, float))
    if world == "binary":
        return mean
    sd = NOISE[world]
    a, b = -mean / sd, (1 - mean) / sd
    inside = mean * (stats.norm.cdf(b) - stats.norm.cdf(a)) + sd * (stats.norm.pdf(a) - stats.norm.pdf(b))
    return inside + stats.norm.sf(b)


def interval_score(low, high, target, alpha=0.05):
    """Width plus ``2 / alpha`` times the distance of a miss (Gneiting and Raftery 2007, section 6.2)."""
    return (high - low) + 2 / alpha * (np.maximum(low - target, 0) + np.maximum(target - high, 0))


def main():
    """Run the peer on the first data sets of every cell."""
    import cje

    logging.disable(logging.WARNING)  # hundreds of lines on scores outside the labelled range
    cells = []
    for world, n, m in CELLS:
        low, high = np.empty((2, N_PEER))
        for r in range(N_PEER):
            score, label = simulate(world, n, r)
            label[m:] = np.nan
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", module=r"cje(\.|$)")
                low[r], high[r] = cje.calibrated_mean_ci(score, label).ci
        target = truth(world)
        scores = interval_score(low, high, target)
        coverage = float(((low <= target) & (target <= high)).mean())
        cells.append(
            {"world": world, "n": n, "m": m, "coverage": coverage, "interval_score": scores.round(4).tolist()}
        )
    out = {"peer": f"cje-eval {cje.__version__}", "n_replicates": N_PEER, "cells": cells}
    Path(__file__).with_suffix(".json").write_text(json.dumps(out) + "\n")


if __name__ == "__main__":
    main()
