"""Slow readers of the files of `tests/reference/readers/evaluations.py`, one field after another."""

import json
from pathlib import Path
from typing import Any

HELD = Path(__file__).parent / "reference" / "readers"
Slow = dict[tuple[str, str, int], tuple[float, float | None]]


def held(path: str) -> Any:
    return json.loads((HELD / path).read_text())


def lines(path: str) -> list[Any]:
    return [json.loads(text) for text in (HELD / path).read_text().splitlines()]


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


def weave() -> Slow:
    out: Slow = {}
    for model in ("base", "better"):
        for k, call in enumerate(lines(f"weave/{model}.jsonl")):
            if call["output"]["scores"]:
                people = [one["payload"]["value"] for one in call["summary"]["weave"]["feedback"]]
                label = float(people[0]) if people else None
                out[model, f"r{k % 12}", k // 12] = call["output"]["scores"]["tone"]["score"], label
    return out


def evals() -> Slow:
    return {
        (model, row["sample_id"], 0): (float(row["data"]["metascore"]), None)
        for model in ("base", "better")
        for row in lines(f"evals/{model}.jsonl")
        if row.get("type") == "metrics"
    }


def braintrust() -> Slow:
    out: Slow = {}
    for model in ("base", "better"):
        spans = held(f"braintrust/{model}.json")["events"]
        for k, root in enumerate(span for span in spans if span["is_root"]):
            of = [s for s in spans if s["root_span_id"] == root["id"] and not s["is_root"]]
            scored, *reviews = [span["scores"]["Factuality"] for span in of]
            label = sum(reviews) / len(reviews) if reviews else None
            out[f"exp-{model}", json.dumps([root["input"], "x"]), k % 2] = scored, label
    return out


def helm() -> Slow:
    out: Slow = {}
    for model in ("base", "better"):
        for k, one in enumerate(
            held(f"helm/runs/suite/mmlu:subject=law,model=org_{model}/per_instance_stats.json")
        ):
            exact, *judged = [stat["sum"] for stat in one["stats"]]
            if judged:
                out[f"org_{model}", f"id{k // 2}", k % 2] = float(judged[0]), float(exact)
    return out


def lighteval() -> Slow:
    out: Slow = {}
    for model in ("base", "better"):
        date = "2026-01-02T03-04-05.600000"
        for k, row in enumerate(lines(f"lighteval/details/org/{model}/{date}/details_gsm8k|0_{date}.jsonl")):
            if row["metric"]["judge_score"] is not None:
                out[f"org/{model}", str(k), 0] = float(row["metric"]["judge_score"]), row["metric"]["em"]
    return out


def judgebench() -> Slow:
    out: Slow = {}
    worth = {"A>B": 1.0, "A=B": 0.5, "B>A": 0.0}
    for model in ("base", "better"):
        name = f"dataset=judgebench,response_model=m,judge_name=vanilla,judge_model={model}.jsonl"
        for pair in lines(f"judgebench/{name}"):
            first, second = pair["judgments"]
            if first is not None:
                share = (worth[first["decision"]] + 1 - worth[second["decision"]]) / 2
                out[f"vanilla/{model}", pair["pair_id"], 0] = share, worth[pair["label"]]
    return out


def rewardbench() -> Slow:
    out: Slow = {}
    for model in ("base", "better"):
        columns = held(f"rewardbench/{model}.json")
        for k in range(12):
            out[f"org/{model}", str(k), 0] = columns["scores_chosen"][k], 1.0
            out[f"org/{model}", str(k), 1] = columns["scores_rejected"][k], 0.0
    return out


CASES = {
    "deepeval": (deepeval, "Correctness (GEval)", "human", 6),
    "weave": (weave, "tone.score", "good@human", 6),
    "evals": (evals, "metascore", None, 2),
    "braintrust": (braintrust, "Factuality", "Factuality@human", 0),
    "helm": (helm, "judge_score", "exact_match", 2),
    "lighteval": (lighteval, "judge_score", "em", 2),
    "judgebench": (judgebench, "judge", "label", 2),
    "rewardbench": (rewardbench, "judge", "label", 0),
    "opencompass": (opencompass, "llm_evaluation.llm_correct", "rule_evaluation.correct", 0),
}
CAUTIONS = {"judgebench": 1, "rewardbench": 1}  # that they test a judge
