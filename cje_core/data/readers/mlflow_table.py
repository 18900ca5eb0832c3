"""Tables of MLflow's evaluations: ``eval_results_table.json``, and ``result_df`` of ``mlflow.genai.evaluate``.

A row is a response. Of ``mlflow.evaluate`` a metric is ``NAME/VERSION/score``, of Databricks' judges ``NAME/rating``,
of ``mlflow.genai`` ``NAME/value``; there a person's feedback overwrites a judge's of one name, so that the grades are
taken from ``assessments``, where it is in the table, as ``NAME@SOURCE``. Expectations are no grades.
"""

import ast
import json
from collections.abc import Collection, Sequence
from typing import Any

from cje_core.data.intake.foreign import Asked, Contents, text_of
from cje_core.data.intake.recognize import File
from cje_core.data.intake.wide import Layout, columns_of, read_wide

TITLE = "evaluation table of MLflow"
ROLES = {
    "policy": "`policy`, `model`, `model_name`, `run_name`, `run_id`; else the name of the file, or its directory's",
    "prompt": "`inputs`, `input`, `question`, `query`, `prompt`, `request` (its text; a long one by its beginning and "
    "a number)",
    "draw": "rows of one policy and prompt",
    "scores": "`NAME/score`, `NAME/rating`, `NAME/value`, by NAME; `NAME@SOURCE` of `assessments`; other columns of "
    "numbers or categories",
    "left out": "justifications, expectations, statistics of the text; columns that number, name or cost the rows",
}
GRADE = ("/score", "/value", "/rating")
NO_GRADE = ("/justification", "/rationale", "/error_message", "/error_code", "/ratings", "/rationales")
STATISTICS = ("token_count", "latency", "flesch_kincaid_grade_level", "ari_grade_level")  # of the text
KNOWN = ("trace_id", "trace", "client_request_id", "request_id", "state", "request_time", "execution_duration",
         "trace_metadata", "request_metadata", "tags", "spans", "assessments", "expectations", "context", "target",
         "targets", "ground_truth", "expected_response", "retrieved_context", "token_count", "timestamp_ms", "status",
         "execution_time_ms", "error_message")  # fmt: skip
POLICY = ("policy", "model", "model_name", "run_name", "run_id")
PROMPT = ("inputs", "input", "question", "query", "prompt", "request")
RESPONSE = ("outputs", "output", "predictions", "prediction", "answer", "response")


def knows(file: File) -> bool:
    """Return whether columns are named as MLflow names metrics."""
    names = columns_of(file)
    justified = any(
        f"{name.removesuffix('/score')}/justification" in names for name in names if name.endswith("/score")
    )
    versions = any(name.count("/") > 1 and name.endswith("/score") and "/v" in name for name in names)
    traced = "trace_id" in names and any(name.endswith("/value") for name in names)
    return justified or versions or traced or any("/llm_judged/" in name for name in names)


def grade(name: str, _: Collection[str]) -> str | None:
    """Return the name of the metric that a column holds."""
    if name.endswith(NO_GRADE) or name.partition("/")[0] in STATISTICS:
        return None
    return next((name.removesuffix(end) for end in GRADE if name.endswith(end)), name)


def unpack(record: dict[str, Any]) -> dict[str, Any]:
    """Return a row with a value for each assessment and source, and without expectations."""
    row = dict(record)
    for one in _assessments(record.get("assessments")):
        name, feedback = text_of(one.get("assessment_name")), one.get("feedback")
        if isinstance(one.get("expectation"), dict):
            row.pop(f"{name}/value", None)
        elif isinstance(feedback, dict) and f"{name}/value" in record:
            row.pop(f"{name}/value", None)
            source = one.get("source")
            kind = source.get("source_type") if isinstance(source, dict) else None
            row[f"{name}@{text_of(kind or 'unknown')}/value"] = feedback.get("value")
    return row


def _assessments(cell: Any) -> list[dict[str, Any]]:
    """Return the assessments of a cell, which CSV holds as the text of a list."""
    if isinstance(cell, str):
        try:
            cell = json.loads(cell)
        except (ValueError, RecursionError):
            try:
                cell = ast.literal_eval(cell)
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                return []
    return [one for one in cell if isinstance(one, dict)] if isinstance(cell, list) else []


LAYOUT = Layout([[name] for name in POLICY], PROMPT, RESPONSE, KNOWN, grade, unpack)


def read(files: Sequence[File], asked: Asked) -> Contents:
    """Read a response for each row."""
    return read_wide(files, asked, LAYOUT)
