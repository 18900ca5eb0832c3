"""Files of tools that evaluate models: the right value by hand, and a refusal for each kind of fault that applies.

Files are made here, after the schemas of the tools. Kinds as in `test_kinds_of_files`.
"""

import copy
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from user_files import refuse, write

from cje_core.data.files import read
from cje_core.data.intake.foreign import Asked, foreign, items_of
from cje_core.workflow.reading.doctor import examine

Record = dict[str, Any]


def document(path: Path, held: Any, indent: int | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(held, indent=indent))
    return path


def of(
    path: Path,
    judge: str | None = None,
    oracle: str | None = None,
    range_: tuple[float, float] = (0, 1),
    **asked: Any,
) -> dict[str, Any]:
    """Scores and labels by policy, in order of prompts and draws."""
    made = foreign(path, judge=judge, oracle=oracle, asked=Asked(**asked))
    assert made is not None
    data, left_out = read(made, judge_range=range_, oracle_range=range_)
    out: dict[str, Any] = {"left out": left_out["reason"].tolist()}
    for policy in data.policy.values.tolist():
        at = data.sel(policy=policy).stack(row=["prompt", "draw"])
        at = at.isel(row=at.evaluated.values)
        out[policy] = (at.judge.values.tolist(), [None if v != v else v for v in at.oracle.values.tolist()])
    return out


def names(path: Path, **asked: Any) -> list[str]:
    """Names of all scores."""
    held = items_of(path, Asked(**asked))
    assert held is not None
    return sorted({name for item in held.items for name in item.scores})


def runs(path: Path) -> None:
    """The command that doctor prints reads what doctor counted."""
    found = examine(path)
    assert not found.problem, found.problem
    made = foreign(path, judge=found.judge, oracle=found.oracle)
    assert made is not None
    ranges = {f"{role}_range": found.scale(name or "") or (0.0, 1.0)
              for role, name in (("judge", found.judge), ("oracle", found.oracle))}  # fmt: skip
    assert int(read(made, **ranges)[0]["evaluated"].sum()) == found.n_usable


# --- deepeval ---


def metric(name: str, score: Any, **more: Any) -> Record:
    held = {"name": name, "success": True, "evaluationModel": "gpt-4o"} | more
    return held if score is None else held | {"score": score}


def case(text: str, *metrics: Record, **more: Any) -> Record:
    return {"name": "test_case_0", "input": text, "actualOutput": "a", "metricsData": list(metrics)} | more


def deepeval(path: Path, cases: list[Record], model: str | None = "m", **more: Any) -> Path:
    run = {"testCases": cases, "conversationalTestCases": [], "metricsScores": []} | more
    return document(path, run | ({"hyperparameters": {"model": model}} if model else {}))


FOUR = [0.25, 0.5, 0.75, 1.0]


def test_deepeval(tmp_path: Path) -> None:
    """An error is no score; two cases of one input are draws; the run's own list of scores is compared."""
    cases = [case(f"q{k // 2}", metric("G", s), metric("human", k % 2, evaluationModel=None))
             for k, s in enumerate(FOUR)]  # fmt: skip
    cases.append(case("q2", metric("G", 0.0, error="no JSON", success=False)))
    path = deepeval(tmp_path / "x.json", cases)
    assert of(path, "G", "human")["m"] == (FOUR, [0, 1, 0, 1])
    assert of(path, "G", "human")["left out"] == ["ungraded: G gave no number"]
    runs(path)
    latest = document(tmp_path / "y.json", {"testRunData": json.loads(path.read_text())}, indent=1)
    assert of(latest, "G")["m"][0] == FOUR
    told = deepeval(tmp_path / "z.json", cases, metricsScores=[{"metric": "G", "scores": [0.5, 0.5]}])
    assert any(
        "mean of metricsScores of G in the file is 0.500" in said for said in of(told, "G")["left out"]
    )


def test_deepeval_arms(tmp_path: Path) -> None:
    """Runs of one model whose other hyperparameters differ are policies; two equal runs are refused."""
    cases = [case(f"q{k}", metric("G", s)) for k, s in enumerate(FOUR)]
    for name, prompt in (("a", "short"), ("b", "long")):
        deepeval(tmp_path / f"{name}.json", cases, None, hyperparameters={"model": "m", "prompt": prompt})
    assert {"m, prompt=short", "m, prompt=long"} <= of(tmp_path, "G").keys()
    deepeval(tmp_path / "c.json", cases, None, hyperparameters={"model": "m", "prompt": "long"})
    refuse(lambda: of(tmp_path, "G"), "c.json", "two runs", "policy_field=NAME")
    assert examine(tmp_path).problem
    (tmp_path / "c.json").unlink()
    assert of(tmp_path, "G", policy="prompt").keys() >= {"short", "long"}
    refuse(lambda: of(tmp_path, "G", policy="nothing"), "nothing is missing")


def test_deepeval_graders(tmp_path: Path) -> None:
    """Grades of one metric by two models are two scores, as are two metrics of one name."""
    cases = [case(f"q{k}", metric("G", s, evaluationModel="ab"[k % 2]), metric("H", 1.0), metric("H", 0.0))
             for k, s in enumerate(FOUR)]  # fmt: skip
    path = deepeval(tmp_path / "x.json", cases)
    assert names(path) == ["G@a", "G@b", "H", "H#2"]
    assert of(path, "G@b")["m"][0] == [0.5, 1.0] and of(path, "H#2")["m"][0] == [0.0] * 4


