"""``cje-lab audit``: what each command prints, writes and answers, and the one line with which it refuses."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from analysis import Frame, probes, world, write
from user_files import write as write_file

from studies.cli import app as command_line


@pytest.fixture
def audit(monkeypatch, capsys):
    """Run ``cje-lab audit`` in this process; gives exit code, stdout, stderr."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["cje-lab", "audit", *map(str, words)])
        monkeypatch.setenv("COLUMNS", "120")
        with pytest.raises(SystemExit) as exit_:
            command_line.main()
        captured = capsys.readouterr()
        return int(exit_.value.code or 0), captured.out, captured.err

    return run


@pytest.fixture
def files(tmp_path):
    """Responses, and probes of `other` with week, place and kind; from week 3 on they are .3 below."""
    table = world(200, labels=150)
    audited = probes(table, "other", 120, 0.0)
    audited["week"] = np.arange(120) // 20 + 1
    audited["kind"] = np.where(np.arange(120) % 2, "code", "chat")
    audited["place"] = np.arange(120)[::-1]
    late = audited["week"] >= 3
    audited.loc[late, "oracle_label"] = np.clip(audited.loc[late, "oracle_label"] - 0.3, 0, 1)
    data = write(table, tmp_path / "data")
    return data, write(audited, tmp_path / "probes", "{policy}_probe.jsonl"), audited


def test_binned(audit, files, tmp_path):
    data, probed, _ = files
    code, out, err = audit(
        "binned", data, "--probes", probed, "--bins", 4, "--json", "--out", tmp_path / "out"
    )
    found = json.loads(out)
    assert code == 1 and found["found"] and "written to" in err
    other = found["policies"][1]
    assert (
        other["policy"] == "other"
        and other["found"]
        and other["n_bins"] == len([b for b in other["by_bin"] if b["residual"] is not None])
    )
    assert json.loads((tmp_path / "out/binned.json").read_text()) == found
    assert (tmp_path / "out/binned.png").read_bytes().startswith(b"\x89PNG")
    code, out, _ = audit("binned", data, "--probes", probed)
    assert code == 1 and "FOUND" in out and "not checked" in out  # base has no probes


def test_coarsening(audit, files, tmp_path):
    data, _, _ = files
    code, out, _ = audit(
        "coarsening", data, "--levels", 2, "--levels", 5, "--json", "--out", tmp_path / "out"
    )
    found = json.loads(out)
    assert code == 0 and [one["policy"] for one in found["policies"]] == ["base", "other"]
    at = found["policies"][0]
    assert [row["n_levels"] for row in at["by_levels"]] == [2, 5] and at["full_n_levels"] > 5
    assert at["by_levels"][0]["width"] / at["full_width"] == pytest.approx(at["by_levels"][0]["width_ratio"])
    assert json.loads((tmp_path / "out/coarsening.json").read_text()) == found
    code, out, _ = audit("coarsening", data)
    assert code == 0 and "width over" in out and f"all {at['full_n_levels']}" in out
    code, _, err = audit("coarsening", data, "--levels", 1)
    assert code == 2 and err.count("\n") == 1 and "fewer than 2 levels" in err


def test_subgroup(audit, files):
    data, probed, _ = files
    code, out, _ = audit("subgroup", data, "--probes", probed, "--group", "week", "--json")
    found = json.loads(out)
    assert code == 1
    groups = {g["group"]: g for g in found["policies"][1]["by_group"]}
    assert {"3", "4", "5", "6"} <= {name for name, g in groups.items() if g["flagged"]}
    assert abs(groups["2"]["residual"]) < 0.05 < 0.15 < abs(groups["3"]["residual"])
    code, out, _ = audit("subgroup", data, "--probes", probed, "--group", "kind")
    assert code == 1 and "chat" in out and "code" in out


@pytest.mark.slow
def test_drift_in_batches(audit, files, tmp_path):
    data, probed, _ = files
    words = ("drift", data, "--probes", probed, "--batch", "week", "--baseline", 2)
    code, out, _ = audit(*words, "--json", "--out", tmp_path / "out")
    found = json.loads(out)
    assert code == 1 and found["found"] and found["anchors"] is None
    [stream] = found["batches"]["streams"]
    assert stream["stream"] == "other" and stream["drifted"] == 1 and stream["n_units"] == 120
    assert found["batches"]["batches"] == [1, 2, 3, 4, 5, 6]
    assert {chart["chart"]: chart["first_alarm"] for chart in stream["by_chart"]} == {"cusum": 2, "ewma": 2}
    assert (tmp_path / "out/drift.png").exists()
    code, out, _ = audit(*words)
    assert "DRIFT" in out and "3, 3" in out
    assert audit(*words)[1] == out  # the same seed


