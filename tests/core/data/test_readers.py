"""Other tools' files, each against a slow reader of its own: every score of every response, and what is left out."""

import csv
import json
import zipfile
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import slow_evaluations
import xarray as xr
from user_files import refuse, write

from cje_core.data.fields import Foreign
from cje_core.data.files import read
from cje_core.data.intake.foreign import Asked, foreign, items_of, readers
from cje_core.data.intake.keys import prompt_name

HELD = Path(__file__).parents[2] / "reference" / "readers"
Key = tuple[str, str, int]
Slow = dict[Key, tuple[float, float | None]]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in path.read_text().splitlines()]


def slow_inspect() -> Slow:
    """From the JSON logs, which are not what is read here."""
    letters, out = {"C": 1.0, "P": 0.5, "I": 0.0}, {}
    for name in ("base", "better"):
        log = json.loads((HELD / "inspect_json" / f"{name}.json").read_text())
        for sample in log["samples"]:
            scores = sample.get("scores") or {}
            value = scores.get("judge", {}).get("value")
            if value in letters and "error" not in sample:
                label = scores["human"]["value"] if "human" in scores else None
                out[log["eval"]["model"], sample["id"], sample["epoch"] - 1] = letters[value], label
    return out


def slow_lm_eval() -> Slow:
    out = {}
    for path in HELD.glob("lm_eval/*/samples_*.jsonl"):
        exact = {r["doc_id"]: r["exact_match"] for r in lines(path) if r["filter"] == "strict-match"}
        for r in lines(path):
            if r["filter"] == "flexible-extract" and r["llm_judge"] == r["llm_judge"]:
                out[path.parent.name, str(r["doc_id"]), 0] = r["llm_judge"], exact[r["doc_id"]]
    return out


def slow_promptfoo() -> Slow:
    """Promptfoo numbers the repeats of a question one after the other."""
    out = {}
    for r in promptfoo_results():
        if r["response"].get("error") is None:
            parts = {part["assertion"]["type"]: part for part in r["gradingResult"]["componentResults"]}
            if not parts["llm-rubric"]["metadata"].get("graderError"):
                first, draw = 2 * (r["vars"]["n"] - 1), r["testIdx"] % 2
                assert r["testIdx"] == first + draw
                human = parts["human"]["score"] if "human" in parts else None
                out[r["provider"]["label"], f"test {first}", draw] = parts["llm-rubric"]["score"], human
    return out


def promptfoo_results() -> list[dict[str, Any]]:
    return json.loads((HELD / "promptfoo" / "results.json").read_text())["results"]["results"]


def slow_langfuse() -> Slow:
    judged, told = {}, defaultdict(list)
    with (HELD / "langfuse" / "scores.csv").open() as file:
        for r in csv.DictReader(file):
            key = r["datasetRunName"], r["datasetItemId"], 0
            if r["source"] == "EVAL":
                judged[key] = float(r["value"])
            else:
                told[key].append(float(r["value"]))
    return {key: (score, float(np.mean(told[key])) if told[key] else None) for key, score in judged.items()}


def slow_phoenix() -> Slow:
    of: dict[str, dict[Key, float]] = {"LLM": {}, "HUMAN": {}}
    for r in lines(HELD / "phoenix" / "annotations.jsonl"):
        of[r["annotator_kind"]][r["metadata"]["policy"], str(r["metadata"]["prompt_id"]), 0] = r["result"][
            "score"
        ]
    return {key: (score, of["HUMAN"].get(key)) for key, score in of["LLM"].items()}


def slow_langsmith() -> Slow:
    of: dict[str, dict[Key, float]] = {"helpful": {}, "thumb": {}}
    for r in json.loads((HELD / "langsmith" / "feedback.json").read_text()):
        of[r["key"]][r["session_id"], r["metadata"]["example_id"], 0] = float(r["score"])
    return {key: (score, of["thumb"].get(key)) for key, score in of["helpful"].items()}


