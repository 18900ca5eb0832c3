"""Kinds of faults in other tools' files, each in several formats: the right value, or a refusal that names the reason.

Files are made here, after the schemas of the tools. A kind is a number in the names of the tests: 1 categories and
indices, 2 people beside the judge, 3 arms, 4 graded items that a tool gave up, 5 labels of another response, 6 prompts
that the run names, 7 scores of another level, 8 doctor and analyze, 9 recognition, 11 cost, 12 keys that occur twice.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from user_files import agree, as_csv, of, refuse, rows, write

from cje_core.data.files import read
from cje_core.data.intake.foreign import foreign, items_of
from cje_core.workflow.reading.doctor import examine

Record = dict[str, Any]
CASES = Path(__file__).parents[4] / "shared" / "cases"


def inspect(path: Path, samples: list[Record], indent: int | None = None, **about: Any) -> Path:
    header = {k: about.pop(k) for k in ("status", "results", "plan") if k in about}
    log = {
        "version": 2,
        "status": "success",
        "eval": {"task": "t", "model": "m", "created": "2026-01-01"} | about,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(log | header | {"samples": samples}, indent=indent))
    return path


def sample(k: int, epoch: int = 1, **scores: Any) -> Record:
    return {
        "id": k,
        "epoch": epoch,
        "scores": {n: v if isinstance(v, dict) else {"value": v} for n, v in scores.items()},
    }


def promptfoo(path: Path, results: list[Record], **more: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"evalId": "e", "results": {"results": results}} | more))
    return path


def result(k: int, parts: list[Record], provider: str = "p", column: int = 0, **more: Any) -> Record:
    return {
        "testIdx": k, "promptIdx": column, "promptId": "t", "provider": {"id": provider}, "vars": {"n": k},
        "response": {"output": "x"}, "gradingResult": {"componentResults": parts},
    } | more  # fmt: skip


def part(kind: str, score: Any, **assertion: Any) -> Record:
    return {"score": score, "assertion": {"type": kind} | assertion}


def harness(path: Path, values: list[Any], metric: str = "acc", **more: Any) -> Path:
    lines = [{"doc_id": k, "resps": [], "filtered_resps": [], "filter": "none", "metrics": [metric], metric: v} | more
             for k, v in enumerate(values)]  # fmt: skip
    return write(path, lines)


def langfuse(path: Path, scores: list[Record]) -> Path:
    base = {"dataType": "NUMERIC", "stringValue": "", "observationId": "", "datasetRunName": "run"}
    return as_csv(path, [base | s for s in scores])


WORDS = ["correct", "incorrect", "correct", "correct"]
EXPECTED = [1.0, 0.0, 1.0, 1.0]


def categories(place: Path, kind: str, words: list[str]) -> Path:
    """A judge's words in each format that has them; what numbers stand beside them are no grades."""
    n = range(len(words))
    if kind == "langfuse 0":
        return langfuse(place / "x.csv", [{"name": "j", "source": "EVAL", "dataType": "CATEGORICAL", "value": 0,
                                           "stringValue": words[k], "traceId": k} for k in n])  # fmt: skip
    if kind == "langfuse index":
        order = sorted(set(words))  # correct is 0
        return langfuse(place / "x.csv", [{"name": "j", "source": "EVAL", "dataType": "CATEGORICAL", "traceId": k,
                                           "value": order.index(words[k]), "stringValue": words[k]}
                                           for k in n])  # fmt: skip
    if kind == "langfuse export without types":
        table = [{"name": "j", "source": "EVAL", "value": words[k] != "correct", "string_value": words[k],
            "trace_id": k,
                  "dataset_run_name": "run"} for k in n]  # fmt: skip
        return write(place / "x.jsonl", [r | {"value": int(r["value"])} for r in table])
    if kind == "phoenix":
        return write(place / "x.jsonl", [{"name": "j", "annotator_kind": "LLM", "span_id": f"s{k}", "metadata": {
            "policy": "run"}, "result": {"label": words[k], "score": None}} for k in n])  # fmt: skip
    if kind == "phoenix index":
        return write(place / "x.jsonl", [{"name": "j", "annotator_kind": "LLM", "span_id": f"s{k}", "metadata": {
            "policy": "run"}, "result": {"label": words[k], "score": int(words[k] != "correct")}}
                for k in n])  # fmt: skip
    if kind == "langsmith":
        return as_csv(place / "x.csv", [{"run_id": f"r{k}", "session_id": "run", "key": "j", "value": words[k],
                                         "feedback_source.type": "model"} for k in n])  # fmt: skip
    if kind == "inspect":
        return inspect(place / "x.json", [sample(k, j=words[k]) for k in n], model="run")
    if kind == "harness":
        return harness(place / "run" / "samples_t.jsonl", list(words), "j")
    assert kind == "promptfoo"
    return promptfoo(
        place / "x.json", [result(k, [part("llm-rubric", words[k], metric="j")], "run") for k in n]
    )


