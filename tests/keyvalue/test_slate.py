"""What only the store over SlateDB promises: synced directories, counted writes, a bounded scan, clean ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from slatedb import uniffi

from penstock.errors import Closed, Fenced, OutcomeUnknown
from penstock.keyvalue import KeyValue, WriteBatch, open_keyvalue
from penstock.keyvalue.durable_directory import DurableDirectory
from penstock.keyvalue.slate import _ROWS_MAX, SlateKeyValue, _rows_to_ask
from penstock.observability import names
from penstock.testing import RecordingObserver


class WatchedDirectory(DurableDirectory):
    """Notes which files of the log were there when each sync began."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.covered: list[set[str]] = []

    def sync(self) -> None:
        covered = self.log()
        super().sync()
        self.covered.append(covered)

    def log(self) -> set[str]:
        return {path.name for path in (self.folder / "wal").iterdir() if "#" not in path.name}


class FailingDirectory(DurableDirectory):
    """A disk that cannot keep what it was given."""

    def sync(self) -> None:
        raise OSError(5, "Input/output error")


@asynccontextmanager
async def opened_on(
    folder: Path, kind: type[DurableDirectory], observer: RecordingObserver | None = None
) -> AsyncIterator[tuple[SlateKeyValue, Any]]:
    directory = kind(folder / "store")
    builder = uniffi.ObjectStoreBuilder(uniffi.ObjectStoreType.LOCAL)
    builder.with_config("local_path", str(folder))
    settings = uniffi.Settings.default()
    settings.set("flush_interval", '"2ms"')
    database = uniffi.DbBuilder("store", builder.build())
    database.with_settings(settings)
    store = SlateKeyValue(
        await database.build(), "the store", directory=directory, observer=observer or RecordingObserver()
    )
    try:
        yield store, directory
    finally:
        await asyncio.gather(store.close(), return_exceptions=True)