def test_deepeval_prompts(tmp_path: Path) -> None:
    """One input with two expected outputs is two prompts; what was retrieved is the response's."""
    same = [case("q", metric("G", s), expectedOutput="xy"[k // 2], retrievalContext=[str(k)])
            for k, s in enumerate(FOUR)]  # fmt: skip
    path = deepeval(tmp_path / "x.json", same)
    found = examine(path)
    assert found.prompts == 2 and of(path, "G")["m"][0] == FOUR
    span = {"llmSpans": [{"name": "llm", "metricsData": [metric("G", 0.0)]}]}
    path = deepeval(tmp_path / "y.json", [case("q", metric("G", 1.0), trace=span)])
    assert of(path, "G") == {"m": ([1.0], [None]), "left out": [
        "1 spans of traces have metrics: they grade parts of a response and are no scores"]}  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (lambda c: c[0].pop("metricsData"), None),
        (lambda c: c[0].update(metricsData={}), "metricsData is {}"),
        (lambda c: c[0]["metricsData"][0].pop("name"), "a metric without a name"),
        (lambda c: c[0].pop("input") and c[0].pop("name"), "input is missing"),
        (lambda c: c[0]["metricsData"][0].update(score="good"), "it holds the words 'good'"),
        (lambda c: c.append(None), "a test case is an object"),
    ],
)
def test_deepeval_faults(tmp_path: Path, fault: Any, said: str | None) -> None:
    cases = [case(f"q{k}", metric("G", s)) for k, s in enumerate(FOUR)]
    fault(cases)
    path = deepeval(tmp_path / "x.json", cases)
    if said is None:
        assert of(path, "G")["m"][0] == FOUR[1:] and of(path, "G")["left out"] == [
            "unusable: the test case has no metric"
        ]
    else:
        refuse(lambda: of(path, "G"), "x.json", said)


# --- OpenCompass ---


def compass(path: Path, details: Any, **more: Any) -> Path:
    return document(path, {"accuracy": 50.0} | more | {"details": details}, indent=4)


def test_opencompass(tmp_path: Path) -> None:
    """Verdicts by example, in each form in which the tool writes them; its accuracy is compared."""
    verdicts = [True, False, True, False]
    as_dict = {str(k): {"pred": 3, "answer": 4, "correct": v, "idx": k} for k, v in enumerate(verdicts)}
    as_dict = {"type": "GEN"} | as_dict  # type: ignore[dict-item]
    path = compass(tmp_path / "m" / "math.json", as_dict)
    assert names(path) == ["correct"] and of(path)["m"][0] == [1, 0, 1, 0] and not of(path)["left out"]
    as_list = [
        {"example_abbr": f"d_{k}", "pred": [3, 4], "is_correct": [v, True]} for k, v in enumerate(verdicts)
    ]
    path = compass(tmp_path / "n" / "math.json", as_list, accuracy=75.0)
    assert of(path)["n"][0] == [1, 1, 0, 1, 1, 1, 0, 1] and not of(path)["left out"]
    assert not of(compass(tmp_path / "p" / "math.json", as_list, accuracy=0.75))["left out"]  # a share
    path = compass(tmp_path / "o" / "math.json", as_list, accuracy=50.0)
    said = "accuracy of is_correct in the file is 0.500, the mean of the 8 grades read 0.750: the tool counts others"
    assert of(path)["left out"] == [f"caution: {said}"]
    runs(path)


def test_opencompass_judges(tmp_path: Path) -> None:
    """A judge's letters count where the tool declares them; an answer's letter is none; C needs a scale."""
    letters = {str(k): {"origin_prompt": "q", "prediction": w, "gold": "B"} for k, w in enumerate("ABBA")}
    path = compass(tmp_path / "m" / "x.json", letters, attempted_ratio=100.0)
    assert of(path)["m"][0] == [1, 0, 0, 1] and not of(path)["left out"]
    refuse(lambda: of(compass(tmp_path / "n" / "x.json", letters)), "no verdict in its details")
    letters["3"]["prediction"] = "C"
    path = compass(tmp_path / "o" / "x.json", letters, attempted_ratio=75.0)
    refuse(lambda: of(path), "it holds the words 'a', 'b', 'c'", "scale=")
    assert of(path, scale={"a": 1, "b": 0, "c": None})["o"][0] == [1, 0, 0]


def test_opencompass_cascade(tmp_path: Path) -> None:
    """Rule and judge are scores apart; a judge who saw some replicas only is not put on the first of them."""
    rule = [{"correct": True, "pred": "1"}, {"correct": False, "pred": "2"}]
    detail = {"example_abbr": "d_0", "rule_evaluation": rule, "cascade_correct": [True, True],
              "llm_evaluation": [{"prediction": "A", "llm_correct": True}]}  # fmt: skip
    both = copy.deepcopy(detail) | {
        "example_abbr": "d_1",
        "llm_evaluation": [{"llm_correct": v} for v in (True, False)],
    }
    path = compass(tmp_path / "m" / "x.json", [detail, both], accuracy=100.0)
    found = of(path, "cascade_correct", "llm_evaluation.llm_correct")
    assert found["m"] == ([1, 1, 1, 1], [None, None, 1, 0])
    assert found["left out"] == [
        "llm_evaluation differ in how many replicas have them, so it is open which: they are no scores there"
    ]
    assert of(path, "rule_evaluation.correct")["m"][0] == [1, 0, 1, 0]


