"""Logs of Inspect (``.eval`` and ``.json``): model = policy, sample id = prompt, epoch = draw, scores by scorer.

A scorer that gives an object has one score for each of its keys, ``scorer/key``. Letters count as Inspect declares them
(C 1, P .5, I and N 0) where a score has no other word. A grade that was edited by hand is two scores: the scorer's, and
the person's as ``scorer@edit``. Logs of one model that differ in solver or arguments are policies of their own. Of
several attempts of one run the last one counts. Where logs are of several tasks, a prompt's id begins with its task.
"""

import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cje_core.data.errors import DataError, said
from cje_core.data.fields import show
from cje_core.data.intake.foreign import (
    SUPERSEDED,
    UNUSABLE,
    Aggregate,
    Asked,
    Contents,
    Item,
    field_of,
    named_by,
    text_of,
)
from cje_core.data.intake.grades import number
from cje_core.data.intake.raw import TwiceError, parsed
from cje_core.data.intake.recognize import File
from cje_core.data.intake.runs import Run, arms, setting

TITLE = "log of Inspect"
ROLES = {
    "policy": "`eval.model`, with solver or arguments where logs of one model differ in them",
    "prompt": "`sample.id`, after the task where there are several",
    "draw": "`sample.epoch` - 1",
    "scores": "`scorer`, `scorer/key`; `scorer@edit` is a grade changed by hand",
    "left out": "samples with an error and no score, invalidated samples, attempts that a later one repeats",
}
ZSTD = 93  # method of a zip's member, unknown to Python before 3.14
SCALE = {"c": 1.0, "p": 0.5, "i": 0.0, "n": 0.0, "yes": 1.0, "no": 0.0, "true": 1.0, "false": 0.0}
# What tells arms of one model apart, the most telling first.
ARMS = ("solver", "task_args", "solver_args", "model_args", "model_roles", "model_generate_config", "task_version",
        "plan.steps", "plan.config")  # fmt: skip
SERVING = {"max_connections", "max_retries", "timeout", "attempt_timeout", "cache", "batch"}  # how, not what
MEANS = ("accuracy", "mean")  # metrics of a log that are means over samples
EDIT = "@edit"


class Log(NamedTuple):
    """A log: header, samples, and the names that its samples get."""

    path: Path
    header: dict[str, Any]
    samples: list[Any]
    policy: str = ""
    task: str = ""

    @property
    def about(self) -> dict[str, Any]:
        """``eval`` of the header."""
        held = self.header.get("eval")
        return held if isinstance(held, dict) else {}

    @property
    def age(self) -> tuple[bool, str, str]:
        """Sort key: attempts that did not end come first, then the older ones."""
        return self.header.get("status") == "success", text_of(self.about.get("created")), self.path.name


def knows(file: File) -> bool:
    """Return whether a file begins as a log of Inspect does."""
    if file.kind == ".eval":
        return file.is_zip
    return {"version", "status", "eval"} <= file.names


def read(files: Sequence[File], asked: Asked) -> Contents:
    """Read all samples of the logs."""
    logs = [Log(file.path, *_read(file, asked.responses)) for file in files]
    for log in logs:
        if not log.about.get("model"):
            raise DataError(f"{log.path}: a log of Inspect without eval.model; give a log that it wrote")
    several = len({text_of(log.about.get("task")) for log in logs}) > 1
    arms, differ = _arms(logs)
    logs = [
        log._replace(policy=arm, task=f"{text_of(log.about.get('task'))}/" if several else "")
        for log, arm in zip(logs, arms, strict=True)
    ]
    items: dict[tuple[str, str, int], tuple[Item, Log]] = {}
    again: list[Item] = []
    edits = 0
    for log in sorted(logs, key=lambda one: one.age):
        for row, sample in enumerate(log.samples, 1):
            item = _item(log, row, sample, asked)
            edits += any(name.endswith(EDIT) for name in item.scores)
            key = item.policy, item.prompt, item.draw
            if key in items:
                before, earlier = items[key]
                _check_attempts(before, earlier, item, log)
                again.append(
                    before._replace(scores={}, why=f"{SUPERSEDED}{log.path.name} is a later attempt")
                )
            items[key] = item, log
    notes = []
    if edits:
        notes.append(
            (str(logs[0].path), f"{edits} samples have a grade changed by hand: it is the score NAME{EDIT}")
        )
    role = asked.policy or "eval.model" + "".join(f" and {name}" for name in differ)
    return Contents(
        [item for item, _ in items.values()] + again,
        {
            "policy": role,
            "prompt": asked.prompt or "sample.id" + " and eval.task" * several,
            "draw": "sample.epoch",
        },
        notes,
        [one for log in logs for one in _aggregates(log)],
        SCALE,
    )


