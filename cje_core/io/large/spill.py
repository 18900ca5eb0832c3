"""A Parquet file larger than memory, read once: its responses apart by prompt in temporary files, its labels kept.

Batches are checked by `cje_core.io.files.records`, as a whole file is. Of a response nothing is needed but its
policy, its score and which prompt it belongs to, a 64-bit hash of the id: 14 bytes on disk (18 where scores are
doubles). The files are ranges of hashes, so all responses of a prompt lie in one of them, and each fits in memory
(`Spill.prompts`). They are deleted when they are closed, even by a crash; they lie where Python puts temporary files
(``TMPDIR``).

What a batch comes to (`Share`) depends on its rows alone, so batches may be read elsewhere, as the tasks of a Dask
graph (`cje_core.io.large.on_dask`); they are added here in the order of the file, to the same bits.
"""

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from cje_core.checks import BoolArray, FloatArray
from cje_core.data.arrays import as_text
from cje_core.data.errors import DataError
from cje_core.io.columnar import TWINS
from cje_core.io.fields import Scales, show
from cje_core.io.files import leave_out_files, records
from cje_core.io.tables import Part, misspelt_columns, opened

VALUES = ("judge_score", "oracle_label", "label_prob")
BY_PROMPT = ("cluster", "fold_id")  # what prompts may have that needs them one by one
FIELDS = ("policy", "prompt_id", *BY_PROMPT, "probe", "draw_idx", *VALUES)
BATCH = 1 << 18  # rows that are checked at once
PART = 1_500_000  # rows of a temporary file
MOST_FILES = 512
BUFFER = 1 << 20  # bytes of a column that the file is read by
LONGEST = 256  # characters of an id, beyond which ids are hashed one by one
ODD = 0x9E3779B97F4A7C15
ALONE = "an analysis larger than memory"

Hashes = npt.NDArray[np.uint64]
Units = Mapping[tuple[str, str], npt.NDArray[np.intp]]


class Labels(NamedTuple):
    """Labelled rows of a batch, or of a file."""

    row: npt.NDArray[np.intp]  # in a batch; in a file counted from 1
    name: npt.NDArray[np.str_]  # of the prompt
    prompt: Hashes
    policy: npt.NDArray[np.intp]  # position in `Share.policies` or `Spill.policies`
    score: FloatArray
    label: FloatArray
    prob: FloatArray  # NaN where none is declared
    probe: BoolArray


class Share(NamedTuple):
    """What an analysis needs of a batch."""

    policies: list[str]
    rows: npt.NDArray[np.void]  # responses as on disk, policies by their position here
    labels: Labels
    left_out: list[pd.DataFrame]
    units: Units  # see `_units`
    has_prob: bool


