"""Coverage of the logger: the weight's second moment, the floor of coverage-limited efficiency, and whom it binds.

Worlds are finite: k responses, each with a mass under target and logger, a mean and a noise of the outcome, and
membership of the region T. Notation of the paper: alpha and beta are the target's and the logger's mass of T.
"""

from collections.abc import Sequence

import numpy as np

from studies.ledger.claim import ClaimError, Params, Sides
from studies.ledger.worlds import Family, FloatArray, over_worlds


def world(z: FloatArray, size: int) -> dict[str, list[float]]:
    """Masses, outcome means and noises of `size` responses; the first lies in T, the others where z says."""
    p, q, mean, noise, inside = z.reshape(5, size)
    return {
        "target": np.exp(p).tolist(),
        "logger": np.exp(q).tolist(),
        "mean": mean.tolist(),
        "noise": np.exp(noise).tolist(),
        "inside": [1, *(int(v > 0) for v in inside[1:])],
    }


FAMILY = Family((2, 3, 5), lambda size: 5 * size, world)


def law(values: Sequence[float]) -> FloatArray:
    """Masses that sum to one."""
    mass = np.asarray(values, float)
    if not (mass >= 0).all() or not mass.sum() > 0:
        raise ClaimError(f"masses {mass.tolist()} are no law")
    return np.asarray(mass / mass.sum())


def parts(w: Params) -> tuple[FloatArray, FloatArray, FloatArray, float, float, float]:
    """Target, logger, membership, alpha, beta and 1 + chi2 of the laws within T."""
    p, q = law(w["target"]), law(w["logger"])
    t = np.asarray(w["inside"], float)
    alpha, beta = float(p @ t), float(q @ t)
    if not (alpha > 0 and (q[p > 0] > 0).all()):
        raise ClaimError("the target has mass where the logger has none, or T is empty")
    used = (t > 0) & (p > 0)
    shape = float(((p[used] / alpha) ** 2 / (q[used] / beta)).sum())
    return p, q, t, alpha, beta, shape


def identity(w: Params) -> Sides:
    """``E0[W^2 1_T]`` by enumeration, and the lemma's right side."""
    p, q, t, alpha, beta, shape = parts(w)
    used = p > 0
    return Sides(float((t[used] * p[used] ** 2 / q[used]).sum()), alpha**2 / beta * shape)


CLAIMS = (
    over_worlds(
        name="lem-weight-identity",
        source="Lemma (weight second moment on T), lem:weight-identity",
        statement=r"$E_0[W^2 1_T] = \frac{\alpha^2}{\beta} (1 + \chi^2(\pi'_T \| \pi_{0,T}))$",
        why=r"Within T the normalised laws are $\pi'/\alpha$ and $\pi_0/\beta$, so "
        r"$1 + \chi^2_T = \frac{\beta}{\alpha^2} \sum_T \pi'^2/\pi_0$.",
        family=FAMILY,
        sides=identity,
        relation="==",
        planted="alpha in place of its square",
        falsified=lambda s: Sides(s.left, 1.5 * s.right),
    ),
)