def test_opencompass_runs(tmp_path: Path) -> None:
    """Two work directories of one model are two runs; datasets begin the names of prompts."""
    details = {"0": {"pred": "x", "correct": True}, "1": {"pred": "x", "correct": False}}
    for when in ("1", "2"):
        compass(tmp_path / when / "results" / "m" / "d.json", details)
    refuse(lambda: of(tmp_path), "two runs", "policy_field=NAME")
    assert examine(tmp_path).problem
    compass(tmp_path / "1" / "results" / "m" / "e.json", details)
    predictions = {"0": {"origin_prompt": "q", "prediction": "x", "gold": "x"}}
    alone = document(tmp_path / "1" / "predictions" / "m" / "d.json", predictions)
    assert of(tmp_path / "1")["m"][0] == [1, 0, 1, 0]
    assert of(tmp_path / "1")["left out"] == ["predictions have no grade"]
    refuse(lambda: of(alone), "predictions of OpenCompass have no grade")
    details["1"]["correct"] = "maybe"  # type: ignore[assignment]
    refuse(lambda: of(compass(tmp_path / "p" / "d.json", details)), "it holds the words 'maybe'")
    refuse(
        lambda: of(compass(tmp_path / "q" / "d.json", [details["0"], None])),
        "detail 2",
        "a detail is an object",
    )
    mixed = [{"example_abbr": "d_0", "pred": ["x"], "correct": True}]
    refuse(lambda: of(compass(tmp_path / "s" / "d.json", mixed)), "detail 1", "its other fields are lists")
    half = compass(tmp_path / "r" / "d.json", [details["0"], {"pred": "x"}])
    assert "ungraded: correct gave no number" in of(half)["left out"]


# --- Weave ---


def call(
    k: int, scores: Any, model: Any = "weave:///e/p/object/bot:v1", parent: str = "run", **more: Any
) -> Record:
    return {
        "id": f"{parent}-{k}", "op_name": "weave:///e/p/op/Evaluation.predict_and_score:abc", "trace_id": parent,
        "parent_id": parent, "inputs": {"self": "weave:///e/p/object/ev:v0", "model": model,
        "example": f"weave:///e/p/object/data:v{len(parent)}/attr/rows/id/row{k}"},
        "output": {"output": "text", "scores": scores, "model_latency": 0.1}, "exception": None,
    } | more  # fmt: skip


def feedback(value: Any, kind: str = "wandb.annotation.good") -> Record:
    return {"weave": {"feedback": [{"feedback_type": kind, "payload": {"value": value}, "creator": "ann"}]}}


def test_weave(tmp_path: Path) -> None:
    """Scorers by path, texts left out, people's annotations apart, the evaluation's own means compared."""
    table = [
        call(k, {"tone": {"score": s, "why": f"it is {k} " * 12}, "ok": s > 0.5}) for k, s in enumerate(FOUR)
    ]
    table[0]["summary"] = feedback(1)
    predict = {"id": "child", "op_name": "Model.predict", "trace_id": "run", "parent_id": "run-1", "inputs": {},
               "output": "text", "summary": feedback({"good": {"digest": False}})}  # fmt: skip
    reaction = {"summary": feedback(None, "wandb.reaction.1")}
    whole = {"id": "run", "op_name": "Evaluation.evaluate", "trace_id": "run", "parent_id": None, "inputs": {},
             "output": {"tone": {"score": {"mean": 0.625}}, "ok": {"true_fraction": 0.25}}}  # fmt: skip
    table += [
        predict,
        predict | {"id": "other", "parent_id": "run"},
        whole,
        predict | {"id": "c2"} | reaction,
    ]
    path = write(tmp_path / "x.jsonl", table)
    assert names(path) == ["good@human", "ok", "tone.score"]
    found = of(path, "tone.score", "good@human")
    assert found["bot"] == (FOUR, [1, 0, None, None])
    assert any("tone.why: texts or lists" in said for said in found["left out"])
    assert "1 grades were added to other calls" in found["left out"] and len(found["left out"]) == 2
    assert any("true_fraction, of ok in the file is 0.250" in said for said in of(path, "ok")["left out"])
    runs(path)


def test_weave_scorers_applied_later(tmp_path: Path) -> None:
    """A scorer that ran on a call afterwards is a score, unless the evaluation has it."""
    later = [{"feedback_type": f"wandb.runnable.{name}", "payload": {"output": {"ok": value}}}
             for name, value in (("late", 1), ("q", 0))]  # fmt: skip
    table = [call(k, {"q": {"ok": True}}, summary={"weave": {"feedback": later}}) for k in range(2)]
    path = write(tmp_path / "x.jsonl", table)
    assert of(path, "q.ok")["bot"][0] == of(path, "late.ok")["bot"][0] == [1, 1]