def slow_pairs() -> Slow:
    """Each model's share of wins by the judge over both orders, and by people over their votes."""
    judged, told = {}, defaultdict(list)
    for r in lines(HELD / "mt_bench" / "gpt-4_pair.jsonl"):
        for me, other in (("model_1", "model_2"), ("model_2", "model_1")):
            games = [{me: 1.0, other: 0.0, "tie": 0.5}.get(r[f"g{k}_winner"]) for k in (1, 2)]
            if None not in games:
                key = r[me], f"{r['question_id']}, turn {r['turn']}, against {r[other]}", 0
                judged[key] = sum(games) / 2
    for r in lines(HELD / "mt_bench" / "human_votes.jsonl"):
        for me, other in (("model_a", "model_b"), ("model_b", "model_a")):
            key = r[me], f"{r['question_id']}, turn {r['turn']}, against {r[other]}", 0
            told[key].append((r["judge"], {me: 1.0, other: 0.0, "tie": 0.5}[r["winner"]]))
    return {
        key: (score, np.mean([v for _, v in told[key]]) if told[key] else None)
        for key, score in judged.items()
    }


def slow_single() -> Slow:
    path = HELD / "mt_bench_single" / "gpt-4_single.jsonl"
    return {
        (r["model"], str(r["question_id"]), r["turn"] - 1): (r["score"] / 1.0, None)
        for r in lines(path)
        if r["score"] != -1
    }


def slow_experiment() -> Slow:
    out = {}
    for path in (HELD / "langsmith_experiment").glob("*.csv"):
        with path.open() as file:
            for r in csv.DictReader(file):
                draw = int(r["run_id"][1:]) % 2
                if r["feedback.correctness"]:
                    label = {"Y": 1.0, "N": 0.0}.get(r["feedback.human"])
                    out[path.stem, r["example_id"], draw] = float(r["feedback.correctness"]), label
    return out


def cells(path: Path) -> tuple[list[str], list[list[str]]]:
    with path.open(newline="") as file:
        header, *rest = csv.reader(file)
    return header, rest


def slow_promptfoo_table(name: str) -> Slow:
    """Two rows of a question are its draws; a rating by hand has no score of the judge, but its metric."""
    header, table = cells(HELD / name / "results.csv")
    out = {}
    for row, held in enumerate(table):
        for policy in ("base", "better"):
            at = next(k for k, title in enumerate(header) if title.startswith(f"[p:{policy}]"))
            question = held[header.index("q")]
            key = f"p:{policy}", question, row % 2
            if "Status" in header:
                score, _, tone, reason = held[at + 2 : at + 6]
            else:
                numbers = held[at].splitlines()[0].partition("(")[2].rstrip(")").split(", tone: ")
                score, tone, reason = numbers[0], (numbers[1:] or [""])[0], held[at].rpartition("Reason: ")[2]
            if tone:
                out[key] = float(tone), float(score) if reason.startswith("Manual") else None
    return out


def slow_alpaca() -> Slow:
    of: dict[str, dict[Key, float]] = {"weighted": {}, "human": {}}
    for r in json.loads((HELD / "alpaca_eval" / "annotations.json").read_text()):
        if r["preference"] is not None:
            prompt = prompt_name(r["instruction"])
            of[r["annotator"]][r["generator_2"], prompt, 0] = r["preference"] - 1 if r["preference"] else 0.5
    return {key: (score, of["human"].get(key)) for key, score in of["weighted"].items()}


def slow_arena_hard() -> Slow:
    """The first game has the baseline as A; the model's win of a verdict does not depend on its size."""
    of: dict[str, dict[Key, float]] = {"gpt-4.1": {}, "expert": {}}
    for r in lines(HELD / "arena_hard" / "gpt-4.1" / "better.jsonl"):
        wins = []
        for game, model in zip(r["games"], "BA", strict=True):
            verdict = game and game["score"]
            if verdict:
                better = "" if "=" in verdict else verdict[0] if ">" in verdict else verdict[-1]
                wins.append(0.5 if not better else float(better == model))
        if len(wins) == 2:
            of[r["judge"]][r["model"], r["uid"], 0] = sum(wins) / 2
    return {key: (score, of["expert"].get(key)) for key, score in of["gpt-4.1"].items()}


