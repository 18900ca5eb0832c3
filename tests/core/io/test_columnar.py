"""The quick parsers against Python's own: the same data bit for bit, or the same refusal."""

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from user_files import write

from cje_core.data import DataError
from cje_core.io import files, tables

# What may stand in a field, as JSON: usual values several times, so that many files have nothing odd.
IDS = ['"a"', '"b"', '"c"', '"d"']
NAMES = {
    "text": [*IDS, '""', '"1"', '"é"', '"\\u00e9"', '"日本"', '"😀"', '"\\ud83d\\ude00"', '"a b"', '"A"'],
    "integer": ["1", "2", "3", "10", "0", "-1", "-0"],
    "odd": [
        '"1"',
        "1",
        "1.0",
        "1.5",
        "true",
        "null",
        "[1]",
        "{}",
        '"a\\nb"',
        '"\\ud800"',
        "1e2",
        str(10**30),
        "NaN",
    ],
}
SCORES = ["0.5", "0", "1", "0.25", "1.0", "0.0", "1e-1", "0.1234567890123456789", "5e-324", "2E-3"]
ODD_SCORES = [
    "-0",
    "-0.0",
    "null",
    "NaN",
    "Infinity",
    "1e400",
    "true",
    '"0.5"',
    "1.25",
    "-1",
    str(10**400),
    "[0]",
    "01",
]
UNKNOWN = [
    '"other": {"a": [1, {"b": null}]}',
    '"other": "x\\"y"',
    '"other": NaN',
    '"other": [1, "a"]',
    '"other": -',
    '"other": "}"',
]


def record(rng: random.Random, k: int, names: list[str], odd: float) -> str:
    """One line: usual fields, and with probability `odd` something else in each."""

    def one(usual: list[str], others: list[str]) -> str:
        return rng.choice(others if rng.random() < odd else usual)

    pairs = [
        ("policy", one(['"p"', '"q"'], [*NAMES["odd"], *NAMES["text"]])),
        ("prompt_id", one([f'"x{k}"', rng.choice(names)], [*NAMES["odd"], *names]) if names else str(k)),
        ("judge_score", one(SCORES, ODD_SCORES)),
    ]
    for field, usual, others in (
        ("oracle_label", [*SCORES, "null"], ODD_SCORES),
        ("draw_idx", ["0", "1", "2", str(k), f"{k}.0"], ["-1", "0.5", "1e20", "null", '"1"', "-0"]),
        ("label_prob", ["1", "0.5", "0.25"], ["0", "1.5", "null"]),
        ("cluster", ['"c"', '"d"'], [*NAMES["odd"], '""']),
        ("probe", ["false", "true"], ["null", "1", '"yes"', '"true"']),
        ("surprisal", ["1.5", "2"], ["null", "1e101"]),
        ("policy", ['"p"'], ['"q"', "1"]),
        ("metadata", ["null", "{}", '{"oracle_label": 1}', '{"cluster": "c", "z": 1}'],
         ["1", '{"policy": 1}', '{"judge_score": "x"}', "[]"]),
    ):  # fmt: skip
        often = {"oracle_label": 0.5, "draw_idx": 0.5, "metadata": 0.2, "policy": odd / 4}.get(field, 0.15)
        if rng.random() < often:
            pairs.append((field, one(usual, others)))
    pairs = [pair for pair in pairs if rng.random() > odd / 4]
    if rng.random() < 0.3:
        rng.shuffle(pairs)
    text = ", ".join(f'"{name}": {value}' for name, value in pairs)
    if rng.random() < 0.2:
        text += (", " if text else "") + one(UNKNOWN[:2], UNKNOWN)
    return "{" + text + "}"


def jsonl(rng: random.Random) -> bytes:
    """A small file, of which about half have something odd."""
    odd = rng.choice([0.0, 0.0, 0.02, 0.2])
    names = rng.choice([IDS, NAMES["text"], NAMES["integer"], []])
    lines = [record(rng, k, names, odd) for k in range(rng.randint(1, 8))]
    end = rng.choice(["\n", "\n", "\n", "\r\n"])
    if rng.random() < odd:
        spoiled = [
            "",
            " ",
            "null",
            "7",
            "{",
            "\u00a0",
            "{}",
            '{"a": 1}{"a": 2}',
            '{"a": 1}{"a":\n2}',
            "\x00",
            "[]",
            " {}",
            "{} ",
        ]
        lines.insert(rng.randint(0, len(lines)), rng.choice(spoiled))
    text = end.join(lines) + rng.choice([end, end, "", end * 2 if odd else ""])
    raw = text.encode("utf-8")
    if rng.random() < 0.1:
        raw = b"\xef\xbb\xbf" + raw
    return raw.replace(b"a", b"\xe9", 1) if rng.random() < odd / 4 else raw


