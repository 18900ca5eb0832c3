"""``cje-lab plan``: its table, JSON and file; bad input; order of rows and files."""

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cje_core.calibration.calibrated import Calibration
from cje_core.data import DataError
from cje_core.workflow import plan as _plan
from cje_core.workflow.plan import plan
from studies.cli import app as command_line
from studies.cli.planning import save
from studies.cli.planning.as_json import to_json

Frame = pd.DataFrame
Cli = Callable[..., tuple[int, str, str]]
MONEY = ("--budget", 40, "--cost-judge", 0.02, "--cost-oracle", 0.3)
QUICK = ("--replicates", 20)


def world(
    n: int = 150,
    *,
    labels: int = 60,
    policies: tuple[str, ...] = ("base", "other"),
    own: bool = False,
    noise: float = 0.15,
) -> Frame:
    """Evaluation table: S on a grid, Y = S^2 plus noise; the first policy (or each) has labels."""
    rng = np.random.default_rng(3)
    parts = []
    for k, policy in enumerate(policies):
        score = rng.integers(2, 10, n) / 10
        label = np.clip(score**2 + rng.normal(0, noise, n), 0, 1)
        label[labels if k == 0 or own else 0 :] = np.nan
        parts.append(
            Frame({"policy": policy, "prompt_id": range(n), "judge_score": score, "oracle_label": label})
        )
    return pd.concat(parts, ignore_index=True)


