"""The times that a filter leaves possible: no row for which it holds is left out, and plain bounds are found exactly."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.lake.time_bounds import time_bounds

HOUR = 3_600_000_000_000
TIMES = pa.timestamp("ns", tz="UTC")


def schema_of(kind: pa.DataType) -> pa.Schema:
    return pa.schema([("time", kind), ("host", pa.string())])


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_plain_bounds_are_exact(unit: Any) -> None:
    kind = pa.timestamp(unit, tz="UTC")
    size = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}[unit]
    low, high = 490_000 * HOUR // size, (490_001 * HOUR + 7_000_000_000) // size
    time, first, last = pc.field("time"), pa.scalar(low, kind), pa.scalar(high, kind)
    for wanted, start, end in (
        ((time >= first) & (time < last), low, high),
        ((time > first) & (time <= last), low + 1, high + 1),
        (time == first, low, low + 1),
        ((time < first) | (time > last), None, None),
        (time >= last, high, None),
        (time < first, None, low),
    ):
        expected = tuple(None if bound is None else bound * size for bound in (start, end))
        assert time_bounds(wanted, schema_of(kind), "time") == expected, str(wanted)


def test_no_row_for_which_a_filter_holds_is_left_out() -> None:
    chance = random.Random(5)
    schema = schema_of(TIMES)
    times = sorted(chance.randrange(-3 * HOUR, 10**6 * HOUR) for _ in range(200))
    table = pa.table({"time": pa.array(times, TIMES), "host": [chance.choice("ab") for _ in times]}, schema)
    column = pc.field("time")
    # A text that looks like a time says nothing about times.
    other = pc.field("host") != pa.scalar("2000-01-01 00:00:00")

    def condition(depth: int) -> pc.Expression:
        if depth and chance.random() < 0.7:
            one, two = condition(depth - 1), condition(depth - 1)
            return one & two if chance.random() < 0.6 else one | two
        value = pa.scalar(chance.choice(times) + chance.randrange(-1, 2), TIMES)
        return chance.choice(
            [
                column >= value,
                column > value,
                column < value,
                column <= value,
                column == value,
                ~(column < value),
                other,
            ]
        )

    for _ in range(300):
        wanted = condition(3)
        start, end = time_bounds(wanted, schema, "time")
        kept = table.filter(wanted)["time"].cast(pa.int64()).to_pylist()
        assert all((start is None or start <= one) and (end is None or one < end) for one in kept), str(wanted)