def outcome(read: Callable[[], tuple[xr.Dataset, pd.DataFrame]]) -> Any:
    """Every bit of the data and what was left out, or the refusal."""
    try:
        data, left_out = read()
    except DataError as err:
        return str(err)
    variables = {
        name: (v.dims, v.dtype.str, v.shape, v.values.tobytes() if v.dtype != object else v.values.tolist())
        for name, v in data.variables.items()
    }
    return variables, list(data.variables), data.attrs, left_out.to_dict("list"), left_out.dtypes.to_dict()


def both(monkeypatch: pytest.MonkeyPatch, path: Path, **reading: Any) -> tuple[bool, Any]:
    """Whether columns were read, and the outcome, which is that of the records."""
    columns: list[bool] = []
    with monkeypatch.context() as patch:
        for name in ("parsed_jsonl", "parsed_csv"):
            parse = getattr(tables, name)

            def noted(*args: Any, parse: Any = parse) -> Any:
                found = parse(*args)
                columns.append(found is not None)
                return found

            patch.setattr(tables, name, noted)
        quick = outcome(lambda: files.read(path, **reading))
        for name in ("parsed_jsonl", "parsed_csv"):
            patch.setattr(tables, name, lambda *args: None)
        slow = outcome(lambda: files.read(path, **reading))
    shown = path.read_bytes() if path.is_file() else [f.read_bytes() for f in path.iterdir()]
    assert quick == slow, shown
    return bool(columns) and all(columns), quick


@pytest.mark.slow
def test_jsonl_by_columns_is_jsonl_by_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(20261122)
    seen: Counter[tuple[bool, bool]] = Counter()
    for k in range(200):
        path = write(tmp_path / f"{k}.jsonl", jsonl(rng))
        quick, found = both(monkeypatch, path)
        seen[quick, isinstance(found, str)] += 1
    assert seen[True, False] >= 25 and seen[False, True] >= 25, seen


@pytest.mark.slow
def test_a_directory_by_columns_is_one_by_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(7)
    quick = 0
    for k in range(40):
        for name in ("p", "q", "r")[: rng.randint(1, 3)]:
            odd = rng.choice([0.0, 0.0, 0.05])
            names = rng.choice([IDS, NAMES["integer"]])
            lines = [record(rng, i, names, odd) for i in range(rng.randint(1, 5))]
            text = "\n".join(lines).replace('"policy": "q"', f'"policy": "{name}"')
            if rng.random() < 0.8:
                text = text.replace('"policy": "p"', f'"policy": "{name}"')
            write(tmp_path / str(k) / f"{name}_responses.jsonl", text)
        quick += both(monkeypatch, tmp_path / str(k))[0]
    assert quick >= 5


@pytest.mark.parametrize(
    ("lines", "quick"),
    [
        (['{"prompt_id": "a", "judge_score": 0.5}'], True),
        (['{"prompt_id": "b", "judge_score": 0.5, "judge_score": 0.25}'], False),
        (['{"prompt_id": "a", "judge_score": -0}'], True),
        (['{"prompt_id": 1, "judge_score": 0}', '{"prompt_id": "1", "judge_score": 0}'], False),
        (['{"prompt_id": "a", "judge_score": 0}{"prompt_id": "b", "judge_score": 0}'], False),
        (['{"metadata": {"prompt_id": "a"}, "judge_score": 0.5}'], True),
        (['{"\\u006detadata": {"prompt_id": "a"}, "judge_score": 0.5}'], True),
        (['{"metadata": {"prompt_id": "a"}, "judge_score": 0.5, "metadata": {"prompt_id": "b"}}'], False),
        (['{"metadata": {"prompt_id": "a", "prompt_id": "b"}, "judge_score": 0.5}'], False),
        (['{"prompt_id": "a", "prompt_id": "b", "judge_score": 0.5}'], False),
        (['{"prompt_id": "a", "judge_score": 0.5, "other": 1, "other": "x"}'], False),
        (['{"prompt_id": "a\\u0000", "judge_score": 0.5}'], True),
        (['{"prompt_id": "a", "judge_score": 0.5, "other": "\\ud800"}'], None),
    ],
)  # fmt: skip
def test_odd_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str], quick: bool | None
) -> None:
    path = write(tmp_path / "d" / "p.jsonl", "\n".join(lines) + "\n").parent
    found, _ = both(monkeypatch, path)
    assert quick is None or found == quick


