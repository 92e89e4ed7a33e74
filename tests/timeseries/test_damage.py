"""Damage: a damaged block is named, concerns its own tenant and hour or day alone, and stops nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from slatedb import uniffi
from tests.timeseries.stores import HOUR, SMALL, batch, everything, matching, one, opened, series

from penstock.blocks import STORE
from penstock.errors import Corrupt, InvalidInput, Unsupported
from penstock.keyvalue import MemoryFollower, MemoryKeyValue, MemoryVolume
from penstock.timeseries import TimeSeriesConfig, TimeSeriesReader, TimeSeriesStore
from penstock.timeseries.format.keys import TENANT_DATA, SeriesFamily
from penstock.timeseries.format.store_format import FORMAT
from penstock.timeseries.upkeep.repair import repair_series

DAY = 24 * HOUR
DAYS = 3
# Every family of a store that was written in the format of today, but for metrics.
FAMILIES = [SeriesFamily.LABELS, SeriesFamily.INDEX, SeriesFamily.SAMPLES, SeriesFamily.PRESENCE]


async def filled(volume: MemoryVolume) -> None:
    """Two tenants with an hour of a few days each."""
    async with await opened(volume) as store:
        for tenant in ("a", "b"):
            rows = [(series(job=str(job)), [day * DAY for day in range(DAYS)], [1.0] * DAYS) for job in range(3)]
            await store.write(batch(*rows), tenant=tenant)


def damage(volume: MemoryVolume, chosen: Callable[[bytes], bool]) -> int:
    """Flip a bit in the first value whose key is chosen; returns how many were."""
    keys = [(key, value) for key, value in volume.table("keyvalue").entries(b"", None, reverse=False) if chosen(key)]
    for key, value in keys[:1]:
        volume.land("keyvalue", ((key, value[:-1] + bytes([value[-1] ^ 1])),))
    return len(keys)


def fragment_of(family: SeriesFamily) -> Callable[[bytes], bool]:
    """Keys of the first tenant's fragments of a family."""
    prefix = TENANT_DATA + (0).to_bytes(4, "big") + b"\x02" + bytes([family])
    return lambda key: key.startswith(prefix)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_damaged_block_is_named_and_other_days_and_tenants_go_on(family: SeriesFamily) -> None:
    async def run() -> None:
        volume = MemoryVolume()
        await filled(volume)
        assert damage(volume, fragment_of(family))
        async with await opened(volume) as store:
            with pytest.raises(Corrupt, match=r"tenant a|of a"):
                await everything(store, matching("__name__", "=", "up"), tenant="a")
            assert len(await everything(store, tenant="a", start_ms=DAY)) == 3
            assert len(await everything(store, tenant="b")) == 3
            report = await store.verify(tenant="a")
            assert len(report.problems) == 1
            assert family.name.lower() in report.problems[0]
            assert (await store.verify(tenant="b")).ok
            # Other days and tenants take writes; the damaged one takes them if it can do without the block.
            await store.write(store.changes("queue", 1).write(one(2.0, DAY + 1), tenant="a"), durable=True)
            await store.write(one(2.0, 1), tenant="b", durable=True)
            if family is SeriesFamily.LABELS:
                with pytest.raises(Corrupt, match="hour 0 of tenant a is damaged"):
                    await store.write(store.changes("queue", 2).write(one(2.0, 1), tenant="a"), durable=True)
                with pytest.raises(Corrupt, match="hour 0 of tenant a is damaged"):
                    await store.write(one(2.0, 2), tenant="a")
                with pytest.raises(Corrupt, match="write that one first"):
                    await store.write(store.changes("queue", 3).write(one(2.0, DAY), tenant="a"))
                assert store.position("queue") == 1
            else:
                await store.write(one(2.0, 1), tenant="a", durable=True)
            await store.expire(DAY, tenant="a")
            assert len(await everything(store, tenant="a")) >= 3
            assert (await store.verify(tenant="a")).ok
            await store.write(store.changes("queue", 2).write(one(2.0, DAY + 2), tenant="a"), durable=True)
            assert store.position("queue") == 2

    asyncio.run(run())


