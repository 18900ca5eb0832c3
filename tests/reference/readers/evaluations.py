"""Write files of tools that evaluate models beside this script, field by field as the tools' sources declare them.

``python tests/reference/readers/evaluations.py``. Values come from one seed for each tool; nothing is copied.
"""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

HERE = Path(__file__).parent
MODELS = ("base", "better")
Files = Iterator[tuple[str, object]]


def deepeval(rng: random.Random) -> Files:
    """Two runs of a model each; every seventh judge call failed, and half of the cases have a person's grade."""
    for model in MODELS:
        cases = [_case(k, rng) for k in range(24)]
        means = [{"metric": name, "scores": [m["score"] for c in cases for m in c["metricsData"]
                                             if m["name"] == name and "score" in m], "passes": 0, "fails": 0,
                  "errors": 0} for name in ("Correctness (GEval)", "human")]  # fmt: skip
        yield f"deepeval/{model}.json", {
            "testFile": "test_app.py", "testCases": cases, "conversationalTestCases": [], "metricsScores": means,
            "hyperparameters": {"model": model, "temperature": 0}, "testPassed": 24, "testFailed": 0,
            "runDuration": 1.5,
        }  # fmt: skip


def _case(k: int, rng: random.Random) -> dict:
    grade = {"name": "Correctness (GEval)", "threshold": 0.5, "success": True, "strictMode": False,
             "evaluationModel": "judge-1"}  # fmt: skip
    grade |= {"error": "timeout", "success": False} if k % 7 == 3 else {"score": rng.randint(0, 10) / 10}
    person = [{"name": "human", "score": rng.randint(0, 1), "success": True}] * (k % 2 == 0)
    return {"name": f"test_case_{k}", "input": f"question {k // 2}", "actualOutput": f"answer {k}", "success": True,
            "metricsData": [grade, *person], "order": k}  # fmt: skip


def opencompass(rng: random.Random) -> Files:
    """A rule and a judge on two replicas of each example; the judge saw what the rule failed."""
    for model in MODELS:
        details = []
        for k in range(12):
            rule = [rng.random() < 0.5 for _ in range(2)]
            judge = [{"prediction": "A" if rng.random() < 0.5 else "B"} for _ in range(2)]
            judge = [j | {"llm_correct": j["prediction"] == "A", "dataset_replica_idx": d}
                     for d, j in enumerate(judge)]  # fmt: skip
            details.append({
                "example_abbr": f"math_{k}",
                "rule_evaluation": [{"pred": "7", "answer": "7", "correct": r} for r in rule],
                "llm_evaluation": judge,
                "cascade_correct": [r or j["llm_correct"] for r, j in zip(rule, judge, strict=True)],
            })  # fmt: skip
        mean = sum(sum(d["cascade_correct"]) for d in details) / 24
        yield (
            f"opencompass/results/{model}/math.json",
            {"accuracy (2 runs average)": 100 * mean, "details": details},
        )


def weave(rng: random.Random) -> Files:
    """Two evaluations of a model each, with two trials; every third call has a person's annotation."""
    for model in MODELS:
        calls = []
        for k in range(24):
            feedback = [{"feedback_type": "wandb.annotation.good", "payload": {"value": rng.randint(0, 1)}}]
            failed = k % 8 == 5
            calls.append({
                "id": f"{model}-{k}", "op_name": "weave:///e/p/op/Evaluation.predict_and_score:x1", "trace_id": model,
                "parent_id": model, "exception": None,
                "inputs": {"self": "weave:///e/p/object/ev:1", "model": f"weave:///e/p/object/{model}:9",
                           "example": f"weave:///e/p/object/data:3/attr/rows/id/r{k % 12}"},
                "output": {"output": None if failed else "text", "model_latency": 0.1,
                           "scores": {} if failed else {"tone": {"score": rng.randint(0, 10) / 10}}},
                "summary": {"weave": {"feedback": feedback if k % 3 == 0 else []}},
            })  # fmt: skip
        yield f"weave/{model}.jsonl", lines(calls)


def evals(rng: random.Random) -> Files:
    """Two model-graded runs with one judge; one sample ended with an error."""
    for model in MODELS:
        spec = {
            "completion_fns": [model, "judge-1"],
            "eval_name": "joke.dev.v0",
            "base_eval": "joke",
            "split": "dev",
            "run_config": {"eval_spec": {"cls": "evals.elsuite.modelgraded.classify:ModelBasedClassify"}},
        }
        events = [{"sample_id": "joke.dev.24", "type": "error", "data": {"type": "Timeout", "message": ""}}]
        for k in range(24):
            grade = {"choice": "12345"[k % 5], "score": 1 + k % 5, "metascore": rng.random() < 0.5}
            events.append({"sample_id": f"joke.dev.{k}", "type": "metrics", "data": grade})
        rows = [{"run_id": "r", "event_id": k, **event, "created_by": "", "created_at": ""}
                for k, event in enumerate(events)]  # fmt: skip
        yield f"evals/{model}.jsonl", lines([{"spec": spec}, *rows, {"final_report": {}, "run_id": "r"}])