@dataclass
class Spill:
    """What `spilled` makes of a file."""

    path: Path
    score_type: np.dtype[Any]
    files: Sequence[IO[bytes]]
    policies: list[str] = field(default_factory=list)  # in the order in which they were met
    labels: list[Labels] = field(default_factory=list)
    left_out: list[pd.DataFrame] = field(default_factory=list)
    units: dict[tuple[str, str], npt.NDArray[np.intp]] = field(default_factory=dict)
    n_rows: int = 0
    has_prob: bool = False  # whether any row declares the probability of its label

    def labelled(self) -> Labels:
        """All labelled rows; `DataError` where one of them lacks a probability that others declare."""
        found = Labels(*(np.concatenate(column) for column in zip(*self.labels, strict=True)))
        lacking = np.flatnonzero(~found.probe & np.isnan(found.prob))
        if self.has_prob and len(lacking):
            raise DataError(
                f"{self.path}, row {found.row[lacking[0]]}: label_prob is missing or NaN; other rows have one, so "
                "every labelled row needs one"
            )
        return found

    def prompts(self) -> Iterator[tuple[Hashes, npt.NDArray[np.floating]]]:
        """Hashes of some prompts, sorted, and their scores by policy, (policies, prompts), NaN where there is none.

        Every prompt comes once. Two responses of one policy to one prompt are a `DataError`.
        """
        for file in self.files:
            file.seek(0)
            rows = np.frombuffer(file.read(), row_type(self.score_type))
            prompt, at = np.unique(rows["prompt"], return_inverse=True)
            score = np.full((len(self.policies), len(prompt)), np.nan, self.score_type)
            score[rows["policy"], at] = rows["score"]
            if np.count_nonzero(score == score) < len(rows):
                key = at * len(self.policies) + rows["policy"]
                again = int(np.flatnonzero(np.bincount(key) > 1)[0])
                raise self._twice(prompt[again // len(self.policies)], again % len(self.policies))
            del rows, at
            yield prompt, score

    def add(self, share: Share) -> None:
        """Set rows apart by their prompts' hashes, and keep the labelled ones."""
        place = {name: k for k, name in enumerate(self.policies)}
        for name in share.policies:
            if name not in place:
                place[name] = len(place)
                self.policies.append(name)
        _check_policies(self.path, place)
        policy = np.array([place[name] for name in share.policies], dtype=np.intp)
        high = share.rows["prompt"] >> np.uint64(32)
        where = (high * np.uint64(len(self.files)) >> np.uint64(32)).astype(np.uint16)
        rows = share.rows[np.argsort(where, kind="stable")]
        rows["policy"] = policy[rows["policy"]]
        ends = np.concatenate([[0], np.cumsum(np.bincount(where, minlength=len(self.files)))])
        for file, start, end in zip(self.files, ends[:-1], ends[1:], strict=True):
            file.write(rows[start:end].tobytes())
        row, of_label = self.n_rows + 1 + share.labels.row, policy[share.labels.policy]
        self.labels.append(share.labels._replace(row=row, policy=of_label))
        self.left_out += share.left_out
        for key, counts in share.units.items():
            self.units[key] = self.units.get(key, 0) + counts
        self.n_rows += len(rows)
        self.has_prob |= share.has_prob

    def _twice(self, prompt: np.uint64, policy: int) -> DataError:
        """What to say of a policy's two responses to one prompt: they are looked for in the file again."""
        found: list[tuple[int, str, Any]] = []
        fields = ["policy", "prompt_id", "draw_idx"]
        with opened(self.path) as file:
            for table, first in _tables(file, fields):
                text = [table[name].cast(pa.large_string()).combine_chunks() for name in fields[:2]]
                mine = np.asarray(text[0].to_numpy(zero_copy_only=False) == self.policies[policy])
                for k in np.flatnonzero(mine & (hashes(text[1]) == prompt)).tolist():
                    draw = table["draw_idx"][k].as_py() if "draw_idx" in table.column_names else 0
                    found.append((first + k, text[1][k].as_py(), int(draw or 0)))
        said = f"policy {self.policies[policy]!r}, prompt_id"
        for second, (row, name, draw) in enumerate(found):
            for before, other, earlier in found[:second]:
                if (other, earlier) == (name, draw):
                    return DataError(
                        f"{self.path}, row {row}: {said} {show(name)}, draw_idx {draw} is already in "
                        f"{self.path}, row {before}; {TWINS}"
                    )
        (before, other, _), (row, name, _) = found[:2]
        if other == name:
            return DataError(
                f"{self.path}, row {row}: {said} {show(name)} has another draw in {self.path}, row {before}; "
                f"{ALONE} takes one draw a prompt: keep one, or analyze it in memory by large=False"
            )
        return DataError(
            f"{self.path}, row {row}: prompt_id {show(name)} has the 64-bit hash of {show(other)}; rename one"
        )


class Batch(NamedTuple):
    """Checked responses: names, and arrays over rows."""

    policies: list[str]
    prompts: pa.LargeStringArray
    policy: npt.NDArray[np.integer]  # position in `policies`
    prompt: npt.NDArray[np.integer]
    score: FloatArray
    label: FloatArray
    prob: FloatArray
    probe: BoolArray


@contextmanager
def spilled(path: Path, scales: Scales, shares: Iterable[Share] | None = None) -> Iterator[Spill]:
    """Read a Parquet file once, checking every row; its temporary files live as long as the context.

    Parameters
    ----------
    path : Path
    scales : mapping
        Declared range of ``judge_score`` and ``oracle_label``.
    shares : iterable of Share, optional
        What all its batches come to, in order, where they are read elsewhere (`cje_core.io.large.on_dask`).

    Raises
    ------
    DataError
        With one line: file, row, field, what was found and how to mend it.
    """
    with opened(path) as file:
        kinds = {one.name: one.type for one in file.schema_arrow}
    with ExitStack() as stack:
        file = stack.enter_context(opened(path, **by_columns(kinds)))
        n_files = min(max(-(-file.metadata.num_rows // PART), 1), MOST_FILES)
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(n_files)]
        said = misspelt_columns(path, list(kinds), FIELDS)
        spill = Spill(path, _score_type(kinds), files)
        leave_out_files(spill.left_out, said)
        for share in shares_of(file, path, scales) if shares is None else shares:
            spill.add(share)
        if not spill.n_rows:
            raise DataError(f"{path} is empty: it has no rows; give at least one response")
        _check_units(path, scales, spill.units)
        yield spill


def shares_of(
    file: Any, path: Path, scales: Scales, groups: Sequence[int] | None = None, first: int = 1
) -> Iterator[Share]:
    """Checked batches of an open Parquet file, or of some of its row groups, of which `first` is the first row."""
    score_type = _score_type({one.name: one.type for one in file.schema_arrow})
    for table, start in _tables(file, FIELDS, groups, first):
        left_out: list[pd.DataFrame] = []
        part = _batch(Part(table, path, start), scales, left_out)
        _check_policies(path, part.policies)
        prompt = hashes(part.prompts)[part.prompt]
        rows = np.empty(len(prompt), row_type(score_type))
        rows["prompt"], rows["policy"], rows["score"] = prompt, part.policy, part.score
        at = np.flatnonzero(~np.isnan(part.label))
        names = np.array(part.prompts.take(pa.array(part.prompt[at])).to_pylist(), dtype=str)
        own = (part.score[at], part.label[at], part.prob[at], part.probe[at])
        labels = Labels(at, names, prompt[at], part.policy[at].astype(np.intp), *own)
        has_prob = not np.isnan(part.prob).all()
        yield Share(part.policies, rows, labels, left_out, _units(part, scales), has_prob)


def row_type(score_type: np.dtype[Any]) -> np.dtype[Any]:
    """A response on disk."""
    return np.dtype([("prompt", "<u8"), ("score", score_type), ("policy", "<u2")])


def _score_type(kinds: Mapping[str, pa.DataType]) -> np.dtype[Any]:
    return np.dtype("<f4" if kinds.get("judge_score") == pa.float32() else "<f8")


def by_columns(kinds: Mapping[str, pa.DataType]) -> dict[str, Any]:
    """How a file with these types of columns is opened to be read batch by batch."""
    text = pa.types.is_string(kinds["policy"]) or pa.types.is_large_string(kinds["policy"])
    return {"read_dictionary": ["policy"] if text else [], "buffer_size": BUFFER, "pre_buffer": False}


def _check_policies(path: Path, policies: Sized) -> None:
    if len(policies) > np.iinfo(np.uint16).max:
        raise DataError(f"{path}: {len(policies)} policies; {ALONE} takes 65,535")


def _tables(
    file: Any, fields: Sequence[str], groups: Sequence[int] | None = None, first: int = 1
) -> Iterator[tuple[pa.Table, int]]:
    """Batches of a Parquet file, or of some of its row groups, each with the number of its first row."""
    names = [name for name in fields if name in file.schema_arrow.names]
    for batch in file.iter_batches(BATCH, row_groups=groups, columns=names, use_threads=False):
        yield pa.Table.from_batches([batch]), first
        first += len(batch)


def _batch(part: Part, scales: Scales, left_out: list[pd.DataFrame]) -> Batch:
    """Rows checked by columns; clusters and folds are refused."""
    columns = records(part, scales, left_out)
    _refuse(part.path, columns.per_prompt)
    nothing = np.full(len(columns.probe), np.nan)
    score, label, prob = (columns.numbers.get(name, nothing) for name in VALUES)
    policy, prompt = columns.policy, columns.prompt
    return Batch(
        policy.names.to_pylist(), prompt.names, policy.codes, prompt.codes, score, label, prob, columns.probe
    )


def _refuse(path: Path, given: Iterable[str]) -> None:
    """Stop at clusters and folds."""
    for name in set(BY_PROMPT) & set(given):
        raise DataError(f"{path}: {name} needs every row in memory; drop the column, or take large=False")


def hashes(names: pa.LargeStringArray) -> Hashes:
    """64-bit hash of each name: a polynomial in its code points, mixed; the same in every batch, file and run."""
    long = np.flatnonzero(pc.greater(pc.utf8_length(names), LONGEST).to_numpy(zero_copy_only=False))
    if len(long):
        digests = [blake2b(names[k].as_py().encode(), digest_size=8).digest() for k in long.tolist()]
        total = hashes(pc.utf8_slice_codeunits(names, 0, LONGEST))
        total[long] = np.frombuffer(b"".join(digests), np.uint64)
        return total
    text = as_text(names)
    total, factor = np.zeros(len(text), dtype=np.uint64), ODD
    for letter in text.view(np.uint32).reshape(len(text), -1).T:  # zeros after a name's end add nothing
        total += letter * np.uint64(factor)
        factor = factor * ODD % 2**64
    for shift, odd in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # Steele, Lea and Flood 2014
        total = (total ^ (total >> np.uint64(shift))) * np.uint64(odd)
    return total ^ (total >> np.uint64(31))


def _units(part: Batch, scales: Scales) -> dict[tuple[str, str], npt.NDArray[np.intp]]:
    """Count of each field and policy: values, those in [0, 1], fractions among them, those above 1."""
    units = {}
    for name, values in (("judge_score", part.score), ("oracle_label", part.label)):
        low, high = scales[name]
        if low > 0 or high < 10:
            continue
        known = ~np.isnan(values)
        inside = known & (values >= 0) & (values <= 1)
        kinds = (known, inside, inside & (values != np.floor(values)), values > 1)
        counts = [np.bincount(part.policy[kind], minlength=len(part.policies)) for kind in kinds]
        for policy, count in zip(part.policies, np.transpose(counts), strict=True):
            units[name, policy] = count
    return units


def _check_units(path: Path, scales: Scales, units: Units) -> None:
    """Stop where one policy has fractions of 1 and another has not, as `cje_core.io.fields.check_scale` does."""
    for (name, policy), (n, inside, fractions, _) in units.items():
        others = [count for (what, _), count in units.items() if what == name]
        if n >= 10 and inside == n and fractions and any(above >= 0.9 * all_ for all_, _, _, above in others):
            low, high = scales[name]
            raise DataError(
                f"{path}: {name}: mixed scales: all {n} values of policy {policy!r} lie in [0, 1], another's do not, "
                f"and [{low:g}, {high:g}] is declared; bring all rows to one scale"
            )