def test_weave_arms(tmp_path: Path) -> None:
    """Versions of a model and settings are policies; a second evaluation of one is refused; trials are draws."""
    table = [call(k // 2, {"q": s}) for k, s in enumerate(FOUR)]
    path = write(tmp_path / "x.jsonl", table)
    assert of(path)["bot"][0] == FOUR and examine(path).prompts == 2
    scored = call(2, {"q": 0.5}, exception="after its scores")
    assert of(write(tmp_path / "s.jsonl", [*table, scored]))["bot"][0] == [*FOUR, 0.5]
    newer = [call(k // 2, {"q": 1.0}, "weave:///e/p/object/bot:v2", "new") for k in range(4)]
    path = write(tmp_path / "y.jsonl", table + newer)
    found = of(path)
    assert found["bot, version=v1"][0] == FOUR and found["bot, version=v2"][0] == [1.0] * 4
    assert examine(path).prompts == 2  # a row of the data set is one prompt in all its versions
    refuse(
        lambda: of(write(tmp_path / "z.jsonl", table + [r | {"parent_id": "again"} for r in table])),
        "two runs",
    )
    inline = [call(k, {"q": 1.0}, {"name": "bot", "temperature": t}) for t in (0, 1) for k in range(2)]
    path = write(tmp_path / "i.jsonl", inline)
    assert {"bot, temperature=0", "bot, temperature=1"} <= of(path).keys()
    assert of(path, policy="temperature").keys() >= {"0", "1"}


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"exception": "Traceback", "output": None}, "unusable: the call ended with an exception"),
        ({"output": None}, "unusable: the call has no output"),
        ({"output": {"output": None, "scores": {}}}, "unusable: the model gave no output"),
        ({"output": {"output": "text", "scores": {}}}, "ungraded: q gave no number"),
        ({"inputs": {"example": "x"}}, "inputs.model is missing"),
        ({"inputs": {"model": "m"}}, "inputs.example is missing"),
        ({"output": {"output": "x", "scores": [1]}}, "output.scores is [1]"),
        ({"output": {"output": "x", "scores": {"q": "good"}}}, "it holds the words 'good' beside numbers"),
        ({"op_name": "Evaluation.predict_and_score", "summary": feedback({"a": 1, "b": 2})}, "has 2 values"),
    ],
)
def test_weave_faults(tmp_path: Path, fault: Record, said: str) -> None:
    path = write(tmp_path / "x.jsonl", [call(0, {"q": 0.5}), call(1, {"q": 1.0}) | fault])
    if said.startswith(("unusable", "ungraded")):
        assert of(path, "q")["bot"][0] == [0.5] and of(path, "q")["left out"] == [said]
    else:
        refuse(lambda: of(path, "q"), "x.jsonl", said)


# --- openai/evals ---


def evals(path: Path, events: list[Record], *functions: str, report: Any = None, **spec: Any) -> Path:
    head = {
        "completion_fns": list(functions) or ["m"],
        "eval_name": "arith.dev.v0",
        "run_config": {"eval_spec": {}},
    }
    rows = [{"run_id": "r", "event_id": k, "created_at": "now"} | event for k, event in enumerate(events)]
    end = [{"final_report": report, "run_id": "r"}] * (report is not None)
    return write(path, [{"spec": head | spec}, *rows, *end])


def event(sample: str, kind: str, **data: Any) -> Record:
    return {"sample_id": sample, "type": kind, "data": data}


def test_evals(tmp_path: Path) -> None:
    """Matches and metrics are scores, an error without a grade is none, and the report is compared."""
    events = [event("a.0", "sampling", sampled="4")]
    events += [event(f"a.{k}", "match", correct=k < 2, picked="4", expected="4") for k in range(3)]
    events += [event(f"a.{k}", "metrics", score=s, choice="AB"[k % 2]) for k, s in enumerate(FOUR)]
    events += [event("a.9", "error", message="timeout"), event("a.0", "error", message="retried")]
    path = evals(tmp_path / "x.jsonl", events, report={"accuracy": 0.5, "score": 0.625, "counts/A": 2})
    assert of(path, "score", "match") == {"m": (FOUR, [1, 1, 0, None]), "left out": [
        "unusable: the sample ended with an error",
        "caution: accuracy of the final report of match in the file is 0.500, the mean of the 3 grades read 0.667: the "
        "tool counts others"]}  # fmt: skip
    refuse(lambda: of(path, "choice"), "it holds the words 'a', 'b'", "scale=")
    assert of(path, "choice", scale={"a": 1, "b": 0})["m"][0] == [1, 0, 1, 0]
    runs(path)


def test_evals_several_grades(tmp_path: Path) -> None:
    path = evals(tmp_path / "x.jsonl", [event("a.0", "match", correct=v) for v in (True, False)])
    assert of(path) == {
        "m": ([0.5], [None]),
        "left out": ["caution: samples have several grades of match: their mean counts"],
    }


