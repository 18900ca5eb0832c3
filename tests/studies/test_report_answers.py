"""The report answers first: sentences with rules, one table that fits; what cannot be made leaves the rest."""

import csv
import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import toy_study
import xarray as xr
from matplotlib.figure import Figure

from studies.engine import run
from studies.engine.running import directory
from studies.engine.sentences import below
from studies.engine.study import Finding, StudyError
from studies.report import page, tables
from studies.report.methods import mechanism
from studies.report.needs import with_needs

TOY = toy_study.STUDY


def found(ds):
    """A sentence of each kind."""
    bias = float((ds["estimate"] - ds["truth"]).mean())
    return [
        Finding(f"Mean error is {bias:.3f}.", "|error| < 1", abs(bias) < 1),
        Finding("The moon is of cheese.", "taste & smell", False),
        Finding("Nobody knows.", "none", None),
    ]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    out = tmp_path_factory.mktemp("answers")
    done = run.run_study(TOY, profile="smoke", out=out)
    return out, done.results


@pytest.fixture
def written(results, monkeypatch):
    """Write the report of a study that shows these results in its own way."""

    def write(study):
        monkeypatch.setattr(directory, "load", lambda name: study)
        made = page.write(results[0])
        return made, made.path.read_text(encoding="utf-8")

    return write


def test_sentences_with_their_rules_come_before_everything(written):
    made, text = written(replace(TOY, findings=found))
    assert made.broken == []
    places = [
        text.index(piece)
        for piece in ("Mean error is", "Rule: |error| &lt; 1", "cheese", "Nobody", "<table", "<svg")
    ]
    assert places == sorted(places)
    assert re.findall(r'<li class="(\w+)">', text) == ["yes", "no", "open"]


def test_the_terminal_prints_them_and_one_table_of_100_columns(results):
    text = page.told(replace(TOY, findings=found), results[1])
    lines = text.splitlines()
    assert lines[0] == "toy_study: A toy" and lines[2].startswith("yes   Mean error is")
    assert "      Rule: taste & smell" in lines and max(map(len, lines)) <= 100
    assert sum(line.startswith("world") for line in lines) == 1


def test_a_study_without_sentences_gets_the_range_of_each_measure(results):
    one, two, *silent = page.findings(TOY, results[1], TOY.table(results[1]))
    frame = TOY.table(results[1])
    assert [one.holds, two.holds] == [None, None] and len(
        silent
    ) == 2  # refused and failed, beside the coverage
    low, high = frame.loc[frame["bias"].idxmin()], frame.loc[frame["bias"].idxmax()]
    for row in (low, high):
        assert (
            f"{page.with_mcse(row['bias'], row['bias_mcse'])} (world {row['world']}, n {row['n']}"
            in one.sentence
        )
    assert one.sentence.startswith("bias is between ") and two.sentence.startswith("coverage is between ")
    same = pd.DataFrame({"n": [1, 2], "x": [0.5, 0.5], "x_mcse": [0.1, 0.1]})
    assert page.findings(TOY, results[1], same)[0].sentence == "x is 0.50 in every row."


def failing(ds):
    """Raise what only this function raises."""
    raise KeyError("planted")


def half(ds):
    """One figure that can be drawn, and one that cannot be saved."""
    good, bad = Figure(), Figure()
    good.subplots().plot([1, 2])
    bad.subplots().set_title("$\\nonsense$")
    return {"the good one": good, "the bad one": bad}


@pytest.mark.parametrize(
    ("part", "says", "there"),
    [
        (
            {"findings": failing},
            "the sentences could not be made: KeyError: &#39;planted&#39;",
            ["<svg", "<table"],
        ),
        ({"figure": failing}, "the figures could not be made: KeyError", ["bias is between", "<table"]),
        (
            {"figure": half},
            "the figure &#39;the bad one&#39; could not be made",
            ["the good one", "<svg", "<table"],
        ),
        ({"table": failing}, "the tables could not be made: KeyError", ["<svg"]),
    ],
)
def test_a_part_that_fails_leaves_the_rest_and_is_named(written, part, says, there):
    made, text = written(replace(TOY, **part))
    assert len(made.broken) == 1 and made.broken[0].startswith("toy_study: the ")
    assert says in text and all(piece in text for piece in (*there, "Methods section", "Check the runner."))


def test_exact_values_stand_where_the_simulation_is_blind():
    frame = pd.DataFrame(
        {"L": [1, 400], "rmse": [0.5, 0.25], "rmse_mcse": [0.01, 1e-8], "rmse_unseen": [np.nan, 9.56e21]}
    )
    assert page.render(frame).to_dict("records") == [
        {"L": "1", "rmse": "0.500 (0.010)"}, {"L": "400", "rmse": "9.56e+21 exact"},
    ]  # fmt: skip


def test_what_does_not_fit_is_counted_and_the_files_have_it(written, results):
    wide = pd.DataFrame({f"a_long_name_of_column_{k}": np.arange(60.0) for k in range(30)})
    _, text = written(replace(TOY, table=lambda ds: {"First & last_1": wide, "First/last 1": wide}))
    shown = tables.plain(page.render(wide))
    assert max(map(len, shown.splitlines())) <= 100
    more = re.fullmatch(r"\((\d+) more columns and 20 more rows in the report\)", shown.splitlines()[-1])
    assert more and int(more[1]) == 30 - len(shown.splitlines()[-2].split())
    assert "all 30 columns" in text and "<summary>60 rows</summary>" in text
    names = sorted(path.name for path in (results[0] / "toy_study" / "tables").glob("first*.csv"))
    assert len(names) == 2  # titles that would be one file
    with (results[0] / "toy_study" / "tables" / names[0]).open() as handle:
        rows = list(csv.reader(handle))
    assert len(rows) == 61 and len(rows[0]) == 30


