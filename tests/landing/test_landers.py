"""Shards: every row lands once whichever queue it took, and is found again after shards were added or taken away."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.landing.world import START, config_at, metric_rows, produce, stage_of, table_rows

from penstock.buffer import ConsumerConfig, DeadLetterPolicy, ShardKey, ShardLayout, change_routing, read_routing
from penstock.errors import Fenced, InvalidInput, NotFound
from penstock.landing import Landers, LandingLimits, LocalTelemetryJob, ShardedSeries, ShardingConfig, TelemetryConfig
from penstock.objects import open_store
from penstock.relay import rows_by_shard
from penstock.timeseries import Matcher, MatchKind, TimeSeriesReader, TimeSeriesStore

TENANTS = [f"t{number}" for number in range(6)]
ANY = [Matcher("__name__", MatchKind.REGEX, ".+")]


async def laid_out(config: TelemetryConfig, shards: int, by: ShardKey = ShardKey.TENANT) -> None:
    store = await open_store(config.url)
    await change_routing(store, ShardLayout(shards, by))
    await store.close()


async def send(config: TelemetryConfig, first: int, count: int = 5) -> None:
    """Rows of every tenant, each to the shard that the routing gives it."""
    store = await open_store(config.url)
    layout = (await read_routing(store)).layout
    await store.close()
    rows = pa.concat_tables([metric_rows(first, count, tenant) for tenant in TENANTS])
    for shard, tables in rows_by_shard({"metrics": [rows]}, layout).items():
        await produce(config.of_shard(shard), [{"metrics": tables["metrics"][0]}])


async def landed(config: TelemetryConfig, shards: list[int] | None = None) -> Any:
    landers = await Landers.open(config, stage_of(config), shards)
    try:
        return await landers.run_available()
    finally:
        await landers.close()


async def series_of_all(config: TelemetryConfig) -> ShardedSeries:
    async def opened(shard: int) -> TimeSeriesReader:
        return await TimeSeriesStore.open_reader(config.url, config.of_shard(shard).series_path)

    return ShardedSeries(await open_store(config.url, read_only=True), opened)


async def asked_values(config: TelemetryConfig, tenant: str) -> Counter[float]:
    async with await series_of_all(config) as series:
        columns = await series.select_columns(ANY, tenant=tenant)
    return Counter(columns.values.tolist())


def expected(count: int) -> Counter[float]:
    return Counter(float(number) for number in range(count))


async def check(config: TelemetryConfig, count: int) -> None:
    rows = Counter((row["tenant"], row["value"]) for row in await table_rows(config, table="metrics"))
    assert rows == Counter((tenant, float(number)) for tenant in TENANTS for number in range(count))
    async with await series_of_all(config) as series:
        for tenant in TENANTS:
            columns = await series.select_columns(ANY, tenant=tenant)
            assert Counter(columns.values.tolist()) == expected(count), tenant


@pytest.mark.slow
def test_four_queues_land_in_one_catalog_and_in_series_of_their_own(tmp_path: Path) -> None:
    async def work() -> None:
        config = config_at(tmp_path)
        await laid_out(config, 4)
        await send(config, 0)
        summary = await landed(config)
        assert summary.rows == summary.samples == 5 * len(TENANTS)
        await check(config, 5)
        for shard in range(4):
            own = {tenant for tenant in TENANTS if ShardLayout(4).shard_of(tenant, "metrics") == shard}
            async with await TimeSeriesStore.open_reader(config.url, config.of_shard(shard).series_path) as reader:
                assert set(await reader.tenants()) == own
        assert (await landed(config)).batches == 0

    asyncio.run(work())


@pytest.mark.slow
def test_shards_that_are_added_or_taken_away_move_no_data_and_lose_none(tmp_path: Path) -> None:
    async def work() -> None:
        config = config_at(tmp_path)
        await send(config, 0)
        await landed(config)
        # What waits in a queue when the layout changes stays there, and is drained.
        for number, (shards, by) in enumerate(
            [(3, ShardKey.TENANT), (5, ShardKey.TENANT_AND_TABLE), (1, ShardKey.TENANT)], start=1
        ):
            await send(config, 10 * number - 5)
            await laid_out(config, shards, by)
            await send(config, 10 * number)
            await landed(config)
            await check(config, 10 * number + 5)
        async with await series_of_all(config) as series:
            # The same series has samples in several shards, and PromQL sees one.
            at = START // 1_000_000 + 34
            told = (await series.query("sum(count_over_time({__name__=~'.+'}[1h]))", at, tenant="t3")).to_json()
            assert told["data"]["result"][0]["value"][1] == "35"
            assert len(await series.series(ANY, tenant="t3")) == 5
            assert await series.label_names(ANY, tenant="t3") == ["__name__", "instance"]
            assert await series.label_values("instance", ANY, tenant="t3") == [f"i{n}" for n in range(5)]
            matrix = await series.query_range("m0", at - 40, at, 5, tenant="t3")
            assert matrix.columns.values.tolist() == [0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0]

    asyncio.run(work())


def test_two_jobs_share_the_shards_out(tmp_path: Path) -> None:
    async def work() -> None:
        config = config_at(tmp_path)
        await laid_out(config, 4)
        await send(config, 0)
        first, second = await asyncio.gather(landed(config, [0, 1]), landed(config, [3, 2]))
        assert first.rows + second.rows == 5 * len(TENANTS)
        await check(config, 5)

    asyncio.run(work())


def test_a_shard_that_does_not_exist_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no shard 4"):
        asyncio.run(landed(config_at(tmp_path), [0, 4]))


@pytest.mark.slow
def test_a_job_that_follows_takes_up_a_shard_that_is_added(tmp_path: Path) -> None:
    config = config_at(tmp_path, limits=LandingLimits(interval_seconds=0.05))
    with LocalTelemetryJob(config) as job:
        job._landers._watch._refresh_seconds = 0.0
        seen = threading.Event()
        opened = job._landers._take_up

        async def take_up() -> None:
            await opened()
            if len(job._landers.positions) == 3 and all(one >= 0 for one in list(job.positions.values())[1:]):
                seen.set()

        job._landers._take_up = take_up  # type: ignore[method-assign]
        job.start()
        asyncio.run(laid_out(config, 3))
        asyncio.run(send(config, 0))
        assert seen.wait(120)
        job.interrupt()
        job.await_end()
    asyncio.run(check(config, 5))


@pytest.mark.slow
def test_a_shard_that_fails_ends_the_job_and_the_others_keep_what_they_have(tmp_path: Path) -> None:
    config = config_at(tmp_path, consumer=ConsumerConfig(dead_letter=DeadLetterPolicy.HALT))
    asyncio.run(laid_out(config, 3))
    asyncio.run(send(config, 0))
    batch = next(path for path in (tmp_path / "shards/0001/ingest").rglob("*.batch"))
    batch.unlink()
    with LocalTelemetryJob(config) as job, pytest.raises(NotFound):
        job.run_available()
    broken = [tenant for tenant in TENANTS if ShardLayout(3).shard_of(tenant, "metrics") == 1]
    assert broken
    for tenant in set(TENANTS) - set(broken):
        assert asyncio.run(asked_values(config, tenant)) == expected(5)
    with LocalTelemetryJob(config) as job, pytest.raises(NotFound):
        job.follow()


def test_a_second_job_takes_single_shards_over(tmp_path: Path) -> None:
    config = config_at(tmp_path)
    asyncio.run(laid_out(config, 2))
    asyncio.run(send(config, 0))
    with LocalTelemetryJob(config) as first, LocalTelemetryJob(config, [1]) as second:
        second.run_available()
        with pytest.raises(Fenced):
            first.run_available()
        # The shard that nobody took over was worked on.
        assert first.positions[0] >= 0
    asyncio.run(check(config, 5))


def test_a_new_shard_knows_the_columns_of_tables_that_moved_to_it(tmp_path: Path) -> None:
    """A type that was refused before the tenant moved is refused behind it too."""

    async def work() -> None:
        config = config_at(tmp_path, series_path="")
        tenant = next(one for one in TENANTS if ShardLayout(2).shard_of(one, "orders") == 1)
        rows = pa.table({"tenant": [tenant] * 3, "amount": pa.array([1, 2, 3], pa.int64())})
        await produce(config, [{"orders": rows}])
        await landed(config)
        await laid_out(config, 2)
        wrong = pa.table({"tenant": [tenant] * 2, "amount": pa.array(["one", "two"])})
        await produce(config.of_shard(1), [{"orders": wrong}, {"orders": rows}])
        summary = await landed(config)
        assert (summary.quarantined, summary.rows) == (2, 3)
        found = await table_rows(config, tenant=tenant, table="orders")
        assert sorted(row["amount"] for row in found) == [1, 1, 2, 2, 3, 3]

    asyncio.run(work())


@pytest.mark.parametrize("given", [{"shards": 0}, {"shards": 2, "by": "moon"}, {"shards": 5000}])
def test_a_sharding_that_cannot_be_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        ShardingConfig(**given)


class WatchedStage:
    """A stage that notes whose batches it was given, in order."""

    def __init__(self, config: TelemetryConfig) -> None:
        self._inner = stage_of(config)
        self.sources: list[str] = []

    def land(self, tasks: Any) -> Any:
        self.sources += [task.source for task in tasks]
        return self._inner.land(tasks)

    def cancel(self) -> None:
        self._inner.cancel()


def test_a_large_shard_lets_a_small_one_land_after_one_round(tmp_path: Path) -> None:
    """Though only one round may be under way, and the large one was there first with many."""

    async def work() -> None:
        limits = LandingLimits(interval_seconds=0.0, batches_per_round=1, rounds_at_once=1)
        config = config_at(tmp_path, limits=limits)
        await laid_out(config, 2)
        large, small = config.of_shard(0), config.of_shard(1)
        await produce(large, [{"metrics": metric_rows(10 * number, 10, "large")} for number in range(8)])
        await produce(small, [{"metrics": metric_rows(0, 1, "small")}])
        stage = WatchedStage(config)
        landers = await Landers.open(config, stage)
        try:
            assert (await landers.run_available()).rows == 81
        finally:
            await landers.close()
        assert stage.sources.index(small.source) == 1
        assert stage.sources.count(large.source) == 8

    asyncio.run(work())