def write(table: Frame, directory: Path, name: str = "{policy}_responses.jsonl") -> Path:
    """Write a table in the directory format."""
    directory.mkdir(parents=True, exist_ok=True)
    for policy, rows in table.groupby("policy", sort=False):
        records = rows.drop(columns="policy").to_dict("records")
        lines = [json.dumps({k: v for k, v in r.items() if v == v}) for r in records]
        (directory / name.format(policy=policy)).write_text("".join(line + "\n" for line in lines))
    return directory


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run the command in this process; gives exit code, stdout, stderr."""

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["cje-lab", "plan", *map(str, words)])
        monkeypatch.setenv("COLUMNS", "100")
        with pytest.raises(SystemExit) as exit_:
            command_line.main()
        captured = capsys.readouterr()
        return int(exit_.value.code or 0), captured.out, captured.err

    return run


# --- the outputs ---


@pytest.mark.slow
def test_json_is_one_object_that_keeps_its_promises(cli: Cli, tmp_path: Path) -> None:
    data = write(world(), tmp_path / "data")
    replicates = 100
    options = ("--replicates", replicates, "--margin", 0.15, "--json", "--out", tmp_path / "deep" / "out")
    code, out, err = cli(data, *MONEY, *options)
    assert code == 0
    assert err.strip().endswith("plan.json, mde.png") and err.count("\n") == 1
    result = json.loads(out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert json.loads((tmp_path / "deep" / "out" / "plan.json").read_text()) == result
    told = {"pilot", "plan", "policies", "binary_judge", "contrasts", "next", "seconds", "manifest"}
    assert set(result) == told
    chosen = result["plan"]
    assert result["pilot"]["prompts"] == 150 and result["pilot"]["labelled"] == 60
    assert chosen["cost_per_prompt"] == pytest.approx(0.04) and chosen["cost_per_label"] == pytest.approx(0.3)
    probes = chosen["probes"]["other"]
    assert chosen["cost_per_probe"] == pytest.approx(0.3) and chosen["stand_ins"] == ["other"]
    assert chosen["n"] * 0.04 + (chosen["m"] + probes) * 0.3 == pytest.approx(chosen["cost"])
    assert 4 <= chosen["m"] <= chosen["n"] and chosen["cost"] <= 40
    assert set(result["policies"]) == {"base", "other"}
    base = result["policies"]["base"]
    expected = base["sigma2_eval"] / chosen["n"] + base["sigma2_cal"] / chosen["m"]
    assert base["planned_std_error"] == pytest.approx(expected**0.5)
    assert [result["policies"][p]["planned_probes"] for p in ("base", "other")] == [None, probes]
    for policy in result["policies"].values():
        relative = 5 / math.sqrt(2 * (replicates - 1))  # five Monte Carlo errors of a standard deviation
        assert policy["simulated_std_error"] == pytest.approx(policy["planned_std_error"], rel=relative)
    [pair] = result["contrasts"]
    assert (pair["first"], pair["second"]) == ("other", "base")
    assert chosen["achievable"] == all([p["held"] for p in result["policies"].values()] + [pair["held"]])
    assert chosen["replicates"] == replicates
    assert result["policies"]["base"]["probes_for_audit"] is None
    assert result["policies"]["other"]["probes_for_audit"] > 10


@pytest.mark.slow
def test_table_says_the_design_and_what_to_do(cli: Cli, tmp_path: Path) -> None:
    data = write(world(), tmp_path / "data")
    code, out, err = cli(data, *MONEY, *QUICK)
    assert (code, err) == (0, "")
    assert "pilot: 150 prompts, 60 labelled" in out
    assert "prompts for 2 policies, m = " in out
    assert "planned SE" in out and "simulated SE" in out and "other - base" in out
    assert "pilot's spend: labels make" in out and "plan's spend: " in out
    assert "check: 20 simulated studies" in out
    assert "extrapolates: n = " in out
    assert "next: judge " in out and "then cje-lab analyze" in " ".join(out.split())
    assert "label the responses of base to a random " in " ".join(out.split())
    assert all(len(line) <= 100 for line in out.splitlines())


COSTS = {"budget": 40.0, "cost_judge": 0.02, "cost_oracle": 0.3, "replicates": 20}


@pytest.mark.slow
def test_the_forecast_is_of_what_analyze_prints_and_says_what_own_labels_would_do() -> None:
    """With probes, the probe value; a plan of the paper's plug-in is an option and says what it is not."""
    table = world()
    probes = table[table["policy"] == "other"].head(30).copy()
    probes["oracle_label"] = np.clip(probes["judge_score"] ** 2, 0, 1)
    found = {
        name: to_json(plan(table, **COSTS, **options))
        for name, options in {
            "default": {},
            "probes": {"probes": probes},
            "paper": {"borrowed": "plug_in"},
            "exact": {"margin": 1e-3},
        }.items()
    }
    routes = {name: result["policies"]["other"]["route"] for name, result in found.items()}
    assert routes == {"default": "balanced", "probes": "probe_tuned", "paper": "plug_in", "exact": "balanced"}
    planned = {name: result["policies"]["other"]["planned_route"] for name, result in found.items()}
    assert planned == routes | {"default": "probe_tuned"}
    assert all(result["policies"]["base"]["route"] == "theta_aug" for result in found.values())
    assert {name: result["manifest"]["borrowed"] for name, result in found.items()} == {
        "default": "balanced", "probes": "balanced", "paper": "plug_in", "exact": "balanced"
    }  # fmt: skip
    steps = {name: " ".join(result["next"]) for name, result in found.items()}
    assert "as well as borrowing" in steps["exact"] and "the plan is of the plug-in" not in steps["exact"]
    assert "labels like those of base at like scores" in steps["default"]
    assert "The planned errors assume exact transport" in steps["exact"]
    assert "the plan is of the plug-in" in steps["paper"]
    other = found["exact"]["policies"]["other"]
    assert other["std_error_if_labelled"] > 0 and other["labels_to_match_borrowing"] >= 4
    assert found["default"]["policies"]["base"]["std_error_if_labelled"] is None
    assert (
        "rest on their own probes" in steps["probes"] and "rest on their own probes" not in steps["default"]
    )
    probed = found["probes"]["policies"]["other"]
    assert probed["variance_probes"] > 0 == other["variance_probes"]
    assert probed["labels_to_match_borrowing"] is None
    assert found["probes"]["policies"]["other"]["probes_for_audit"] > 0


@pytest.mark.slow
def test_a_policy_that_would_be_refused_gets_a_line_and_no_number(cli: Cli, tmp_path: Path) -> None:
    """The judge's scores are shuffled: nothing can be borrowed, and base's own labels are planned all the same."""
    table = world(policies=("base", "other", "third"))
    table["judge_score"] = np.random.default_rng(0).permutation(table["judge_score"].to_numpy())
    words = (write(table, tmp_path / "data"), *MONEY, *QUICK)
    code, out, _ = cli(*words, "--json")
    assert code == 0
    result = json.loads(out)
    for name in ("other", "third"):
        policy = result["policies"][name]
        assert policy["status"] == "uninformative_judge" and "label this policy" in policy["needs_labels"]
        for number in ("sigma2_cal", "planned_std_error", "simulated_std_error", "std_error_if_labelled"):
            assert policy[number] is None
        assert sum(step.startswith(f"no forecast for {name}: ") for step in result["next"]) == 1
    assert result["policies"]["base"]["planned_std_error"] > 0
    assert result["policies"]["base"]["needs_labels"] is None
    for pair in result["contrasts"]:
        assert pair["planned_mde"] is pair["simulated_power"] is None
    _, text, _ = cli(*words)
    assert "uninformative_judge" in text and "next: no forecast for other" in text
    assert "other - base  refused" in text