def test_drift_of_anchors(audit, tmp_path):
    rng = np.random.default_rng(1)
    rows = [{"id": i, "then": float(t), "now": float(t) - 0.05} for i, t in enumerate(rng.random(40))]
    harsher = write_file(tmp_path / "anchors.jsonl", rows)
    code, out, _ = audit("drift", "--anchors", harsher, "--json")
    [stream] = json.loads(out)["anchors"]["streams"]
    assert code == 1 and stream["tau"] == 1.0 and stream["p_change"] < 0.001
    steady = [row | {"now": row["then"], "stream": s} for row in rows for s in ("a", "b")]
    code, out, _ = audit("drift", "--anchors", write_file(tmp_path / "steady.jsonl", steady))
    assert code == 0 and "nothing found" in out and "DRIFT:" in out


def test_sequential(audit, files, tmp_path):
    data, probed, _ = files
    code, out, _ = audit("sequential", data, "--probes", probed, "--json")
    [other] = json.loads(out)["policies"]
    assert code == 1 and other["verdict"] == "FAIL" and other["stop"] > 40  # the shift begins at the 41st
    code, out, _ = audit("sequential", data, "--probes", probed, "--time", "place", "--json")
    [reverse] = json.loads(out)["policies"]
    assert code == 1 and reverse["stop"] < other["stop"]
    code, out, _ = audit("sequential", data, "--probes", probed, "--margin", 0.4, "--out", tmp_path / "out")
    assert code == 0 and "PASS" in out and (tmp_path / "out/sequential.png").exists()


def test_probes_among_the_rows(audit, tmp_path):
    """One file, its probes flagged: their rows bring the field."""
    table = world(100, labels=60)
    mine = probes(table, "other", 40, 0.0)
    both = table.copy()
    both["probe"] = both["policy"] == "x"
    both.loc[mine.index, "oracle_label"] = mine["oracle_label"]
    both.loc[mine.index, "probe"] = True
    both["week"] = np.nan
    both.loc[mine.index, "week"] = np.arange(40) // 10
    path = tmp_path / "all.csv"
    both.to_csv(path, index=False)
    code, out, err = audit("drift", path, "--batch", "week", "--json")
    assert code == 0, err
    assert json.loads(out)["batches"]["batches"] == [0, 1, 2, 3]


def test_power_is_computed(audit, tmp_path):
    from cje_core.transport.audit_size import audit_power, probes_to_pass

    words = ("power", "--residual-sd", 0.3, "--labels", 50, "--true-residual", 0, "--out", tmp_path)
    code, out, _ = audit(*words, "--json")
    assert (tmp_path / "power.png").exists()
    found = json.loads(out)
    [[cell]] = [row["by_true_residual"] for row in found["power"]]
    middle = (0.5, 0.5)
    expected = audit_power(50, residual_sd=0.3, reach=middle).probability.sel(verdict="PASS").item()
    assert code == 0 and cell["probability"][0] == pytest.approx(expected)
    assert found["needed"][0]["n_probes"] == probes_to_pass(0.3, reach=middle)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["power", "sequential", "drift"])
def test_figures_in_the_help_are_computed(audit, command, monkeypatch):
    from studies.cli.audit import help as told

    _, out, _ = audit(command, "--help")
    figures = re.findall(r"\d+\.?\d*", " ".join(out.split("Show this message and exit.")[1].split()))
    assert len(figures) > 3
    monkeypatch.setattr(told, "EXAMPLE_SD", 0.4)
    monkeypatch.setattr(told, "PER_BATCH", 10)
    _, other, _ = audit(command, "--help")
    assert out != other  # they follow what they are computed from