def test_evals_arms(tmp_path: Path) -> None:
    """A judge is no part of the policy; arguments of the eval are; two runs of one are refused."""
    events = [event(f"a.{k}", "metrics", score=s) for k, s in enumerate(FOUR)]
    graded = {
        "eval_spec": {"cls": "evals.elsuite.modelgraded.classify:ModelBasedClassify", "args": {"shots": 0}}
    }
    path = evals(tmp_path / "x.jsonl", events, "m", "judge", run_config=graded)
    assert of(path)["m"][0] == FOUR
    assert "m+n" in of(evals(tmp_path / "two" / "y.jsonl", events, "m", "n"))
    more = copy.deepcopy(graded)
    more["eval_spec"]["args"] = {"shots": 5}
    evals(tmp_path / "z.jsonl", events, "m", "judge", run_config=more)
    (tmp_path / "two" / "y.jsonl").unlink()
    assert {"m, shots=0", "m, shots=5"} <= of(tmp_path).keys()
    evals(tmp_path / "again.jsonl", events, "m", "judge", run_config=more, created_by="other")
    refuse(lambda: of(tmp_path), "two runs", "policy_field=NAME")
    refuse(lambda: of(path, policy="nothing"), "nothing is missing")
    refuse(lambda: of(path, prompt="nothing"), "prompt_field='nothing'")


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"sample_id": None}, "sample_id is missing"),
        ({"type": None}, "type is missing"),
        ({"data": None}, "data is missing"),
        ({"data": {"picked": "x"}}, None),
        ({"data": {"correct": "maybe"}}, "it holds the words 'maybe'"),
    ],
)
def test_evals_faults(tmp_path: Path, fault: Record, said: str | None) -> None:
    events = [event("a.0", "match", correct=True), event("a.1", "match", correct=True) | fault]
    path = evals(tmp_path / "x.jsonl", events)
    if said is None:
        assert of(path) == {"m": ([1.0], [None]), "left out": ["ungraded: match gave no number"]}
    else:
        refuse(lambda: of(path), "x.jsonl", said)


# --- Braintrust ---


def span(k: int, scores: Any, experiment: str = "e", **more: Any) -> Record:
    name = f"{experiment}{k}"
    return {"id": name, "span_id": name, "root_span_id": name, "experiment_id": experiment, "input": f"q{k}",
            "output": "text", "scores": scores, "span_attributes": {"type": "eval"}} | more  # fmt: skip


def within(k: int, scores: Any, kind: str, n: int = 0, parent: str | None = None, **more: Any) -> Record:
    own = {"id": f"{kind}{k}{n}", "span_id": f"{kind}{k}{n}", "root_span_id": f"e{k}", "is_root": False}
    return (
        span(k, scores)
        | own
        | {"span_attributes": {"type": kind}, "span_parents": [parent or f"e{k}"]}
        | more
    )


def test_braintrust(tmp_path: Path) -> None:
    """Roots are responses; a score that a scorer gave and a person reviewed or changed is two."""
    table = [span(k, {"F": s, "G": s}) for k, s in enumerate(FOUR)]
    table += [within(k, {"F": s}, "score") for k, s in enumerate(FOUR)]
    table[0]["scores"]["F"] = 0.5  # the mean of two reviews
    table += [within(0, {"F": v}, "review", n) for n, v in enumerate((0, 1))]
    table[1]["scores"]["F"] = 0.0  # changed in place
    table += [within(2, {"F": 0.0}, "score", 1, parent="llm20"), within(2, {"F": 0.0}, "llm")]
    path = write(tmp_path / "x.jsonl", table)
    assert names(path) == ["F", "F@edit", "F@human", "G"]
    found = of(path, "F", "F@*")
    assert found["e"] == (FOUR, [0.5, 0, None, None])
    assert found["left out"] == ["2 spans within traces have scores, which are of parts"]
    page = document(tmp_path / "page.json", {"events": table, "cursor": "abc"})
    assert of(page, "F")["e"][0] == FOUR and "caution: the file is one page of several" in str(of(page, "F"))
    runs(path)
    refuse(lambda: of(write(tmp_path / "y.jsonl", [*table, table[0]]), "F"), "span 'e0' is in row 1 too")


def test_braintrust_arms(tmp_path: Path) -> None:
    """An experiment is a policy; where its responses to one input differ in a field, that may name the policies."""
    arms = [
        span(k, {"F": s}, input=f"q{k // 2}", metadata={"model": "ab"[k % 2], "trial": k})
        for k, s in enumerate(FOUR)
    ]
    path = write(tmp_path / "x.jsonl", arms)
    refuse(lambda: of(path), "metadata.model tells responses of one policy and prompt apart (a, b)")
    assert examine(path).problem
    assert of(path, policy="metadata.model")["b"][0] == [0.5, 1.0]
    assert of(path, policy="experiment_id")["e"][0] == FOUR
    other = [span(k, {"F": 1.0}, "f", metadata={"model": "a"}) for k in range(2)]
    path = write(tmp_path / "y.jsonl", [one | {"metadata": {"model": "a"}} for one in arms[::2]] + other)
    assert of(path)["e"][0] == [0.25, 0.75] and of(path)["f"][0] == [1.0, 1.0]
    refuse(lambda: of(path, policy="metadata.model"), "two runs")
    assert of(
        write(
            tmp_path / "z.jsonl", [arms[0] | {"expected": e, "span_id": e, "root_span_id": e} for e in "xy"]
        )
    )


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"scores": None, "error": "timeout"}, "unusable: the span ended with an error"),
        ({"scores": {"F": None}}, "ungraded: F gave no number"),
        ({"scores": [1]}, "scores is [1]"),
        ({"scores": {"F": "good"}}, "it holds the words 'good' beside numbers"),
        ({"span_id": None}, "span_id or experiment_id is missing"),
        ({"input": None}, "input is missing"),
    ],
)
def test_braintrust_faults(tmp_path: Path, fault: Record, said: str) -> None:
    path = write(tmp_path / "x.jsonl", [span(0, {"F": 0.5}), span(1, {"F": 1.0}) | fault])
    if said.startswith(("unusable", "ungraded")):
        assert of(path, "F") == {"e": ([0.5], [None]), "left out": [said]}
    else:
        refuse(lambda: of(path, "F"), "x.jsonl, row 2" if "words" not in said else "x.jsonl", said)
    kept = write(tmp_path / "y.jsonl", [span(0, {"F": 0.5}), span(1, {"F": 0.0}, error="the tool counts it")])
    assert of(kept, "F") == {"e": ([0.5, 0.0], [None, None]), "left out": []}


