"""A file larger than memory, analysed from pooled data: the numbers of the analysis in memory, to rounding."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cje_core.calibration.calibrated import Calibration
from cje_core.data import DataError, from_arrays
from cje_core.data.large import spill
from cje_core.workflow.analysis import Analysis
from cje_core.workflow.analyze import analyze
from cje_core.workflow.plan import plan
from cje_core.workflow.reading import given, pooled

PIECES = ("transport", "coverage", "reliability", "gates", "levels", "value", "bounds", "balance", "agreement",
          "guide", "contrasts", "if_biased", "tipping", "assumptions", "order", "next_labels")  # fmt: skip

# beside p-values and probabilities: made of limits of differences, whose skewness is that of the labelled prompts
BY_DIFFERENCES = {("contrasts", "interval"), ("tipping", "tipping"), ("tipping", "best_tipping")}


def table(n: int, rng: np.random.Generator, *, digits: int | None = None, share: float = 0.1) -> pd.DataFrame:
    """Four policies that share prompts, the last without labels; a tenth of the responses are missing."""
    quality, frames = rng.beta(4, 2, n), []
    for k, policy in enumerate(("a", "b", "c", "d")):
        score = np.clip(0.6 * quality + 0.4 * rng.beta(4 + k / 2, 2, n), 0, 1)
        score = score if digits is None else score.round(digits)
        label = np.clip(0.1 + 0.8 * score**2 + 0.1 * rng.normal(size=n), 0, 1).round(3)
        label[(rng.random(n) > share) | (k == 3)] = np.nan
        frame = pd.DataFrame({"policy": policy, "prompt_id": np.arange(n), "judge_score": score})
        frames.append(frame.assign(oracle_label=label)[rng.random(n) < 0.9])
    return pd.concat(frames).sample(frac=1, random_state=1, ignore_index=True)


def grid(n: int, rng: np.random.Generator) -> pd.DataFrame:
    return table(n, rng, digits=2)


def single(n: int, rng: np.random.Generator) -> pd.DataFrame:
    return table(n, rng).astype({"judge_score": np.float32})


def audited(n: int, rng: np.random.Generator) -> pd.DataFrame:
    frame = table(n, rng)
    label = np.clip(frame["judge_score"] - 0.2, 0, 1).round(2)
    probe = (frame["policy"] == "d") & (rng.random(len(frame)) < 0.05)
    return frame.assign(oracle_label=frame["oracle_label"].mask(probe, label), probe=probe)


def weighted(n: int, rng: np.random.Generator) -> pd.DataFrame:
    frame = table(n, rng)
    prob = np.where(frame["judge_score"] > 0.6, 0.5, 0.2)
    return frame.assign(label_prob=prob).loc[frame["oracle_label"].isna() | (rng.random(len(frame)) < prob)]


def whole(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Policy a labelled throughout, b hardly."""
    frame = table(n, rng)
    frame.loc[frame["policy"] == "a", "oracle_label"] = frame["judge_score"].round(1)
    few = (frame["policy"] == "b") & frame["oracle_label"].notna()
    frame.loc[few & (few.cumsum() > 2), "oracle_label"] = np.nan
    return frame


def unlabelled(n: int, rng: np.random.Generator) -> pd.DataFrame:
    return table(n, rng).assign(oracle_label=np.nan)


