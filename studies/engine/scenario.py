"""The usual study: estimators on data of one scenario, many replicates at once where a block can hold them."""

import contextlib
import inspect
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cje_core import estimators
from cje_core.calibration.calibrated import Calibrated, calibrated
from cje_core.data.block import Block
from cje_core.data.errors import DataError
from cje_core.families.many import data_sets, estimate_each
from cje_core.families.off_policy.logs import Logs
from cje_core.inference.pairs import Pairs, pair_errors
from cje_core.streams import Cell, Level, Streams
from cje_sim import scenarios
from studies.engine.outcome import CRASHED, NOT_RUN, Failure, Outcome, describe
from studies.engine.study import Method, Scenario, Setting, Study

if TYPE_CHECKING:
    import xarray as xr


@dataclass
class Shared:
    """One data set of a replicate, and what its methods computed of its logged responses, for those that follow."""

    given: Calibrated
    logs: Logs | None = None  # with the stages that any method so far has read


def world_of(scenario: str | Scenario) -> Any:
    """Return the ``simulate`` and ``truth`` of a world of ours or of a study's own."""
    return scenarios.load(scenario) if isinstance(scenario, str) else scenario


def _estimator(method: Method, name: str) -> Any:
    """Return what has the method's ``estimate``: a module of ours, or a function of the study's own."""
    chosen = method.estimator or name
    return SimpleNamespace(estimate=chosen) if callable(chosen) else estimators.load(chosen)


def replicate_scenario(study: Study, cell: Cell, streams: Streams, *, keep: bool = True) -> Outcome:
    """One replicate of the usual study, see `replicates_of_scenario`."""
    return replicates_of_scenario(study, cell, [streams], keep_exceptions=keep)[0]


def replicates_of_scenario(
    study: Study, cell: Cell, streams: Sequence[Streams], *, keep_exceptions: bool = True
) -> list[Outcome]:
    """Replicates of the usual study: simulate the cell's `Setting`, run each method's estimator on the data.

    Data that a `cje_core.data.block.Block` can hold are drawn into one, and estimators that have a ``find`` run on its
    arrays; the others run on one labelled data set after the other. The numbers are the same. A method that raises on
    one data set spoils that method there; an exception in the simulator or on a block of several is raised, and without
    `keep_exceptions` any is. A contrast has the interval of `cje_core.inference.contrasts.contrasts` and the graver
    status of its two policies. The seconds of a method that ran on a block are its share of the block's.
    """
    setting = study.setting(study, cell)
    truth, pairs = _truth_and_pairs(study, setting)
    shape = len(streams), len(study.methods), len(study.columns)
    numbers = _nothing_yet(shape)
    seconds, failures = np.full(shape[:2], np.nan), [list[Failure]() for _ in streams]
    simulate = world_of(setting.scenario).simulate
    draw = getattr(simulate, "block", None)
    block: Block | None = draw and draw([s("data") for s in streams], **setting.arguments)
    block = block and block.without_idle(setting.policies)

    def keep(r: slice, m: int, name: str, compute: Callable[[], Sequence[Any] | None]) -> bool:
        """Whether a method had numbers of the replicates r, a slice, or crashed on the one there is."""
        start = time.perf_counter()
        try:
            found = compute()
        except Exception as error:  # kept as data: the run goes on and counts it
            if len(seconds[r]) > 1 or not keep_exceptions:
                raise
            numbers[3][r, m] = CRASHED
            failures[r.start].append(Failure(name, describe(error)))
        else:
            if found is None:
                return False
            for whole, part in zip(numbers, found, strict=True):
                whole[r, m] = part
        seconds[r, m] = (time.perf_counter() - start) / len(seconds[r])
        return True

    chosen = [
        (m, name)
        for m, name in enumerate(study.methods)
        if name in setting.methods and not study.methods[name].package  # a peer's run is in `studies.referee`
    ]
    rest, everyone = [], slice(0, len(streams))
    # fitted so that no method's time is that of the fit all share
    shared_fit = any(_shares(study, name) for _, name in chosen)
    given = [] if block is None else data_sets(block, fitted=shared_fit)
    for m, name in chosen:
        done = False
        if block is not None:
            on_block = partial(_on_block, study, name, given, setting.policies, streams, pairs)
            done = keep(everyone, m, name, on_block)
        if not done:
            rest.append((m, name))
    for r, s in enumerate(streams if rest else ()):
        data = simulate(**setting.arguments, rng=s("data"))
        # so that no method's time is that of laying out the data, nor that of the fit all share
        shared = Shared(_fitted(study, [name for _, name in rest], data))
        for m, name in rest:
            on_data = partial(_on_data, study, name, shared, setting.policies, s, pairs)
            keep(slice(r, r + 1), m, name, on_data)
    return [
        Outcome(
            estimate=numbers[0][r],
            truth=truth,
            std_error=numbers[1][r],
            interval=numbers[2][r],
            status=numbers[3][r],
            seconds=seconds[r],
            failures=tuple(failures[r]),
        )
        for r in range(len(streams))
    ]


