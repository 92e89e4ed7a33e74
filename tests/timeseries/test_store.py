"""What the time-series store promises to callers: writing, reading, tenants, positions, refusals."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.timeseries.stores import HOUR, QUIET, SMALL, batch, everything, matching, one, opened, series, with_store

from penstock.errors import AtCapacity, Closed, Fenced, InvalidInput
from penstock.keyvalue import MemoryVolume
from penstock.timeseries import (
    EngineConfig,
    MetricMetadata,
    SampleBatch,
    SeriesTable,
    TimeSeriesConfig,
    TimeSeriesStore,
)
from penstock.timeseries.promql.source import STALE_BITS, STALE_NAN

UP = matching("__name__", "=", "up")


def test_what_was_written_and_flushed_is_selected() -> None:
    async def work(store: TimeSeriesStore) -> None:
        await store.write(batch((series(job="a"), [1, 2], [1.0, 2.0]), (series(job="b"), [1], [3.0])))
        assert await everything(store, UP) == {}
        await store.flush()
        assert await everything(store, UP) == {
            (("__name__", "up"), ("job", "a")): [(1, 1.0), (2, 2.0)],
            (("__name__", "up"), ("job", "b")): [(1, 3.0)],
        }

    with_store(work)


def test_a_view_shows_what_is_accepted_and_never_changes() -> None:
    async def work(store: TimeSeriesStore) -> None:
        await store.write(one(1.0, job="a"), durable=True)
        handle = await store.write(one(2.0, job="a"))
        with store.view() as view:
            assert view.epoch == handle.epoch
            await store.write(one(3.0, job="a"))
            await store.flush()
            assert await everything(view) == {(("__name__", "up"), ("job", "a")): [(0, 2.0)]}
            assert await view.series() == [series(job="a")]
            assert (await view.query("up", 0)).to_json()["data"]["result"][0]["value"][1] == "2"
        with pytest.raises(Closed):
            await view.select([UP])
        assert await everything(store) == {(("__name__", "up"), ("job", "a")): [(0, 3.0)]}

    with_store(work)


def test_of_samples_of_one_series_and_time_the_last_one_written_counts() -> None:
    async def work(store: TimeSeriesStore) -> None:
        await store.write(batch((series(), [5, 5, 3], [1.0, 2.0, 3.0])), durable=True)
        await store.write(one(9.0, 5))
        await store.write(one(8.0, 4))
        await store.flush()
        assert await everything(store) == {(("__name__", "up"),): [(3, 3.0), (4, 8.0), (5, 9.0)]}

    with_store(work)


def test_samples_may_be_late_by_hours_and_lie_before_1970() -> None:
    async def work(store: TimeSeriesStore) -> None:
        for hour in (5, 2, -3, 5):
            await store.write(one(float(hour), hour * HOUR + 1), durable=True)
        assert await everything(store) == {
            (("__name__", "up"),): [(-3 * HOUR + 1, -3.0), (2 * HOUR + 1, 2.0), (5 * HOUR + 1, 5.0)]
        }

    with_store(work)


def test_times_at_the_bounds_are_stored() -> None:
    async def work(store: TimeSeriesStore) -> None:
        await store.write(batch((series(), [-(1 << 53), 1 << 53], [1.0, 2.0])), durable=True)
        assert await everything(store) == {(("__name__", "up"),): [(-(1 << 53), 1.0), (1 << 53, 2.0)]}

    with_store(work)


def test_every_value_keeps_its_bits() -> None:
    values = np.array([STALE_NAN, math.nan, -0.0, math.inf, -math.inf, 5e-324, 1.5, 2.0**60])

    async def work(store: TimeSeriesStore) -> None:
        for _ in range(2):
            await store.write(batch((series(), range(len(values)), values.tolist())), durable=True)
            columns = await store.select_columns([UP])
            assert columns.values.view(np.uint64).tolist() == values.view(np.uint64).tolist()
            assert columns.values.view(np.uint64)[0] == STALE_BITS
            await store.compact()

    with_store(work)


def test_labels_whose_joined_text_is_the_same_are_different_series() -> None:
    async def work(store: TimeSeriesStore) -> None:
        await store.write(batch(({"__name__": "x", "a": "bc"}, [0], [1.0]), ({"__name__": "x", "ab": "c"}, [0], [2.0])))
        await store.flush()
        assert len(await everything(store)) == 2

    with_store(work)


def test_an_empty_label_is_no_label() -> None:
    async def work(store: TimeSeriesStore) -> None:
        await store.write(one(1.0, 0, job=""), durable=True)
        await store.write(one(2.0, 1), durable=True)
        assert await everything(store, matching("job", "=", "")) == {(("__name__", "up"),): [(0, 1.0), (1, 2.0)]}

    with_store(work)


@pytest.mark.parametrize(
    ("kind", "value", "found"),
    [
        ("=", "a", "a"),
        ("=", "", "-"),
        ("!=", "a", "-bc"),
        ("!=", "", "abc"),
        ("=~", "a|b", "ab"),
        ("=~", "a|", "-a"),
        ("=~", ".+", "abc"),
        ("!~", "a|b", "-c"),
        ("!~", "a|", "bc"),
        ("=~", "nothing", ""),
    ],
)
def test_matchers_select_as_promql_does(kind: str, value: str, found: str) -> None:
    async def work(store: TimeSeriesStore) -> None:
        await store.write(batch(*((series(job=job), [0], [0.0]) for job in ("", "a", "b", "c"))), durable=True)
        matcher = matching("job", kind, value)
        jobs = [dict(labels).get("job", "-") for labels in await everything(store, matcher)]
        assert "".join(jobs) == found
        with store.view() as view:
            assert len(await everything(view, matcher)) == len(found)

    with_store(work)


def test_a_pattern_over_very_many_values_selects_what_it_selects_of_each() -> None:
    names = ["", *(f"pod-{number}" for number in range(3_000))]

    async def work(store: TimeSeriesStore) -> None:
        for first in range(0, len(names), 1_600):
            some = names[first : first + 1_600]
            await store.write(batch(*((series(pod=pod), [0], [0.0]) for pod in some)), durable=True)
        for kind, pattern in (
            ("=~", "pod-7.?"),
            ("!~", "pod-[0-9]+"),
            ("=~", "pod-1.*|"),
            ("!~", "|pod-2.*"),
            ("!=", ""),
        ):
            matcher = matching("pod", kind, pattern)
            wanted = {pod for pod in names if matcher.predicate()(pod)}
            assert {dict(labels).get("pod", "") for labels in await everything(store, matcher)} == wanted

    with_store(work)


def test_tenants_see_nothing_of_each_other() -> None:
    async def work(store: TimeSeriesStore) -> None:
        await store.write(one(1.0), tenant="a")
        await store.write(one(2.0), tenant="b")
        await store.flush()
        assert await everything(store, tenant="a") == {(("__name__", "up"),): [(0, 1.0)]}
        assert await everything(store, tenant="b") == {(("__name__", "up"),): [(0, 2.0)]}
        assert await everything(store, tenant="c") == {}
        assert await store.tenants() == ["a", "b"]

    with_store(work)


def test_a_position_is_stored_with_its_samples_and_passed_once() -> None:
    async def run() -> None:
        volume = MemoryVolume()
        async with await opened(volume) as store:
            await store.write(store.changes("queue", 7).write(one(1.0)).write(one(2.0), tenant="b"), durable=True)
            assert store.position("queue") == 7
        async with await opened(volume) as store:
            await store.write(store.changes("queue", 7).write(one(9.0)), durable=True)
            await store.write(store.changes("queue", 8), durable=True)
            assert store.position("queue") == 8
            assert await everything(store) == {(("__name__", "up"),): [(0, 1.0)]}
            with store.view() as view:
                assert await everything(view) == {(("__name__", "up"),): [(0, 1.0)]}

    asyncio.run(run())


def test_a_change_that_its_source_has_passed_is_not_in_a_view() -> None:
    async def work(store: TimeSeriesStore) -> None:
        await store.write(store.changes("queue", 7).write(one(1.0)))
        await store.write(store.changes("queue", 7).write(one(9.0)))
        with store.view() as view:
            assert await everything(view) == {(("__name__", "up"),): [(0, 1.0)]}

    with_store(work)


@pytest.mark.parametrize(
    ("labels", "named"),
    [
        ({"job": "a"}, "has no __name__"),
        ({"__name__": "x", "": "a"}, "a label without a name"),
        ({"__name__": "x", "j": 1}, "'j' = 1"),
        ({"__name__": "x", "j": "\ud800"}, "'j'"),
        (["__name__"], "mapping"),
    ],
)
def test_series_that_cannot_be_stored_are_named(labels: object, named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        SampleBatch.of([labels], [0], [0], [0.0])


def test_a_label_that_is_given_twice_is_named() -> None:
    twice = pa.array([[("__name__", "x"), ("a", "1"), ("a", "2")]], pa.map_(pa.string(), pa.string()))
    with pytest.raises(InvalidInput, match=r"label 'a' twice"):
        SampleBatch.of(twice, [0], [0], [0.0])


@pytest.mark.parametrize("table", [None, 5])
def test_series_that_are_none_are_refused_with_the_reason(table: Any) -> None:
    with pytest.raises(InvalidInput, match="a sequence of mappings"):
        SampleBatch.of(table, [0], [0], [0.0])


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        (([0], [0, 1], [0.0]), "2 timestamps"),
        (([1], [0], [0.0]), "the table has 1 series"),
        (([-1], [0], [0.0]), "the table has 1 series"),
        (([0], [(1 << 53) + 1], [0.0]), r"up.*9007199254740993 ms"),
        (([0], [-(1 << 63)], [0.0]), r"up.*-9223372036854775808 ms"),
        (([0], [1.5], [0.0]), "whole numbers"),
        (([0], [0], ["a"]), "numbers"),
        (([0], [0], pa.array([None], pa.float64())), "nulls"),
        (([0], [0], np.ma.array([1.0], mask=[True])), "masked"),
        (([0], [0], (value for value in [1.0])), "numbers"),
        (([0], pa.array([1 << 62], pa.timestamp("s")), [0.0]), "cannot be converted to milliseconds"),
        (([0], [0], pa.array([[b"abc"]], pa.list_(pa.binary(3)))), "values of list"),
    ],
)
def test_samples_that_cannot_be_stored_are_refused_with_the_reason(columns: tuple[Any, Any, Any], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        SampleBatch.of([series()], *columns)


NAMED = pa.array([[("__name__", "up")]], pa.map_(pa.string(), pa.string()))
TIMES, VALUES = pa.array([[1]], pa.list_(pa.int64())), pa.array([[1.0]], pa.list_(pa.float64()))


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ([("labels", NAMED), ("timestamps_ms", pa.array([1])), ("values", VALUES)], "timestamps_ms of int64"),
        (
            [("labels", NAMED), ("timestamps_ms", TIMES), ("values", pa.array([[1.0]], pa.list_(pa.float64(), 1)))],
            "values of",
        ),
        (
            [("labels", NAMED), ("timestamps_ms", pa.array([[1]], pa.list_view(pa.int64()))), ("values", VALUES)],
            "of list_view",
        ),
        (
            [("labels", NAMED), ("labels", NAMED), ("timestamps_ms", TIMES), ("values", VALUES)],
            "two columns with the same name",
        ),
        ([("labels", pa.array(["up"])), ("timestamps_ms", TIMES), ("values", VALUES)], "labels column of string"),
        ([("x", NAMED)], "the columns x"),
    ],
)
def test_a_table_that_holds_no_samples_is_refused_with_the_reason(columns: list[tuple[str, Any]], named: str) -> None:
    table = pa.Table.from_arrays([column for _, column in columns], names=[name for name, _ in columns])
    with pytest.raises(InvalidInput, match=named):
        SampleBatch.from_table(table)


@pytest.mark.parametrize(
    ("names", "column", "named"),
    [
        (["__name__", "__name__"], ["a"], "two columns with the same name"),
        (["__name__", "a"], [["x"]], "labels of list"),
        (["__name__", "a"], [{"x": 1}], "labels of struct"),
    ],
)
def test_a_table_of_labels_that_are_no_texts_is_refused_with_the_reason(
    names: list[str], column: list[Any], named: str
) -> None:
    with pytest.raises(InvalidInput, match=named):
        SampleBatch.of(pa.Table.from_arrays([pa.array(["up"]), pa.array(column)], names=names), [0], [0], [0.0])


@pytest.mark.parametrize("times", [(0.5, 1), (0, float("nan")), (None, 1), (0, "1")])
def test_a_selection_between_times_that_are_no_whole_numbers_is_refused(times: tuple[Any, Any]) -> None:
    async def work(store: TimeSeriesStore) -> None:
        with pytest.raises(InvalidInput, match="whole number"):
            await store.select([UP], *times)

    with_store(work)


@pytest.mark.parametrize(
    ("labels", "named"),
    [
        ({f"l{number}": "x" for number in range(64)}, "65 labels"),
        ({"l" * 1025: "x"}, "name takes 1025 bytes"),
        ({"l": "x" * 4097}, "value takes 4097 bytes"),
    ],
)
def test_of_a_write_with_a_series_over_a_bound_nothing_is_taken(labels: dict[str, str], named: str) -> None:
    async def work(store: TimeSeriesStore) -> None:
        with pytest.raises(InvalidInput, match=named):
            await store.write(batch((series(), [0], [1.0]), (series(**labels), [0], [1.0])), durable=True)
        await store.flush()
        assert await everything(store) == {}

    with_store(work)


def test_a_day_that_is_full_of_series_refuses_whole_changes_and_goes_on_with_known_ones() -> None:
    async def work(store: TimeSeriesStore) -> None:
        bomb = batch(*((series(id=str(number)), [0], [0.0]) for number in range(5)))
        handle = await store.write(store.changes("queue", 1).write(bomb).write(one(1.0), tenant="other"))
        await store.write(one(1.0, HOUR))
        with pytest.raises(AtCapacity, match="would have 6 series"):
            await handle.durable()
        await store.flush()
        assert await everything(store) == {(("__name__", "up"),): [(HOUR, 1.0)]}
        assert await everything(store, tenant="other") == {}
        assert store.position("queue") is None
        await store.write(store.changes("queue", 1).write(one(3.0)), durable=True)
        assert store.position("queue") == 1
        # Full: one flush has a change of known series and one of a new series.
        await store.write(batch(*((series(id=str(number)), [0], [0.0]) for number in range(3))), durable=True)
        known, fresh = await store.write(one(4.0, 2)), await store.write(one(5.0, 5 * HOUR, id="new"))
        await known.durable()
        with pytest.raises(AtCapacity, match="would have 5 series"):
            await fresh.durable()
        assert len(await everything(store)) == 4
        assert len((await everything(store))[(("__name__", "up"),)]) == 3

    with_store(work, config=TimeSeriesConfig(bucket_series_max=4, coordinator=QUIET))


def test_a_write_that_finds_no_room_is_given_back() -> None:
    config = TimeSeriesConfig(
        coordinator=QUIET.__class__(flush_interval_seconds=900, max_pending_writes=1, max_buffered_writes=1)
    )

    async def work(store: TimeSeriesStore) -> None:
        await store.write(one(1.0))
        again = one(2.0)
        with pytest.raises(AtCapacity) as refused:
            store.try_write(again)
        assert refused.value.rejected is again

    with_store(work, config=config)


def test_metadata_is_told_by_the_newest_write() -> None:
    async def work(store: TimeSeriesStore) -> None:
        for about in (MetricMetadata("gauge", "old"), MetricMetadata("counter", "new", "seconds")):
            await store.write(SampleBatch.of([], [], [], [], {"up": about}), durable=True)
        await store.write(SampleBatch.of([], [], [], [], {"down": MetricMetadata()}))
        assert await store.metadata() == {"up": MetricMetadata("counter", "new", "seconds")}
        assert await store.metadata("down") == {}
        with store.view() as view:
            assert set(await view.metadata()) == {"up", "down"}

    with_store(work)


def test_names_and_values_of_labels_are_listed_by_range_and_matcher() -> None:
    async def work(store: TimeSeriesStore) -> None:
        await store.write(batch((series(job="a"), [0], [0.0]), (series("down", zone="z"), [HOUR], [0.0])), durable=True)
        assert await store.label_names() == ["__name__", "job", "zone"]
        assert await store.label_names([UP]) == ["__name__", "job"]
        assert await store.label_names(start_ms=HOUR) == ["__name__", "zone"]
        assert await store.label_values("__name__") == ["down", "up"]
        assert await store.label_values("__name__", [matching("job", "=", "a")]) == ["up"]
        assert await store.series([], end_ms=HOUR - 1) == [series(job="a")]

    with_store(work)


def test_a_selection_includes_both_ends_of_its_range() -> None:
    async def work(store: TimeSeriesStore) -> None:
        await store.write(batch((series(), range(10), range(10))), durable=True)
        assert await everything(store, start_ms=3, end_ms=5) == {(("__name__", "up"),): [(3, 3.0), (4, 4.0), (5, 5.0)]}
        assert await everything(store, start_ms=20, end_ms=30) == {}

    with_store(work)


def test_labels_come_as_mappings_as_maps_and_as_columns() -> None:
    rows = [series(job="a"), series(zone="z")]
    maps = pa.array([list(row.items()) for row in rows], pa.map_(pa.string(), pa.string()))
    columns = pa.table({"job": ["a", None], "__name__": ["up", "up"], "zone": ["", "z"]})
    tables = [SeriesTable.of(given) for given in (rows, maps, columns, pa.chunked_array([maps[:1], maps[1:]]))]
    assert len({tuple(table.fingerprints.texts()) for table in tables}) == 1
    assert [dict(tables[2].labels(row)) for row in range(2)] == rows


def test_a_table_of_samples_and_what_select_returns_are_batches() -> None:
    async def work(store: TimeSeriesStore) -> None:
        maps = pa.array([list(series(job=job).items()) for job in "aba"], pa.map_(pa.string(), pa.string()))
        await store.write(
            SampleBatch.from_table(pa.table({"labels": maps, "timestamp_ms": [1, 2, 3], "value": [1.0, 2.0, 3.0]}))
        )
        await store.flush()
        await store.write(SampleBatch.from_table(await store.select([UP])), tenant="copy", durable=True)
        assert await everything(store, tenant="copy") == await everything(store)
        assert len(await everything(store)) == 2

    with_store(work)


def test_a_batch_does_not_change_with_the_arrays_it_was_made_of() -> None:
    values = np.array([1.0])
    made = SampleBatch.of([series()], np.zeros(1, np.uint32), np.zeros(1, np.int64), values)
    values[0] = 9.0
    assert made.values.tolist() == [1.0]


def test_more_series_or_samples_than_a_query_may_read_are_refused() -> None:
    config = TimeSeriesConfig(coordinator=QUIET, engine=EngineConfig(series_max=3, samples_max=5))

    async def work(store: TimeSeriesStore) -> None:
        await store.write(batch(*((series(job=str(job)), [0, 1], [0.0, 0.0]) for job in range(4))), durable=True)
        with pytest.raises(AtCapacity, match="too many series"):
            await store.select([UP])
        with pytest.raises(AtCapacity, match="too many samples"):
            await store.select([matching("job", "!=", "0")])
        assert len(await everything(store, matching("job", "=", "0"))) == 1

    with_store(work, config=config)


def test_a_second_writer_fences_the_first() -> None:
    async def run() -> None:
        volume = MemoryVolume()
        first = await opened(volume)
        await first.write(one(1.0), durable=True)
        second = await opened(volume)
        await second.write(one(2.0, 1), durable=True)
        with pytest.raises(Fenced):
            await first.write(one(3.0, 2), durable=True)
        assert await everything(second) == {(("__name__", "up"),): [(0, 1.0), (1, 2.0)]}
        await second.close()
        with pytest.raises(Fenced):
            await first.close()

    asyncio.run(run())


def test_subscribers_see_every_flush_with_its_epoch() -> None:
    async def work(store: TimeSeriesStore) -> None:
        snapshots = store.subscribe()
        assert (await anext(snapshots)).epoch == 0
        handle = await store.write(one(1.0), durable=True)
        assert (await anext(snapshots)).epoch == handle.epoch

    with_store(work)


def test_flushing_an_epoch_covers_every_write_before_it() -> None:
    async def work(store: TimeSeriesStore) -> None:
        await store.write(one(1.0))
        second = await store.write(one(2.0, 1))
        assert await store.flush(second.epoch) == second.epoch
        assert await everything(store) == {(("__name__", "up"),): [(0, 1.0), (1, 2.0)]}
        assert await store.flush(second.epoch) == second.epoch

    with_store(work)


def test_a_query_is_evaluated_over_the_store() -> None:
    async def work(store: TimeSeriesStore) -> None:
        minutes = range(0, 3 * HOUR, 60_000)
        await store.write(batch(*((series("c", job=job), minutes, [time / 1000 for time in minutes]) for job in "ab")))
        await store.flush()
        result = await store.query_range("sum(rate(c[5m]))", HOUR, 2 * HOUR, 60_000)
        assert np.allclose(result.columns.values, 2.0)
        plan = await store.explain("sum(rate(c[5m]))", HOUR, 2 * HOUR, 60_000)
        assert (plan.selections[0].hours, plan.selections[0].series) == (3, 2)
        with pytest.raises(InvalidInput):
            await store.query_range("c", HOUR, 0, 1)

    with_store(work)


def test_a_closed_store_says_so() -> None:
    async def run() -> None:
        store = await opened(MemoryVolume(), SMALL)
        await store.close()
        with pytest.raises(Closed):
            await store.write(one(1.0))
        with pytest.raises(Closed):
            await store.select([UP])

    asyncio.run(run())
