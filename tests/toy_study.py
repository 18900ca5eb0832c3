"""A study that takes no time: Normal means by z intervals; also a command, so that tests can kill it.

``python -m toy_study OUT JOBS SEED N,N PROFILE`` prints ``done`` at the end; an empty N,N keeps the levels of n.
A process whose environment has ``TOY_SLEEP`` sleeps so many seconds at each replicate, to be killed between two.
"""

import os
import sys
import time
from pathlib import Path

import numpy as np

if __name__ == "__main__":  # as commands of ours do, see `studies.cli.brief`
    sys.modules.setdefault("dask", None)  # type: ignore[arg-type]

from studies.engine import run
from studies.engine.measures import summary_table
from studies.engine.outcome import Outcome
from studies.engine.study import Method, Profile, Study


def replicate(study, cell, streams):
    """Mean of n draws from N(mu_p, 1): `z` is exact, `short` has half its width, `none` gives no interval."""
    time.sleep(float(os.environ.get("TOY_SLEEP", 0.0)))
    truth = np.array([0.0, 1.0])
    if cell["world"] == "crash" and streams.replicate == 3:
        raise ZeroDivisionError("planted: replicate 3 always fails")
    x = streams("data").normal(truth, 1.0, (cell["n"], 2)).mean(axis=0)
    se = np.full(2, cell["n"] ** -0.5)
    half = 1.959963984540054 * se
    interval = np.stack([x - half, x + half], axis=-1)
    estimate = np.stack([x, x + streams("short").normal(0, 1e-3, 2), x])
    return Outcome(
        estimate=estimate,
        truth=truth,
        std_error=np.stack([se, se / 2, se * np.nan]),
        interval=np.stack(
            [interval, np.stack([x - half / 2, x + half / 2], axis=-1), np.full((2, 2), np.nan)]
        ),
        seconds=np.full(3, 1e-6),
        extra={"mean_judge": x.mean(), "per_policy": x, "per_both": estimate},
    )


def theory(cell):
    """Exact standard error."""
    return {"std_error": cell["n"] ** -0.5, "value": np.array([0.0, 1.0])}


def table(ds):
    """Coverage and bias."""
    return summary_table(ds, ["bias", "coverage"])


def figure(ds):
    """One panel."""
    import matplotlib.pyplot as plt  # .5 s, and most processes that run this file draw nothing

    fig, ax = plt.subplots()
    ax.hist(ds["estimate"].values.ravel())
    return fig


STUDY = Study(
    name="toy_study",
    title="A toy",
    aims="Check the runner.",
    mechanism="Normal means.",
    estimands="The mean <of> each policy.",
    measures="Bias & coverage.",
    factors={"world": ("plain", "crash"), "n": (4, 16)},  # not in the order of the alphabet
    policies=("zero", "one"),
    methods={"z": Method("exact"), "short": Method("half width"), "none": Method("no interval")},
    profiles={
        "smoke": Profile(10),
        "quick": Profile(25),
        "paper": Profile(60),
    },
    replicate=replicate,
    theory=theory,
    table=table,
    figure=figure,
    block=6,
)


if __name__ == "__main__":
    out, jobs, seed, levels, profile = sys.argv[1:6]
    # pickled by reference to its module, as any study is, not to this script's __main__
    from toy_study import STUDY as BY_NAME

    chosen = {"n": [int(v) for v in levels.split(",")]} if levels else {}
    try:
        summary = run.run_study(
            BY_NAME,
            profile=profile,
            out=Path(out),
            seed=int(seed),
            jobs=int(jobs),
            levels=chosen,
            log=run.Log(say=lambda line: print(line, flush=True)),
        )
    except run.InterruptedRunError as error:
        sys.exit(str(error))
    print("done", summary.replicates_run, summary.crashes, flush=True)
