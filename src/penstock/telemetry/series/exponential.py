"""Exponential histograms as classic ones: the bounds that scale and offset give, from the lowest to the highest.

A bucket of scale s and index i is (base^i, base^(i+1)] with base = 2^(2^-s). Values near zero lie between the negative
and the positive buckets.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.telemetry.columns.building import Ints

__all__ = ["classic_buckets"]


def classic_buckets(rows: pa.RecordBatch) -> tuple[npt.NDArray[np.float64], Ints, Ints, Ints]:
    """Bounds and counts of all rows, and where those of each row begin."""
    bounds: list[float] = []
    counts: list[int] = []
    bound_offsets, count_offsets = [0], [0]
    for row in rows.select(_COLUMNS).to_pylist():
        found = _row(row)
        bounds += [bound for bound, _ in found]
        # The last bucket, up to +Inf, is empty: every bound above is known.
        counts += [*(count for _, count in found), 0]
        bound_offsets.append(len(bounds))
        count_offsets.append(len(counts))
    return (
        np.array(bounds, np.float64),
        np.array(bound_offsets, np.int64),
        np.array(counts, np.int64),
        np.array(count_offsets, np.int64),
    )


# Counts of Arrow are 64 bits, and those of buckets with one bound are added.
_COUNT_MIN, _COUNT_MAX = -(2**63), 2**63 - 1
_COLUMNS = [
    *("scale", "zero_count", "zero_threshold"),
    *("positive_offset", "positive_counts", "negative_offset", "negative_counts"),
]


def _row(row: dict[str, Any]) -> list[tuple[float, int]]:
    """Upper bounds, rising, each with the count of its bucket."""
    found: dict[float, int] = {}

    def add(bound: float, count: int) -> None:
        found[bound] = min(max(found.get(bound, 0) + count, _COUNT_MIN), _COUNT_MAX)

    negative = row["negative_counts"] or []
    for place in range(len(negative) - 1, -1, -1):
        add(-_power(row["scale"], (row["negative_offset"] or 0) + place), negative[place])
    add(row["zero_threshold"] or 0.0, row["zero_count"] or 0)
    for place, count in enumerate(row["positive_counts"] or []):
        add(_power(row["scale"], (row["positive_offset"] or 0) + place + 1), count)
    return sorted((bound, count) for bound, count in found.items() if math.isfinite(bound))


def _power(scale: int, index: int) -> float:
    """base^index, and infinity where a double ends."""
    try:
        exponent = math.ldexp(index, -scale)
    except OverflowError:
        exponent = math.copysign(math.inf, index)
    return math.inf if exponent >= 1024 else 2.0**exponent if exponent > -1074 else 0.0