FORMATS = ("langfuse 0", "langfuse index", "langfuse export without types", "phoenix", "phoenix index", "langsmith",
           "inspect", "harness")  # fmt: skip


@pytest.mark.parametrize("kind", FORMATS)
def test_1_a_category_counts_by_its_name(tmp_path: Path, kind: str) -> None:
    assert of(categories(tmp_path, kind, WORDS))["run"][0] == EXPECTED
    if "index" not in kind and "types" not in kind:
        path = categories(tmp_path / "b", kind, ["good", "bad", "good", "fair"])
        refuse(lambda: of(path), "has no numbers", "'bad', 'fair', 'good'", "scale=")
        graded = of(path, scale={"Good": 1.0, "bad": 0.0, "fair": None})
        assert graded["run"][0] == [1.0, 0.0, 1.0]
        assert graded["left out"]["reason"].str.startswith("ungraded").sum() == 1
        refuse(lambda: of(path, scale={"good": 1.0}), "'bad', 'fair'")


@pytest.mark.parametrize("kind", ["langsmith", "phoenix", "inspect", "harness"])
def test_1_letters_have_the_scale_that_all_of_them_fit(tmp_path: Path, kind: str) -> None:
    """N is no beside Y, no answer in Inspect, and nothing known in A to F."""
    assert of(categories(tmp_path, kind, list("YNYY")))["run"][0] == EXPECTED
    for letters in ("ABCDF", "PFPF", "YYYY") + ("NNNN",) * (kind != "inspect"):
        refuse(lambda: of(categories(tmp_path / letters, kind, list(letters))), "has no numbers")  # noqa: B023
    if kind == "inspect":
        assert of(categories(tmp_path / "i", kind, list("CIPN")))["run"][0] == [1.0, 0.0, 0.5, 0.0]
    else:
        refuse(lambda: of(categories(tmp_path / "i", kind, list("CIPN"))), "has no numbers")


@pytest.mark.parametrize("kind", ["langfuse 0", "phoenix", "inspect", "langsmith"])
def test_1_numbers_beside_words_of_unknown_scale_are_refused(tmp_path: Path, kind: str) -> None:
    words = ["correct", "3", "incorrect", "4"]
    refuse(lambda: of(categories(tmp_path, kind, words)), "beside numbers")


def test_1_texts_are_no_scores(tmp_path: Path) -> None:
    table = [{"name": n, "source": "EVAL", "dataType": kind, "value": v, "stringValue": s, "traceId": k}
             for k in range(4) for n, kind, v, s in (("remark", "TEXT", 0, "fine"), ("j", "NUMERIC", 0.5,
             ""))]  # fmt: skip
    path = langfuse(tmp_path / "x.csv", table)
    assert of(path)["run"][0] == [0.5] * 4
    assert "4 rows of remark@EVAL hold a text" in of(path)["left out"]["reason"].str.cat()
    refuse(
        lambda: of(langfuse(tmp_path / "y.csv", [r for r in table if r["name"] == "remark"])),
        "without any score",
    )
    unnamed = [r | {"dataType": "CATEGORICAL", "stringValue": ""} for r in table]
    refuse(lambda: of(langfuse(tmp_path / "z.csv", unnamed), "j"), "'category 0.5'")


# --- 2: people beside the judge ---


def test_2_the_kind_of_annotator_comes_before_the_way(tmp_path: Path) -> None:
    """Both logged through the SDK (Phoenix), both of feedback (LangSmith), both by API with an author (Langfuse)."""
    phoenix = [{"name": "q", "source": "API", "annotator_kind": kind, "span_id": f"s{k}", "metadata": {"policy": "run"},
                "result": {"score": score}} for k in range(4) for kind, score in (("LLM", 0.75), ("HUMAN",
                k % 2))]  # fmt: skip
    assert of(write(tmp_path / "p.jsonl", phoenix), "q@LLM", "q@HUMAN")["run"] == ([0.75] * 4, [0, 1, 0, 1])
    smith = [{"key": "q", "source": "sdk", "feedback_source": {"type": kind}, "run_id": f"r{k}", "session_id": "run",
              "score": score} for k in range(4) for kind, score in (("model", 0.75), ("app", k % 2))]  # fmt: skip
    assert of(write(tmp_path / "s.jsonl", smith), "q@model", "q@app")["run"] == ([0.75] * 4, [0, 1, 0, 1])
    fuse = [{"name": "q", "source": "API", "traceId": f"t{k}", "value": score, "authorUserId": who}
            for k in range(4) for who, score in (("", 0.75), ("ann", k % 2))]  # fmt: skip
    assert of(langfuse(tmp_path / "f.csv", fuse), "q@API/none", "q@API/ann")["run"] == (
        [0.75] * 4,
        [0, 1, 0, 1],
    )
    refuse(lambda: of(tmp_path / "f.csv"), "which score is the judge's?", "q@API/ann", "q@API/none")


