"""What a study is: its definition, which notices changed code and options, and what is checked before it runs."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import toy_study

from studies.engine import manifest as _manifest
from studies.engine import study as _study
from studies.engine.study import Method, Profile, StudyError

TOY = toy_study.STUDY
SCRIPT = Path(toy_study.__file__)


def test_changed_code_is_noticed_and_changed_words_are_not(tmp_path, monkeypatch):
    source = SCRIPT.read_text()
    module = tmp_path / "altered_toy.py"
    monkeypatch.syspath_prepend(tmp_path)

    def digests(text):
        module.write_text(text)
        study = replace(TOY, replicate=pretend(TOY.replicate), table=pretend(TOY.table))
        return _manifest.code_digests(study)["altered_toy.py"]

    def pretend(function):
        """The same function, as if it lived in the altered module."""
        twin = type(function)(function.__code__, function.__globals__, function.__name__)
        twin.__module__ = "altered_toy"
        return twin

    first = digests(source)
    words = (
        source.replace("Mean of n draws", "Average of n draws")
        .replace('"A toy"', '"Toy"')
        .replace("ax.hist", "ax.plot")
    )
    assert words != source and digests(words + "\n# a comment\n") == first
    assert digests(source.replace("1.959963984540054", "1.96")) != first


def test_code_is_read_and_not_run(tmp_path, monkeypatch):
    """Looking for ``package.module.Name`` in the usual way imports the module: PyMC, for the digest of a study."""
    package = tmp_path / "never_run"
    package.mkdir()
    (package / "__init__.py").write_text("raise AssertionError\n")
    (package / "module.py").write_text("from never_run import Name\nraise AssertionError\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert _manifest._source("never_run") == ("never_run/__init__.py", "raise AssertionError\n")
    name, text = _manifest._source("never_run.module")
    assert name == "never_run/module.py" and text.startswith("from never_run")
    for absent in ("never_run.module.Name", "never_run.Name", "never_there", "__main__.Name"):
        assert _manifest._source(absent) is None


@pytest.mark.slow
def test_code_of_scenario_and_estimators_counts():
    digests = _manifest.code_digests(_study.load("interval_coverage"))
    expected = {
        "cje_core/data/contract.py", "cje_core/estimators/direct.py", "cje_core/calibration/isotonic.py",
        "cje_sim/judges.py",
        "cje_sim/scenarios/well_specified.py", "cje_core/streams.py", "studies/interval_coverage.py",
        "cje_sim/scenarios/equal_policies.py", "cje_sim/scenarios/binary_oracle.py", "cje_sim/world.py",
    }  # fmt: skip
    assert expected <= set(digests)
    assert not {
        "studies/report/page.py",
        "studies/engine/measures.py",
        "cje_core/estimators/stacked_dr.py",
    } & set(digests)


def test_code_of_estimators_that_options_name_counts():
    study = _study.load("interval_coverage")
    stack = replace(
        study.methods["direct"], estimator="stacked_dr", options={"members": ("tmle", "capped_ips")}
    )
    digests = set(_manifest.code_digests(replace(study, methods=study.methods | {"stack": stack})))
    named = {
        f"cje_core/estimators/{name}.py" for name in ("stacked_dr", "tmle", "capped_ips", "calibrated_dr_cpo")
    }
    assert named <= digests and "cje_core/estimators/dr_cpo.py" not in digests


def test_what_a_partial_replicate_holds_counts():
    names = {
        _manifest.definition(replace(TOY, replicate=partial(TOY.replicate, x=x)), 1)["replicate"]
        for x in (1, 2)
    }
    assert len(names) == 2


@pytest.mark.parametrize("part", ["replicate", "table", "figure"])
def test_a_partial_function_is_of_its_own_module(part):
    """Not of functools: no file of the standard library is digested, and the table's own code stays left out."""
    held = partial(partial(getattr(TOY, part)))
    digests = _manifest.code_digests(replace(TOY, **{part: held}))
    assert digests == _manifest.code_digests(TOY) and "functools.py" not in digests


def test_code_that_cannot_matter_does_not_count():
    """No figure's look, and no estimator that a study's method only shares its name with."""
    digests = set(_manifest.code_digests(_study.load("ttc_collapse")))
    assert "studies/ttc_collapse.py" in digests
    assert (
        not {"cje_core/figures/style.py", "cje_core/estimators/snips.py", "cje_core/estimators/direct.py"}
        & digests
    )


@pytest.mark.parametrize(
    ("where", "old", "new"),
    [
        ("cje_sim/frame.py", '"atoms": Keyword(float, 0.05', '"atoms": Keyword(float, 0.06'),
        (
            "cje_sim/world.py",
            "labels_around(np.asarray(responses.mean), u, **noise), None",
            "labels_around(1 - np.asarray(responses.mean), u, **noise), None",
        ),
        ("cje_sim/labelling.py", "chosen = np.arange(n) < size", "chosen = np.arange(n) <= size"),
        ("cje_sim/scenarios/equal_policies.py", "value: float = 0.6", "value: float = 0.7"),
    ],
)
def test_a_changed_world_or_frame_is_noticed(monkeypatch, where, old, new):
    study = _study.load("interval_coverage")
    before, read = _manifest.code_digests(study), Path.read_text

    def altered(self, *arguments, **options):
        text = read(self, *arguments, **options)
        if not self.as_posix().endswith(where):
            return text
        assert old in text
        return text.replace(old, new)

    monkeypatch.setattr(Path, "read_text", altered)
    after = _manifest.code_digests(study)
    assert {name for name in after if after[name] != before[name]} == {where}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"factors": {"n": (1, 1)}}, "a level twice"),
        ({"factors": {"n": ()}}, "no level"),
        ({"factors": {"n": (1, 2.0)}}, "must share one type"),
        ({"factors": {"policy": ("a",)}}, "cannot be the name of a factor"),
        ({"factors": {}}, "factors is empty"),
        ({"methods": {"data": Method("x")}}, "no method may be called 'data'"),
        ({"profiles": {"smoke": Profile(1)}}, "they must be smoke, quick, paper"),
        ({"block": 0}, "must be >= 1"),
        (
            {"profiles": {**TOY.profiles, "smoke": Profile(1, {"m": (1,)})}},
            "unknown factor 'm'; there are: world, n",
        ),
        (
            {"profiles": {**TOY.profiles, "smoke": Profile(1, {}, {"y": {}})}},
            "unknown method 'y'; there are: z, short",
        ),
        (
            {"profiles": {**TOY.profiles, "quick": Profile(25, more=[({"n": 4}, 50), ({"n": 5}, 50)])}},
            "more replicates are asked where n is 5, which is none of its levels",
        ),
        (
            {"profiles": {**TOY.profiles, "quick": Profile(25, {"n": (4,)}, more=[({"n": 16}, 50)])}},
            "more replicates are asked where n is 16, which is none of its levels",
        ),
        (
            {"profiles": {**TOY.profiles, "quick": Profile(25, more=[({"n": 16}, 25)])}},
            "25 replicates are asked as more than 25",
        ),
    ],
)
def test_a_study_is_checked_before_it_runs(change, message):
    with pytest.raises(StudyError, match=message):
        replace(TOY, **change)