def test_hours_that_begin_after_a_days_labels_were_damaged_take_writes_with_ids_of_their_own() -> None:
    async def run() -> None:
        volume = MemoryVolume()
        await filled(volume)
        assert damage(volume, fragment_of(SeriesFamily.LABELS))
        async with await opened(volume) as store:
            for hour in (1, 2):
                rows = [(series(job=str(job)), [hour * HOUR], [float(job)]) for job in range(1, 5)]
                await store.write(batch(*rows), tenant="a", durable=True)
            with pytest.raises(Corrupt, match="hour 0 of tenant a is damaged"):
                await store.write(one(2.0, 1, job="1"), tenant="a", durable=True)
            found = await everything(store, tenant="a", start_ms=HOUR)
            assert found[("__name__", "up"), ("job", "1")] == [(HOUR, 1.0), (2 * HOUR, 1.0), (DAY, 1.0), (2 * DAY, 1.0)]
            assert len(found) == 5
            assert await store.label_values("job", tenant="a", start_ms=HOUR, end_ms=DAY - 1) == ["1", "2", "3", "4"]
            assert len((await store.verify(tenant="a")).problems) == 1
        # The same from what is stored, and after that hour lost its dictionary.
        async with await opened(volume) as store:
            assert await everything(store, tenant="a", start_ms=HOUR) == found
            await store.write(one(9.0, HOUR, job="1"), tenant="a", durable=True)
            assert (await everything(store, tenant="a", start_ms=HOUR))[("__name__", "up"), ("job", "1")][0] == (
                HOUR,
                9.0,
            )
        assert damage(volume, fragment_of(SeriesFamily.DICTIONARY))
        async with await opened(volume) as store:
            with pytest.raises(Corrupt, match="hour 1 of tenant a is damaged"):
                await store.write(one(2.0, HOUR + 1, job="1"), tenant="a", durable=True)
            await store.write(one(2.0, 2 * HOUR + 1, job="1"), tenant="a", durable=True)
            await store.expire(DAY, tenant="a")
            assert (await store.verify(tenant="a")).ok

    asyncio.run(run())


def test_a_damaged_directory_page_is_made_again_and_written_with_the_next_flush() -> None:
    async def run() -> None:
        volume = MemoryVolume()
        await filled(volume)
        pages = TENANT_DATA + (0).to_bytes(4, "big") + b"\x01"
        assert damage(volume, lambda key: key.startswith(pages))
        async with await opened(volume) as store:
            assert len(await everything(store, tenant="a")) == 3
            assert not (await store.verify(tenant="a")).ok
            await store.write(one(2.0, 5 * HOUR), tenant="a", durable=True)
            assert (await store.verify(tenant="a")).ok
        async with await opened(volume) as store:
            assert (await store.verify(tenant="a")).ok

    asyncio.run(run())


@pytest.mark.parametrize("head", [b"\x00", None])
def test_a_tenant_whose_head_or_record_is_damaged_is_set_aside_alone(head: bytes | None) -> None:
    async def run() -> None:
        volume = MemoryVolume()
        await filled(volume)
        key = b"\x02a" if head is None else TENANT_DATA + (0).to_bytes(4, "big") + head
        assert damage(volume, lambda each: each == key) == 1
        async with await opened(volume) as store:
            with pytest.raises(Corrupt, match="tenant a"):
                await everything(store, tenant="a")
            assert not (await store.verify(tenant="a")).ok
            bad = await store.write(one(2.0, 1), tenant="a")
            await store.write(one(2.0, 1), tenant="b")
            with pytest.raises(Corrupt, match="tenant a"):
                await bad.durable()
            assert len(await everything(store, tenant="b")) == 4

    asyncio.run(run())


def test_a_damaged_record_of_the_store_is_made_again() -> None:
    async def run() -> None:
        volume = MemoryVolume()
        await filled(volume)
        assert damage(volume, lambda key: key == STORE) == 1
        async with await opened(volume) as store:
            assert await store.record_problems()
            await store.write(one(1.0), tenant="c", durable=True)
            assert not await store.record_problems()
            assert await store.tenants() == ["a", "b", "c"]
            assert len(await everything(store, tenant="a")) == 3

    asyncio.run(run())


def test_a_store_of_a_newer_format_is_left_alone() -> None:
    async def run() -> None:
        volume = MemoryVolume()
        await filled(volume)
        value = volume.table("keyvalue").get(STORE)
        assert value is not None
        volume.land("keyvalue", ((STORE, value[:4] + bytes([9]) + value[5:]),))
        with pytest.raises(Unsupported, match="format 9"):
            await opened(volume)
        with pytest.raises(Unsupported, match="format 9"):
            await everything(TimeSeriesReader(MemoryFollower(volume), SMALL), tenant="a")

    asyncio.run(run())