def test_likelihoods_of_calls(audit, tmp_path):
    rows = [
        {
            "policy": "a",
            "prompt_id": i,
            "logp": -3.0 - i,
            "logp_tokens": [-1.0, -2.0 - i],
            "snapshot": "m@5f0b02c75b57",
        }
        for i in range(6)
    ]
    assert audit("likelihoods", write_file(tmp_path / "good.jsonl", rows))[0] == 0
    rows[2] |= {"logp_tokens": [-1.0, -9.0]}
    rows[4] |= {"logp": 0.7, "snapshot": "m@9f86d081884c"}
    bad = write_file(tmp_path / "bad.jsonl", rows)
    code, out, _ = audit("likelihoods", bad)
    assert code == 1 and "bad.jsonl, row 3: policy a: token_sum" in " ".join(out.split())
    code, out, _ = audit("likelihoods", bad, "--json")
    found = {(v["row"], v["check"]) for v in json.loads(out)["violations"]}
    assert found == {(3, "token_sum"), (5, "token_sum"), (5, "finite"), (5, "snapshot")}


def test_likelihoods_of_logged_responses(audit, tmp_path):
    rng = np.random.default_rng(0)
    base = -rng.uniform(20, 40, 50)
    rows = [
        {
            "prompt_id": i,
            "base_policy_logprob": b,
            "target_policy_logprobs": {"same": b, "near": b + 0.2 * rng.normal(), "wrong": min(b + 12, 0)},
        }
        for i, b in enumerate(base)
    ]
    path = write_file(tmp_path / "logged.jsonl", rows)
    code, out, _ = audit("likelihoods", path, "--clone", "same", "--json")
    ratios = {r["policy"]: r for r in json.loads(out)["ratios"]}
    assert code == 1 and [name for name, r in ratios.items() if r["refuted"]] == ["wrong"]
    assert ratios["same"]["equal_share"] == 1.0
    code, out, _ = audit("likelihoods", path, "--clone", "near")
    assert code == 1 and "differs from the logger" in out and "not a likelihood ratio" in out
    for row in rows:
        del row["target_policy_logprobs"]["wrong"]
    assert audit("likelihoods", write_file(path, rows), "--clone", "same")[0] == 0


