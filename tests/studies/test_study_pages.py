"""Pages of results for the documents are what their manifests render to; whatever is typed into them is noticed."""

import json
import re
from pathlib import Path

import pytest
import toy_study

import studies
from studies.cli import app
from studies.engine import run
from studies.engine.running import directory
from studies.engine.study import StudyError, available
from studies.report import documents

PAGES = Path(studies.__file__).parents[1] / "docs" / "studies"


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Results of the toy in its smoke size; nobody changes them."""
    out = tmp_path_factory.mktemp("ran")
    run.run_study(toy_study.STUDY, profile="smoke", out=out)
    return out


@pytest.fixture
def written(ran, tmp_path, monkeypatch):
    monkeypatch.setattr(directory, "load", lambda name: toy_study.STUDY)
    monkeypatch.setattr(documents, "available", lambda: [*available(), "toy_study"])
    documents.write(ran, tmp_path / "pages")
    return tmp_path / "pages"


def test_the_pages_of_the_documents_are_what_their_manifests_render_to():
    assert list(PAGES.glob("*.md")) and documents.problems(PAGES) == []


def test_no_place_of_a_machine_is_in_them():
    for path in PAGES.glob("*.[jm]*"):
        assert not re.search(r"/(home|root|tmp|work|Users)/", path.read_text(encoding="utf-8")), path


def test_a_page_begins_with_the_sentences_and_ends_with_how_to_repeat_it(written):
    text = (written / "toy_study.md").read_text(encoding="utf-8")
    document = json.loads((written / "toy_study.json").read_text(encoding="utf-8"))
    assert documents.problems(written) == []
    places = [
        text.index(piece) for piece in ("# A toy", "bias is between", "| world |", "![A toy]", "## Methods")
    ]
    assert places == sorted(places)
    assert "cje-lab run toy_study --profile smoke --seed 1" in text
    assert all(value in text for value in document["digests"].values())
    assert (written / "toy_study-1.png").read_bytes().startswith(b"\x89PNG")


def test_the_same_results_give_the_same_pages(written, ran, tmp_path):
    documents.write(ran, tmp_path / "again")
    for path in sorted(written.iterdir()):
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes(), path.name


def change(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.mark.parametrize(
    ("plant", "says"),
    [
        (lambda p: change(p / "toy_study.md", "bias is between", "bias is nearly"), "toy_study.md: not what"),
        (lambda p: change(p / "toy_study.json", '"plain"', '"plane"'), "digests are not those"),
        (lambda p: change(p / "toy_study.json", '"seed": 1', '"seed": 2'), "toy_study.json: its digests"),
        (lambda p: (p / "toy_study-1.png").write_bytes(b"other"), "toy_study-1.png: not the figure"),
        (lambda p: (p / "toy_study.md").unlink(), "toy_study.md: not what"),
        (lambda p: (p / "toy_study.json").unlink(), "there is no toy_study.json"),
        (lambda p: (p / "other.json").write_text("{}"), "other.json: not of schema"),
    ],
)
def test_what_does_not_match_is_found(written, plant, says):
    plant(written)
    assert any(says in line for line in documents.problems(written))


def test_a_study_that_is_gone_is_found(written, monkeypatch):
    monkeypatch.setattr(documents, "available", available)
    assert any("there is no study 'toy_study'" in line for line in documents.problems(written))


def test_results_with_a_part_missing_make_no_page(written, ran, tmp_path, monkeypatch):
    from dataclasses import replace

    def broken(ds):
        raise KeyError("planted")

    monkeypatch.setattr(directory, "load", lambda name: replace(toy_study.STUDY, findings=broken))
    with pytest.raises(StudyError, match="toy_study: the sentences could not be made: KeyError"):
        documents.write(ran, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_what_repeats_the_results_has_the_levels_that_were_set_by_hand():
    run = {
        "profile": "paper",
        "factors": {"n": [1, 2], "m": [3]},
        "protocol": {"factors": {"n": [1, 2], "m": [3, 4]}},
    }
    assert documents._command("toy", run, 2) == "cje-lab run toy --profile paper --seed 2 --set m=3"
    del run["protocol"]  # of an older version, which kept no plan
    assert documents._command("toy", run, 2) == "cje-lab run toy --profile paper --seed 2"


def test_the_command_writes_and_checks(written, ran, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(documents, "load", lambda name: toy_study.STUDY)

    def lab(*words):
        monkeypatch.setattr("sys.argv", ["cje-lab", "docs", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            app.main()
        said = capsys.readouterr()
        return end.value.code or 0, said.out + said.err

    out = tmp_path / "new"
    assert lab(ran, "--out", out) == (0, f"page: {out / 'toy_study.md'}\n")
    assert lab("--check", "--out", out) == (0, f"{out}: every page is what its manifest renders to\n")
    (out / "toy_study.md").write_text("typed")
    code, said = lab("--check", "--out", out)
    assert code == 1 and "not what toy_study.json renders to" in said
    assert lab("--out", out)[0] == 2 and lab(ran, "--check")[0] == 2
