"""The paper's mode: folds by hash, thirty labels in every resample, and its rows on files."""

import json
import sys

import numpy as np
import pytest
from analysis import world, write

from cje_core.calibration.calibrated import Calibration, calibrated
from cje_core.calibration.folds import stable_hash
from cje_core.data import DataError
from cje_core.estimators import direct
from cje_core.families.direct.bootstrap import Bootstrap
from cje_core.inference.estimate import Status
from cje_core.io import from_frame
from cje_core.workflow.paper import ALGORITHMS, PAPER, paper_estimator, paper_mode
from studies.cli import app as command_line


@pytest.fixture(scope="module")
def data():
    return from_frame(world(120, labels=70))


def test_folds_are_the_hash_modulo_five(data):
    given = calibrated(data, Calibration(folds="hash"))
    rows = given.rows
    expected = np.array([stable_hash(str(name)) % 5 for name in rows.cluster_names])[rows.cluster]
    asked = given.slice.fold >= 0  # a prompt without a label has no fold that anyone asks for
    assert asked.sum() == 70
    np.testing.assert_array_equal(given.slice.fold[asked], expected[asked])
    assert not np.array_equal(calibrated(data).slice.fold, given.slice.fold)
    with pytest.raises(DataError, match="folds='mod5': use one of dealt, hash"):
        Calibration(folds="mod5")


def test_a_row_by_hash_is_the_module_with_these_options(data):
    module, options = paper_estimator("direct", folds="hash")
    assert options["calibration"] == Calibration(folds="hash")
    found = paper_mode(data)
    assert list(found) == ["naive-direct", "direct", "bootstrap-direct"]  # no logs, no response_length
    np.testing.assert_array_equal(found["direct"].interval, module.estimate(data, **options).interval)
    dealt = paper_mode(data, ["direct"], folds="dealt")["direct"]
    plain, given = PAPER["direct"][1], paper_estimator("direct")[1]
    assert plain == given and "calibration" not in given
    np.testing.assert_array_equal(dealt.interval, direct.estimate(data, **plain).interval)
    assert not np.array_equal(dealt.std_error, found["direct"].std_error)


def test_thirty_labels_or_no_interval():
    few = from_frame(
        world(120, labels=10)
    )  # a resample holds 30 of them, counted as often as drawn, once in 1e6
    assert ALGORITHMS["bootstrap-direct"][1]["inference"] == Bootstrap(n_min=30)
    paper = paper_mode(few, ["bootstrap-direct"])["bootstrap-direct"]
    assert Status(paper.status.values[0].item()) is Status.FEW_RESAMPLES and np.isnan(paper.interval).all()
    ours = paper_mode(few, ["bootstrap-direct"], n_min=None)["bootstrap-direct"]
    assert np.isfinite(ours.interval).all()
    fewer = paper_mode(few, ["bootstrap-direct"], n_min=5)["bootstrap-direct"]
    np.testing.assert_array_equal(fewer.interval, ours.interval)  # half of 10: the same resamples are kept
    strict = paper_mode(few, ["bootstrap-direct"], n_min=10)["bootstrap-direct"]
    assert strict.attrs["n_rejected"] > ours.attrs["n_rejected"]


def test_the_command(monkeypatch, capsys, tmp_path):
    def run(*words):
        monkeypatch.setattr(sys, "argv", ["cje-lab", "paper", *map(str, words)])
        with pytest.raises(SystemExit) as exit_:
            command_line.main()
        captured = capsys.readouterr()
        return int(exit_.value.code or 0), captured.out, captured.err

    table = world(80, labels=60).assign(response_length=3.0)
    path = write(table, tmp_path / "data")
    code, out, _ = run(path, "--json", "--row", "direct", "--row", "direct+cov")
    found = json.loads(out)
    assert code == 0 and list(found["rows"]) == ["direct", "direct+cov"] and found["folds"] == "hash"
    assert found["rows"]["direct"]["base"]["interval"][0] < found["rows"]["direct"]["base"]["estimate"]
    code, out, _ = run(path)
    assert code == 0 and "bootstrap-direct" in out and "what may be reported says" in out
    for words, message in (
        (["--row", "indirect"], "--row indirect: use one of naive-direct"),
        (["--row", "SNIPS"], "--row SNIPS: it needs log"),
        (["--folds", "five"], "--folds five: use one of dealt, hash"),
        (["--n-min", "0"], "--n-min"),
        (["--n-min", "5", "--row", "direct"], "--n-min 5: it is of the row bootstrap-direct"),
    ):
        code, out, err = run(path, *words)
        assert (code, out) == (2, "") and len(err.strip().splitlines()) == 1 and message in err, err