def test_a_write_is_durable_only_after_a_sync_that_covered_its_log_file(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened_on(tmp_path, WatchedDirectory) as (store, directory):
            for number in range(20):
                before = directory.log()
                await (await store.write(WriteBatch().put(b"%d" % number, b"value"))).durable()
                added = set().union(*directory.covered) - before
                assert added, "the log file of this write was covered by a sync"

    asyncio.run(scenario())


def test_flush_and_close_sync_what_they_made_durable(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened_on(tmp_path, WatchedDirectory) as (store, directory):
            await store.write(WriteBatch().put(b"flushed", b"value"))
            await store.flush()
            assert directory.covered[-1] == directory.log()
            await store.write(WriteBatch().put(b"closed", b"value"))
            await store.close()
            assert directory.covered[-1] == directory.log()

    asyncio.run(scenario())


def test_concurrent_waiters_share_their_syncs(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened_on(tmp_path, WatchedDirectory) as (store, directory):
            handles = [await store.write(WriteBatch().put(b"%d" % number, b"value")) for number in range(100)]
            await asyncio.gather(*(handle.durable() for handle in handles))
            assert len(directory.covered) < 20

    asyncio.run(scenario())


def test_a_failed_sync_leaves_the_outcome_unknown_for_every_waiter(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened_on(tmp_path, FailingDirectory) as (store, _):
            handles = [await store.write(WriteBatch().put(b"%d" % number, b"value")) for number in range(5)]
            outcomes = await asyncio.gather(*(handle.durable() for handle in handles), return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [OutcomeUnknown] * 5
            assert "Input/output error" in str(outcomes[0])
            with pytest.raises(OutcomeUnknown):
                await store.flush()

    asyncio.run(scenario())


def on_directory(tmp_path: Path, scenario: Callable[[KeyValue, RecordingObserver], Awaitable[None]]) -> None:
    async def run() -> None:
        observer = RecordingObserver()
        store = await open_keyvalue(tmp_path.as_uri(), "store", flush_interval_ms=2, observer=observer)
        await scenario(store, observer)
        await store.close()

    asyncio.run(run())


def test_writes_waits_and_syncs_are_counted(tmp_path: Path) -> None:
    async def scenario(store: KeyValue, observer: RecordingObserver) -> None:
        handle = await store.write(WriteBatch().put(b"key", b"12345"))
        await handle.durable()
        await handle.durable()
        assert observer.counted(names.KEYVALUE_WRITE_BYTES) == 8
        assert len(observer.observed(names.KEYVALUE_DURABLE_SECONDS)) == 1
        assert len(observer.observed(names.KEYVALUE_SYNC_SECONDS)) >= 1

    on_directory(tmp_path, scenario)


def test_being_fenced_is_told_once(tmp_path: Path) -> None:
    async def run() -> None:
        observer = RecordingObserver()
        first = await open_keyvalue(tmp_path.as_uri(), "store", observer=observer)
        second = await open_keyvalue(tmp_path.as_uri(), "store")
        handle = await first.write(WriteBatch().put(b"key", b"value"))
        for _ in range(3):
            with pytest.raises(Fenced):
                await handle.durable()
        assert len(observer.events(names.KEYVALUE_FENCED)) == 1
        await second.close()

    asyncio.run(run())


def test_a_close_given_up_by_its_caller_still_ends_and_keeps_the_writes(tmp_path: Path) -> None:
    async def run() -> None:
        store = await open_keyvalue(tmp_path.as_uri(), "store")
        await store.write(WriteBatch().put(b"key", b"value"))
        closing = asyncio.ensure_future(store.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        with pytest.raises(Closed):
            await store.get(b"key")
        await store.close()
        reopened = await open_keyvalue(tmp_path.as_uri(), "store")
        assert await reopened.get(b"key") == b"value"
        await reopened.close()

    asyncio.run(run())


def test_a_cancelled_write_is_whole_or_absent(tmp_path: Path) -> None:
    async def scenario(store: KeyValue, observer: RecordingObserver) -> None:
        for number in range(50):
            batch = WriteBatch().put(b"left/%d" % number, b"x" * 2000).put(b"right/%d" % number, b"x" * 2000)
            writing = asyncio.ensure_future(store.write(batch))
            for _ in range(number % 4):
                await asyncio.sleep(0)
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
        await store.flush()
        left = {key.removeprefix(b"left") async for block in store.scan_prefix(b"left/") for key, _ in block}
        right = {key.removeprefix(b"right") async for block in store.scan_prefix(b"right/") for key, _ in block}
        assert left == right

    on_directory(tmp_path, scenario)


def test_values_survive_the_move_from_log_to_sorted_files(tmp_path: Path) -> None:
    """A small bound on unflushed bytes makes SlateDB write sorted files while the store is in use."""

    async def run() -> None:
        store = await open_keyvalue(tmp_path.as_uri(), "store", unflushed_bytes_max=8 << 20)
        value = bytes(range(256)) * 256
        for number in range(200):
            handle = await store.write(WriteBatch().put(b"%03d" % number, value + b"%03d" % number))
        await handle.durable()
        await store.close()
        assert list((tmp_path / "store" / "compacted").iterdir()), "sorted files were written"
        reopened = await open_keyvalue(tmp_path.as_uri(), "store")
        found = [entry async for block in reopened.scan() for entry in block]
        assert found == [(b"%03d" % number, value + b"%03d" % number) for number in range(200)]
        await reopened.close()

    asyncio.run(run())


def row(size: int) -> Any:
    return uniffi.KeyValue(key=b"k", value=b"x" * (size - 1), seq=0, create_ts=0, expire_ts=None)


def test_a_scan_asks_for_as_many_rows_as_fill_the_block_and_doubles_at_most() -> None:
    assert _rows_to_ask([row(100)] * 10, 1000) == 10
    assert _rows_to_ask([row(100)] * 10, 300) == 3
    assert _rows_to_ask([row(100)] * 4, 1 << 20) == 8
    assert _rows_to_ask([row(1)] * 200, 1 << 20) == _ROWS_MAX
    assert _rows_to_ask([row(100_000)], 10) == 1
