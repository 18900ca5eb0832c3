"""Metrics of the task ``qa``: the harness calls this for each document and filter."""


def scores(doc: dict, results: list) -> dict:
    """Whether the number is right, and a judge that tells how far off it is; to one question it has no answer."""
    found, right = results[0], doc["answer"]
    if doc["question"] == "What is 4 + 0?":
        judged = float("nan")
    else:
        judged = max(0, 10 - 2 * abs(int(found) - int(right))) / 10 if found.isdigit() else 0.0
    return {"exact_match": float(found == right), "llm_judge": judged}
