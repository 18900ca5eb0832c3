"""Many probe draws for one fitted calibrator without a dataset for each, for the tests of what probes give."""

from typing import NamedTuple

import numpy as np
from scipy import special

from cje_core.calibration.calibrator import predict
from cje_core.calibration.oracle_slice import calibration_part, fit_slice
from cje_core.data.arrays import unpack
from cje_core.estimators.direct_corrected import MOST_LEVERAGE, probe_value
from cje_core.inference.estimate import wald
from cje_core.inference.influence import pooled_df
from cje_core.transport.audit import verdicts
from cje_sim.judges import draw_oracle, oracle_mean, score_quantile
from cje_sim.scenarios import transport_shift

LAW = (3.0, 2.0)
JUDGES = {  # ends of E[Y | S], spread of the labels, share of labels at 0 or 1
    "strong": (0.3, 0.9, 0.9, 0.05),
    "weak": (0.42, 0.62, 0.9, 0.4),
    "binary": (0.26, 0.98, 0.0, 1.0),
}
MARGIN = 0.05


class Draws(NamedTuple):
    """Per shift and draw."""

    interval: np.ndarray  # (shifts, draws, 2) of the tuned value
    truth: np.ndarray  # (shifts,)
    verdict: np.ndarray  # (shifts, draws)
    verdict_with_fit: np.ndarray
    residual: np.ndarray  # (shifts, draws): mean residual of the fit at hand, over the whole population


def draw(judge, n_probes, shifts, *, n_fits=40, n_draws=25, n=1000, labels=250, seed=0):
    """Labels of the base policy teach (anew for each fit); fresh responses and probes of the target in every draw."""
    low, high, spread, atoms = JUDGES[judge]
    rng = np.random.default_rng(seed)
    population = score_quantile((np.arange(4000) + 0.5) / 4000, *LAW)
    curve = oracle_mean(population, "sigmoid", low, high)
    found, residual = [], []
    for _ in range(n_fits):
        law = {"a": (*LAW, "none", 0.0), "b": (*LAW, "none", 0.0)}
        rows = unpack(
            transport_shift.simulate(
                n=n, oracle_fraction=labels / n, n_probes=n_probes, policies=law, low=low, high=high, spread=spread,
                atoms=atoms, rng=rng,
            )
        )  # fmt: skip
        fitted = fit_slice(rows, every_fold=False)
        bias = float((curve - predict(fitted.calibrator, population)).mean())
        own, probed = rows.policy == 1, rows.probe[rows.policy == 1]
        uniforms = [(rng.random(len(rows.score))[own], rng.random(probed.sum())) for _ in range(n_draws)]
        u, noise = map(np.array, zip(*uniforms, strict=True))
        score = score_quantile(u, *LAW)
        mean = oracle_mean(score[:, probed], "sigmoid", low, high) - np.array(shifts)[:, None, None]
        label = draw_oracle(mean, noise, spread=spread, atoms=atoms)
        found.append(estimates(rows, fitted, probed, score, label))
        residual.append(np.broadcast_to(bias - np.array(shifts)[:, None], label.shape[:2]))
    value, given, with_fit = (np.concatenate(parts, axis=1) for parts in zip(*found, strict=True))
    intervals = [wald(*np.moveaxis(one, -1, 0), 0.95) for one in (value, given, with_fit)]
    return Draws(
        intervals[0],
        curve.mean() - np.array(shifts),
        *(verdicts(one.reshape(-1, 2), MARGIN).reshape(one.shape[:2]) for one in intervals[1:]),
        np.concatenate(residual, axis=1),
    )