def test_2_an_edit_by_hand_is_not_the_judge(tmp_path: Path) -> None:
    edited = {"value": "I", "history": [{"value": "C"}, {"value": "I", "provenance": {"author": "ann"}}]}
    path = inspect(
        tmp_path / "x.json",
        [sample(0, j=edited), sample(1, j={"value": "C", "history": []}), sample(2, j="I")],
    )
    assert of(path, "j", "j@edit")["m"] == ([1.0, 1.0, 0.0], [0.0, None, None])
    assert "1 samples have a grade changed by hand" in of(path, "j", "j@edit")["left out"]["reason"].str.cat()
    rated = [part("llm-rubric", 0.25), part("human", 1)]
    results = [result(0, rated, score=1), result(1, [part("llm-rubric", 0.5)], score=0.5)]
    whole = result(2, [], score=1)
    whole["gradingResult"] = {"score": 1, "reason": "Manual result (overrides all other grading results)"}
    path = promptfoo(tmp_path / "p.json", [*results, whole])
    assert of(path, "llm-rubric", "human")["p"] == ([0.25, 0.5], [1.0, None])


# --- 3: arms ---


def test_3_columns_of_promptfoo_are_policies(tmp_path: Path) -> None:
    two = [result(k, [part("llm-rubric", c)], column=c) for k in range(3) for c in (0, 1)]
    found = of(promptfoo(tmp_path / "x.json", two))
    assert (found["p, configuration 1"][0], found["p, configuration 2"][0]) == ([0] * 3, [1] * 3)
    named = [r | {"metadata": {"arm": "ab"[r["promptIdx"]]}} for r in two]
    found = of(promptfoo(tmp_path / "y.json", named), policy="metadata.arm")
    assert found["a"][0] == [0] * 3 and found["b"][0] == [1] * 3
    refuse(
        lambda: of(tmp_path / "y.json", policy="provider.id"), "another column of test 0", "policy_field=NAME"
    )
    promptfoo(tmp_path / "d" / "a.json", two[::2])
    promptfoo(tmp_path / "d" / "b.json", two[::2])
    refuse(lambda: of(tmp_path / "d"), "two runs", "a.json", "b.json")


@pytest.mark.parametrize(
    ("first", "second", "names"),
    [
        ({"solver": "a"}, {"solver": "b"}, ["m, solver=a", "m, solver=b"]),
        ({"task_args": {"cot": True}}, {}, ['m, task_args={"cot": true}', "m, task_args=default"]),
        ({"plan": {"config": {"temperature": 1}}}, {"plan": {"config": {"max_connections": 9}}},
         ['m, config={"temperature": 1}', "m, config=default"]),
    ],
)  # fmt: skip
def test_3_logs_of_one_model_that_differ_are_policies(
    tmp_path: Path, first: Record, second: Record, names: list[str]
) -> None:
    inspect(tmp_path / "a.json", [sample(k, j=1) for k in range(3)], **first)
    inspect(tmp_path / "b.json", [sample(k, j=0) for k in range(3)], **second)
    found = of(tmp_path)
    assert [found[name][0] for name in names] == [[1.0] * 3, [0.0] * 3]
    if "solver" in first:
        assert of(tmp_path, policy="solver")["b"][0] == [0.0] * 3


def test_3_a_column_that_tells_responses_apart_is_not_passed_over(tmp_path: Path) -> None:
    table = [{"name": "j", "source": "EVAL", "traceId": f"{run}{k}", "value": 0.5 + (run == "b") / 4,
        "datasetRunName": run,
              "model": "m", "datasetItemId": k} for run in "ab" for k in range(4)]  # fmt: skip
    path = langfuse(tmp_path / "x.csv", table)
    refuse(lambda: of(path), "differ in datasetRunName (a, b)", "policy_field=datasetRunName")
    assert of(path, policy="datasetRunName")["b"][0] == [0.75] * 4
    assert len(of(path, policy="model")["m"][0]) == 8  # as draws, which is what was asked for
    path = langfuse(tmp_path / "y.csv", [{k: v for k, v in r.items() if k != "datasetRunName"} | {
        "datasetRunName": "run", "model": "", "release": r["datasetRunName"]} for r in table])  # fmt: skip
    refuse(
        lambda: of(path),
        "release tells responses of one policy and prompt apart (a, b)",
        "policy_field=release",
    )
    trials = [
        {k: v for k, v in r.items() if k != "datasetRunName"} | {"model": "", "trial": r["datasetRunName"]}
        for r in table
    ]
    assert len(of(langfuse(tmp_path / "z.csv", trials))["run"][0]) == 8


