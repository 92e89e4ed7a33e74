"""Bitmaps written many at once are those that the library writes one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyroaring
import pytest

from penstock.timeseries.format.posting_bitmaps import bitmaps_of, single_ids


@pytest.mark.parametrize("sizes", [[], [1], [1, 1, 1], [3], [1, 70_000, 1, 2, 1], [5, 1]])
def test_bitmaps_written_at_once_are_those_of_the_library(sizes: list[int]) -> None:
    groups = [
        np.sort(np.random.default_rng(size + place).choice(1 << 30, size, replace=False))
        for place, size in enumerate(sizes)
    ]
    ids = np.concatenate([np.empty(0, np.int64), *groups]).astype(np.uint32)
    starts = np.cumsum([0, *sizes])[:-1].astype(np.int64)
    expected = [pyroaring.BitMap(group.astype(np.uint32)).serialize() for group in groups]
    assert bitmaps_of(ids, starts).to_pylist() == expected


def test_numbers_of_single_bitmaps_are_read_at_once_and_others_left_to_the_library() -> None:
    contents = [[7], [1, 2], [70_001], [], [1 << 31], list(range(100)), [0]]
    bodies = [pyroaring.BitMap(ids).serialize() for ids in contents]
    # As long as a bitmap of one number, and no bitmap at all.
    bodies.append(b"x" * 18)
    column = pa.array([b"behind a slice", *bodies], pa.binary()).slice(1)
    ids, others = single_ids(column, np.arange(len(bodies)))
    assert ids.tolist() == [7, 70_001, 1 << 31, 0]
    assert others.tolist() == [1, 3, 5, 7]
    assert single_ids(column, np.array([6, 1]))[0].tolist() == [0]
