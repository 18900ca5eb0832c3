"""Code generation with unit tests: binary oracle, almost uninformative judge, repeated draws.

Modelled on the code experiment of "Causal Judge Evaluation": pass rates near .874, .872, .874, .809 and .560; a judge
whose verdict at a threshold of one half has a Youden index near .05; a transport residual near -.065 for `mini`, which
is judged by itself, and near -.28 for `unhelpful`. The judge takes `LEVELS`, ``P(Y = 1 | S)`` is a table for each
policy; the shares are chosen to meet those numbers, since no per-level figures are public. Problems are easy or hard
for everybody: scores and outcomes of one problem are correlated across policies and draws.

Examples
--------
>>> [round(float(v), 3) for v in truth()], [round(float(v), 3) for v in residual()], round(youden(), 2)
([0.874, 0.873, 0.874, 0.81, 0.562], [0.0, 0.0, 0.0, -0.065, -0.28], 0.06)
>>> data = simulate(n=40, rng=1)
>>> data.policy.values.tolist()
['base', 'enhanced', 'terse', 'mini', 'unhelpful']
>>> dict(data.sizes)["prompt"], int(data.labelled.sum())
(40, 40)
"""

from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr

from cje_sim.judges import draw_levels, draw_oracle
from cje_sim.world import Prompts, Responses, by_policy, world

# fmt: off
LEVELS = (0.0, 0.2, 0.5, 0.7, 0.85, 0.9, 0.95, 1.0)
PASS = (0.78, 0.80, 0.84, 0.85, 0.865, 0.885, 0.90, 0.92)  # P(Y = 1 | S) under base, enhanced and terse
SHARES = {
    "base":      (0.03, 0.03, 0.06, 0.10, 0.27, 0.24, 0.17, 0.10),
    "enhanced":  (0.03, 0.03, 0.06, 0.11, 0.28, 0.24, 0.16, 0.09),
    "terse":     (0.03, 0.03, 0.06, 0.10, 0.27, 0.24, 0.17, 0.10),
    "mini":      (0.03, 0.02, 0.06, 0.10, 0.27, 0.25, 0.17, 0.10),
    "unhelpful": (0.18, 0.13, 0.12, 0.15, 0.22, 0.12, 0.05, 0.03),
}
SHIFT = {"base": 0.0, "enhanced": 0.0, "terse": 0.0, "mini": -0.065, "unhelpful": -0.28}  # added to PASS
# fmt: on


def law(
    prompts: Prompts,
    *,
    draws: int = 4,
    shares: Mapping[str, Sequence[float]] = SHARES,
    shift: Mapping[str, float] = SHIFT,
) -> Responses:
    """Judge levels and verdicts of programs, both tied within a problem.

    Parameters
    ----------
    draws : int
        Programs per problem and policy.
    shares : mapping of policy to sequence of float
        Probability of each judge level; the first policy is the base.
    shift : mapping of policy to float
        What is added to the common table of pass probabilities.
    """
    level = draw_levels(prompts.uniforms(len(shares), draws), list(shares.values()))
    change = np.array([shift[policy] for policy in shares])[:, None, None]
    passed = draw_oracle(np.array(PASS)[level] + change, prompts.uniforms(len(shares), draws), atoms=1.0)
    return Responses(policies=shares, judge=np.array(LEVELS)[level], oracle=passed)


def truth(
    *, shares: Mapping[str, Sequence[float]] = SHARES, shift: Mapping[str, float] = SHIFT
) -> xr.DataArray:
    """``V(policy)``: sum of shares times pass probabilities."""
    return by_policy({policy: float(np.dot(row, PASS)) + shift[policy] for policy, row in shares.items()})


def residual(*, shift: Mapping[str, float] = SHIFT) -> xr.DataArray:
    """Transport residual ``E_p[Y - P(Y = 1 | S, base)]`` of each policy."""
    base = next(iter(shift.values()))
    return by_policy({policy: value - base for policy, value in shift.items()}, "residual")


def youden(*, shares: Mapping[str, Sequence[float]] = SHARES, threshold: float = 0.5) -> float:
    """Youden index ``P(S > t | Y = 1) - P(S > t | Y = 0)`` under the base policy."""
    share, passed = np.array(next(iter(shares.values()))), np.array(PASS)
    above = np.array(LEVELS) > threshold
    right, wrong = share * passed, share * (1 - passed)
    return float(right[above].sum() / right.sum() - wrong[above].sum() / wrong.sum())


simulate = world(law, n=257, label_design="base", spread=None, atoms=None, prompt_corr=0.4)