def test_deepeval_arms_in_one_run(tmp_path: Path) -> None:
    """Test cases of one input that differ in a field of their metadata may be of several policies."""
    cases = [case(f"q{k // 2}", metric("G", s), metadata={"bot": "ab"[k % 2]}) for k, s in enumerate(FOUR)]
    path = deepeval(tmp_path / "x.json", cases)
    refuse(lambda: of(path), "metadata.bot tells responses of one policy and prompt apart (a, b)")
    assert of(path, policy="bot")["b"][0] == [0.5, 1.0]


# --- HELM ---


def stat(name: str, mean: Any, split: str = "test", **more: Any) -> Record:
    return {"name": {"name": name, "split": split} | more, "count": 1, "sum": mean, "mean": mean}


def instance(k: int, *stats: Record, **more: Any) -> Record:
    return {"instance_id": f"id{k}", "train_trial_index": 0, "stats": list(stats)} | more


def helm(place: Path, instances: list[Record], model: str | None = "org/m", **adapter: Any) -> Path:
    path = document(place / "per_instance_stats.json", instances, indent=2)
    if model:
        scenario = {"class_name": "x.MMLU", "args": {"subject": "law"}}
        spec = {"name": f"mmlu:subject=law,model={model}", "scenario_spec": scenario}
        document(place / "run_spec.json", spec | {"adapter_spec": {"model": model} | adapter})
    return path


def test_helm(tmp_path: Path) -> None:
    """Means by metric, joined over records; trials are draws; perturbed instances, tokens and indices are left out."""
    table = [instance(k // 2, stat("em", s), train_trial_index=k % 2) for k, s in enumerate(FOUR)]
    table += [instance(0, stat("judge", 1.0), stat("predicted_index", 3), stat("finish_reason_stop", 1))]
    table += [instance(0, stat("em", 0.0), perturbation={"name": "typos", "robustness": True})]
    table += [
        instance(2, {**stat("em", None), "count": 0, "sum": 0}),
        instance(3, {**stat("em", None), "count": 4, "sum": 3.0}),
    ]
    path = helm(tmp_path / "run", table)
    assert names(path) == ["em", "judge"]
    found = of(path, "em", "judge")
    assert found["org/m"] == ([*FOUR, 0.75], [1.0, None, None, None, None])
    assert sorted(found["left out"]) == [
        "finish_reason_stop, predicted_index are no grades", "ungraded: em gave no number",
        "unusable: the instance is perturbed, which HELM reports apart"]  # fmt: skip
    whole = [stat("em", 0.5), stat("em", 0.1, perturbation={"name": "typos"})]
    document(tmp_path / "run" / "stats.json", whole)
    said = [one for one in of(path, "em")["left out"] if one.startswith("caution")]
    assert said == ["caution: mean in stats.json of em in the file is 0.500, the mean of the 5 grades read 0.650: the "
                    "tool counts others"]  # fmt: skip
    runs(path)
    path = helm(tmp_path / "splits", [instance(0, stat("em", 1.0)), instance(1, stat("em", 0.5, "valid"))])
    assert of(path, "em")["left out"] == ["caution: splits test, valid are read together"]


def test_helm_arms(tmp_path: Path) -> None:
    """Settings of the adapter tell runs of one model apart; without run_spec.json the directory names the model."""
    table = [instance(k, stat("em", s)) for k, s in enumerate(FOUR)]
    for shots in (0, 5):
        helm(tmp_path / "a" / f"mmlu:subject=law,shots={shots},model=m", table, max_train_instances=shots)
    found = of(tmp_path / "a")
    assert {"org/m, max_train_instances=0", "org/m, max_train_instances=5"} <= found.keys()
    assert examine(tmp_path / "a").prompts == 4  # the prompts are the same
    assert of(tmp_path / "a", policy="max_train_instances").keys() >= {"0", "5"}
    helm(tmp_path / "a" / "again", table, max_train_instances=5)
    refuse(lambda: of(tmp_path / "a"), "two runs", "policy_field=NAME")
    for model in ("x", "y"):
        helm(tmp_path / "b" / f"mmlu:subject=law,model={model}", table, None)
    assert {"x", "y"} <= of(tmp_path / "b").keys() and examine(tmp_path / "b").prompts == 4
    helm(tmp_path / "b" / "gsm:model=x", table, None)
    assert len(of(tmp_path / "b")["x"][0]) == 8  # two scenarios


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (instance(1, stat("em", "good")), "it holds the words 'good' beside numbers"),
        (instance(1, {"name": "em"}), "a statistic without a name"),
        (instance(1, stat("em", 1.0), stat("em", 0.0)), "em occurs twice in its stats"),
        (instance(0, stat("em", 0.0)), "keep one"),
        (instance(1, instance_id=None), "instance_id is missing"),
        (instance(1, train_trial_index=-1), "train_trial_index is -1"),
        (instance(1, stats={}), "stats is {}"),
    ],
)
def test_helm_faults(tmp_path: Path, fault: Record, said: str) -> None:
    path = helm(tmp_path / "run", [instance(0, stat("em", 1.0)), fault])
    refuse(lambda: of(path, "em"), "per_instance_stats.json", said)