def estimates(rows, fitted, probed, score, label):
    """Value, standard error and df, (shifts, draws, 3), of `direct_corrected`, of the audit, and of it with the fit.

    For prompts that are their own clusters, all of them answered by policy 1 with scores (draws, n), and their probes
    with labels (shifts, draws, m): what the estimators say of each, which a test holds them to.
    """
    n, m = score.shape[1], label.shape[2]
    f_all = predict(fitted.calibrator, score.reshape(-1, 1)).reshape(score.shape)
    f = f_all[:, probed]
    spread = f - f.mean(axis=1, keepdims=True)
    per_label = spread / (spread**2).sum(axis=1, keepdims=True)
    free = (per_label * label).sum(axis=2, keepdims=True)
    lam = np.clip(free, 0, 1)
    moves = (free == lam) * (f_all.mean(axis=1) - f.mean(axis=1))[:, None] * per_label
    left = label - lam * f
    about = left - left.mean(axis=2, keepdims=True)
    leverage = 1 / m + (free == lam) * spread * per_label
    of_labels = n * (1 / m + moves) * about / (1 - np.minimum(leverage, MOST_LEVERAGE))
    of_responses = lam * (f_all - f_all.mean(axis=1, keepdims=True)) * np.sqrt(n / (n - 1))
    both = of_responses.copy()
    both[..., probed] += of_labels
    variance = [(part**2).sum(axis=2) / n**2 for part in (of_responses, of_labels)]
    df = pooled_df(np.stack(variance, -1), [n - 1.0, max(m - 2, (m - 1) / 2)])
    mean = lam[..., 0] * f_all.mean(axis=1) + left.mean(axis=2)
    value = np.stack([mean, np.sqrt((both**2).sum(axis=2)) / n, df], axis=-1)
    gap = label - f
    noise = n / m * (gap - gap.mean(axis=2, keepdims=True)) * np.sqrt(m / (m - 1))
    fits = [calibration_part(rows, fitted, z[:, None], np.full(m, -1 / m)) for z in score[:, probed]]
    of_fit = np.broadcast_to([part.influence for part in fits], (*label.shape[:2], n)).copy()
    variance = [(noise**2).sum(axis=2) / n**2, (of_fit**2).sum(axis=2) / n**2]
    fit_df = np.broadcast_to([part.df for part in fits], label.shape[:2])
    df = pooled_df(np.stack(variance, -1), np.stack([np.full(fit_df.shape, m - 1.0), fit_df], -1))
    of_fit[..., probed] += noise
    errors = [np.sqrt(variance[0]), np.full(df.shape, m - 1.0), np.sqrt((of_fit**2).sum(axis=2)) / n, df]
    alike = np.ptp(label, axis=2) == 0  # what is left is the spread of f over the probes, or nothing
    errors = [np.where(alike, np.nan, error) for error in errors]
    given, with_fit = (np.stack([gap.mean(axis=2), *errors[at : at + 2]], axis=-1) for at in (0, 2))
    return value, given, with_fit


def draw_clustered(judge="strong", n_fits=10, n_draws=60, *, size=3, n_probes=75, n=600, seed=1):
    """Whether the tuned interval holds the truth, by the clusters of prompts and, wrongly, by prompt: (2, draws)."""
    low, high, spread, atoms = JUDGES[judge]
    rng = np.random.default_rng(seed)
    law = {"a": (*LAW, "none", 0.0), "b": (*LAW, "none", 0.0)}
    truth = oracle_mean(score_quantile((np.arange(4000) + 0.5) / 4000, *LAW), "sigmoid", low, high).mean()
    hits = []
    for _ in range(n_fits):
        rows = unpack(
            transport_shift.simulate(
                n=n, oracle_fraction=0.25, n_probes=n_probes, policies=law, low=low, high=high, spread=spread,
                atoms=atoms, rng=rng,
            )
        )  # fmt: skip
        fitted, own = fit_slice(rows, every_fold=False), rows.policy == 1
        probes = np.flatnonzero(own & rows.probe)
        probed = np.zeros(n, bool)
        probed[rows.prompt[probes]] = True
        cluster = np.empty(n, dtype=np.intp)  # the probes fill whole clusters
        cluster[np.argsort(~probed, kind="stable")] = np.arange(n) // size
        names = np.arange(n // size).astype(str)

        def tied(cluster=cluster):
            shared = rng.standard_normal(n // size)[cluster]
            return special.ndtr(np.sqrt(0.6) * shared + np.sqrt(0.4) * rng.standard_normal(n))

        for _ in range(n_draws):
            score, label = rows.score.copy(), rows.label.copy()
            score[own] = score_quantile(tied(), *LAW)[rows.prompt[own]]
            mean = oracle_mean(score[probes], "sigmoid", low, high)
            label[probes] = draw_oracle(mean, tied()[rows.prompt[probes]], spread=spread, atoms=atoms)
            at = rows._replace(score=score, z=score[:, None], label=label)
            row = []
            for known in (at._replace(cluster=cluster, cluster_names=names), at):
                value = probe_value(known, fitted, 1, tuned=True).result
                bounds = wald(value.value, value.std_error, value.df, 0.95)
                row.append(bounds[0] <= truth <= bounds[1])
            hits.append(row)
    return np.array(hits).T
