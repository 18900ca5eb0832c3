"""``cje-lab tf-cache``: on screen, in JSON and files; what analyses make of a cache; ids in what is written."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from analysis import world as judged
from analysis import write as write_judged

from cje_core.workflow.analyze import analyze
from cje_sim.scenarios.zipf_tilt import tokens
from cje_sim.tokens.calls import record
from studies.cli import app as command_line

SALT = "0123456789abcdef"
Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run any command in this process; gives exit code, stdout, stderr."""

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["cje-lab", *map(str, words)])
        monkeypatch.setenv("COLUMNS", "120")
        with pytest.raises(SystemExit) as exit_:
            command_line.main()
        captured = capsys.readouterr()
        return int(exit_.value.code or 0), captured.out, captured.err

    return run


def world(directory: Path, share: float = 0.02) -> tuple[list[object], pd.DataFrame]:
    """Files of a world with planted violations, the options that name them, and what is planted."""
    policies = tokens(vocab=50, length=12, eta={"base": 0.0, "mild": 0.1}).policies
    recorded = record(policies, 300, share=share, rng=1)
    recorded.logs.to_parquet(directory / "logs.parquet")
    recorded.targets["mild"].to_parquet(directory / "mild.parquet")
    fresh = [
        {"policy": policy, "prompt_id": x, "judge_score": float(s), "oracle_label": float(s > 0.5)}
        for policy in ("base", "mild")
        for x, s in zip(recorded.logs.x_id, recorded.logs.judge_S, strict=True)
    ]
    pd.DataFrame(fresh).to_json(directory / "fresh.jsonl", orient="records", lines=True)
    words = ["--logs", directory / "logs.parquet", "--target", f"mild={directory / 'mild.parquet'}"]
    return words, recorded.planted


def test_the_screen_counts_and_names_what_is_left_out(command: Cli, tmp_path: Path) -> None:
    words, planted = world(tmp_path)
    code, out, err = command("tf-cache", *words, "--out", tmp_path / "cache.parquet")
    assert code == 0 and f"written: {tmp_path / 'cache.parquet'}" in err
    text = " ".join(out.split())
    for (policy, violation), rows in planted.groupby(["policy", "violation"]):
        calls = 1 if policy == "" else 2
        name = "logs.parquet" if policy == "" else "mild.parquet"
        more = f" and {calls * len(rows) - 1} more" if calls * len(rows) > 1 else ""
        assert f"left out by {violation}: {tmp_path / name}, row " in text
        assert f"{more}:" in text
    assert "policy kept out / n weight a row" in text or "rows left ESS" in text
    kept = pd.read_parquet(tmp_path / "cache.parquet")["left_out"].isna().sum()
    assert f"mild {kept} {300 - kept} " in text


def test_the_json_holds_checks_counts_and_rows_without_ids(command: Cli, tmp_path: Path) -> None:
    words, planted = world(tmp_path)
    code, out, _ = command("tf-cache", *words, "--out", tmp_path / "cache.jsonl", "--json")
    found = json.loads(out)
    assert code == 0 and set(found) == {"policies", "checks", "snapshots", "left_out"}
    assert found == json.loads((tmp_path / "cache.jsonl.ledger.json").read_text())
    assert {row["prompt_id"] for row in found["left_out"]} == {None}
    states = {(row["policy"], row["check"]): row["state"] for row in found["checks"]}
    assert states["mild", "additive"] == "fail" and states[None, "finite"] == "fail"
    assert (None, "additive") not in states  # logs have no column for it
    named = {(row["policy"], row["field"]) for row in found["snapshots"]}
    assert named == {(None, "run_cfg"), ("mild", "model"), ("mild", "template"), ("mild", "tokenizer")}
    assert states["mild", "in_logs"] == "pass"
    mild = found["policies"]["mild"]
    assert (
        mild["rows"] == 300
        and mild["kept"] + mild["left_out"] == 300
        and mild["left_out"] >= len(planted) * 0.8
    )
    assert mild["mean_weight"] == pytest.approx(1.0, abs=1e-12) and mild["mean_tokens"] == 12


