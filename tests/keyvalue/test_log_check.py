"""A log of a directory that lost a file is not taken for a shorter log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from slatedb import uniffi

from penstock.errors import Corrupt
from penstock.keyvalue import WriteBatch, open_follower, open_keyvalue
from penstock.keyvalue.log_record import RECORD, LogRecord, read_record
from penstock.keyvalue.slate import SlateKeyValue

ROUNDS, WRITES = 3, 4


async def _filled(folder: Path, *, tables_after: int | None = None) -> Path:
    """A store that was opened three times and written to four times each, a log file each; its log's folder."""
    for number in range(ROUNDS):
        store = await open_keyvalue(folder.as_uri(), "store")
        assert isinstance(store, SlateKeyValue)
        for place in range(WRITES):
            await (await store.write(WriteBatch().put(b"%d-%d" % (number, place), b"value"))).durable()
        if number == tables_after:
            await store._raw.flush_with_options(uniffi.FlushOptions(flush_type=uniffi.FlushType.MEM_TABLE))
        await store.close()
    return folder / "store" / "wal"


async def _count(folder: Path) -> int:
    store = await open_keyvalue(folder.as_uri(), "store", retries_max=1)
    try:
        return sum([len(entries) async for entries in store.scan()])
    finally:
        await store.close()


def _files(log: Path, *, empty: bool = False) -> list[Path]:
    return [path for path in sorted(log.glob("*.sst")) if (path.stat().st_size == 0) == empty]


def _cut(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [_cut, Path.unlink], ids=["cut to nothing", "removed"])
@pytest.mark.parametrize("place", [0, 5, -1], ids=["first", "middle", "last"])
def test_a_log_file_that_is_gone_is_noticed_wherever_it_was(
    tmp_path: Path, damage: Callable[[Path], object], place: int
) -> None:
    async def run() -> None:
        log = await _filled(tmp_path)
        damage(_files(log)[place])
        # Asking again does not make it right.
        for _ in range(2):
            with pytest.raises(Corrupt, match="has lost writes"):
                await _count(tmp_path)
        if place != -1:
            with pytest.raises(Corrupt, match="wal/0"):
                await open_follower(tmp_path.as_uri(), "store")

    asyncio.run(run())


def test_a_whole_log_is_opened_and_its_fences_are_known(tmp_path: Path) -> None:
    async def run() -> None:
        log = await _filled(tmp_path, tables_after=1)
        assert await _count(tmp_path) == ROUNDS * WRITES
        record = read_record(tmp_path / "store")
        assert record is not None
        assert record.sequence == ROUNDS * WRITES
        assert {f"{number:020}.sst" for number in record.fences} == {path.name for path in _files(log, empty=True)}
        follower = await open_follower(tmp_path.as_uri(), "store")
        assert await follower.get(b"2-3") == b"value"
        await follower.close()

    asyncio.run(run())


def test_fences_that_nobody_noted_are_told_from_lost_files_by_their_neighbours(tmp_path: Path) -> None:
    """A writer that died while it opened, or one of an older release, left them."""

    async def run() -> None:
        await _filled(tmp_path, tables_after=0)
        (tmp_path / "store" / RECORD).write_text('{"sequence":12}')
        assert await _count(tmp_path) == ROUNDS * WRITES

    asyncio.run(run())


@pytest.mark.parametrize("record", [None, b"", b"\xff{", b'{"sequence":"many"}'])
def test_without_a_record_that_can_be_read_a_log_is_taken_as_it_is(tmp_path: Path, record: bytes | None) -> None:
    async def run() -> None:
        log = await _filled(tmp_path)
        _cut(_files(log)[-1])
        if record is None:
            (tmp_path / "store" / RECORD).unlink()
        else:
            (tmp_path / "store" / RECORD).write_bytes(record)
        assert await _count(tmp_path) == ROUNDS * WRITES - 1

    asyncio.run(run())


def test_a_killed_writer_leaves_a_record_that_is_not_ahead_of_its_log(tmp_path: Path) -> None:
    async def run() -> None:
        store = await open_keyvalue(tmp_path.as_uri(), "store", flush_interval_ms=60_000)
        await store.write(WriteBatch().put(b"never durable", b"value"))
        assert read_record(tmp_path / "store") == LogRecord(0, (1,))
        # The next writer fences it, as one that was killed.
        assert await _count(tmp_path) == 0

    asyncio.run(run())
