"""Many probe draws for one fitted calibrator without a dataset for each, for the tests of what probes give."""

from typing import NamedTuple

import numpy as np
from scipy import special

from cje_core.calibration.oracle_slice import fit_slice, predict
from cje_core.data.arrays import unpack
from cje_core.estimators.direct_corrected import probe_value
from cje_core.inference.estimate import wald
from cje_core.transport.audit import mean_residual, verdicts
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
    total, size = n_fits * n_draws, len(shifts)
    interval, residual = np.empty((size, total, 2)), np.empty((size, total))
    given, with_fit = np.empty((2, size, total, 2))
    k = 0
    for _ in range(n_fits):
        law = {"a": (*LAW, "none", 0.0), "b": (*LAW, "none", 0.0)}
        rows = unpack(
            transport_shift.simulate(
                n=n, oracle_fraction=labels / n, n_probes=n_probes, policies=law, low=low, high=high, spread=spread,
                atoms=atoms, rng=rng,
            )
        )  # fmt: skip
        fitted = fit_slice(rows)
        bias = float((curve - predict(fitted.calibrator, population)).mean())
        own = rows.policy == 1
        probes = np.flatnonzero(own & rows.probe)
        for _ in range(n_draws):
            score = np.where(own, score_quantile(rng.random(len(rows.score)), *LAW), rows.score)
            drawn = rows._replace(score=score, z=score[:, None])
            mean, u = oracle_mean(score[probes], "sigmoid", low, high), rng.random(len(probes))
            for s, shift in enumerate(shifts):
                label = rows.label.copy()
                label[probes] = draw_oracle(mean - shift, u, spread=spread, atoms=atoms)
                at = drawn._replace(label=label)
                value = probe_value(at, fitted, 1, tuned=True).result
                found = mean_residual(at, fitted, probes)
                interval[s, k] = wald(value.value, value.std_error, value.df, 0.95)
                given[s, k] = wald(found.value, found.std_error, found.df, 0.95)
                with_fit[s, k] = wald(found.value, found.std_error_with_fit, found.df_with_fit, 0.95)
                residual[s, k] = bias - shift
            k += 1
    shape = (size, total)
    return Draws(
        interval,
        curve.mean() - np.array(shifts),
        verdicts(given.reshape(-1, 2), MARGIN).reshape(shape),
        verdicts(with_fit.reshape(-1, 2), MARGIN).reshape(shape),
        residual,
    )


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
        fitted, own = fit_slice(rows), rows.policy == 1
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
