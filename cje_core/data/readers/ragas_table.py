"""Tables of Ragas (``result.to_pandas()`` as CSV, JSON or Parquet): a row is a sample, each metric a column.

Metrics have names of the user's choice, so every other column of numbers or of categories is a score. A sample whose
metric failed is NaN there, and has no grade of it. Columns are those of `SingleTurnSample`, and of versions before 0.2.
"""

from collections.abc import Sequence

from cje_core.data.intake.foreign import Asked, Contents
from cje_core.data.intake.recognize import File
from cje_core.data.intake.wide import Layout, any_other, columns_of, read_wide

TITLE = "table of Ragas"
ROLES = {
    "policy": "`policy`, `model`, `model_name`, `experiment`, `experiment_name`; else the name of the file",
    "prompt": "`user_input`, `question` (its text; a long one by its beginning and a number)",
    "draw": "rows of one policy and prompt",
    "scores": "each other column of numbers or categories",
    "left out": "texts; columns that number, name or cost the rows",
}
# Fields of a sample, and of version 0.1.
SAMPLE = ("retrieved_contexts", "reference_contexts", "retrieved_context_ids", "reference_context_ids",
          "multi_responses", "reference", "rubrics", "persona_name", "query_style", "query_length",
          "reference_tool_calls", "reference_topics", "synthesizer_name", "contexts", "ground_truth", "ground_truths",
          "evolution_type", "episode_done", "metadata")  # fmt: skip
POLICY = ("policy", "model", "model_name", "experiment", "experiment_name")
LAYOUT = Layout(
    [[name] for name in POLICY], ("user_input", "question"), ("response", "answer"), SAMPLE, any_other
)


def knows(file: File) -> bool:
    """Return whether a row is a sample of Ragas."""
    names = columns_of(file)
    return bool({"user_input", "response"} <= names or {"user_input", "reference"} <= names) or (
        {"question", "answer", "contexts"} <= names
    )


def read(files: Sequence[File], asked: Asked) -> Contents:
    """Read a response for each sample."""
    return read_wide(files, asked, LAYOUT)