def slow_battles() -> Slow:
    out = {}
    with (HELD / "arena_battles" / "train.csv").open(newline="") as file:
        for r in csv.DictReader(file):
            for me, other in ("ab", "ba"):
                vote = 0.5 if r["winner_tie"] == "1" else float(r[f"winner_model_{me}"])
                if r["llm_judge"]:
                    judged = float(r["llm_judge"])
                    out[r[f"model_{me}"], r["id"], 0] = judged if other == "b" else 1 - judged, vote
    return out


def slow_ragas() -> Slow:
    out = {}
    for path in (HELD / "ragas").glob("*.csv"):
        with path.open(newline="") as file:
            for r in csv.DictReader(file):
                if r["faithfulness"]:
                    key = path.stem, prompt_name(r["user_input"]), 0
                    out[key] = float(r["faithfulness"]), float(r["aspect"] == "pass")
    return out


def slow_mlflow() -> Slow:
    out = {}
    for path in (HELD / "mlflow").rglob("*.json"):
        table = json.loads(path.read_text())
        for held in table["data"]:
            r = dict(zip(table["columns"], held, strict=True))
            if r["answer_similarity/v1/score"] is not None:
                label = float(r["response/llm_judged/correctness/rating"] == "yes")
                out[path.parent.name, r["question"], 0] = float(r["answer_similarity/v1/score"]), label
    return out


def slow_trulens() -> Slow:
    out = {}
    with (HELD / "trulens" / "records.csv").open(newline="") as file:
        for k, r in enumerate(csv.DictReader(file)):
            if r["Groundedness"]:
                label = float(r["human"]) if r["human"] else None
                out[f"rag, {r['app_version']}", r["input"], k % 2] = float(r["Groundedness"]), label
    return out


ASKED = Asked(
    scale={"unclear": None}
)  # a word of the judge in the logs of Inspect, which has no letter for it
CASES = {
    "inspect": (slow_inspect, "judge", "human", 4),
    "inspect_json": (slow_inspect, "judge", "human", 4),
    "lm_eval": (slow_lm_eval, "llm_judge,flexible-extract", "exact_match,strict-match", 2),
    "promptfoo": (slow_promptfoo, "right", "human", 2),
    "langfuse": (slow_langfuse, "quality@EVAL", "quality@ANNOTATION", 0),
    "phoenix": (slow_phoenix, "correctness@LLM", "correctness@HUMAN", 0),
    "langsmith": (slow_langsmith, "helpful", "thumb", 0),
    "mt_bench": (slow_pairs, "gpt-4/pair-v2", "expert_*", 6),
    "mt_bench_single": (slow_single, "gpt-4/single-v1", None, 2),
    "langsmith_experiment": (slow_experiment, "correctness", "human", 2),
    "promptfoo_table": (partial(slow_promptfoo_table, "promptfoo_table"), "tone", "human", 1),
    "promptfoo_marked": (partial(slow_promptfoo_table, "promptfoo_marked"), "tone", "human", 1),
    "alpaca_eval": (slow_alpaca, "weighted", "human", 1),
    "arena_hard": (slow_arena_hard, "gpt-4.1", "expert", 2),
    "arena_battles": (slow_battles, "llm_judge", "human", 2),
    "ragas": (slow_ragas, "faithfulness", "aspect", 2),
    "mlflow": (slow_mlflow, "answer_similarity/v1", "response/llm_judged/correctness", 2),
    "trulens": (slow_trulens, "Groundedness", "human", 2),
    **slow_evaluations.CASES,
}
RANGES = {"mt_bench_single": (1, 10), "mlflow": (1, 5)}
# Fixtures in which something is said of a mean, a scale or the format.
CAUTIONS = {"promptfoo": 1, "inspect": 1, "inspect_json": 1, "promptfoo_table": 1, "promptfoo_marked": 1,
            "arena_hard": 2, "trulens": 1}  # fmt: skip