@pytest.mark.slow
def test_labels_that_contradict_each_other_lend_nothing_to_the_plan_either(cli: Cli, tmp_path: Path) -> None:
    """The judge means the same for c as for a, or as for b, and nobody knows which: analyze refuses it."""
    table = world(policies=("a", "b", "c"), own=True)
    table.loc[table["policy"] == "c", "oracle_label"] = np.nan
    table.loc[table["policy"] == "b", "oracle_label"] *= 0.2
    words = (write(table, tmp_path / "data"), *MONEY, *QUICK)
    code, out, _ = cli(*words, "--json", "--out", tmp_path / "out")
    assert code == 0
    result = json.loads(out)
    refused = result["policies"]["c"]
    assert refused["refused_by"] == ["agreement"] and refused["status"] == "level_refused"
    assert refused["planned_std_error"] is refused["simulated_std_error"] is refused["held"] is None
    m = result["plan"]["m"]
    probes = result["plan"]["probes"]["c"]
    assert probes >= 10 and result["plan"]["cost"] == pytest.approx(
        result["plan"]["n"] * 0.06 + m * 0.6 + probes * 0.3
    )
    assert refused["std_error_of_own_labels_at_most"] == pytest.approx(0.5 / math.sqrt(probes))
    assert result["plan"]["achievable"] is not None
    _, text, _ = cli(*words)
    words_in = " ".join(text.split())
    assert "refused by agreement" in text and "c - a refused" in words_in
    assert (
        f"(the plan's {probes} probes of it give a standard error of at most" in words_in
        and "why probes: c may not borrow" in words_in
    )


@pytest.mark.slow
def test_what_labels_make_of_the_variance_is_told_apart_where_everything_is_labelled(
    cli: Cli, tmp_path: Path
) -> None:
    words = ("--replicates", 20)
    _, text, _ = cli(write(world(labels=150), tmp_path / "all"), *MONEY, *words)
    assert "analyze counts none for base: every response is labelled" in " ".join(text.split())
    _, text, _ = cli(write(world(), tmp_path / "some"), *MONEY, *words)
    assert "analyze counts none" not in text


@pytest.mark.slow
def test_a_pilot_that_judged_a_policy_in_part_is_said_to_be_kept() -> None:
    table = world()
    whole = to_json(plan(table, **COSTS))
    assert not any("the pilot judged" in step for step in whole["next"])
    part = to_json(
        plan(table.drop(table.index[(table["policy"] == "other") & (table["prompt_id"] < 50)]), **COSTS)
    )
    assert sum("of its 150 prompts the pilot judged other on 100:" in step for step in part["next"]) == 1
    assert part["plan"]["cost_per_prompt"] == pytest.approx(0.02 * 250 / 150)


@pytest.mark.slow
def test_the_reference_is_a_policy_with_a_number() -> None:
    table = world(policies=("a", "b", "c"), own=True)
    table.loc[(table["policy"] == "a") & table["oracle_label"].notna(), "oracle_label"] = 1.0
    record = to_json(plan(table, **COSTS, calibration_policy="b"))
    assert {pair["second"] for pair in record["contrasts"]} == {"b"}
    [known] = [pair for pair in record["contrasts"] if pair["first"] == "c"]
    assert known["planned_mde"] > 0
    [equal] = [pair for pair in record["contrasts"] if pair["first"] == "a"]
    assert equal["planned_mde"] is equal["held"] is None and equal["reason"] == "no forecast for a"
    assert "all its labels are equal, at an end of the scale" in record["policies"]["a"]["no_forecast"]


@pytest.mark.slow
def test_labels_are_shared_or_each_policys_own() -> None:
    costs = {"budget": 40.0, "cost_judge": 0.02, "cost_oracle": 0.3, "replicates": 20}
    shared = plan(world(), **costs, n_policies=5)
    assert (shared.cost_per_prompt, shared.cost_per_label) == pytest.approx((0.1, 0.3))
    own = plan(world(own=True), **costs)
    assert (own.cost_per_prompt, own.cost_per_label) == pytest.approx((0.04, 0.6))
    each = plan(world(own=True), **costs, n_policies=5)
    assert (each.cost_per_prompt, each.cost_per_label) == pytest.approx((0.1, 1.5))
    assert own.probes == {}
    assert "label the responses of every policy to" in to_json(own)["next"][0]
    assert "label the responses of base to" in to_json(shared)["next"][0]
    alone = plan(world(policies=("base",)), **costs)
    assert (alone.cost_per_prompt, alone.cost_per_label) == pytest.approx((0.02, 0.3))
    [record] = to_json(alone)["contrasts"]
    assert record["first"] == record["second"] == "base"


