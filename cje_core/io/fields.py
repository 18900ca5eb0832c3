"""Checks of a table's fields: ids, numbers, flags, declared scales, and the one line that refuses a bad row.

A table knows of each row its ``file`` and ``row``. A check turns a column into ids, numbers or flags, or raises
`DataError` with one line: file, row, field, what was found, how to mend it.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from numbers import Integral, Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from cje_core.checks import BoolArray, FloatArray
from cje_core.data.contract import CONTROL, LARGEST, NO_FOLD, ONE_LINE, OVERFLOW
from cje_core.data.errors import DataError, line


class Foreign(NamedTuple):
    """Responses that a reader made of another tool's file (`cje_core.io.intake.foreign`).

    ``table`` has the columns of a table of responses, and ``file`` and ``row``; ``left_out`` what could not be used.
    """

    table: pd.DataFrame
    left_out: pd.DataFrame
    name: str


Source = str | Path | pd.DataFrame | Foreign
Scales = Mapping[str, tuple[float, float]]
KEY = ["policy", "prompt_id", "draw_idx"]  # name a response
LEFT_OUT = ["file", "row", "policy", "prompt_id", "reason"]  # columns of the rows left out
# What no covariate may be called.
FIELDS = ("policy", "prompt_id", "draw_idx", "judge_score", "oracle_label", "probe", "evaluated", "label_prob",
          "surprisal", "log_ratio", "cluster", "stratum", "cohort", "fold_id", "response", "file", "row")  # fmt: skip
# What is read of a table of responses, and what may stand beside it.
READ = (*FIELDS[:6], *FIELDS[7:-2], "metadata")
EXACT = 2**53  # beyond it floats skip integers
FINITE = "a finite number is expected (or null where it is unknown)"
NOTHING = ("", "na", "n/a", "<na>", "nan", "none", "null", "-")
WORDS = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
NUMBERS = ("draw_idx", "judge_score", "oracle_label", "label_prob", "surprisal", "log_ratio")
SHARED = ("cluster", "stratum", "cohort", "fold_id")  # what all rows of a prompt share
LENGTH = "response_length"
DECLARED = {"judge_score": "judge_range", "oracle_label": "oracle_range"}
# This share of values off the scale is a scale declared wrongly rather than a few slips of the pen.
MANY = 0.05
FOLD = re.compile(r"[0-9]{1,9}")
FOLDS = "number the folds 0, 1, 2, ..."


def check_columns(
    columns: Iterable[object], name: str, required: Sequence[str] = ("policy", "prompt_id")
) -> None:
    """Stop at a table without the columns that say whose response a row is, or with two of one name."""
    names = [str(c) for c in columns]
    for field in names:
        if names.count(field) > 1:
            raise DataError(
                f"{name}: column {field!r} occurs {names.count(field)} times; rename or drop all but one"
            )
    for field in required:
        if field not in names:
            held = line(", ".join(names), 80)
            raise DataError(f"{name}: no column {field!r} (it has {held}); add or rename the column")


def ids(table: pd.DataFrame, field: str, *, required: bool) -> pd.Series:
    """Ids as text; 0 and "" are ids like any other, None and NaN are missing (and an error if `required`)."""
    if isinstance(table[field].dtype, pd.CategoricalDtype):
        if required:
            stop(table, table[field].isna(), field, "every row needs one")
        odd = [name for name in table[field].cat.categories if CONTROL.search(name)]
        stop(table, table[field].isin(odd), field, ONE_LINE)
        return table[field]
    if isinstance(table[field].dtype, pd.StringDtype):  # text already: a million rows need no look at each
        column = table[field].array
        if required:
            stop(table, column.isna(), field, "every row needs one")
        if _has_control(column):
            _stop_control(table, field, [v if isinstance(v, str) else "" for v in column])
        return table[field]
    values: list[Any] = table[field].to_numpy(dtype=object).tolist()
    kinds = set(map(type, values))
    if kinds <= {str}:
        _stop_control(table, field, values)
        return table[field]
    if not kinds <= {str, int, type(None)}:
        values = [int(v) if isinstance(v, float) and v.is_integer() else v for v in values]
        values = [None if v is pd.NA or (isinstance(v, float) and np.isnan(v)) else v for v in values]
        legal = [v is None or (isinstance(v, str | Integral) and not isinstance(v, bool)) for v in values]
        stop(table, ~np.array(legal), field, "write a string or an integer")
    if required:
        stop(table, [v is None for v in values], field, "every row needs one")
    _stop_control(table, field, [v if isinstance(v, str) else "" for v in values])
    return pd.Series([None if v is None else str(v) for v in values], index=table.index, dtype=object)


def _has_control(column: Any) -> bool:
    """Whether text of Arrow has a control character; printable ASCII is so without a Python object for each."""
    for chunk in pa.chunked_array(column.__arrow_array__()).chunks:
        start, end = np.frombuffer(chunk.buffers()[1], np.int64)[[chunk.offset, chunk.offset + len(chunk)]]
        letters = np.frombuffer(chunk.buffers()[2] or b"", np.uint8)[start:end]
        plain = letters.min(initial=0x20) >= 0x20 and letters.max(initial=0x20) < 0x7F
        if not plain and CONTROL.search(letters.tobytes().decode()):
            return True
    return False


def _stop_control(table: pd.DataFrame, field: str, texts: Sequence[str]) -> None:
    """Stop at a name with a control character; first one search, since a million rows need no look at each."""
    if CONTROL.search("".join(texts)):
        stop(table, [CONTROL.search(v) is not None for v in texts], field, ONE_LINE)


def numbers(table: pd.DataFrame, field: str) -> FloatArray:
    """Column as float, NaN where missing; infinity, what overflows and anything but a number stop the reading."""
    values = table[field].to_numpy()
    if values.dtype.kind in "fiu":  # numbers already: a million rows need no look at each
        return _in_reach(table, field, np.asarray(values, dtype=float))
    values = table[field].to_numpy(dtype=object)
    kinds = set(map(type, values))
    missing = (type(None), type(pd.NA))
    wrong = {k for k in kinds if k in (bool, np.bool_) or not issubclass(k, (Real, Decimal, *missing))}
    if wrong:
        stop(table, [type(v) in wrong for v in values], field, lambda row: _instead_of(row[field]))
    if kinds & set(missing):
        values = np.array([np.nan if isinstance(v, missing) else v for v in values], dtype=object)
    try:
        out = values.astype(float)
    except OverflowError:  # an integer beyond the range of floats
        out = np.array([float(v) if abs(v) < 1e300 else np.inf for v in values])
    return _in_reach(table, field, np.asarray(out, dtype=float))


def _in_reach(table: pd.DataFrame, field: str, values: FloatArray) -> FloatArray:
    """`values`, none of them infinite or so large that its square would be; the zero has no sign."""
    beyond = np.abs(values) > LARGEST
    if beyond.any():
        stop(table, np.isinf(values), field, FINITE)
        stop(table, beyond, field, OVERFLOW)
    return np.asarray(values + 0.0)


def _instead_of(value: object) -> str:
    """What to write in place of something that is no number."""
    word = str(value).strip().lower()
    if word in ("true", "false"):
        return "a number is expected: write 1 or 0"
    if word in NOTHING:
        return "a number is expected: leave the cell empty (null in JSON) where it is unknown"
    return "a number is expected, without quotes"


def flags(table: pd.DataFrame, field: str) -> BoolArray:
    """Column of true or false (1 and 0 also count), false where missing."""
    if table[field].dtype == bool:
        return table[field].to_numpy()
    held = table[field]
    if held.isna().all():
        return np.zeros(len(table), dtype=bool)
    if held.dtype == object:  # an object has no hash
        held = pd.Series([None if v is None or v is pd.NA or v != v else str(v) for v in held], dtype=object)
    codes, kinds = pd.factorize(held)
    words = [WORDS.get(str(kind).strip().lower()) for kind in kinds]
    stop(table, np.array([*(word is None for word in words), False])[codes], field, "write true or false")
    return np.array([*words, False], dtype=bool)[codes]


def typed(frame: pd.DataFrame, covariates: Sequence[str] = ()) -> pd.DataFrame:
    """Columns of a table of responses with their types, by the checks that files go through.

    Parameters
    ----------
    frame : DataFrame
        As in `cje_core.io.from_frame`.
    covariates : sequence of str

    Returns
    -------
    DataFrame
        Ids as text, numbers as float, ``draw_idx`` as int, flags as bool; other columns are left out.
    """
    check_covariates(covariates)
    check_columns(frame.columns, "the table", ("policy", "prompt_id", "judge_score", *covariates))
    if frame.empty:
        raise DataError("the table has no rows; give at least one response")
    table = frame.reset_index(drop=True).assign(file="the table", row=np.arange(1, len(frame) + 1))
    for field in ("cluster", "stratum", "cohort"):
        if field in table:
            stop(table, table[field].isna(), field, "every row needs one")
    for field in ("probe", "evaluated"):
        if field in table:
            stop(table, table[field].isna(), field, "write true or false")
    check_rows(table, covariates)
    require(table, "judge_score", "a response without a grade enters by evaluated=False, or is counted apart")
    return table


def check_rows(table: pd.DataFrame, covariates: Sequence[str] = ()) -> None:
    """Give the columns of responses their types, in place; what is wrong with a value stops at its row.

    Ids become text, numbers floats with NaN where missing, ``draw_idx`` integers, flags truth values.
    """
    if "fold_id" in table and table["fold_id"].dtype.kind == "f":
        fold = table["fold_id"].to_numpy()
        stop(table, ~np.isnan(fold) & (fold != np.floor(fold)), "fold_id", FOLDS)
    for field in (name for name in (*KEY[:2], *SHARED) if name in table):
        table[field] = ids(table, field, required=field in KEY)
    if "fold_id" in table and table["fold_id"].notna().any():
        odd = [isinstance(v, str) and not FOLD.fullmatch(v) and v != str(NO_FOLD) for v in table["fold_id"]]
        stop(table, odd, "fold_id", FOLDS)
    for field in (name for name in (*NUMBERS, *covariates) if name in table):
        if table[field].dtype != float or table[field].notna().any():
            table[field] = numbers(table, field)
    if "draw_idx" in table and table["draw_idx"].notna().any():
        draw = np.nan_to_num(table["draw_idx"].to_numpy())
        improper = (draw < 0) | (draw != np.floor(draw)) | (draw > EXACT)
        stop(table, improper, "draw_idx", "number the draws 0, 1, 2, ...")
        table["draw_idx"] = draw.astype(np.int64)
    else:
        table["draw_idx"] = np.zeros(len(table), dtype=np.int64)
    if "label_prob" in table and table["label_prob"].notna().any():
        prob = table["label_prob"].to_numpy()
        improper = (prob < 0) | (prob > 1)
        if "oracle_label" in table:
            improper |= table["oracle_label"].notna().to_numpy() & (prob == 0)
        stop(table, improper, "label_prob", "the probability of a label lies in (0, 1]")
    for field in (name for name in ("probe", "evaluated") if name in table):
        table[field] = flags(table, field)


def check_covariates(names: Sequence[str]) -> None:
    """Stop at a covariate that is given twice or is a field with another meaning."""
    if isinstance(names, str):
        raise DataError(f"covariates={names!r}: a text; give a list of names, [{names!r}]")
    for k, name in enumerate(names):
        if name in names[:k]:
            raise DataError(f"covariate {name} is given twice; give it once")
        if name in FIELDS:
            raise DataError(
                f"covariate {name}: this field has a meaning of its own; name another, or copy it"
            )


def count_words(table: pd.DataFrame) -> None:
    """Fill ``response_length``: one formula for fresh and logged responses."""
    absent = [not isinstance(response, str) for response in table["response"]]
    stop(table, absent, "response", f"covariates={LENGTH!r} needs its text")
    table[LENGTH] = [float(len(response.split())) for response in table["response"]]


def check_range(name: str, scale: tuple[float, float]) -> tuple[float, float]:
    """Return a declared scale; stop where it is none."""
    low, high = scale
    if not (np.isfinite([low, high]).all() and low < high):
        raise DataError(f"{name}=({low:g}, {high:g}): LOW and HIGH must be finite, LOW below HIGH")
    if max(abs(low), abs(high)) > LARGEST:
        raise DataError(f"{name}=({low:g}, {high:g}): {OVERFLOW}")
    return low, high


def require(table: pd.DataFrame, field: str, mend: str) -> None:
    """Stop at the first row without a number in `field`."""
    stop(table, np.isnan(table[field].to_numpy(dtype=float)), field, mend)


def check_scale(table: pd.DataFrame, field: str, scale: tuple[float, float]) -> None:
    """Stop at a value off the declared scale, and at two scales in one column."""
    low, high = scale
    values = table[field].to_numpy(dtype=float)
    present = np.isfinite(values)
    off = (values < low) | (values > high)
    if off.any():
        # Fractions inside the scale beside many values outside are two scales, not one declared wrongly.
        n, n_off = int(present.sum()), int(off.sum())
        n_fractions = int((present & ~off & (values != np.round(values))).sum())
        many = max(2.0, MANY * n)
        mend = f"correct the value or declare the scale with {DECLARED[field]}=(LOW, HIGH)"
        if min(n_off, n_fractions) >= many:
            mend = "mixed scales: the others are fractions inside it; bring all rows to one scale"
        elif n_off >= many:
            mend = f"declare the scale with {DECLARED[field]}=(LOW, HIGH)"
        outside = f"outside the declared range [{low:g}, {high:g}] ({n_off} of {n} values are)"
        stop(table, off, field, f"{outside}; {mend}")
    if low <= 0 and high >= 10:
        _check_unit_policy(table[present], field, scale)


def _check_unit_policy(table: pd.DataFrame, field: str, scale: tuple[float, float]) -> None:
    """Stop where one policy has fractions of 1 and another has not, on a scale up to 10 or more."""
    values = table[field].to_numpy(dtype=float)
    kinds = table.assign(
        above=values > 1, outside=(values < 0) | (values > 1), fraction=values != np.floor(values)
    )
    groups = kinds.groupby(["file", "policy"], sort=True, observed=True)
    held = groups.agg(
        n=(field, "size"), above=("above", "mean"), out=("outside", "any"), part=("fraction", "any")
    )
    unit = (held["n"] >= 10) & ~held["out"] & held["part"]
    if unit.any() and (held["above"] >= 0.9).any():
        file, policy = unit.index[unit.to_numpy(dtype=bool)][0]
        here = (table["file"] == file) & (table["policy"] == policy)
        mend = (
            f"mixed scales: all {int(here.sum())} values of policy {policy!r} lie in [0, 1], another's "
            f"do not, and [{scale[0]:g}, {scale[1]:g}] is declared; bring all rows to one scale"
        )
        stop(table, here, field, mend)


def leave_out(left_out: list[pd.DataFrame], rows: pd.DataFrame, reason: str, *more: str) -> None:
    """Add `rows` to those left out, with the columns `more` where any row has them."""
    if len(rows):
        more = tuple(name for name in more if rows[name].notna().any())
        gone = rows[["file", "row", "policy", "prompt_id", *more]].assign(reason=reason)
        left_out.append(gone.astype({name: object for name in LEFT_OUT if name != "row"})[[*LEFT_OUT, *more]])


# --- messages ---


def stop(table: pd.DataFrame, bad: npt.ArrayLike, field: str, mend: str | Callable[[Any], str]) -> None:
    """Raise `DataError` for the first row where `bad` holds: place, field, value, and the (row's) mend."""
    mask = np.asarray(bad, dtype=bool)
    if mask.any():
        row = table.iloc[int(np.argmax(mask))]
        words = mend if isinstance(mend, str) else mend(row)
        value = row.get(field)
        if field in table and isinstance(table[field].dtype, pd.StringDtype) and value != value:
            value = None  # a missing text
        raise DataError(f"{place(row)}: {field} is {show(value)}; {words}")


def of_prompts(table: pd.DataFrame, field: str) -> pd.Series:
    """Value of a field by prompt: its rows agree, and any of them may leave it to the others.

    Raises
    ------
    DataError
        At the first row that differs from another of its prompt.

    Examples
    --------
    >>> rows = pd.DataFrame({"prompt_id": ["q1", "q2", "q1"], "topic": ["code", None, None]})
    >>> of_prompts(rows, "topic").to_dict()
    {'q1': 'code'}
    """
    known = table[table[field].notna()].drop_duplicates(["prompt_id", field])
    stop(
        known,
        known.duplicated("prompt_id"),
        field,
        lambda row: f"another row of prompt_id {show(row.prompt_id)} differs; give each prompt one {field}",
    )
    return known[field].set_axis(known["prompt_id"].to_numpy())


def place(row: Any) -> str:
    """Where a row came from."""
    return f"{row['file']}, row {row['row']}"


def name_of(source: Source) -> str:
    """A source's name in messages."""
    if isinstance(source, Foreign):
        return source.name
    return "DataFrame" if isinstance(source, pd.DataFrame) else str(source)


def show(value: Any) -> str:
    """Value as a short literal."""
    if value is None or value is pd.NA:
        return "missing"
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return "missing or NaN" if np.isnan(value) else repr(float(value)).removesuffix(".0")
    return line(repr(value), 40)