def beyond(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Labels where scores are low alone, and none of c, whose scores are high."""
    frame = table(n, rng)
    known = (frame["judge_score"] < 0.7) & (frame["policy"] != "c")
    return frame.assign(oracle_label=frame["oracle_label"].where(known))


def binary(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Few levels of the judge, pass or fail."""
    frame = table(n, rng, digits=1)
    return frame.assign(oracle_label=frame["oracle_label"].round())


def written(path: Path, frame: pd.DataFrame) -> Path:
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), path, row_group_size=900)
    return path


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many batches and files, as of a large file."""
    monkeypatch.setattr(spill, "BATCH", 700)
    monkeypatch.setattr(spill, "PART", 1500)
    monkeypatch.setattr(pooled, "CHUNK", 400)


def alike(found: Any, wanted: Any, where: str) -> None:
    """The same to 1e-9, but for what is about single prompts, and limits of differences, to 1e-3."""
    assert (found is None) == (wanted is None), where
    if wanted is None:
        return
    assert set(found.variables) == set(wanted.variables), where
    for name, values in wanted.variables.items():
        if "prompt" not in values.dims and name != "prompt":
            if values.dtype.kind in "fiub":
                said = f"{where}: {name}"
                close = {"rtol": 1e-9, "atol": 1e-11}
                if name.startswith("p_") or (where, name) in BY_DIFFERENCES:
                    close = {"rtol": 1e-2, "atol": 1e-3}
                ours, theirs = found[name].values, values.values
                if name == "borrowed_response":  # a root of a covariance, whose columns may have either sign
                    ours, theirs, close = ours @ ours.T, theirs @ theirs.T, {"rtol": 1e-9, "atol": 1e-14}
                np.testing.assert_allclose(ours, theirs, **close, err_msg=said)
            else:
                np.testing.assert_array_equal(found[name].values, values.values, f"{where}: {name}")


def both(path: Path, **options: Any) -> tuple[Analysis, Analysis]:
    return analyze(path, large=True, **options), analyze(path, large=False, **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world", "n", "options"),
    [
        (grid, 1200, {}),
        (single, 1200, {"calibration_policy": "a"}),
        (table, 1200, {"calibration": Calibration(direction="decreasing")}),
        (table, 11_500, {"borrowed": "one_step"}),  # the test of label balance takes another way from 10,000
        (grid, 4000, {"borrowed": "plug_in", "calibration_policy": ["a", "b"]}),
        (audited, 1200, {"chosen": ["direct", "raw_judge"]}),
        (weighted, 1200, {}),
        (whole, 600, {}),
        (beyond, 900, {}),
        (unlabelled, 600, {}),
        (binary, 600, {}),
    ],
)
def test_the_analysis_is_that_in_memory(
    tmp_path: Path, world: Callable[..., pd.DataFrame], n: int, options: dict[str, Any]
) -> None:
    """Planted once: one point in place of two per cell, or prompts that policies do not share, fail."""
    path = written(tmp_path / "x.parquet", world(n, np.random.default_rng(n)))
    found, wanted = both(path, **options)
    for piece in PIECES:
        alike(getattr(found, piece), getattr(wanted, piece), piece)
    assert (world is beyond) == (wanted.next_labels is not None)
    assert list(found.estimates) == list(wanted.estimates)
    for name, estimate in wanted.estimates.items():
        alike(found.estimates[name], estimate, name)
    assert found.shown() == wanted.shown()
    assert found.verdicts == wanted.verdicts


def test_a_rule_has_the_moments_of_what_it_stands_for() -> None:
    """Lobatto's rule: sums of every cubic are exact, and so are the least and the largest score."""
    rng = np.random.default_rng(3)
    cut = np.array([0.2, 0.5, 0.9])
    labels = spill.Labels(
        np.arange(3), cut.astype(str), cut.astype("u8"), np.arange(3), cut, cut, cut, cut < 0
    )
    cells = pooled._cells(labels, np.ones(1), [], (0.0, 1.0))
    score = np.concatenate([0.9 * rng.beta(1, 3, 500), np.repeat([0.2, 0.5, 0.7], 9), [0.95]])
    code, middle = cells.code(score, score < 0), (cells.low + cells.high) / 2
    sums = np.array([[np.bincount(code, (score - middle[code]) ** k, len(middle))] for k in range(4)])
    least, largest = np.full((2, 1, len(middle)), [[[np.inf]], [[-np.inf]]])
    np.minimum.at(least[0], code, score)
    np.maximum.at(largest[0], code, score)
    points, weight = (part[0] for part in pooled._points(sums, least, largest, cells))
    assert (weight >= 0).all() and (
        weight > 0
    ).sum() == 3 * 3 + 2 + 1  # two cuts were scored, one value is alone
    for power in range(4):
        expected = np.bincount(code, score**power, len(middle))
        np.testing.assert_allclose((weight * points**power).sum(axis=1), expected, rtol=1e-10, atol=1e-12)
    for cell in np.unique(code):
        inside, there = score[code == cell], points[cell, weight[cell] > 0]
        assert (inside.min(), inside.max()) == (there.min(), there.max())


def test_what_needs_rows_is_refused_and_no_reason_to_pool(tmp_path: Path) -> None:
    frame = table(100, np.random.default_rng(0)).assign(length=1.0)
    path = written(tmp_path / "x.parquet", frame)
    for options, said in (
        ({"calibration": Calibration(("length",))}, "covariates='length' needs every row"),
        ({"calibration": Calibration(mode="two_stage")}, "calibrator='two_stage' needs every row"),
        ({"bayes": "gibbs"}, "bayes='gibbs' needs every row"),
        ({"chosen": ["ppi"]}, "chosen='ppi' needs every row"),
        ({"probes": path}, "probes= needs every row"),
        ({"logged": path}, "logged= needs every row"),
        ({"shared_prompts": True}, "shared_prompts= needs every row"),
    ):
        with pytest.raises(DataError, match=f"^large=True: {said}"):
            analyze(path, large=True, **options)
    with pytest.raises(DataError, match="reads one Parquet file"):
        analyze(frame, large=True)
    with pytest.raises(DataError, match="large=True: only an analysis of values"):
        plan(path, budget=1000.0, cost_judge=1.0, cost_oracle=10.0, large=True)


@pytest.mark.slow
def test_a_file_is_pooled_where_it_needs_more_than_its_share_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = table(50, np.random.default_rng(0))
    path = written(tmp_path / "x.parquet", frame)

    def pooled_data(path: Any, **options: Any) -> bool:
        with given.taken(path, (), None, **options) as found:
            return "stands_for" in found.data

    needed = len(frame) * given.A_ROW / given.SHARE
    for memory, large in ((needed - 1, True), (needed + 1, False)):
        monkeypatch.setattr(given, "_memory", lambda memory=memory: memory)
        assert pooled_data(path) == large
        assert ("stands_for" in analyze(path).data) == large
    monkeypatch.setattr(given, "_memory", lambda: 1.0)
    assert not pooled_data(path, large=False)
    assert not pooled_data(path, shared_prompts=True)
    assert not pooled_data(written(tmp_path / "y.parquet", frame.assign(cluster="c")))
    assert not pooled_data(frame)
    with given.taken(path, (), "what needs rows") as found:
        assert "stands_for" not in found.data


def test_only_a_response_without_a_label_stands_for_several() -> None:
    score = [[0.1, 0.2, 0.3]]
    assert float(from_arrays(score, policies=["a"], stands_for=[[1.0, 2.5, 4.0]]).stands_for.sum()) == 7.5
    for wrong, oracle in (([[1.0, 0.0, 1.0]], None), ([[1.0, 2.0, 1.0]], [[np.nan, 1.0, np.nan]])):
        with pytest.raises(DataError, match="stands_for is above 0"):
            from_arrays(score, policies=["a"], stands_for=wrong, oracle=oracle)
