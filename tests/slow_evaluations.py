"""Slow readers of the files of `tests/reference/readers/evaluations.py`, one field after another."""

import json
from pathlib import Path
from typing import Any

HELD = Path(__file__).parent / "reference" / "readers"
Slow = dict[tuple[str, str, int], tuple[float, float | None]]


def held(path: str) -> Any:
    return json.loads((HELD / path).read_text())


def deepeval() -> Slow:
    out: Slow = {}
    for model in ("base", "better"):
        for k, case in enumerate(held(f"deepeval/{model}.json")["testCases"]):
            grade, *person = case["metricsData"]
            if "error" not in grade:
                label = float(person[0]["score"]) if person else None
                out[model, case["input"], k % 2] = grade["score"], label
    return out


def opencompass() -> Slow:
    out: Slow = {}
    for model in ("base", "better"):
        for k, detail in enumerate(held(f"opencompass/results/{model}/math.json")["details"]):
            for draw, (rule, judge) in enumerate(
                zip(detail["rule_evaluation"], detail["llm_evaluation"], strict=True)
            ):
                out[model, f"math_{k}", draw] = float(judge["llm_correct"]), float(rule["correct"])
    return out


CASES = {
    "deepeval": (deepeval, "Correctness (GEval)", "human", 6),
    "opencompass": (opencompass, "llm_evaluation.llm_correct", "rule_evaluation.correct", 0),
}
