"""Equal rows have equal numbers, and no others do, also when the numbers of columns are too large to be put together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from penstock.telemetry.columns.attributes import AttributeColumns
from penstock.telemetry.columns.label_sets import distinct, distinct_sets


@pytest.mark.parametrize("high", [3, 2**20, 2**40, 2**61])
@pytest.mark.parametrize("width", [1, 2, 5])
def test_rows_of_numbers(high: int, width: int) -> None:
    chance = np.random.default_rng(high + width)
    pool = chance.integers(0, high, (20, width))
    rows = pool[chance.integers(0, 20, 500)]
    numbers, first = distinct(*rows.T)
    _check([tuple(row) for row in rows.tolist()], numbers.tolist(), first.tolist())


def test_sets_of_labels_of_any_length() -> None:
    chance = np.random.default_rng(5)
    sets = [
        tuple((f"k{key}", f"v{chance.integers(3)}") for key in sorted(chance.permutation(5)[: chance.integers(0, 5)]))
        for _ in range(400)
    ]
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in sets])])
    keys, values = ([pair[place] for one in sets for pair in one] for place in (0, 1))
    columns = AttributeColumns(
        offsets, pa.array(keys, pa.string()), pa.array(values, pa.string()), np.zeros(len(keys), np.int8)
    )
    numbers, first = distinct_sets(columns)
    _check(sets, numbers.tolist(), first.tolist())


def test_nothing_has_no_sets() -> None:
    nothing = pa.array([], pa.string())
    numbers, first = distinct_sets(AttributeColumns(np.zeros(1, np.int64), nothing, nothing, np.zeros(0, np.int8)))
    assert (len(numbers), len(first)) == (0, 0)


def _check(rows: Sequence[tuple[object, ...]], numbers: list[int], first: list[int]) -> None:
    assert len(set(zip(rows, numbers, strict=True))) == len(set(rows)) == len(set(numbers)) == len(first)
    assert [numbers[row] for row in first] == list(range(len(first)))
