"""Scans: matching rows only, whatever the files' schemas, in bounded memory, with vacuum kept away."""

from __future__ import annotations

import asyncio
import math
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.catalog.parquet_files import HOUR, NS, add, rows
from tests.catalog.samples import run, small_catalog

from penstock.catalog import Predicate, Vacuum
from penstock.catalog.scan.row_filter import row_filter
from penstock.errors import Corrupt, InvalidInput, NotFound, Unsupported
from penstock.objects import MemoryStore
from penstock.testing import ManualClock

SECOND = 1_000_000_000


async def read(catalog: Any, *arguments: Any, **query: Any) -> pa.Table:
    async with catalog.scan(*arguments, **query) as scan:
        return await scan.to_table()


def test_rows_come_from_the_time_range_and_match_all_predicates() -> None:
    async def session() -> None:
        catalog = await small_catalog(MemoryStore(), ManualClock())
        await add(catalog, "a.parquet", rows(100))
        await add(catalog, "b.parquet", rows(100, start=HOUR))
        found = await read(catalog, 10 * SECOND, 20 * SECOND)
        assert found["n"].to_pylist() == list(range(10, 20))
        found = await read(catalog, predicates=[Predicate("host", "=", "h3"), Predicate("n", "<", 20)])
        assert found["n"].to_pylist() == [3, 10, 17] * 2
        moment = datetime.fromtimestamp(98, UTC)
        found = await read(catalog, end=HOUR, predicates=[Predicate("time", ">", moment)], columns=["n"])
        assert found.to_pydict() == {"n": [99]}

    run(session())


def test_files_with_other_columns_are_one_table_and_what_is_missing_is_null() -> None:
    async def session() -> None:
        catalog = await small_catalog(MemoryStore(), ManualClock())
        await add(catalog, "a.parquet", rows(2))
        await add(catalog, "b.parquet", rows(2, start=HOUR, zone=pa.array(["x", "y"])).drop_columns(["host"]))
        found = await read(catalog)
        assert found.column_names == ["time", "n", "host", "zone"]
        assert found["zone"].to_pylist() == [None, None, "x", "y"]
        assert (await read(catalog, predicates=[Predicate("zone", "is_null")])).num_rows == 2
        assert (await read(catalog, predicates=[Predicate("nowhere", "=", 1)])).num_rows == 0
        assert (await read(catalog, columns=["nowhere", "n"])).to_pydict() == {"nowhere": [None] * 4, "n": [0, 1, 0, 1]}

    run(session())


def test_a_narrower_type_is_widened_and_a_foreign_one_is_refused_by_name() -> None:
    async def session() -> None:
        catalog = await small_catalog(MemoryStore(), ManualClock())
        await add(catalog, "a.parquet", rows(1, n=pa.array([2**40])))
        await add(catalog, "b.parquet", rows(1, start=HOUR, n=pa.array([7], pa.int32())))
        assert (await read(catalog))["n"].to_pylist() == [2**40, 7]
        await add(catalog, "c.parquet", rows(1, start=2 * HOUR, n=pa.array([["list"]])))
        with pytest.raises(InvalidInput, match=r"c\.parquet"):
            await read(catalog)

    run(session())


def test_an_empty_plan_is_an_empty_table_and_no_time_column_is_said() -> None:
    async def session() -> None:
        catalog = await small_catalog(MemoryStore(), ManualClock())
        assert (await read(catalog)).num_rows == 0
        assert (await read(catalog, 0, 5)).num_rows == 0
        await add(catalog, "a.parquet", rows(3))
        with pytest.raises(InvalidInput, match="time_column"):
            await read(catalog, 0, 5, time_column="when")
        with pytest.raises(InvalidInput, match="'n'"):
            await read(catalog, predicates=[Predicate("n", "=", "text")])

    run(session())


def test_a_scan_of_the_past_and_a_scan_that_goes_on_see_their_files_through_a_vacuum() -> None:
    async def session() -> None:
        clock = ManualClock()
        catalog = await small_catalog(MemoryStore(), clock, grace_seconds=0.0)
        await add(catalog, "a.parquet", rows(3))
        async with catalog.scan() as scan:
            position = scan.position
            await catalog.delete(["a.parquet"])
            clock.advance(10)
            assert (await Vacuum(catalog).run()).files == []
            assert (await scan.to_table()).num_rows == 3
            assert (await read(catalog)).num_rows == 0
            assert (await read(catalog, as_of=position)).num_rows == 3
        assert (await Vacuum(catalog).run()).files == ["a.parquet"]
        with pytest.raises(NotFound):
            await read(catalog, as_of=position)

    run(session())


