"""Rows and intervals as the public functions make them, without a labelled data set: for thousands of replicates."""

import inspect
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import xarray as xr

from cje_core.calibration.calibrated import calibrated
from cje_core.data.arrays import Logged, Rows
from cje_core.families.direct.fit import fit_policy, make_lender
from cje_core.families.intervals import NOTHING, Evidence, bounds, evidence_of
from cje_core.inference.limits import error_skewness
from cje_core.inference.sums import cluster_sums
from cje_sim.labelling import Labelling, choose
from cje_sim.world import Prompts, labels_around


class Numbers(NamedTuple):
    """Of every policy, in the order of its name."""

    estimate: np.ndarray
    std_error: np.ndarray
    df: np.ndarray
    interval: np.ndarray


@lru_cache(maxsize=4)
def names_of(n):
    """Names "0", "1", ... in their order, and what sorts them."""
    names = np.arange(n).astype(str)
    by = np.argsort(names)
    return names[by], by


def rows_of(score, oracle, policies, *, probe=None, label_prob=None, teach=None):
    """``unpack(from_arrays(...))`` of arrays (policies, prompts) without missing scores.

    ``label_prob`` is broadcast; labels of the policies ``teach`` teach, by default of all.
    """
    n_policies, n = score.shape
    names, by_prompt = names_of(n)
    by = np.argsort(policies)[:, None], by_prompt

    def flat(values):
        return np.broadcast_to(values, score.shape)[by].ravel()

    label, audits = flat(oracle), np.zeros(score.size, bool) if probe is None else flat(probe)
    labelled, place = np.isfinite(label) & ~audits, np.arange(n)
    policies = sorted(policies)
    teaches = labelled
    if teach is not None:
        teaches = labelled & np.repeat([name in teach for name in policies], n)
    values, ones = flat(score), np.ones(score.size)
    return Rows(
        policies, names, place, names, np.repeat(np.arange(n_policies), n), np.tile(place, n_policies), values,
        values[:, None], label, labelled, audits, np.ones(score.size, bool), ones,
        ones if label_prob is None else flat(label_prob), teaches, prompt_order=by_prompt,
    )  # fmt: skip


class Drawn(NamedTuple):
    """A world as `simulate` draws it."""

    score: np.ndarray  # (policies, n)
    fields: dict  # what else `rows_of` takes
    logp_target: np.ndarray | None = None  # (policies, n), where there are logs
    true_reward: np.ndarray | None = None  # (policies, n), where it is known

    def only(self, policies):
        """The same of some policies."""
        at = [self.fields["policies"].index(name) for name in policies]
        fields = {k: None if v is None else v[at] for k, v in self.fields.items() if k != "policies"}
        return Drawn(self.score[at], fields | {"policies": policies}, self.logp_target[at])


def drawn(scenario, rng, *, n, oracle_fraction, label_design, n_probes=0, **law):
    """What ``scenario.simulate`` with these keywords puts into its data."""
    corr = inspect.signature(scenario.simulate).parameters.get("prompt_corr")
    rng = np.random.default_rng(rng)
    responses = scenario.law(Prompts(n, rng, corr.default if corr else 0.0), **law)
    judge, oracle = responses.judge, responses.oracle
    if oracle is None:
        oracle = labels_around(np.asarray(responses.mean), rng.random(judge.shape))
    chosen = choose(
        judge[..., None],
        oracle[..., None],
        Labelling(oracle_fraction, label_design, n_probes=n_probes),
        None,
        responses.judge_range,
        (0.0, 1.0),
        rng,
    )
    probe = chosen.fields.get("probe")
    fields = {
        "policies": list(responses.policies),
        "oracle": np.where(chosen.seen[..., 0], oracle, np.nan),
        "probe": None if probe is None else probe[..., 0],
        "label_prob": chosen.prob[..., 0],
    }
    return Drawn(judge, fields, responses.logp_target, responses.true_reward)


@lru_cache(maxsize=4)
def header(policies):
    """Of a data set, what functions of calibrated data read beside its rows."""
    return xr.Dataset(coords={"policy": list(policies)}, attrs={"oracle_range": (0.0, 1.0)})


def calibrated_rows(rows):
    """`Calibrated` data of rows, without a labelled data set behind them."""
    return calibrated(header(tuple(rows.policies)), rows=rows)


HEADER = xr.Dataset({"logged_judge": ((), 0.0)}, attrs={"oracle_range": (0.0, 1.0)})


def with_logs(found, policies):
    """`Calibrated` data of some policies, the first of which is the logger, of a world with logs."""
    found = found.only(policies)
    score, logp, by = found.score, found.logp_target, names_of(found.score.shape[1])[1]
    logged = Logged(
        score[0, by, None],
        found.fields["oracle"][0, by],
        logp[np.argsort(policies)][:, by],
        logp[0, by],
        np.ones(len(by)),
    )
    return calibrated(HEADER, rows=rows_of(score, **found.fields), logged=logged)


def numbers(rows, results, *, behind=None, kind="auto", scale=(0.0, 1.0)):
    """`Numbers` that `cje_core.families.assemble.assemble` makes of results of all policies."""
    value, error, df = np.array([(one.value, one.std_error, one.df) for one in results]).T
    evidence, skewness = NOTHING, 0.0
    if behind is not None:
        moves = [np.zeros(len(rows.prompts)) if one.influence is None else one.influence for one in results]
        skewness = error_skewness(cluster_sums(np.stack(moves), rows.cluster))
        each = [evidence_of(rows, p, behind, scale) for p in range(len(results))]
        evidence = Evidence(*map(np.array, zip(*each, strict=True)))
    if kind != "wald":
        value = np.clip(value, *scale)
    found = bounds(
        value, error, df, skewness=skewness, evidence=evidence, kind=kind, ci_prob=0.95, scale=scale
    )
    return Numbers(value, error, df, found.interval)


def direct_numbers(rows, fitted, options):
    """`Numbers` of ``direct.estimate`` with these options of its core."""
    lender = make_lender(rows, fitted, options)
    found = [fit_policy(rows, fitted, p, options, lender).result for p in range(len(rows.policies))]
    behind = rows.labelled & rows.evaluated if options.correction != "none" else None
    return numbers(rows, found, behind=behind, scale=options.scale)