# --- lighteval ---

DATE = "2026-01-02T03-04-05.600000"


def detail(k: int, **metrics: Any) -> Record:
    return {
        "doc": {"id": str(k), "query": "q", "task_name": "t"},
        "model_response": {"text": ["a"]},
        "metric": metrics,
    }


def lighteval(
    place: Path, rows: list[Record], model: str = "org/m", date: str = DATE, task: str = "t|0"
) -> Path:
    path = place / "details" / model / date / f"details_{task}_{date}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_parquet(path)
    return path


def test_lighteval(tmp_path: Path) -> None:
    """Metrics by name from Parquet; inputs of corpus metrics and a judge's texts are none; the results are compared."""
    rows = [detail(k, em=s, judge_score=1.0 - s, judgement=[f"because {k}"], bleu={"golds": [k], "preds": [2]})
            for k, s in enumerate(FOUR)]  # fmt: skip
    path = lighteval(tmp_path, rows)
    assert names(path) == ["em", "judge_score"]
    found = of(path, "judge_score", "em")
    assert found["org/m"] == ([0.75, 0.5, 0.25, 0.0], FOUR)
    assert found["left out"] == ["bleu is a metric over the whole corpus, and no grade of an example",
                                 "judgement: texts or lists, which are no grades"]  # fmt: skip
    results = {"results": {"t|0": {"em": 0.5, "em_stderr": 0.1}, "all": {"em": 0.1}}}
    document(tmp_path / "results" / "org/m" / f"results_{DATE}.json", results)
    assert any(
        "result in results_2026" in said and "em in the file is 0.500" in said
        for said in of(path, "em")["left out"]
    )
    runs(path)
    lighteval(tmp_path, rows, "org/n")
    lighteval(tmp_path, rows, "org/m", task="u|0")
    found = of(tmp_path / "details", "em")
    assert found["org/n"][0] == FOUR and found["org/m"][0] == FOUR * 2
    lighteval(tmp_path, rows, "org/n", "2026-01-03T00-00-00.1")
    refuse(lambda: of(tmp_path / "details", "em"), "two runs", "policy_field=NAME")
    assert examine(tmp_path / "details").problem


def test_lighteval_of_earlier_versions(tmp_path: Path) -> None:
    """Rows without an id pair by their text, whatever their order; a text that occurs twice has two draws."""
    for model, order in (("m", (0, 1, 2)), ("n", (2, 1, 0))):
        rows = [{"example": f"q{k}", "full_prompt": f"{model} q{k}", "predictions": ["a"], "metrics": {"acc": k / 4}}
                for k in order]  # fmt: skip
        lighteval(tmp_path, [*rows, rows[0] | {"metrics": {"acc": 1.0}}], f"org/{model}")
    found = of(tmp_path)
    assert found["org/m"][0] == [0.0, 1.0, 0.25, 0.5] and found["org/n"][0] == [0.0, 0.25, 0.5, 1.0]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"doc": {"id": "", "query": ""}}, "neither doc.id nor the example's text"),
        ({"metric": None}, "metrics are missing"),
        ({"metric": {"em": "good"}}, "it holds the words 'good' beside numbers"),
        ({"metric": {"other": 1.0}}, "ungraded: em gave no number"),
    ],
)
def test_lighteval_faults(tmp_path: Path, fault: Record, said: str) -> None:
    path = write(tmp_path / "m" / f"details_t_{DATE}.jsonl", [detail(0, em=0.5), detail(1, em=1.0) | fault])
    if said.startswith("ungraded"):
        assert of(path, "em") == {"m": ([0.5], [None]), "left out": [said]}
    else:
        refuse(lambda: of(path, "em"), "m/details_t", said)


# --- JudgeBench and RewardBench ---


def pair(k: int, label: str, *decisions: str | None, **more: Any) -> Record:
    judgments = [None if one is None else {"judgment": {}, "decision": one} for one in decisions]
    return {"pair_id": f"p{k}", "response_A": "a", "response_B": "b", "label": label, "judge_name": "vanilla",
            "judgments": judgments} | more  # fmt: skip