def test_3_a_chat_or_the_annotators_model_is_no_policy(tmp_path: Path) -> None:
    fuse = [
        {"name": "j", "source": "EVAL", "trace_id": k, "value": 0.5, "session_id": f"chat {k}"}
        for k in range(12)
    ]
    refuse(lambda: of(write(tmp_path / "f.jsonl", fuse)), "no column says the policy", "policy_field=NAME")
    refuse(
        lambda: of(tmp_path / "f.jsonl", policy="session_id"),
        "differs in every response",
        "policy_field=NAME",
    )
    phoenix = [{"name": "j", "annotator_kind": kind, "span_id": f"s{k}", "result": {"score": 0.5},
                "metadata": {"model": "gpt-judge"} if kind == "LLM" else {}} for k in range(3)
                for kind in ("LLM", "HUMAN")]  # fmt: skip
    refuse(
        lambda: of(write(tmp_path / "p.jsonl", phoenix), "j@LLM"),
        "metadata.model may be the annotator's model",
    )
    smith = [{"key": "j", "run_id": "r", "session_id": s, "score": 1} for s in ("a", "b")]
    refuse(
        lambda: of(write(tmp_path / "s.jsonl", smith)), "session_id of trace 'r' is 'b'", "names no policy"
    )
    pairs = [{"question_id": 1, "model_a": "x", "model_b": "y", "winner": "tie"}]
    refuse(
        lambda: of(write(tmp_path / "m.jsonl", pairs), policy="judge"), "policy_field='judge'", "leave it out"
    )


# --- 4: graded items ---


def test_4_a_graded_sample_with_an_error_counts(tmp_path: Path) -> None:
    held = [sample(k, j="CICC"[k]) | ({"error": {"message": "x"}} if k < 2 else {}) for k in range(4)]
    gone = {"id": 9, "epoch": 1, "scores": {}, "error": {"message": "x"}}
    invalid = sample(8, j="C") | {"invalidation": {"author": "a"}}
    means = {"scores": [{"name": "j", "scorer": "j", "metrics": {"accuracy": {"value": 0.75}}}]}
    found = of(inspect(tmp_path / "x.json", [*held, gone, invalid], results=means))
    assert found["m"][0] == EXPECTED
    assert sorted(found["left out"]["reason"]) == [
        "unusable: the sample ended with an error, and no score", "unusable: the sample was invalidated"]  # fmt: skip
    means["scores"][0]["metrics"]["accuracy"]["value"] = 0.5
    found = of(inspect(tmp_path / "y.json", held, results=means))
    assert (
        "accuracy of j in the file is 0.500, the mean of the 4 grades read 0.750"
        in found["left out"]["reason"].str.cat()
    )


def test_4_one_order_is_no_full_win_and_an_inconsistent_verdict_is_a_tie(tmp_path: Path) -> None:
    games = [("model_1", "model_1"), ("model_1", "model_2"), ("model_1", "error"), ("tie", "tie")]
    table = [{"question_id": k, "model_1": "x", "model_2": "y", "g1_winner": a, "g2_winner": b, "judge": "j"}
             for k, (a, b) in enumerate(games)]  # fmt: skip
    found = of(write(tmp_path / "x.jsonl", table))
    assert found["x"][0] == [1.0, 0.5, 0.5] and found["y"][0] == [0.0, 0.5, 0.5]
    assert found["left out"]["reason"].tolist() == ["ungraded: j gave no number"] * 2
    votes = [{"question_id": k, "model_a": "x", "model_b": "y", "winner": w, "judge": "j"}
             for k, w in enumerate(["model_a", "inconsistent", "tie (bothbad)", "error"])]  # fmt: skip
    assert of(write(tmp_path / "y.jsonl", votes))["x"][0] == [1.0, 0.5, 0.5]
    refuse(lambda: of(write(tmp_path / "z.jsonl", [votes[0] | {"winner": "modelA"}])), "winner 'modelA'")


