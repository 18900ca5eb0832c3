"""Experiments of Braintrust (events as exported, or as the API's ``fetch`` gives them): a row is a span.

A root span is a response and its experiment the policy; the dataset's record, else the input, is the prompt, and trials
are draws. Scores are those of the root. Where a person reviewed one, or changed what a scorer gave, the spans within
tell the two apart: ``NAME`` is the scorer's, ``NAME@human`` the reviewers' mean, ``NAME@edit`` the changed value.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from cje_core.data.errors import DataError
from cje_core.data.fields import show
from cje_core.data.intake.foreign import UNUSABLE, Asked, Contents, Item, field_of, named_by, text_of
from cje_core.data.intake.grades import joined
from cje_core.data.intake.names import CAUTION
from cje_core.data.intake.nested import scalars
from cje_core.data.intake.recognize import File
from cje_core.data.intake.rows import rows_of
from cje_core.data.intake.runs import check_draws, numbered

TITLE = "experiment of Braintrust"
ROLES = {
    "policy": "`experiment_id`",
    "prompt": "`origin.id` or `dataset_record_id` of a dataset's record, else `input` with `expected`",
    "draw": "root spans of one prompt",
    "scores": "`scores` of root spans by name; `NAME@human`: reviewers; `NAME@edit`: a scorer's value that was changed",
    "left out": "scores of spans within, but for scorers and reviews; root spans with an error and no score",
}
SCORER, REVIEW = "score", "review"  # types of spans
HUMAN, EDIT = "@human", "@edit"
Spans = dict[str, list["Span"]]


class Span(NamedTuple):
    """A span with its place."""

    file: str
    row: int
    held: dict[str, Any]

    @property
    def where(self) -> str:
        """Place in messages."""
        return f"{self.file}, row {self.row}"

    @property
    def root(self) -> str:
        """Identity of the root of its trace."""
        return text_of(self.held.get("root_span_id") or self.held.get("span_id") or self.held.get("id"))

    @property
    def is_root(self) -> bool:
        """Whether it is the root itself."""
        said = self.held.get("is_root")
        return said if isinstance(said, bool) else self.root == text_of(self.held.get("span_id"))

    @property
    def kind(self) -> str:
        """Type of the span; a scorer says so in either of two fields."""
        purpose = field_of(self.held, "span_attributes.purpose")
        return SCORER if purpose == "scorer" else text_of(field_of(self.held, "span_attributes.type") or "")

    def grades(self, root: "Span") -> bool:
        """Whether it grades the root: a scorer or a review of it, and not of a span within."""
        parents = self.held.get("span_parents")
        return self.kind in (SCORER, REVIEW) and (
            not isinstance(parents, list) or root.held.get("span_id") in parents
        )

    @property
    def scores(self) -> dict[str, Any]:
        """Its scores by name."""
        held = self.held.get("scores")
        if held is not None and not isinstance(held, dict):
            raise DataError(f"{self.where}: scores is {show(held)}; Braintrust writes an object of scores")
        return {text_of(name): value for name, value in (held or {}).items()}


def knows(file: File) -> bool:
    """Return whether a row is a span of an experiment; rows may be the ``events`` of an answer."""
    inner = file.value("events")
    first = inner[0] if isinstance(inner, list) and inner and isinstance(inner[0], dict) else None
    return {"span_id", "experiment_id"} <= (file.names if first is None else first.keys())


def read(files: Sequence[File], asked: Asked) -> Contents:
    """Read a response for each root span."""
    spans = [span for file in files for span in _spans(file)]
    roots = [span for span in spans if span.is_root]
    if not roots:
        raise DataError(f"{files[0].path}: no root span in it; export whole traces of the experiment")
    within: Spans = defaultdict(list)
    for span in spans:
        if not span.is_root:
            within[span.root].append(span)
    items, metadata = [], []
    notes = [(str(file.path), said) for file in files if (said := _pages(file)) is not None]
    inner: dict[str, int] = defaultdict(int)
    for root in roots:
        held = root.held.get("metadata")
        places = [root.held, held if isinstance(held, dict) else {}]
        policy = named_by(asked.policy or "experiment_id", places, root.where, "policy")
        prompt = named_by(asked.prompt, places, root.where, "prompt") if asked.prompt else _prompt(root)
        graders = [span for span in within[root.root] if span.grades(root)]
        scores = _scores(root, graders)
        for span in within[root.root]:
            inner[span.file] += span not in graders and bool(span.scores)
        answer, failed = root.held.get("output"), bool(root.held.get("error"))
        why = f"{UNUSABLE}the span ended with an error" if failed and not _graded(scores) else ""
        response = answer if isinstance(answer, str) else None
        items.append(Item(root.file, root.row, policy, prompt, scores, response=response, why=why))
        metadata.append(dict(scalars("metadata", places[1])))
    notes += [
        (file, f"{n} spans within traces have scores, which are of parts") for file, n in inner.items() if n
    ]
    field = asked.policy or "experiment_id"
    if not asked.policy:
        check_draws(items, metadata, field)
    items = numbered(items, field, [text_of(root.held.get("experiment_id")) for root in roots])
    roles = {
        "policy": field,
        "prompt": asked.prompt or "origin.id or input",
        "draw": "root spans of one prompt",
    }
    return Contents(items, roles, notes)


def _spans(file: File) -> Iterator[Span]:
    """Spans of a file; `DataError` where one is in it twice."""
    events = file.value("events")
    rows = enumerate(file.document["events"], 1) if isinstance(events, list) else rows_of(file.path)
    seen: dict[tuple[str, str], int] = {}
    for row, held in rows:
        if not isinstance(held, dict) or held.get("span_id") is None or held.get("experiment_id") is None:
            raise DataError(
                f"{file.path}, row {row}: span_id or experiment_id is missing; every event of an experiment has both"
            )
        first = seen.setdefault((text_of(held["experiment_id"]), text_of(held["span_id"])), row)
        if first != row:
            raise DataError(
                f"{file.path}, row {row}: span {show(held['span_id'])} is in row {first} too; keep one of the two"
            )
        yield Span(str(file.path), row, held)


def _pages(file: File) -> str | None:
    """What to say of an answer that is one page of several."""
    said = f"{CAUTION}the file is one page of several: spans of the other pages are not in it"
    return said if isinstance(file.value("events"), list) and file.value("cursor") else None


def _prompt(root: Span) -> str:
    record = field_of(root.held, "origin.id") or root.held.get("dataset_record_id")
    if record:
        return text_of(record)
    asked, expected = root.held.get("input"), root.held.get("expected")
    if asked in (None, "", {}, []):
        raise DataError(f"{root.where}: input is missing; it is the prompt")
    if isinstance(asked, str) and expected is None:
        return asked
    return json.dumps([asked, expected] if expected is not None else asked, sort_keys=True, default=str)


def _scores(root: Span, within: Sequence[Span]) -> dict[str, Any]:
    """Scores of a response, those of people and of scorers apart."""
    by_scorer, by_people = _by_name(within, SCORER), _by_name(within, REVIEW)
    scores: dict[str, Any] = {}
    for name in dict.fromkeys([*root.scores, *by_scorer, *by_people]):
        value = root.scores.get(name)
        graded = by_scorer.get(name)
        if name in by_people:
            scores[name + HUMAN] = by_people[name]
            scores[name] = graded
        elif graded is not None and value is not None and graded != value:
            scores[name], scores[name + EDIT] = graded, value
        else:
            scores[name] = graded if value is None else value
    return scores


def _by_name(within: Sequence[Span], kind: str) -> dict[str, Any]:
    held: dict[str, list[Any]] = defaultdict(list)
    for span in within:
        if span.kind == kind:
            for name, value in span.scores.items():
                held[name].append(value)
    return {name: joined(values) for name, values in held.items()}


def _graded(scores: Mapping[str, Any]) -> bool:
    return any(value is not None for value in scores.values())
