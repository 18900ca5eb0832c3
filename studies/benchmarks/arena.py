"""A thousand prompts under four policies from files: values with intervals, 480 labels under one policy.

Both read the directory and value every policy, by the joint influence function and by a bootstrap that refits the
calibrator in each resample. Limit: reading the bytes of the files; of the bootstrap, one integer drawn for each label
and for each judge level of each policy in each resample.
"""

import json
from pathlib import Path

from studies.engine.benchmark import Benchmark, Case, Contender
from studies.engine.stopwatch import Call

DRAWS = Path(__file__).parents[3] / "shared" / "data" / "arena_sample" / "fresh_draws"


def missing() -> str:
    """The data lie beside the checkout and are no part of it."""
    return (
        ""
        if DRAWS.is_dir()
        else "the Arena sample (shared/data/arena_sample beside the checkout) is not here"
    )


def direct(resamples: int) -> Call:
    """`cje_core.read`, then `cje_core.estimators.direct`."""
    from cje_core.estimators import direct
    from cje_core.io.files import read

    inference = direct.Bootstrap(n=resamples) if resamples else "influence"
    return lambda: direct.estimate(read(DRAWS)[0], rng=1, inference=inference)


def cje_eval(resamples: int) -> Call:
    """The pipeline of cje-eval for a directory."""
    from cje import analyze_dataset

    bootstrap = {"inference_method": "bootstrap", "n_bootstrap": resamples}
    return lambda: analyze_dataset(
        fresh_draws_dir=str(DRAWS), estimator_config=bootstrap if resamples else None
    )


def limit(resamples: int) -> Call:
    """Bytes of the files, or the integers of the resamples."""
    import numpy as np

    files = sorted(DRAWS.glob("*.jsonl"))
    if not resamples:
        return lambda: [path.read_bytes() for path in files]
    rows = [[json.loads(line) for line in path.read_text("utf-8").splitlines()] for path in files]
    labels = sum(row.get("oracle_label") is not None for policy in rows for row in policy)
    drawn = labels + sum(len({row["judge_score"] for row in policy}) for policy in rows)
    rng = np.random.default_rng(1)
    return lambda: [rng.integers(0, drawn, drawn, dtype=np.uint32) for _ in range(resamples)]


def cases(profile: str) -> list[Case]:
    """Without and with a bootstrap: the paper's 2,000 resamples in the full profile."""
    resamples = {"smoke": 50, "small": 200}.get(profile, 2000)
    return [
        Case("influence", {"resamples": 0}),
        Case(f"bootstrap, B = {resamples:,}", {"resamples": resamples}),
    ]


BENCHMARK = Benchmark(
    title="Arena sample",
    unit="analyses",
    contenders=(
        Contender("cje-lab", direct),
        Contender("cje-eval", cje_eval, "peer", "cje-eval"),
        Contender("limit", limit, "limit"),
    ),
    cases=cases,
    missing=missing,
)
