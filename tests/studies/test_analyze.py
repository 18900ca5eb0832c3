"""``cje-lab analyze``: its table, JSON and plot; order of rows and files; direction and calibrator."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from analysis import Cli, printed, probes, world, write

from cje_core.calibration.calibrated import Calibration
from cje_core.data import DataError
from cje_core.workflow.analyze import analyze
from studies.cli.analysis.as_json import to_json
from studies.cli.analysis.save import save

# --- the three outputs ---


def test_json_has_the_contract_shape(cli: Cli, tmp_path: Path) -> None:
    table = world()
    data = write(table, tmp_path / "data")
    audit = write(probes(table, "other", 20, 0.0), tmp_path / "probes", "{policy}_probe.jsonl")
    code, out, err = cli(data, "--probes", audit, "--json")
    assert (code, err) == (0, "")
    result = json.loads(out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    told = {
        "policies",
        "contrasts",
        "best",
        "agreement",
        "assumptions",
        "order",
        "cohorts",
        "row_flow",
        "seconds",
        "manifest",
    }
    assert set(result) == told
    assert set(result["policies"]) == {"base", "other"}
    for policy in result["policies"].values():
        contract = {"value", "estimates", "level", "source", "flags", "transport", "overlap"}
        more = {"refused_by", "posterior", "gates", "gate_warnings", "bounds", "recommended", "if_biased"}
        more |= {"probes_of_unknown_prompts", "rank", "serial", "log_ratios", "ratio_calibration"}
        more |= {"support", "label_next", "gate_values", "drift", "unseen_bound"}
        more |= {"judged_by_itself", "online_check"}
        assert set(policy) == contract | more
        assert policy["overlap"] is None and policy["posterior"] is None
        assert set(policy["gates"].values()) <= {"pass", "warn", "fail", "unknown"}
        judged = {"interval_with_fit", "probes_to_pass", "verdict_of_audit", "verdict_of_posterior"}
        assert set(policy["transport"]) == {"verdict", "residual", "interval"} | judged
        assert set(policy["estimates"]) == {"raw_judge", "labels_only", "direct", "direct_corrected"}
        for estimate in policy["estimates"].values():
            assert set(estimate) == {"estimate", "std_error", "interval", "status"}
            if estimate["estimate"] is not None:
                low, high = estimate["interval"]
                assert low <= estimate["estimate"] <= high
    chosen = {name: policy["recommended"]["estimator"] for name, policy in result["policies"].items()}
    assert chosen == {"base": "direct", "other": "direct_corrected"}
    for name, policy in result["policies"].items():
        stands = policy["estimates"][chosen[name]]
        assert policy["value"] == {k: stands[k] for k in ("estimate", "interval")} | {"from": chosen[name]}
    assert result["policies"]["base"]["estimates"]["direct"]["status"] == "ok"
    assert result["policies"]["other"]["estimates"]["labels_only"]["status"] == "no_labels"
    assert result["policies"]["other"]["estimates"]["labels_only"]["interval"] == [None, None]
    [pair] = result["contrasts"]
    assert (pair["first"], pair["second"]) == ("base", "other")
    assert result["manifest"]["seed"] == 1
    assert result["manifest"]["counts"]["other"] == {"responses": 60, "labels": 0, "probes": 20}


@pytest.mark.slow
def test_out_gets_json_and_plots(cli: Cli, tmp_path: Path) -> None:
    data = write(world(), tmp_path / "data")
    code, out, _ = cli(data, "--json", "--out", tmp_path / "deep" / "out")
    assert code == 0
    files = sorted(p.name for p in (tmp_path / "deep" / "out").iterdir())
    drawn = ["calibration", "forest", "reliability", "sensitivity_differences", "sensitivity_levels"]
    drawn += ["transport_residuals", "uncertainty_share", "win_matrix"]
    pictures = [f"{name}.{kind}" for name in drawn for kind in ("png", "svg")]
    assert files == sorted([".cje-lab-files", "estimates.json", "index.html", "ledger.nc", *pictures])
    with xr.open_datatree(tmp_path / "deep" / "out" / "ledger.nc", engine="netcdf4") as ledgers:
        assert set(ledgers.children) == {"raw_judge", "labels_only", "direct", "direct_corrected"}
        assert ledgers["direct"]["level"].values.tolist() == ["reported", "assumed"]
    written = json.loads((tmp_path / "deep" / "out" / "estimates.json").read_text())
    printed = json.loads(out)
    assert written == printed
    assert (tmp_path / "deep" / "out" / "forest.png").read_bytes().startswith(b"\x89PNG")
    assert "</svg>" in (tmp_path / "deep" / "out" / "forest.svg").read_text()


@pytest.mark.parametrize("width", [80, 120])
def test_table_shows_every_column_at_common_widths(width: int) -> None:
    table = world(policies=("base", "a_policy_with_quite_a_long_name"))
    text = printed(analyze(table), width)
    for word in (
        "direct",
        "[95% interval]",
        "judge",
        "only",
        "residual",
        "level",
        "reported",
        "assumed",
        "labels of",
        "NOT_CHECKED",
    ):
        assert word in text
    assert max(map(len, text.splitlines())) <= width


def test_scale_decides_the_decimals() -> None:
    table = world()
    table["oracle_label"] *= 100
    table["judge_score"] *= 10
    result = analyze(table, judge_range=(0, 10), oracle_range=(0, 100))
    unit = analyze(world())
    assert np.isclose(result.transport.attrs["margin"], 5.0)
    a, b = (to_json(r)["policies"]["other"]["estimates"]["direct"] for r in (result, unit))
    assert np.isclose(a["estimate"], 100 * b["estimate"]) and np.allclose(
        a["interval"], 100 * np.array(b["interval"])
    )
    assert re.search(r"\d\d\.\d \[\d\d\.\d, \d\d\.\d\]", printed(result, 100))


# --- order never matters ---


@pytest.mark.slow
def test_order_of_rows_and_files_changes_no_printed_digit(cli: Cli, tmp_path: Path) -> None:
    table = world(120, labels=60, policies=("base", "other", "third"))
    audit = probes(table, "other", 30, -0.2)
    rng = np.random.default_rng(2)
    outputs, numbers = set(), set()
    for k in range(3):
        mixed = table if k == 0 else table.iloc[rng.permutation(len(table))]
        data = write(mixed, tmp_path / f"data{k}")
        probe = write(
            audit.iloc[rng.permutation(len(audit))], tmp_path / f"probes{k}", "{policy}_probe.jsonl"
        )
        code, out, _ = cli(data, "--probes", probe)
        assert code == 0
        outputs.add(out)
        result = json.loads(cli(data, "--probes", probe, "--json")[1])
        numbers.add(json.dumps([result["policies"], result["contrasts"]]))
    one_file = tmp_path / "one.csv"
    table.iloc[rng.permutation(len(table))].to_csv(one_file, index=False)
    outputs.add(cli(one_file, "--probes", tmp_path / "probes0")[1])
    assert len(outputs) == 1 and len(numbers) == 1


@pytest.mark.slow
def test_plots_are_reproducible(tmp_path: Path) -> None:
    table = world(policies=("base", "other"))
    shuffled = table.sample(frac=1, random_state=4)
    for name, source in (("a", table), ("b", shuffled)):
        save(analyze(source), tmp_path / name)
    for kind in ("png", "svg"):
        assert (tmp_path / "a" / f"forest.{kind}").read_bytes() == (
            tmp_path / "b" / f"forest.{kind}"
        ).read_bytes()


@pytest.mark.slow
def test_seed_governs_what_is_random() -> None:
    runs = (analyze(world(), seed=seed, chosen=["projection_posterior"]) for seed in (1, 1, 2))
    one, same, other = (run.estimates["projection_posterior"].interval.values for run in runs)
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


# --- options ---


def test_estimators_can_be_chosen_and_do_not_disturb_each_other() -> None:
    alone = analyze(world(), chosen=["direct"])
    together = analyze(world())
    np.testing.assert_array_equal(alone.estimates["direct"].interval, together.estimates["direct"].interval)
    assert list(alone.estimates) == ["direct"]
    other = analyze(world(), chosen=["raw_judge"])
    assert other.primary == "raw_judge" and "raw_judge" in printed(other, 80)


@pytest.mark.slow
def test_declared_direction_mends_an_inverted_judge(cli: Cli, tmp_path: Path) -> None:
    table = world()
    straight = to_json(analyze(table))["policies"]
    table["judge_score"] = 1 - table["judge_score"]
    turned = to_json(analyze(table, calibration=Calibration(direction="decreasing")))["policies"]
    for policy, record in straight.items():
        for name in ("estimate", "std_error"):
            expected = pytest.approx(record["estimates"]["direct"][name], abs=1e-9)
            assert turned[policy]["estimates"]["direct"][name] == expected
    assert to_json(analyze(table))["policies"]["base"]["estimates"]["direct"]["status"] == "inverted_judge"
    code, _, err = cli(write(table, tmp_path / "data"), "--direction", "up")
    assert code == 2
    assert err == "cje-lab: --direction up: use one of increasing, decreasing\n"


@pytest.mark.slow
def test_a_mirrored_judge_with_its_direction_declared_gives_the_same_numbers() -> None:
    """For every estimator that files can feed, whether it fits a calibrator or reads the score as it is."""
    chosen = [
        "direct",
        "raw_judge",
        "labels_only",
        "ppi",
        "ppi_plus_plus",
        "rogan_gladen",
        "bayes_rogan_gladen",
    ]
    table = world()
    table["oracle_label"] = (table["oracle_label"] > 0.3).astype(float).where(table["oracle_label"].notna())
    straight = analyze(table, chosen=chosen, judge_range=(0.2, 0.9))
    mirrored = table.assign(judge_score=(1.1 - table["judge_score"]).clip(0.2, 0.9))
    turned = analyze(
        mirrored, chosen=chosen, judge_range=(0.2, 0.9), calibration=Calibration(direction="decreasing")
    )
    for name in chosen:
        for variable in ("estimate", "interval"):
            np.testing.assert_allclose(
                turned.estimates[name][variable], straight.estimates[name][variable], atol=1e-9, err_msg=name
            )
    ignored = analyze(mirrored, chosen=["raw_judge"], judge_range=(0.2, 0.9)).estimates["raw_judge"]
    assert (np.abs(ignored["estimate"] - straight.estimates["raw_judge"]["estimate"]) > 0.01).any()
    assert to_json(turned)["manifest"]["direction"] == "decreasing"


def test_an_unknown_calibrator_is_one_line(cli: Cli, tmp_path: Path) -> None:
    code, _, err = cli(write(world(), tmp_path / "data"), "--calibrator", "spline")
    assert code == 2 and err.strip() == (
        "cje-lab: --calibrator spline: use one of default, auto, monotone, two_stage, two_stage_monotone"
    )


def with_words(far: float) -> pd.DataFrame:
    """A covariate that runs over [0, 1] where labels are, and `far` beyond for the second policy."""
    table = world(200, labels=150)
    table["words"] = np.random.default_rng(9).uniform(size=len(table)) + far * (table["policy"] == "other")
    return table


def test_what_lies_outside_the_labels_is_named() -> None:
    text = " ".join(printed(analyze(with_words(2.0), calibration=Calibration(["words"])), 100).split())
    assert "refused: other: too many of the policy's responses lie where hardly any label" in text
    assert "(outside the labels' range: words 100% of responses)" in text


@pytest.mark.slow
def test_covariates_that_the_calibrator_does_not_see() -> None:
    table = with_words(0.0)
    options = {"calibration": Calibration(["words"], "monotone")}
    line = "covariates (words): the calibrator in use sees the judge's score alone; what is borrowed is balanced on"
    assert line in " ".join(printed(analyze(table, **options), 100).split())
    both = " ".join(printed(analyze(table, bayes="gibbs", **options), 100).split())
    assert f"{line} them and the posterior sees them" in both
    assert "covariates (" not in printed(analyze(table, calibration=Calibration(["words"])), 100)
    for borrowed in ("one_step", "plug_in"):
        with pytest.raises(
            DataError, match=f"calibrator='monotone': it sees .* borrowed='{borrowed}' balances"
        ):
            analyze(table, borrowed=borrowed, **options)
    alone = printed(analyze(table, borrowed="one_step", bayes="gibbs", **options), 200)
    assert "sees the judge's score alone; the posterior sees them" in alone


# --- ranks, blocks of time, log ratios ---


def test_ranks_are_those_of_the_values_that_stand(cli: Cli, tmp_path: Path) -> None:
    table = world(200, labels=120, policies=("base", "other", "few"))
    table = table[(table["policy"] != "few") | (table["prompt_id"] < 3)]  # three responses: no interval
    low = table["policy"] == "other"
    table.loc[low, "judge_score"] = 0.2
    code, out, _ = cli(write(table, tmp_path / "data"), "--json", "--estimator", "direct")
    found = json.loads(out)["policies"]
    assert code == 0
    stands = [name for name, policy in found.items() if policy["value"] is not None]
    assert [name for name, policy in found.items() if policy["rank"] is not None] == stands
    assert found["base"]["rank"]["estimate"] == 1 and found["base"]["rank"]["may_be_best"]
    assert sum(found[name]["rank"]["p_best"] for name in stands) == pytest.approx(1.0)
    code, text, _ = cli(tmp_path / "data", "--estimator", "direct")
    assert "ranks that hold all together with 95%, and P(best), if what is assumed holds: base 1" in " ".join(
        text.split()
    )


@pytest.mark.slow
def test_blocks_of_time(cli: Cli, tmp_path: Path) -> None:
    table = world(80, labels=60)
    table["day"] = table["prompt_id"] % 7
    data = write(table, tmp_path / "data")
    code, out, _ = cli(data, "--block", "auto", "--time", "day", "--json", "--out", tmp_path / "out")
    base = json.loads(out)["policies"]["base"]["serial"]
    assert code == 0 and base["order"] == "day" and base["std_error_serial"] > 0
    with xr.open_datatree(tmp_path / "out" / "ledger.nc", engine="netcdf4") as ledgers:
        kept = ledgers["direct"]["std_error_serial"].sel(policy="base").item()
    assert kept == base["std_error_serial"]
    code, out, _ = cli(data, "--block", 4)
    assert code == 0 and "prompts in order of the rows" in out and " 4.0" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--block", "long"], "--block long: give a mean length of at least 1, or auto"),
        (["--block", "900"], "--block 900: it must lie between 1 and the 60 prompts"),
        (["--block", "auto", "--time", "day"], "no row has the field 'day'; add it, or name another"),
        (["--time", "draw_idx"], "--time draw_idx: it puts prompts in order for --block; add --block auto"),
    ],
)
def test_bad_blocks_are_one_line(cli: Cli, tmp_path: Path, words: list[str], message: str) -> None:
    code, out, err = cli(write(world(), tmp_path / "data"), *words, "--out", tmp_path / "out")
    assert (code, out) == (2, "") and len(err.strip().splitlines()) == 1 and message in err
    assert not (tmp_path / "out").exists()


def test_a_policy_that_is_the_judge_itself_is_named_in_every_output(cli: Cli, tmp_path: Path) -> None:
    """The judge's model by option, by the attribute of evaluation data, or not known at all."""
    rows = world(60, labels=40).replace({"policy": {"other": "gpt-4o-mini"}})
    data = write(rows, tmp_path / "data")
    words = "caution for gpt-4o-mini: the judge (openai/gpt-4o-mini-2024-07-18) is the same model"
    asked = (data, "--judge-model", "openai/gpt-4o-mini-2024-07-18", "--calibration-policy", "base")
    code, shown, _ = cli(*asked)
    assert code == 0 and words in " ".join(shown.split())
    assert "probe 50 of its responses before its calibration is believed" in " ".join(shown.split())
    code, out, _ = cli(*asked, "--json", "--out", tmp_path / "out")
    found = json.loads(out)
    assert {name: at["judged_by_itself"] for name, at in found["policies"].items()} == {
        "base": False,
        "gpt-4o-mini": True,
    }
    assert found["manifest"]["judge_model"] == "openai/gpt-4o-mini-2024-07-18"
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert "is the same model and may prefer its own answers" in " ".join(page.split())
    unknown = analyze(data)
    assert unknown.own_judge == [] and to_json(unknown)["policies"]["base"]["judged_by_itself"] is None
    held = unknown.data.assign_attrs(judge_model="gpt-4o-mini")
    assert analyze(held).own_judge == ["gpt-4o-mini"]