def _truth_and_pairs(study: Study, setting: Setting) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.intp]]:
    """True values of the study's columns, and the places of each contrast's two policies, shape (2, contrasts)."""
    pairs = np.array([[study.policies.index(pair[k]) for pair in study.contrasts] for k in (0, 1)], np.intp)
    truth = _truth(setting.scenario, tuple(setting.arguments.items()), tuple(setting.policies))
    return np.concatenate([truth, truth[pairs[0]] - truth[pairs[1]]]), pairs


def _nothing_yet(shape: tuple[int, ...]) -> list[npt.NDArray[Any]]:
    """Estimate, standard error, interval and status before any method ran."""
    return [np.full(s, np.nan) for s in (shape, shape, (*shape, 2))] + [np.full(shape, NOT_RUN)]


def _on_block(
    study: Study,
    name: str,
    given: Sequence[Calibrated],
    policies: Sequence[str],
    streams: Sequence[Streams],
    pairs: npt.NDArray[np.intp],
) -> Sequence[Any] | None:
    """Estimate, standard error, interval and status of all replicates; None where the estimator has no ``find``."""
    method = study.methods[name]
    find = getattr(_estimator(method, name), "find", None)
    if find is None or not set(method.options) <= set(inspect.signature(find).parameters):
        return None
    rngs = (s(name) for s in streams)
    found = estimate_each(find, given, ci_prob=study.ci_prob, rngs=rngs, **method.options)
    named = given[0].data["policy"].values.tolist()
    place = np.array([named.index(policy) for policy in policies], np.intp)
    levels = [x[:, place] for x in (found.estimate, found.std_error, found.interval, found.status)]
    return _joined(levels, found.pairs(place[pairs[0]], place[pairs[1]], study.ci_prob), pairs)


def _fitted(study: Study, names: Collection[str], data: "xr.Dataset") -> Calibrated:
    """The data with the usual calibrator, fitted once where a method takes it; one that fails to, says so itself."""
    shared = calibrated(data)
    _ = shared.rows
    if any(_shares(study, name) for name in names):
        with contextlib.suppress(DataError):
            _ = shared.slice
    return shared


def _shares(study: Study, name: str) -> bool:
    """Whether a method calibrates the judge, and as all do that say nothing of how."""
    method = study.methods[name]
    if (
        callable(method.estimator) or "calibration" in method.options
    ):  # a function of the user's own takes a dataset
        return False
    return "calibration" in inspect.signature(_estimator(method, name).estimate).parameters


def _on_data(
    study: Study,
    name: str,
    data: Shared,
    policies: Sequence[str],
    streams: Streams,
    pairs: npt.NDArray[np.intp],
) -> Sequence[Any]:
    """Estimate, standard error, interval and status of one data set."""
    return _numbers(study, _estimated(study, name, data, streams), policies, pairs)


def _estimated(study: Study, name: str, data: Shared, streams: Streams) -> "xr.Dataset":
    method = study.methods[name]
    estimate = _estimator(method, name).estimate
    theirs = callable(method.estimator) or "calibration" in method.options  # a dataset, or a fit of its own
    given: Calibrated | Logs | xr.Dataset = data.given.data if theirs else data.given
    if _shares(study, name) and hasattr(estimate, "prepare"):
        given = data.logs = estimate.prepare(data.logs or data.given, **method.options)
    found: xr.Dataset = estimate(given, ci_prob=study.ci_prob, rng=streams(name), **method.options)
    return found


