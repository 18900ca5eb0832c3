"""One policy, many samples, as arrays: what coverage of a posterior is counted over, by Gibbs and by NUTS.

Truth is the value of the superpopulation. Four worlds; in ``dip`` E[Y | S] falls where the model only rises.
"""

import numpy as np
from scipy.special import erf

from cje_core.bayes.levels import Levels
from cje_core.calibration.oracle_slice import OracleSlice
from cje_core.data.arrays import Rows
from cje_core.inference.estimate import Status
from cje_sim.judges import draw_oracle, oracle_mean, score_quantile
from cje_sim.scenarios import binary_oracle, discrete_judge, well_specified

N = 1000  # prompts
NAMES = np.array([f"{i:04d}" for i in range(N)])


def dip(score):
    """Low scores are better than they look, as a refusal that a judge marks down: .55 at 0, .34 at .25, .85 at 1."""
    return 0.15 + 0.7 * score + 0.4 * np.exp(-((score / 0.15) ** 2))


LAW = {
    "well_specified": (
        well_specified.SCORE_LAW["base"],
        lambda s: oracle_mean(s, "sigmoid", 0.05, 0.7),
        0.05,
    ),
    "binary_oracle": (well_specified.SCORE_LAW["base"], lambda s: oracle_mean(s, "sigmoid", 0.05, 0.95), 1.0),
    "dip": ((1.0, 1.0), dip, 0.05),
}
WORLDS = ("well_specified", "discrete_judge", "binary_oracle", "dip")
TRUTH = {
    "well_specified": float(well_specified.truth().sel(policy="base")),
    "discrete_judge": float(discrete_judge.truth().sel(policy="base")),
    "binary_oracle": float(binary_oracle.truth().sel(policy="base")),
    "dip": 0.15 + 0.7 / 2 + 0.4 * 0.15 * np.sqrt(np.pi) / 2 * erf(1 / 0.15),
}


def draw(world, rng):
    """Scores and labels of N prompts under one policy."""
    if world == "discrete_judge":
        k = rng.choice(len(discrete_judge.LEVELS), N, p=discrete_judge.SHARES["base"])
        score, mean = np.array(discrete_judge.LEVELS)[k], np.array(discrete_judge.MEANS)[k]
        atoms = 0.05
    else:
        (a, b), regression, atoms = LAW[world]
        score = score_quantile(rng.random(N), a, b)
        mean = regression(score)
    return score, draw_oracle(mean, rng.random(N), spread=0.9, atoms=atoms)


def as_rows(score, label, m):
    """`Rows` and slice of one policy whose first m prompts are labelled: what `unpack` would give, in microseconds."""
    first = np.arange(N) < m
    rows = Rows(
        policies=["a"],
        prompts=NAMES,
        cluster=np.arange(N),
        cluster_names=NAMES,
        policy=np.zeros(N, np.intp),
        prompt=np.arange(N),
        score=score,
        z=score[:, None],
        label=np.where(first, label, np.nan),
        labelled=first,
        probe=np.zeros(N, bool),
        evaluated=np.ones(N, bool),
        weight=np.ones(N),
        label_prob=np.ones(N),
        teaches=first,
    )
    fitted = OracleSlice(
        Status.OK,
        None,
        rows.z[:m],
        label[:m],
        np.ones(m),
        np.arange(m),
        np.zeros(N, np.intp),
        "monotone",
        True,
    )
    return rows, fitted


LEVEL = np.round(np.linspace(0.0, 1.0, 11), 2)
COUNT = np.array([1.0, 2, 0, 3, 5, 2, 4, 6, 20, 10, 7])  # most scores near the top, one level without labels


def template(binary=False):
    """Levels whose labels simulation-based calibration draws."""
    return Levels(LEVEL, COUNT, 0 * COUNT, 0.0, binary, 0.0, 1.0)
