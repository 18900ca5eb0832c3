"""What every estimator, study and benchmark keeps, of the registries or of a user's own; copies to start from."""

import inspect
import json
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import cje_core
from cje_core import data, estimators
from studies.engine.benchmark import PROFILES as BENCHMARK_PROFILES
from studies.engine.benchmark import ROLES, Benchmark
from studies.engine.study import PROFILES, Study

GUIDE = Path(cje_core.__file__).parents[1] / "CONTRIBUTING.md"
VARIABLES = {
    "judge",
    "oracle",
    "probe",
    "label_prob",
    "covariate",
    "surprisal",
    "log_ratio",
    "true_reward",
    *data.LOGGED,
}  # of the data contract


def skeleton(kind: str) -> str:
    """The new estimator, scenario, study or benchmark that CONTRIBUTING gives to copy."""
    section = re.split(rf"\n## Add an? {kind}", GUIDE.read_text(encoding="utf-8"))[1].split("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    return code


def estimator_convention(module: ModuleType) -> None:
    assert module.__doc__ and "Estimand" in module.__doc__ and "Failure mode" in module.__doc__
    assert module.NEEDS and module.NEEDS <= VARIABLES
    parameters = list(inspect.signature(module.estimate).parameters.values())
    assert parameters[0].name == "data" and parameters[0].kind is parameters[0].POSITIONAL_OR_KEYWORD
    assert [p.name for p in parameters[1:3]] == ["ci_prob", "rng"]
    assert (parameters[1].default, parameters[2].default) == (0.95, None)
    assert all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in parameters[1:])
    assert inspect.getdoc(module.estimate)


def study_convention(study: Study) -> None:
    assert inspect.getdoc(inspect.getmodule(study.table))
    assert all((study.title, study.aims, study.mechanism, study.estimands, study.measures))
    assert all(method.description for method in study.methods.values())
    sizes = []
    for profile in PROFILES:
        chosen = study.at(profile)
        n_cells = sum(1 for _ in chosen.cells())
        assert n_cells > 0
        sizes.append(n_cells * study.profiles[profile].replicates)
    assert sizes == sorted(sizes), "smoke <= quick <= paper"
    used = {method.estimator or key for key, method in study.methods.items()}
    if study.replicate is None:  # a comparison of estimators carries its controls
        assert {"raw_judge", "labels_only"} <= used <= set(estimators.available())
    clone = pickle.loads(pickle.dumps(study))
    assert list(clone.cells()) == list(study.cells())


def benchmark_convention(benchmark: Benchmark) -> None:
    assert benchmark.about and "Limit:" in benchmark.about and benchmark.title and benchmark.unit
    first, *others = benchmark.contenders
    assert first.role == "ours" and {c.role for c in others} <= set(ROLES) and others[-1].role == "limit"
    assert all(c.package for c in others if c.role == "peer")
    names = [c.name for c in benchmark.contenders]
    assert len(set(names)) == len(names)
    for contender in benchmark.contenders:  # a process of its own finds it by its name in its file
        module = inspect.getmodule(contender.prepare)
        assert getattr(module, contender.prepare.__name__) is contender.prepare
        assert inspect.getdoc(contender.prepare)
    for profile in BENCHMARK_PROFILES:
        for case in benchmark.cases(profile):
            assert set(case.options) == set(inspect.signature(first.prepare).parameters)
            assert case.amount > 0 and set(case.left_out) <= set(names) - {first.name}
            assert json.loads(json.dumps(dict(case.options))) == _listed(case.options)


def _listed(options: Mapping[str, object]) -> dict[str, object]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}
