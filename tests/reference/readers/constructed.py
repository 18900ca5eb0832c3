"""Write the files of other tools beside this script, row by row as their documents describe them, from one seed.

``python tests/reference/readers/constructed.py``. lm-evaluation-harness: ``samples_*.jsonl`` under a model's directory;
promptfoo: ``eval -o results.json``; Langfuse: CSV of scores; Phoenix: span annotations as JSON lines; LangSmith:
feedback as an array; MT-Bench: votes of people (``model_a``, ``model_b``, ``winner``) and FastChat's judge of pairs
(``g1_winner``, ``g2_winner``).
"""

import csv
import io
import json
import random
from pathlib import Path

HERE = Path(__file__).parent
POLICIES = ("base", "better")


def files() -> dict[str, str]:
    """Text of each file by its path."""
    rng = random.Random(20261123)
    out: dict[str, str] = {}
    for policy in POLICIES:
        name = f"lm_eval/org__{policy}/samples_qa_2026-11-23T10-00-00.000001.jsonl"
        out[name] = _lines(_lm_eval(rng))
    out["promptfoo/results.json"] = json.dumps(_promptfoo(rng), indent=1)
    out["langfuse/scores.csv"] = _csv(_langfuse(rng))
    out["phoenix/annotations.jsonl"] = _lines(_phoenix(rng))
    out["langsmith/feedback.json"] = json.dumps(_langsmith(rng), indent=1)
    votes, judged = _pairs(rng)
    out["mt_bench/human_votes.jsonl"], out["mt_bench/gpt-4_pair.jsonl"] = _lines(votes), _lines(judged)
    return out


def _lm_eval(rng: random.Random) -> list[dict]:
    rows = []
    for k in range(30):
        for name in ("strict-match", "flexible-extract"):
            rows.append({
                "doc_id": k, "doc": {"question": f"question {k}"}, "target": str(k),
                "arguments": {"gen_args_0": {"arg_0": f"question {k}", "arg_1": {"until": ["\n"]}}},
                "resps": [[f"it is {k}"]], "filtered_resps": [str(k)], "filter": name,
                "metrics": ["exact_match", "llm_judge"], "doc_hash": f"{k:064x}", "prompt_hash": f"{k:064x}",
                "target_hash": f"{k:064x}", "exact_match": float(rng.random() < 0.6),
                "llm_judge": rng.randint(0, 10) / 10 if k != 4 else float("nan"),
            })  # fmt: skip
    return rows


def _promptfoo(rng: random.Random) -> dict:
    results = []
    for repeat in range(2):
        for k in range(15):
            for p, policy in enumerate(POLICIES):
                rubric, exact = rng.randint(0, 4) / 4, rng.random() < 0.5
                parts = [
                    {"pass": rubric > 0.5, "score": rubric, "reason": "r",
                     "assertion": {"type": "llm-rubric", "value": "is it right", "metric": "right"}},
                    {"pass": exact, "score": float(exact), "assertion": {"type": "contains", "value": "x"}},
                ]  # fmt: skip
                score = (rubric + exact) / 2
                if k % 3 == 0:  # a rating by hand takes the place of the whole's score
                    up = rng.random() < 0.7
                    parts.append(
                        {
                            "pass": up,
                            "score": float(up),
                            "reason": "Manual result",
                            "assertion": {"type": "human"},
                        }
                    )
                    score = float(up)
                results.append({
                    "promptIdx": p, "testIdx": 15 * repeat + k, "promptId": "a1", "vars": {"question": f"question {k}"},
                    "testCase": {"vars": {"question": f"question {k}"}, "assert": []},
                    "provider": {"id": f"openai:{policy}", "label": policy},
                    "prompt": {"raw": f"Answer: question {k}", "label": "Answer: {{question}}"},
                    "response": {"output": f"answer {k}", "tokenUsage": {}}, "success": score > 0.5, "score": score,
                    "latencyMs": 1, "namedScores": {"right": rubric}, "failureReason": 0,
                    "gradingResult": {"pass": score > 0.5, "score": score, "reason": "r", "componentResults": parts},
                })  # fmt: skip
    return {
        "evalId": "eval-abc",
        "results": {"version": 3, "prompts": [], "results": results, "stats": {}},
        "config": {},
    }


