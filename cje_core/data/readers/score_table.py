"""Long tables of scores as Langfuse, Phoenix and LangSmith export them: a row is one score of one trace.

Rows of a trace, or of the one observation in it that is scored, are one response. A score's name is ``name@source``
(Langfuse: ANNOTATION, EVAL, API; Phoenix: HUMAN, LLM, CODE; LangSmith: app, model, api); several of one name and source
are averaged, but where a source says nothing of people and rows differ in their annotator, each annotator has a score.
A category counts by its name, never by its number. Policy and prompt are columns of the usual names, or those that are
asked for; without a column of prompts each trace is a prompt of its own. Traces of one policy and prompt are its draws.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from cje_core.data.errors import DataError
from cje_core.data.fields import line, show
from cje_core.data.intake.foreign import Asked, Contents, Item, named_by, text_of
from cje_core.data.intake.grades import OPPOSITES, joined, number, word
from cje_core.data.intake.keys import MOST_ARMS, arm_column, told_apart
from cje_core.data.intake.names import CAUTION
from cje_core.data.intake.recognize import File
from cje_core.data.intake.rows import rows_of

TITLE = "table of scores, one a row"
ROLES = {
    "policy": "`policy`, `model`, `datasetRunName`, `experiment`, ... or the field that is named; no annotator's model",
    "prompt": "`prompt_id`, `datasetItemId`, `example_id`, ... or the field that is named; else the trace",
    "draw": "traces of one policy and prompt",
    "scores": "`name@source`, with the annotator where the source does not say whether it is a person",
    "left out": "texts, scores of sessions and of runs; categories count by name",
}
FINE = ("observationId", "observation_id", "span_id", "context.span_id", "run_id")
COARSE = ("traceId", "trace_id", "context.trace_id")
TRACE = (*FINE, *COARSE)
NAME = ("annotation_name", "name", "key")
NUMBER = ("score", "result.score", "value")
WORD = ("stringValue", "string_value", "label", "result.label")
CATEGORY = WORD[:2]  # Langfuse's name of a category, whose number is 0 or its index
KIND = ("dataType", "data_type")
# Who scored: the kind of annotator says more than the way on which the score came.
SOURCE = ("annotator_kind", "feedback_source.type", "feedback_source", "source")
PEOPLE = {"human", "annotation", "app"}
MACHINES = {"llm", "eval", "model", "auto_eval", "code"}
ANNOTATOR = ("annotator", "annotator_id", "authorUserId", "author_user_id", "user_id", "userId", "evaluator",
             "evaluator_name", "evaluator_type", "rater", "rater_id", "identifier")  # fmt: skip
POLICY = ("policy", "model", "model_name", "modelId", "datasetRunName", "dataset_run_name", "experiment",
          "experiment_name")  # fmt: skip
MODEL = {"model", "model_name", "modelId"}  # in the metadata of a score this is the annotator's
SESSION = ("session_name", "session_id")  # of LangSmith, whose sessions are experiments
PROMPT = ("prompt_id", "datasetItemId", "dataset_item_id", "example_id", "reference_example_id", "item_id")


class Row(NamedTuple):
    """A score, its row, and the response that it is of."""

    where: str
    file: str
    row: int
    trace: str
    part: str | None  # observation, span or run of the trace
    held: dict[str, Any]


def knows(file: File) -> bool:
    """Return whether a row is a score: it has a name, a value and a trace; rows may be the ``data`` of an answer."""
    inner = file.value("data")
    first = inner[0] if isinstance(inner, list) and inner and isinstance(inner[0], dict) else None
    names = file.names if first is None else frozenset(first)
    flat = {name.partition(".")[0] for name in names} | names
    trace = {name.partition(".")[0] if name.startswith("context") else name for name in TRACE}
    return bool(flat & set(NAME)) and bool(flat & {*NUMBER, *WORD, "result"}) and bool(flat & trace)


def read(files: Sequence[File], asked: Asked) -> Contents:
    """Read a response for each trace."""
    rows, notes = _rows(files)
    responses, levels = _responses(rows)
    if levels:
        said = f"{levels} traces have scores on themselves and on several of their parts: these are responses apart"
        notes.append((rows[0].file, said))
    asked_for = [asked.policy, f"metadata.{asked.policy}"] if asked.policy else []
    policy_fields = asked_for or _policy_fields(rows)
    by_annotator, indexed = _by_annotator(rows), _indexed(rows)
    made = []
    named: dict[str, list[Row]] = defaultdict(list)
    texts: Counter[tuple[str, str]] = Counter()
    for trace, own in sorted(responses.items()):
        policy = _agreed(own, policy_fields, "policy", trace)
        if policy is None:
            raise _no_policy(own[0], asked)
        named[policy].append(own[0])
        prompt = _agreed(own, [asked.prompt] if asked.prompt else PROMPT, "prompt", trace)
        if asked.prompt and prompt is None:
            named_by(asked.prompt, [own[0].held], own[0].where, "prompt")
        scores: dict[str, list[Any]] = defaultdict(list)
        for row in own:
            name, grade = _grade(row, by_annotator, indexed)
            if grade is _NO_SCORE:
                texts[row.file, name] += 1
            else:
                scores[name].append(grade)
        made.append(
            (own, policy, trace if prompt is None else prompt, {n: joined(v) for n, v in scores.items()})
        )
    if not asked.policy:
        _check_candidates(named, policy_fields)
    items = _with_draws(made, () if asked.policy else policy_fields)
    notes += [
        (file, f"{n} rows of {name} hold a text, which is no score") for (file, name), n in texts.items()
    ]
    used = next(
        (name for name in policy_fields if _first(rows[0].held, [name]) is not None), policy_fields[0]
    )
    prompt_role = next((name for name in PROMPT if _first(rows[0].held, [name]) is not None), "the trace")
    roles = {"policy": used, "prompt": asked.prompt or prompt_role, "draw": "traces of one policy and prompt"}
    return Contents(items, roles, notes)


_NO_SCORE = object()  # of a row that holds a text


def _rows(files: Sequence[File]) -> tuple[list[Row], list[tuple[str, str]]]:
    """Scores of traces with their fields flat, and what is said of the others."""
    rows, notes = [], []
    for file in files:
        path, others = file.path, 0
        if (said := _pages(file)) is not None:
            notes.append((str(path), said))
        for number_of, record in _records(file):
            held = _flat(record)
            where = f"{path}, row {number_of}"
            if _first(held, NAME) is None:
                raise DataError(f"{where}: a name of the score is missing")
            fine, coarse = _first(held, FINE), _first(held, COARSE)
            if fine is None and coarse is None:
                others += 1
                continue
            part = None if fine is None or fine == coarse else text_of(fine)  # a trace's first run has its id
            rows.append(
                Row(where, str(path), number_of, text_of(fine if coarse is None else coarse), part, held)
            )
        if others:
            notes.append(
                (str(path), f"{others} scores of no trace (of a session or a run) are of no response")
            )
    if not rows:
        raise DataError(f"{files[0].path}: no score of a trace in it; export scores with their traces")
    return rows, notes


def _pages(file: File) -> str | None:
    """What to say of an answer that is one page of several."""
    meta = file.value("meta")
    pages = number(meta.get("totalPages")) if isinstance(meta, dict) else None
    more = (pages is not None and pages > 1) or bool(file.value("next_cursor"))
    return (
        f"{CAUTION}the file is one page of several: scores of the other pages are not in it" if more else None
    )


def _records(file: File) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows of a table, or those in the ``data`` of an answer of an API; of its pages only what is in the file."""
    if not isinstance(file.value("data"), list):
        yield from rows_of(file.path)
        return
    held = file.document.get("data") if isinstance(file.document, dict) else None
    for row, record in enumerate(held if isinstance(held, list) else [], 1):
        if not isinstance(record, dict):
            raise DataError(f"{file.path}, row {row}: {show(record)}; a score is an object")
        yield row, record


