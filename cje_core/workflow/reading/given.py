"""Evaluation data as a workflow is given it: files and tables to read, or a Dataset that is evaluation data already."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple, TypedDict, Unpack

import pandas as pd
import xarray as xr

from cje_core.data import DataError, check_data
from cje_core.data.cohorts import group_names, restrict
from cje_core.data.contract import check_names
from cje_core.io.fields import LEFT_OUT, Source, check_range
from cje_core.io.files import entries, read
from cje_core.io.groups import add_groups
from cje_core.io.intake.raw import PARQUET
from cje_core.io.large.on_dask import shares_on
from cje_core.io.large.spill import BY_PROMPT, spilled
from cje_core.io.tables import opened
from cje_core.workflow.reading.pooled import pool

Given = Source | xr.Dataset
A_ROW = 400  # bytes of memory that a response costs where all are in memory
WITH_ROWS = ("logged", "probes", "labels", "groups", "cohort", "shared_prompts")
SHARE = 0.5  # of the machine's memory, beyond which a file is read as larger than memory


class Files(TypedDict, total=False):
    """How files are read: arguments of `cje_core.io.files.read`."""

    probes: Source | None
    logged: str | Path | None
    calibration_policy: str | Sequence[str] | None
    judge_range: tuple[float, float]
    oracle_range: tuple[float, float]
    salt: str | None
    labels: str | Path | None


class Reading(Files, total=False):
    """How files are read, by what their prompts are grouped, and which of them are taken.

    ``groups``: fields of which each prompt has one value (`cje_core.io.groups.add_groups`). ``cohort``: values of
    such fields; only prompts that have them are taken (`cje_core.data.cohorts.restrict`). ``shared_prompts``: only
    prompts that all policies answered enter the means (`on_shared_prompts`). ``large``: whether the file is read in
    bounded memory (`taken`), and ``dask``: the address of a Dask scheduler whose workers then read it.
    """

    groups: Sequence[str]
    cohort: Mapping[str, str] | None
    shared_prompts: bool
    large: bool | None
    dask: str | None


def take(
    path: Given,
    covariates: Sequence[str] = (),
    *,
    groups: Sequence[str] = (),
    cohort: Mapping[str, str] | None = None,
    shared_prompts: bool = False,
    large: bool | None = None,
    dask: str | None = None,
    **reading: Unpack[Files],
) -> tuple[xr.Dataset, pd.DataFrame]:
    """Read as `cje_core.io.files.read` does, and take the cohort that is asked for.

    A Dataset is checked, and its policies put in order of name.

    A Dataset brings its own probes, logged responses, calibration policy and scales: `probes`, `logged` and
    `calibration_policy` are refused beside it, the ranges not looked at; `covariates` and `groups` name what it has.
    """
    if large or dask:
        raise DataError(
            f"{'large=True' if large else 'dask='}: only an analysis of values is made in bounded memory; leave it out"
        )
    cohort = cohort or {}
    groups = list(dict.fromkeys([*groups, *cohort]))
    if shared_prompts:
        data, left_out = take(path, covariates, groups=groups, cohort=cohort, **reading)
        return on_shared_prompts(data), left_out
    if not isinstance(path, xr.Dataset):
        data, left_out = read(path, covariates=covariates, **reading)
        data = add_groups(data, groups, path, reading.get("probes"))
        return restrict(data, cohort) if cohort else data, left_out
    for name in ("probes", "logged", "labels", "calibration_policy"):
        if reading.get(name) is not None:
            raise DataError(f"{name}= goes with files, and a Dataset brings its own; leave {name}= out")
    data = check_names(check_data(path)).sortby("policy")
    for name in groups:
        group_names(data, name)
    return restrict(data, cohort) if cohort else data, pd.DataFrame(columns=LEFT_OUT)


def on_shared_prompts(data: xr.Dataset) -> xr.Dataset:
    """Evaluation data in which only the prompts that all policies answered enter the means.

    The estimand is then the value over prompts of that kind, and every difference of policies is paired. Labels of
    other prompts still teach and audit. Policies without any evaluated response (logged ones only) do not count.

    Examples
    --------
    >>> from cje_core.data import from_arrays
    >>> some = from_arrays([[0.1, 0.2, float("nan")], [0.3, float("nan"), 0.4]], policies=["a", "b"])
    >>> on_shared_prompts(some)["evaluated"].sum(["prompt", "draw"]).values.tolist()
    [1, 1]
    """
    answered = data["evaluated"].any("draw")
    having = answered.any("prompt")
    shared = (answered | ~having).all("policy")
    if not bool(shared.any()):
        raise DataError("shared_prompts= finds no prompt that all policies answered; compare fewer policies")
    return data.assign(evaluated=(data["evaluated"] & shared).transpose(*data["evaluated"].dims))


class Taken(NamedTuple):
    """Evaluation data to be analysed."""

    data: xr.Dataset
    left_out: pd.DataFrame
    # what estimates of these data lack: nothing, or what prompts share that pooled data have apart
    joined: Callable[[Mapping[str, xr.Dataset]], dict[str, xr.Dataset]] = dict


@contextmanager
def taken(
    path: Given, covariates: Sequence[str], needs_rows: str | None, **reading: Unpack[Reading]
) -> Iterator[Taken]:
    """`take`, or where the file is large its pooled data, whose temporary files live as long as the context.

    ``large`` says whether it is: one Parquet file, of which a labelled few rows and sums of the others are kept
    (`cje_core.workflow.reading.pooled`). Default: where the responses would take more than `SHARE` of the machine's
    memory, at `A_ROW` each, and nothing asked for needs them: `needs_rows`, logged responses, probes of their own file,
    cohorts. ``dask`` asks for it, on the workers of a cluster.
    """
    asked, dask = reading.pop("large", None), reading.pop("dask", None)
    if dask and asked is False:
        raise DataError(
            "dask= reads a file in bounded memory, which large=False forbids; leave one of the two out"
        )
    asked = True if dask else asked
    needs_rows = next((f"{name}=" for name in WITH_ROWS if _is_given(reading.get(name))), needs_rows)
    if not _is_large(path, asked, needs_rows, f"dask={dask!r}" if dask else "large=True"):
        yield Taken(*take(path, covariates, **reading))
        return
    assert isinstance(path, str | Path)
    judge = check_range("judge_range", reading.get("judge_range", (0.0, 1.0)))
    oracle = check_range("oracle_range", reading.get("oracle_range", (0.0, 1.0)))
    scales = {"judge_score": judge, "oracle_label": oracle}
    with (
        shares_on(dask, Path(path), scales) if dask else nullcontext() as shares,
        spilled(Path(path), scales, shares) as spill,
    ):
        pooled = pool(
            spill,
            judge_range=judge,
            oracle_range=oracle,
            calibration_policy=reading.get("calibration_policy"),
        )
        yield Taken(pooled.data, entries(spill.left_out), pooled.joined)


def _is_given(value: object) -> bool:
    """Whether an argument asks for something; a table does, whatever it holds."""
    return (
        len(value) > 0 if isinstance(value, Mapping | Sequence) else value is not None and value is not False
    )


def _is_large(path: Given, asked: bool | None, needs_rows: str | None, by: str) -> bool:
    """Whether to read data as larger than memory; `DataError`, naming who asks, where they are to be and cannot."""
    if asked is False or (needs_rows and not asked):
        return False
    if not isinstance(path, str | Path) or Path(path).suffix.lower() not in PARQUET:
        if asked:
            raise DataError(f"{by}: it reads one Parquet file; write the responses as one, or leave it out")
        return False
    if asked and needs_rows:
        raise DataError(f"{by}: {needs_rows} needs every row in memory; leave one of the two out")
    if asked or not Path(path).is_file() or not Path(path).stat().st_size:
        return bool(asked)
    with opened(Path(path)) as file:
        rows = 0 if set(BY_PROMPT) & set(file.schema_arrow.names) else int(file.metadata.num_rows)
    return rows * A_ROW > SHARE * _memory()


def _memory() -> float:
    """Bytes of memory of this machine; where the system does not say, 8 GiB."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return 8.0 * 2**30


def has_logs(path: Given, reading: Reading) -> bool:
    """Whether logged responses are given."""
    return "logp_target" in path if isinstance(path, xr.Dataset) else reading.get("logged") is not None


def oracle_scale(path: Given, reading: Reading) -> tuple[float, float]:
    """Return the declared scale of the labels: a Dataset's own."""
    declared = reading.get("oracle_range", (0.0, 1.0))
    low, high = path.attrs.get("oracle_range", declared) if isinstance(path, xr.Dataset) else declared
    return float(low), float(high)