@pytest.mark.slow
def test_a_bad_policy_does_not_take_the_budget() -> None:
    """A policy that lives where the pilot has no label has a huge component; the plan is for the median policy."""
    table = world(policies=("base", "other", "third"))
    costs = {"budget": 40.0, "cost_judge": 0.02, "cost_oracle": 0.3, "replicates": 20}
    usual = plan(table, **costs)
    extreme = table.copy()
    at = extreme["policy"] == "third"
    extreme.loc[at, "judge_score"] = 0.2
    lost = plan(extreme, **costs)
    assert float(lost.components.sigma2_cal.sel(policy="third")) > 3 * float(
        usual.components.sigma2_cal.sel(policy="third")
    )
    assert abs(lost.plan.m / lost.plan.n - usual.plan.m / usual.plan.n) < 0.5 * usual.plan.m / usual.plan.n


@pytest.mark.slow
def test_a_plan_inside_the_pilot_does_not_extrapolate_and_a_huge_one_is_not_simulated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inside = plan(world(400, labels=150), budget=20.0, cost_judge=0.02, cost_oracle=0.3, replicates=20)
    assert inside.outside == [] and not any(
        "leaves the pilot's range" in step for step in to_json(inside)["next"]
    )
    monkeypatch.setattr(_plan, "LARGEST_STUDY", 100)
    huge = plan(world(), budget=40.0, cost_judge=0.02, cost_oracle=0.3)
    assert huge.achievable is None
    result = to_json(huge)
    assert result["plan"]["achievable"] is None and result["contrasts"] == []
    assert "simulated_std_error" not in result["policies"]["base"]


@pytest.mark.slow
def test_a_plan_that_misses_says_so(monkeypatch: pytest.MonkeyPatch, cli: Cli, tmp_path: Path) -> None:
    honest = _plan.simulate_plan
    monkeypatch.setattr(
        _plan,
        "simulate_plan",
        lambda *a, **k: (s := honest(*a, **k)).assign(held=s.held & (s.policy != "other")),
    )
    code, out, _ = cli(write(world(), tmp_path / "data"), *MONEY, *QUICK)
    assert code == 0
    assert "does NOT bear the plan out" in out and " missed" in out
    assert "count on the simulated numbers" in out


@pytest.mark.slow
def test_a_budget_that_detects_nothing_on_the_scale_says_so(cli: Cli, tmp_path: Path) -> None:
    """Four labelled prompts of each policy: the detectable difference would be several times the scale's width."""
    money = ("--budget", 4, "--cost-judge", 0.1, "--cost-oracle", 0.4)
    words = (write(world(noise=2.0, own=True), tmp_path / "data"), *money, *QUICK)
    code, out, _ = cli(*words, "--json", "--out", tmp_path / "out")
    assert code == 0
    result = json.loads(out)
    [pair] = result["contrasts"]
    assert pair["planned_mde"] is pair["simulated_power"] is pair["held"] is None
    assert "no difference that the oracle scale allows (its width is 1)" in pair["reason"]
    assert any("raise the budget" in step for step in result["next"])
    _, table, _ = cli(*words)
    assert "nothing on the scale" in table and "power 1.00" not in table


@pytest.mark.slow
def test_probes_give_the_audit_its_spread() -> None:
    table = world()
    rows = table[table["policy"] == "other"].head(30).copy()
    rows["oracle_label"] = np.clip(
        rows["judge_score"] ** 2 + np.random.default_rng(1).normal(0, 0.3, 30), 0, 1
    )
    costs = {"budget": 40.0, "cost_judge": 0.02, "cost_oracle": 0.3, "replicates": 20, "margin": 0.15}
    assert plan(table, probes=rows, **costs).probes["other"] > plan(table, **costs).probes["other"]