def as_dict(data: xr.Dataset) -> Slow:
    out = {}
    for p, policy in enumerate(data.policy.values.tolist()):
        for q, prompt in enumerate(data.prompt.values.tolist()):
            for d in range(data.sizes["draw"]):
                score, label = float(data.judge[p, q, d]), float(data.oracle[p, q, d])
                if score == score:
                    out[policy, prompt, int(data.draw[d])] = score, None if label != label else label
    return out


@pytest.mark.parametrize("name", CASES)
def test_each_format_against_a_slow_reader(name: str) -> None:
    slow, judge, oracle, n_gone = CASES[name]
    made = foreign(HELD / name, judge=judge, oracle=oracle, asked=ASKED)
    assert isinstance(made, Foreign)
    data, left_out = read(made, judge_range=RANGES.get(name, (0, 1)))
    expected, found = slow(), as_dict(data)
    assert found.keys() == expected.keys()
    for key, (score, label) in expected.items():
        assert found[key] == (
            pytest.approx(score, abs=1e-15),
            None if label is None else pytest.approx(label),
        ), key
    said = left_out["reason"].str.startswith("caution")  # of a mean that differs from the file's own
    left_out = left_out[~said]
    assert said.sum() == {**CAUTIONS, **slow_evaluations.CAUTIONS}.get(name, 0)
    left_out = left_out[left_out["row"].notna()]
    assert len(left_out) == n_gone and left_out["reason"].str.startswith(("ungraded", "unusable")).all()
    files = [path for path in (HELD / name).rglob("*") if path.is_file()]
    found_items = items_of(HELD / name)
    assert found_items is not None and len(found_items[1]) >= 40
    assert set(left_out["file"]) <= set(map(str, files))


def test_every_reader_has_a_case() -> None:
    known = {items_of(HELD / name)[0] for name in CASES}  # type: ignore[index]
    assert len(known) == len(readers())


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_name_lists_those_there_are(name: str) -> None:
    found = items_of(HELD / name)
    assert found is not None
    names = sorted({score for item in found[1] for score in item.scores})
    refuse(lambda: foreign(HELD / name, judge="nobody"), "judge='nobody': no such score", *names)
    refuse(
        lambda: foreign(HELD / name, judge=names[0], oracle="gold"), "oracle='gold': no such score", *names
    )
    if len(names) > 1:
        refuse(lambda: read(HELD / name), "which score is the judge's?", "judge=NAME", *names)


def test_responses_of_inspect_are_read_where_they_are_needed() -> None:
    data, _ = read(
        foreign(HELD / "inspect", judge="judge", asked=ASKED._replace(responses=True)),
        covariates=["response_length"],
    )
    log = json.loads((HELD / "inspect_json" / "base.json").read_text())
    for sample in log["samples"]:
        at = data.sel(policy="mockllm/base", prompt=sample["id"], draw=sample["epoch"] - 1)
        if bool(at.evaluated):
            assert float(at.covariate[0]) == len(sample["output"]["completion"].split())


def test_zstd_members_and_their_checksum(tmp_path: Path) -> None:
    """The fixture is of zip's method 93; one byte of a member changed is noticed."""
    whole = (HELD / "inspect" / "base.eval").read_bytes()
    with zipfile.ZipFile(HELD / "inspect" / "base.eval") as archive:
        info = archive.getinfo("summaries.json")
        assert info.compress_type == 93
    at = info.header_offset + 30 + len(info.filename) + info.compress_size // 2
    broken = bytearray(whole)
    broken[at] ^= 1
    path = write(tmp_path / "x.eval", bytes(broken))
    refuse(lambda: foreign(path, judge="judge"), "x.eval", "damaged")
    refuse(lambda: foreign(write(tmp_path / "y.eval", whole[:9000]), judge="judge"), "not a zip, or damaged")