def _arms(logs: Sequence[Log]) -> tuple[list[str], list[str]]:
    """Policy of each log, and what beside the model names it: logs of one model and task that differ are arms."""
    return arms([
        Run(text_of(log.about["model"]), text_of(log.about.get("task")), {name: _arm(log, name) for name in ARMS})
        for log in logs
    ])  # fmt: skip


def _arm(log: Log, name: str) -> str:
    """What a log says of one of `ARMS`, as text; nothing said is nothing, whatever its form."""
    value = field_of(log.header if name.startswith("plan.") else log.about, name)
    if name == "plan.steps" and isinstance(value, list):
        value = [{k: one.get(k) for k in ("solver", "params")} for one in value if isinstance(one, dict)]
    if isinstance(value, dict):
        value = {k: v for k, v in value.items() if k not in SERVING}
    return setting(value)


def _check_attempts(before: Item, earlier: Log, item: Item, log: Log) -> None:
    """Stop where both logs of one sample ended well, or one log has it twice."""
    if earlier is log or earlier.header.get("status") == "success":
        raise DataError(
            f"{item.file}, sample {item.row}: policy {show(item.policy)}, id {show(item.prompt)}, epoch "
            f"{item.draw + 1} is already in {before.file}, sample {before.row}: keep one of the two runs, or name what "
            "tells them apart with policy_field=NAME"
        )


def _item(log: Log, row: int, sample: Any, asked: Asked) -> Item:
    if not isinstance(sample, dict) or sample.get("id") is None:
        raise DataError(f"{log.path}, sample {row}: it has no id; give a log that Inspect wrote")
    where = f"{log.path}, sample {row}"
    epoch = sample.get("epoch", 1)
    if not isinstance(epoch, int) or isinstance(epoch, bool) or epoch < 1:
        raise DataError(f"{where}: epoch is {epoch!r}; Inspect counts them from 1")
    scores: dict[str, Any] = {}
    given = sample.get("scores")
    for name, score in (given if isinstance(given, dict) else {}).items():
        if not isinstance(score, dict):
            scores[name] = None
            continue
        scores |= dict(_parts(name, _scored_first(score)))
        if _is_edited(score):
            scores |= {part + EDIT: value for part, value in _parts(name, score.get("value"))}
    output = sample.get("output")
    response = output.get("completion") if isinstance(output, dict) else None
    metadata = sample.get("metadata")
    places = [log.about, log.header, metadata if isinstance(metadata, dict) else {}, sample]
    why = ""
    if sample.get("invalidation"):
        why = f"{UNUSABLE}the sample was invalidated"
    elif sample.get("error") and all(value is None for value in scores.values()):
        why = f"{UNUSABLE}the sample ended with an error, and no score"
    prompt = named_by(asked.prompt, places[::-1], where, "prompt") if asked.prompt else text_of(sample["id"])
    return Item(
        str(log.path),
        row,
        named_by(asked.policy.removeprefix("eval."), places, where, "policy") if asked.policy else log.policy,
        log.task + prompt,
        scores,
        epoch - 1,
        response if isinstance(response, str) else None,
        why=why,
    )


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Name and value of each number of a grade: one, or those of an object or list."""
    if isinstance(value, dict):
        yield from ((f"{name}/{key}", part) for key, part in value.items())
    elif isinstance(value, list):
        yield from ((f"{name}/{key}", part) for key, part in enumerate(value))
    else:
        yield name, value


def _edits(score: Mapping[str, Any]) -> list[dict[str, Any]]:
    held = score.get("history")
    return [one for one in held if isinstance(one, dict)] if isinstance(held, list) else []


def _is_edited(score: Mapping[str, Any]) -> bool:
    """Whether a person changed the grade: the first entry of the history is the scorer's own."""
    edits = _edits(score)
    return len(edits) > 1 or any(one.get("provenance") for one in edits)


