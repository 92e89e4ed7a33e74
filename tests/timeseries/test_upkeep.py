"""Folding, retention, followers, and what hostile callers try."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from tests.timeseries.stores import HOUR, QUIET, SMALL, batch, everything, matching, one, opened, series, with_store

from penstock.coordinator import CoordinatorConfig
from penstock.errors import AtCapacity, InvalidInput, Unavailable
from penstock.keyvalue import MemoryFollower, MemoryKeyValue, MemoryVolume, WriteBatch
from penstock.testing import ManualClock, Simulation, simulate
from penstock.timeseries import (
    EngineConfig,
    SampleBatch,
    TimeSeriesConfig,
    TimeSeriesReader,
    TimeSeriesStore,
)
from penstock.timeseries.format.sample_block import SampleBlock
from penstock.timeseries.format.state import SAMPLES, TenantState
from penstock.timeseries.read.selection import Moment
from penstock.timeseries.write.draft import VALUE_BYTES, fitting


async def state_of(store: TimeSeriesStore, tenant: str = "default") -> TenantState:
    async def read(moment: Moment) -> TenantState:
        assert moment.state is not None
        return moment.state

    return await store.read(tenant, read)


def test_a_closed_hour_is_folded_to_one_sorted_run_and_an_open_one_is_left() -> None:
    clock = ManualClock(2 * HOUR)

    async def work(store: TimeSeriesStore) -> None:
        for number in range(3):
            for hour in (0, 2):
                await store.write(batch((series(), [hour * HOUR + 5 - number], [float(number)])), durable=True)
        before = await everything(store)
        await store.tend()
        state = await state_of(store)
        assert (state.fragments(SAMPLES, 0), state.fragments(SAMPLES, 2)) == (1, 3)
        assert await everything(store) == before
        await store.write(one(9.0, 7), durable=True)
        await store.tend()
        assert (await state_of(store)).fragments(SAMPLES, 0) == 1
        await store.compact()
        assert (await state_of(store)).fragments(SAMPLES, 2) == 1
        assert (await store.verify()).ok

    with_store(work, clock=clock)


def test_upkeep_is_done_in_the_pauses_between_writes() -> None:
    async def main(simulation: Simulation) -> None:
        config = TimeSeriesConfig(coordinator=QUIET, upkeep_pause_seconds=0.25)
        doors = {"clock": simulation.clock, "entropy": simulation.entropy}
        async with await opened(MemoryVolume(), config, **doors) as store:
            for number in range(3):
                await store.write(one(float(number), number), durable=True)
                assert (await state_of(store)).fragments(SAMPLES, 0) == number + 1
            await simulation.clock.sleep(60)
            assert (await state_of(store)).fragments(SAMPLES, 0) == 1

    simulate(main, 1)


def test_a_store_that_was_away_while_nobody_wrote_takes_the_next_write() -> None:
    """An outage during upkeep alone must not leave the coordinator failed when it is over."""

    class Remote(MemoryKeyValue):
        away = False

        async def write(self, batch: WriteBatch) -> Any:
            if self.away:
                raise Unavailable("the store is away")
            return await super().write(batch)

    async def main(simulation: Simulation) -> None:
        remote = Remote(MemoryVolume())
        config = TimeSeriesConfig(coordinator=QUIET, upkeep_pause_seconds=0.25)
        doors: dict[str, Any] = {"clock": simulation.clock, "entropy": simulation.entropy}
        async with await TimeSeriesStore.over(remote, config, **doors) as store:
            for number in range(3):
                await store.write(one(float(number), number), durable=True)
            remote.away = True
            await simulation.clock.sleep(600)
            remote.away = False
            await simulation.clock.sleep(60)
            await store.write(one(9.0, 9), durable=True)
            await simulation.clock.sleep(60)
            assert (await state_of(store)).fragments(SAMPLES, 0) == 1

    simulate(main, 1)


def test_retention_removes_whole_hours_of_all_tenants_in_one_write_and_they_stay_away() -> None:
    clock = ManualClock(10 * HOUR)
    config = TimeSeriesConfig(coordinator=QUIET, upkeep_pause_seconds=float("inf"), retention_seconds=3 * 3600)

    async def work(store: TimeSeriesStore) -> None:
        for tenant in ("a", "b"):
            await store.write(one(1.0, 6 * HOUR + 1), tenant=tenant)
            await store.write(one(1.0, 7 * HOUR + 1), tenant=tenant)
        await store.flush()
        assert await everything(store, tenant="a") == {(("__name__", "up"),): [(7 * HOUR + 1, 1.0)]}
        clock.advance(3600)
        snapshots = store.subscribe()
        await anext(snapshots)
        await store.tend()
        assert await everything(store, tenant="a") == await everything(store, tenant="b") == {}
        await store.write(one(1.0, 7 * HOUR + 2), tenant="a", durable=True)
        assert await everything(store, tenant="a") == {}
        assert (await store.verify(tenant="a")).ok

    with_store(work, config=config, clock=clock)


def test_series_of_removed_hours_are_not_listed_while_their_day_is_kept_and_go_with_it() -> None:
    async def run() -> None:
        volume = MemoryVolume()
        async with await opened(volume) as store:
            rows = [(series(job=str(hour)), [hour * HOUR], [1.0]) for hour in (0, 1, 23, 24)]
            await store.write(batch(*rows, (series(job="all"), [0, HOUR, 24 * HOUR], [0.0] * 3)), durable=True)
            await store.expire(HOUR)
            assert await store.label_values("job") == ["1", "23", "24", "all"]
            assert await store.label_values("job", end_ms=2 * HOUR) == ["1", "all"]
            assert len(await store.series()) == 4
            assert (await store.verify()).ok
            await store.write(one(2.0, HOUR + 1, job="0"), durable=True)
            assert (await store.verify()).ok
        async with await opened(volume) as store:
            assert await store.label_values("job", end_ms=2 * HOUR) == ["0", "1", "all"]
            await store.expire(23 * HOUR)
            assert await store.label_values("job") == ["23", "24", "all"]
            kinds = (await store.stats()).kinds
            await store.expire(24 * HOUR)
            assert await store.label_values("job") == ["24", "all"]
            assert (await store.stats()).kinds["labels"] < kinds["labels"]
            assert (await store.verify()).ok

    asyncio.run(run())


@pytest.mark.slow
def test_hundreds_of_tenants_of_one_flush_keep_their_own_series() -> None:
    async def run() -> None:
        volume = MemoryVolume()
        names = [f"tenant-{number}" for number in range(300)]
        async with await opened(volume) as store:
            change = store.changes("queue", 1)
            for number, name in enumerate(names):
                change = change.write(one(float(number), job=name), tenant=name)
            await store.write(change, durable=True)
        async with await opened(volume) as store:
            assert await store.tenants() == sorted(names)
            for number in (0, 7, 299):
                expected = {(("__name__", "up"), ("job", names[number])): [(0, float(number))]}
                assert await everything(store, tenant=names[number]) == expected

    asyncio.run(run())


def test_a_follower_sees_what_is_durable_and_hours_that_go_while_it_reads() -> None:
    async def run() -> None:
        volume = MemoryVolume()
        async with await opened(volume) as store:
            reader = TimeSeriesReader(MemoryFollower(volume), TimeSeriesConfig(staleness_seconds=0))
            assert await everything(reader) == {}
            await store.write(one(1.0, 0), durable=True)
            await store.write(one(2.0, HOUR), durable=True)
            assert len((await everything(reader))[(("__name__", "up"),)]) == 2
            await store.expire(HOUR)
            assert await everything(reader) == {(("__name__", "up"),): [(HOUR, 2.0)]}
            assert await reader.tenants() == ["default"]
            assert (await reader.query("up", HOUR)).to_json()["data"]["result"][0]["value"][1] == "2"

    asyncio.run(run())


@pytest.mark.slow
def test_hundreds_of_tenants_in_one_flush_are_one_write_and_stay_apart() -> None:
    async def work(store: TimeSeriesStore) -> None:
        changes = store.changes("queue", 1)
        for tenant in range(300):
            changes.write(one(float(tenant)), tenant=f"t{tenant}")
        await store.write(changes, durable=True)
        assert len(await store.tenants()) == 300
        for tenant in (0, 150, 299):
            assert await everything(store, tenant=f"t{tenant}") == {(("__name__", "up"),): [(0, float(tenant))]}

    with_store(work)


def test_many_equal_values_and_times_take_next_to_nothing() -> None:
    times = np.tile(np.arange(3600), 500)
    block = SampleBlock.of(0, np.repeat(np.arange(500, dtype=np.uint32), 3600), times, np.ones(len(times)))
    assert sum(piece.stored_bytes for piece in fitting([block])) < len(times) / 100


def test_blocks_of_random_values_are_cut_until_they_fit() -> None:
    values = np.random.default_rng(1).normal(size=200_000)
    for ids in (np.zeros(200_000, np.uint32), np.repeat(np.arange(1000, dtype=np.uint32), 200)):
        pieces = fitting([SampleBlock.of(0, ids, np.arange(200_000), values)])
        assert all(piece.stored_bytes <= VALUE_BYTES for piece in pieces)
        assert np.array_equal(np.concatenate([piece.values for piece in pieces]), values)


def test_a_batch_that_is_larger_than_the_buffer_is_taken_in_pieces() -> None:
    bounds = CoordinatorConfig(flush_interval_seconds=900, max_pending_bytes=20_000, max_buffered_bytes=40_000)

    async def work(store: TimeSeriesStore) -> None:
        large = SampleBatch.of([series()], np.zeros(10_000, np.uint32), np.arange(10_000), np.arange(10_000))
        await store.write(large, durable=True)
        columns = await store.select_columns([])
        assert np.array_equal(columns.values, np.arange(10_000))

    with_store(work, config=TimeSeriesConfig(coordinator=bounds))


def test_an_expression_that_explodes_elsewhere_is_answered_at_once() -> None:
    async def work(store: TimeSeriesStore) -> None:
        await store.write(one(1.0, job="a" * 4000), durable=True)
        # With backtracking either would take longer than anybody waits.
        assert await everything(store, matching("job", "=~", "(a+)+$b")) == {}
        assert await everything(store, matching("job", "!~", "(a|aa)+b")) != {}
        with pytest.raises(InvalidInput):
            await everything(store, matching("job", "=~", "("))
        with pytest.raises(InvalidInput):
            await everything(store, matching("job", "=~", "(a{1000}){1000}"))

    with_store(work)


@pytest.mark.slow
def test_a_selector_of_very_many_series_is_refused_before_their_samples_are_read() -> None:
    config = TimeSeriesConfig(coordinator=QUIET, engine=EngineConfig(series_max=1000))

    async def work(store: TimeSeriesStore) -> None:
        labels = [series(pod=str(number)) for number in range(20_000)]
        await store.write(SampleBatch.of(labels, np.arange(20_000), np.zeros(20_000, np.int64), np.zeros(20_000)))
        await store.flush()
        with pytest.raises(AtCapacity, match="too many series"):
            await store.query("sum(up)", 0)
        assert len(await everything(store, matching("pod", "=~", "1|2|3"))) == 3
        stats = await store.stats()
        assert (stats.series, stats.label_values["pod"], stats.metrics["up"]) == (20_000, 20_000, 20_000)

    with_store(work, config=config)


def test_what_a_query_found_is_found_anew_when_an_hour_gets_new_series_is_folded_or_goes() -> None:
    """Series that matchers select are kept between queries; a store that was just opened knows the truth."""
    volume = MemoryVolume()
    asked = [matching("job", "=~", "a|b"), matching("zone", "!=", "x"), matching("__name__", "=", "up")]

    async def agree(store: TimeSeriesStore) -> int:
        warm = [await everything(store, matcher) for matcher in asked]
        reader = TimeSeriesReader(MemoryFollower(volume), TimeSeriesConfig(staleness_seconds=0))
        assert warm == [await everything(reader, matcher) for matcher in asked]
        assert warm == [await everything(store, matcher) for matcher in asked]

        return len(warm[2])

    async def run() -> None:
        async with await opened(volume) as store:
            await store.write(batch((series(job="a"), [0, HOUR, 2 * HOUR], [1.0, 2.0, 3.0])), durable=True)
            assert await agree(store) == 1
            await store.write(batch((series(job="b", zone="x"), [HOUR, HOUR + 1], [4.0, 5.0])), durable=True)
            assert await agree(store) == 2
            await store.write(batch((series(job="b", zone="x"), [HOUR], [6.0])), durable=True)
            assert await agree(store) == 2
            await store.compact()
            assert await agree(store) == 2
            await store.expire(2 * HOUR)
            assert await agree(store) == 1

    asyncio.run(run())


def test_a_query_that_is_cancelled_leaves_the_store_as_it_was() -> None:
    async def work(store: TimeSeriesStore) -> None:
        times = np.arange(0, 6 * HOUR, 60_000)
        await store.write(batch(*((series(job=str(job)), times, times / 7) for job in range(50))), durable=True)  # type: ignore[arg-type]
        query = asyncio.create_task(store.query_range("rate(up[1h])", 0, 6 * HOUR, 60_000))
        # It has begun, and waits for the store or for a thread.
        await asyncio.sleep(0)
        query.cancel()
        with pytest.raises(asyncio.CancelledError):
            await query
        assert (await store.query("count(up)", 6 * HOUR - 1)).to_json()["data"]["result"][0]["value"][1] == "50"

    with_store(work)


def test_stats_tell_what_grows() -> None:
    async def work(store: TimeSeriesStore) -> None:
        await store.write(batch(*((series(pod=str(pod), zone="z"), [0], [0.0]) for pod in range(5))))
        await store.write(batch((series("busy"), range(10), range(10))))
        await store.flush()
        stats = await store.stats(top=2)
        assert (stats.hours, stats.series, stats.samples) == (1, 6, 15)
        assert stats.label_values == {"pod": 5, "__name__": 2}
        assert stats.metrics == {"up": 5, "busy": 1}
        assert next(iter(stats.label_pairs.items())) == ("zone=z", 5)
        assert next(iter(stats.top_series.items())) == ("busy", 10)
        assert (await store.stats(tenant="nobody")).series == 0

    with_store(work, config=SMALL)
