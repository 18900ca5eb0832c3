"""Logs of Inspect (``.eval`` and ``.json``): model = policy, sample id = prompt, epoch = draw, scores by scorer.

A scorer that gives an object has one score for each of its keys, ``scorer/key``. Letters are numbers as Inspect counts
them: C 1, P .5, I and N 0. Samples that ended with an error are left out. Several logs are read together: where they
are of several tasks, a prompt's id begins with its task.
"""

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cje_core.data.errors import DataError, said
from cje_core.data.intake.foreign import UNUSABLE, Asked, Head, Item, number, text_of
from cje_core.data.intake.raw import TwiceError, parsed, raw_bytes

TITLE = "log of Inspect"
ZSTD = 93  # method of a zip's member, unknown to Python before 3.14


def knows(head: Head) -> bool:
    """Whether a file begins as a log of Inspect does."""
    if head.kind == ".eval":
        return head.text.startswith(b"PK")
    return head.kind == ".json" and {"version", "status", "eval"} <= head.names


def items(paths: Sequence[Path], asked: Asked) -> list[Item]:
    """All samples of the logs."""
    logs = [(path, *_read(path, asked.responses)) for path in paths]
    several = len({_field(header, "task") for _, header, _ in logs}) > 1
    found = []
    for path, header, samples in logs:
        model = text_of(_field(header, "model") or "")
        if not model:
            raise DataError(f"{path}: a log of Inspect without eval.model; give a log that it wrote")
        task = f"{text_of(_field(header, 'task'))}/" if several else ""
        for row, sample in enumerate(samples, 1):
            found.append(_item(str(path), row, model, task, sample))
    return found


def _item(file: str, row: int, model: str, task: str, sample: Any) -> Item:
    if not isinstance(sample, dict) or sample.get("id") is None:
        raise DataError(f"{file}, sample {row}: it has no id; give a log that Inspect wrote")
    epoch = sample.get("epoch", 1)
    if not isinstance(epoch, int) or epoch < 1:
        raise DataError(f"{file}, sample {row}: epoch is {epoch!r}; Inspect counts them from 1")
    scores: dict[str, float | None] = {}
    given = sample.get("scores")
    for name, score in (given if isinstance(given, dict) else {}).items():
        value = score.get("value") if isinstance(score, dict) else None
        parts = (
            value.items()
            if isinstance(value, dict)
            else enumerate(value)
            if isinstance(value, list)
            else None
        )
        if parts is None:
            scores[name] = number(value)
        else:
            scores |= {f"{name}/{key}": number(part) for key, part in parts}
    output = sample.get("output")
    response = output.get("completion") if isinstance(output, dict) else None
    return Item(
        file,
        row,
        model,
        task + text_of(sample["id"]),
        scores,
        epoch - 1,
        response if isinstance(response, str) else None,
        why=f"{UNUSABLE}the sample ended with an error" if sample.get("error") else "",
    )


def _read(path: Path, responses: bool) -> tuple[dict[str, Any], list[Any]]:
    """Header and samples; of a zip the summaries of samples, unless their responses are asked for."""
    if path.suffix.lower() != ".eval":
        log = _json(path, raw_bytes(path), path.name)
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
            if responses or "summaries.json" not in held:
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


def _field(header: dict[str, Any], name: str) -> Any:
    about = header.get("eval")
    return about.get(name) if isinstance(about, dict) else None
