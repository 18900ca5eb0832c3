"""One value by each peer's public call with its own defaults, at 95%: estimate and interval.

The interpreter of a peer reads this file: at its top only the standard library, numpy, which all peers have, and the
light module that runs a process.

A call gets a `Sample`. Where the policy has labels of its own, the labelled rows are a simple random sample of its
responses, as every peer assumes. Where it has none, the labelled rows are another policy's and the judge scores without
a label are its own; a peer that has a call for that (weights that balance the scores, a calibrator that is lent) gets
it, the others take the rows as they come, which is what they would do in a user's hands.
"""

import json
import sys
import time
import warnings
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from studies.engine.stopwatch import module_of, replies

ALPHA = 0.05
Answer = tuple[Any, Any, Any]  # estimate, lower, upper


@dataclass(frozen=True)
class Sample:
    """What is known of one policy.

    Parameters
    ----------
    label, score : array (m,)
        Oracle labels, and the judge's scores of the same responses.
    rest : array (N,)
        Scores of the policy's responses that have no label.
    lent : bool
        Whether the labelled responses are another policy's.
    other : array
        Then: scores of that policy's responses without label.
    seed : int
        For those who draw.
    """

    label: np.ndarray
    score: np.ndarray
    rest: np.ndarray
    lent: bool
    other: np.ndarray
    seed: int

    @property
    def judged(self) -> np.ndarray:
        """All scores, the labelled responses first."""
        return np.concatenate([self.score, self.rest])

    @property
    def partly(self) -> np.ndarray:
        """Labels beside these, NaN where there is none."""
        return np.concatenate([self.label, np.full(len(self.rest), np.nan)])


def cje_eval(sample: Sample) -> Answer:
    """Calibrated mean of one array; with a calibrator that is lent, the analysis of two policies."""
    if not sample.lent:
        from cje import calibrated_mean_ci

        found = calibrated_mean_ci(sample.judged, sample.partly, alpha=ALPHA)
        return found.estimate, *found.ci
    from cje import analyze_dataset

    lender = _records(np.concatenate([sample.score, sample.other]), sample.label)
    result = analyze_dataset(fresh_draws_data={"lender": lender, "target": _records(sample.rest, ())})
    low, high = result.ci(alpha=ALPHA)[1]
    return result.estimates[1], low, high


def _records(scores: Any, labels: Any) -> list[dict[str, Any]]:
    """Rows of the analysis of several policies, the labelled ones first."""
    rows: list[dict[str, Any]] = [
        {"prompt_id": str(k), "judge_score": float(score)} for k, score in enumerate(scores)
    ]
    for row, label in zip(rows, labels, strict=False):
        row["oracle_label"] = float(label)
    return rows


def ppi_python(sample: Sample) -> Answer:
    """PPI++, power tuned."""
    from ppi_py import ppi_mean_ci, ppi_mean_pointestimate

    arrays = sample.label, sample.score, sample.rest
    low, high = ppi_mean_ci(*arrays, alpha=ALPHA)
    return ppi_mean_pointestimate(*arrays), low, high


def ppi_aipw(sample: Sample) -> Answer:
    """AIPW with its default calibrator; where labels are another policy's, with its balancing weights."""
    from ppi_aipw import compute_two_sample_balancing_weights, mean_inference

    weights = None
    if sample.lent:
        weights = compute_two_sample_balancing_weights(
            sample.score[:, None], sample.rest[:, None], target="unlabeled"
        )
    found = mean_inference(sample.label, sample.score, sample.rest, alpha=ALPHA, w=weights)
    return found.pointestimate, *found.ci


def glide(sample: Sample) -> Answer:
    """PPI++ of glide-py."""
    from glide.estimators import PPIMeanEstimator

    found = PPIMeanEstimator().estimate(sample.partly, sample.judged, confidence_level=1 - ALPHA)
    interval = found.confidence_interval
    return interval.mean, interval.lower_bound, interval.upper_bound


def evalstats(sample: Sample) -> Answer:
    """Debiased mean of evalstats."""
    import evalstats

    found = evalstats.judge_debias_mean_ci(sample.judged, sample.partly, alpha=ALPHA, rng=sample.seed)
    return found.mean, found.ci_low, found.ci_high


def truescore(sample: Sample) -> Answer:
    """Prediction-powered mean of truescore."""
    from truescore import ppi_estimate

    found = ppi_estimate(sample.judged, sample.label, np.arange(len(sample.label)), alpha=ALPHA)
    return found.point, found.low, found.high


def checked(answer: Any) -> list[float]:
    """Three finite numbers with the interval in order; what is not, is said."""
    numbers = [np.asarray(part, float).ravel() for part in answer]
    if len(numbers) != 3 or any(part.size != 1 for part in numbers):
        raise ValueError(f"estimate and interval have sizes {[part.size for part in numbers]}, not 1, 1, 1")
    value, low, high = (float(part[0]) for part in numbers)
    if not (np.isfinite([value, low, high]).all() and low <= high):
        raise ValueError(f"estimate {value}, interval [{low}, {high}]")
    return [value, low, high]


def serve() -> None:
    """Answer each line on stdin, a file, the name of a function of it and a sample, with one line."""
    reply = replies()
    modules: dict[str, ModuleType] = {}
    warnings.simplefilter("ignore")  # they would fill the pipe's file, a line for each replicate
    for line in sys.stdin:
        file, name, fields = json.loads(line)
        arrays: dict[str, Any] = {
            key: np.array(value) if isinstance(value, list) else value for key, value in fields.items()
        }
        start = time.perf_counter()
        try:
            if file not in modules:
                modules[file] = module_of(file)
            call, sample = getattr(modules[file], name), Sample(**arrays)
            start = time.perf_counter()
            told: dict[str, Any] = {"answer": checked(call(sample))}
        except Exception as error:  # what a peer raises is its result
            told = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
        print(json.dumps({**told, "seconds": time.perf_counter() - start}), file=reply, flush=True)