def test_a_rating_by_hand_is_never_the_judge() -> None:
    """It overwrites the score of promptfoo's whole result."""
    rated = [
        r for r in promptfoo_results() if len((r["gradingResult"] or {}).get("componentResults", [])) == 3
    ]
    assert rated and all(r["score"] == r["gradingResult"]["componentResults"][2]["score"] for r in rated)
    found = items_of(HELD / "promptfoo")
    assert found is not None and {name for item in found[1] for name in item.scores} == {
        "contains",
        "human",
        "right",
    }


def test_what_promptfoo_scores_0_without_a_grade_is_no_score() -> None:
    """A call that failed, and a grader that answered with no JSON: promptfoo writes 0 for both."""
    ended = [r["score"] for r in promptfoo_results() if r["failureReason"] == 2]
    marked = [
        part["score"]
        for r in promptfoo_results()
        for part in (r["gradingResult"] or {}).get("componentResults", [])
        if part.get("metadata", {}).get("graderError")
    ]
    assert ended == [0] and marked == [0]
    _, left_out = read(foreign(HELD / "promptfoo", judge="right", oracle="human"))
    said = left_out["reason"].value_counts().to_dict()
    (caution,) = (reason for reason in said if reason.startswith("caution: mean of namedScores of right"))
    del said[caution]  # promptfoo's own mean counts the 0
    assert said == {"unusable: the call ended with an error": 1, "ungraded: right gave no number": 1}


def test_a_policy_named_by_another_field(tmp_path: Path) -> None:
    rows = [
        {"name": "q", "score": k / 4, "trace_id": f"t{k}", "arm": "ab"[k % 2], "case": k // 2}
        for k in range(4)
    ]
    path = write(tmp_path / "x.jsonl", rows)
    refuse(lambda: foreign(path), "row 1", "no column says the policy", "policy_field=NAME", "arm", "case")
    made = foreign(path, asked=Asked(policy="arm", prompt="case"))
    assert made is not None and as_dict(read(made)[0]) == {
        ("a", "0", 0): (0.0, None), ("b", "0", 0): (0.25, None), ("a", "1", 0): (0.5, None), ("b", "1", 0): (0.75, None)
    }  # fmt: skip


def test_labels_of_a_file_of_their_own(tmp_path: Path, data_dir: Path) -> None:
    labels = write(
        tmp_path / "labels.csv", "policy,prompt_id,oracle_label\nother,q3,0.5\nother,q1,0.25\nother,zz,1\n"
    )
    data, left_out = read(data_dir, labels=labels)
    told = data.oracle.sel(policy="other", draw=0)
    assert told.sel(prompt=["q1", "q3"]).values.tolist() == [0.25, 0.5] and int(told.notnull().sum()) == 2
    assert data.attrs["calibration_policy"] == ["base", "other"]
    assert left_out[["row", "prompt_id", "reason"]].values.tolist() == [
        [4, "zz", "a label of no response in the data"],
        [pd.NA, "", "caution: 2 of 3 labels found their response"],
    ]
    for text, *parts in (
        (
            "policy,prompt_id,oracle_label\nbase,q1,0.5\n",
            "row 2",
            "oracle_label is 0.5",
            "keep one of the two",
        ),
        ("policy,prompt_id,oracle_label\nother,q1,1\nother,q1,1\n", "row 3", "labelled above"),
        ("policy,prompt_id,oracle_label\nother,x,1\n", "no label finds its response"),
        ("policy,prompt_id,label\nother,x,1\n", "no column 'oracle_label'"),
        ("prompt_id,oracle_label\nq1,1\n", "row 2", "policy is missing"),
    ):
        bad = write(tmp_path / "bad.csv", text)
        refuse(lambda bad=bad: read(data_dir, labels=bad), "bad.csv", *parts)  # type: ignore[misc]
