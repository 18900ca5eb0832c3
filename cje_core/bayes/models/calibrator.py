"""The calibrator f as random variables of a PyMC model, with the prior of `cje_core.bayes.prior`.

``f = a + (b - a) sum_j u_j I_j``: the ends (a, b) and the shape u are distributions that PyMC can both evaluate and
sample, so that prior and prior predictive draws, graphs and posterior predictive draws need PyMC's own calls alone.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cje_core.bayes.models.engines import pm, pt
from cje_core.bayes.prior import Prior, check, draw_dirichlet_mixture, draw_ends, shapes
from cje_core.checks import FloatArray


class Calibrator(NamedTuple):
    """Variables of f in a model: ``f = a + rise basis @ u``."""

    ends: Any
    u: Any

    @property
    def a(self) -> Any:
        """Return f at 0."""
        return weighed(self.ends, (1.0, 0.0))

    @property
    def rise(self) -> Any:
        """Return f at 1 less f at 0."""
        return weighed(self.ends, (-1.0, 1.0))

    def at(self, basis: Any) -> Any:
        """Return f where the I-splines are the rows of `basis`."""
        return self.a + self.rise * weighed(basis, self.u)


def weighed(rows: Any, weight: Any) -> Any:
    """Sum each row by weights.

    This, and no product of matrices, index or stack: what PyTensor makes of those and of their gradients takes numba
    twice the time.
    """
    return (rows * weight).sum(axis=-1)


def prior_data(prior: Prior) -> dict[str, npt.NDArray[Any]]:
    """Return what `calibrator` takes as data, by name."""
    check(prior)
    table, log_mass = shapes(prior.n_splines, prior.concentration)
    return {"table": table, "log_mass": log_mass, "flat": np.asarray(prior.flat)}


def calibrator(held: Mapping[str, Any], n_splines: int) -> Calibrator:
    """Declare the ends and the shape of f, with their prior, in the model at hand.

    The shape is made of positive ``increments`` over their sum. Each increment has a logarithm of its own; their sum
    has a gamma law that no label informs, and moves nothing.

    Parameters
    ----------
    held : mapping
        The data of `prior_data`.
    n_splines : int
        J, the number of increments.
    """
    ends = pm.CustomDist(
        "ends",
        np.full(2, 0.5),  # where chains start; its size tells PyMC that there are two ends
        held["flat"],
        float(n_splines),
        logp=ends_log_density,
        random=_random_ends,
        support_point=lambda rv, size, start, *_: start,
        signature="(e),(),()->(e)",
        transform=UnitSquare(),
    )
    increments = pm.CustomDist(
        "increments",
        held["table"],
        held["log_mass"],
        logp=increments_log_density,
        random=_random_increments,
        support_point=lambda *_: pt.ones((n_splines,)),
        signature="(g,j),(g)->(j)",
        transform=RootOfLog(),
    )
    return Calibrator(ends, pm.Deterministic("shape", increments / increments.sum()))


def ends_log_density(ends: Any, start: Any, flat: Any, n_splines: Any) -> Any:
    """Return ``log p(a, b)`` of `cje_core.bayes.prior`."""
    rise = pt.maximum(weighed(ends, (-1.0, 1.0)), 0.0)
    return pt.log(flat + (1.0 - flat) * n_splines * (n_splines + 1.0) * rise ** (n_splines - 1.0))


def increments_log_density(x: Any, table: Any, log_mass: Any) -> Any:
    """Return the log density of positive increments x, shape (J,), whose sum is Gamma(J, 1).

    Independent standard exponentials have a uniform shape u, whose log density is ``log (J - 1)!``; the mixture's
    density over that one is the rest. Times all weights, as here, the density of a component is bounded, so its
    logarithm may be taken back without a look at the largest.
    """
    log_u = pt.log(x) - plain_log(x.sum())
    mixture = plain_log(pt.exp(log_mass + weighed(table, log_u)).sum()) - log_u.sum()
    return mixture - pt.gammaln(x.shape[-1]) - x.sum()


def plain_log(total: Any) -> Any:
    """Return the logarithm of a sum of exponentials that can be neither too large nor 0 for a floating-point number.

    The factor 2 hides the sum from PyTensor, which would search for the largest exponent, and take its derivative too:
    a third of all operations of our models, and of the time of each step of NUTS.
    """
    return pt.log(2.0 * total) - np.log(2.0)


def _random_ends(start: Any, flat: Any, n_splines: Any, rng: Any = None, size: Any = None) -> FloatArray:
    """Draw ends, shape (*size, 2)."""
    shape = tuple(size or ())
    return draw_ends(float(flat), int(n_splines), int(np.prod(shape)), rng).reshape(*shape, 2)


def _random_increments(table: Any, log_mass: Any, rng: Any = None, size: Any = None) -> FloatArray:
    """Draw increments, shape (*size, J): a shape of the prior times a Gamma(J, 1) sum."""
    shape, n_splines = tuple(size or ()), table.shape[1]
    n = int(np.prod(shape))
    total = rng.standard_gamma(n_splines, (n, 1))
    return np.reshape(total * draw_dirichlet_mixture(table, log_mass, n, rng), (*shape, n_splines))


class UnitSquare(pm.logprob.transforms.Transform):  # type: ignore[misc]
    """Logit of each of two numbers in (0, 1)."""

    name = "logit"
    ndim_supp = 1

    def forward(self, value: Any, *inputs: Any) -> Any:
        """Return the logits."""
        return pt.log(value) - pt.log1p(-value)

    def backward(self, value: Any, *inputs: Any) -> Any:
        """Return the numbers in (0, 1)."""
        return pt.sigmoid(value)

    def log_jac_det(self, value: Any, *inputs: Any) -> Any:
        """Return the log determinant of the Jacobian of `backward`."""
        return -(pt.softplus(-value) + pt.softplus(value)).sum(axis=-1)


class RootOfLog(pm.logprob.transforms.Transform):  # type: ignore[misc]
    """Positive numbers x as z, with ``log x = z`` where z is positive and ``z - z^2 / 2`` below.

    An increment that the prior wants near 0 has a logarithm that is exponential on a scale of 20, and z a normal tail:
    without it the effective draws are half as many, and some diverge.
    """

    name = "root"
    ndim_supp = 1

    def forward(self, value: Any, *inputs: Any) -> Any:
        """Return z."""
        log_x = pt.log(value)
        return pt.switch(log_x < 0.0, 1.0 - pt.sqrt(1.0 - 2.0 * pt.minimum(log_x, 0.0)), log_x)

    def backward(self, value: Any, *inputs: Any) -> Any:
        """Return x."""
        return pt.exp(value - 0.5 * pt.minimum(value, 0.0) ** 2)

    def log_jac_det(self, value: Any, *inputs: Any) -> Any:
        """Return the log determinant of the Jacobian of `backward`."""
        below = pt.minimum(value, 0.0)
        return (value - 0.5 * below**2 + pt.log1p(-below)).sum(axis=-1)
