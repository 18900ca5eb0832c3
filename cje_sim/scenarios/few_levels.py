"""A judge of two or three levels that the policies use differently; binary or five-point labels.

S takes few levels with shares of its policy's own; the law of Y at a level is one table for all policies, so that a
calibration transports exactly. Labels of the base policy are few where the others' responses are many, and most of
them may be equal: residuals then say little of the error of a borrowed value. Everything is a finite sum.

Examples
--------
>>> data = simulate(n=40, rng=1)
>>> data.policy.values.tolist()
['base', 'better', 'slightly_better']
>>> simulate(n=40, rng=1, kind="likert").oracle.max().item()
1.0
"""

from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr

from cje_sim import judges
from cje_sim.world import Prompts, Responses, by_policy, world

LEVELS = (0.0, 0.5, 1.0)
SHARES = {"base": (0.6, 0.3, 0.1), "better": (0.1, 0.3, 0.6), "slightly_better": (0.2, 0.4, 0.4)}
PASSES = (0.1, 0.4, 0.7)  # P(Y = 1 | level) of binary labels
GRADES = (0.0, 0.25, 0.5, 0.75, 1.0)
LIKERT = (  # of graded labels, P(grade | level): at the top nearly all are 1, and some 0
    (0.25, 0.3, 0.2, 0.15, 0.1),
    (0.1, 0.15, 0.15, 0.25, 0.35),
    (0.12, 0.0, 0.0, 0.03, 0.85),
)
KINDS = ("binary", "likert")


def law(
    prompts: Prompts,
    *,
    levels: Sequence[float] = LEVELS,
    shares: Mapping[str, Sequence[float]] = SHARES,
    passes: Sequence[float] = PASSES,
    likert: Sequence[Sequence[float]] = LIKERT,
    kind: str = "binary",
) -> Responses:
    """Levels by their shares, labels by the table of their level.

    Parameters
    ----------
    levels : sequence of float
        The judge's scores, rising.
    shares : mapping of policy to sequence of float
        Probability of each level; the first policy is the base.
    passes : sequence of float
        Probability of a label of 1 at each level, for ``kind="binary"``.
    likert : sequence of sequences of float
        Probability of each of `GRADES` at each level, for ``kind="likert"``.
    kind : {"binary", "likert"}
    """
    level = judges.draw_levels(prompts.uniforms(len(shares)), list(shares.values()))
    uniform = prompts.uniforms(len(shares))
    mean = means(passes, likert, kind)[level]
    if kind == "binary":
        label = (uniform < mean).astype(float)
    else:
        steps = np.cumsum(np.asarray(likert, dtype=float), axis=1)[:, :-1]
        label = np.asarray(GRADES)[(uniform[..., None] >= steps[level]).sum(axis=-1)]
    return Responses(
        policies=shares,
        judge=np.asarray(levels, dtype=float)[level],
        oracle=label,
        true_reward=mean,
    )


def means(passes: Sequence[float], likert: Sequence[Sequence[float]], kind: str) -> np.ndarray:
    """``E[Y | S]`` at each level."""
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r}; give one of {', '.join(KINDS)}")
    return np.asarray(passes, dtype=float) if kind == "binary" else np.asarray(likert, dtype=float) @ GRADES


def truth(
    *,
    shares: Mapping[str, Sequence[float]] = SHARES,
    passes: Sequence[float] = PASSES,
    likert: Sequence[Sequence[float]] = LIKERT,
    kind: str = "binary",
) -> xr.DataArray:
    """``V(policy) = sum over levels of share * E[Y | level]``.

    >>> truth().round(3).values.tolist()
    [0.25, 0.55, 0.46]
    """
    of_level = means(passes, likert, kind)
    return by_policy({policy: float(np.dot(row, of_level)) for policy, row in shares.items()})


simulate = world(law, spread=None, atoms=None)