@pytest.mark.slow
def test_nothing_depends_on_the_order_of_rows_and_files(tmp_path: Path) -> None:
    table = world(policies=("b", "a", "c"))
    costs = {
        "budget": 40.0,
        "cost_judge": 0.02,
        "cost_oracle": 0.3,
        "replicates": 20,
        "calibration_policy": "b",
    }
    shuffled = table.sample(frac=1, random_state=1)
    results = [
        to_json(plan(source, **costs))
        for source in (table, shuffled, write(shuffled, tmp_path / "data"), write(table, tmp_path / "other"))
    ]
    for result in results:
        del result["seconds"], result["manifest"]
    assert results[0] == results[1] == results[2] == results[3]


@pytest.mark.slow
def test_covariates_and_calibrator_enter_pilot_and_check() -> None:
    """The label depends on the covariate, which the components and the simulation must see."""
    table = world()
    rng = np.random.default_rng(2)
    table["age"] = rng.uniform(0, 1, len(table))
    table["oracle_label"] = (0.5 * table["judge_score"] ** 2 + 0.5 * table["age"]).where(
        table["oracle_label"].notna()
    )
    costs = {"budget": 40.0, "cost_judge": 0.02, "cost_oracle": 0.3, "replicates": 20}
    plain, seen = plan(table, **costs), plan(table, calibration=Calibration(["age"]), **costs)
    paper = costs | {"borrowed": "plug_in"}  # the balanced one-step balances the covariate all the same
    with pytest.raises(DataError, match="covariates would not be used"):
        plan(table, calibration=Calibration(["age"], "monotone"), **paper)
    forced = plan(table, calibration=Calibration(mode="monotone"), **paper)
    cal = [float(p.components.sigma2_cal.sel(policy="base")) for p in (plain, seen, forced)]
    assert cal[1] < 0.5 * cal[0] and cal[2] == cal[0]
    spread = [float(p.check.simulated_std_error.sel(policy="base")) for p in (plain, seen)]
    assert spread[1] < spread[0]
    pd.testing.assert_frame_equal(forced.check.to_dataframe(), plan(table, **paper).check.to_dataframe())
    audit = table[table["policy"] == "other"].head(60).copy()
    audit["oracle_label"] = 0.5 * audit["judge_score"] ** 2 + 0.5 * audit["age"]
    needed = [
        plan(table, probes=audit, calibration=Calibration(names), margin=0.1, **costs).probes["other"]
        for names in ([], ["age"])
    ]
    assert needed[1] < 0.5 * needed[0]
    manifest = to_json(seen)["manifest"]
    assert (manifest["covariates"], manifest["calibrator"]) == (["age"], "default")


@pytest.mark.slow
def test_the_figure_is_drawn_at_the_power_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    draw = save.mde_contours

    def record(surface, *, ax, **options):
        seen.append((surface.attrs["power"], draw(surface, ax=ax, **options)))
        return ax

    monkeypatch.setattr(save, "mde_contours", record)
    costs = {"budget": 40.0, "cost_judge": 0.02, "cost_oracle": 0.3, "replicates": 20}
    save._contours(plan(world(), power=0.9, **costs))
    assert [power for power, _ in seen] == [0.9, 0.9]
    titles = [axes.get_title(loc="left") for _, axes in seen]
    assert [title.splitlines()[0] for title in titles] == ["base", "other"]
    assert all("at 90% power" in title and "star: the plan" in title for title in titles)


# --- bad input ---


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--budget", 1, "--cost-judge", 0.02, "--cost-oracle", 0.3], "it takes at least 1.36"),
        (
            ["--budget", -1, "--cost-judge", 0.02, "--cost-oracle", 0.3],
            "--budget -1: it must be a positive number",
        ),
        (
            ["--budget", 1, "--cost-judge", 0, "--cost-oracle", 0.3],
            "--cost-judge 0: it must be a positive number",
        ),
        (["--budget", 1, "--cost-judge", 1, "--cost-oracle", "nan"], "--cost-oracle nan: it must be"),
        (["--budget", 1e300, "--cost-judge", 0.02, "--cost-oracle", 0.3], "pays for more than 1e+10 prompts"),
        (["--budget", 1e300, "--cost-judge", 1e308, "--cost-oracle", 1e308], "--budget 1e+300"),
        (["--budget", 100, "--cost-judge", 1e-300, "--cost-oracle", 0.3], "pays for more than 1e+10 prompts"),
        (["--budget", "much", "--cost-judge", 1, "--cost-oracle", 1], "Invalid value for '--budget'"),
        ([*MONEY, "--policies", 0], "--policies 0: it must lie between 1 and 1e+10"),
        ([*MONEY, "--policies", 10**400], "it must lie between 1 and 1e+10"),
        ([*MONEY, "--power", 1.2], "--power 1.2"),
        ([*MONEY, "--replicates", 3], "--replicates 3: a spread needs at least 20"),
        ([*MONEY, "--margin", 0], "--margin 0"),
        ([*MONEY, "--calibrator", "spline"], "--calibrator spline"),
        ([*MONEY, "--borrowed", "one_step"], "--borrowed one_step: use one of balanced, plug_in"),
        ([*MONEY, "--covariate", "age"], "leave --covariate age out"),
        ([*MONEY, "--direction", "up"], "--direction up"),
        ([*MONEY, "--calibration-policy", "x"], "--calibration-policy x"),
        (["--cost-judge", 1, "--cost-oracle", 1], "--budget"),
    ],
)
def test_bad_options_are_one_line(cli: Cli, tmp_path: Path, words: list[object], message: str) -> None:
    code, out, err = cli(write(world(60, labels=20), tmp_path / "data"), *words)
    assert (code, out) == (2, "")
    assert err.startswith("cje-lab: ") and err.count("\n") == 1
    assert message in err


