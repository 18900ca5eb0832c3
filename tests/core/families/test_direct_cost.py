"""What Direct costs: passes over all rows and bytes a row, which no other load of the machine changes."""

import tracemalloc

import numpy as np
import pytest

from cje_core.calibration import calibrator
from cje_core.data import from_arrays
from cje_core.data.arrays import names_of
from cje_core.estimators import direct
from cje_core.inference import influence


def many(n, share=0.05, prompts=None):
    rng = np.random.default_rng(0)
    score = rng.uniform(size=n)
    label = np.where(rng.uniform(size=n) < share, np.clip(score + rng.normal(0, 0.2, n), 0, 1), np.nan)
    names = np.char.zfill(np.arange(n).astype(str), 8) if prompts is None else prompts
    return from_arrays(score[None], policies=["a"], prompts=names, oracle=label[None])


def test_influence_takes_at_most_two_hundred_bytes_a_row():
    """Peak of what Python and NumPy allocate beyond the data.

    Planted once: a leverage for every prompt and mean, and stacks of predictions, took 276 bytes.
    """
    n = 100_000
    data = many(n)
    direct.estimate(data)  # what is made once for all calls
    tracemalloc.start()
    try:
        direct.estimate(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= 200 * n, peak / n


def test_influence_predicts_each_row_and_counts_the_clusters_behind_a_mean_once(monkeypatch):
    """Three means: over responses and own labels, of several values each, and of labels crowded against an end."""
    predicted, counted = [], []
    interpolate, weigh = calibrator.interpolate, influence.weigh_rows
    monkeypatch.setattr(
        calibrator, "interpolate", lambda x, *f: (predicted.append(len(x)), interpolate(x, *f))[1]
    )
    monkeypatch.setattr(
        influence, "weigh_rows", lambda *rows: (counted.append(len(rows[0])), weigh(*rows))[1]
    )
    data = many(4_000)
    direct.estimate(data)
    n_labels = int(data.labelled.sum())
    assert sum(predicted) == 4_000  # f of each row; f^(-k) of the labels is looked up by fold
    assert sorted(counted) == [n_labels, n_labels, 4_000]


@pytest.mark.parametrize("pattern", ["{:05d}", "{}", "é{}", ""])
def test_names_are_those_of_the_data_without_a_python_object_each(pattern):
    """Planted once: a Python string each took 82 bytes a name."""
    n = 100_000
    names = [pattern.format(i) for i in range(n)] if pattern else ["", "b", "a" * 40, "a"]
    data = from_arrays(np.zeros((1, len(names))), policies=["p"], prompts=names)
    tracemalloc.start()
    try:
        found = names_of(data, "prompt")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.tolist() == names
    assert "é" in pattern or peak < 60 * len(names) + 10_000
    assert names_of(data.assign_coords(prompt=np.array(names, dtype=object)), "prompt").tolist() == names


def test_an_estimate_takes_the_names_of_the_data_where_they_are_in_order():
    data = many(300)
    shuffled = data.isel(prompt=np.random.default_rng(1).permutation(300))
    one, other = direct.estimate(data), direct.estimate(shuffled)
    assert one.indexes["prompt"].array is data.indexes["prompt"].array
    assert one.identical(other)
    assert one.prompt.values.tolist() == sorted(shuffled.prompt.values.tolist())


def test_an_estimate_has_the_attributes_and_the_names_of_its_data():
    data = many(300).isel(prompt=np.random.default_rng(1).permutation(300))
    first = direct.estimate(data)
    told = data.assign_coords(prompt=data["prompt"].variable)
    told["prompt"].attrs["source"] = "elsewhere"
    assert direct.estimate(told)["prompt"].attrs["source"] == "elsewhere"
    assert "source" not in direct.estimate(data)["prompt"].attrs
    other = data.assign_coords(prompt=[f"q{name}" for name in data["prompt"].values])
    assert direct.estimate(other)["prompt"].values[0] == f"q{first['prompt'].values[0]}"
