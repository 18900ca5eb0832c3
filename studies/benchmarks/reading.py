"""Reading a table of responses from a file: checked evaluation data, against a plain table.

cje-lab's `read` checks every row and gives evaluation data by policy, prompt and draw; pyarrow and pandas give a table.
Two policies, a draw each, 5% labels. Limit: reading the bytes of the file.
"""

from pathlib import Path

from studies.engine.benchmark import Benchmark, Case, Contender
from studies.engine.stopwatch import Call, scratch


def responses(kind: str, n: int) -> Path:
    """Write a file of `n` responses."""
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(1)
    score = rng.beta(4.0, 1.5, n).round(2)
    table = pd.DataFrame(
        {
            "policy": np.where(np.arange(n) % 2, "other", "base"),
            "prompt_id": np.char.add("prompt-", (np.arange(n) // 2).astype(str)),
            "judge_score": score,
            "oracle_label": np.where(rng.random(n) < 0.05, (0.2 + 0.6 * score**2).round(4), np.nan),
        }
    )
    path = scratch() / f"responses.{kind}"
    if kind == "jsonl":
        table.to_json(path, orient="records", lines=True)
    elif kind == "csv":
        table.to_csv(path, index=False)
    else:
        table.to_parquet(path, index=False)
    return path


def ours(kind: str, n: int) -> Call:
    """`cje_core.read`."""
    from cje_core.io.files import read

    path = responses(kind, n)
    return lambda: read(path)


def by_pyarrow(kind: str, n: int) -> Call:
    """A pyarrow table, read by one thread."""
    from pyarrow import csv, json, parquet

    path = responses(kind, n)
    if kind == "jsonl":
        return lambda: json.read_json(path, read_options=json.ReadOptions(use_threads=False))
    if kind == "csv":
        return lambda: csv.read_csv(path, read_options=csv.ReadOptions(use_threads=False))
    return lambda: parquet.read_table(path, use_threads=False)


def by_pandas(kind: str, n: int) -> Call:
    """A pandas table."""
    import pandas as pd

    path = responses(kind, n)
    if kind == "jsonl":
        return lambda: pd.read_json(path, lines=True)
    if kind == "csv":
        return lambda: pd.read_csv(path)
    return lambda: pd.read_parquet(path)


def limit(kind: str, n: int) -> Call:
    """Bytes of the file."""
    path = responses(kind, n)
    return lambda: path.read_bytes()


def cases(profile: str) -> list[Case]:
    """Three formats."""
    n = {"smoke": 1000, "small": 50_000}.get(profile, 500_000)
    return [Case(f"{kind}, {n:,} rows", {"kind": kind, "n": n}, n) for kind in ("jsonl", "csv", "parquet")]


BENCHMARK = Benchmark(
    title="Reading",
    unit="rows",
    contenders=(
        Contender("cje-lab", ours),
        Contender("pyarrow", by_pyarrow, "peer", "pyarrow"),
        Contender("pandas", by_pandas, "peer", "pandas"),
        Contender("limit", limit, "limit"),
    ),
    cases=cases,
)