def test_4_means_that_differ_from_the_files_own_are_said(tmp_path: Path) -> None:
    at = "2026-01-01T00-00-00.000001"
    path = harness(tmp_path / "m" / f"samples_t_{at}.jsonl", [1.0, 0.0, 1.0, 1.0])
    write(
        path.parent / f"results_{at}.json",
        json.dumps({"results": {"t": {"acc,none": 0.75, "acc_stderr,none": 0.1}}}),
    )
    assert not of(path)["left out"]["reason"].str.startswith("caution").any()
    write(path.parent / f"results_{at}.json", json.dumps({"results": {"t": {"acc,none": 0.25}}}))
    assert "is 0.250, the mean of the 4 grades read 0.750" in of(path)["left out"]["reason"].str.cat()
    failed = part("llm-rubric", 0, metric="q") | {"metadata": {"graderError": True}}
    results = [result(k, [failed if k == 0 else part("llm-rubric", 1, metric="q")]) for k in range(4)]
    for k, one in enumerate(results):
        one["gradingResult"]["namedScores"] = {"q": float(k > 0)}
    found = of(promptfoo(tmp_path / "p.json", results))
    assert (
        found["p"][0] == [1.0] * 3
        and "is 0.750, the mean of the 3 grades read 1.000" in found["left out"]["reason"].str.cat()
    )


# --- 5: labels of another response ---


def test_5_a_score_on_an_observation_meets_that_on_its_trace(tmp_path: Path) -> None:
    fuse = [{"name": "q", "source": s, "traceId": f"t{k}", "observationId": o, "value": v} for k in range(3)
            for s, o, v in (("EVAL", f"o{k}", 0.25), ("ANNOTATION", "", 1))]  # fmt: skip
    assert of(langfuse(tmp_path / "x.csv", fuse), "q@EVAL", "q@ANNOTATION")["run"] == ([0.25] * 3, [1.0] * 3)
    phoenix = [{"name": "q", "annotator_kind": s, "trace_id": f"t{k}", "span_id": o, "result": {"score": v},
        "policy": "run"}
               for k in range(3) for s, o, v in (("LLM", f"o{k}", 0.25), ("HUMAN", None, 1))]  # fmt: skip
    assert of(write(tmp_path / "x.jsonl", phoenix), "q@LLM", "q@HUMAN")["run"] == ([0.25] * 3, [1.0] * 3)
    smith = [{"key": "q", "feedback_source": {"type": s}, "trace_id": f"t{k}", "run_id": o, "score": v,
        "session_id": "run"}
             for k in range(3) for s, o, v in (("model", f"o{k}", 0.25), ("app", f"t{k}", 1))]  # fmt: skip
    assert of(write(tmp_path / "y.jsonl", smith), "q@model", "q@app")["run"] == ([0.25] * 3, [1.0] * 3)
    apart = [r | {"observationId": "root"} if r["source"] == "ANNOTATION" else r for r in fuse]
    refuse(
        lambda: of(langfuse(tmp_path / "z.csv", apart), "q@EVAL", "q@ANNOTATION"),
        "share no response",
        "3 others",
    )


def test_5_labels_of_a_file_of_their_own_find_their_draw(tmp_path: Path) -> None:
    log = inspect(tmp_path / "x.json", [sample(k, e, j=e / 4) for k in range(3) for e in (1, 2, 3)])
    made = foreign(log)
    assert made is not None

    def labelled(records: list[Record]) -> list[int]:
        data, _ = read(made, labels=as_csv(tmp_path / "l.csv", records))
        return data["labelled"].sum("prompt").values[0].tolist()

    base = [{"policy": "m", "prompt_id": k, "oracle_label": 1} for k in range(3)]
    assert labelled([r | {"draw_idx": 1} for r in base]) == [0, 3, 0]
    refuse(lambda: labelled(base), "row 2", "draw_idx is missing", "several draws")
    for name, words in (("epoch", "draw_idx, counted from 0"), ("sample_id", "looks like a part of the key"),
                        ("Repetition", "looks like a part of the key"), ("traceId", "part of the key")):  # fmt: skip
        refuse(
            lambda name=name: labelled([r | {name: 2, "draw_idx": 0} for r in base]),
            f"column {name!r}",
            words,
        )  # type: ignore[misc]
    assert labelled([r | {"draw_idx": 1, "annotator_id": "a", "note": "x"} for r in base]) == [0, 3, 0]
    own = write(tmp_path / "own.jsonl", [r | {"policy": "p"} for r in rows(n=4)])
    labels = as_csv(tmp_path / "own.csv", [{"prompt_id": q, "oracle_label": 1} for q in ("q1", "q2", "zz")])
    data, left_out = read(own, labels=labels)
    assert (
        int(data.labelled.sum()) == 2 and "2 of 3 labels found their response" in left_out["reason"].str.cat()
    )


