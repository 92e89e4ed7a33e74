"""Bitmaps written many at once are those that the library writes one by one."""

from __future__ import annotations

import numpy as np
import pyroaring
import pytest

from penstock.timeseries.format.posting_bitmaps import bitmaps_of


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
