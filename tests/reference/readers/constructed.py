"""Write the files of other tools beside this script, row by row as their documents describe them, from one seed.

``python tests/reference/readers/constructed.py``. Langfuse: CSV of scores; Phoenix: span annotations as JSON lines;
LangSmith: feedback as an array; MT-Bench: votes of people (``model_a``, ``model_b``, ``winner``) and FastChat's judge
of pairs (``g1_winner``, ``g2_winner``). Tools that run offline write theirs themselves: see the other scripts here.
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
    out["langfuse/scores.csv"] = _csv(_langfuse(rng))
    out["phoenix/annotations.jsonl"] = _lines(_phoenix(rng))
    out["langsmith/feedback.json"] = json.dumps(_langsmith(rng), indent=1)
    votes, judged = _pairs(rng)
    out["mt_bench/human_votes.jsonl"], out["mt_bench/gpt-4_pair.jsonl"] = _lines(votes), _lines(judged)
    out["mt_bench_single/gpt-4_single.jsonl"] = _lines(_single(random.Random(1)))
    for policy in POLICIES:
        out[f"langsmith_experiment/{policy}.csv"] = _csv(_experiment(random.Random(policy)))
    return out


def _single(rng: random.Random) -> list[dict]:
    return [
        {"question_id": q, "model": model, "judge": ["gpt-4", "single-v1"], "user_prompt": "", "judgment": "",
         "score": -1 if q == 90 and turn == 2 else rng.randint(1, 10), "turn": turn, "tstamp": 1.0}
        for q in range(81, 92) for model in ("alpha", "beta") for turn in (1, 2)
    ]  # fmt: skip


def _experiment(rng: random.Random) -> list[dict]:
    return [
        {"example_id": f"e{k // 2}", "run_id": f"r{k}", "inputs": "{}", "outputs": "{}",
         "feedback.correctness": "" if k == 7 else rng.randint(0, 4) / 4,
         "feedback.human": "YN"[k % 4 > 1] * (k % 3 == 0)}
        for k in range(24)
    ]  # fmt: skip


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
                "metadata": {"policy": policy, "prompt_id": k},
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
