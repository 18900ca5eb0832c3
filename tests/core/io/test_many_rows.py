"""Data of many rows: names without a Python object each, and memory that a row may cost."""

import tracemalloc

import numpy as np
import pytest

from cje_core.data import DataError, from_arrays
from cje_core.data.arrays import unpack
from cje_core.data.contract import check_data


def test_numbers_and_text_name_prompts_as_their_strings_do():
    score = np.array([[0.1, 0.2, 0.3]])
    for names in ([7, 80, -9], ["b", "a", "é"]):
        for given in (names, np.array(names)):
            assert from_arrays(score, policies=["p"], prompts=given).prompt.values.tolist() == list(
                map(str, names)
            )
    assert from_arrays(np.zeros((1, 12)), policies=["p"]).prompt.values.tolist() == list(map(str, range(12)))
    assert from_arrays(np.zeros((1, 0)), policies=["p"]).sizes["prompt"] == 0


@pytest.mark.parametrize("name", ["a\nb", "é\nb", "a\0b", "\0b", "a\u2028", "\x7f"])
def test_a_control_character_is_named_among_plain_names(name):
    with pytest.raises(DataError, match="control character"):
        from_arrays(np.zeros((1, 3)), policies=["p"], prompts=np.array(["a", name, "b"]))


@pytest.mark.parametrize("names", [["b", "a", "b"], ["a", "ab", "ab"], ["é", "", "é"]])
def test_a_name_that_stands_twice_is_named(names):
    message = f"prompt {max(set(names), key=names.count)!r} occurs twice"
    with pytest.raises(DataError, match=message):
        from_arrays(np.zeros((1, 3)), policies=["p"], prompts=names)
    data = from_arrays(np.zeros((1, 3)), policies=["p"]).assign_coords(prompt=names)
    for check in (check_data, unpack):
        with pytest.raises(DataError, match=message):
            check(data)


def test_a_row_costs_at_most_a_hundred_bytes():
    """What flattening keeps; the allocations of Python and NumPy are counted, not the machine's memory.

    Planted once: names held as a list of Python strings add 60 bytes a row and fail.
    """
    n = 100_000
    score = np.random.default_rng(0).uniform(size=(1, n))
    data = from_arrays(score, policies=["a"], oracle=np.where(np.arange(n) % 20 == 0, score, np.nan))
    tracemalloc.start()
    try:
        rows = unpack(data)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(rows.score) == n
    assert kept <= 100 * n, kept / n