def test_pilots_without_enough_to_plan_with(cli: Cli, tmp_path: Path) -> None:
    flat = world()
    flat["judge_score"] = 0.5
    flat.loc[flat["oracle_label"].notna(), "oracle_label"] = 1.0
    cases = {
        "none": (world(labels=0), "the pilot has 0 labelled prompts"),
        "few": (world(labels=3), "the pilot has 3 labelled prompts"),
        "flat": (flat, "the pilot has no variance to plan with: all oracle labels are equal"),
    }
    for name, (table, message) in cases.items():
        code, out, err = cli(write(table, tmp_path / name), *MONEY)
        assert (code, out) == (2, "")
        assert message in err and err.count("\n") == 1
    code, _, err = cli(tmp_path / "absent", *MONEY)
    assert code == 2 and err.count("\n") == 1
    (tmp_path / "file").write_text("x")
    code, _, err = cli(tmp_path / "none", *MONEY, "--out", tmp_path / "file")
    assert code == 2 and "is a file" in err


# --- real data ---


@pytest.mark.slow
def test_arena_sample(arena: Path, cli: Cli) -> None:
    """A peer's components of base are .0120 and .0490; its plan for 5000 at .01 and .16 labels 50.6%."""
    words = [arena / "fresh_draws", "--probes", arena / "probe_slice", "--replicates", 20, "--json"]
    code, out, _ = cli(*words, "--budget", 60, "--cost-judge", 0.01, "--cost-oracle", 0.16, "--policies", 1)
    assert code == 0
    result = json.loads(out)
    base = result["policies"]["base"]
    assert abs(base["sigma2_eval"] - 0.0120) < 2 * base["sigma2_eval_se"]
    assert abs(base["sigma2_cal"] - 0.0490) < 2 * base["sigma2_cal_se"]
    assert base["planned_std_error"] < 0.02
    assert (
        50 < result["policies"]["unhelpful"]["probes_for_audit"] < 500
    )  # given f its own error fills no margin
    assert "unhelpful" in " ".join(result["next"])
    assert 50 < result["policies"]["clone"]["probes_for_audit"] < 500
    assert result["manifest"]["calibration_policy"] == ["base"]


@pytest.mark.slow
def test_a_binary_judge_is_told_how_to_split_labels(cli: Cli, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    n, parts = 300, []
    for k, (policy, share) in enumerate((("base", 0.5), ("other", 0.8))):
        good = rng.random(n) < share
        judged = np.where(good, rng.random(n) < 0.9, rng.random(n) < 0.3).astype(float)
        label = np.where((np.arange(n) < 150) & (k == 0), good.astype(float), np.nan)
        parts.append(
            Frame({"policy": policy, "prompt_id": range(n), "judge_score": judged, "oracle_label": label})
        )
    data = write(pd.concat(parts, ignore_index=True), tmp_path / "data")
    code, out, _ = cli(data, *MONEY, *QUICK, "--json")
    split = json.loads(out)["binary_judge"]["other"]
    plan_ = json.loads(out)["plan"]
    assert code == 0 and split["m_good"] + split["m_bad"] == split["m_pass"] + split["m_fail"] == plan_["m"]
    assert split["std_error_class"] <= split["std_error_random"]
    code, out, _ = cli(data, *MONEY, *QUICK)
    assert "binary judge: rogan_gladen of other" in " ".join(out.split())