@pytest.mark.slow
def test_no_id_is_written_but_salted_or_in_the_ledger(command: Cli, tmp_path: Path) -> None:
    """In cache, JSON and ledger; and the digits do not depend on the salt."""
    words, _ = world(tmp_path)
    salt = tmp_path / "salt"
    salt.write_text(SALT)
    assert command("tf-cache", *words, "--out", tmp_path / "plain.jsonl")[0] == 0
    assert command("tf-cache", *words, "--out", tmp_path / "secret.jsonl", "--salt", salt)[0] == 0
    plain = re.compile(r'"x\d{3}"')
    assert plain.search((tmp_path / "plain.jsonl").read_text())
    for name in ("secret.jsonl", "secret.jsonl.ledger.json", "plain.jsonl.ledger.json"):
        assert not plain.search((tmp_path / name).read_text())
    assert "redacted-" in (tmp_path / "secret.jsonl.ledger.json").read_text()
    told = {}
    chosen = ["--estimator", "direct", "--estimator", "snips"]
    for name, option in (("plain", []), ("secret", ["--salt", salt, "--out", tmp_path / "out"])):
        data = [tmp_path / "fresh.jsonl", "--logged", tmp_path / f"{name}.jsonl"]
        code, text, err = command("analyze", *data, *chosen, *option, "--json")
        assert code == 0, err
        told[name] = json.loads(text)
        ids = [row["prompt_id"] for row in told[name]["manifest"]["left_out"]]
        assert ids and all((one or "").startswith("redacted-") == (name == "secret") for one in ids)
    out = tmp_path / "out"
    assert (
        json.loads((out / "estimates.json").read_text())["manifest"]["left_out"]
        == (told["secret"]["manifest"]["left_out"])
    )
    assert not plain.search((out / "estimates.json").read_text())
    groups = xr.open_datatree(out / "ledger.nc")
    manifest = groups["direct"]["prompt"].values.astype(str).tolist()
    groups.close()
    assert all(one.startswith("redacted-") for one in manifest) and manifest == sorted(manifest)
    for policy in ("base", "mild"):
        a, b = (told[name]["policies"][policy] for name in ("plain", "secret"))
        assert a["estimates"] == b["estimates"] and a["overlap"] == b["overlap"]
    assert told["plain"]["policies"]["mild"]["overlap"]["ttc"] is not None