@pytest.mark.slow
def test_csv_by_columns_is_csv_by_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(11)
    usual = {
        "policy": ["p", "q"],
        "prompt_id": ["a", "b", "1", "01", "é", " x", "x ", ""],
        "judge_score": ["0.5", "1", "0", "-0", "1e-1", ".5", "1.", " 0.5", "0.1234567890123456789"],
        "oracle_label": ["", "", "0.5", "1"],
        "draw_idx": ["0", "1", "2.0", "3"],
        "probe": ["False", "false", "0"],
        "cluster": ["c"],
        "other": ["x y", "", "1"],
    }
    odd = ["", "  ", "nan", "nan(1)", "-nan", "NA", "inf", "1_0", "+1", "1e400", "0x1", "True", "x", '"0.5"', '"a,b"',
           "1,2", "\x00", "\u0661", "\u00a0", "\n", "\r", "a\tb"]  # fmt: skip
    quick = 0
    for k in range(150):
        fields = ["policy", "prompt_id", "judge_score", *rng.sample(list(usual)[3:], rng.randint(0, 4))]
        rng.shuffle(fields)
        rate = rng.choice([0.0, 0.0, 0.05])
        rows = [
            {f: rng.choice(odd if rng.random() < rate else usual[f]) for f in fields} | {"prompt_id": f"x{i}"}
            for i in range(rng.randint(1, 6))
        ]
        if rng.random() < 0.3:
            rows = [row | {"prompt_id": rng.choice(usual["prompt_id"])} for row in rows]
        lines = [",".join(fields), *(",".join(row.values()) for row in rows)]
        if rng.random() < rate:
            lines.insert(rng.randint(0, len(lines)), rng.choice(["", " ", ",", lines[0], "a"]))
        end = rng.choice(["\n", "\n", "\r\n"])
        raw = (end.join(lines) + rng.choice(["", end])).encode()
        path = write(tmp_path / f"{k}.csv", rng.choice([b"", b"", b"\xef\xbb\xbf"]) + raw)
        quick += both(monkeypatch, path)[0]
    assert 30 <= quick <= 140


@pytest.mark.slow
def test_scales_and_covariates_by_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(5)
    quick: list[bool] = []
    for k in range(40):
        rows = [
            {"policy": rng.choice("pq"), "prompt_id": f"x{i}", "judge_score": rng.choice([3, 50, 100.0, 0.5]),
             "age": rng.choice([1, 2.5, *([None] * (k % 3 == 0))]), "response": "word " * rng.randint(0, 4)}
            for i in range(25)
        ]  # fmt: skip
        if k % 4 == 0:  # one policy on the unit scale
            rows = [r | {"judge_score": 0.5 if r["policy"] == "p" else 50} for r in rows]
        path = write(tmp_path / f"{k}.jsonl", rows)
        found, _ = both(monkeypatch, path, judge_range=(0, 100), covariates=["age", "response_length"])
        quick.append(found)
    assert sum(quick) >= 5


def test_every_usual_file_is_read_by_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else all would be slow, and every other test would pass."""
    table = pd.DataFrame(
        {
            "policy": np.repeat(["p", "q"], 50),
            "prompt_id": [f"q{i}" for i in range(50)] * 2,
            "judge_score": np.linspace(0, 1, 100),
            "oracle_label": [1.0, None] * 50,
        }
    )
    lines = [{k: v for k, v in row.items() if v == v} for row in table.to_dict("records")]
    write(tmp_path / "x.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    table.to_csv(tmp_path / "x.csv", index=False)
    for name in ("x.jsonl", "x.csv"):
        assert both(monkeypatch, tmp_path / name)[0]
