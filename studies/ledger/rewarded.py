"""Worlds for the claims of doubly robust estimates: responses, a judge with rewards, a reward model, weights.

Worlds are finite: responses with masses under target and logger, a judge, a reward R(s), a reward model q of each
response, and a weight of each judge level. In the paper's set-up the score is a function of the response, and q one of
the score (`SCORED`), or, with covariates, of the response (`COVARIATES`); or all are functions of an index of score and
covariate (`INDEXED`); `RANDOM` worlds, ours, have a judge that is
random given the response.
"""

import numpy as np

from studies.ledger.claim import ClaimError, Params
from studies.ledger.worlds import Family, FloatArray, masses


def world(z: FloatArray, size: int) -> dict[str, object]:
    """Responses, three judge levels given each, rewards of levels, a reward model, weights of levels."""
    p, q, model = z[: 3 * size].reshape(3, size)
    judge = z[3 * size : 6 * size].reshape(size, 3)
    reward, weight = z[6 * size :].reshape(2, 3)
    return {
        "target": np.exp(p).tolist(),
        "logger": np.exp(q).tolist(),
        "judge": np.exp(judge).tolist(),
        "reward": (1 / (1 + np.exp(-2 * reward))).tolist(),
        "model": (1 / (1 + np.exp(-2 * model))).tolist(),
        "weight": np.exp(weight / 2).tolist(),
    }


def with_function(z: FloatArray, size: int) -> dict[str, object]:
    """A world whose score is a function of the response, its heaviest level; so is the reward model."""
    w = world(z, size)
    return {**w, "judge": np.eye(3)[np.argmax(w["judge"], axis=1)].tolist()}  # type: ignore[call-overload]


def with_calibrator(z: FloatArray, size: int) -> dict[str, object]:
    """A world whose score is a function of the response, and the reward model one of the score."""
    return calibrated(with_function(z, size))


def calibrated(w: Params) -> dict[str, object]:
    """The same world with responses of equal scores given the first one's reward model."""
    level = np.argmax(w["judge"], axis=1).tolist()
    return {**w, "model": [w["model"][level.index(k)] for k in level]}


def with_index(z: FloatArray, size: int) -> dict[str, object]:
    """A world whose "judge" is an index Z(S, X): which of two scores, plus which of two kinds of response."""
    w = world(z, size)
    score = np.argmax(np.asarray(w["judge"], float)[:, :2], axis=1)
    kind = (np.asarray(w["judge"], float)[:, 2] > 1).astype(int)
    return calibrated({**w, "judge": np.eye(3)[score + kind].tolist()})


RANDOM = Family((2, 3), lambda size: 6 * size + 6, world, 0.6)
COVARIATES = Family((2, 3, 4), lambda size: 6 * size + 6, with_function, 0.6)
SCORED = COVARIATES._replace(world=with_calibrator)
INDEXED = COVARIATES._replace(world=with_index)


def parts(w: Params) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
    """Target, logger, law of the judge given the response, rewards, model and weights."""
    p, q = masses(w["target"]), masses(w["logger"])
    judge = np.stack([masses(row) for row in w["judge"]])
    if not q.min() > 1e-5:
        raise ClaimError("a response has no mass")
    return p, q, judge, *(np.asarray(w[name], float) for name in ("reward", "model", "weight"))  # type: ignore[return-value]