def anchors(*rows: str) -> str:
    return "".join(f"{row}\n" for row in rows)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["drift"], "give DATA with --batch FIELD, or --anchors FILE"),
        (["drift", "DATA"], "give both, or --anchors alone"),
        (["drift", "DATA", "--probes", "PROBES", "--batch", "month"], "no row has the field 'month'; add it"),
        (["drift", "DATA", "--batch", "week"],
         "--batch week: it is a field of probes, and there are none; give --probes FILE with it, or mark rows"),
        (["drift", "DATA", "--probes", "PROBES", "--batch", "week", "--baseline", 6],
         "--baseline 6: the probes came in 6 batches, so 1 to 5 of them can be the baseline"),
        (["drift", "DATA", "--probes", "PROBES", "--batch", "week", "--false-alarm", 5],
         "--false-alarm 5.0: it must lie strictly between 0 and 1"),
        (["drift", "DATA", "--probes", "HOLES", "--batch", "week"],
         "other_probe.jsonl, row 2: week is missing; every row needs one"),
        (["drift", "DATA", "--probes", "MIXED", "--batch", "week"],
         "other_probe.jsonl, row 2: week is 'two'; write numbers in every row, or text in every row"),
        (["drift", "--anchors", "NOW"], "anchors.jsonl, row 2: now is missing"),
        (["drift", "--anchors", "TEXT"], "anchors.jsonl, row 1: then is 'x'; a number is expected"),
        (["drift", "--anchors", "TWICE"], "anchors.jsonl, row 2: id is '1'; already given"),
        (["drift", "--anchors", "FEW"], "has 1 anchors; a rank correlation takes 4"),
        (["drift", "--anchors", "EMPTY"], "is empty: it has no rows"),
        (["drift", "--anchors", "GOOD", "--min-tau", 2], "--min-tau 2.0: it must lie in (-1, 1]"),
        (["subgroup", "DATA", "--probes", "PROBES", "--group", "sort"], "no row has the field 'sort'"),
        (["subgroup", "DATA", "--probes", "PROBES", "--group", "kind", "--fdr", 0], "--fdr 0.0: it must lie"),
        (["binned", "DATA", "--probes", "PROBES", "--level", 2], "--level 2.0: it must lie"),
        (["binned", "DATA", "--bins", 1], "--bins"),
        (["sequential", "DATA"], "no probes"),
        (["sequential", "DATA", "--time", "week"], "--time week: it is a field of probes, and there are none; give"),
        (["sequential", "DATA", "--probes", "PROBES", "--alpha", 0], "--alpha 0.0: it must lie"),
        (["sequential", "DATA", "--probes", "PROBES", "--margin", -1], "--margin -1: it must be a positive"),
        (["power", "--residual-sd", 2], "--residual-sd 2: it must lie between 0 and"),
        (["power", "--residual-sd", 0.2, "--true-residual", 3], "--true-residual 3: it must be smaller"),
        (["power", "--residual-sd", 0.2, "--aim", 1], "--aim 1.0: it must lie"),
        (["likelihoods", "GOOD"], "no row has the field 'logp'"),
        (["likelihoods", "NOLOGP"], "row 1: logp is '-3'; a number is expected"),
        (["likelihoods", "TOKENS"], "row 1: logp_tokens is 'x'; write a list of numbers"),
        (["likelihoods", "OBJECTS"], "row 1: response_id is {'x': 1}; write a string or an integer"),
        (["likelihoods", "MASKED"], "row 1: masked is {'a': 1}; write true or false"),
        (["likelihoods", "SNAPSHOT"], "row 1: snapshot is ['x']; write a string or an integer"),
        (["power", "--residual-sd", 0.2, "--oracle-range", 1, 0], "--oracle-range 1 0: LOW and HIGH must be"),
        (["subgroup", "DATA", "--probes", "PROBES", "--group", "judge_score"], "give each prompt one judge_score"),
        (["likelihoods", "CALLS", "--clone", "b"], "--clone b: no log ratios of such a policy"),
        (["likelihoods", "nowhere.jsonl"], "check the path"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(audit, files, tmp_path, words, message):
    data, probed, audited = files
    call = {"policy": "a", "prompt_id": 1, "logp": -3}

    def changed(name: str, value: object) -> Path:
        rows = audited.astype({"week": object}).copy()
        rows.iloc[1, rows.columns.get_loc("week")] = value
        return write(Frame(rows), tmp_path / name, "{policy}_probe.jsonl")

    made = {
        "DATA": lambda: data,
        "PROBES": lambda: probed,
        "HOLES": lambda: changed("holes", np.nan),
        "MIXED": lambda: changed("mixed", "two"),
        "EMPTY": lambda: write_file(tmp_path / "anchors.jsonl", ""),
        "NOW": lambda: write_file(
            tmp_path / "anchors.jsonl", [{"id": 1, "then": 1, "now": 1}, {"id": 2, "then": 1}]
        ),
        "TEXT": lambda: write_file(tmp_path / "anchors.jsonl", [{"id": 1, "then": "x", "now": 1}]),
        "TWICE": lambda: write_file(tmp_path / "anchors.jsonl", [{"id": 1, "then": 1, "now": 1}] * 2),
        "FEW": lambda: write_file(tmp_path / "anchors.jsonl", [{"id": 1, "then": 1, "now": 1}]),
        "GOOD": lambda: write_file(
            tmp_path / "anchors.jsonl",
            [{"id": i, "prompt_id": i, "policy": "a", "then": i, "now": i} for i in range(5)],
        ),
        "CALLS": lambda: write_file(tmp_path / "calls.jsonl", [{"policy": "a", "prompt_id": 1, "logp": -3}]),
        "OBJECTS": lambda: write_file(tmp_path / "c.jsonl", [call | {"response_id": {"x": 1}}]),
        "MASKED": lambda: write_file(tmp_path / "c.jsonl", [call | {"masked": {"a": 1}}]),
        "SNAPSHOT": lambda: write_file(tmp_path / "c.jsonl", [call | {"snapshot": ["x"]}]),
        "NOLOGP": lambda: write_file(tmp_path / "c.jsonl", [{"policy": "a", "prompt_id": 1, "logp": "-3"}]),
        "TOKENS": lambda: write_file(
            tmp_path / "c.jsonl", [{"policy": "a", "prompt_id": 1, "logp": -3, "logp_tokens": "x"}]
        ),
    }
    code, out, err = audit(
        *[made[word]() if word in made else word for word in words], "--out", tmp_path / "new"
    )
    assert (code, out) == (2, "")
    assert err.startswith("cje-lab: ") and len(err.strip().splitlines()) == 1 and message in err, err
    assert not (tmp_path / "new").exists()


def test_every_prompt_may_be_a_group_of_its_own(audit, files):
    data, probed, _ = files
    code, out, err = audit("subgroup", data, "--probes", probed, "--group", "prompt_id", "--json")
    assert code in (0, 1), err
    assert len(json.loads(out)["policies"][1]["by_group"]) >= 120
