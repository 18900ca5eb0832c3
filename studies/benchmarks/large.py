"""A Parquet file analysed in bounded memory, whatever its size: four policies that share prompts, labels of three.

`cje_core.analyze` with ``large=True`` (pooled data) beside the same analysis in memory, which gives the same numbers.
Scores are continuous single-precision numbers, rows in random order; 3,000 labels a policy. The peak of memory is what
tells them apart. Limit: pyarrow reading the columns batch by batch, by one thread.
"""

from pathlib import Path

from studies.engine.benchmark import Benchmark, Case, Contender
from studies.engine.stopwatch import Call, scratch

POLICIES = ("base", "clone", "premium", "unlabelled")
LABELS = 3000
BATCH = 250_000  # prompts in memory at a time
IN_MEMORY = 4_000_000  # rows up to which the analysis in memory takes part


def write(n: int) -> Path:
    """Write a file of `n` responses, in batches: it need not fit in memory."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import parquet

    rng, n_prompts, path = np.random.default_rng(1), n // len(POLICIES), scratch() / "responses.parquet"
    kinds = [("policy", pa.string()), ("prompt_id", pa.string()), ("judge_score", pa.float32())]
    schema = pa.schema([*kinds, ("oracle_label", pa.float64())])
    with parquet.ParquetWriter(path, schema) as writer:
        for first in range(0, n_prompts, BATCH):
            size = min(BATCH, n_prompts - first)
            names = pa.array(np.char.add("prompt-", np.arange(first, first + size).astype(str)))
            quality, tables = rng.beta(4, 2, size), []
            for policy in POLICIES:
                score = 0.6 * quality + 0.4 * rng.beta(4, 2, size)
                label = np.clip(0.1 + 0.8 * score**2 + 0.1 * rng.normal(size=size), 0, 1).round(3)
                label[(rng.random(size) >= LABELS / n_prompts) | (policy == POLICIES[-1])] = np.nan
                columns = [pa.array([policy] * size), names, score.astype(np.float32)]
                tables.append(pa.table([*columns, pa.array(label, from_pandas=True)], schema=schema))
            writer.write_table(pa.concat_tables(tables).take(pa.array(rng.permutation(size * len(POLICIES)))))
    return path


def pooled(n: int) -> Call:
    """`cje_core.analyze` in bounded memory."""
    import cje_core

    path = write(n)
    return lambda: cje_core.analyze(path, large=True)


def in_memory(n: int) -> Call:
    """`cje_core.analyze` with every row in memory."""
    import cje_core

    path = write(n)
    return lambda: cje_core.analyze(path, large=False)


def limit(n: int) -> Call:
    """The columns, read and let go."""
    from pyarrow import parquet

    path = write(n)

    def read() -> None:
        with parquet.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False) as file:
            for _ in file.iter_batches(1 << 18, use_threads=False):
                pass

    return read


def cases(profile: str) -> list[Case]:
    """A size for each profile; the full one adds fifty million rows."""
    sizes = {"smoke": (20_000,), "small": (1_000_000,)}.get(profile, (4_000_000, 50_000_000))
    why = "it would take more memory than most machines have"
    return [
        Case(f"{n:,} rows", {"n": n}, n, left_out={} if n <= IN_MEMORY else {"in memory": why}) for n in sizes
    ]


BENCHMARK = Benchmark(
    title="Larger than memory",
    unit="rows",
    contenders=(
        Contender("cje-lab", pooled),
        Contender("in memory", in_memory),
        Contender("limit", limit, "limit"),
    ),
    cases=cases,
)
