"""Two-stage calibration: a judge that pays for length, with and without the response's length as a covariate.

Responses have a score and a length, short or long; the logger's labels teach the calibrator. At one score a longer
response is worth less: the judge paid for its length.
"""

import numpy as np

from cje_core.calibration.isotonic import isotonic
from cje_core.streams import generator
from cje_sim.exact.judged_means import rising, two_phase
from studies.ledger.claim import ClaimError, Params, Sides
from studies.ledger.worlds import Family, FloatArray, batches, masses, over_worlds

ROWS = 20_000
N, M = 2000, 250  # responses and labels
APART = 0.01  # by which one policy must lead the other


def world(z: FloatArray, size: int) -> dict[str, object]:
    """Masses over (score, length) of logger and two policies, each by score first, and the label rates there."""
    logger, target, other = z[: 6 * size].reshape(3, 2 * size)
    rate = np.cumsum(np.exp(z[6 * size : 7 * size] / 2))
    rate = rate / (rate[-1] + 1)
    lost = 1 / (1 + np.exp(-z[7 * size :]))  # the share of its worth that a long response lacks
    return {
        "logger": np.exp(logger).tolist(),
        "target": np.exp(target).tolist(),
        "other": np.exp(other).tolist(),
        "short": rate.tolist(),
        "long": (rate * np.minimum.accumulate(1 - lost[::-1])[::-1]).tolist(),
    }


FAMILY = Family((2, 3), lambda size: 8 * size, world)


def tables(w: Params) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Laws of logger, target and other over (score, length), and label rates, shape (scores, 2)."""
    rate = np.stack([np.asarray(w["short"], float), np.asarray(w["long"], float)], axis=1)
    laws = [masses(w[name]).reshape(rate.shape) for name in ("logger", "target", "other")]
    if not (
        laws[0].min() > 1e-4 and (rate >= 0).all() and (rate <= 1).all() and (rate[:, 0] >= rate[:, 1]).all()
    ):
        raise ClaimError("a response has no mass, or a longer one is worth more at one score")
    return laws[0], laws[1], laws[2], rate


def by_score(law: FloatArray, rate: FloatArray, slow: bool = False) -> FloatArray:
    """The best rising prediction of the label from the score alone, under a law."""
    share = law.sum(axis=1)
    mean = (law * rate).sum(axis=1) / share
    return np.asarray(rising(mean, share) if slow else isotonic(mean, share)[0])


def inverted(w: Params) -> Sides:
    """Values of the policy that the calibrated score puts second, and of that which it puts first."""
    logger, p, o, rate = tables(w)
    fit = by_score(logger, rate)[:, None]
    lead = float(((p - o) * fit).sum())
    if abs(lead) < APART:
        raise ClaimError("the calibrated score sees no difference")
    first, second = (p, o) if lead > 0 else (o, p)
    return Sides(float((second * rate).sum()), float((first * rate).sum()))


def inverted_by_simulation(w: Params) -> Sides:
    """The same from simulated labels of the logger and responses of both policies."""
    logger, p, o, rate = tables(w)

    def batch(rng: np.random.Generator) -> tuple[float, float]:
        count = rng.multinomial(ROWS, logger.ravel()).reshape(rate.shape)
        good = rng.binomial(count, rate)
        fit = by_score(count / ROWS, good / np.maximum(count, 1), slow=True)[:, None]
        drawn = [rng.multinomial(ROWS, law.ravel()).reshape(rate.shape) for law in (p, o)]
        truth = [float(rng.binomial(d, rate).sum()) / ROWS for d in drawn]
        first = int(float((drawn[0] * fit).sum()) < float((drawn[1] * fit).sum()))
        return truth[1 - first], truth[first]

    return batches(batch, generator(0, "claims", "covariates", "inverted"))


def with_length(w: Params) -> Sides:
    """The value of the target, and the mean under it of the logger's calibration by score and length; from 0."""
    logger, p, _, rate = tables(w)
    joint = np.stack([logger * (1 - rate), logger * rate], axis=-1)  # label 0 and 1
    fit = joint[..., 1] / joint.sum(axis=-1)
    return Sides(1 + float((p * rate).sum()), 1 + float((p * fit).sum()))


def variances(w: Params) -> Sides:
    """Large-sample variance of the corrected mean of the logger's own value: with the length, and by score alone."""
    logger, _, _, rate = tables(w)
    whole = float((logger * rate).sum()) * (1 - float((logger * rate).sum()))
    left = float((logger * rate * (1 - rate)).sum())
    alone = left + float((logger * (rate - by_score(logger, rate)[:, None]) ** 2).sum())
    return Sides(two_phase(whole, left, N, M), two_phase(whole, alone, N, M))


CLAIMS = (
    over_worlds(
        name="length-bias-inverts",
        source="Section 3, two-stage calibration: a judge that favours longer responses",
        statement="calibrated by its score alone, a judge that pays for length can put the worse of two policies first",
        why="At one score longer responses are worth less; the calibrator learns the logger's mix of lengths, and a "
        "policy that writes longer ones than the logger is put too high.",
        family=FAMILY,
        sides=inverted,
        second=inverted_by_simulation,
        exists=True,
        planted="with more than 1 between them",
        falsified=lambda s: Sides(s.left - 1, s.right),
    ),
    over_worlds(
        name="two-stage-transports",
        source="Section 3, two-stage calibration with response length, where length is all that the score leaves out",
        statement=r"if $E[Y|X,A,S]$ is a function of score and length, $E_{\pi'}[E_0[Y|S, length]] = V(\pi')$ for "
        "every policy: the order of policies is right in the limit",
        why=r"The logger's $E[Y|S, length]$ is that function whatever it samples. A premise about the judge: the "
        "audit of the mean residual tests one consequence of it.",
        family=FAMILY,
        sides=with_length,
        relation="==",
        planted="right side times 1.1",
        falsified=lambda s: Sides(s.left, 1.1 * s.right),
    ),
    over_worlds(
        name="two-stage-vs-monotone",
        source="Section 3, two-stage calibration with response length",
        statement="the covariate of a length-biased judge does not raise the large-sample variance of the corrected "
        "mean",
        why=r"It is $Var(Y)/n + E[(Y - f)^2](1/m - 1/n)$, and $E[Y|S, length]$ leaves least: less than every function "
        r"of the score alone unless the two agree. How much of it is left at finite m a simulation says: study "
        r"`judge_information` has the exact factor beside the simulated one.",
        family=FAMILY,
        sides=variances,
        planted="lowers it to a hundredth",
        falsified=lambda s: Sides(100 * s.left, s.right),
    ),
)
