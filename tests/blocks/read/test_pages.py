"""Pages of directories: what is written is read, and a damaged one is made again from the keys it listed."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from tests.blocks.meters import FORMAT, READINGS, MeterStore, Write, read_tenant, readings_of, tenant_prefix

from penstock.blocks import (
    FRAGMENT,
    BlockCache,
    BlockReader,
    RecordKind,
    decode_page,
    fragments_prefix,
    read_directories,
)
from penstock.blocks.format.keys import page_key
from penstock.blocks.read.pages import encode_page
from penstock.errors import Corrupt
from penstock.keyvalue import MemoryKeyValue, MemoryVolume


async def written(hours: int = 3) -> MemoryVolume:
    volume = MemoryVolume()
    store = await MeterStore.over(MemoryKeyValue(volume))
    await store.write(Write("a", tuple((hour, meter, hour) for hour in range(hours) for meter in range(3))))
    await store.close()
    return volume


def reader_of(volume: MemoryVolume) -> BlockReader:
    return BlockReader(MemoryKeyValue(volume), FORMAT, BlockCache(1 << 20, store="meters"))


def test_a_page_is_read_as_it_was_written() -> None:
    fragments = np.array([(5, 1, 2, 30), (2**64 - 1, 2**64 - 1, 7, 9)], FRAGMENT)
    assert decode_page(FORMAT, encode_page(FORMAT, fragments)).tolist() == fragments.tolist()


def test_a_page_that_is_cut_short_is_corrupt() -> None:
    with pytest.raises(Corrupt, match="cut short"):
        decode_page(FORMAT, FORMAT.envelope.seal(RecordKind.PAGE, b"\x00" * (FRAGMENT.itemsize - 1)))


def test_a_damaged_page_is_made_again_from_the_fragments_without_a_loss() -> None:
    async def work() -> None:
        volume = await written()
        whole = await read_directories(reader_of(volume), tenant_prefix("a"), "a")
        volume.land("keyvalue", [(page_key(tenant_prefix("a"), READINGS, 0), b"damaged")])
        found = await read_directories(reader_of(volume), tenant_prefix("a"), "a")
        assert found.directories[READINGS].fragments.tolist() == whole.directories[READINGS].fragments.tolist()
        assert found.damages[READINGS].blocks == ["the directory of readings of a, page 0"]
        assert found.remade == set(found.damages[READINGS].blocks)
        state = await read_tenant(reader_of(volume), "a")
        assert state is not None
        assert len(await readings_of(reader_of(volume), state)) == 9

    asyncio.run(work())


def test_a_damaged_page_over_a_damaged_fragment_is_made_again_and_not_called_whole() -> None:
    async def work() -> None:
        volume = await written()
        key = next(iter(volume.table("keyvalue").entries(fragments_prefix(tenant_prefix("a")), None, reverse=False)))[0]
        volume.land("keyvalue", [(page_key(tenant_prefix("a"), READINGS, 0), b"damaged"), (key, b"damaged")])
        found = await read_directories(reader_of(volume), tenant_prefix("a"), "a")
        assert len(found.directories[READINGS].fragments) == 3
        assert found.remade == set()

    asyncio.run(work())


def test_directories_beneath_another_prefix_are_not_mixed_in() -> None:
    async def work() -> None:
        found = await read_directories(reader_of(await written()), tenant_prefix("ab"), "ab")
        assert found.directories == {}

    asyncio.run(work())