def test_a_position_that_cannot_be_read_stops_its_own_source_alone() -> None:
    async def run() -> None:
        volume = MemoryVolume()
        async with await opened(volume) as store:
            for source in ("x", "y"):
                await store.write(store.changes(source, 1).write(one(1.0)), durable=True)
        assert damage(volume, lambda key: key == b"\x01x") == 1
        async with await opened(volume) as store:
            with pytest.raises(Corrupt, match=r"position of 'x'"):
                store.position("x")
            with pytest.raises(Corrupt, match="changes of 'x' are refused"):
                await store.write(store.changes("x", 2).write(one(1.0)))
            await store.write(store.changes("y", 2).write(one(1.0)), durable=True)
            assert store.position("y") == 2

    asyncio.run(run())


def test_a_damaged_head_and_a_position_that_is_stated_are_made_again() -> None:
    async def run() -> None:
        volume = MemoryVolume()
        await filled(volume)
        async with await opened(volume) as store:
            await store.write(store.changes("x", 1), durable=True)
        assert damage(volume, lambda key: key == TENANT_DATA + (0).to_bytes(4, "big") + b"\x00") == 1
        assert damage(volume, lambda key: key == b"\x01x") == 1
        left = await repair_series(MemoryKeyValue(volume), {})
        assert [report.repaired for report in left] == [False, True]
        assert [report.repaired for report in await repair_series(MemoryKeyValue(volume), {"x": 1})] == [True]
        assert await repair_series(MemoryKeyValue(volume), {}) == []
        with pytest.raises(InvalidInput, match="the store already has it"):
            await repair_series(MemoryKeyValue(volume), {"x": 9})
        async with await opened(volume) as store:
            assert store.position("x") == 1
            assert len(await everything(store, tenant="a")) == 3
            await store.write(one(2.0, 1), tenant="a", durable=True)
            assert (await store.verify(tenant="a")).ok

    asyncio.run(run())


@pytest.mark.parametrize("family", [*FAMILIES, SeriesFamily.METADATA])
def test_a_block_cut_anywhere_is_corrupt_and_nothing_else(family: SeriesFamily) -> None:
    """Whatever is left of a body behind a whole envelope is refused by name."""
    from penstock.timeseries import MetricMetadata, SampleBatch

    async def run() -> bytes:
        volume = MemoryVolume()
        async with await opened(volume) as store:
            rows = batch(*((series(job=str(job)), [0, 1], [1.0, 0.5]) for job in range(9)))
            about = SampleBatch.of([], [], [], [], {"up": MetricMetadata("gauge", "is up")})
            await store.write(store.changes().write(rows).write(about), durable=True)
        keys = fragment_of(family)
        return next(value for key, value in volume.table("keyvalue").entries(b"", None, reverse=False) if keys(key))

    value = asyncio.run(run())
    body = bytes(FORMAT.envelope.unseal(family, value))
    kind = FORMAT.blocks[family]
    assert len(kind.decode(memoryview(body))) > 0
    for size in range(len(body)):
        with pytest.raises(Corrupt):
            kind.decode(memoryview(body[:size]))


def test_a_flipped_bit_in_a_file_costs_a_day_at_most(tmp_path: Path) -> None:
    async def run() -> None:
        config = TimeSeriesConfig(upkeep_pause_seconds=float("inf"))
        jobs, days = 300, 6
        async with await TimeSeriesStore.open(tmp_path.as_uri(), "series", config) as store:
            times = [day * DAY + minute * 60_000 for day in range(days) for minute in range(30)]
            rows = [(series(job=f"job-{job}"), times, [job + time % 7919 / 7 for time in times]) for job in range(jobs)]
            await store.write(batch(*rows), durable=True)
            raw: Any = store._keyvalue
            await raw._raw.flush_with_options(uniffi.FlushOptions(flush_type=uniffi.FlushType.MEM_TABLE))
        table = max((tmp_path / "series" / "compacted").glob("*.sst"), key=lambda path: path.stat().st_size)
        whole = table.read_bytes()
        for share in (0.5, 0.7, 0.9):
            damaged = bytearray(whole)
            damaged[int(len(damaged) * share)] ^= 4
            table.write_bytes(damaged)
            reader = await TimeSeriesStore.open_reader(tmp_path.as_uri(), "series", config)
            answered = 0
            for day in range(days):
                try:
                    found = await everything(reader, start_ms=day * DAY, end_ms=(day + 1) * DAY - 1)
                    answered += len(found) == jobs and all(len(rows) == 30 for rows in found.values())
                except Corrupt:
                    continue
            assert answered >= days - 2, f"at {share}"
            await reader.close()
        table.write_bytes(whole)

    asyncio.run(run())