def _responses(rows: Sequence[Row]) -> tuple[dict[str, list[Row]], int]:
    """Rows of each response, a trace or each of its observations where several are scored; traces of both levels."""
    of_trace: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        of_trace[row.trace].append(row)
    responses: dict[str, list[Row]] = defaultdict(list)
    levels = 0
    for trace, own in of_trace.items():
        parts = {row.part for row in own if row.part is not None}
        levels += len(parts) > 1 and any(row.part is None for row in own)
        for row in own:
            # Scores on a trace and on the one observation in it are of the same response.
            apart = len(parts) > 1 and row.part is not None
            responses[f"{trace}/{row.part}" if apart else trace].append(row)
    return responses, levels


def _policy_fields(rows: Sequence[Row]) -> list[str]:
    """Columns that may name the policy, the surest first."""
    held = set().union(*(row.held for row in rows))
    fields = [name for name in POLICY if name in held]
    if not fields and "run_id" in held and "key" in held:
        fields = [name for name in SESSION if name in held]
    return fields or list(POLICY)


def _agreed(own: Sequence[Row], fields: Sequence[str], role: str, trace: str) -> str | None:
    """Value of the first field that any row of a response has; all that have it agree."""
    for name in fields:
        values = {text_of(value): row for row in own if (value := _first(row.held, [name])) is not None}
        if len(values) > 1:
            first, second = list(values)[:2]
            raise DataError(
                f"{values[second].where}: {name} of trace {show(trace)} is {show(second)}, and {show(first)} in "
                f"another row, so it names no {role}; name a field that does with {role}_field=NAME"
            )
        if values:
            return next(iter(values))
    return None


