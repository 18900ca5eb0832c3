"""Tables of LangSmith experiments: a row is a run on an example, each feedback a column ``feedback.name``.

The example is the prompt and its runs are draws. A column names the experiment, or each file is one: the policy. A
grade that is a word counts by its name.
"""

from collections import defaultdict
from collections.abc import Sequence

from cje_core.io.intake.foreign import Asked, Contents, Item, named_by, text_of
from cje_core.io.intake.raw import stem_of
from cje_core.io.intake.recognize import File
from cje_core.io.intake.rows import rows_of

TITLE = "table of a LangSmith experiment"
ROLES = {
    "policy": "`experiment`, `experiment_name`, `session_name`, `session_id`; else the name of the file",
    "prompt": "`example_id`, `reference_example_id`",
    "draw": "runs of one example",
    "scores": "`feedback.NAME`, by NAME",
    "left out": "runs with an error and no feedback",
}
FEEDBACK = "feedback."
POLICY = ("experiment", "experiment_name", "session_name", "session_id")
PROMPT = ("example_id", "reference_example_id")


def knows(file: File) -> bool:
    """Return whether a row is a run with its feedback in columns."""
    return any(name.startswith(FEEDBACK) for name in file.names) and bool(file.names & {*PROMPT, "run_id"})


def read(files: Sequence[File], asked: Asked) -> Contents:
    """Read a response for each run."""
    draws: dict[tuple[str, str], int] = defaultdict(int)
    items = []
    column = next((name for name in POLICY if all(name in file.names for file in files)), None)
    policy_field = asked.policy or column
    prompt_field = asked.prompt or next((name for name in PROMPT if name in files[0].names), "run_id")
    for file in files:
        for row, record in rows_of(file.path):
            where = f"{file.path}, row {row}"
            policy = named_by(policy_field, [record], where, "policy") if policy_field else stem_of(file.path)
            prompt = named_by(prompt_field, [record], where, "prompt")
            scores = {
                text_of(name).removeprefix(FEEDBACK): record[name]
                for name in record
                if name.startswith(FEEDBACK)
            }
            failed = bool(record.get("error")) and all(value in (None, "") for value in scores.values())
            why = "unusable: the run ended with an error, and no feedback" if failed else ""
            items.append(Item(str(file.path), row, policy, prompt, scores, draws[policy, prompt], why=why))
            draws[policy, prompt] += 1
    roles = {
        "policy": policy_field or "the name of the file",
        "prompt": prompt_field,
        "draw": "runs of one example",
    }
    return Contents(items, roles)
