"""The ADEMP study: Aims, Data-generating mechanism, Estimands, Methods, Performance measures.

Every ``studies/*.py`` defines one module-level ``STUDY = Study(...)`` whose ``name`` is the file name; the directory is
the registry. The usual study compares estimators on one scenario, as the one that CONTRIBUTING gives to copy.
A study with a mechanism of its own gives an importable ``replicate(study, cell, streams) -> Outcome``. The
vocabulary is that of Morris, White and Crowther (2019), "Using simulation studies to evaluate statistical
methods".
"""

import importlib
import importlib.util
import itertools
import pkgutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cje_core.inference.estimate import wald
from cje_core.streams import Cell, Level, Streams
from studies.engine.outcome import Outcome, describe

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr
    from matplotlib.figure import Figure

PROFILES = ("smoke", "quick", "paper")
RESERVED = ("replicate", "method", "policy", "ci_bound", "measure")


class StudyError(ValueError):
    """A study, command or directory that cannot be used as given; the one line says the mend."""


@dataclass(frozen=True)
class Method:
    """One method of a study.

    ``estimator`` names a file of ``cje_core/estimators`` (default: the method's own name) or is a function with the
    contract of their ``estimate``; ``options`` are its keyword arguments. A study with its own `replicate` may use
    them as it likes. ``package`` is the distribution of a peer, whose function runs in an interpreter that has it
    (`studies.referee`); its version is part of the study's definition.
    """

    description: str
    estimator: str | Callable[..., Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    package: str = ""


@dataclass(frozen=True)
class Profile:
    """Size of a run: replicates per cell, factor levels and method options that differ, methods left out.

    `more` has the replicates of cells with certain levels, where they are more: of noisier cells.

    Examples
    --------
    >>> profile = Profile(400, more=[({"world": "weak"}, 800)])
    >>> profile.replicates_in({"world": "weak", "n": 100}), profile.replicates_in({"world": "smooth", "n": 100})
    (800, 400)
    """

    replicates: int
    factors: Mapping[str, Sequence[Level]] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    without: Collection[str] = ()
    more: Sequence[tuple[Mapping[str, Level], int]] = ()

    def replicates_in(self, cell: Cell) -> int:
        """Replicates of a cell."""
        return max(
            [self.replicates, *(count for levels, count in self.more if levels.items() <= cell.items())]
        )


class Finding(NamedTuple):
    """One sentence that the results of a study decide.

    Parameters
    ----------
    sentence : str
        Computed from the results, each simulated figure with its Monte Carlo standard error in brackets.
    rule : str
        What decided it, as one can check it: "worst cell's exact 95% bounds against .95".
    holds : bool or None
        Whether what the study asks is so; None where these results cannot tell.
    """

    sentence: str
    rule: str
    holds: bool | None


class Protocol(NamedTuple):
    """What is fixed before a study runs, beside its ADEMP text: the questions of ADEMP-PreReg.

    Parameters
    ----------
    origin : str
        Where the parameters of the mechanism come from.
    replicates : str
        Why so many: the Monte Carlo standard error that they are to give, and of what.
    failures : str
        What happens to a replicate or estimate that fails.
    primary : str
        The estimand and measure that the study is about.
    relevant : str
        The difference that would matter to a user.
    """

    origin: str
    replicates: str
    failures: str
    primary: str
    relevant: str


def outcome_of_means(
    study: "Study", rows: Mapping[str, npt.NDArray[np.float64]], truth: float, **extra: npt.ArrayLike
) -> Outcome:
    """Outcome of one policy where every method is a mean: of its n rows, with sd / sqrt(n) and the normal interval."""
    shown = [rows[name] for name in study.methods]
    values = np.array([[row.mean()] for row in shown])
    errors = np.array([[row.std(ddof=1) / np.sqrt(row.size)] for row in shown])
    return Outcome(values, [truth], errors, wald(values, errors, np.inf, study.ci_prob), extra=extra)


class Scenario(NamedTuple):
    """A world of a study's own: `simulate` and `truth` as a file of ``cje_sim/scenarios`` has them."""

    simulate: "Callable[..., xr.Dataset]"
    truth: "Callable[..., xr.DataArray]"


class Setting(NamedTuple):
    """What a cell simulates, and who runs on it.

    Parameters
    ----------
    scenario : str or Scenario
    policies : sequence of str
        The scenario's policies that take the places of the study's.
    arguments : mapping
        What the scenario's ``simulate`` gets; its ``truth`` gets those it asks for.
    methods : collection of str
        Methods that run; the rows of the others are `NOT_RUN`.
    """

    scenario: str | Scenario
    policies: Sequence[str]
    arguments: Cell
    methods: Collection[str]


def own_setting(study: "Study", cell: Cell) -> Setting:
    """The study's scenario, to which the cell's factors are arguments, and all methods."""
    return Setting(study.scenario, study.policies, cell, study.methods)


@dataclass(frozen=True)
class Study:
    """A simulation study.

    Parameters
    ----------
    name, title : str
        File name and headline.
    aims, mechanism, estimands, measures : str
        The ADEMP text (methods have their own), one paragraph each; the report prints them.
    factors : mapping name -> levels
        The full grid; levels of one factor share one type (bool, int, float or str).
    policies : sequence of str
    methods : mapping name -> Method
    profiles : mapping
        ``smoke`` (seconds), ``quick`` (a minute or two), ``paper`` (the paper's size).
    replicate : function (study, cell, streams) -> Outcome
        One replicate of one cell; by default estimators run on data of `scenario`, see `studies.engine.scenario`.
        `study` is the study at its profile, so ``study.methods`` carry the profile's options. ``streams("data")`` is
        the generator of the data, ``streams(method)`` of a method. Must be importable, or a ``functools.partial``.
    table : function ds -> DataFrame, or mapping title -> DataFrame (the first is the headline)
    figure : function ds -> Figure, or mapping title -> Figure
    keep : function cell -> bool, optional
        Filter for a partial grid.
    check : function cell -> anything, optional
        Raises a `ValueError` at a cell that cannot be; by default a data set of its scenario is drawn.
    theory : function cell -> mapping name -> scalar, (P,) or (M, P), optional
        Exact values, computed once per cell and stored as ``theory_<name>``.
    contrasts : sequence of (str, str)
        Pairs of policies whose difference ``V(first) - V(second)`` is an estimand beside the values; they come after
        the policies, named "first - second".
    findings : function ds -> sequence of Finding, optional
        The few sentences in which the study ends; the report and the terminal begin with them.
    protocol : Protocol, optional
        What is fixed before a run.
    legend : mapping of factor to mapping of level to words
        What levels mean, where their names do not say it; the report explains those that ran.
    claims : sequence of str
        Ids of the claims that the study decides.
    scenario : str or Scenario
        The world: a file of ``cje_sim/scenarios``, or functions of the study's own.
    setting : function (study, cell) -> Setting
        Of a study whose cells choose the world and the methods that run.
    worlds : sequence of str
        The scenarios that it chooses from: their code is part of the study's definition.
    ci_prob : float
        Nominal probability of every interval.
    block : int
        Replicates per block: what a kill can lose is at most one block per worker.
    with_data : function (study, path, probes, judge_range, oracle_range) -> Study, optional
        Of a study that a user's own files can join: the study of these.
    source : Path, optional
        The file of a study that is not one of ours; `load` sets it.
    """

    name: str
    title: str
    aims: str
    mechanism: str
    estimands: str
    measures: str
    factors: Mapping[str, Sequence[Level]]
    policies: Sequence[str]
    methods: Mapping[str, Method]
    profiles: Mapping[str, Profile]
    table: "Callable[[xr.Dataset], pd.DataFrame | Mapping[str, pd.DataFrame]]"
    figure: "Callable[[xr.Dataset], Figure | Mapping[str, Figure]]"
    replicate: "Callable[[Study, Cell, Streams], Outcome] | None" = None
    keep: Callable[[Cell], bool] | None = None
    check: Callable[[Cell], object] | None = None
    theory: Callable[[Cell], Mapping[str, npt.ArrayLike]] | None = None
    contrasts: Sequence[tuple[str, str]] = ()
    findings: "Callable[[xr.Dataset], Sequence[Finding]] | None" = None
    protocol: Protocol | None = None
    legend: Mapping[str, Mapping[Level, str]] = field(default_factory=dict)
    claims: Sequence[str] = ()
    scenario: str | Scenario = ""
    setting: "Callable[[Study, Cell], Setting]" = own_setting
    worlds: Sequence[str] = ()
    ci_prob: float = 0.95
    block: int = 20
    with_data: "Callable[..., Study] | None" = None
    source: Path | None = None

    def __post_init__(self) -> None:
        """Check what can be checked before a run."""
        for problem in self._problems():
            raise StudyError(f"study {self.name}: {problem}")

    def _problems(self) -> Iterator[str]:
        if set(self.profiles) != set(PROFILES):
            yield f"profiles are {sorted(self.profiles)}, they must be {', '.join(PROFILES)}"
        for name in ("factors", "policies", "methods"):
            if not getattr(self, name):
                yield f"{name} is empty; name at least one"
        if self.block < 1 or any(p.replicates < 1 for p in self.profiles.values()):
            yield "block and replicates must be >= 1"
        for profile in self.profiles.values():
            for where, count in profile.more:
                for factor, level in where.items():
                    if level not in profile.factors.get(factor, self.factors.get(factor, ())):
                        yield f"more replicates are asked where {factor} is {level!r}, which is none of its levels"
                if count <= profile.replicates:
                    yield f"{count} replicates are asked as more than {profile.replicates}"
        for factors in (self.factors, *(p.factors for p in self.profiles.values())):
            for factor, levels in factors.items():
                if factor not in self.factors:
                    yield f"unknown factor {factor!r}; there are: {', '.join(self.factors)}"
                yield from _bad_levels(factor, levels)
        for factor in set(self.legend) - set(self.factors):
            yield f"the legend names an unknown factor {factor!r}; there are: {', '.join(self.factors)}"
        if not set(itertools.chain(*self.contrasts)) <= set(self.policies):
            yield f"a contrast names an unknown policy; there are: {', '.join(self.policies)}"
        if "data" in self.methods:
            yield "no method may be called 'data', the name of the data's stream"
        for method in {m for p in self.profiles.values() for m in (*p.options, *p.without)} - set(
            self.methods
        ):
            yield f"unknown method {method!r}; there are: {', '.join(self.methods)}"

    @property
    def columns(self) -> list[str]:
        """Names of the estimands: the policies, then the contrasts."""
        return [*self.policies, *(f"{first} - {second}" for first, second in self.contrasts)]

    def at(self, profile: str, levels: Mapping[str, Sequence[Level]] = MappingProxyType({})) -> "Study":
        """Return the study at a profile: its levels and options, then `levels` on top."""
        if profile not in self.profiles:
            raise StudyError(f"unknown profile {profile!r}; there are: {', '.join(PROFILES)}")
        chosen = self.profiles[profile]
        methods = {
            name: replace(m, options={**m.options, **chosen.options.get(name, {})})
            for name, m in self.methods.items()
            if name not in chosen.without
        }
        profiles = {
            name: replace(p, options={k: v for k, v in p.options.items() if k in methods}, without=())
            for name, p in self.profiles.items()
        }
        factors = {**self.factors, **chosen.factors, **levels}
        return replace(self, factors=factors, methods=methods, profiles=profiles)

    def cells(self) -> Iterator[dict[str, Level]]:
        """Yield the cells of the grid in order, the last factor fastest."""
        for combination in itertools.product(*self.factors.values()):
            cell = dict(zip(self.factors, combination, strict=True))
            if self.keep is None or self.keep(cell):
                yield cell


def _bad_levels(factor: str, levels: Sequence[Level]) -> Iterator[str]:
    if factor in RESERVED or not factor.isidentifier():
        yield f"{factor!r} cannot be the name of a factor"
    if not levels or len({(type(v), v) for v in levels}) != len(levels):
        yield f"factor {factor} has no level or a level twice"
    kinds = {type(v) for v in levels}
    if len(kinds) > 1 or not kinds <= {bool, int, float, str}:
        yield f"levels of {factor} must share one type of bool, int, float, str"


def available() -> list[str]:
    """Names of all studies, sorted: the module names of this directory."""
    here = [str(Path(__file__).parents[1])]
    return sorted(m.name for m in pkgutil.iter_modules(here) if not m.ispkg and not m.name.startswith("_"))


def load(name: str) -> Study:
    """Import the study `name`, or that of a file ``./name.py``; what cannot be used raises one clear line."""
    if name.endswith(".py"):
        return _load_file(Path(name).resolve())
    if name not in available():
        raise StudyError(
            f"no study named {name!r}; there are: {', '.join(available()) or 'none'}, or give a file: ./{name}.py"
        )
    return _checked(importlib.import_module(f"studies.{name}"), name, f"studies/{name}.py")


def _checked(module: ModuleType, name: str, where: str) -> Study:
    study = getattr(module, "STUDY", None)
    if not isinstance(study, Study) or study.name != name:
        raise StudyError(f"{where} must define STUDY = Study(name={name!r}, ...)")
    return study


_HOMES: set[str] = set()  # directories of users' studies


def at_home(source: Path) -> None:
    """Let the modules beside a user's study be imported anew, and those beside an earlier one no longer."""
    sys.path[:] = [place for place in sys.path if place not in _HOMES]
    _HOMES.add(str(source.parent))
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file is not None and "." not in name and str(Path(file).parent) in _HOMES:
            del sys.modules[name]
    other = importlib.util.find_spec(source.stem) if source.stem.isidentifier() else None
    if not source.stem.isidentifier() or (other is not None and other.origin != str(source)):
        raise StudyError(f"{source}: {source.stem!r} is the name of another module, or none; rename the file")
    sys.path.insert(0, str(source.parent))
    importlib.invalidate_caches()


def _load_file(path: Path) -> Study:
    """Import a user's file under its own name, as worker processes will."""
    name = path.stem
    if not path.is_file():
        raise StudyError(f"{path}: there is no such file")
    at_home(path)
    try:
        module = importlib.import_module(name)
    except Exception as error:  # whatever a user's file raises is one line with its place
        raise StudyError(f"{path}: {describe(error)}") from error
    return replace(_checked(module, name, str(path)), source=path)


def parse_levels(
    studies: Sequence[Study], settings: list[str], option: str = "--set"
) -> dict[str, list[Level]]:
    """Levels of ``factor=v1,v2``, as an option gives them, converted to the type of the factor's declared levels."""
    chosen: dict[str, list[Level]] = {}
    for setting in settings:
        factor, equals, text = setting.partition("=")
        for study in studies:
            if not equals:
                raise StudyError(f"{option} {setting}: write factor=v1,v2")
            if factor not in study.factors:
                raise StudyError(
                    f"{option} {setting}: {study.name} has no factor {factor!r}; "
                    f"write factor=v1,v2 with one of: {', '.join(study.factors)}"
                )
            declared = list(study.factors[factor])
            chosen[factor] = [
                _parse_level(f"{option} {setting}", value, declared) for value in text.split(",")
            ]
    return chosen


def _parse_level(setting: str, text: str, declared: list[Level]) -> Level:
    kind = type(declared[0])
    if kind in (bool, str):
        names = {str(level).lower() if kind is bool else str(level): level for level in declared}
        if text in names:
            return names[text]
        raise StudyError(f"{setting}: {text!r} is not a level; there are: {', '.join(names)}")
    try:
        return kind(text)
    except ValueError:
        kinds = {int: "a whole number", float: "a number"}
        raise StudyError(f"{setting}: {text!r} is not {kinds[kind]}, as the levels are") from None
