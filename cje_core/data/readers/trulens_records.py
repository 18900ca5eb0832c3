"""Records of TruLens with their feedback (``get_records_and_feedback``): a row is a record, each feedback a column.

A feedback of several parts has a column ``name:::part`` for each. ``name direction`` says whether more is better.
"""

from collections.abc import Collection, Sequence

from cje_core.data.intake.foreign import Asked, Contents
from cje_core.data.intake.names import CAUTION
from cje_core.data.intake.recognize import File
from cje_core.data.intake.wide import Layout, columns_of, read_wide, records

TITLE = "records of TruLens"
ROLES = {
    "policy": "`app_name` and `app_version`, else `app_id`",
    "prompt": "`input` (its text; a long one by its beginning and a number)",
    "draw": "records of one app and input",
    "scores": "columns of feedback, by name; a part is `name:::part`",
    "left out": "calls, costs and directions of feedback; a caution names feedback of which less is better",
}
KNOWN = ("app_id", "app_json", "type", "record_id", "conversation_id", "input_id", "tags", "record_json", "cost_json",
         "perf_json", "ts", "latency", "total_tokens", "total_cost", "eval_cost", "eval_cost_snowflake",
         "cost_currency", "num_events", "sampled", "sample_rate", "eval_decision_reason")  # fmt: skip
CALLS, COST, DIRECTION = "_calls", " feedback cost in ", " direction"


def knows(file: File) -> bool:
    """Return whether a row is a record of TruLens."""
    names = columns_of(file)
    return {"record_id", "input", "output"} <= names and bool({"app_id", "app_name"} & names)


def grade(name: str, _: Collection[str]) -> str | None:
    """Return the name of a column that may be feedback."""
    return None if name.endswith((CALLS, DIRECTION)) or COST in name else name


LAYOUT = Layout(
    (("app_name", "app_version"), ("app_id",), ("app_name",)), ("input",), ("output",), KNOWN, grade
)


def read(files: Sequence[File], asked: Asked) -> Contents:
    """Read a response for each record."""
    contents = read_wide(files, asked, LAYOUT)
    lower = {
        (str(file.path), name.removesuffix(DIRECTION))
        for file in files
        for _, record in records(file)
        for name, value in record.items()
        if name.endswith(DIRECTION) and str(value).strip().lower() in ("false", "0", "0.0")
    }
    said = [
        (file, f"{CAUTION}{name}: less is better, as TruLens declares it") for file, name in sorted(lower)
    ]
    return contents._replace(notes=[*contents.notes, *said])
