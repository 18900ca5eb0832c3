"""Mutate files of every format by their structure: a key renamed, dropped or twice, a value of another kind, rows gone.

Bytes are damaged in `test_fuzz_slow`; here the file stays a legal one, as a tool of another version would write it.
``python tests/mutated_files.py 5000`` (with the project on PYTHONPATH) runs so many and prints what each came to.
"""

import copy
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import slow_evaluations

from cje_core.data import DataError
from cje_core.io.files import read
from cje_core.io.intake.foreign import SUPERSEDED, UNGRADED, UNUSABLE, Asked, chosen, items_of

HELD = Path(__file__).parent / "reference" / "readers"
SOURCES = {
    "inspect": (HELD / "inspect_json" / "base.json", "judge", "human"),
    "promptfoo": (HELD / "promptfoo" / "results.json", "right", "human"),
    "harness": (next(HELD.glob("lm_eval/org__base/*.jsonl")), "llm_judge,strict-match", None),
    "langfuse": (HELD / "langfuse" / "scores.csv", "quality@EVAL", "quality@ANNOTATION"),
    "phoenix": (HELD / "phoenix" / "annotations.jsonl", "correctness@LLM", "correctness@HUMAN"),
    "langsmith": (HELD / "langsmith" / "feedback.json", "helpful@model", "thumb@app"),
    "pairs": (HELD / "mt_bench" / "gpt-4_pair.jsonl", "gpt-4/pair-v2", None),
    "promptfoo table": (HELD / "promptfoo_marked" / "results.csv", "tone", "human"),
    "alpaca": (HELD / "alpaca_eval" / "annotations.json", "weighted", "human"),
    "arena-hard": (HELD / "arena_hard" / "gpt-4.1" / "better.jsonl", "gpt-4.1", "expert"),
    "battles": (HELD / "arena_battles" / "train.csv", "llm_judge", "human"),
    "ragas": (HELD / "ragas" / "base.csv", "faithfulness", "aspect"),
    "mlflow": (HELD / "mlflow" / "base" / "eval_results_table.json", "answer_similarity/v1", None),
    "trulens": (HELD / "trulens" / "records.csv", "Groundedness", "human"),
} | {
    name: (next(path for path in sorted((HELD / name).rglob("*")) if path.is_file()), judge, oracle)
    for name, (_, judge, oracle, _) in slow_evaluations.CASES.items()
}
FEW = 16  # records of a file that are kept
VALUES = [None, True, False, 0, 1, -1, 0.5, 2.5, 1e308, float("nan"), "", "x", "C", "N", "correct", "0.5", "NaN", [],
          {}, [1], {"a": 1}, [[0.5]], "\u2028", "\ud83d\ude00", 10**30, "a" * 3000]  # fmt: skip


def records(path: Path) -> Any:
    """Beginning of a file as a value."""
    if path.suffix == ".csv":
        return pd.read_csv(path, dtype=str, keep_default_na=False).to_dict("records")[:FEW]
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()[:FEW]]
    whole = json.loads(path.read_text())
    if isinstance(whole, list):
        return whole[:FEW]
    held = whole["results"] if "evalId" in whole else whole
    names = (
        ("results",)
        if "evalId" in whole
        else ("data",)
        if "columns" in whole
        else ("samples", "testCases", "details", "events")
    )
    for name in names:
        if name in held:
            held[name] = held[name][:FEW]
    return whole


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each container in a value, with each of its keys."""
    if isinstance(value, dict | list):
        for key, inner in list(value.items() if isinstance(value, dict) else enumerate(value)):
            yield value, key
            yield from places(inner)


def mutated(rng: random.Random, content: Any) -> Any:
    """One to three changes of keys and values."""
    content = copy.deepcopy(content)
    for _ in range(rng.choice([1, 1, 2, 3])):
        held, key = rng.choice(list(places(content)))
        kind = rng.randrange(6)
        if kind == 0:
            held[key] = rng.choice(VALUES)
        elif kind == 1:
            del held[key]
        elif kind == 2 and isinstance(held, dict):
            held[rng.choice([f"{key}s", str(key).upper(), f"{key}_2", ""])] = held.pop(key)
        elif kind == 3 and isinstance(held, list):
            held.append(copy.deepcopy(held[key]))
        elif kind == 4:
            other, at = rng.choice(list(places(content)))
            held[key] = copy.deepcopy(other[at])
        else:
            held[key] = [held[key]] if rng.random() < 0.5 else {"value": held[key]}
    return content


def written(path: Path, content: Any) -> bool:
    """Write a value in the format of a path; whether it can be."""
    try:
        if path.suffix == ".csv":
            pd.DataFrame([r for r in content if isinstance(r, dict)]).to_csv(path, index=False)
        elif path.suffix == ".jsonl":
            path.write_text("".join(json.dumps(r) + "\n" for r in content))
        else:
            path.write_text(json.dumps(content))
    except (TypeError, ValueError, AttributeError):
        return False
    return True


def outcome(path: Path, judge: str | None, oracle: str | None) -> str:
    """What reading comes to: every item is in the data or left out with a reason, or one line says why not."""
    asked = Asked(scale={"unclear": None})
    try:
        held = items_of(path, asked)
        if held is None:
            read(path)
            return "read as our own"
        data, left_out = read(
            chosen(path, held, judge, oracle), judge_range=(-1e90, 1e90), oracle_range=(-1e90, 1e90)
        )
    except DataError as error:
        message = str(error)
        assert "\n" not in message and len(message) < 900, message
        message.encode("utf-8")
        return "refused"
    gone = left_out["reason"].str.startswith((UNGRADED, UNUSABLE, SUPERSEDED)).sum()
    assert int(np.isfinite(data["judge"].values).sum()) + gone == len(held.items)
    return "read"


def run(n: int, seed: int = 20261127) -> Counter[tuple[str, str]]:
    """Outcomes of `n` mutated files by format."""
    rng, found = random.Random(seed), Counter[tuple[str, str]]()
    contents = {name: records(path) for name, (path, _, _) in SOURCES.items()}
    with tempfile.TemporaryDirectory() as place:
        for k in range(n):
            name = list(SOURCES)[k % len(SOURCES)]
            source, judge, oracle = SOURCES[name]
            path = Path(place) / source.name
            content = mutated(rng, contents[name])
            if not isinstance(content, list | dict) or not written(path, content):
                continue
            try:
                found[name, outcome(path, judge, oracle)] += 1
            except Exception as error:
                error.add_note(f"file {k}, a mutation of {name}: {json.dumps(content, default=str)[:2000]}")
                raise
    return found


if __name__ == "__main__":
    for (name, what), n in sorted(run(int(sys.argv[1])).items()):
        print(f"{name:<15} {what:<16} {n}")
