"""The times that a filter leaves possible, found by asking Arrow what it can disprove.

A filter comes from an engine as an Arrow expression whose parts cannot be looked at. But Arrow says whether it
contradicts a guarantee, so the bounds are searched for, first at the times that its text mentions, then by halving:
whatever is left out was disproved.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.types as pat
from pyarrow import fs

__all__ = ["time_bounds"]

_UNITS: Final = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1000, "ns": 1}
_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1
# Within an hour files are left out one by one, by their own times.
_PRECISION_NS: Final = 3600 * 1_000_000_000
_TIME: Final = re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,9})?")
_HINTS_MAX: Final = 8
_HINT_CHARACTERS_MAX: Final = 10_000
_FORMAT: Final = ds.ParquetFileFormat()
_NOWHERE: Final = fs.LocalFileSystem()


def time_bounds(filter: pc.Expression | None, schema: pa.Schema, column: str) -> tuple[int | None, int | None]:
    """`[start, end)` in nanoseconds, None where a side is open. Equal bounds: no time is possible at all."""
    if filter is None or column not in schema.names:
        return None, None
    kind: Any = schema.field(column).type
    if not pat.is_timestamp(kind):
        return None, None
    unit = _UNITS[kind.unit]
    least, greatest = _INT64_MIN, _INT64_MAX

    def possible(low: int, high: int) -> bool:
        """Whether the filter may hold for a time in `[low, high]`, in the column's own unit."""
        return _possible(filter, schema, [_between(column, kind, low, high)])[0]

    hints = _hints(filter, unit)
    # All questions at once: asking costs more than answering.
    before, behind = [(least, time - 1) for time in hints], [(time, greatest) for time in hints]
    asked = [(least, greatest), (least, least), (greatest, greatest), *before, *behind]
    left = _possible(filter, schema, [_missing(column), *(_between(column, kind, *one) for one in asked)])
    # Rows without a time are in files of any time.
    if left[0]:
        return None, None
    is_possible = dict(zip(asked, left[1:], strict=True))
    if not is_possible[least, greatest]:
        return 0, 0
    precision = max(1, _PRECISION_NS // unit)
    start = end = None
    if not is_possible[least, least]:
        hinted = next((high + 1 for low, high in reversed(before) if not is_possible[low, high]), None)
        start = (_first(possible, least, greatest, precision) if hinted is None else hinted) * unit
    if not is_possible[greatest, greatest]:
        hinted = next((low for low, high in behind if not is_possible[low, high]), None)
        end = (_last(possible, least, greatest, precision) + 1 if hinted is None else hinted) * unit
    return _clipped(start), _clipped(end)


def _hints(filter: pc.Expression, unit: int) -> list[int]:
    """Times that the filter's text mentions, and those right behind them: where bounds are likely to be.

    Whether one of them is a bound, Arrow is asked like everywhere here. A text that only looks like a time costs two
    questions, and halving asks fifty.
    """
    found = set()
    for text in sorted(set(_TIME.findall(str(filter)[:_HINT_CHARACTERS_MAX])))[:_HINTS_MAX]:
        with suppress(ValueError):
            time = int(np.datetime64(text.replace(" ", "T"), "ns").astype(np.int64)) // unit
            found |= {time, time + 1}
    return sorted(time for time in found if _INT64_MIN < time < _INT64_MAX)


def _first(possible: Any, low: int, high: int, precision: int) -> int:
    """A time at or before the first possible one, at most `precision` before it."""
    while high - low > precision:
        middle = (low + high) // 2
        if possible(low, middle):
            high = middle
        else:
            low = middle + 1
    # Bounds are mostly whole minutes or hours.
    edge = high // precision * precision
    return edge if low < edge and not possible(low, edge - 1) else low


def _last(possible: Any, low: int, high: int, precision: int) -> int:
    while high - low > precision:
        middle = (low + high) // 2
        if possible(middle + 1, high):
            low = middle + 1
        else:
            high = middle
    edge = high // precision * precision
    return edge - 1 if low < edge and not possible(edge, high) else high


def _possible(filter: pc.Expression, schema: pa.Schema, questions: list[Any]) -> list[bool]:
    """For each question, whether the filter may hold for a row of which its guarantee is true."""
    left = ds.FileSystemDataset(questions, schema, _FORMAT, _NOWHERE).get_fragments(filter=filter)
    found = {fragment.path for fragment in left}
    return [one.path in found for one in questions]


@lru_cache(maxsize=4096)
def _between(column: str, kind: pa.DataType, low: int, high: int) -> Any:
    """Halving asks about the same times again and again, and making the question costs more than its answer."""
    time = pc.field(column)
    return _question(f"{low}..{high}", (time >= pa.scalar(low, kind)) & (time <= pa.scalar(high, kind)))


@lru_cache(maxsize=64)
def _missing(column: str) -> Any:
    return _question("null", pc.field(column).is_null())


def _question(name: str, guarantee: pc.Expression) -> Any:
    """A fragment is chosen by its guarantee alone: the path tells it from others, and is never opened."""
    return _FORMAT.make_fragment(name, filesystem=_NOWHERE, partition_expression=guarantee)


def _clipped(bound: int | None) -> int | None:
    """Outside of what the catalog can say, a side is open."""
    return bound if bound is not None and _INT64_MIN <= bound <= _INT64_MAX else None
