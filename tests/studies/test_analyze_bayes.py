"""``cje-lab analyze --bayes``: posteriors beside the estimates, in table, JSON, plot and files."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from analysis import (
    Cli,
    Frame,
    children_cpu,
    in_plot,
    named_in_plot,
    printed,
    probes,
    run_installed,
    world,
    write,
)

from cje_core.calibration.calibrated import Calibration
from cje_core.estimators import bayes_direct
from cje_core.streams import generator
from cje_core.workflow.analyze import analyze
from cje_core.workflow.posterior import N_DRAWS
from studies.cli.analysis.as_json import to_json
from studies.cli.analysis.save import save

# --- posteriors beside the estimates ---


def believed(table: Frame, **options: Any) -> Any:
    """An analysis with posteriors, and probes of the second policy if there are any."""
    return analyze(table, bayes="gibbs", **options)


# what `cje-lab` does, with runs of NUTS that need not converge
SHORT_RUNS = """
import sys
from studies.cli.brief import be_brief
be_brief(sys.argv)
from cje_core.bayes.models import nuts
whole = nuts.NutsOptions
nuts.NutsOptions = lambda engine, n_draws: whole(engine, n_draws=100, tune=50, chains=2)
from studies.cli.app import main
main()
"""


@pytest.mark.slow
def test_nutpie_from_the_command_to_its_file(tmp_path: Path) -> None:
    """In a process that hides Dask, as the command's does."""
    data = write(world(60), tmp_path / "data")
    words = [
        "analyze",
        str(data),
        "--bayes",
        "--bayes-engine",
        "nutpie",
        "--out",
        str(tmp_path / "out"),
        "--json",
    ]
    done = subprocess.run(
        [sys.executable, "-c", SHORT_RUNS, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["manifest"]["bayes_engine"] == "nutpie"
    with xr.open_datatree(tmp_path / "out" / "posterior.nc") as tree:
        draws = tree["posterior"].to_dataset()
        assert draws.sizes["chain"] == 2 and all(np.isfinite(one).any() for one in draws.values())


@pytest.mark.slow
def test_posteriors_stand_beside_the_estimates_in_table_json_and_files(cli: Cli, tmp_path: Path) -> None:
    table = world(200, labels=150)
    data = write(table, tmp_path / "data")
    audit = write(probes(table, "other", 60, -0.3), tmp_path / "probes", "{policy}_probe.jsonl")
    code, out, _ = cli(data, "--probes", audit, "--bayes", "--json", "--out", tmp_path / "out")
    assert code == 0
    result = json.loads(out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    other = result["policies"]["other"]
    assert list(other["estimates"]) == [
        "direct", "direct_corrected", "labels_only", "raw_judge", "bayes_direct", "bayes_corrected"
    ]  # fmt: skip
    posterior = other["posterior"]
    assert posterior["value_from"] == "bayes_corrected" and posterior["p_shift_within_margin"] < 0.01
    assert -0.4 < posterior["shift"] < -0.2 and posterior["p_best"] < 0.01
    base = result["policies"]["base"]["posterior"]
    assert base["value_from"] == "bayes_direct" and base["p_best"] > 0.99 and base["shift"] is None
    assert base["status"] == {"bayes_direct": "ok", "bayes_corrected": "no_probes"}
    assert result["manifest"]["bayes_engine"] == "gibbs"
    assert (tmp_path / "out" / "posterior.nc").exists()
    text = cli(data, "--probes", audit, "--bayes")[1]
    for words in ("posterior", "P(best)", "P(|shift|", "probe-corrected", "<0.001"):
        assert words in text
    value = other["estimates"]["bayes_corrected"]
    assert f"{value['estimate']:.3f} [{value['interval'][0]:.3f}, {value['interval'][1]:.3f}]" in text


def test_without_bayes_nothing_of_it_is_shown() -> None:
    result = analyze(world())
    record = to_json(result)
    assert record["policies"]["base"]["posterior"] is None and record["manifest"]["bayes_engine"] is None
    assert "posterior" not in printed(result, 100) and "bayes_direct" not in result.estimates


def test_posteriors_change_no_other_number() -> None:
    alone, together = analyze(world()), believed(world())
    for name, estimate in alone.estimates.items():
        assert estimate.identical(together.estimates[name])


def test_draws_of_both_posteriors_are_joint() -> None:
    """A corrected draw is the plug-in draw of the same replicate plus the shift: f and the weights are shared."""
    table = world(200, labels=150)
    result = believed(table, probes=probes(table, "other", 60, -0.1), seed=3)
    value, corrected = (result.posterior.estimates[name] for name in ("bayes_direct", "bayes_corrected"))
    at = {"policy": "other"}
    assert value["route"].sel(at).item() == "one_step"
    plug_in = bayes_direct.estimate(
        result.data, rng=generator(3, "analyze", "posterior"), n_draws=N_DRAWS, route="plug_in"
    )
    np.testing.assert_allclose(
        corrected["draws"].sel(at), plug_in["draws"].sel(at) + corrected["shift_draws"].sel(at), atol=1e-12
    )
    np.testing.assert_array_equal(plug_in["calibrator"], value["calibrator"])
    reported = np.stack([value["draws"].sel(policy="base"), corrected["draws"].sel(at)])
    assert float(result.posterior.decision["best"].sel(policy="base")) == (reported[0] > reported[1]).mean()


@pytest.mark.slow
def test_the_margin_is_on_the_oracle_scale() -> None:
    table = world(200, labels=150)
    audit = probes(table, "other", 60, -0.05)
    unit = believed(table, probes=audit, margin=0.06)
    table["oracle_label"] *= 100
    audit["oracle_label"] *= 100
    wide = believed(table, probes=audit, margin=6.0, oracle_range=(0, 100))
    shares = [float(r.posterior.decision["within_margin"].sel(policy="other")) for r in (unit, wide)]
    assert shares[0] == shares[1] and 0.1 < shares[0] < 0.9


@pytest.mark.slow
def test_too_few_labels_give_no_probabilities_and_say_so(tmp_path: Path) -> None:
    table = world(60, labels=8)
    result = believed(table, probes=probes(table, "other", 20, 0.0))
    record = to_json(result)["policies"]
    for policy in ("base", "other"):
        value = record[policy]["estimates"]["bayes_direct"]
        assert value["status"] == "few_labels_posterior" and value["interval"] == [None, None]
        assert record[policy]["posterior"]["p_best"] is None
        assert record[policy]["posterior"]["p_shift_within_margin"] is None
    assert record["other"]["estimates"]["bayes_corrected"]["interval"] == [None, None]
    text = printed(result, 100)
    assert text.count("few_labels_posterior") >= 3 and "label more" in text
    assert named_in_plot(result, "few_labels_posterior")
    save(result, tmp_path / "out")


@pytest.mark.slow
def test_a_sampler_that_did_not_converge_is_flagged_wherever_its_numbers_appear(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:

    from cje_core.families import posterior as _bayes
    from cje_core.inference.estimate import Status

    sound = _bayes.calibrate
    monkeypatch.setattr(
        _bayes, "calibrate", lambda *a, **k: sound(*a, **k)._replace(status=Status.NOT_CONVERGED)
    )
    table = world(200, labels=150)
    result = believed(table, probes=probes(table, "other", 60, 0.0))
    record = to_json(result)["policies"]["other"]
    for name in ("bayes_direct", "bayes_corrected"):
        assert record["estimates"][name]["status"] == record["posterior"]["status"][name] == "not_converged"
    refused = believed(table, probes=probes(table, "other", 60, -0.3))
    assert refused.source("other") == "probes" and in_plot(refused).count("borrowed  not_converged") == 1
    text = printed(result, 100)
    assert (
        text.count("not_converged") == 4
    )  # base, other, other corrected, and the line that says what it means
    assert "did not converge" in text and named_in_plot(result, "not_converged")
    save(result, tmp_path / "out")
    with xr.open_datatree(tmp_path / "out" / "posterior.nc", engine="netcdf4") as tree:
        codes = tree["constant_data"]["value_status"]
        assert (codes == Status.NOT_CONVERGED).all() and "not_converged" in codes.attrs["flag_meanings"]


def test_colours_of_the_forest_plot_do_not_depend_on_what_else_runs() -> None:
    from matplotlib.colors import to_hex
    from matplotlib.figure import Figure

    from studies.cli.analysis import forest

    def colours(result: Any) -> dict[str, tuple[str, str]]:
        figure = Figure()
        forest._draw(result, forest._lines(result), figure)
        handles = figure.legends[0].legend_handles
        return {h.get_label(): (to_hex(h.get_color()), h.get_marker()) for h in handles}

    alone, together = colours(analyze(world())), colours(believed(world()))
    assert alone.items() <= together.items() and len(set(together.values())) == len(together)
    assert together["posterior"][0] == together["direct"][0]


def test_an_engine_without_posteriors_is_one_line(cli: Cli, tmp_path: Path) -> None:
    data = write(world(), tmp_path / "data")
    code, out, err = cli(data, "--bayes-engine", "nutpie", "--out", tmp_path / "out")
    assert (code, out) == (2, "") and not (tmp_path / "out").exists()
    assert err == "cje-lab: --bayes-engine nutpie: it samples the posteriors of --bayes; add --bayes\n"


def test_the_margin_reaches_a_posterior_that_is_chosen_by_name() -> None:
    table = world(200, labels=150)
    audit = probes(table, "other", 60, -0.05)
    for margin, expected in ((0.02, 0.02), (None, 0.05)):
        found = analyze(table, probes=audit, margin=margin, chosen=["direct", "bayes_corrected"])
        options = json.loads(found.estimates["bayes_corrected"].attrs["options"])
        assert options["margin"] == pytest.approx(expected)


@pytest.mark.slow
def test_covariates_reach_the_posteriors_and_the_notes_say_so(tmp_path: Path) -> None:
    table = world(200, labels=150).assign(words=lambda t: np.random.default_rng(0).normal(size=len(t)))
    low = world(200, labels=150).assign(words=0.0)
    with_words = believed(table, calibration=Calibration(["words"]))
    options = json.loads(with_words.posterior.estimates["bayes_direct"].attrs["options"])
    assert options["covariates"] == ["words"] and options["engine"] == "gibbs"
    assert with_words.posterior.estimates["bayes_corrected"].attrs["options"].count("words") == 1
    assert "posterior: monotone splines in the judge's score and words" in printed(with_words, 200)
    save(with_words, tmp_path / "out")
    with xr.open_datatree(tmp_path / "out" / "posterior.nc", engine="netcdf4") as tree:
        assert tree["posterior"]["covariate_effect"].dims == ("chain", "draw", "effect")
    assert "posterior: monotone splines in the judge's score;" in printed(believed(low), 200)


def test_an_unknown_engine_is_one_line(cli: Cli, tmp_path: Path) -> None:
    data = write(world(), tmp_path / "data")
    code, out, err = cli(data, "--bayes", "--bayes-engine", "stan", "--out", tmp_path / "out")
    assert (code, out) == (2, "")
    assert err == "cje-lab: --bayes-engine stan: use one of gibbs, nutpie, pymc\n"


@pytest.mark.slow
def test_saved_draws_are_readable_by_arviz(tmp_path: Path) -> None:
    from cje_core.bayes.models.engines import az

    table = world(200, labels=150)
    result = believed(table, probes=probes(table, "other", 60, -0.1))
    save(result, tmp_path / "out")
    trace = az.from_netcdf(tmp_path / "out" / "posterior.nc")
    posterior, constant = trace["posterior"], trace["constant_data"]
    assert posterior["value"].dims == ("chain", "draw", "policy") and posterior.sizes["chain"] == 4
    for name, estimator in (("value", "bayes_direct"), ("corrected_value", "bayes_corrected")):
        drawn = result.posterior.estimates[estimator]["draws"].sel(policy="other")
        np.testing.assert_array_equal(constant[name].sel(policy="other"), drawn)
    # the first chain draws the calibrator from the stream of what is printed
    of_printed = result.posterior.estimates["bayes_direct"]["ends"]
    np.testing.assert_array_equal(posterior["ends"].sel(chain=0), of_printed[: posterior.sizes["draw"]])
    assert float(constant["best"].sum()) == pytest.approx(1)
    mean = posterior["calibrator"].mean(("chain", "draw"))
    assert (np.diff(mean) > 0).all() and set(mean["level"].values) == set(table["judge_score"])
    assert float(posterior["sigma"].mean()) == pytest.approx(0.05, abs=0.02)
    found = az.summary(trace, var_names=["value", "shift", "corrected_value", "sigma"])
    assert (
        np.isfinite(found[["r_hat", "ess_bulk", "ess_tail"]]).all(axis=None) and found["r_hat"].max() < 1.02
    )


@pytest.mark.slow
def test_the_fast_sampler_loads_no_pymc(tmp_path: Path) -> None:
    data = write(world(), tmp_path / "data")
    script = (
        "import sys; from studies import __main__ as m; "
        f"sys.argv = ['cje-lab', 'analyze', {str(data)!r}, '--bayes', '--out', {str(tmp_path / 'out')!r}]\n"
        "try:\n    m.main()\nexcept SystemExit as e:\n    assert not e.code\n"
        "print('heavy', sorted({'pymc', 'arviz', 'nutpie', 'pytensor'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "heavy []"


@pytest.mark.slow
def test_posteriors_of_the_arena_sample(arena: Path, tmp_path: Path) -> None:
    words = [
        arena / "fresh_draws",
        "--probes",
        arena / "probe_slice",
        "--calibration-policy",
        "base",
        "--bayes",
    ]
    start = children_cpu()
    done = run_installed(*words, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    spent = children_cpu() - start
    found = json.loads((tmp_path / "out" / "estimates.json").read_text())["policies"]
    assert abs(found["base"]["estimates"]["bayes_direct"]["estimate"] - 0.754) < 0.01
    unhelpful = found["unhelpful"]["posterior"]
    assert -0.36 < unhelpful["shift"] < -0.15 and unhelpful["p_shift_within_margin"] < 0.01
    assert unhelpful["p_best"] == 0
    low, high = found["unhelpful"]["estimates"]["bayes_corrected"]["interval"]
    assert low < 0.159 < high  # the mean of its 50 probe labels
    for name in ("clone", "parallel_universe_prompt"):
        assert found[name]["posterior"]["p_shift_within_margin"] > 0.85
    assert sum(policy["posterior"]["p_best"] for policy in found.values()) == pytest.approx(1)
    assert spent < 90, f"{spent:.0f} s"  # 5 s of CPU on an idle machine
