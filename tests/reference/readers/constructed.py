"""Write the files of other tools beside this script, row by row as their documents describe them, from one seed.

``python tests/reference/readers/constructed.py``. Langfuse: CSV of scores; Phoenix: span annotations as JSON lines;
LangSmith: feedback as an array; MT-Bench: votes of people (``model_a``, ``model_b``, ``winner``) and FastChat's judge
of pairs (``g1_winner``, ``g2_winner``); promptfoo, Ragas, TruLens, MLflow: wide tables; AlpacaEval, Arena-Hard,
battles of the Chatbot Arena: comparisons of two models. Tools that run offline write theirs themselves: see the other
scripts here.
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
    out["promptfoo_table/results.csv"], out["promptfoo_marked/results.csv"] = _promptfoo(random.Random(2))
    out["alpaca_eval/annotations.json"] = json.dumps(_alpaca(random.Random(3)), indent=2)
    out["arena_hard/gpt-4.1/better.jsonl"] = _lines(_arena_hard(random.Random(4)))
    out["arena_battles/train.csv"] = _csv(_battles(random.Random(5)))
    for policy in POLICIES:
        out[f"ragas/{policy}.csv"] = _csv(_ragas(random.Random(policy)))
        table = _mlflow(random.Random(policy))
        split = {"columns": list(table[0]), "data": [list(row.values()) for row in table]}
        out[f"mlflow/{policy}/eval_results_table.json"] = json.dumps(split)
    out["trulens/records.csv"] = _csv(_trulens(random.Random(6)))
    return out


def _promptfoo(rng: random.Random) -> tuple[str, str]:
    """One evaluation in the layout of columns, with a rating by hand and an error, and in that of marked cells."""
    after = ["Status", "Score", "Named Scores", "Metric: tone", "Grader Reason", "Comment"]
    labels = ["[p:base] Answer {{q}}\nin one line", "[p:better] Answer {{q}}\nin one line"]
    new = [["Description", "q", "sessionId", *(name for label in labels for name in (label, *after))]]
    old = [["q", "sessionId", *labels]]
    for k in range(24):
        new.append(["", f"question {k // 2}", f"s{k}"])
        old.append([f"question {k // 2}", f"s{k}"])
        for p in range(2):
            score, tone = rng.randint(0, 100) / 100, rng.randint(0, 4) / 4
            status = "ERROR" if (k, p) == (5, 0) else "PASS" if score >= 0.5 else "FAIL"
            by_hand = k % 4 == p
            if by_hand and status != "ERROR":
                score, status = float(score >= 0.5), ("PASS", "ERROR")[score < 0.5]
            reason = "Manual result (overrides all other grading results)" if by_hand else "all good"
            named = {} if (k, p) == (5, 0) else {"tone": tone}
            tones = ["" if not named else f"{tone:.2f}"]
            new[-1] += ["text, of some length", status, f"{score:.2f}", json.dumps(named) if named else "", *tones,
                        reason, ""]  # fmt: skip
            shown = f"({score:.2f}, tone: {tone:.2f})" if named else f"({score:.2f})"
            old[-1].append(
                f"[{status}] {shown}\n\ntext\n\n{'Pass' if status == 'PASS' else 'Fail'} Reason: {reason}"
            )
    return _cells(new), _cells(old)


def _alpaca(rng: random.Random) -> list[dict]:
    rows = []
    for k in range(44):
        base = {"instruction": f"Write {k} lines.\nThen stop.", "output_1": "a", "generator_1": "reference",
                "dataset": "own", "output_2": f"b{k}", "generator_2": "better"}  # fmt: skip
        weighed = None if k == 4 else 0 if k == 5 else rng.randint(100, 200) / 100
        rows.append(base | {"annotator": "weighted", "preference": weighed})
        if k % 2 == 0:
            rows.append(base | {"annotator": "human", "preference": rng.randint(1, 2)})
    return rows


def _arena_hard(rng: random.Random) -> list[dict]:
    verdicts = ["A>>B", "A>B", "A=B", "B>A", "B>>A", "B<A", "A<<B"]
    rows = []
    for k in range(44):
        games = [{"score": rng.choice(verdicts), "judgment": {"answer": ""}, "prompt": []} for _ in range(2)]
        if k == 7:
            games[1]["score"] = None
        if k == 8:
            games[0] = None
        judged = {
            "uid": f"u{k}",
            "category": "hard_prompt",
            "model": "better",
            "baseline": "base",
            "games": games,
        }
        rows.append(judged | {"judge": "gpt-4.1"})
        if k % 3 == 0:
            again = [
                {"score": rng.choice(verdicts), "judgment": {"answer": ""}, "prompt": []} for _ in range(2)
            ]
            rows.append(judged | {"judge": "expert", "games": again})
    return rows


def _battles(rng: random.Random) -> list[dict]:
    rows = []
    for k in range(30):
        models, won = rng.sample(["alpha", "beta", "gamma"], 2), rng.randint(0, 2)
        turns = json.dumps([f"question {k // 3}", None, 'with "quotes", and commas'])
        winners = {
            name: int(k == won) for k, name in enumerate(("winner_model_a", "winner_model_b", "winner_tie"))
        }
        rows.append({"id": 100 + k, "model_a": models[0], "model_b": models[1], "prompt": turns, "response_a": turns,
                     "response_b": '["one", null]', **winners,
                     "llm_judge": "" if k == 9 else rng.randint(0, 100) / 100})  # fmt: skip
    return rows


def _ragas(rng: random.Random) -> list[dict]:
    return [
        {"": k, "user_input": f"question {k}\nof two lines", "retrieved_contexts": "['c']", "response": "r",
         "reference": "42", "faithfulness": "" if k == 6 else rng.randint(0, 4) / 4,
         "answer_relevancy": rng.random(), "aspect": rng.choice(["pass", "fail"]), "latency": rng.random()}
        for k in range(24)
    ]  # fmt: skip


def _mlflow(rng: random.Random) -> list[dict]:
    return [
        {"question": f"What is {k}?", "ground_truth": "1", "outputs": "it is", "token_count": rng.randint(3, 9),
         "answer_similarity/v1/score": None if k == 3 else rng.randint(1, 5),
         "answer_similarity/v1/justification": "why",
         "response/llm_judged/correctness/rating": rng.choice(["yes", "no"])}
        for k in range(24)
    ]  # fmt: skip


def _trulens(rng: random.Random) -> list[dict]:
    return [
        {"app_name": "rag", "app_version": version, "app_id": f"app_{version}", "type": "SPAN",
         "record_id": f"{version}{k}", "input": f"question {k // 2}", "output": "o", "tags": "",
         "ts": f"2026-01-01T00:00:{k:02}", "latency": k, "total_cost": 0.1, "eval_cost": 0.0, "num_events": 3,
         "sampled": "", "Groundedness": "" if k == 2 else rng.randint(0, 10) / 10, "Groundedness_calls": "[]",
         "Groundedness feedback cost in USD": 0.1, "Groundedness direction": "True",
         "Harm:::worst": rng.randint(0, 4) / 4, "human": rng.randint(0, 1) if k % 3 == 0 else "",
         "Harm_calls": "[]", "Harm direction": "False"}
        for version in POLICIES for k in range(20)
    ]  # fmt: skip


def _cells(rows: list[list]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


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
