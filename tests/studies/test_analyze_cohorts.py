"""``cje-lab analyze`` by cohort: one cohort, all of them, a calibrator with groups; what each output says."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from analysis import Cli, world, write

from cje_core.figures import cohorts
from cje_core.workflow.analyze import analyze
from studies.cli.analysis.as_json import to_json


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rows = world(90, labels=60)
    return rows.assign(topic=np.where(rows["prompt_id"] % 3 == 0, "chat", "code"))


@pytest.mark.slow
def test_by_cohort_in_every_output(cli: Cli, tmp_path: Path, table: pd.DataFrame) -> None:
    data = write(table, tmp_path / "data")
    code, shown, _ = cli(data, "--by", "topic", "--subgroup", "topic")
    assert code == 0
    for words in (
        "by topic: none differs from the whole",
        "the cohorts add up to (the whole): base",
        "subgroup calibration by topic",
        "labels that",
    ):
        assert words in " ".join(shown.split())
    code, out, _ = cli(data, "--by", "topic", "--json", "--out", tmp_path / "out")
    assert code == 0
    found = json.loads(out)
    by_topic = found["cohorts"]["topic"]
    assert [(at["policy"], at["cohort"]) for at in by_topic["values"]] == [
        (policy, cohort) for policy in ("base", "other") for cohort in ("chat", "code")
    ]
    assert [at["level"] for at in by_topic["values"]] == ["reported"] * 2 + ["assumed"] * 2
    sums = by_topic["adds_up"]["base"]
    added = sum(at["share"] * at["value"]["estimate"] for at in by_topic["values"][:2])
    assert (
        sums["sum"] == pytest.approx(added)
        and sums["whole"] == found["policies"]["base"]["value"]["estimate"]
    )
    assert [at["n"] for at in by_topic["labels"]] == [20, 40]
    files = sorted(p.name for p in (tmp_path / "out").iterdir())
    assert "cohorts_topic.png" in files
    with xr.open_datatree(tmp_path / "out" / "ledger.nc", engine="netcdf4") as ledgers:
        kept = ledgers["direct"]
        assert kept["cohort"].values.tolist() == ["topic=chat", "topic=code"]
        base = kept["cohort_value"].sel(policy="base").values
        np.testing.assert_array_equal(base, [at["value"]["estimate"] for at in by_topic["values"][:2]])
        assert "cohort_value" in json.loads(ledgers["labels_only"].attrs["missing"])
        at = kept.sel(policy="base", cohort="topic=chat")
        first = by_topic["values"][0]
        assert [float(at[f"cohort_{name}"]) for name in ("difference", "labels", "prompts")] == [
            first["from_whole"]["difference"], first["labels"], first["prompts"]
        ]  # fmt: skip


@pytest.mark.slow
def test_one_cohort(cli: Cli, tmp_path: Path, table: pd.DataFrame) -> None:
    data = write(table, tmp_path / "data")
    code, shown, _ = cli(data, "--cohort", "topic=chat")
    assert code == 0 and "topic=chat: one cohort: values are means over its prompts" in " ".join(
        shown.split()
    )
    code, out, _ = cli(data, "--cohort", "topic=chat", "--json")
    alone = json.loads(out)
    assert alone["manifest"]["cohort"] == "topic=chat"
    assert alone["manifest"]["counts"]["base"] == {"responses": 30, "labels": 60, "probes": 0}
    _, out, _ = cli(data, "--by", "topic", "--json")
    by_topic = json.loads(out)["cohorts"]["topic"]["values"]
    assert by_topic[0]["value"]["estimate"] == alone["policies"]["base"]["value"]["estimate"]


def test_a_slip_is_one_line(cli: Cli, tmp_path: Path, table: pd.DataFrame) -> None:
    data = write(table, tmp_path / "data")
    for words, said in {
        ("--cohort", "topic"): "--cohort topic: write NAME=VALUE",
        ("--cohort", "topic=law"): "--cohort topic=law: no prompt has this value; there are chat, code",
        ("--cohort", "topic=chat", "--cohort", "topic=code"): "--cohort topic=code: topic is given twice",
        ("--by", "nope"): "no row has the field 'nope'; name one that is there",
        ("--by", "judge_score"): "field 'judge_score' of prompts: it has a meaning of its own",
        (
            "--subgroup",
            "topic",
            "--borrowed",
            "plug_in",
        ): "--subgroup topic: a calibrator with groups goes with",
        ("--estimator", "overlap_weights"): "it needs logged responses; give --logged FILE",
    }.items():
        code, out, err = cli(data, *words)
        assert (code, out, err.count("\n")) == (2, "", 1), (words, err)
        assert said in err
    clash = write(table.assign(topic=np.where(table["policy"] == "base", "a", "b")), tmp_path / "clash")
    code, _, err = cli(clash, "--by", "topic")
    assert code == 2 and "other_responses.jsonl, row 1: topic is 'b'; another row of prompt_id" in err


def logged(table: pd.DataFrame, path: Path, spread: float) -> Path:
    """Logged responses of the base policy, the other's far from it."""
    rng = np.random.default_rng(1)
    base = table[table["policy"] == "base"]
    records = [
        {
            "prompt_id": row.prompt_id,
            "judge_score": row.judge_score,
            "base_policy_logprob": -50.0,
            "target_policy_logprobs": {
                "base": -50.0,
                "other": -70.0 + float(np.clip(rng.normal(0, spread), -19, 19)),
            },
        }
        for row in base.itertuples()
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.slow
def test_where_overlap_fails_the_overlap_estimator_is_offered(
    cli: Cli, tmp_path: Path, table: pd.DataFrame
) -> None:
    data, logs = write(table, tmp_path / "data"), logged(table, tmp_path / "logged.jsonl", 6.0)
    _, shown, _ = cli(data, "--logged", logs)
    assert "overlap fails for other: --estimator overlap_weights" in " ".join(shown.split())
    _, shown, _ = cli(data, "--logged", logs, "--estimator", "direct", "--estimator", "overlap_weights")
    assert "overlap_weights: the mean over the responses that a policy shares with the logger" in " ".join(
        shown.split()
    )
    code, _, err = cli(data, "--logged", logs, "--estimator", "overlap_weights")
    assert code == 2 and "--estimator overlap_weights: it estimates another mean (not V(policy)" in err
    found = analyze(data, logged=logs, chosen=["overlap_weights", "snips"])
    assert found.primary == "snips"
    manifest = to_json(found)["manifest"]["estimators"]
    assert "not V(policy)" in manifest["overlap_weights"]["estimand"]


@pytest.mark.slow
def test_the_figure_has_a_row_for_each_cohort(table: pd.DataFrame) -> None:
    found = analyze(table, groups=["topic"]).cohorts["topic"]
    axes = cohorts(found)
    assert [text.get_text() for text in axes.get_yticklabels()] == [
        f"{policy}: {cohort}" for policy in ("base", "other") for cohort in ("chat", "code")
    ]
    refused = found.assign(
        estimate=found["estimate"] * np.nan, level=(("policy", "cohort"), np.full((2, 2), "refused"))
    )
    assert len(cohorts(refused).lines) < len(axes.lines)