def _check_candidates(named: Mapping[str, Sequence[Row]], fields: Sequence[str]) -> None:
    """Stop where responses of one policy differ in another column that names a policy in other tables."""
    for policy, own in named.items():
        for name in fields[1:]:
            values = sorted(
                {text_of(value) for row in own if (value := _first(row.held, [name])) is not None}
            )
            if len(values) > 1 and _first(own[0].held, fields[:1]) is not None:
                raise DataError(
                    f"{own[0].where}: responses of {fields[0]} {show(policy)} differ in {name} "
                    f"({line(', '.join(values), 80)}): "
                    f"name the policy with policy_field={name} or policy_field={fields[0]}"
                )


def _no_policy(row: Row, asked: Asked) -> DataError:
    held = line(", ".join(sorted(row.held)), 120)
    model = next((name for name in row.held if name in {f"metadata.{one}" for one in MODEL}), None)
    if asked.policy:
        said = f"no {asked.policy}"
    elif model is not None:
        said = f"no column says the policy ({model} may be the annotator's model)"
    else:
        said = "no column says the policy"
    return DataError(f"{row.where}: {said}; name one that does with policy_field=NAME (it has {held})")


def _source(row: Row) -> str | None:
    value = _first(row.held, SOURCE)
    return None if value is None else text_of(value)


def _by_annotator(rows: Sequence[Row]) -> dict[tuple[str, str | None], str]:
    """Column of annotators for each score and source that leaves open who scored, where its rows differ in it."""
    groups: dict[tuple[str, str | None], list[Row]] = defaultdict(list)
    for row in rows:
        source = _source(row)
        if (source or "").lower() not in PEOPLE | MACHINES:
            groups[text_of(_first(row.held, NAME)), source].append(row)
    found = {}
    for key, own in groups.items():
        for name in ANNOTATOR:
            if 1 < len({_first(row.held, [name]) for row in own}) <= MOST_ARMS:
                found[key] = name
                break
    return found


