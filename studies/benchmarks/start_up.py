"""Start-up: a new process that imports an estimator, makes a first estimate, prints the help, or analyses two policies.

The first estimate is of one policy with 200 prompts, 50 of them labelled; the analysis is of two of them, in files. CPU
seconds and memory are those of the process that was started. Limit: an interpreter that does nothing.
"""

import json
import subprocess
import sys
from pathlib import Path

from studies.engine.benchmark import Benchmark, Case, Contender
from studies.engine.stopwatch import Call, scratch

# the package itself is lazy: what a script imports to estimate anything
IMPORT = "from cje_core.estimators import direct"
ARRAYS = (
    "import numpy as np; score = np.arange(200) % 21 / 20; "
    "label = np.where(np.arange(200) % 4, np.nan, score**2); "
)
OURS = {
    "import": ["-c", IMPORT],
    "estimate": [
        "-c",
        f"{IMPORT}; from cje_core.data import from_arrays; {ARRAYS}"
        "direct.estimate(from_arrays(score[None], policies=['base'], oracle=label[None]))",
    ],
    "help": ["-m", "studies", "--help"],
    "analyze": ["-m", "studies", "analyze"],
}
CJE_EVAL = {
    "import": ["-c", "import cje"],
    "estimate": ["-c", f"{ARRAYS}from cje import calibrated_mean_ci; calibrated_mean_ci(score, label)"],
    "help": ["-m", "cje", "--help"],
    "analyze": ["-m", "cje", "analyze"],
}


def _start(words: list[str]) -> Call:
    """Start the interpreter with its words; an analysis gets a directory of responses."""
    if words[-1] == "analyze":
        words = [*words, str(_responses(scratch()))]
    silent = subprocess.DEVNULL
    return lambda: subprocess.run([sys.executable, *words], check=True, stdout=silent, stderr=silent)


def _responses(directory: Path) -> Path:
    """Two policies, a quarter of the base policy's responses labelled."""
    for policy in ("base", "other"):
        rows = [
            {"prompt_id": f"p{i}", "judge_score": i % 21 / 20, "response": "a b c"}
            | ({"oracle_label": i % 7 / 30 + i % 21 / 25} if policy == "base" and i % 4 == 0 else {})
            for i in range(200)
        ]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (directory / f"{policy}_responses.jsonl").write_text(text, encoding="utf-8")
    return directory


def ours(what: str) -> Call:
    """A process of this interpreter."""
    return _start(OURS[what])


def cje_eval(what: str) -> Call:
    """The same by cje-eval."""
    return _start(CJE_EVAL[what])


def limit(what: str) -> Call:
    """Nothing at all."""
    return _start(["-c", "pass"])


def cases(profile: str) -> list[Case]:
    """What a user waits for before anything happens, and the least analysis."""
    chosen = ("import", "estimate") if profile == "smoke" else tuple(OURS)
    return [Case(what, {"what": what}) for what in chosen]


BENCHMARK = Benchmark(
    title="Start-up",
    unit="starts",
    contenders=(
        Contender("cje-lab", ours),
        Contender("cje-eval", cje_eval, "peer", "cje-eval"),
        Contender("limit", limit, "limit"),
    ),
    cases=cases,
)