def _langfuse(rng: random.Random) -> list[dict]:
    rows = []
    for policy in POLICIES:
        for k in range(20):
            trace = {"traceId": f"{policy}-{k}", "datasetRunName": policy, "datasetItemId": f"item-{k}"}
            rows.append(trace | {"name": "quality", "value": rng.randint(0, 10) / 10, "source": "EVAL"})
            if k % 2 == 0:
                rows.append(
                    trace | {"name": "quality", "value": rng.randint(0, 10) / 10, "source": "ANNOTATION"}
                )
            if k % 4 == 0:
                rows.append(
                    trace | {"name": "quality", "value": rng.randint(0, 10) / 10, "source": "ANNOTATION"}
                )
    return [
        {"id": f"s{n}", "timestamp": "2026-11-23T10:00:00Z", "dataType": "NUMERIC", **row}
        for n, row in enumerate(rows)
    ]


def _phoenix(rng: random.Random) -> list[dict]:
    rows = []
    for policy in POLICIES:
        for k in range(20):
            of = {
                "span_id": f"{policy}{k:012x}",
                "identifier": "",
                "metadata": {"model": policy, "prompt_id": k},
            }
            result = {"label": None, "score": rng.randint(0, 4) / 4, "explanation": "e"}
            rows.append(of | {"name": "correctness", "annotator_kind": "LLM", "result": result})
            if k % 3 == 0:
                result = {"label": "correct", "score": float(rng.random() < 0.5), "explanation": None}
                rows.append(of | {"name": "correctness", "annotator_kind": "HUMAN", "result": result})
    return rows


def _langsmith(rng: random.Random) -> list[dict]:
    rows = []
    for policy in POLICIES:
        for k in range(20):
            of = {
                "run_id": f"run-{policy}-{k}",
                "session_id": policy,
                "extra": {},
                "metadata": {"example_id": f"e{k}"},
            }
            rows.append(
                of | {"key": "helpful", "score": rng.randint(0, 4) / 4, "feedback_source": {"type": "model"}}
            )
            if k % 2 == 0:
                rows.append(
                    of | {"key": "thumb", "score": rng.random() < 0.5, "feedback_source": {"type": "app"}}
                )
    return rows


def _pairs(rng: random.Random) -> tuple[list[dict], list[dict]]:
    models, votes, judged = ("alpha", "beta", "gamma"), [], []
    for question in range(81, 91):
        for turn in (1, 2):
            for first, second in (("alpha", "beta"), ("alpha", "gamma"), ("beta", "gamma")):
                games = [rng.choice(["model_1", "model_2", "tie"]) for _ in range(2)]
                if (question, turn) == (85, 1):
                    games = ["error", "error"]
                judged.append({
                    "question_id": question, "model_1": first, "model_2": second, "g1_winner": games[0],
                    "g2_winner": games[1], "judge": ["gpt-4", "pair-v2"], "turn": turn, "tstamp": 1.0,
                })  # fmt: skip
                for k in range(rng.randint(0, 2)):
                    sides = (first, second) if rng.random() < 0.5 else (second, first)
                    votes.append({
                        "question_id": question, "model_a": sides[0], "model_b": sides[1],
                        "winner": rng.choice(["model_a", "model_b", "tie"]), "judge": f"expert_{k}", "turn": turn,
                    })  # fmt: skip
    assert set(models) == {row["model_1"] for row in judged} | {"gamma"}
    return votes, judged


def _lines(rows: list[dict]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _csv(rows: list[dict]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


if __name__ == "__main__":
    for name, text in files().items():
        (HERE / name).parent.mkdir(parents=True, exist_ok=True)
        (HERE / name).write_text(text, encoding="utf-8")