def test_latex_is_escaped_and_has_every_cell():
    frame = pd.DataFrame({"a_b": ["50%", "x & y"], "bias": ["0.1 (0.02)", "-"]})
    text = tables.latex("Cost < $5", frame)
    assert r"\caption{Cost \textless{} \$5} \\" in text and r"\begin{longtable}{lr}" in text
    assert r"50\% & 0.1 (0.02) \\" in text and r"x \& y & - \\" in text and r"a\_b & bias \\" in text
    assert text.count(r"a\_b & bias \\") == 2 and text.count("{") == text.count("}")


@pytest.mark.parametrize(
    ("name", "width", "lines"),
    [
        ("a b", 9, ["a b"]),
        ("__x__", 2, ["__", "x__"]),
        ("", 3, [""]),
        ("IPS RMSE, L=25", 9, ["IPS RMSE,", "L=25"]),
    ],
)
def test_names_of_columns_break_between_words(name, width, lines):
    assert tables.header(name, width) == lines


def test_the_methods_section_has_size_error_seed_versions_and_citation(written):
    _, text = written(TOY)
    methods = text[text.index("Methods section") : text.index("<details><summary>Manifest")]
    for piece in (
        "Aims. Check the runner.", "z (exact)", "world (plain, crash)", "4 cells, fully crossed", "run 10 times",
        "Root seed 1", "numpy 2.", "Morris TP", "Monte Carlo standard error of 0.069", "Version 0.1.0",
    ):  # fmt: skip
        assert piece in methods, piece


def test_the_mechanism_explains_only_what_ran(results):
    words = {"world": {"plain": "nothing fails", "crash": "the third replicate fails", "flood": "rain"}}
    study = replace(TOY, legend=words)
    assert mechanism(study, results[1]) == (
        "Normal means. World is plain: nothing fails; crash: the third replicate fails."
    )
    assert "crash" not in mechanism(study, results[1].sel(world=["plain"]))
    ds = results[1].copy(deep=True)
    ds["status"][{"world": 1}] = -1  # a level of the grid that no cell ran
    assert "crash" not in mechanism(study, ds)
    with pytest.raises(StudyError, match="legend names an unknown factor 'word'"):
        replace(TOY, legend={"word": {}})


def test_the_page_reads_on_a_phone_and_on_paper(written):
    _, text = written(TOY)
    assert "@media (max-width: 640px)" in text and "@media print" in text and 'name="viewport"' in text
    outside = re.sub(r'<div class="scroll">.*?</div>', "", text, flags=re.S)
    assert "<svg" not in outside and '<table border="0"' not in outside  # what is wide scrolls by itself


def test_not_applicable_is_not_failed(tmp_path):
    """A method that does not run in a cell is in no count of failures."""
    from toy_study import replicate

    from studies.engine.outcome import NOT_RUN, Outcome

    def partly(study, cell, streams):
        made = replicate(study, cell, streams)
        status = np.zeros((3, 2))
        status[2] = NOT_RUN
        estimate = np.array(made.estimate)
        estimate[2] = np.nan
        return Outcome(estimate, made.truth, made.std_error, made.interval, status, extra=made.extra)

    study = replace(TOY, replicate=partly, factors={"world": ("plain",), "n": (4,)}, theory=None)
    done = run.run_study(study, profile="smoke", out=tmp_path)
    state = directory.status(done.directory)
    assert (state["estimates"], state["estimates_failed"]) == (10 * 2 * 2, 0)


def test_json_has_the_sentences(results, monkeypatch, capsys):
    from studies.cli import app

    monkeypatch.setattr(directory, "load", lambda name: replace(TOY, findings=found, figure=failing))
    monkeypatch.setattr("sys.argv", ["cje-lab", "report", str(results[0]), "--json"])
    with pytest.raises(SystemExit) as end:
        app.main()
    said = json.loads(capsys.readouterr().out)
    assert end.value.code == 1  # a part is missing
    assert [one["verdict"] for one in said["findings"]["toy_study"]] == ["yes", "no", "open"]
    assert "the figures could not be made" in said["broken"][0]


def test_an_open_sentence_names_the_replicates_that_its_rule_needs():
    """Of numbers with mean .5 and variance 1 in 50 replicates, 3 standard errors reach 1 from 36 replicates on."""
    x = np.tile([-0.5, 1.5], 25)
    ds = xr.Dataset({"estimate": ("replicate", x)}, {"replicate": np.arange(50)})

    def asked(limit, asked_for):
        def findings(part):
            size = part.sizes["replicate"]
            holds = below(part["estimate"].mean(), part["estimate"].std() / np.sqrt(size), limit)
            return [Finding(f"{asked_for}{size} of them.", "", holds)]

        return replace(TOY, findings=findings)

    for limit, words in (
        (1.0, ""),  # 36 are enough: nothing is open
        (0.8, " 50 to 100 replicates of a cell would decide this"),  # (3 / .3)^2 = 100
        (0.75, " 100 to 200 replicates of a cell would decide this"),  # 144
        (0.5, " More than 3,200 replicates of a cell would be needed to decide this"),  # the limit itself
    ):
        for asked_for in (f"Is it below {limit}? ", f"It is below {limit}: "):
            study = asked(limit, asked_for)
            (one,) = with_needs(study, ds, study.findings(ds))
            assert one.sentence == f"{asked_for}50 of them." + (
                f"{words}, if these numbers stay as they are." if words else ""
            )