def test_a_scan_renews_its_pin_and_leaves_none_behind() -> None:
    async def session() -> None:
        clock = ManualClock()
        catalog = await small_catalog(MemoryStore(), clock, grace_seconds=0.0)
        await add(catalog, "a.parquet", rows(3))
        async with catalog.scan() as scan:
            await catalog.delete(["a.parquet"])
            for _ in range(8):
                clock.advance(50)
                for _ in range(50):
                    await asyncio.sleep(0)
            await Vacuum(catalog).run()
            assert (await scan.to_table()).num_rows == 3
        assert not (await catalog.shard("").fresh()).pins

    run(session())


def test_a_file_that_is_gone_or_damaged_is_an_error_of_ours() -> None:
    async def session() -> None:
        catalog = await small_catalog(MemoryStore(), ManualClock())
        await add(catalog, "a.parquet", rows(3))
        await catalog.store.delete(catalog.layout.key("a.parquet"))
        with pytest.raises(NotFound):
            await read(catalog)
        await add(catalog, "b.parquet", rows(3, start=HOUR))
        size = (await catalog.store.head(catalog.layout.key("b.parquet"))).size
        await catalog.store.put(catalog.layout.key("b.parquet"), b"x" * size)
        with pytest.raises(Corrupt, match=r"b\.parquet"):
            await read(catalog, HOUR)

    run(session())


def test_only_the_columns_and_row_groups_that_are_needed_are_fetched() -> None:
    async def session() -> None:
        from tests.catalog.samples import CountingStore

        store = CountingStore()
        catalog = await small_catalog(store, ManualClock())
        noise = pa.array([f"{at:030}" * 20 for at in range(20_000)])
        await add(catalog, "a.parquet", rows(20_000, noise=noise), row_group_rows=1000)
        sizes: list[int] = []
        fetch = store.get_range

        async def counted(key: str, start: int, end: int, **more: Any) -> bytes:
            sizes.append(end - start)
            return await fetch(key, start, end, **more)

        store.get_range = counted  # type: ignore[method-assign]
        async with catalog.scan(0, 10 * SECOND, columns=["n"], pin=False) as scan:
            assert (await scan.to_table()).num_rows == 10
        assert sum(sizes) < 150_000

    run(session())


def test_reading_the_dataset_on_the_loop_itself_is_refused_instead_of_waiting_for_ever() -> None:
    async def session() -> None:
        catalog = await small_catalog(MemoryStore(), ManualClock())
        await add(catalog, "a.parquet", rows(200_000))
        async with catalog.scan() as scan:
            assert (await asyncio.to_thread(scan.dataset.count_rows)) == 200_000
            from penstock.catalog.scan.object_file import LoopDoor

            with pytest.raises(Unsupported):
                LoopDoor.here().run(asyncio.sleep(0))

    run(session())


NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70),
    st.integers(-5, 5),
    st.floats(allow_nan=True),
    st.sampled_from([0.5, -0.0, 2.0**53, math.inf, -math.inf, math.nan]),
)


def _holds(value: Any, op: str, other: Any) -> bool:
    """Comparison as this house means it: NaN above all numbers and equal to itself, numbers exactly."""
    if value is None:
        return False
    rank = lambda one: (1, 0) if isinstance(one, float) and math.isnan(one) else (0, one)  # noqa: E731
    left, right = rank(value), rank(other)
    return {
        "=": left == right,
        "!=": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }[op]


@given(
    value=NUMBERS,
    op=st.sampled_from(["=", "!=", "<", "<=", ">", ">="]),
    kind=st.sampled_from([pa.int64(), pa.int8(), pa.uint64(), pa.float64(), pa.float32(), NS, pa.timestamp("us")]),
)
def test_a_row_filter_compares_exactly_whatever_the_types(value: Any, op: str, kind: Any) -> None:
    if pa.types.is_floating(kind):
        column: Any = pa.array([None, 0.0, 1.5, -1.5, 2.0**53, 2.0**53 + 2, math.inf, -math.inf, math.nan], kind)
        rows = column.to_pylist()
    elif pa.types.is_timestamp(kind):
        column = pa.array([None, 0, 1, -1, 2**53, 2**53 + 1, -(2**53)], kind)
        unit = 1000 if kind.unit == "us" else 1
        rows = [None if one is None else one * unit for one in column.cast(pa.int64()).to_pylist()]
    else:
        low = 0 if kind == pa.uint64() else -5
        big = [] if kind == pa.int8() else [2**53, 2**53 + 1, 2**63 - 1]
        rows = [None, 0, 1, 2, 5, low, *big]
        column = pa.array(rows, kind)
    predicate = Predicate("x", op, value)
    if pa.types.is_timestamp(kind) and isinstance(value, float):
        with pytest.raises(InvalidInput):
            row_filter(pa.schema([("x", kind)]), [predicate])
        return
    table = pa.table({"x": column, "at": list(range(len(rows)))})
    found = table.filter(row_filter(table.schema, [predicate]))["at"].to_pylist()
    assert found == [at for at, one in enumerate(rows) if _holds(one, op, value)]
