"""One mean from judge scores, 5% of them labelled: value and interval, data in memory.

cje-lab's `direct` reads evaluation data that hold prompts, folds and checks, of which it keeps the order of the last
prompts seen and the folds of their names: every call gets new data with new names. The peers take two arrays. Scores
lie on a grid of .01 unless the case says that they are continuous. Limit: one copy of scores and labels, 16 bytes a
row; of a bootstrap, one integer drawn for each label and each grid point in each resample.
"""

import itertools

import numpy as np

from studies.engine.benchmark import Benchmark, Case, Contender
from studies.engine.stopwatch import Call, Fresh

LABELLED = 0.05
LIMIT_OF_CJE_EVAL = 100_000
WITHOUT_BOOTSTRAP = {
    "ppi-python": "it has no bootstrap",
    "cje-eval": "minutes a call; its bootstrap is in arena",
}


def sample(n: int, step: float | None) -> tuple[np.ndarray, np.ndarray]:
    """Scores and labels, both shape (n,); labels are NaN but in the first rows, which are as random as any."""
    rng = np.random.default_rng(1)
    score = rng.beta(4.0, 1.5, n)
    if step:
        score = np.round(score / step) * step
    label = np.clip(0.2 + 0.6 * score**2 + rng.normal(0, 0.15, n), 0, 1)
    label[round(LABELLED * n) :] = np.nan
    return score, label


def direct(n: int, step: float | None, resamples: int) -> Fresh:
    """`cje_core.estimators.direct`."""
    from cje_core.data import from_arrays
    from cje_core.estimators import direct

    (score, label), laps = sample(n, step), itertools.count()
    inference = direct.Bootstrap(n=resamples) if resamples else "influence"

    def data() -> object:
        names = np.char.add(f"{next(laps)}-", np.arange(n).astype(str))
        return from_arrays(score[None], policies=["base"], oracle=label[None], prompts=names)

    return Fresh(data, lambda new: direct.estimate(new, rng=1, inference=inference))


def ppi(n: int, step: float | None, resamples: int) -> Call:
    """PPI++ of ppi-python, power tuned."""
    from ppi_py import ppi_mean_ci

    score, label = sample(n, step)
    m = round(LABELLED * n)
    return lambda: ppi_mean_ci(label[:m], score[:m], score[m:], alpha=0.05)


def cje_eval(n: int, step: float | None, resamples: int) -> Call:
    """The one-sample function of cje-eval, cluster-robust."""
    from cje import calibrated_mean_ci

    score, label = sample(n, step)
    return lambda: calibrated_mean_ci(score, label)


def limit(n: int, step: float | None, resamples: int) -> Call:
    """One copy of the data, or the integers of the resamples."""
    if resamples:
        rng, drawn = np.random.default_rng(1), round(LABELLED * n) + (round(1 / step) if step else n)

        def draw() -> None:
            for _ in range(resamples):
                rng.integers(0, n, drawn, dtype=np.uint32)

        return draw
    data = np.stack(sample(n, step))
    copy = np.empty_like(data)
    return lambda: np.copyto(copy, data)


def cases(profile: str) -> list[Case]:
    """Sizes by powers of ten, then bootstraps: few resamples in the small profile, none in the smoke profile."""
    largest, resamples, resampled = {
        "smoke": (3, 0, ()),
        "small": (5, 200, (10_000,)),
        "full": (7, 2000, (10_000, 1_000_000)),
    }[profile]
    found = []
    for n in (10**power for power in range(3, largest + 1)):
        found.append(Case(f"n = {n:,}", {"n": n, "step": 0.01, "resamples": 0}, n, _without(n)))
    for n in resampled:
        for step, scale in ((0.01, "grid"), (None, "continuous")):
            label = f"n = {n:,}, {scale}, B = {resamples:,}"
            options = {"n": n, "step": step, "resamples": resamples}
            found.append(Case(label, options, n, WITHOUT_BOOTSTRAP))
    return found


def _without(n: int) -> dict[str, str]:
    return {"cje-eval": "quadratic in n"} if n > LIMIT_OF_CJE_EVAL else {}


BENCHMARK = Benchmark(
    title="One mean",
    unit="rows",
    contenders=(
        Contender("cje-lab", direct),
        Contender("ppi-python", ppi, "peer", "ppi-python"),
        Contender("cje-eval", cje_eval, "peer", "cje-eval"),
        Contender("limit", limit, "limit"),
    ),
    cases=cases,
)
