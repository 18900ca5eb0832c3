"""Wide tables and comparisons of other tools: the right value by hand, and what is refused.

Files are made here, after the schemas of the tools. Kinds of faults have the numbers of `test_kinds_of_files`.
"""

import csv
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from user_files import agree, as_csv, of, refuse, write

from cje_core.data.files import read
from cje_core.data.intake.foreign import foreign
from cje_core.data.intake.keys import prompt_name
from cje_core.workflow.reading.doctor import examine

Record = dict[str, Any]
RATED = "Manual result (overrides all other grading results) set by user"


def cells(path: Path, table: list[list[Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(table)
    return path


def document(path: Path, held: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(held))
    return path


def said(found: Record) -> str:
    return " | ".join(found["left out"]["reason"])


# --- promptfoo CSV ---

AFTER = ["Status", "Score", "Named Scores", "Metric: tone", "Grader Reason", "Comment"]


def output(score: float, tone: float | None = None, status: str = "", reason: str = "ok") -> list[Any]:
    named = {} if tone is None else {"tone": tone}
    status = status or ("PASS" if score >= 0.5 else "FAIL")
    return [
        "text",
        status,
        f"{score:.2f}",
        json.dumps(named) if named else "",
        named.get("tone", ""),
        reason,
        "",
    ]


def columns(path: Path, rows: list[list[Any]], *labels: str, before: tuple[str, ...] = ("q",)) -> Path:
    return cells(path, [[*before, *(name for label in labels for name in (label, *AFTER))], *rows])


def test_promptfoo_has_a_policy_for_each_column(tmp_path: Path) -> None:
    rows = [[f"q{k}", *output(0.8, k / 4), *output(0.2, 1 - k / 4)] for k in range(3)]
    path = columns(tmp_path / "x.csv", rows, "[a] Say {{q}}\nin lines", "[b] Say {{q}}\nin lines")
    assert of(path, "tone")["a"][0] == [0, 0.25, 0.5] and of(path, "score")["b"][0] == [0.2] * 3
    assert "two decimals" in said(of(path, "tone")) and agree(path) == ""
    marked = [["q", "[a] Say", "[b] Say"]]
    marked += [[f"q{k}", f"[PASS] (0.80, tone: {k / 4:.2f}) text, of (0.1) parts", "[FAIL] (0.20)\n\ntext"]
               for k in range(3)]  # fmt: skip
    path = cells(tmp_path / "old.csv", marked)
    assert of(path, "tone")["a"][0] == [0, 0.25, 0.5] and of(path, "score")["b"][0] == [0.2] * 3
    web = [["q", "[a] Say", "Grader Reason", "Comment"], *([f"q{k}", f"[{w}] text", "why", ""]
           for k, w in enumerate(("PASS", "FAIL", "PASS")))]  # fmt: skip
    assert of(cells(tmp_path / "web.csv", web))["a"][0] == [1, 0, 1]


def test_promptfoo_2_a_rating_by_hand_is_not_the_judge(tmp_path: Path) -> None:
    """A person who fails a passing output leaves promptfoo without an assertion that failed: it writes ERROR."""
    rows = [
        ["q0", *output(1, 0.25, "PASS", RATED)],
        ["q1", *output(0, 0.5, "ERROR", RATED)],
        ["q2", *output(0.75, 1)],
    ]
    path = columns(tmp_path / "x.csv", rows, "[a] Say")
    assert of(path, "tone", "human")["a"] == ([0.25, 0.5, 1], [1, 0, None])
    assert of(path, "score")["a"][0] == [0.75]
    marked = [["q", "[a] Say"], ["q0", f"[ERROR] (0.00, tone: 0.50)\n\ntext\n\nFail Reason: {RATED}"],
              ["q1", "[PASS] (0.75, tone: 0.25)\n\ntext\n\nPass Reason: fine"]]  # fmt: skip
    assert of(cells(tmp_path / "y.csv", marked), "tone", "human")["a"] == ([0.5, 0.25], [0, None])


def test_promptfoo_3_columns_of_one_provider_are_policies(tmp_path: Path) -> None:
    rows = [[f"q{k}", *output(0.25), *output(0.5), *output(0.75)] for k in range(2)]
    found = of(columns(tmp_path / "x.csv", rows, "[a] Say", "[a] Tell", "[a] Tell"), "score")
    assert found["a, prompt 1"][0] == [0.25] * 2 and found["a, prompt 2, configuration 2"][0] == [0.75] * 2
    assert "a, prompt 2 is column 'Tell'" in said(found)
    path = columns(tmp_path / "d" / "1.csv", rows, "[a] Say", "[b] Say", "[c] Say")
    refuse(lambda: of(path, policy="q"), "policy_field='q'", "leave it out")
    columns(tmp_path / "d" / "2.csv", rows, "[a] Say", "[b] Say", "[c] Say")
    refuse(lambda: of(tmp_path / "d", "score"), "2.csv, row 2", "already in", "1.csv, row 2", "two runs")


def test_promptfoo_4_and_6_errors_and_variables_of_the_run(tmp_path: Path) -> None:
    rows = [["q0", f"s{k}", *output(k / 4)] for k in range(2)] + [["q1", "s3", *output(0, status="ERROR")]]
    path = columns(tmp_path / "x.csv", rows, "[a] Say", before=("q", "session_id"))
    data, left_out = read(foreign(path, judge="score"))
    assert dict(data.sizes) == {"policy": 1, "prompt": 1, "draw": 2}
    assert left_out["reason"].tolist()[0] == "unusable: the call ended with an error"
    assert dict(read(foreign(path, judge="score"))[0].sizes)["draw"] == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({2: "MAYBE"}, ("row 2", "Status is 'MAYBE'", "PASS, FAIL or ERROR")),
        ({2: ""}, ("row 2", "Status of '[a] Say' is missing")),
        ({3: "high"}, ("row 2", "Score is 'high'", "a number is expected")),
        ({4: "{tone"}, ("row 2", "Named Scores is '{tone'", "JSON object")),
        ({5: "good"}, ("row 2", "Metric: tone is 'good'")),
    ],
)
def test_promptfoo_refuses_half_written_rows(
    tmp_path: Path, change: dict[int, str], words: tuple[str, ...]
) -> None:
    row = ["q0", *output(0.5, 0.5)]
    for at, value in change.items():
        row[at] = value
    path = columns(tmp_path / "x.csv", [row, ["q1", *output(0.5, 0.5)]], "[a] Say")
    refuse(lambda: of(path, "tone"), *words)
    refuse(lambda: of(columns(tmp_path / "y.csv", [row[:-2]], "[a] Say")), "row 2", "fewer cells")


def test_promptfoo_loses_no_column(tmp_path: Path) -> None:
    """A cell or a header that is damaged makes no policy a variable."""
    table = [
        ["q", "[a] Say", "[b] Say"],
        *([f"q{k}", "[PASS] (1.00) x", "[FAIL] (0.00) x"] for k in range(4)),
    ]
    table[2][2] = "x"
    refuse(lambda: of(cells(tmp_path / "x.csv", table), "score"), "row 3", "'x' is no output of promptfoo")
    path = columns(tmp_path / "y.csv", [["q0", *output(0.5), *output(0.5)]], "[a] Say", "[b] Say")
    header, rest = path.read_text().split("\n", 1)
    path.write_text(f"{header[::-1].replace('sutatS', 'etatS', 1)[::-1]}\n{rest}")
    refuse(lambda: of(path, "score"), "column '[b] Say' has no outputs or no Status")


# --- wide tables: Ragas, MLflow, TruLens ---


def ragas(n: int = 4, **more: Any) -> list[Record]:
    table = [{"user_input": f"What is {k}?", "response": "it is", "reference": "42", "faithfulness": k / 4}
             for k in range(n)]  # fmt: skip
    return [r | {name: value[k] for name, value in more.items()} for k, r in enumerate(table)]


def mlflow(n: int = 4, **more: Any) -> list[Record]:
    table = [{"inputs": f"What is {k}?", "outputs": "it is", "token_count": k, "sim/v1/score": k / 4,
              "sim/v1/justification": f"because {k}"} for k in range(n)]  # fmt: skip
    return [r | {name: value[k] for name, value in more.items()} for k, r in enumerate(table)]


def trulens(n: int = 4, **more: Any) -> list[Record]:
    table = [{"app_name": "rag", "app_version": "v1", "app_id": "app_1", "record_id": f"r{k}", "ts": f"10:0{k}",
              "input": f"What is {k}?", "output": "it is", "Relevance": k / 4, "Relevance_calls": "[]",
              "Relevance direction": True, "total_cost": 0.5} for k in range(n)]  # fmt: skip
    return [r | {name: value[k] for name, value in more.items()} for k, r in enumerate(table)]


WIDE = {
    "ragas": (ragas, "faithfulness", "x"),
    "mlflow": (mlflow, "sim/v1", "x"),
    "trulens": (trulens, "Relevance", "rag, v1"),
}


@pytest.mark.parametrize("kind", WIDE)
def test_a_row_is_a_response(tmp_path: Path, kind: str) -> None:
    make, judge, policy = WIDE[kind]
    expected = [0, 0.25, 0.5, 0.75]
    assert of(as_csv(tmp_path / "x.csv", make()), judge)[policy][0] == expected
    assert of(write(tmp_path / "x.jsonl", make()), judge)[policy][0] == expected
    frame = pd.DataFrame(make())
    for orient in ("records", "columns", "split"):
        path = tmp_path / orient / "x.json"
        path.parent.mkdir()
        frame.to_json(path, orient=orient)
        assert of(path, judge)[policy][0] == expected
    frame.to_parquet(tmp_path / "x.parquet")
    assert of(tmp_path / "x.parquet", judge)[policy][0] == expected
    found = examine(tmp_path / "x.jsonl")
    assert list(found.scores) == [judge] and found.judge == judge and agree(tmp_path / "x.jsonl") == ""


@pytest.mark.parametrize("kind", WIDE)
def test_1_an_index_or_a_category_is_no_number(tmp_path: Path, kind: str) -> None:
    make, judge, policy = WIDE[kind]
    table = [{"": k} | r | {"Unnamed: 0": 9 - k, "position": k, "run_seed": 5, "grade": "good" if k % 2 else "bad"}
             for k, r in enumerate(make())]  # fmt: skip
    path = as_csv(tmp_path / "x.csv", table)
    refuse(lambda: of(path, "position"), "no such score", judge)
    assert set(examine(path).scores) == {judge, "grade"}
    assert "position" in said(of(path, judge)) and "(without a name)" in said(of(path, judge))
    refuse(lambda: of(path, "grade"), "score grade has no numbers", "'bad', 'good'", "scale=")
    assert of(path, "grade", scale={"good": 1.0, "bad": 0.25})[policy][0] == [0.25, 1, 0.25, 1]
    mixed = make(verdict=["0.5", "1", "0", "refused to answer"])
    refuse(lambda: of(as_csv(tmp_path / "y.csv", mixed), "verdict"), "beside numbers")


@pytest.mark.parametrize("kind", WIDE)
def test_2_a_column_of_people_is_a_score_of_its_own(tmp_path: Path, kind: str) -> None:
    make, judge, policy = WIDE[kind]
    path = as_csv(tmp_path / "x.csv", make(human_label=["yes", "no", "", "yes"]))
    assert of(path, judge, "human_label")[policy][1] == [1, 0, None, 1]
    found = examine(path)
    assert (found.judge, found.oracle) == (judge, "human_label") and agree(path) == ""
    refuse(lambda: of(path), "which score is the judge's?")


@pytest.mark.parametrize("kind", WIDE)
def test_3_arms_are_told_apart_or_refused(tmp_path: Path, kind: str) -> None:
    make, judge, policy = WIDE[kind]
    column = "sim/v1/score" if kind == "mlflow" else judge
    twice = [r | {"temperature": t, column: t / 2 + k / 8} for t in (0, 1) for k, r in enumerate(make())]
    path = as_csv(tmp_path / "x.csv", twice)
    refuse(lambda: of(path, judge), "temperature tells responses of one policy and prompt apart (0, 1)")
    found = of(path, judge, policy="temperature")
    assert found["0"][0] == [0, 0.125, 0.25, 0.375] and found["1"][0] == [0.5, 0.625, 0.75, 0.875]
    trials = [{k: v for k, v in r.items() if k != "temperature"} | {"trial": r["temperature"]} for r in twice]
    assert read(foreign(as_csv(tmp_path / "y.csv", trials), judge=judge))[0].sizes["draw"] == 2
    named = [r | {"model": "ab"[k % 2]} for k, r in enumerate(make())]
    if kind == "trulens":
        assert of(as_csv(tmp_path / "z.csv", named), judge)[policy][0] == [0, 0.25, 0.5, 0.75]
    else:
        assert of(as_csv(tmp_path / "z.csv", named), judge)["b"][0] == [0.25, 0.75]
    same = [r | {"run": policy} for r in make()]
    as_csv(tmp_path / "d" / "1.csv", same)
    as_csv(tmp_path / "d" / "2.csv", same)
    refuse(lambda: of(tmp_path / "d", judge, policy="run"), "2.csv, row 2", "two runs")
    if kind != "trulens":
        assert len(of(tmp_path / "d", judge)) == 3  # each file is a policy


@pytest.mark.parametrize("kind", WIDE)
def test_4_and_10_a_metric_that_failed_is_no_grade(tmp_path: Path, kind: str) -> None:
    make, judge, policy = WIDE[kind]
    column = "sim/v1/score" if kind == "mlflow" else judge
    table = make()
    for k, missing in ((1, float("nan")), (3, None)):
        table[k][column] = missing
    for path in (write(tmp_path / "x.jsonl", table), as_csv(tmp_path / "x.csv", table)):
        found = of(path, judge)
        assert (
            found[policy][0] == [0, 0.5] and found["left out"]["reason"].str.startswith("ungraded").sum() == 2
        )
    for row, value in zip(table, (0.5, 0.25, 0.75, 1), strict=True):
        row["relevancy"] = value
    assert examine(write(tmp_path / "two.jsonl", table)).oracle is None  # the metric that failed is no oracle


@pytest.mark.parametrize("kind", WIDE)
def test_12_half_written_rows_and_misspelt_columns(tmp_path: Path, kind: str) -> None:
    make, judge, _ = WIDE[kind]
    column, prompt = {"ragas": (judge, "user_input"), "mlflow": ("sim/v1/score", "inputs"),
                      "trulens": (judge, "input")}[kind]  # fmt: skip
    table = make()
    table[2][f"{column[:-1]}z"] = table[2].pop(column)
    refuse(lambda: of(write(tmp_path / "x.jsonl", table), judge), "row 3", "did you mean", column)
    table = make()
    table[1][prompt] = None
    refuse(
        lambda: of(write(tmp_path / "y.jsonl", table), judge),
        "row 2",
        f"{prompt} is missing",
        "name the prompt",
    )
    table[1][prompt] = float("nan")
    refuse(
        lambda: of(write(tmp_path / "n.jsonl", table), judge), "row 2", f"{prompt} is NaN", "name the prompt"
    )
    refuse(
        lambda: of(write(tmp_path / "z.jsonl", json.dumps(make()[0]) + '\n{"' + prompt)), "row 2", "not JSON"
    )
    split = {"columns": list(make()[0]), "data": [list(r.values()) for r in make()]}
    split["data"][2].pop()
    refuse(lambda: of(document(tmp_path / "s.json", split), judge), "row 3", "a cell for each of")


def test_ragas_tables_of_two_policies_pair_by_text(tmp_path: Path) -> None:
    """Long questions of several lines too: their names begin alike, and end in a number made of all the text."""
    long = [f"{'Read this. ' * 20}\nThen say {k}." for k in range(4)]
    as_csv(tmp_path / "a.csv", ragas(user_input=long))
    as_csv(tmp_path / "b.csv", ragas(user_input=long)[::-1])
    data, _ = read(foreign(tmp_path))
    assert dict(data.sizes) == {"policy": 2, "prompt": 4, "draw": 1}
    assert (data.judge.sel(policy="a") == data.judge.sel(policy="b")).all()
    assert set(data.prompt.values) == {prompt_name(text) for text in long}
    old = [{"question": "q", "contexts": ["c"], "answer": "a", "ground_truth": "g", "faithfulness": 0.5}]
    assert of(write(tmp_path / "old" / "v1.jsonl", old))["v1"][0] == [0.5]
    only = [{k: v for k, v in r.items() if k != "faithfulness"} for r in ragas()]
    refuse(lambda: of(as_csv(tmp_path / "c.csv", only)), "without any score")


def test_mlflow_runs_are_policies_by_their_directory(tmp_path: Path) -> None:
    for run, step in (("run1", 0), ("run2", 0.25)):
        table = [r | {"sim/v1/score": step} for r in mlflow()]
        document(tmp_path / run / "artifacts" / "eval_results_table.json",
                 {"columns": list(table[0]), "data": [list(r.values()) for r in table]})  # fmt: skip
    found = of(tmp_path)
    assert found["run1"][0] == [0] * 4 and found["run2"][0] == [0.25] * 4
    of_text = [
        r | {"ari_grade_level/v1/score": 9.5, "flesch_kincaid_grade_level/v1/score": 8} for r in mlflow()
    ]
    assert set(examine(as_csv(tmp_path / "t.csv", of_text)).scores) == {"sim/v1"}
    judged = [{k: v for k, v in r.items() if "sim" not in k} | {"response/llm_judged/correctness/rating": w}
              for r, w in zip(mlflow(), ("yes", "no", "yes", "yes"), strict=True)]  # fmt: skip
    assert of(as_csv(tmp_path / "j.csv", judged))["j"][0] == [1, 0, 1, 1]


@pytest.mark.parametrize("as_text", [False, True])
def test_2_mlflow_assessments_keep_people_and_judges_apart(tmp_path: Path, as_text: bool) -> None:
    """The columns NAME/value hold the last feedback of a name, a person's over the judge's, and expectations too."""
    table = []
    for k in range(4):
        judge = {
            "assessment_name": "good",
            "source": {"source_type": "LLM_JUDGE"},
            "feedback": {"value": k < 3},
        }
        human = {"assessment_name": "good", "source": {"source_type": "HUMAN"}, "feedback": {"value": "no"}}
        wanted = {
            "assessment_name": "target",
            "source": {"source_type": "HUMAN"},
            "expectation": {"value": 7},
        }
        held: Any = [judge, *[human] * (k == 0), wanted]
        table.append({"trace_id": f"tr-{k}", "good/value": "no" if k == 0 else k < 3, "target/value": 7,
                      "request": {"q": k, "session_id": f"s{k}"}, "response": "r", "state": "OK",
                      "assessments": str(held) if as_text else held})  # fmt: skip
    path = as_csv(tmp_path / "x.csv", table) if as_text else write(tmp_path / "x.jsonl", table)
    assert set(examine(path).scores) == {"good@LLM_JUDGE", "good@HUMAN"}
    assert of(path, "good@LLM_JUDGE", "good@HUMAN")["x"] == ([1, 1, 1, 0], [0, None, None, None])
    if not as_text:
        assert read(foreign(path, judge="good@LLM_JUDGE"))[0].prompt.values.tolist() == [
            f'{{"q": {k}}}' for k in range(4)
        ]


def test_trulens_says_of_what_less_is_better(tmp_path: Path) -> None:
    table = [r | {"Harm": 0.25, "Harm direction": False, "Harm:::worst": 0.5} for r in trulens()]
    found = of(as_csv(tmp_path / "x.csv", table), "Harm")
    assert found["rag, v1"][0] == [0.25] * 4 and "caution: Harm: less is better" in said(found)
    assert of(tmp_path / "x.csv", "Harm:::worst")["rag, v1"][0] == [0.5] * 4
    old = [{k: v for k, v in r.items() if k not in ("app_name", "app_version")} for r in trulens()]
    assert of(as_csv(tmp_path / "y.csv", old), "Relevance")["app_1"][0] == [0, 0.25, 0.5, 0.75]
    two = trulens() + [r | {"app_version": "v2", "Relevance": 1} for r in trulens()]
    assert of(as_csv(tmp_path / "z.csv", two), "Relevance")["rag, v2"][0] == [1] * 4
    half = [r | {"app_version": None if k == 2 else "v1"} for k, r in enumerate(trulens())]
    refuse(lambda: of(as_csv(tmp_path / "h.csv", half)), "row 4", "app_version is missing", "name the policy")


def test_rows_of_objects_are_rows(tmp_path: Path) -> None:
    """A row whose fields are all objects is no table by columns."""
    table = [{"user_input": {"q": k}, "response": {"a": k}, "scores": {"x": 1}} for k in range(3)]
    for text in (json.dumps(table), "\n".join(map(json.dumps, table))):
        refuse(lambda text=text: of(write(tmp_path / "x.json", text)), "without any score")  # type: ignore[misc]
    ragged = {"user_input": {"0": "a", "1": "b"}, "response": {"0": "a"}, "faithfulness": {"0": 1, "1": 0}}
    refuse(lambda: of(document(tmp_path / "y.json", ragged)), "columns hold different rows")
