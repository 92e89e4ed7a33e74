"""Files that were damaged on the disk: what can be read is read, and what cannot is named."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from slatedb import uniffi

from penstock.errors import Corrupt
from penstock.keyvalue import Reader, WriteBatch, get_each, open_follower, open_keyvalue
from penstock.keyvalue.damage import cut_files
from penstock.keyvalue.slate import SlateKeyValue

KEYS = [b"key/%03d" % number for number in range(40)]
VALUES = {key: bytes([place]) * 20_000 for place, key in enumerate(KEYS)}


async def _written(folder: Path) -> Path:
    """A store with all its values in one sorted file, which is returned."""
    store = await open_keyvalue(folder.as_uri(), "store")
    assert isinstance(store, SlateKeyValue)
    for key, value in VALUES.items():
        await store.write(WriteBatch().put(key, value))
    # Only a sorted file is read from the disk again: what is in the log alone is kept in memory.
    await store._raw.flush_with_options(uniffi.FlushOptions(flush_type=uniffi.FlushType.MEM_TABLE))
    await store.close()
    (table,) = (folder / "store" / "compacted").glob("*.sst")
    return table


async def _reading(folder: Path, work: Callable[[Reader], object]) -> None:
    """Do the same with a writer, a snapshot of it, and a follower."""
    store = await open_keyvalue(folder.as_uri(), "store", retries_max=1)
    follower = await open_follower(folder.as_uri(), "store", retries_max=1)
    for reader in (store, await store.snapshot(), follower):
        await work(reader)  # type: ignore[misc]
    await follower.close()
    await store.close()


def _flip(path: Path, share: float) -> None:
    body = bytearray(path.read_bytes())
    body[int(len(body) * share)] ^= 4
    path.write_bytes(body)


@pytest.mark.cases(quick=3)
@pytest.mark.parametrize("share", [0.01, 0.2, 0.4, 0.6, 0.8, 0.95])
def test_a_flipped_bit_costs_the_values_it_lies_in_and_no_other(tmp_path: Path, share: float) -> None:
    async def work(reader: Reader) -> None:
        each = await get_each(reader, KEYS)
        lost = [key for key, value in zip(KEYS, each, strict=True) if isinstance(value, Corrupt)]
        assert 0 < len(lost) <= 2
        for key, value in zip(KEYS, each, strict=True):
            if isinstance(value, Corrupt):
                assert repr(key) in value.what
                assert table.name in value.why
            else:
                assert value == VALUES[key]
        with pytest.raises(Corrupt, match=table.name):
            await reader.get_many(KEYS)
        with pytest.raises(Corrupt, match=table.name):
            [entries async for entries in reader.scan_prefix(b"key/")]

    async def run() -> None:
        nonlocal table
        table = await _written(tmp_path)
        _flip(table, share)
        await _reading(tmp_path, work)

    table = tmp_path
    asyncio.run(run())


@pytest.mark.slow
@pytest.mark.parametrize("kept", [0.0, 0.5])
def test_a_file_that_was_cut_short_is_named_and_no_outage(tmp_path: Path, kept: float) -> None:
    async def work(reader: Reader) -> None:
        for value in await get_each(reader, KEYS[:3]):
            assert isinstance(value, Corrupt)
            assert f"compacted/{table.name} cut short" in value.why

    async def run() -> None:
        nonlocal table
        table = await _written(tmp_path)
        table.write_bytes(table.read_bytes()[: int(table.stat().st_size * kept)])
        await _reading(tmp_path, work)

    table = tmp_path
    asyncio.run(run())


def test_a_log_file_that_was_cut_short_is_named_at_opening(tmp_path: Path) -> None:
    async def run() -> None:
        store = await open_keyvalue(tmp_path.as_uri(), "store")
        for key, value in VALUES.items():
            await (await store.write(WriteBatch().put(key, value))).durable()
        await store.close()
        log = sorted((tmp_path / "store" / "wal").glob("*.sst"))[-2]
        log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])
        for opening in (open_keyvalue, open_follower):
            with pytest.raises(Corrupt, match=f"wal/{log.name} cut short"):
                await opening(tmp_path.as_uri(), "store", retries_max=1)

    asyncio.run(run())


def test_whole_files_are_not_suspected(tmp_path: Path) -> None:
    asyncio.run(_written(tmp_path))
    assert cut_files(tmp_path / "store") == []
    assert cut_files(tmp_path / "nothing here") == []