@pytest.mark.slow
def test_a_salt_is_in_no_output(command: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in files, whatever packs them, nor on the screen; given by its file, then by the environment."""
    words, _ = world(tmp_path)
    salt, out = tmp_path / "salt", tmp_path / "out"
    salt.write_text(SALT)
    data, cache = tmp_path / "fresh.jsonl", out / "cache.jsonl"
    pilot = write_judged(judged(60), tmp_path / "pilot")
    for drawn in ("forest.render", "panels.render_panels"):  # pixels hold no text, and take seconds
        monkeypatch.setattr(f"studies.cli.analysis.{drawn}", lambda *_: {})
    money = ["--budget", 400, "--cost-judge", 1, "--cost-oracle", 4, "--replicates", 20]
    logged = [data, "--logged", cache, "--estimator", "direct", "--estimator", "snips"]
    said = [
        command("tf-cache", *words, "--out", cache, "--salt", salt),
        command("analyze", *logged, "--out", out / "analysis", "--salt", salt),
        command("plan", pilot, *money, "--out", out / "plan", "--salt", salt),
        command("audit", "likelihoods", cache, "--out", out / "audit", "--json", "--salt", salt),
        command("analyze", *logged, "--keep-steps", out / "steps", "--salt", salt),
    ]
    monkeypatch.setenv("CJE_LAB_SALT", SALT)
    said += [
        command("tf-cache", *words, "--out", out / "cache.parquet", "--json"),
        command("analyze", *logged, "--json"),
        command("audit", "likelihoods", cache, "--out", out / "again"),
        command("analyze", *logged, "--keep-steps", out / "steps"),
    ]
    assert [code for code, *_ in said] == [0, 0, 0, 0, 2, 0, 0, 0, 2]
    assert SALT not in "".join(text for _, *texts in said for text in texts)
    written = [path for path in out.rglob("*") if path.is_file()]
    names = {
        "cache.jsonl",
        "cache.parquet",
        "cache.jsonl.ledger.json",
        "estimates.json",
        "ledger.nc",
        "plan.json",
    }
    assert names <= {path.name for path in written} and not (out / "steps").exists()
    for path in written:
        assert SALT.encode() not in path.read_bytes(), path
        if path.suffix == ".parquet":
            assert SALT not in pd.read_parquet(path).to_csv()
        if path.suffix == ".nc":
            with xr.open_datatree(path, engine="netcdf4") as tree:
                assert SALT not in "".join(str(node.to_dataset().to_dict()) for node in tree.subtree)


def test_the_salt_may_stand_in_the_environment(
    command: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, _ = world(tmp_path)
    monkeypatch.setenv("CJE_LAB_SALT", SALT)
    code, out, _ = command("tf-cache", *words, "--out", tmp_path / "cache.parquet", "--json")
    assert code == 0 and all(row["prompt_id"].startswith("redacted-") for row in json.loads(out)["left_out"])
    monkeypatch.setenv("CJE_LAB_SALT", "short")
    code, _, err = command("tf-cache", *words, "--out", tmp_path / "other.parquet")
    assert code == 2 and "CJE_LAB_SALT has 5 characters" in err and not (tmp_path / "other.parquet").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"--target": "mild"}, "--target mild: write NAME=TABLE"),
        ({"--out": "cache.csv"}, "written as .parquet or .jsonl"),
        ({"--judge": "clarity"}, "--judge clarity: judge_S of"),
        ({"--salt": "mysecretmysecret"}, "name the file that holds it, not the salt itself"),
        ({"--covariate": "age"}, "no column 'age'"),
        ({"--covariate": "judge_S"}, "sub-score or covariate 'judge_S' has the name of a field"),
        ({"--logs": "nowhere.parquet"}, "nowhere.parquet: no such file"),
    ],
)
def test_one_line_where_the_words_are_wrong(
    command: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, str], said: str
) -> None:
    words, _ = world(tmp_path)
    monkeypatch.chdir(tmp_path)
    given = dict(zip(words[::2], words[1::2], strict=True)) | {"--out": "cache.parquet"} | change
    code, out, err = command("tf-cache", *[word for pair in given.items() for word in pair])
    assert code == 2 and out == "" and len(err.splitlines()) == 1 and said in err
    assert "mysecret" not in err  # the salt itself, taken for the name of its file
    assert not (tmp_path / "cache.parquet").exists()


@pytest.fixture
def arena_schema(arena: Path, tmp_path: Path) -> tuple[Path, dict[str, Path]]:
    """The Arena sample's logs in the paper's columns, and a table of each target."""
    records = [json.loads(text) for text in (arena / "logged_data.jsonl").read_text("utf-8").splitlines()]
    logs = [
        {
            "x_id": one["metadata"]["prompt_id"],
            "prompt": one["prompt"],
            "continuation": one["response"],
            "tokens": list(range(len(one["response"].split()) + 1)),  # words stand in for token ids
            "logp_pi0": one["base_policy_logprob"],
            "judge_S": one["judge_score"],
            "judge_cfg": {"model": "judge-2025-04-14", "rubric": "helpfulness"},
            "run_cfg": json.dumps({"engine": "server", "checkpoint_hash": "5f0b02c75b57", "seed": k}),
            "cohort": "arena",
            "oracle_label": one.get("oracle_label"),
        }
        for k, one in enumerate(records)
    ]
    pd.DataFrame(logs).sample(frac=1.0, random_state=1).to_parquet(tmp_path / "logs.parquet")
    targets = {}
    for policy in records[0]["target_policy_logprobs"]:
        rows = [
            {"x_id": one["metadata"]["prompt_id"], "logp_pi_prime": one["target_policy_logprobs"][policy]}
            for one in records
        ]
        targets[policy] = tmp_path / f"{policy}.jsonl"
        targets[policy].write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return tmp_path / "logs.parquet", targets


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_the_arena_sample_through_the_schema_gives_the_same_digits(
    arena: Path, arena_schema: tuple[Path, dict[str, Path]], command: Cli, tmp_path: Path, kind: str
) -> None:
    logs, targets = arena_schema
    words = [word for name, path in targets.items() for word in ("--target", f"{name}={path}")]
    cache = tmp_path / f"cache.{kind}"
    code, out, err = command("tf-cache", "--logs", logs, *words, "--out", cache, "--json")
    assert code == 0, err
    assert {row["kept"] for row in json.loads(out)["policies"].values()} == {1000}
    direct, through = (
        analyze(arena / "fresh_draws", probes=arena / "probe_slice", logged=source)
        for source in (arena / "logged_data.jsonl", cache)
    )
    assert direct.estimates.keys() == through.estimates.keys() and len(direct.off_policy) == 4
    for name, estimate in direct.estimates.items():
        for variable in ("estimate", "std_error", "interval", "status"):
            np.testing.assert_array_equal(estimate[variable], through.estimates[name][variable])
    assert direct.overlap is not None and through.overlap is not None
    for variable in ("ess_fraction", "max_share", "hill", "affinity"):
        np.testing.assert_array_equal(direct.overlap[variable], through.overlap[variable])
    # token counts, which the sample's own file lacks, make the coverage of typical responses known
    assert direct.overlap["ttc"].isnull().all()
    assert through.overlap["ttc"].sel(policy=list(targets)).notnull().all()
    assert (through.data["cohort"] == "arena").all() and through.left_out.empty
    audited = [
        command("audit", "likelihoods", one, "--clone", "clone", "--json")
        for one in (arena / "logged_data.jsonl", cache)
    ]
    first, second = (pd.DataFrame(json.loads(out)["ratios"]) for _, out, _ in audited)
    pd.testing.assert_frame_equal(first, second, rtol=1e-12)  # sums over rows in another order