def braintrust(rng: random.Random) -> Files:
    """Two experiments; the root has the scorer's value, or the mean of the reviewers where there are some."""
    for model in MODELS:
        spans = []
        for k in range(24):
            common = {"experiment_id": f"exp-{model}", "project_id": "p", "root_span_id": f"{model}-{k}"}
            within = common | {"is_root": False, "span_parents": [f"{model}-{k}"]}
            value, reviews = rng.randint(0, 4) / 4, [rng.randint(0, 1) for _ in range(k % 3)]
            held = sum(reviews) / len(reviews) if reviews else value
            spans.append(
                common
                | {
                    "id": f"{model}-{k}",
                    "span_id": f"{model}-{k}",
                    "is_root": True,
                    "span_attributes": {"type": "eval"},
                    "input": {"q": k // 2},
                    "output": "text",
                    "expected": "x",
                    "scores": {"Factuality": held},
                    "metadata": {"model": model},
                    "error": None,
                }
            )
            spans.append(
                within
                | {
                    "id": f"s{model}{k}",
                    "span_id": f"s{model}{k}",
                    "scores": {"Factuality": value},
                    "span_attributes": {"type": "score", "purpose": "scorer", "name": "Factuality"},
                }
            )
            spans += [
                within
                | {
                    "id": f"r{model}{k}.{n}",
                    "span_id": f"r{model}{k}.{n}",
                    "scores": {"Factuality": v},
                    "span_attributes": {"type": "review"},
                }
                for n, v in enumerate(reviews)
            ]
        yield f"braintrust/{model}.json", {"events": spans, "cursor": None}


def helm(rng: random.Random) -> Files:
    """Two runs of a scenario with two trials; a grade of NaN is not written."""
    for model in MODELS:
        stats = [
            [_stat("exact_match", rng.randint(0, 1)), _stat("judge_score", rng.randint(0, 4) / 4)]
            for _ in range(24)
        ]
        instances = [
            {"instance_id": f"id{k // 2}", "train_trial_index": k % 2, "stats": held[: 1 + (k != 7)]}
            for k, held in enumerate(stats)
        ]
        yield f"helm/runs/suite/mmlu:subject=law,model=org_{model}/per_instance_stats.json", instances


def _stat(name: str, value: float) -> dict:
    return {
        "name": {"name": name, "split": "test"},
        "count": 1,
        "sum": value,
        "sum_squared": value**2,
        "min": value,
        "max": value,
        "mean": value,
        "variance": 0.0,
        "stddev": 0.0,
    }


def lighteval(rng: random.Random) -> Files:
    """Two runs as JSON lines, with the columns of the tool's Parquet files."""
    for model in MODELS:
        rows = [
            {
                "doc": {"query": f"question {k}", "id": str(k), "task_name": "gsm8k"},
                "model_response": {"text": [f"answer {k}"]},
                "metric": {
                    "em": float(rng.random() < 0.5),
                    "judge_score": None if k == 5 else rng.randint(0, 4) / 4,
                },
            }
            for k in range(24)
        ]
        date = "2026-01-02T03-04-05.600000"
        yield f"lighteval/details/org/{model}/{date}/details_gsm8k|0_{date}.jsonl", lines(rows)


def judgebench(rng: random.Random) -> Files:
    """Two judges on the same pairs, in both orders; one call of each failed."""
    labels = [rng.choice(["A>B", "B>A"]) for _ in range(24)]
    for model in MODELS:
        rows = [
            {
                "pair_id": f"p{k}",
                "original_id": k,
                "source": "mmlu-pro-law",
                "question": "q",
                "response_model": "m",
                "response_A": "a",
                "response_B": "b",
                "label": label,
                "judge_name": "vanilla",
                "judgments": [
                    None if k == 4 else {"decision": rng.choice(["A>B", "B>A", "A=B"])},
                    {"decision": rng.choice(["A>B", "B>A", "A=B"])},
                ],
            }
            for k, label in enumerate(labels)
        ]
        yield (
            f"judgebench/dataset=judgebench,response_model=m,judge_name=vanilla,judge_model={model}.jsonl",
            lines(rows),
        )


def rewardbench(rng: random.Random) -> Files:
    """Two reward models on the same examples, in columns."""
    for model in MODELS:
        chosen, rejected = [[rng.randint(0, 8) / 8 for _ in range(12)] for _ in range(2)]
        yield (
            f"rewardbench/{model}.json",
            {
                "id": list(range(12)),
                "subset": ["xstest-should-respond"] * 12,
                "scores_chosen": chosen,
                "scores_rejected": rejected,
                "model": f"org/{model}",
                "model_type": "Seq. Classifier",
                "results": [int(c > r) for c, r in zip(chosen, rejected, strict=True)],
                "chat_template": "tokenizer",
            },
        )


def lines(rows: list[dict]) -> str:
    return "\n".join(map(json.dumps, rows))


WRITERS: tuple[Callable[[random.Random], Files], ...] = (
    deepeval, opencompass, weave, evals, braintrust, helm, lighteval, judgebench, rewardbench,
)  # fmt: skip


def main() -> None:
    """Write all files."""
    for write in WRITERS:
        for name, held in write(random.Random(write.__name__)):
            path = HERE / name
            path.parent.mkdir(parents=True, exist_ok=True)
            text = held if isinstance(held, str) else json.dumps(held, indent=1)
            path.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
