"""What CONTRIBUTING gives to copy, in a file outside the project: it keeps what the registry's own keep."""

import importlib
import inspect
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from analysis import printed
from conformance_world import world
from registry_checks import benchmark_convention, estimator_convention, skeleton, study_convention

import cje_sim
from cje_core import estimators
from cje_core.estimators import direct_corrected
from cje_core.workflow.analyze import analyze
from studies import benchmarks
from studies.engine.benchmark import run
from studies.engine.run import run_study

CONFORMANCE = Path(__file__).parent / "core" / "estimators" / "test_estimator_conformance.py"
ESTIMATOR, STUDY, BENCHMARK = "probes_only", "few_labels", "pooling"


def conformance_checks():
    """The conformance tests as functions of a name, as a module of their own."""
    spec = importlib.util.spec_from_file_location("conformance_of_a_skeleton", CONFORMANCE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for table in (module.NO_FOLDS, module.NO_CALIBRATOR):
        table.add(ESTIMATOR)
    return [check for name, check in vars(module).items() if name.startswith("test_")]


CHECKS = conformance_checks()


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Put an estimator's source where the registry looks, in a file of the test's own."""
    monkeypatch.setattr(estimators, "__path__", [*estimators.__path__, str(tmp_path)])
    name = f"{estimators.__name__}.{ESTIMATOR}"

    def written(source):
        (tmp_path / f"{ESTIMATOR}.py").write_text(source, encoding="utf-8")
        importlib.invalidate_caches()
        estimators.load.cache_clear()
        return estimators.load(ESTIMATOR)

    yield written
    estimators.load.cache_clear()
    del sys.modules[name]
    delattr(estimators, ESTIMATOR)


def analysis_beside(write, role):
    """An analysis, chosen by default, in a registry where the skeleton of an estimator has a role."""
    stated = f"\nfrom cje_core.estimators import Role\n\nROLE = {role}\nNEEDS"
    write(skeleton("estimator").replace("\nNEEDS", stated))
    return analyze(cje_sim.simulate("transport_shift", n=200, n_probes=40, rng=1))


def test_an_analysis_runs_and_prints_an_estimator_by_the_role_that_its_module_states(write):
    result = analysis_beside(write, 'Role("probes alone", "always", place=2)')
    assert list(result.estimates) == ["direct", "direct_corrected", "labels_only", ESTIMATOR, "raw_judge"]
    assert (
        re.search("labels +probes +raw", printed(result, 120))
        and result.standing("same") == "direct_corrected"
    )


def test_an_estimator_that_states_so_stands_in_where_there_are_probes(write):
    result = analysis_beside(write, 'Role(offered="always", place=0, corrects="direct")')
    assert result.source("same") == "probes" and result.standing("same") == ESTIMATOR


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_skeleton_of_an_estimator_conforms(write, check, request):
    write(skeleton("estimator"))
    others = [name for name in inspect.signature(check).parameters if name != "name"]
    check(ESTIMATOR, **{name: request.getfixturevalue(name) for name in others})


def test_the_skeleton_of_an_estimator_keeps_the_convention_and_is_right(write):
    """Against the probe-corrected value where no calibrator can be fitted: the probes' own mean."""
    module = write(skeleton("estimator"))
    estimator_convention(module)
    data = world()
    bare = data.assign(oracle=data["oracle"].where(data["probe"]), labelled=data["probe"] & data["labelled"])
    found, known = module.estimate(bare), direct_corrected.estimate(bare)
    probed = bare["probe"].any(("prompt", "draw"))
    assert found["estimate"][probed].notnull().all() and found["estimate"][~probed].isnull().all()
    np.testing.assert_allclose(found["estimate"][probed], known["estimate"][probed])


@pytest.mark.parametrize(
    ("old", "new", "caught_by"),
    [
        (
            "rows.label[index], rows",
            "rows.label[index] / 5, rows",
            "test_pitfall_21_oracle_scale_is_equivariant",
        ),
        ("    del ci_prob, rng", "    print(rng)", "test_pure_silent_and_deterministic"),
        ('estimator="probes_only"', 'estimator="other"', "test_schema"),
        ("ci_prob=ci_prob", "ci_prob=0.95", "test_ci_prob"),
        (" value, *combine", " value + np.random.rand(), *combine", "test_pure_silent_and_deterministic"),
    ],
)
def test_a_planted_error_in_an_estimator_is_caught(write, request, old, new, caught_by):
    source = skeleton("estimator")
    assert old in source
    write(source.replace(old, new))
    (check,) = [check for check in conformance_checks() if check.__name__ == caught_by]  # nothing cached
    others = [name for name in inspect.signature(check).parameters if name != "name"]
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check(ESTIMATOR, **{name: request.getfixturevalue(name) for name in others})


@pytest.mark.slow
def test_the_skeleton_of_a_study_keeps_the_convention_and_runs(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / f"{STUDY}.py").write_text(skeleton("study"), encoding="utf-8")
    importlib.invalidate_caches()
    study = importlib.import_module(STUDY).STUDY
    study_convention(study)
    done = run_study(study, profile="smoke", out=tmp_path / "out", seed=1, jobs=1)
    assert done.crashes == 0 and done.replicates_run == 2 * 2
    shown = study.table(done.results)
    assert set(shown["method"]) == {"labels_only", "raw_judge", "direct"} and shown["coverage"].notna().all()
    assert study.figure(done.results).axes
    del sys.modules[STUDY]


@pytest.mark.slow
def test_the_skeleton_of_a_benchmark_is_found_keeps_the_convention_and_runs(tmp_path, monkeypatch):
    """In processes of their own too, which find their functions by the file."""
    monkeypatch.setattr(benchmarks, "__path__", [*benchmarks.__path__, str(tmp_path)])
    (tmp_path / f"{BENCHMARK}.py").write_text(skeleton("benchmark"), encoding="utf-8")
    importlib.invalidate_caches()
    assert BENCHMARK in benchmarks.available()
    benchmark = benchmarks.load(BENCHMARK)
    benchmark_convention(benchmark)
    for profile, known in (("smoke", False), ("small", True)):
        (case,) = run(benchmark, profile)["cases"]
        assert [row["name"] for row in case["contenders"]] == ["cje-lab", "SciPy", "limit"]
        assert all(row["rate"] > 0 and (row["peak_mb"] is not None) is known for row in case["contenders"])
    del sys.modules[f"{benchmarks.__name__}.{BENCHMARK}"]
    delattr(benchmarks, BENCHMARK)