# --- 6 and 7: prompts that the run names, scores of another level ---


def test_6_variables_that_the_run_fills_in_name_no_prompt(tmp_path: Path) -> None:
    two = [result(k, [part("llm-rubric", c)], "ab"[c], c, vars={"n": k, "sessionId": f"{k}{c}", "at": f"12:0{k}{c}"})
           for k in range(3) for c in (0, 1)]  # fmt: skip
    data, _ = read(foreign(promptfoo(tmp_path / "x.json", two)))
    assert dict(data.sizes) == {"policy": 2, "prompt": 3, "draw": 1}
    repeats = [result(k, [part("llm-rubric", 1)], vars={"n": k // 2, "session_id": str(k)}) for k in range(6)]
    data, _ = read(foreign(promptfoo(tmp_path / "y.json", repeats)))
    assert dict(data.sizes) == {"policy": 1, "prompt": 3, "draw": 2}


def test_7_scores_of_every_level_can_be_named(tmp_path: Path) -> None:
    tone = [part("llm-rubric", 1, metric="Tone", weight=3), part("contains", 0, metric="Tone", weight=1)]
    script = {**part("python", 0.125), "namedScores": {"faith": 0.25}}
    one = result(0, [*tone, script], namedScores={"Tone": 0.75, "derived": 0.5})
    one["gradingResult"]["namedScores"] = {"Tone": 0.75, "faith": 0.25}
    path = promptfoo(tmp_path / "x.json", [one])
    assert {name: of(path, name)["p"][0] for name in ("Tone", "faith", "derived", "python")} == {
        "Tone": [0.75], "faith": [0.25], "derived": [0.5], "python": [0.125]}  # fmt: skip
    log = inspect(
        tmp_path / "y.json",
        [sample(0, rubric={"value": {"depth": 1, "tone": 0.5}}, many={"value": [0.25, 1]})],
    )
    assert of(log, "rubric/tone")["m"][0] == [0.5] and of(log, "many/0")["m"][0] == [0.25]
    found = of(harness(tmp_path / "m" / "samples_ifeval.jsonl", [[True, False], [True, True]], "inst"))
    assert (
        found["m"][0] == [0.5, 1.0]
        and "a value for each instruction" in found["left out"]["reason"].str.cat()
    )
    path = harness(
        tmp_path / "n" / "samples_t.jsonl", [1.0, 0.0], pair=["ref", "pred"], metrics=["acc", "pair"]
    )
    assert "pair is no number of a response" in of(path)["left out"]["reason"].str.cat()


# --- 8 and 9: doctor and analyze, recognition ---


def test_8_doctor_reads_what_analyze_reads(tmp_path: Path) -> None:
    at = "2026-01-01T00-00-00.000001"
    inspect(tmp_path / "a" / "1.json", [sample(k, j=0) for k in range(4)], status="cancelled")
    inspect(tmp_path / "a" / "2.json", [sample(k, j=1) for k in range(6)])
    assert agree(tmp_path / "a") == "" and of(tmp_path / "a")["m"][0] == [1.0] * 6
    said = of(tmp_path / "a")["left out"]["reason"]
    assert (said == "superseded: 2.json is a later attempt").sum() == len(said) == 4
    inspect(tmp_path / "a" / "3.json", [sample(k, j=1) for k in range(6)])
    assert "keep one of the two runs" in agree(tmp_path / "a")
    harness(tmp_path / "b" / "m" / f"samples_t_{at}.jsonl", [1.0, 0.0])
    harness(tmp_path / "b" / "m" / f"samples_t_{at[:-1]}2.jsonl", [1.0, 0.0])
    assert "two runs of one task" in agree(tmp_path / "b")
    two = [result(k, [part("llm-rubric", 1)], column=c) for k in range(3) for c in (0, 0)]
    assert "another column of test 0" in agree(promptfoo(tmp_path / "c.json", two))
    assert "has no numbers" in agree(categories(tmp_path / "d", "langsmith", list("ABC")))


def test_8_two_filters_of_one_metric_are_no_judge_and_oracle(tmp_path: Path) -> None:
    lines = [{"doc_id": k, "resps": [], "filtered_resps": [], "filter": f, "metrics": ["exact_match"],
        "exact_match": 1.0}
             for k in range(3) for f in ("strict", "flexible")]  # fmt: skip
    found = examine(write(tmp_path / "m" / "samples_t.jsonl", lines))
    assert found.judge is not None and found.oracle is None
    found = examine(harness(tmp_path / "n" / "samples_t.jsonl", [1.0, 0.0], "exact_match"))
    assert (found.judge, found.oracle, found.problem) == ("exact_match,none", None, "")
    roles = found.roles
    assert (
        roles["policy"] == "the directory of the file (1 values)"
        and roles["judge"] == "exact_match,none (2 responses)"
    )


@pytest.mark.parametrize("indent", [None, 1])
def test_9_files_are_known_by_their_first_record(tmp_path: Path, indent: int | None) -> None:
    """Whatever a score is called, however long a line, however a document is laid out."""
    path = inspect(tmp_path / "a.json", [sample(0, judge_score=0.5, prompt_id=1)], indent=indent)
    assert items_of(path) is not None and of(path, "judge_score")["m"][0] == [0.5]
    path = harness(
        tmp_path / "m" / "samples_t.jsonl", [0.5], "judge_score", doc={"judge_score": "x" * 100_000}
    )
    assert of(path)["m"][0] == [0.5]
    path = harness(tmp_path / "deep" / "t" / "0shot" / "x" / "m" / "samples_t.jsonl", [0.25])
    assert of(tmp_path / "deep")["m"][0] == [0.25]
    path = promptfoo(tmp_path / "p.json", [result(0, [part("llm-rubric", 0.5, metric="judge_score")])])
    path.write_text(json.dumps(json.loads(path.read_text()), indent=indent))
    assert of(path)["p"][0] == [0.5]
    table = [
        {"name": "judge_score", "trace_id": k, "score": 0.5, "policy": "r", "input": "y" * 70_000}
        for k in range(2)
    ]
    path = tmp_path / "s.json"
    path.write_text(json.dumps(table, indent=indent))
    assert of(path)["r"][0] == [0.5] * 2
    quoting = [
        r | {"policy": "p", "response": '{"doc_id": 1, "resps": 2, "filtered_resps": 3}'} for r in rows(n=4)
    ]
    assert items_of(write(tmp_path / "own.jsonl", quoting)) is None
    unknown = examine(write(tmp_path / "u.jsonl", [{"alpha": 1, "beta": 2}]))
    assert "neither a table of responses" in unknown.problem and "alpha, beta" in unknown.problem
    refuse(
        lambda: read(tmp_path / "u.jsonl"), "row 1: policy is missing"
    )  # rows without any field of ours are rows


def test_11_thousands_of_voters_cost_seconds(tmp_path: Path) -> None:
    """Rows times voters would be 12 million looks: half a minute."""
    votes = [{"question_id": k, "model_a": "x", "model_b": f"y{k % 9}", "winner": "tie", "judge": f"voter_{k % 2000}"}
             for k in range(6000)]  # fmt: skip
    path = write(tmp_path / "x.jsonl", votes)
    start = time.process_time()
    found = examine(path)
    assert found.judge == "voter_*" and found.n_usable == 12_000
    assert time.process_time() - start < 10


@pytest.mark.parametrize("quoted", ["other", "judge_score", "metadata"])
def test_12_a_key_twice_is_refused_by_both_parsers(tmp_path: Path, quoted: str) -> None:
    value = "{}" if quoted == "metadata" else "0.5"
    line = (
        f'{{"policy": "p", "prompt_id": 1, "judge_score": 0.5, "{quoted}": {value}, "{quoted}": {value}}}\n'
    )
    for more in ("", "\n"):  # a blank line is for Python's parser
        refuse(
            lambda more=more: read(write(tmp_path / "x.jsonl", line + more)),
            "row 1",
            f"field {quoted!r} occurs twice",
        )  # type: ignore[misc]


def test_words_of_a_scale_are_checked(tmp_path: Path) -> None:
    from studies.cli.files.source import source_of

    path = categories(tmp_path, "langsmith", list("AB"))
    for text in ("A=1,B", "A=1,a=2", "A=x", ""):
        if text:
            refuse(lambda text=text: source_of(path, None, None, None, None, text, ()), "scale=")  # type: ignore[misc]
    made = source_of(path, None, None, None, None, "A=1,B=0.5", ())
    assert read(made)[0]["judge"].values.ravel().tolist() == [1.0, 0.5]


@pytest.mark.slow
@pytest.mark.skipif(not CASES.is_dir(), reason="cases of other people's files are not here")
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("01-inspect-score-on-error/log.json --judge model_graded_fact --oracle human_rating",
            {"openai/gpt-4o": 0.599}),
        ("02-langfuse-categorical/index.csv --judge correctness@EVAL --oracle correctness@ANNOTATION",
            {"run-a": 0.743}),
        ("03-langfuse-observation-vs-trace/scores.csv --judge quality@EVAL --oracle quality@ANNOTATION",
            {"run-a": 0.477}),
        ("20-promptfoo-same-provider-two-configs/results.json --judge llm-rubric --oracle human", {
            "openai:chat:gpt-5-mini, configuration 1": 0.922, "openai:chat:gpt-5-mini, configuration 2": 0.384}),
        ("24-epochs-and-labels/log.json --judge judge --oracle-file 24-epochs-and-labels/draw.csv",
            {"openai/gpt-4o": 0.461}),
        ("27-phoenix-source-over-annotator-kind/annotations.jsonl --judge correctness@LLM --oracle correctness@HUMAN",
         {"assistant-v2": 0.267}),
    ],
)  # fmt: skip
def test_values_of_the_cases(arguments: str, expected: dict[str, float]) -> None:
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-m", "studies", "analyze", *arguments.split(), "--json"]
    done = subprocess.run(command, cwd=CASES, capture_output=True, text=True, check=True, env=env)
    policies = json.loads(done.stdout)["policies"]
    assert {name: round(one["value"]["estimate"], 3) for name, one in policies.items()} == expected


# --- formats of one test each ---


def test_single_grades_of_mt_bench(tmp_path: Path) -> None:
    """-1 is no grade; turns are draws, so that a question stays one sampling unit."""
    table = [
        {"question_id": q, "model": "m", "judge": [judge, "single-v1"], "turn": t, "score": s}
        for judge, grades in (("gpt-4", (7, -1, 9, 3)), ("claude", (6, 5, 8, 2)))
        for (q, t), s in zip([(81, 1), (81, 2), (82, 1), (82, 2)], grades, strict=True)
    ]
    path = write(tmp_path / "x.jsonl", table)
    found = of(path, "gpt-4/single-v1", "claude/single-v1", range_=(1, 10))
    assert found["m"] == ([7, 9, 3], [6, 8, 2])
    assert found["left out"]["reason"].tolist() == ["ungraded: gpt-4/single-v1 gave no number"]
    assert examine(path).scale("gpt-4/single-v1") == (1.0, 5.0) or examine(path).scale("gpt-4/single-v1") == (
        1.0,
        10.0,
    )
    refuse(
        lambda: of(write(tmp_path / "y.jsonl", [*table, table[0]]), "gpt-4*", range_=(1, 10)),
        "row 9",
        "too; keep one",
    )


def test_experiments_of_langsmith(tmp_path: Path) -> None:
    """Each file is a policy where no column names it; runs of one example are draws."""
    table = [
        {"example_id": f"e{k // 2}", "run_id": k, "feedback.q": k / 4, "feedback.human": "NY"[k % 2]}
        for k in range(4)
    ]
    as_csv(tmp_path / "a.csv", table)
    as_csv(tmp_path / "b.csv", [r | {"feedback.q": 1} for r in table])
    found = of(tmp_path, "q", "human")
    assert found["a"] == ([0.0, 0.25, 0.5, 0.75], [0.0, 1.0, 0.0, 1.0]) and found["b"][0] == [1.0] * 4
    path = as_csv(tmp_path / "c" / "c.csv", [r | {"experiment": "xy"[r["run_id"] // 2]} for r in table])
    assert of(path, "q")["y"][0] == [0.5, 0.75]
    assert of(path, "q", policy="run_id", prompt="example_id")["2"][0] == [0.5]


def test_answers_of_an_api_hold_their_rows_in_data(tmp_path: Path) -> None:
    fuse = [
        {"name": "q", "value": k / 4, "dataType": "NUMERIC", "source": "EVAL", "traceId": f"t{k}"}
        for k in range(3)
    ]
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"data": fuse, "meta": {"page": 1, "totalPages": 2}}))
    refuse(lambda: of(path), "no column says the policy")
    path.write_text(
        json.dumps({"data": [r | {"model": "m"} for r in fuse], "meta": {"page": 1, "totalPages": 2}})
    )
    found = of(path)
    assert (
        found["m"][0] == [0.0, 0.25, 0.5] and "one page of several" in found["left out"]["reason"].str.cat()
    )
    phoenix = [
        {"name": "q", "annotator_kind": "LLM", "span_id": f"s{k}", "result": {"score": 0.5}, "policy": "r"}
        for k in (1, 2)
    ]
    path.write_text(json.dumps({"data": phoenix, "next_cursor": None}))
    assert of(path)["r"][0] == [0.5] * 2