VERDICTS = [
    pair(0, "A>B", "A>B", "B>A"),  # right in both orders
    pair(1, "A>B", "A>B", "A>B"),  # the orders cancel
    pair(2, "B>A", "A=B", "A>B"),  # a tie, and right
    pair(3, "B>A", None, "A>B"),  # right in the order that did not fail
    pair(4, "B>A", "A>B", "A=B"),  # wrong
]


def test_judgebench(tmp_path: Path) -> None:
    """A judge is the policy; a failed order leaves no preference, and JudgeBench's own rule its accuracy."""
    path = write(tmp_path / "dataset=x,judge_name=vanilla,judge_model=m.jsonl", VERDICTS)
    found = of(path, "judge", "label")
    assert found["vanilla/m"] == ([1, 0.5, 0.25, 0.75], [1, 1, 0, 0])
    assert found["left out"].count("ungraded: judge gave no number") == 1
    assert "tests a judge" in str(found["left out"]) and "index.html" in str(found["left out"])
    assert of(path, "correct")["vanilla/m"][0] == [1, 0, 1, 1, 0]
    runs(path)
    assert "test a judge" in examine(path).what
    single = write(tmp_path / "single.jsonl", [pair(0, "A>B", "A>B"), pair(1, "A>B", "B>A")])
    assert of(single, "correct")["vanilla"][0] == [1, 0]
    refuse(lambda: of(write(tmp_path / "y.jsonl", [*VERDICTS, VERDICTS[0]]), "judge"), "two runs")


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"label": None}, "label is missing"),
        ({"label": "A"}, "label is 'A'"),
        ({"judgments": None}, "judgments are missing"),
        ({"judgments": [{"decision": "neither"}]}, "decision is 'neither'"),
        ({"judge_name": None}, "judge_name is missing"),
        ({"judge_name": None, "judgments": None}, "judgments are missing"),  # pairs that nobody judged
    ],
)
def test_judgebench_faults(tmp_path: Path, fault: Record, said: str) -> None:
    path = write(tmp_path / "x.jsonl", [VERDICTS[0], VERDICTS[1] | fault])
    refuse(lambda: of(path, "judge"), "x.jsonl, row 2", said)


def test_rewardbench(tmp_path: Path) -> None:
    """Rewards of chosen and rejected answers, in columns or in rows; results that contradict them are told."""
    columns = {"id": [7, 8], "results": [1, 0], "subset": ["s", "s"], "scores_chosen": [0.75, 0.25],
               "scores_rejected": [0.5, 0.5], "model": "rm"}  # fmt: skip
    path = document(tmp_path / "x.json", columns, indent=4)
    assert of(path, "judge", "label")["rm"] == ([0.75, 0.5, 0.25, 0.5], [1, 0, 1, 0])
    assert of(path, "correct")["rm"][0] == [1, 1, 0, 0]
    assert len(of(path, "judge")["left out"]) == 1 and "tests a judge" in of(path, "judge")["left out"][0]
    runs(path)
    wrong = document(tmp_path / "w.json", columns | {"results": [0, 0]})
    assert "caution: results of 1 examples are not what their rewards say" in of(wrong, "judge")["left out"]
    rows = [
        {"prompt": "q", "results": 1, "scores_chosen": [0.75], "scores_rejected": [0.5]} for _ in range(2)
    ]
    path = write(tmp_path / "rm_outputs.jsonl", rows)
    assert of(path, "judge")["rm"][0] == [0.75, 0.5, 0.75, 0.5] and examine(path).prompts == 2
    refuse(lambda: of(document(tmp_path / "y.json", columns | {"id": [7]})), "id has 1 values, and results 2")
    refuse(lambda: of(document(tmp_path / "z.json", columns | {"id": [7, 7]}), "judge"), "two runs")


def test_rewardbench_2(tmp_path: Path) -> None:
    """The right answers come first; a rating of -1 is none of a generative judge, and a reward of a model."""
    row = {"id": "tied:1", "results": 0.5, "scores": [1.0, -1.0, 0.0], "num_correct": 2, "model": "rm"}
    path = write(tmp_path / "x.jsonl", [row])
    assert of(path, "judge", "label", (-1, 1))["rm"] == ([1, -1, 0], [1, 1, 0])
    path = write(tmp_path / "y.jsonl", [row | {"model_type": "Generative RM"}])
    assert of(path, "judge", "label")["rm"] == ([1, 0], [1, 0])
    compared = {"id": ["a", "b"], "results": [1, 0.5], "subset": ["s", "t"], "model": "gpt"}
    assert of(document(tmp_path / "z.json", compared))["gpt"][0] == [1, 0.5]
    for fault in ({"num_correct": None}, {"num_correct": 4}, {"scores": 1.0}):
        refuse(lambda fault=fault: of(write(tmp_path / "f.jsonl", [row | fault])), "f.jsonl, example 1")  # type: ignore[misc]
    refuse(lambda: of(write(tmp_path / "g.jsonl", [row | {"id": None}])), "neither id nor prompt")
    refuse(
        lambda: of(write(tmp_path / "h.jsonl", [row | {"scores": ["good", 0, 1]}]), "judge"), "words 'good'"
    )
