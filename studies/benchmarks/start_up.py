"""Start-up: a new process that imports an estimator, prints the help, or analyses two policies of 200 prompts.

CPU seconds and memory are those of the process that was started. Limit: an interpreter that does nothing.
"""

import json
import subprocess
import sys
from pathlib import Path

from studies.engine.benchmark import Benchmark, Case, Contender
from studies.engine.stopwatch import Call, scratch

OURS = {
    # the package itself is lazy: what a script imports to estimate anything
    "import": ["-c", "from cje_core.estimators import direct"],
    "help": ["-m", "studies", "--help"],
    "analyze": ["-m", "studies", "analyze"],
}
CJE_EVAL = {
    "import": ["-c", "import cje"],
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
    chosen = ("import", "help") if profile == "smoke" else tuple(OURS)
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
