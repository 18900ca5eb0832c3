"""Variables over prompts from fields of files: the groups that values are told of (`cje_core.data.cohorts`)."""

from collections.abc import Sequence

import pandas as pd
import xarray as xr

from cje_core.data.cohorts import group_names
from cje_core.data.errors import DataError
from cje_core.io.fields import FIELDS, Source, ids, name_of, of_prompts, stop
from cje_core.io.tables import load

GROUPS = ("cohort", "stratum", "cluster")  # variables over prompts that files bring by themselves


def add_groups(
    data: xr.Dataset, names: Sequence[str], path: Source, probes: Source | None = None
) -> xr.Dataset:
    """Evaluation data with fields of its files as variables over prompts, of the fields' names.

    Parameters
    ----------
    data : xr.Dataset
        As `cje_core.io.files.read` made it of `path` and `probes`; what it has already is not read again.
    names : sequence of str
        Fields of the rows, text or integers, of which each prompt has one value. A row may leave it to the others of
        its prompt.
    path, probes : path or DataFrame
        As in `cje_core.io.files.read`.

    Raises
    ------
    DataError
        With one line: a name with another meaning, a field that no row has, a prompt with two values or none.
    """
    wanted = []
    for name in names:
        if name in FIELDS and name not in GROUPS:
            raise DataError(
                f"field {name!r} of prompts: it has a meaning of its own; name another, or copy it"
            )
        if name not in data:
            wanted.append(name)
        else:
            group_names(data, name)
    if not wanted:
        return data
    fields = ["policy", "prompt_id", *wanted]
    table, _ = load(path, fields, suffixes=("_responses",), texts=fields)
    if probes is not None:
        audit, _ = load(probes, fields, suffixes=("_probe", "_responses"), texts=fields)
        table = pd.concat([table, audit], ignore_index=True)
    table["prompt_id"] = ids(table, "prompt_id", required=True)
    found = {}
    for field in wanted:
        if table[field].isna().all():
            raise DataError(f"{name_of(path)}: no row has the field {field!r}; name one that is there")
        table[field] = ids(table, field, required=False)
        of_prompt = of_prompts(table, field)
        absent = ~table["prompt_id"].isin(of_prompt.index)
        stop(table, absent, field, "no row of its prompt_id has one; give each prompt one value")
        found[field] = ("prompt", of_prompt.reindex(data["prompt"].values.astype(str)).to_numpy(str))
    return data.assign(found)
