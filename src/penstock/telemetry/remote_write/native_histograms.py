"""Native histograms of Prometheus as the exponential ones of OTLP; those with bounds of their own as explicit ones.

Prometheus numbers the bucket (base^(i-1), base^i] as i and OTLP as i-1. Buckets come as spans of used ones with gaps
between them, and whole counts as differences from bucket to bucket. There are few of them: they are read one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import InvalidInput, Unsupported

__all__ = ["NativeRows", "native_rows"]

_CUSTOM_BOUNDS: Final = -53
_SCALES: Final = range(-4, 9)
# Gaps are stored as zeros: a hostile span could ask for billions.
_BUCKETS_MAX: Final = 20_000
# Of one request; the others are counted.
_REASONS_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class NativeRows:
    """Columns of metrics, one row a histogram; those under the mask are to be refused, for these reasons."""

    columns: dict[str, Any]
    refused: npt.NDArray[np.bool_]
    reasons: Sequence[str]


def native_rows(histograms: Any, names: Any) -> NativeRows:
    rows, reasons = list[dict[str, Any]](), list[str]()
    refused = np.zeros(len(histograms), np.bool_)
    for number, (one, name) in enumerate(zip(histograms.to_pylist(), names.to_pylist(), strict=True)):
        try:
            rows.append(_row(one, name))
        except (InvalidInput, Unsupported) as error:
            rows.append({"type": "histogram"})
            refused[number] = True
            if len(reasons) < _REASONS_MAX:
                reasons.append(": ".join(part for part in (error.what, error.why) if part))
    kinds = {
        "type": pa.string(),
        "count": pa.int64(),
        "sum": pa.float64(),
        "scale": pa.int32(),
        "zero_count": pa.int64(),
        "zero_threshold": pa.float64(),
        "positive_offset": pa.int32(),
        "positive_counts": pa.list_(pa.int64()),
        "negative_offset": pa.int32(),
        "negative_counts": pa.list_(pa.int64()),
        "bounds": pa.list_(pa.float64()),
        "counts": pa.list_(pa.int64()),
    }
    columns = {name: pa.array([row.get(name) for row in rows], kind) for name, kind in kinds.items()}
    return NativeRows(columns, refused, reasons)


def _row(one: dict[str, Any], name: str) -> dict[str, Any]:
    if one["count_float"] is not None or one["zero_count_float"] is not None:
        raise Unsupported(f"histogram {name!r} has fractional counts", "", "send histograms with integer counts")
    positive = _buckets(one["positive_spans"], one["positive_deltas"], name)
    negative = _buckets(one["negative_spans"], one["negative_deltas"], name)
    if one["schema"] not in _SCALES and one["schema"] != _CUSTOM_BOUNDS:
        raise Unsupported(f"histogram {name!r} has schema {one['schema']}", "there are -4 to 8, and -53")
    _check_count(one, sum(positive[1]) + sum(negative[1]), name)
    row: dict[str, Any] = {"count": one["count_int"] or 0, "sum": one["sum"]}
    if one["schema"] == _CUSTOM_BOUNDS:
        return row | _explicit(positive, one["custom_values"], name)
    return row | {
        "type": "exponential_histogram",
        "scale": one["schema"],
        "zero_count": one["zero_count_int"] or 0,
        "zero_threshold": one["zero_threshold"],
        "positive_offset": positive[0] - 1,
        "positive_counts": positive[1],
        "negative_offset": negative[0] - 1,
        "negative_counts": negative[1],
    }


def _check_count(one: dict[str, Any], in_buckets: int, name: str) -> None:
    """Observations that are no number are counted and lie in no bucket; then the sum is no number either."""
    count, found = one["count_int"] or 0, in_buckets + (one["zero_count_int"] or 0)
    if found > count or (found != count and not isnan(one["sum"])):
        raise InvalidInput(f"histogram {name!r} has count {count}", f"its buckets hold {found} observations")


def _explicit(buckets: tuple[int, list[int]], bounds: list[float], name: str) -> dict[str, Any]:
    first, counts = buckets
    if first < 0 or first + len(counts) > len(bounds) + 1:
        raise InvalidInput(f"histogram {name!r} has buckets beyond its bounds")
    filled = [0] * first + counts
    return {"type": "histogram", "bounds": bounds, "counts": filled + [0] * (len(bounds) + 1 - len(filled))}


def _buckets(spans: list[dict[str, int]], deltas: list[int], name: str) -> tuple[int, list[int]]:
    """The number of the first bucket, and the counts from there on without gaps."""
    counts: list[int] = []
    used = iter(deltas)
    count, first = 0, spans[0]["offset"] if spans else 0
    for number, span in enumerate(spans):
        gap = span["offset"] if number else 0
        if gap < 0 or len(counts) + gap + span["length"] > _BUCKETS_MAX:
            raise InvalidInput(f"histogram {name!r} has invalid spans", f"at most {_BUCKETS_MAX} buckets")
        counts += [0] * gap
        for _ in range(span["length"]):
            delta = next(used, None)
            if delta is None:
                raise InvalidInput(f"histogram {name!r} has fewer counts than buckets")
            count += delta
            if not 0 <= count < 2**63:
                raise InvalidInput(f"histogram {name!r} has a count below zero or over 2^63")
            counts.append(count)
    if next(used, None) is not None:
        raise InvalidInput(f"histogram {name!r} has more counts than buckets")
    return first, counts