def _numbers(
    study: Study, result: "xr.Dataset", policies: Sequence[str], pairs: npt.NDArray[np.intp]
) -> Sequence[Any]:
    """Estimate, standard error, interval and status in the study's columns."""
    found = (
        result.variables
    )  # arrays, not sel, which costs a study milliseconds, nor DataArrays, a tenth of one
    names = found["policy"].values.astype(str).tolist()
    place = np.array([names.index(policy) for policy in policies], np.intp)
    levels = [found[v].values[place] for v in ("estimate", "std_error", "interval", "status")]
    if not study.contrasts:
        return levels
    apart = pair_errors(result, place[pairs[0]], place[pairs[1]], study.ci_prob, tested=False)
    return _joined(levels, apart, pairs)


def _joined(levels: Sequence[Any], differences: Pairs, pairs: npt.NDArray[np.intp]) -> Sequence[Any]:
    """Numbers of policies, then those of their contrasts, the (last) axis of the status."""
    code = levels[3]
    worse = np.maximum(code[..., pairs[0]], code[..., pairs[1]])
    added = differences.difference, differences.std_error, differences.interval, worse
    return [np.concatenate([own, more], axis=code.ndim - 1) for own, more in zip(levels, added, strict=True)]


@lru_cache(maxsize=1024)
def _truth(
    scenario: str | Scenario, cell: tuple[tuple[str, Level], ...], policies: tuple[str, ...]
) -> npt.NDArray[Any]:
    """Values of some policies by the scenario's ``truth``: quadrature, the same for every replicate of a cell."""
    truth = world_of(scenario).truth
    asked = inspect.signature(truth).parameters
    return np.asarray(truth(**{k: v for k, v in cell if k in asked}).sel(policy=list(policies)).values)


Facts = Mapping[str, "xr.DataArray"]  # each over ``policy``


def _no_facts(_: "xr.Dataset") -> Facts:
    return {}


def replicate_with_facts(
    study: Study,
    cell: Cell,
    streams: Streams,
    *,
    of_data: "Callable[[xr.Dataset], Facts]" = _no_facts,
    of_estimate: "Callable[[xr.Dataset], Facts]" = _no_facts,
    all_labelled: Collection[str] = (),
) -> Outcome:
    """One replicate of the usual study, one estimator after the other, with facts beside the numbers.

    Parameters
    ----------
    study, cell, streams
        As of any `replicate`; a study binds the rest by ``functools.partial``.
    of_data, of_estimate : functions Dataset -> mapping of name to DataArray over ``policy``
        Of the data, and of every method's estimate: they become the outcome's ``extra``. NaN where a method crashed or
        says nothing, and for contrasts.
    all_labelled : collection of str
        Methods that see an oracle label of every response: the same responses, all labelled. Controls.
    """
    setting = study.setting(study, cell)
    policies, shape = list(setting.policies), (len(study.methods), len(study.columns))
    truth, pairs = _truth_and_pairs(study, setting)
    simulate = world_of(setting.scenario).simulate
    data = simulate(**setting.arguments, rng=streams("data"))
    numbers = _nothing_yet(shape)
    seconds, failures = np.full(shape[0], np.nan), list[Failure]()
    extra: dict[str, npt.NDArray[np.float64]] = {}
    for name, fact in of_data(data).items():
        extra[name] = np.full(shape[1], np.nan)
        extra[name][: len(policies)] = fact.sel(policy=policies).values

    def run(m: int, name: str, seen: Shared) -> None:
        start = time.perf_counter()
        try:
            result = _estimated(study, name, seen, streams)
        except Exception as error:  # kept as data: the run goes on and counts it
            numbers[3][m] = CRASHED
            failures.append(Failure(name, describe(error)))
            return
        seconds[m] = time.perf_counter() - start
        for whole, part in zip(numbers, _numbers(study, result, policies, pairs), strict=True):
            whole[m] = part
        for fact, value in of_estimate(result).items():
            rows = extra.setdefault(fact, np.full(shape, np.nan))
            rows[m, : len(policies)] = value.sel(policy=policies).values

    chosen = [(m, name) for m, name in enumerate(study.methods) if name in setting.methods]
    for complete in (False, True):
        mine = [(m, name) for m, name in chosen if (name in all_labelled) is complete]
        if complete and mine:
            everything = {**setting.arguments, "oracle_fraction": 1.0, "label_design": "own"}
            data = simulate(**everything, rng=streams("data"))
        shared = Shared(_fitted(study, [name for _, name in mine], data))
        for m, name in mine:
            run(m, name, shared)
    return Outcome(
        estimate=numbers[0],
        truth=truth,
        std_error=numbers[1],
        interval=numbers[2],
        status=numbers[3],
        seconds=seconds,
        extra=extra,
        failures=tuple(failures),
    )