def _scored_first(score: Mapping[str, Any]) -> Any:
    """Grade that the scorer itself gave."""
    edits = _edits(score)
    if not edits:
        return score.get("value")
    first = edits[0]
    # Where the first entry is an edit, what the scorer gave is not in the log.
    return None if first.get("provenance") else first.get("value", score.get("value"))


def _aggregates(log: Log) -> Iterator[Aggregate]:
    """Means over samples that the log itself holds."""
    held = field_of(log.header, "results.scores")
    for score in held if isinstance(held, list) else []:
        if not isinstance(score, dict) or score.get("reducer") not in (None, "mean"):
            continue
        name, scorer = text_of(score.get("name")), text_of(score.get("scorer"))
        metrics = score.get("metrics")
        for metric, one in (metrics if isinstance(metrics, dict) else {}).items():
            value = number(one.get("value")) if isinstance(one, dict) else None
            if metric in MEANS and value is not None:
                for full in (name, f"{scorer}/{name}"):
                    yield Aggregate(str(log.path), full, metric, value, of_prompts=True)


def _read(file: File, responses: bool) -> tuple[dict[str, Any], list[Any]]:
    """Header and samples; of a zip the summaries of samples, unless more of them is needed."""
    path = file.path
    if file.kind != ".eval":
        log = file.document
        if not isinstance(log, dict):
            raise DataError(f"{path}: it holds no object; give a log of Inspect")
        return log, _list(log.get("samples") or [], path)
    try:
        with zipfile.ZipFile(path) as archive:
            held = {info.filename: info for info in archive.infolist()}  # the last of a name counts
            start = held.get("header.json") or held.get("_journal/start.json")
            if start is None:
                raise DataError(
                    f"{path}: neither header.json nor _journal/start.json in it; give a log of Inspect"
                )
            header = _json(path, _member(archive, start, path), start.filename)
            if responses or header.get("invalidated") or "summaries.json" not in held:
                names = sorted(
                    name for name in held if name.startswith("samples/") and name.endswith(".json")
                )
                return header, [_json(path, _member(archive, held[name], path), name) for name in names]
            return header, _list(
                _json(path, _member(archive, held["summaries.json"], path), "summaries.json"), path
            )
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
        # the last is what zipfile raises of a member that is encrypted, or packed in a way that it does not know
        raise DataError(f"{path}: not a zip, or damaged ({said(error)}); copy the log again") from None


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> bytes:
    """Bytes of a member, also of one that zstd compressed; its checksum is held."""
    if info.compress_type != ZSTD:
        return archive.read(info)
    import pyarrow as pa

    file = archive.fp
    assert file is not None
    file.seek(info.header_offset)
    local = file.read(30)  # its name and extra field have lengths of their own here
    if local[:4] != b"PK\x03\x04":
        raise zipfile.BadZipFile(f"no local header of {info.filename!r}")
    file.seek(int.from_bytes(local[26:28], "little") + int.from_bytes(local[28:30], "little"), 1)
    packed = pa.BufferReader(file.read(info.compress_size))
    try:
        with pa.CompressedInputStream(packed, "zstd") as stream:
            raw = bytes(stream.read())
    except pa.ArrowException as error:
        raise zipfile.BadZipFile(f"{info.filename}: {error}") from None
    if zlib.crc32(raw) != info.CRC:
        raise zipfile.BadZipFile(f"bad checksum of {info.filename!r}")
    return raw


def _json(path: Path, raw: bytes, name: str) -> Any:
    try:
        value = parsed(raw.decode("utf-8"))
    except TwiceError as error:
        raise DataError(f"{path}: {name}: key {str(error)!r} occurs twice; copy the log again") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: {name} is not JSON ({said(error)}); copy the log again") from None
    if name != "summaries.json" and not isinstance(value, dict):
        raise DataError(f"{path}: {name} holds no object; give a log of Inspect")
    return value


def _list(samples: Any, path: Path) -> list[Any]:
    if not isinstance(samples, list):
        raise DataError(f"{path}: its samples are no list; give a log of Inspect")
    return samples
