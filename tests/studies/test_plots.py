"""Plots of any results: what they draw is in the data; what the data lack is said in one line."""

import numpy as np
import pytest
import toy_study
from scipy import stats

from cje_core.figures.style import to_files
from studies.cli import app
from studies.engine import run
from studies.engine.measures import performance
from studies.engine.running import directory
from studies.engine.study import StudyError
from studies.report import plots
from studies.report.plots.roc import curve


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    out = tmp_path_factory.mktemp("plots")
    return out, run.run_study(toy_study.STUDY, profile="smoke", out=out).results


def draw(name, ds):
    with to_files():
        return plots.draw(name, ds)


@pytest.mark.slow
def test_every_plot_is_one_file_with_labelled_axes(results):
    assert plots.available() == sorted(
        ["zip", "nested_loop", "lollipop", "coverage", "estimate_vs_se", "roc", "theory"]
    )
    for name in plots.available():
        figure = draw(name, results[1])
        shown = [ax for ax in figure.axes if ax.axison]
        assert shown and any(ax.get_xlabel() for ax in shown), name
        assert any(ax.get_ylabel() or ax.get_yticklabels() for ax in shown), name


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("zip", lambda ds: ds.drop_vars("interval"), "plot zip: these results have no 'interval'"),
        (
            "zip",
            lambda ds: ds.sel({"method": ["none"]}),
            "plot zip: no method of these results gives an interval",
        ),
        (
            "coverage",
            lambda ds: ds.sel({"method": ["none"]}),
            "plot coverage: no method of these results gives",
        ),
        ("estimate_vs_se", lambda ds: ds.sel({"method": ["none"]}), "plot estimate_vs_se: no standard error"),
        ("roc", lambda ds: ds.drop_vars(["mean_judge", "per_policy", "per_both"]), "no diagnostic beside"),
        ("theory", lambda ds: ds.drop_vars(["theory_std_error", "theory_value"]), "no exact value"),
        ("lollipop", lambda ds: ds.drop_vars("truth"), "plot lollipop: these results have no 'truth'"),
        ("nested_loop", lambda ds: ds.drop_vars("estimate"), "have no 'estimate'; they have: interval"),
        ("pie", lambda ds: ds, "no plot named 'pie'; there are: coverage, "),
    ],
)
def test_what_the_data_lack_is_said_in_one_line(results, name, change, says):
    with pytest.raises(StudyError) as error:
        draw(name, change(results[1]))
    assert says in str(error.value) and "\n" not in str(error.value)


def test_the_zip_colours_as_many_as_cover(results):
    """Lines of each colour against the coverage of the policy that is covered least."""
    ds = results[1].sel({"world": ["plain"], "n": [4], "method": ["short"]})
    found = performance(ds, measures=["coverage"])["value"].min().item()
    ax = draw("zip", ds).axes[0]
    hits, misses = (len(lines.get_segments()) for lines in ax.collections[:2])
    assert (hits, misses) == (round(found * 10), 10 - round(found * 10)) and 0 < hits < 10


def test_the_band_of_coverage_is_the_exact_binomial_one(results):
    ds = results[1].sel({"world": ["plain"], "n": [4], "method": ["z"]})
    (bar,) = draw("coverage", ds).axes[0].patches[-1:]
    low, high = stats.binom.ppf([0.025, 0.975], 10, 0.95) / 10
    assert bar.get_x() == pytest.approx(low) and bar.get_x() + bar.get_width() == pytest.approx(high)
    inside = stats.binom.cdf(10 * high, 10, 0.95) - stats.binom.cdf(10 * low - 1, 10, 0.95)
    assert inside >= 0.95


def test_theory_is_held_against_what_has_its_name(results):
    axes = draw("theory", results[1]).axes
    assert [ax.get_xlabel() for ax in axes] == ["standard error, exact"]
    ds = results[1].assign(value=results[1]["estimate"].sel({"method": "z"}, drop=True))
    assert [ax.get_xlabel() for ax in draw("theory", ds).axes] == ["standard error, exact", "value, exact"]


def slow_area(score, failed):
    pairs = [(a > b) + (a == b) / 2 for a in score[failed] for b in score[~failed]]
    return np.mean(pairs)


@pytest.mark.slow
def test_the_area_is_the_share_of_pairs_in_order_and_its_error_that_of_resampled_clusters():
    rng = np.random.default_rng(5)
    cluster = np.arange(400).repeat(2)
    shared = rng.normal(size=400).repeat(2)
    failed = (rng.random(400) < 0.3).repeat(2)
    score = np.round(shared + 0.8 * failed + 0.5 * rng.normal(size=800), 1)
    one = curve(score, failed, cluster)
    assert one.area == pytest.approx(slow_area(score, failed))
    assert np.trapezoid(one.alarms, one.false_alarms) == pytest.approx(one.area)
    drawn = []
    for _ in range(300):
        rows = (2 * rng.integers(0, 400, 400)[:, None] + [0, 1]).ravel()
        drawn.append(curve(score[rows], failed[rows], np.arange(800)).area)
    # the sd of 300 draws has a relative error of 1 / sqrt(600)
    assert one.mcse == pytest.approx(np.std(drawn, ddof=1), rel=5 / np.sqrt(600))
    assert curve(score, failed, np.arange(800)).mcse < 0.95 * one.mcse  # clusters count


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_command_writes_a_file(results, tmp_path, monkeypatch, capsys, suffix):
    monkeypatch.setattr(directory, "load", lambda name: toy_study.STUDY)
    out = tmp_path / f"figure.{suffix}"
    words = ["plot", str(results[0]), "lollipop", "--out", str(out), "--at", "n=16"]
    monkeypatch.setattr("sys.argv", ["cje-lab", *words])
    with pytest.raises(SystemExit) as end:
        app.main()
    assert not end.value.code and capsys.readouterr().out == f"plot: {out}\n" and out.stat().st_size > 1000


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["pie"], "no plot named 'pie'"),
        (["zip", "--out", "x.gif"], "--out x.gif: write to a name that ends in .png, .svg or .pdf"),
        (["zip", "--at", "n=7"], "--at n: these results have 4, 16"),
        (["zip", "--at", "m=7"], "--at m=7: toy_study has no factor 'm'"),
    ],
)
def test_misuse_of_the_command_is_one_line(results, monkeypatch, capsys, words, says):
    monkeypatch.setattr(directory, "load", lambda name: toy_study.STUDY)
    monkeypatch.setattr("sys.argv", ["cje-lab", "plot", str(results[0]), *words])
    with pytest.raises(SystemExit) as end:
        app.main()
    err = capsys.readouterr().err
    assert end.value.code == 2 and err.startswith(f"cje-lab: {says}") and err.count("\n") == 1