def _indexed(rows: Sequence[Row]) -> set[tuple[str, str | None]]:
    """Scores whose numbers are places in a list: the good word always stands beside 0, the bad one beside 1."""
    pairs: dict[tuple[str, str | None], set[tuple[float, float | None]]] = defaultdict(set)
    for row in rows:
        worth = OPPOSITES.get(word(_first(row.held, WORD)) or "")
        if worth is not None:
            pairs[text_of(_first(row.held, NAME)), _source(row)].add(
                (worth, number(_first(row.held, NUMBER)))
            )
    return {key for key, held in pairs.items() if held == {(1.0, 0.0), (0.0, 1.0)}}


def _grade(
    row: Row, by_annotator: Mapping[tuple[str, str | None], str], indexed: set[tuple[str, str | None]]
) -> tuple[str, Any]:
    """Name and grade of a score; a category is its name."""
    name, source = text_of(_first(row.held, NAME)), _source(row)
    full = name if source is None else f"{name}@{source}"
    if column := by_annotator.get((name, source)):
        who = _first(row.held, [column])
        full += ("/" if source is not None else "@") + ("none" if who is None else text_of(who))
    kind = text_of(_first(row.held, KIND) or "").upper()
    named = _first(row.held, WORD)
    value = _first(row.held, NUMBER)
    if kind == "CATEGORICAL":
        return full, named if named is not None else None if value is None else f"category {text_of(value)}"
    if kind not in ("", "NUMERIC", "BOOLEAN"):
        return full, _NO_SCORE
    if kind == "" and word(_first(row.held, CATEGORY)) is not None:  # the number beside it is an index
        return full, named
    if named is not None and (name, source) in indexed:
        return full, named
    if number(value) is None and (named is not None or value is not None):
        return full, named if word(value) is None else value
    return full, value


def _with_draws(made: Sequence[tuple[Any, ...]], policy_fields: Sequence[str]) -> list[Item]:
    """Items; further responses of one policy and prompt are draws, unless a column tells them apart as arms."""
    groups: dict[tuple[str, str], list[list[Row]]] = defaultdict(list)
    for own, policy, prompt, _ in made:
        groups[policy, prompt].append(own)
    several = [group for group in groups.values() if len(group) > 1]
    if several and policy_fields:
        _check_arms(several, policy_fields)
    draws: dict[tuple[str, str], int] = defaultdict(int)
    items = []
    for own, policy, prompt, scores in made:
        items.append(Item(own[0].file, own[0].row, policy, prompt, scores, draws[policy, prompt]))
        draws[policy, prompt] += 1
    return items


def _check_arms(several: Sequence[Sequence[Sequence[Row]]], policy_fields: Sequence[str]) -> None:
    """Stop where a column of few values differs between all responses of each prompt: it may name an arm."""
    used = {*policy_fields[:1], *TRACE, *NAME, *NUMBER, *WORD, *KIND, *SOURCE, *ANNOTATOR, *PROMPT}
    held = {name for group in several for own in group for row in own for name in row.held}
    used |= {name for name in held if name.startswith(("result", "feedback_source"))}
    groups = [[[row.held for row in own] for own in group] for group in several]
    if (told := arm_column(groups, used)) is not None:
        raise told_apart(several[0][1][0].where, *told, policy_fields[0])


def _flat(record: dict[str, Any]) -> dict[str, Any]:
    """Fields, those of ``metadata`` (also as text), and of objects as ``object.field``."""
    found = {name: value for name, value in record.items() if value is not None}
    for name, inner in list(_objects(record)):
        held = {str(k): v for k, v in inner.items() if v is not None}
        found |= {f"{name}.{k}": v for k, v in held.items()}
        if name == "metadata":
            found = {k: v for k, v in held.items() if k not in MODEL} | found
    return found


def _objects(record: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Fields that are objects, or text of one."""
    for name, value in record.items():
        if isinstance(value, str) and value.startswith("{"):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                continue
        if isinstance(value, dict):
            yield name, value


def _first(record: Mapping[str, Any], names: Sequence[str]) -> Any:
    given = (record.get(name) for name in names)
    return next((v for v in given if v is not None and not isinstance(v, dict | list) and v != ""), None)
